/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The splits' parts of a row brought together, in index order:
 *
 *     m = max_s m_s,  w_s = e^(m_s - m),  o = sum_s w_s o_s / sum_s w_s l_s
 *
 * Reads (Dv + 2) floats for each split that has keys. The last block of a sequence and KV head does it for a few rows,
 * a second kernel (decode_combine.cu) for many: the same function, so the same bits.
 */
#ifndef QATTN_CUDA_DECODE_JOIN_CUH
#define QATTN_CUDA_DECODE_JOIN_CUH

#include "cuda/common/ptx.cuh"
#include "cuda/simt/flash_close.cuh"
#include "cuda/sm80/decode_sm80.h"

enum { JOIN_CHUNK = 32, JOIN_LOADS = 16 };  /* splits that lanes hold the weights of; parts that are loaded at once */

/* Element by element. Out of line: instructions that a block passes over once cost it their fetching. */
static __device__ __noinline__ void decode_store_each(const struct problem *p, char *row, int column, float4 o)
{
    const float columns[4] = { o.x, o.y, o.z, o.w };
    const int64_t step = p->o.stride[3] * p->o.itemsize;
#pragma unroll
    for (int e = 0; e < 4; e++)
        if (column + e < p->dv)
            store_any(row + (column + e) * step, p->o.dtype, columns[e]);
}

/* O of four columns of a row, as many as there are. */
__device__ __forceinline__ void decode_store(const struct decode_sm80_args *a, const struct problem *p, char *row,
                                             int column, float4 o, float factor)
{
    o.x = flash_result(false, o.x, factor);
    o.y = flash_result(false, o.y, factor);
    o.z = flash_result(false, o.z, factor);
    o.w = flash_result(false, o.w, factor);
    if (!a->o_vector)
        decode_store_each(p, row, column, o);
    else if (p->o.dtype == QATTN_DTYPE_F32)
        *(float4 *)(row + 4 * column) = o;
    else if (p->o.dtype == QATTN_DTYPE_F16)
        *(uint2 *)(row + 2 * column) = make_uint2(pack_16<__half>(o.x, o.y), pack_16<__half>(o.z, o.w));
    else
        *(uint2 *)(row + 2 * column) = make_uint2(pack_16<__nv_bfloat16>(o.x, o.y), pack_16<__nv_bfloat16>(o.z, o.w));
}

/* JOIN_LOADS parts, zeros from `count` on. */
__device__ __forceinline__ void decode_join_load(const float4 *from, int64_t step, int count, float4 *x)
{
#pragma unroll
    for (int k = 0; k < JOIN_LOADS; k++)
        x[k] = k < count ? __ldcg(from + k * step) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

/* o += those parts, whose weights lanes base .. hold. */
__device__ __forceinline__ void decode_join_add(const float4 *x, float weight, int base, float4 *o)
{
#pragma unroll
    for (int k = 0; k < JOIN_LOADS; k++) {
        const float w = __shfl_sync(0xFFFFFFFFu, weight, base + k);
        o->x = __fmaf_rn(x[k].x, w, o->x);
        o->y = __fmaf_rn(x[k].y, w, o->y);
        o->z = __fmaf_rn(x[k].z, w, o->z);
        o->w = __fmaf_rn(x[k].w, w, o->w);
    }
}

/* Row r of the sequence, by one warp. Its parts stand a->part_rows rows apart, from row `part` on; `live` of them have
 * keys, two or more. The first loads do not wait for the weights. */
__device__ __forceinline__ void decode_join_row(const struct decode_sm80_args *a, const struct problem *p,
                                                const struct seq *s, int kv_head, int r, int64_t part, int live)
{
    const int lane = threadIdx.x & 31, i = (int)divide((unsigned)r, a->by_group), dv = (int)p->dv;
    const int64_t h = kv_head * p->group + r - i * (int)p->group;
    const float2 *const ml = (const float2 *)a->parts_ml + part;
    const int64_t step = a->part_rows, pitch = step * (a->part_pitch / 4);
    const float4 *from = (const float4 *)(a->parts_o + part * a->part_pitch) + lane;
    const float2 none = make_float2(minus_infinity(), 0.0f), mine = lane < live ? __ldcg(&ml[lane * step]) : none;
    float4 x[JOIN_LOADS];
    decode_join_load(from, pitch, 4 * lane < dv ? live : 0, x);

    struct flash_end end;
    float max = mine.x;
#pragma unroll 1
    for (int k = lane + JOIN_CHUNK; k < live; k += JOIN_CHUNK)
        max = fmaxf(max, __ldcg(&ml[k * step]).x);
    max = lanes_max<32>(max);
    const float weight = exp_below(mine.x, max);
    float sum = __fmul_rn(mine.y, weight);
#pragma unroll 1
    for (int k = lane + JOIN_CHUNK; k < live; k += JOIN_CHUNK) {
        const float2 y = __ldcg(&ml[k * step]);
        sum = __fmaf_rn(y.y, exp_below(y.x, max), sum);
    }
    sum = lanes_sum<32>(sum);
    const float factor = flash_factor(p, h, false, max, sum, &end);

    char *const out = decode_row_of(&a->o, s->q_batch, h, s->q_row + i);
#pragma unroll 1
    for (int column = 4 * lane; column - 4 * lane < dv; column += 128, from += 32) {     /* all lanes: they shuffle */
        float4 o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
        for (int k = 0; k < live; k += JOIN_LOADS) {
            const int chunk = k & -JOIN_CHUNK;
            float w = weight;
            if (k > 0 || column >= 128)
                decode_join_load(from + k * pitch, pitch, column < dv ? live - k : 0, x);
            if (chunk > 0)
                w = exp_below(chunk + lane < live ? __ldcg(&ml[(chunk + lane) * step]).x : minus_infinity(), max);
            decode_join_add(x, w, k - chunk, &o);
        }
        if (column < dv)
            decode_store(a, p, out, column, o, factor);
    }
    if (p->lse.dtype && lane == 0)
        *(float *)view_at(&p->lse, s->q_batch, h, s->q_row + i, 0) = flash_lse(p, false, end);
}

#endif
