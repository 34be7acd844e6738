/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* One problem on one row of the table, and the comparison of attention's outputs with the fp64 oracle. */
#ifndef QATTN_TESTS_ROW_RUN_H
#define QATTN_TESTS_ROW_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/impls.h"
#include "core/problem.h"
#include "ref/ref.h"

/* The rows that can run `p`, whose pointers are the host's, on this machine's CPU, or under QATTN_TEST_DEVICE=cuda on
 * its device; table order; how many. */
enum { ROW_MAX = 16 };
int rows_for(const struct problem *p, const struct impl *rows[ROW_MAX]);

/* Runs p on the row, on a CUDA row in copies of its tensors; the workspace is fenced and full of NaN. Notes a failure
 * if bytes beside it, or on the device any input or bytes around a tensor, changed. */
int32_t row_run(const struct impl *row, const struct problem *p);

/* Seconds of the fastest of `repeats` runs, workspace allocated beforehand; negative if a run fails. */
double row_seconds(const struct impl *row, const struct problem *p, int repeats);

/* "onnx/test_matmul_2d.qv" under tests/data, or under $QATTN_TEST_DATA. Static buffer. */
const char *data_path(const char *name);

/* ---------------------------------------------------------------- oracle of chosen rows */

/* What the oracle says of rows (sequence, query head, row); o, o_abs are [count][dv]. */
struct oracle_row { int64_t n, h, i; double lse, magnitude; int64_t visible; };
struct oracle {
    int64_t count, dv;
    struct oracle_row *rows;
    double *o, *o_abs;
};

/* Every `step`-th row of the problem, the first and the last of each head included; only sequences
 * n % batch_step == 0 and the last one. Rows that no sequence covers are left out. */
struct oracle oracle_make(const struct problem *p, int64_t step, int64_t head_step, int64_t batch_step);
void oracle_free(struct oracle *oracle);

/* Step that brings the oracle's work to at most `flop`. */
int64_t oracle_step(const struct problem *p, double flop);

/* Compares p's o and lse (if present) with the oracle by the bounds of tolerance.h; rows skip_row (-1: none) left
 * out. Notes a failure for the first bad element and tells how many; true if all are within. */
bool oracle_agrees(const struct oracle *oracle, const struct problem *p, int64_t skip_row, const char *what);

/* The unit in the last place of x in an element type. */
double row_ulp(int32_t dtype, double x);

#endif
