/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The second kernel of a decode call with split keys and many rows a sequence, which one block would be long at: a
 * warp a row adds the splits' parts (decode_join.cuh).
 */
#include "cuda/sm80/decode_join.cuh"

enum { WARPS = DECODE_COMBINE_THREADS / 32 };

struct combine_shared { struct seq seq; int live, rows; };

/* By one thread: the sequence, its rows that are this call's, and how many of its splits have keys. */
static __device__ __forceinline__ void combine_open(const struct decode_sm80_args *a, const struct problem *p,
                                                    int64_t n, struct combine_shared *sh)
{
    const struct seq s = seq_get(p, n);
    int64_t begin, end, ignored;
    sh->seq = s;
    sh->rows = s.len_q > a->longest ? 0 : (int)(s.len_q * p->group);
    seq_visible(p, &s, 0, &begin, &ignored);
    seq_visible(p, &s, s.len_q - 1, &ignored, &end);
    const struct decode_range all = decode_range_of((int)begin, (int)end);
    sh->live = decode_live_splits(a, &all);
}

static __global__ void __launch_bounds__(DECODE_COMBINE_THREADS)
decode_combine_kernel(const __grid_constant__ struct decode_sm80_args args,
                      const __grid_constant__ struct problem_param packed)
{
    __shared__ struct combine_shared sh;
    const struct problem *const p = problem_of(&packed);
    wait_for_predecessor();
    const struct decode_sm80_args *const a = &args;
    const int blocks = (a->part_rows + WARPS - 1) / WARPS;      /* of an item */
    const int x = blockIdx.x, item = x / blocks, r = (x - item * blocks) * WARPS + (threadIdx.x >> 5);
    const int n = item / a->kv_heads, kv_head = item - n * a->kv_heads;
    if (threadIdx.x == 0)
        combine_open(a, p, n, &sh);
    __syncthreads();
    if (r < sh.rows && sh.live > 1)
        decode_join_row(a, p, &sh.seq, kv_head, r, (int64_t)item * a->num_splits * a->part_rows + r, sh.live);
}

const void *qattn__decode_combine(void) { return (const void *)decode_combine_kernel; }
