/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The end of a row's online softmax: sink, normalisation, LSE. One place for kernels with and without splits. */
#ifndef QATTN_CUDA_FLASH_CLOSE_CUH
#define QATTN_CUDA_FLASH_CLOSE_CUH

#include "cuda/common/problem_param.h"
#include "cuda/common/score.cuh"
#include "cuda/simt/flash_simt.h"

/* max and sum of e^(s - max) of a row -> what its accumulators must be multiplied with, and its LSE. A row without
 * keys has max -inf and sum 0 (the largest score of others adds 1, NaN adds NaN): factor 0, whatever the sink, and LSE
 * that of the sink alone. `dead`: a row past seqused_q, which has no sink either. */
__device__ __forceinline__ void flash_close(const struct problem *p, int64_t h, bool dead, float max, float sum,
                                            float *factor, float *lse)
{
    const float sink = p->sinks && !dead ? p->sinks[h] : minus_infinity();
    const float top = fmaxf(max, sink), weight = exp_below(max, top);
    const float total = __fadd_rn(__fmul_rn(sum, weight), exp_below(sink, top));
    *factor = sum == 0.0f ? 0.0f : __fdiv_rn(weight, total);
    *lse = p->flags & QATTN_FLAG_LSE_BASE2 ? __fadd_rn(__fmul_rn(top, LOG2_E), log2f(total))
                                           : __fadd_rn(top, logf(total));
    if (dead)
        *lse = minus_infinity();
}

/* One element of O, before it is rounded to O's type. Adding 0 turns -0 into 0: which of the two an accumulator holds
 * may depend on hidden keys. */
__device__ __forceinline__ float flash_result(bool dead, float o, float factor)
{
    return dead ? 0.0f : __fadd_rn(__fmul_rn(o, factor), 0.0f);
}

#endif
