/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Element types, one scalar at a time and exactly: every load is exact (f32 holds every value of every type), every
 * store rounds once, to nearest, ties to even. Integer work only, so results do not depend on instruction
 * sets, flush-to-zero modes or the compiler's own half types.
 *
 *            sign exponent mantissa  bias   largest       inf    NaN
 *   f16      1    5        10        15     65504         yes    0x7C01..0x7FFF
 *   bf16     1    8        7         127    3.39e38       yes    0x7F81..0x7FFF
 *   e4m3fn   1    4        3         7      448  (0x7E)   no     0x7F
 *   e5m2     1    5        2         15     57344 (0x7B)  0x7C   0x7D..0x7F
 */
#ifndef QATTN_CORE_CONVERT_H
#define QATTN_CORE_CONVERT_H

#include <stdint.h>
#include <string.h>

#include "qattn.h"

static inline uint32_t qattn__f32_bits(float x) { uint32_t u; memcpy(&u, &x, sizeof u); return u; }
static inline float qattn__f32_from_bits(uint32_t u) { float x; memcpy(&x, &u, sizeof x); return x; }
static inline uint64_t qattn__f64_bits(double x) { uint64_t u; memcpy(&u, &x, sizeof u); return u; }

/* ---------------------------------------------------------------- to f32 */

/* Exponent 0: zero and the subnormals, whole numbers of 2^-24. */
static inline float qattn__f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 0x3FFu;
    if (exponent == 31)
        return qattn__f32_from_bits(sign | 0x7F800000u | mantissa << 13);
    if (exponent == 0)
        return qattn__f32_from_bits(sign | qattn__f32_bits((float)mantissa * 0x1p-24f));
    return qattn__f32_from_bits(sign | (exponent + (127 - 15)) << 23 | mantissa << 13);
}

static inline float qattn__bf16_to_f32(uint16_t h)
{
    return qattn__f32_from_bits((uint32_t)h << 16);
}

/* e5m2 is f16 cut after two mantissa bits. */
static inline float qattn__e5m2_to_f32(uint8_t b)
{
    return qattn__f16_to_f32((uint16_t)(b << 8));
}

/* Exponent 0: whole numbers of 2^-9. */
static inline float qattn__e4m3fn_to_f32(uint8_t b)
{
    const uint32_t sign = (uint32_t)(b & 0x80u) << 24, exponent = (b >> 3) & 15u, mantissa = b & 7u;
    if ((b & 0x7Fu) == 0x7Fu)
        return qattn__f32_from_bits(sign | 0x7FC00000u);
    if (exponent == 0)
        return qattn__f32_from_bits(sign | qattn__f32_bits((float)mantissa * 0x1p-9f));
    return qattn__f32_from_bits(sign | (exponent + (127 - 7)) << 23 | mantissa << 20);
}

/* ---------------------------------------------------------------- from f64 and f32 */

/*
 * |x|, finite, rounded to a type of `exponent_bits` and `mantissa_bits`, as the bits below its sign; exponents
 * above the type's range simply grow, so the caller decides what overflow becomes. A carry out of the
 * mantissa lands in the exponent, which is right for normal and subnormal results alike.
 */
static inline uint64_t qattn__round_f64(double x, int exponent_bits, int mantissa_bits)
{
    const uint64_t bits = qattn__f64_bits(x) & (UINT64_MAX >> 1);
    const uint64_t significand = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
    int exponent = (int)(bits >> 52) - 1023 + (1 << (exponent_bits - 1)) - 1;
    int shift = 52 - mantissa_bits;
    if (exponent < 1) {                         /* subnormal in the result: fewer bits, at the smallest exponent */
        shift += 1 - exponent;
        exponent = 1;
        if (shift > 53)
            return 0;                           /* below half of the smallest; f64's own zeros and subnormals too */
    }
    const uint64_t kept = significand >> shift, rest = significand & ((UINT64_C(1) << shift) - 1);
    const uint64_t half = UINT64_C(1) << (shift - 1);
    const uint64_t up = rest > half || (rest == half && (kept & 1));
    return ((uint64_t)(exponent - 1) << mantissa_bits) + kept + up;
}

static inline int qattn__f64_is_nan(double x) { return (qattn__f64_bits(x) << 1) > UINT64_C(0x7FF) << 53; }
static inline int qattn__f64_is_inf(double x) { return (qattn__f64_bits(x) << 1) == UINT64_C(0x7FF) << 53; }
static inline uint32_t qattn__f64_sign(double x) { return (uint32_t)(qattn__f64_bits(x) >> 63); }

static inline uint16_t qattn__f64_to_f16(double x)
{
    const uint32_t sign = qattn__f64_sign(x) << 15;
    if (qattn__f64_is_nan(x))
        return (uint16_t)(sign | 0x7E00u);
    const uint64_t u = qattn__f64_is_inf(x) ? 0x7C00u : qattn__round_f64(x, 5, 10);
    return (uint16_t)(sign | (u < 0x7C00u ? (uint32_t)u : 0x7C00u));
}

static inline uint16_t qattn__f64_to_bf16(double x)
{
    const uint32_t sign = qattn__f64_sign(x) << 15;
    if (qattn__f64_is_nan(x))
        return (uint16_t)(sign | 0x7FC0u);
    const uint64_t u = qattn__f64_is_inf(x) ? 0x7F80u : qattn__round_f64(x, 8, 7);
    return (uint16_t)(sign | (u < 0x7F80u ? (uint32_t)u : 0x7F80u));
}

