/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Element types on the device: every load is exact, every store rounds once, to nearest even.
 *
 * Kernels take the stored type of their large inputs as a template parameter and everything else (bias, masks,
 * outputs, which 8-bit type) by its QATTN_DTYPE_*. Pointers need the alignment of one element, no more.
 */
#ifndef QATTN_CUDA_DTYPE_CUH
#define QATTN_CUDA_DTYPE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "qattn.h"

/* Any of e4m3fn, e5m2, i8: which one is known at run time. */
struct byte8 { uint8_t bits; };

__device__ __forceinline__ float widen_e5m2(uint8_t bits)
{
    return __half2float(__ushort_as_half((unsigned short)(bits << 8)));
}

/* Exponent and mantissa moved into an f16 are off by 2^(15-7) alone, subnormals included. */
__device__ __forceinline__ float widen_e4m3fn(uint8_t bits)
{
    const unsigned short h = (unsigned short)((bits & 0x80u) << 8 | (bits & 0x7Fu) << 7);
    const float x = __half2float(__ushort_as_half(h)) * 256.0f;
    return (bits & 0x7Fu) == 0x7Fu ? __int_as_float(0x7FC00000) : x;
}

__device__ __forceinline__ float widen(float x, int32_t) { return x; }
__device__ __forceinline__ float widen(__half x, int32_t) { return __half2float(x); }
__device__ __forceinline__ float widen(__nv_bfloat16 x, int32_t) { return __bfloat162float(x); }
__device__ __forceinline__ float widen(byte8 x, int32_t dtype)
{
    if (dtype == QATTN_DTYPE_E4M3FN)
        return widen_e4m3fn(x.bits);
    return dtype == QATTN_DTYPE_E5M2 ? widen_e5m2(x.bits) : (float)(int8_t)x.bits;
}

/* The element at p, of any input type. */
__device__ __forceinline__ float load_any(const char *p, int32_t dtype)
{
    switch (dtype) {
    case QATTN_DTYPE_F32:  return *(const float *)p;
    case QATTN_DTYPE_F16:  return __half2float(*(const __half *)p);
    case QATTN_DTYPE_BF16: return __bfloat162float(*(const __nv_bfloat16 *)p);
    default:               return widen(*(const byte8 *)p, dtype);
    }
}

/* x rounded to the output type of the element at p: f32, f16 or bf16. */
__device__ __forceinline__ void store_any(char *p, int32_t dtype, float x)
{
    switch (dtype) {
    case QATTN_DTYPE_F32: *(float *)p = x; break;
    case QATTN_DTYPE_F16: *(__half *)p = __float2half_rn(x); break;
    default:              *(__nv_bfloat16 *)p = __float2bfloat16_rn(x); break;
    }
}

#endif
