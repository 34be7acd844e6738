/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Running one row of the table on a build and judging what it wrote. */
#ifndef QATTN_TESTS_ATTN_RUN_H
#define QATTN_TESTS_ATTN_RUN_H

#include "attn_build.h"
#include "core/impls.h"

/* CPU rows, or the CUDA rows under QATTN_TEST_DEVICE=cuda; QATTN_TEST_IMPL heeded. */
bool attn_row_wanted(const struct impl *row);

enum attn_ran { ATTN_RAN, ATTN_UNSUPPORTED, ATTN_FAILED };

/* Runs with a workspace of exactly the bytes asked for, filled with `fill`. Notes a failure for a bad status, a
 * touched guard or a changed input. ATTN_UNSUPPORTED: attn_run_reason tells why. */
enum attn_ran attn_run(const struct impl *row, struct attn_build *b, int32_t num_threads, int fill);
const char *attn_run_reason(void);

/* Is the plain fp32 algorithm's error wanted as a yardstick for this case? */
bool attn_wants_plain(const struct attn_case *c, const struct sequence *seqs);

/* Judges o, lse, scores against the answer and every byte around them. */
void attn_compare(const char *impl_id, struct attn_build *b, const struct attn_answer *a);

/* Bits of the outputs. */
struct attn_copy { void *o, *lse, *scores; };
struct attn_copy attn_copy_outputs(const struct attn_build *b);
bool attn_copy_equal(const struct attn_copy *copy, const struct attn_build *b);
void attn_copy_free(const struct attn_copy *copy);

/* o and lse of row i of sequence n in `a` have the bits of row j of sequence m in `b`, head h in both. */
bool attn_same_row(const struct attn_build *a, const struct attn_build *b, int64_t n, int64_t i, int64_t m, int64_t j,
                   int64_t h);

#endif
