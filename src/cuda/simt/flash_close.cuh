/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The end of a row's online softmax: sink, normalisation, LSE. One place for kernels with and without splits. */
#ifndef QATTN_CUDA_FLASH_CLOSE_CUH
#define QATTN_CUDA_FLASH_CLOSE_CUH

#include "cuda/common/problem_param.h"
#include "cuda/common/score.cuh"
#include "cuda/simt/flash_simt.h"

/* max and sum of e^(s - max) of a row, with its sink: maximum and sum of both. */
struct flash_end { float top, total; };

/* -> what the row's accumulators must be multiplied with. A row without keys has max -inf and sum 0 (the largest score
 * of others adds 1, NaN adds NaN): factor 0, whatever the sink. `dead`: a row past seqused_q, which has no sink. */
__device__ __forceinline__ float flash_factor(const struct problem *p, int64_t h, bool dead, float max, float sum,
                                              struct flash_end *end)
{
    const float sink = p->sinks && !dead ? p->sinks[h] : minus_infinity();
    const float top = fmaxf(max, sink), weight = exp_below(max, top);
    end->top = top;
    end->total = __fadd_rn(__fmul_rn(sum, weight), exp_below(sink, top));
    return sum == 0.0f ? 0.0f : __fdiv_rn(weight, end->total);
}

/* LSE of the row; without keys that of the sink alone. */
__device__ __forceinline__ float flash_lse(const struct problem *p, bool dead, const struct flash_end &end)
{
    if (dead)
        return minus_infinity();
    return p->flags & QATTN_FLAG_LSE_BASE2 ? __fadd_rn(__fmul_rn(end.top, LOG2_E), log2f(end.total))
                                           : __fadd_rn(end.top, logf(end.total));
}

/* Both at once. */
__device__ __forceinline__ void flash_close(const struct problem *p, int64_t h, bool dead, float max, float sum,
                                            float *factor, float *lse)
{
    struct flash_end end;
    *factor = flash_factor(p, h, dead, max, sum, &end);
    *lse = flash_lse(p, dead, end);
}

/* One element of O, before it is rounded to O's type. Adding 0 turns -0 into 0: which of the two an accumulator holds
 * may depend on hidden keys. */
__device__ __forceinline__ float flash_result(bool dead, float o, float factor)
{
    return dead ? 0.0f : __fadd_rn(__fmul_rn(o, factor), 0.0f);
}

#endif
