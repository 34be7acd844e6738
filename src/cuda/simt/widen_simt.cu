/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* One thread an element, in the order of `out`: 1 or 2 bytes read and 4 written. Rows past a sequence's length become
 * 0. */
#include "core/seq.h"
#include "cuda/common/dtype.cuh"
#include "cuda/common/ptx.cuh"
#include "cuda/simt/widen_simt.h"

static __global__ void __launch_bounds__(WIDEN_THREADS)
widen_simt_kernel(const __grid_constant__ struct widen_simt_args args,
                  const __grid_constant__ struct problem_param packed)
{
    const struct problem *const p = problem_of(&packed);
    wait_for_predecessor();
    const struct view *const t = args.which == WIDEN_Q ? &p->q : args.which == WIDEN_K ? &p->k : &p->v;
    const int64_t step = gridDim.x * (int64_t)WIDEN_THREADS;
    for (int64_t x = blockIdx.x * (int64_t)WIDEN_THREADS + threadIdx.x; x < args.elements; x += step) {
        const int64_t d = x % args.width, i = x / args.width % args.rows, h = x / args.width / args.rows % args.heads;
        const struct seq s = seq_get(p, x / args.width / args.rows / args.heads);
        float value = 0.0f;
        if (args.which == WIDEN_Q && i < s.len_q)
            value = load_any(view_at(t, s.q_batch, h, s.q_row + i, d), t->dtype) * seq_q_descale(p, &s, h, i, d);
        if (args.which != WIDEN_Q && i < s.len_k) {
            const struct descale *const scale = args.which == WIDEN_K ? &p->k_descale : &p->v_descale;
            value = load_any(seq_key(p, &s, t, h, i) + d * t->stride[3] * t->itemsize, t->dtype) *
                    seq_kv_descale(p, &s, scale, h / scale->head_div, i, d);
        }
        args.out[x] = value;
    }
}

const void *qattn__widen_simt(void) { return (const void *)widen_simt_kernel; }
