/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Four bytes of e4m3fn, e5m2 or i8 -> four f16 or bf16, exactly, as two registers: even bytes and odd bytes. No table
 * and no conversion instruction, so that compute capability 8.0 has them too.
 *
 * A float byte moved to the place of sign, exponent and mantissa of the wider type is off by a power of two alone,
 * subnormals included; a product with that power is exact. What is not finite there is put right afterwards.
 */
#ifndef QATTN_CUDA_DECODE_BYTES_CUH
#define QATTN_CUDA_DECODE_BYTES_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "qattn.h"

__device__ __forceinline__ uint32_t times2(__half, uint32_t x, uint32_t factor)
{
    const __half2 y = __hmul2(*(const __half2 *)&x, *(const __half2 *)&factor);
    return *(const uint32_t *)&y;
}

__device__ __forceinline__ uint32_t times2(__nv_bfloat16, uint32_t x, uint32_t factor)
{
    const __nv_bfloat162 y = __hmul2(*(const __nv_bfloat162 *)&x, *(const __nv_bfloat162 *)&factor);
    return *(const uint32_t *)&y;
}

/* Every lower byte of two halves, a float byte, at its place in the wider type. */
__device__ __forceinline__ uint32_t place2(uint32_t x, int shift)
{
    return (x & 0x00800080u) << 8 | (x & 0x007F007Fu) << shift;
}

/* Two lower bytes of halves, floats -> two f16. */
__device__ __forceinline__ uint32_t widen2(__half tag, uint32_t x, int32_t dtype)
{
    const bool e4m3 = dtype == QATTN_DTYPE_E4M3FN;
    return times2(tag, place2(x, e4m3 ? 7 : 8), e4m3 ? 0x5C005C00u : 0x3C003C00u);              /* 2^8, 1 */
}

__device__ __forceinline__ uint32_t widen2(__nv_bfloat16 tag, uint32_t x, int32_t dtype)
{
    const bool e4m3 = dtype == QATTN_DTYPE_E4M3FN;
    return times2(tag, place2(x, e4m3 ? 4 : 5), e4m3 ? 0x7B807B80u : 0x77807780u);              /* 2^120, 2^112 */
}

/* Two lower bytes of halves, integers -> two f16: 1024 + 128 + x, less 1152. */
__device__ __forceinline__ uint32_t widen2_integer(__half, uint32_t x)
{
    const uint32_t biased = (x ^ 0x00800080u) | 0x64006400u, bias = 0x64806480u;
    const __half2 y = __hsub2(*(const __half2 *)&biased, *(const __half2 *)&bias);
    return *(const uint32_t *)&y;
}

/* 128 + x mod 128, less 128, or 256 where the sign is set. */
__device__ __forceinline__ uint32_t widen2_integer(__nv_bfloat16, uint32_t x)
{
    const uint32_t low = (x & 0x007F007Fu) | 0x43004300u, bias = (x & 0x00800080u) | 0x43004300u;
    const __nv_bfloat162 y = __hsub2(*(const __nv_bfloat162 *)&low, *(const __nv_bfloat162 *)&bias);
    return *(const uint32_t *)&y;
}

/* Bit 7 of every byte whose widening is wrong because it is NaN or infinity. */
__device__ __forceinline__ uint32_t bad_bytes(__half, uint32_t w, int32_t dtype)
{
    return dtype == QATTN_DTYPE_E4M3FN ? ((w & 0x7F7F7F7Fu) + 0x01010101u) & 0x80808080u : 0;
}

__device__ __forceinline__ uint32_t bad_bytes(__nv_bfloat16, uint32_t w, int32_t dtype)
{
    if (dtype == QATTN_DTYPE_I8)
        return 0;
    return ((w & 0x7F7F7F7Fu) + (dtype == QATTN_DTYPE_E4M3FN ? 0x01010101u : 0x04040404u)) & 0x80808080u;
}

/* Bit 7 of every byte that is NaN or infinite. */
__device__ __forceinline__ uint32_t non_finite_bytes(uint32_t w, int32_t dtype)
{
    return bad_bytes(__nv_bfloat16(), w, dtype);
}

/* Bytes 0 and 2 of w to `even`, 1 and 3 to `odd`. */
template <class T, bool INTEGER>
__device__ __forceinline__ void widen4(uint32_t w, int32_t dtype, uint32_t *even, uint32_t *odd)
{
    if (INTEGER) {
        *even = widen2_integer(T(), w & 0x00FF00FFu);
        *odd = widen2_integer(T(), w >> 8 & 0x00FF00FFu);
        return;
    }
    const uint32_t bad = bad_bytes(T(), w, dtype); /* there the exponent becomes all ones; the mantissa is right */
    *even = widen2(T(), w & 0x00FF00FFu, dtype) | (bad & 0x00800080u) * 0xFF;
    *odd = widen2(T(), w >> 8 & 0x00FF00FFu, dtype) | (bad >> 8 & 0x00800080u) * 0xFF;
}

#endif