static inline float qattn__f64_to_f32(double x)
{
    const uint32_t sign = qattn__f64_sign(x) << 31;
    if (qattn__f64_is_nan(x))
        return qattn__f32_from_bits(sign | 0x7FC00000u);
    const uint64_t u = qattn__f64_is_inf(x) ? 0x7F800000u : qattn__round_f64(x, 8, 23);
    return qattn__f32_from_bits(sign | (u < 0x7F800000u ? (uint32_t)u : 0x7F800000u));
}

/* The 8-bit floats saturate: beyond the largest value, infinity included, lies the largest value. */
static inline uint8_t qattn__f64_to_e4m3fn(double x)
{
    const uint32_t sign = qattn__f64_sign(x) << 7;
    if (qattn__f64_is_nan(x))
        return (uint8_t)(sign | 0x7Fu);
    const uint64_t u = qattn__f64_is_inf(x) ? 0x7Eu : qattn__round_f64(x, 4, 3);
    return (uint8_t)(sign | (u < 0x7Eu ? (uint32_t)u : 0x7Eu));
}

static inline uint8_t qattn__f64_to_e5m2(double x)
{
    const uint32_t sign = qattn__f64_sign(x) << 7;
    if (qattn__f64_is_nan(x))
        return (uint8_t)(sign | 0x7Fu);
    const uint64_t u = qattn__f64_is_inf(x) ? 0x7Bu : qattn__round_f64(x, 5, 2);
    return (uint8_t)(sign | (u < 0x7Bu ? (uint32_t)u : 0x7Bu));
}

/* Nearest whole number, ties to even, saturating to -128 .. 127; NaN becomes 0. */
static inline int8_t qattn__f64_to_i8(double x)
{
    if (qattn__f64_is_nan(x))
        return 0;
    if (x <= -128.0)
        return -128;
    if (x >= 127.0)
        return 127;
    int32_t whole = (int32_t)x;                 /* towards 0, exact */
    const double rest = x - whole;
    if (rest > 0.5 || (rest == 0.5 && (whole & 1)))
        whole++;
    if (rest < -0.5 || (rest == -0.5 && (whole & 1)))
        whole--;
    return (int8_t)whole;
}

/* f32 widens to f64 exactly, so these round once too. bf16 is short enough to do in place: adding half of the
 * last kept place, less one when it is even, carries exactly when nearest-even rounds up. */
static inline uint16_t qattn__f32_to_f16(float x) { return qattn__f64_to_f16(x); }
static inline uint8_t qattn__f32_to_e4m3fn(float x) { return qattn__f64_to_e4m3fn(x); }
static inline uint8_t qattn__f32_to_e5m2(float x) { return qattn__f64_to_e5m2(x); }
static inline uint16_t qattn__f32_to_bf16(float x)
{
    const uint32_t u = qattn__f32_bits(x);
    if ((u << 1) > UINT32_C(0xFF) << 24)
        return (uint16_t)((u >> 16 & 0x8000u) | 0x7FC0u);
    return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
}

/* ---------------------------------------------------------------- by dtype */

/* The element at p, exactly. p needs no alignment. */
static inline float qattn__load(const void *p, int32_t dtype)
{
    float f;
    uint16_t h;
    const uint8_t *const byte = (const uint8_t *)p;
    switch (dtype) {
    case QATTN_DTYPE_F32:    memcpy(&f, p, sizeof f); return f;
    case QATTN_DTYPE_F16:    memcpy(&h, p, sizeof h); return qattn__f16_to_f32(h);
    case QATTN_DTYPE_BF16:   memcpy(&h, p, sizeof h); return qattn__bf16_to_f32(h);
    case QATTN_DTYPE_E4M3FN: return qattn__e4m3fn_to_f32(*byte);
    case QATTN_DTYPE_E5M2:   return qattn__e5m2_to_f32(*byte);
    case QATTN_DTYPE_I8:     return (float)(*byte < 128 ? *byte : *byte - 256);
    case QATTN_DTYPE_U8:
    case QATTN_DTYPE_BOOL:   return (float)*byte;
    default:                 return 0.0f;
    }
}

/* x rounded once to the type of the element at p. U8 and BOOL are never outputs: nothing is written. */
static inline void qattn__store_f64(void *p, int32_t dtype, double x)
{
    float f;
    uint16_t h;
    uint8_t *const byte = (uint8_t *)p;
    switch (dtype) {
    case QATTN_DTYPE_F32:    f = qattn__f64_to_f32(x); memcpy(p, &f, sizeof f); break;
    case QATTN_DTYPE_F16:    h = qattn__f64_to_f16(x); memcpy(p, &h, sizeof h); break;
    case QATTN_DTYPE_BF16:   h = qattn__f64_to_bf16(x); memcpy(p, &h, sizeof h); break;
    case QATTN_DTYPE_E4M3FN: *byte = qattn__f64_to_e4m3fn(x); break;
    case QATTN_DTYPE_E5M2:   *byte = qattn__f64_to_e5m2(x); break;
    case QATTN_DTYPE_I8:     *byte = (uint8_t)qattn__f64_to_i8(x); break;
    default:                 break;
    }
}

static inline void qattn__store(void *p, int32_t dtype, float x)
{
    if (dtype == QATTN_DTYPE_F32)
        memcpy(p, &x, sizeof x);
    else
        qattn__store_f64(p, dtype, x);
}

#endif
