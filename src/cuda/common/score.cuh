/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* From a product q.k to a final score, in the order of ref/ref_softmax.c: scale, softcap, bias and ALiBi, masks. */
#ifndef QATTN_CUDA_SCORE_CUH
#define QATTN_CUDA_SCORE_CUH

#include "core/seq.h"
#include "cuda/common/dtype.cuh"
#include "cuda/common/math.cuh"

/* What one query row of one head needs beside its product. */
struct score_row {
    int64_t bias, keep;      /* element offsets of [n, h, i, 0] */
    double  pos;             /* pos(i) = i + offset */
    float   slope;           /* ALiBi; 0: none */
};

__device__ __forceinline__ struct score_row score_row_of(const struct problem *p, const struct seq *s, int64_t h,
                                                         int64_t i)
{
    const struct view *const bias = &p->bias, *const keep = &p->keep;
    struct score_row row;
    row.bias = s->n * bias->stride[0] + h * bias->stride[1] + i * bias->stride[2];
    row.keep = s->n * keep->stride[0] + h * keep->stride[1] + i * keep->stride[2];
    row.pos = (double)i + (double)s->offset;
    row.slope = p->alibi_slopes ? p->alibi_slopes[s->n * p->alibi_batch_stride + h] : 0.0f;
    return row;
}

__device__ __forceinline__ float score_cap(float s, float softcap)
{
    return __fmul_rn(softcap, tanhf(__fdiv_rn(s, softcap)));
}

/* scale and softcap: stage 1 of a score, stage 0 where there is no cap. */
__device__ __forceinline__ float score_capped(const struct problem *p, float product)
{
    const float s = __fmul_rn(p->scale, product);
    return p->softcap == 0.0f ? s : score_cap(s, p->softcap);
}

/* Some score of the call needs score_terms. */
__device__ __forceinline__ bool score_has_terms(const struct problem *p)
{
    return p->bias.dtype || p->keep.dtype || p->alibi_slopes;
}

/* Adds bias and ALiBi of key j; -inf where keep or a bias of -inf hides it, whatever s is. */
__device__ __forceinline__ float score_terms(const struct problem *p, const struct score_row *row, int64_t j, float s)
{
    if (p->keep.dtype && p->keep.data[row->keep + j * p->keep.stride[3]] == 0)
        return minus_infinity();
    if (p->bias.dtype) {
        const int64_t at = (row->bias + j * p->bias.stride[3]) * p->bias.itemsize;
        const float bias = load_any(p->bias.data + at, p->bias.dtype);
        if (bias == minus_infinity())
            return bias;
        s = __fadd_rn(s, bias);
    }
    if (p->alibi_slopes)
        s = __fsub_rn(s, __fmul_rn(row->slope, (float)fabs(row->pos - (double)j)));
    return s;
}

/* score_terms in two steps, so that a kernel with many scores can issue many loads before their first use (where there
 * are few, score_terms takes fewer instructions). First what keep and bias say of key j: -inf, its bias, or 0. */
__device__ __forceinline__ float score_load(const struct problem *p, const struct score_row *row, int64_t j)
{
    if (p->keep.dtype && p->keep.data[row->keep + j * p->keep.stride[3]] == 0)
        return minus_infinity();
    if (!p->bias.dtype)
        return 0.0f;
    return load_any(p->bias.data + (row->bias + j * p->bias.stride[3]) * p->bias.itemsize, p->bias.dtype);
}

/* Then what that and ALiBi make of a score. Hidden pairs may be given -inf for it: then nothing of the row is read. */
__device__ __forceinline__ float score_add(const struct problem *p, const struct score_row *row, int64_t j, float s,
                                           float loaded)
{
    if (loaded == minus_infinity())
        return loaded;
    if (p->bias.dtype)
        s = __fadd_rn(s, loaded);
    if (p->alibi_slopes)
        s = __fsub_rn(s, __fmul_rn(row->slope, (float)fabs(row->pos - (double)j)));
    return s;
}

#endif
