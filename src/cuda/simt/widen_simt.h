/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* q, k or v of any type -> f32, descaled, packed [n][heads][rows][width]: what gqa_forward's products read. */
#ifndef QATTN_CUDA_WIDEN_SIMT_H
#define QATTN_CUDA_WIDEN_SIMT_H

#include "cuda/common/problem_param.h"

#ifdef __cplusplus
extern "C" {
#endif

enum widen_which { WIDEN_Q, WIDEN_K, WIDEN_V };

struct widen_simt_args {
    float  *out;
    int64_t elements, heads, rows, width;
    int32_t which;              /* enum widen_which */
    int32_t reserved0;
};

enum { WIDEN_THREADS = 256 };
const void *qattn__widen_simt(void);

#ifdef __cplusplus
}
#endif

#endif
