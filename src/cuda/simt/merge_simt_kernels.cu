/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * qattn_merge: one warp a row,  m = max_i lse_i,  w_i = e^(lse_i - m),  o = sum_i w_i o_i / sum_i w_i,
 * lse = m + log(sum_i w_i), in index order. A part with LSE -inf is not read. o and lse may be part 0: a warp
 * reads an element before it writes it, and all LSEs before its own. Cost: the bytes of the parts.
 */
#include "cuda/common/dtype.cuh"
#include "cuda/common/math.cuh"
#include "cuda/common/ptx.cuh"
#include "cuda/simt/merge_simt.h"

/* As a natural logarithm. */
__device__ __forceinline__ float merge_lse(const struct merge_simt_args *a, int part, int64_t b, int64_t h, int64_t i)
{
    const struct merge_tensor *const t = &a->lse_parts[part];
    const float lse = *(const float *)(t->data + (b * t->stride[0] + h * t->stride[1] + i * t->stride[2]) * 4);
    return a->base2 ? __fmul_rn(lse, 0.69314718055994531f) : lse;
}

static __global__ void __launch_bounds__(256) merge_simt_kernel(const __grid_constant__ struct merge_simt_args args)
{
    const struct merge_simt_args *const a = &args;
    const int lane = threadIdx.x & 31;
    wait_for_predecessor();
    for (int64_t x = blockIdx.x * (int64_t)8 + (threadIdx.x >> 5); x < a->rows; x += gridDim.x * (int64_t)8) {
        const int64_t i = x % a->shape[2], h = x / a->shape[2] % a->shape[1], b = x / a->shape[2] / a->shape[1];
        float max = minus_infinity(), sum = 0.0f;
        /* lane l holds the weights of parts l and l + 32 */
        float weight[2] = { minus_infinity(), minus_infinity() };
#pragma unroll
        for (int y = 0; y < 2; y++)
            if (lane + 32 * y < a->num_parts)
                weight[y] = merge_lse(a, lane + 32 * y, b, h, i);
        max = lanes_max<32>(fmaxf(weight[0], weight[1]));
#pragma unroll
        for (int y = 0; y < 2; y++)
            weight[y] = weight[y] == minus_infinity() ? hidden_p() : exp_below(weight[y], max);
        for (int k = 0; k < a->num_parts; k++)
            sum = __fadd_rn(sum, __shfl_sync(0xFFFFFFFFu, k < 32 ? weight[0] : weight[1], k & 31));
        for (int64_t d0 = 0; d0 < a->shape[3]; d0 += 32) {
            const int64_t d = d0 + lane;
            float o = 0.0f;
            for (int k = 0; k < a->num_parts; k++) {
                const float w = __shfl_sync(0xFFFFFFFFu, k < 32 ? weight[0] : weight[1], k & 31);
                const struct merge_tensor *const t = &a->o_parts[k];
                if (is_hidden_p(w) || d >= a->shape[3])
                    continue;
                const int64_t from = b * t->stride[0] + h * t->stride[1] + i * t->stride[2] + d * t->stride[3];
                o = __fmaf_rn(w, load_any(t->data + from * a->part_itemsize, a->part_dtype), o);
            }
            const struct merge_tensor *const t = &a->o;
            if (d < a->shape[3])
                store_any(t->data + (b * t->stride[0] + h * t->stride[1] + i * t->stride[2] + d * t->stride[3]) *
                          a->o_itemsize, a->o_dtype, sum == 0.0f ? 0.0f : __fdiv_rn(o, sum));
        }
        if (a->lse.data && lane == 0) {
            const struct merge_tensor *const t = &a->lse;
            *(float *)(t->data + (b * t->stride[0] + h * t->stride[1] + i * t->stride[2]) * 4) =
                a->base2 ? __fadd_rn(__fmul_rn(max, LOG2_E), log2f(sum)) : __fadd_rn(max, logf(sum));
        }
    }
}

const void *qattn__merge_simt(void) { return (const void *)merge_simt_kernel; }
