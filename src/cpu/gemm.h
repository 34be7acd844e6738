/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* One matrix product on one thread: the piece matmul, matmul_nt and the three-kernel path are made of. */
#ifndef QATTN_CPU_GEMM_H
#define QATTN_CPU_GEMM_H

#include "cpu/isa.h"

/* A matrix in memory: element [i][j] is data[i * row + j * col]. */
struct matrix {
    char   *data;
    int64_t row, col;       /* elements */
    int32_t dtype, itemsize;
};

/* C[m][n] = alpha sum_k A[m][k] B[k][n] + beta C[m][n]. beta 0: C is not read. */
struct gemm {
    struct matrix a, b, c;
    int64_t m, n, k;
    float alpha, beta;
    bool finite_b;          /* NaN and infinite elements of B count as 0 */
    bool careful;           /* an error of C that does not grow with k: see GEMM_CHAIN */
};

/* Steps of k that are summed apart, then added: k from 0, GEMM_BLOCK_K, 2 GEMM_BLOCK_K .. on. */
enum { GEMM_BLOCK_K = 128 };
/* A careful product sums a block in chains of GEMM_CHAIN steps and adds blocks with their rounding errors kept, so that
 * the error of same-signed terms does not depend on k: equal ones, which round one way, lose 8 x 2^-24 (measured). */
enum { GEMM_CHAIN = 32 };

/* Floats of scratch for products of at most m rows and n columns. */
size_t ISA_NAME(qattn__gemm_scratch)(int64_t m, int64_t n, bool careful);
/* Each element of C is a sum over k in an order of its own: m, n and the strides change no bit. */
void ISA_NAME(qattn__gemm)(const struct gemm *g, float *scratch);

#endif
