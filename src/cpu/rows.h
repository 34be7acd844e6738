/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Runs of elements of any type and stride, to and from packed f32. Every element passes the same vector conversion,
 * gathered or not, so strides change no bit of a result. Strides are in elements.
 */
#ifndef QATTN_CPU_ROWS_H
#define QATTN_CPU_ROWS_H

#include "cpu/isa.h"

/* VL neighbouring elements at p, exactly. */
ISA_INLINE vf load_vector(const char *p, const int32_t dtype)
{
    switch (dtype) {
    case QATTN_DTYPE_F32:    return vf_load((const float *)(const void *)p);
    case QATTN_DTYPE_F16:    return vf_load_f16(p);
    case QATTN_DTYPE_BF16:   return vf_load_bf16(p);
    case QATTN_DTYPE_E4M3FN: return vf_load_e4m3(p);
    case QATTN_DTYPE_E5M2:   return vf_load_e5m2(p);
    default:                 return vf_load_i8(p);
    }
}

/* The first n of them, 0 <= n <= VL, with `step` bytes from one to the next; the rest reads as 0. */
ISA_INLINE vf gather_vector(const char *p, int64_t step, int64_t n, const int32_t dtype, const int size)
{
    char lanes[VL * sizeof(float)] = { 0 };
    for (int64_t i = 0; i < n; i++)
        memcpy(lanes + i * size, p + i * step, (size_t)size);
    return load_vector(lanes, dtype);
}

/* dst[i] = src[i * stride]. dst has room for whole vectors: what lies behind n is 0 up to a multiple of VL. */
ISA_INLINE void load_row_of(const char *src, int64_t stride, int64_t n, float *dst, const int32_t dtype, const int size)
{
    int64_t i = 0;
    if (stride == 1)
        for (; i + VL <= n; i += VL)
            vf_store(dst + i, load_vector(src + i * size, dtype));
    const int64_t step = stride * size;
    for (; i < n; i += VL)
        vf_store(dst + i, gather_vector(src + i * step, step, n - i < VL ? n - i : VL, dtype, size));
}

static inline void load_row(const char *src, int64_t stride, int32_t dtype, int64_t n, float *dst)
{
    switch (dtype) {
    case QATTN_DTYPE_F32:    load_row_of(src, stride, n, dst, QATTN_DTYPE_F32, 4); break;
    case QATTN_DTYPE_F16:    load_row_of(src, stride, n, dst, QATTN_DTYPE_F16, 2); break;
    case QATTN_DTYPE_BF16:   load_row_of(src, stride, n, dst, QATTN_DTYPE_BF16, 2); break;
    case QATTN_DTYPE_E4M3FN: load_row_of(src, stride, n, dst, QATTN_DTYPE_E4M3FN, 1); break;
    case QATTN_DTYPE_E5M2:   load_row_of(src, stride, n, dst, QATTN_DTYPE_E5M2, 1); break;
    default:                 load_row_of(src, stride, n, dst, QATTN_DTYPE_I8, 1); break;
    }
}

ISA_INLINE void store_vector(char *p, vf v, const int32_t dtype)
{
    switch (dtype) {
    case QATTN_DTYPE_F16:  vf_store_f16(p, v); break;
    case QATTN_DTYPE_BF16: vf_store_bf16(p, v); break;
    default:               vf_store((float *)(void *)p, v); break;
    }
}

/* src has whole vectors readable. */
ISA_INLINE void store_row_of(const float *src, int64_t n, char *dst, int64_t stride, const int32_t dtype,
                             const int size)
{
    int64_t i = 0;
    if (stride == 1)
        for (; i + VL <= n; i += VL)
            store_vector(dst + i * size, vf_load(src + i), dtype);
    for (; i < n; i += VL) {
        char lanes[VL * sizeof(float)];
        store_vector(lanes, vf_load(src + i), dtype);
        for (int64_t lane = 0; lane < VL && i + lane < n; lane++)
            memcpy(dst + (i + lane) * stride * size, lanes + lane * size, (size_t)size);
    }
}

/* dst[i * stride] = src[i], rounded once to f32, f16 or bf16. src has room for whole vectors. */
static inline void store_row(const float *src, int64_t n, char *dst, int64_t stride, int32_t dtype)
{
    switch (dtype) {
    case QATTN_DTYPE_F16:  store_row_of(src, n, dst, stride, QATTN_DTYPE_F16, 2); break;
    case QATTN_DTYPE_BF16: store_row_of(src, n, dst, stride, QATTN_DTYPE_BF16, 2); break;
    default:               store_row_of(src, n, dst, stride, QATTN_DTYPE_F32, 4); break;
    }
}

#endif
