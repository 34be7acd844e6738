/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Arithmetic that all kernels share. Sums and products whose bits matter are written with the _rn intrinsics, which
 * the compiler neither fuses nor reorders: instances of one kernel then agree bit for bit.
 */
#ifndef QATTN_CUDA_MATH_CUH
#define QATTN_CUDA_MATH_CUH

#include <stdint.h>

#define LOG2_E 1.4426950408889634f

__device__ __forceinline__ float minus_infinity(void) { return __int_as_float((int)0xFF800000u); }

/* 2^x to 2 units in the last place; 0 below 2^-126. */
__device__ __forceinline__ float exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* e^(x - max), where x = -inf gives 0 even if max is -inf too. x = max = +inf and NaN give NaN. */
__device__ __forceinline__ float exp_below(float x, float max)
{
    const float from = max == minus_infinity() ? 0.0f : max;
    return exp2_approx(__fmul_rn(__fsub_rn(x, from), LOG2_E));
}

/* sum = sum keep + x, where *low is what rounding took of the sums so far: Knuth's two-sum (1997, section 4.2.2) after
 * an exact product. The pair errs by about one rounding, however many x are added. */
__device__ __forceinline__ void sum_scaled(float *sum, float *low, float keep, float x)
{
    const float scaled = __fmul_rn(*sum, keep), lost = __fmaf_rn(*sum, keep, -scaled);
    const float y = __fadd_rn(x, __fmaf_rn(*low, keep, lost)), total = __fadd_rn(scaled, y);
    const float back = __fsub_rn(total, scaled);
    *low = __fadd_rn(__fsub_rn(scaled, __fsub_rn(total, back)), __fsub_rn(y, back));
    *sum = total;
}

/* Two *low of sum_scaled in one register, cut to 8 bits. Never rounded to nearest: what is just below half a unit of
 * its sum would become that half, and then a 0 that is added, for keys that only the row's company sees, would change
 * the sum. */
__device__ __forceinline__ uint32_t pack_low(float first, float second)
{
    return __byte_perm(__float_as_uint(first), __float_as_uint(second), 0x7632);
}

/* Over the `width` neighbouring lanes that hold one row; every lane gets the result, with the same bits. */
template <int width> __device__ __forceinline__ float lanes_max(float x)
{
#pragma unroll
    for (int step = width / 2; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
    return x;
}

template <int width> __device__ __forceinline__ float lanes_sum(float x)
{
#pragma unroll
    for (int step = width / 2; step > 0; step /= 2)
        x = __fadd_rn(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
    return x;
}

__device__ __forceinline__ bool is_finite(float x)
{
    return (__float_as_uint(x) & 0x7F800000u) != 0x7F800000u;
}

/* index, divided by `by`; the remainder is returned. Most divisions fit 32 bits, which is four times as fast. */
__device__ __forceinline__ int64_t split_index(int64_t *index, int64_t by)
{
    const int64_t x = *index;
    if (((x | by) >> 31) == 0) {
        *index = (uint32_t)x / (uint32_t)by;
        return (uint32_t)x % (uint32_t)by;
    }
    *index = x / by;
    return x % by;
}

/* A hidden key's probability is stored as -0: it adds nothing to a finite sum, and where a value is not finite
 * the sign tells it from the +0 of a visible key whose probability underflowed. */
__device__ __forceinline__ float hidden_p(void) { return -0.0f; }
__device__ __forceinline__ bool is_hidden_p(float p) { return __float_as_uint(p) == 0x80000000u; }

#endif
