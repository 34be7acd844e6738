/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* What the kernels of the strided product share: which tile an item of work is, and how its results are stored. */
#ifndef QATTN_CUDA_GEMM_WORK_CUH
#define QATTN_CUDA_GEMM_WORK_CUH

#include "core/seq.h"
#include "cuda/common/dtype.cuh"
#include "cuda/common/math.cuh"
#include "cuda/simt/gemm_simt.h"

struct gemm_work { int64_t batch, head, m0, n0; };

/* The n tiles of one row of tiles run side by side; the last rows first (the longest ones under a causal mask). */
__device__ __forceinline__ struct gemm_work gemm_work_of(const struct gemm_args *a, int64_t index, int rows)
{
    struct gemm_work w;
    w.n0 = split_index(&index, a->n_tiles) * GEMM_COLUMNS;
    w.head = split_index(&index, a->heads);
    w.batch = split_index(&index, a->batch);
    w.m0 = (a->m_tiles - 1 - index) * rows;
    return w;
}

/* By position, keys [begin, end) are seen by some of the rows m0 .. m0 + rows - 1, and
 * [all_begin, all_end) by every one. */
struct gemm_keys { int64_t begin, end, all_begin, all_end; };

__device__ __forceinline__ struct gemm_keys gemm_keys_of(const struct problem *p, int64_t batch, int64_t m0,
                                                         int64_t rows)
{
    const struct seq s = seq_get(p, batch);
    const bool whole = m0 + rows <= s.len_q;
    const int64_t last = (whole ? m0 + rows : s.len_q) - 1;
    struct gemm_keys keys = { 0, 0, 0, 0 };
    if (m0 < s.len_q) {
        seq_visible(p, &s, m0, &keys.begin, &keys.all_end);
        seq_visible(p, &s, last, &keys.all_begin, &keys.end);
    }
    if (keys.end < keys.begin)
        keys.end = keys.begin;
    if (!whole)
        keys.all_end = 0;                            /* rows without a query see nothing */
    return keys;
}

/* Keys of an item's sums. False: RANGE_SCORES, and no row of the tile sees a key of its columns. */
__device__ __forceinline__ bool gemm_keys_of_item(const struct gemm_args *a, const struct problem *p,
                                                  const struct gemm_work &w, int rows, struct gemm_keys *keys)
{
    *keys = (struct gemm_keys){ 0, a->k, 0, a->k };
    if (a->cut)
        *keys = gemm_keys_of(p, w.batch, w.m0, rows);
    if (a->cut && a->range == RANGE_SCORES) {
        if (keys->begin == keys->end || keys->end <= w.n0 || keys->begin >= w.n0 + GEMM_COLUMNS)
            return false;
        keys->begin = 0;
        keys->end = a->k;
    }
    return true;
}

/* Row m0 + thread of the tile has hidden keys among those it sees by position: its factor is marked with a sign. */
__device__ __forceinline__ bool gemm_marked(const struct gemm_args *a, const struct gemm_work &w)
{
    const int64_t m = w.m0 + threadIdx.x;
    return m < a->m && __float_as_int(a->factors[(w.batch * a->heads + w.head) * a->m + m]) < 0;
}

/* What the sums of row m are multiplied with. */
__device__ __forceinline__ float gemm_scale(const struct gemm_args *a, const struct gemm_work &w, int64_t m)
{
    return a->factors ? fabsf(a->factors[(w.batch * a->heads + w.head) * a->m + m]) : a->alpha;
}

/* scale value + beta C, at row m and column n of a matrix of C, if there is such a column. */
__device__ __forceinline__ void gemm_put(const struct gemm_args *a, char *c, int64_t m, int64_t n, float value,
                                         float scale)
{
    if (n >= a->n)
        return;
    char *const to = c + (m * a->c_row + n * a->c_column) * a->c_itemsize;
    value = __fmul_rn(scale, value);
    if (a->beta != 0.0f)
        value = __fmaf_rn(a->beta, load_any(to, a->c_dtype), value);
    if (a->factors)
        value = __fadd_rn(value, 0.0f);              /* -0 becomes 0 */
    store_any(to, a->c_dtype, value);
}

/* Columns n .. n + 3. */
__device__ __forceinline__ void gemm_put_four(const struct gemm_args *a, char *c, int64_t m, int64_t n,
                                              const float *values, float scale)
{
    if (a->c_vectors && n + 4 <= a->n) {
        float four[4];
#pragma unroll
        for (int x = 0; x < 4; x++)
            four[x] = a->factors ? __fadd_rn(__fmul_rn(scale, values[x]), 0.0f) : __fmul_rn(scale, values[x]);
        *(float4 *)(c + (m * a->c_row + n) * 4) = make_float4(four[0], four[1], four[2], four[3]);
        return;
    }
#pragma unroll
    for (int x = 0; x < 4; x++)
        gemm_put(a, c, m, n + x, values[x], scale);
}

#endif
