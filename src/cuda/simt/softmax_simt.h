/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* What the launcher and the kernels of the row softmax agree on. */
#ifndef QATTN_CUDA_SOFTMAX_SIMT_H
#define QATTN_CUDA_SOFTMAX_SIMT_H

#include "cuda/common/problem_param.h"

#ifdef __cplusplus
extern "C" {
#endif

struct softmax_simt_args {
    int64_t rows;               /* n * hq * cap_q */
    struct view x;              /* [n][hq][cap_q][keys]: products, or softmax's x */
    struct view y;              /* the same: probabilities; may be x */
    int64_t keys;               /* width of y */
    int32_t marked; /* y is P of gqa_forward: 1: hidden keys are -0, and only keys near those that the rows of
                                 * the 128-row tile see are written (gemm_simt_kernels.cu, RANGE_VALUES) */
    int32_t reserved0;
    struct view scores;         /* gqa_forward's optional output, written at p->scores_stage */
    /* NULL, or: y holds e^(s - max), unnormalised (f16: times 2^15), and the row's factor goes to [n][hq][cap_q], its
     * sign set if a key that the row sees by position is hidden */
    float *factors;
};

enum { SOFTMAX_THREADS = 256, SOFTMAX_ROWS = 8, SOFTMAX_SLOTS = 16, SOFTMAX_TILE = 128, SOFTMAX_STEP = 64 };

/* A warp a row with 16 or 64 scores a lane in registers; a block a row with 16. */
enum softmax_width { SOFTMAX_SHORT, SOFTMAX_LONG, SOFTMAX_WIDE, SOFTMAX_WIDTHS };

/* Kernel (struct softmax_simt_args, struct problem_param) for x of that type; a block takes SOFTMAX_ROWS rows. */
const void *qattn__softmax_simt(int32_t dtype, enum softmax_width width);

int32_t qattn__simt_softmax_rows(struct softmax_simt_args *args, const struct problem *p, qattn_stream stream);

#ifdef __cplusplus
}
#endif

#endif
