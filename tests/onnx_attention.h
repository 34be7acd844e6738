/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* ONNX's Attention node tests: one file through both operations and every row of the table. */
#ifndef QATTN_TESTS_ONNX_ATTENTION_H
#define QATTN_TESTS_ONNX_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

#include "qattn.h"
#include "qv.h"

/* Notes a failure for each output that is off; counts its runs. */
void onnx_attention(const struct qv *file);

/* `got`, stored in `dtype`, within the limits of tests/data/README.md of the float64 value. */
bool onnx_matches(int32_t dtype, double got, double want);

/* A tensor of the file where it lies: rank 4 as [B,H,S,D], rank 3 as [B,S,H*D]. */
void onnx_tensor(qattn_tensor *out, const struct qv_tensor *t, int64_t heads);

#endif
