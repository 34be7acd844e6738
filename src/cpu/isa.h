/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * One vector language for the CPU kernels. Every kernel file is compiled once per instruction set
 * with -DQATTN_ISA_GENERIC, _AVX2 or _AVX512; this header picks the vectors and the names of
 * functions seen by other files: ISA_NAME(qattn__x) is qattn__x_avx512 and so on.
 *
 * What simd_*.h give (VL = lanes of one vector, all memory access unaligned, lanes in memory
 * order):
 *
 *   vf                                       VL floats
 *   vm                                       a truth value per lane
 *   vf_zero() vf_set1(x) vf_iota()           0 .. | x .. | 0, 1, 2 ..
 *   vf_load(p) vf_store(p, v)                VL floats
 *   vf_load_n(p, n) vf_store_n(p, v, n)      the first n lanes, 0 <= n <= VL; the rest reads as 0, is not touched
 *   vf_load_f16 _bf16 _e4m3 _e5m2 _i8 (p)    VL elements, exactly converted
 *   vf_store_f16 _bf16 (p, v)                rounded to nearest even
 *   vf_add sub mul div (a, b)
 *   vf_fmadd(a, b, c)  vf_fnmadd(a, b, c)    ab + c | c - ab, one rounding where the machine has it
 *   vf_max(a, b) vf_min(a, b)                b where either is NaN: keep the running value in b to ignore NaN
 *   vf_abs vf_copysign(mag, sign)
 *   vf_hmax(v) vf_hsum(v)                    over the lanes, in a fixed order
 *   vf_first(v)                              lane 0
 *   vf_hsum_each(v)                          lane i: the sum of v[i], for v[VL]; the same order for each i
 *   vf_exp2(x)                               2^x for x <= 127; see below
 *   vm_lt vm_le vm_eq (a, b)                 false where either is NaN
 *   vm_range(lo, hi)                         lanes lo <= lane < hi, any int64 lo and hi
 *   vm_nonzero_u8(p)                         lanes whose byte at p is not 0
 *   vm_and vm_or vm_not vm_bits(m)           bits: lane 0 is bit 0
 *   vf_select(m, a, b)                       a where m, else b
 *   vf_transpose(v)                          v[VL] as rows becomes v[VL] as columns
 *
 * vf_exp2: relative error below 1.6e-7 (degree 5 minimax, 8.3e-8, plus rounding; measured over
 * [-126, 0]: 1.41e-7 with fused multiply-adds, 1.56e-7 without), exactly 1 at 0, exactly 0 below
 * -126 (so no subnormal ever leaves it), -inf gives 0, NaN gives NaN.
 */
#ifndef QATTN_CPU_ISA_H
#define QATTN_CPU_ISA_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/convert.h"

#define ISA_INLINE static inline __attribute__((always_inline))

/* Unrolls a loop of constant length completely, so that arrays of vectors become registers. */
#if defined(__clang__)
#define ISA_UNROLL _Pragma("clang loop unroll(full)")
#else
#define ISA_UNROLL _Pragma("GCC unroll 16")
#endif

/* 2^r = 1 + r(C1 + r(C2 + r(C3 + r(C4 + r C5)))) on [0, 1): minimax of the relative error with the
 * constant term held at 1, so that the row maximum weighs exactly 1. */
#define ISA_EXP2_C1 0.69315129519f
#define ISA_EXP2_C2 0.24016459286f
#define ISA_EXP2_C3 0.05579951406f
#define ISA_EXP2_C4 0.00901748054f
#define ISA_EXP2_C5 0.00186695263f

#if defined(QATTN_ISA_AVX512)
#define ISA_NAME(fn) fn##_avx512
#include "cpu/simd_avx512.h"
#elif defined(QATTN_ISA_AVX2)
#define ISA_NAME(fn) fn##_avx2
#include "cpu/simd_avx2.h"
#elif defined(QATTN_ISA_GENERIC)
#define ISA_NAME(fn) fn##_generic
#include "cpu/simd_generic.h"
#else
#error "compile with -DQATTN_ISA_GENERIC, -DQATTN_ISA_AVX2 or -DQATTN_ISA_AVX512"
#endif

#define ISA_LOG2E 1.44269504089f
#define ISA_LN2   0.69314718056f

/* e^x for x <= 88; the error of the product x log2(e) adds |x| 2^-24. Exactly 1 at 0, 0 below
 * -87.3. */
ISA_INLINE vf vf_exp(vf x)
{
    return vf_exp2(vf_mul(x, vf_set1(ISA_LOG2E)));
}

/* One lane of vf_exp: scalar code that must agree with vector code bit for bit. */
ISA_INLINE float isa_exp(float x)
{
    return vf_first(vf_exp(vf_set1(x)));
}

/* tanh(x), relative error below 2e-7 (measured over [-10, 10]): an odd polynomial of degree 11
 * where |x| < 0.625, else 1 - 2 / (e^2|x| + 1). NaN stays NaN, large values give exactly +-1. */
ISA_INLINE vf vf_tanh(vf x)
{
    const vf a = vf_abs(x), z = vf_mul(x, x);
    vf small = vf_fmadd(z, vf_set1(-5.70498872745e-3f), vf_set1(2.06390887954e-2f));
    small = vf_fmadd(z, small, vf_set1(-5.37397155531e-2f));
    small = vf_fmadd(z, small, vf_set1(1.33314422036e-1f));
    small = vf_fmadd(z, small, vf_set1(-3.33332819422e-1f));
    small = vf_fmadd(vf_mul(z, x), small, x);
    const vf e = vf_exp(vf_min(vf_set1(40.0f), vf_add(a, a)));
    const vf large = vf_sub(vf_set1(1.0f), vf_div(vf_set1(2.0f), vf_add(e, vf_set1(1.0f))));
    return vf_select(vm_lt(a, vf_set1(0.625f)), small, vf_copysign(large, x));
}

/* Lanes of v that are NaN or infinite. */
ISA_INLINE vm vm_nonfinite(vf v)
{
    return vm_not(vm_le(vf_abs(v), vf_set1(3.402823466e+38f)));
}

#endif
