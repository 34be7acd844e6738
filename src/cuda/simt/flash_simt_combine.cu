/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The second kernel of a call with split keys: one warp a row adds the splits' parts in index order,
 *
 *     m = max_s m_s,  w_s = e^(m_s - m),  o = sum_s w_s o_s / sum_s w_s l_s
 *
 * with the sink as one more term below, and with what each rounding of a sum took. Reads num_splits
 * (Dv + 2) floats a row.
 */
#include "cuda/common/ptx.cuh"
#include "cuda/simt/flash_close.cuh"

static __global__ void __launch_bounds__(256)
flash_simt_combine_kernel(const __grid_constant__ struct flash_simt_args args,
                          const __grid_constant__ struct problem_param packed)
{
    const struct problem *const p = problem_of(&packed);
    wait_for_predecessor();
    const int lane = threadIdx.x & 31;
    const int64_t rows = p->n * p->cap_q * p->hq;
    for (int64_t x = blockIdx.x * (int64_t)8 + (threadIdx.x >> 5); x < rows; x += gridDim.x * (int64_t)8) {
        const int64_t h = x % p->hq, i = x / p->hq % p->cap_q;
        const struct seq s = seq_get(p, x / p->hq / p->cap_q);
        if (i >= s.rows)
            continue;
        const int64_t row = (s.q_batch * p->q.shape[2] + s.q_row + i) * p->hq + h;
        float max = minus_infinity(), sum = 0.0f, low = 0.0f, factor, lse;
        for (int64_t k = 0; k < args.num_splits; k++)
            max = fmaxf(max, args.parts_ml[2 * (k * args.part_rows + row)]);
        for (int64_t k = 0; k < args.num_splits; k++) {
            const float *const ml = args.parts_ml + 2 * (k * args.part_rows + row);
            sum_scaled(&sum, &low, 1.0f, __fmul_rn(ml[1], exp_below(ml[0], max)));
        }
        const bool dead = i >= s.len_q;
        flash_close(p, h, dead, max, sum, &factor, &lse);
        for (int64_t d = lane; d < p->dv; d += 32) {
            float o = 0.0f, o_low = 0.0f;
            for (int64_t k = 0; k < args.num_splits; k++) {
                const int64_t part = k * args.part_rows + row;
                sum_scaled(&o, &o_low, 1.0f,
                           __fmul_rn(args.parts_o[part * p->dv + d], exp_below(args.parts_ml[2 * part], max)));
            }
            store_any(view_at(&p->o, s.q_batch, h, s.q_row + i, d), p->o.dtype, flash_result(dead, o, factor));
        }
        if (p->lse.dtype && lane == 0)
            *(float *)view_at(&p->lse, s.q_batch, h, s.q_row + i, 0) = lse;
    }
}

const void *qattn__flash_simt_combine(void) { return (const void *)flash_simt_combine_kernel; }
