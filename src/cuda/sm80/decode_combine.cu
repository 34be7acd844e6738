/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The second kernel of a decode call with split keys and many rows a sequence, which one block would be long at: a
 * warp a row adds the splits' parts (decode_join.cuh).
 */
#include "cuda/sm80/decode_join.cuh"

enum { WARPS = DECODE_COMBINE_THREADS / 32 };

struct combine_shared { struct seq seq; struct decode_range range; };

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
    const int n = (int)divide((unsigned)item, a->by_heads), kv_head = item - n * (int)a->by_heads.by;
    if (threadIdx.x == 0) {
        sh.seq = seq_get(p, n);
        sh.range = decode_range_of(p, &sh.seq, a->longest, &a->cut);
    }
    __syncthreads();
    if (r < sh.range.rows && sh.range.live > 1)
        decode_join_row(a, p, &sh.seq, kv_head, r, (int64_t)item * a->cut.num_splits * a->part_rows + r, sh.range.live);
}

const void *qattn__decode_combine(void) { return (const void *)decode_combine_kernel; }
