/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The second kernel of a decode call with split keys: a block a row adds the splits' parts in index order,
 *
 *     m = max_s m_s,  w_s = e^(m_s - m),  o = sum_s w_s o_s / sum_s w_s l_s
 *
 * Reads (Dv + 2) floats for each split that has keys. On 9.0 it comes up while the decode kernel still runs, and waits
 * where the first part is read.
 */
#include "cuda/common/ptx.cuh"
#include "cuda/simt/flash_close.cuh"
#include "cuda/sm80/decode_range.cuh"

#define THREADS DECODE_COMBINE_THREADS

enum { CHUNK = 32, FIRST = 16 }; /* splits that lanes hold the weights of; parts whose loads do not wait for weights */

struct combine_shared { struct seq seq; int live; };

/* Row r, whose parts stand `step` rows apart from `part` on. Every warp finds the weights itself, a lane a split. */
static __device__ __forceinline__ void combine_row(const struct decode_sm80_args *a, const struct problem *p,
                                                   const struct combine_shared *sh, int kv_head, int r, int64_t part)
{
    const struct seq *const s = &sh->seq;
    const int lane = threadIdx.x & 31, live = sh->live, dv = (int)p->dv, i = r / (int)p->group;
    const int64_t step = a->part_rows, h = kv_head * p->group + r - i * (int)p->group;
    const float2 *const ml = (const float2 *)a->parts_ml + part;
    const float2 none = make_float2(minus_infinity(), 0.0f), mine = lane < live ? __ldcg(&ml[lane * step]) : none;
    const int64_t pitch = step * dv;
    const float *from = a->parts_o + part * dv + threadIdx.x;
    float first[FIRST];
#pragma unroll
    for (int k = 0; k < FIRST; k++)
        first[k] = k < live && threadIdx.x < dv ? __ldcg(from + k * pitch) : 0.0f;

    float max = mine.x, factor, lse;
    for (int k = lane + CHUNK; k < live; k += CHUNK)
        max = fmaxf(max, __ldcg(&ml[k * step]).x);
    max = lanes_max<32>(max);
    const float weight = exp_below(mine.x, max);
    float sum = __fmul_rn(mine.y, weight);
    for (int k = lane + CHUNK; k < live; k += CHUNK) {
        const float2 x = __ldcg(&ml[k * step]);
        sum = __fmaf_rn(x.y, exp_below(x.x, max), sum);
    }
    sum = lanes_sum<32>(sum);
    flash_close(p, h, false, max, sum, &factor, &lse);

    char *const out = view_at(&p->o, s->q_batch, h, s->q_row + i, 0);
#pragma unroll 1
    for (int base = 0; base < dv; base += THREADS, from += THREADS) {    /* all lanes: they shuffle */
        const int column = base + threadIdx.x;
        float o = 0.0f;
#pragma unroll
        for (int k = 0; k < FIRST; k++) {
            const float x = base == 0 ? first[k] : k < live && column < dv ? __ldcg(from + k * pitch) : 0.0f;
            o = __fmaf_rn(x, __shfl_sync(0xFFFFFFFFu, weight, k), o);
        }
#pragma unroll 8
        for (int k = FIRST; k < (live < CHUNK ? live : CHUNK); k++)
            o = __fmaf_rn(column < dv ? __ldcg(from + k * pitch) : 0.0f, __shfl_sync(0xFFFFFFFFu, weight, k), o);
#pragma unroll 1
        for (int chunk = CHUNK; chunk < live; chunk += CHUNK) {
            const int count = live - chunk < CHUNK ? live - chunk : CHUNK;
            const float w = exp_below(lane < count ? __ldcg(&ml[(chunk + lane) * step]).x : minus_infinity(), max);
#pragma unroll 8
            for (int k = 0; k < count; k++)
                o = __fmaf_rn(column < dv ? __ldcg(from + (chunk + k) * pitch) : 0.0f, __shfl_sync(0xFFFFFFFFu, w, k),
                              o);
        }
        if (column < dv)
            store_any(out + column * p->o.stride[3] * p->o.itemsize, p->o.dtype, flash_result(false, o, factor));
    }
    if (p->lse.dtype && threadIdx.x == 0)
        *(float *)view_at(&p->lse, s->q_batch, h, s->q_row + i, 0) = lse;
}

/* By one thread: the sequence and how many of its splits have keys; -1: row r is not this call's. */
static __device__ __forceinline__ void combine_open(const struct decode_sm80_args *a, const struct problem *p,
                                                    int64_t n, int r, struct combine_shared *sh)
{
    const struct seq s = seq_get(p, n);
    int64_t begin, end, ignored;
    sh->seq = s;
    sh->live = -1;
    if (s.len_q > a->longest || r >= s.len_q * p->group)
        return;
    seq_visible(p, &s, 0, &begin, &ignored);
    seq_visible(p, &s, s.len_q - 1, &ignored, &end);
    const struct decode_range all = decode_range_of((int)begin, (int)end);
    sh->live = decode_live_splits(a, &all);
}

static __global__ void __launch_bounds__(THREADS, 4)
decode_combine_kernel(const __grid_constant__ struct decode_sm80_args args,
                      const __grid_constant__ struct problem_param packed)
{
    __shared__ struct combine_shared sh;
    const struct problem *const p = problem_of(&packed);
    const struct decode_sm80_args *const a = &args;
    const int x = blockIdx.x, item = x / a->part_rows, r = x - item * a->part_rows;
    const int n = item / a->kv_heads, kv_head = item - n * a->kv_heads;
    if (threadIdx.x == 0)
        combine_open(a, p, n, r, &sh);
    __syncthreads();
    wait_for_predecessor();     /* every block, or one might end before the decode kernel and be overtaken */
    if (sh.live >= 0)
        combine_row(a, p, &sh, kv_head, r, (int64_t)item * a->num_splits * a->part_rows + r);
}

const void *qattn__decode_combine(void) { return (const void *)decode_combine_kernel; }
