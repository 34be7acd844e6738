/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Shared by test_badargs.c (attention) and test_badargs_ops.c (matmul, softmax, merge): one suite, `badargs`. */
#ifndef QATTN_TESTS_BADARGS_H
#define QATTN_TESTS_BADARGS_H

#include <check.h>
#include <stdbool.h>

#include "qattn.h"

enum { B = 2, HQ = 4, HKV = 2, SQ = 5, SK = 7, D = 8, DV = 6, ROOM = 4096 };

/* Memory of the tensors of a call; bad_out[] must stay as it is. */
extern float bad_in[8][ROOM], bad_out[4][ROOM];
extern char bad_workspace[1 << 20];                  /* 256-byte aligned */

/* What the *_workspace twin must say: the same status, or OK since only the call itself can know. */
enum twin { SAME, CALL_ONLY };

/* A packed f32 tensor. */
qattn_tensor bad_tensor(void *data, int64_t b, int64_t h, int64_t s, int64_t d);
/* Fills bad_out[] and remembers it. */
void poison_outputs(void);
/* A refused call: its status, its text, its silence. */
void check_refusal(const char *name, int32_t got, int32_t want, const char *text);
void check_twin(const char *name, int32_t got, int32_t call, enum twin twin);

void badargs_add_ops(TCase *t);

#endif
