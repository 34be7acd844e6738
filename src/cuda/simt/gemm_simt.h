/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* What the launcher and the kernel of the strided matrix product agree on. */
#ifndef QATTN_CUDA_GEMM_SIMT_H
#define QATTN_CUDA_GEMM_SIMT_H

#include "cuda/common/problem_param.h"

#ifdef __cplusplus
extern "C" {
#endif

/* [batch][head][row][k]: A, or B^T. Strides in elements. */
struct gemm_operand {
    const char *data;
    int64_t batch, head, row, k;
    int32_t dtype;
    int32_t along_k;            /* neighbouring k lie closer than neighbouring rows */
    int32_t vectors, reserved0; /* lines of its tiles have no gaps, and are aligned for what is copied at once */
};

/* Attention's products leave out what no row sees. */
enum gemm_range { RANGE_ALL, RANGE_SCORES, RANGE_VALUES };

struct gemm_args {
    int64_t work;               /* items: batch * heads * m_tiles * n_tiles */
    int64_t heads, batch, m, n, k, m_tiles, n_tiles, b_head_div;
    struct gemm_operand a, b;
    char   *c;                  /* [batch][head][m][n] */
    int64_t c_batch, c_head, c_row, c_column;
    int32_t c_dtype, c_itemsize;
    float   alpha, beta;        /* beta 0: C is not read */
    int32_t range;              /* enum gemm_range */
    int32_t c_vectors;          /* rows of C (simt: of f32) can be stored 16 bytes at once, and are not read */
    const float *factors;       /* RANGE_VALUES: [batch][head][m], factors of C's rows; see softmax_simt.h */
    int32_t cut, reserved0;     /* the range leaves something out */
};

/* Kernels (struct gemm_args, struct problem_param), C tiles of 128 x 128 or, `few`, 16 x 128.
 * hiding: for RANGE_VALUES, where A is P in f32. NULL: no such pair of types, or f32 with many rows
 * and not hiding. */
enum { GEMM_ROWS = 128, GEMM_FEW_ROWS = 16, GEMM_COLUMNS = 128, GEMM_THREADS = 256,
       GEMM_F32_THREADS = 128, GEMM_F32_SHARED = 49920, GEMM_CHAIN_KEYS = 4096 };
const void *qattn__gemm_simt(int32_t a_dtype, int32_t b_dtype, bool few, bool hiding);
/* f32 with many rows. */
const void *qattn__gemm_f32_simt(bool hiding);

/* Some key of the problem may be hidden by its position or by a length: ranges have something to cut. */
bool qattn__gemm_hides(const struct problem *p);
/* Lines of the operand's tiles (along k, or along rows), `width` elements in all, can be copied 16 bytes at a time. */
bool qattn__gemm_has_vectors(const struct gemm_operand *t, bool along_k, int64_t width);
/* Whether lines of B's tile should run along k: what can be copied 16 bytes at a time, else what lies closer. */
bool qattn__gemm_runs_along_k(const struct gemm_operand *b, int64_t n, int64_t k);

/* The arguments of matmul and matmul_nt. */
struct gemm_args qattn__matmul_args(const struct problem *p);
/* C = A B of attention: queries' rows up to cap_q. Axis b_row_axis of b, 2 or 3, is that of C's columns. */
struct gemm_args qattn__attention_args(const struct problem *p, const struct view *a, const struct view *b,
                                       int b_row_axis, const struct view *c, enum gemm_range range);
/* Fills in tiles of that size, and work. */
int32_t qattn__gemm_count(struct gemm_args *args, int64_t rows, int64_t columns);

/* A product; tiles, work, cut and how operands are read are filled in. */
int32_t qattn__simt_gemm(struct gemm_args *args, const struct problem *p, qattn_stream stream);

#ifdef __cplusplus
}
#endif

#endif
