/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * core/convert.h against formulas written another way: a code's value is put together by ldexp from sign, exponent
 * and mantissa; rounding searches the sorted list of all values for the nearest. Every code of every type of 8 and
 * 16 bits is loaded; every value, every midpoint between neighbours and both sides of it are stored.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/convert.h"
#include "suites.h"

struct format { const char *name; int32_t dtype; int bits, exponent_bits, mantissa_bits; unsigned max_code, nan_code; };

static const struct format formats[] = {
    { "f16",    QATTN_DTYPE_F16,    16, 5, 10, 0x7BFF, 0x7E00 },
    { "bf16",   QATTN_DTYPE_BF16,   16, 8, 7,  0x7F7F, 0x7FC0 },
    { "e4m3fn", QATTN_DTYPE_E4M3FN, 8,  4, 3,  0x7E,   0x7F },
    { "e5m2",   QATTN_DTYPE_E5M2,   8,  5, 2,  0x7B,   0x7F },
};
enum { NUM_FORMATS = sizeof formats / sizeof formats[0] };

/* Value of a code below the sign bit, at most max_code. */
static double value_of(const struct format *f, unsigned code)
{
    const int bias = (1 << (f->exponent_bits - 1)) - 1;
    const unsigned exponent = code >> f->mantissa_bits, mantissa = code & ((1u << f->mantissa_bits) - 1);
    if (exponent == 0)
        return ldexp((double)mantissa, 1 - bias - f->mantissa_bits);
    return ldexp(1.0 + ldexp((double)mantissa, -f->mantissa_bits), (int)exponent - bias);
}

static float load_code(const struct format *f, unsigned code)
{
    const uint8_t bytes[4] = { (uint8_t)(code & 0xFF), (uint8_t)(code >> 8) };
    return qattn__load(bytes, f->dtype);
}

static unsigned store_code(const struct format *f, double x)
{
    uint8_t bytes[4] = { 0 };
    qattn__store_f64(bytes, f->dtype, x);
    return bytes[0] | (unsigned)bytes[1] << 8;
}

/* Code of the value nearest to x >= 0, ties to the even code; bisection over value_of. The value after the largest,
 * which has no code of its own, decides what overflows: 16-bit types become infinite, 8-bit ones saturate. */
static unsigned nearest_code(const struct format *f, double x)
{
    unsigned low = 0, high = f->max_code + 1;
    while (high - low > 1) {
        const unsigned middle = low + (high - low) / 2;
        if (value_of(f, middle) <= x)
            low = middle;
        else
            high = middle;
    }
    const double below = x - value_of(f, low), above = value_of(f, low + 1) - x;
    const unsigned code = below < above || (below == above && low % 2 == 0) ? low : low + 1;
    return f->bits == 8 && code > f->max_code ? f->max_code : code;
}

static void check_store(const struct format *f, double x)
{
    const unsigned sign = 1u << (f->bits - 1), want = nearest_code(f, x);
    const unsigned got = store_code(f, x), got_negative = store_code(f, -x);
    if (got != want || got_negative != (want | sign))
        ck_abort_msg("%s: %.17g -> 0x%X, -> 0x%X for -x; nearest 0x%X", f->name, x, got, got_negative, want);
}

START_TEST(loads_every_code)
{
    for (int t = 0; t < NUM_FORMATS; t++) {
        const struct format *const f = &formats[t];
        const unsigned sign = 1u << (f->bits - 1);
        for (unsigned code = 0; code <= f->max_code; code++) {
            const double want = value_of(f, code);
            ck_assert_msg((double)load_code(f, code) == want, "%s 0x%X", f->name, code);
            ck_assert_msg((double)load_code(f, code | sign) == -want, "%s 0x%X", f->name, code | sign);
            ck_assert_msg(signbit(load_code(f, code | sign)), "%s 0x%X", f->name, code | sign);
        }
    }
}
END_TEST

START_TEST(loads_infinity_and_nan)
{
    for (int t = 0; t < NUM_FORMATS; t++) {
        const struct format *const f = &formats[t];
        const unsigned sign = 1u << (f->bits - 1);
        unsigned first_nan = f->max_code + 1;
        if (f->dtype != QATTN_DTYPE_E4M3FN) {
            ck_assert(load_code(f, first_nan) == INFINITY);
            ck_assert(load_code(f, first_nan | sign) == -INFINITY);
            first_nan++;
        }
        for (unsigned code = first_nan; code < sign; code++)
            ck_assert_msg(isnan(load_code(f, code)) && isnan(load_code(f, code | sign)), "%s 0x%X", f->name, code);
    }
}
END_TEST

START_TEST(known_values)
{
    ck_assert(load_code(&formats[0], 0x3C00) == 1.0f);
    ck_assert(load_code(&formats[0], 0x7BFF) == 65504.0f);
    ck_assert(load_code(&formats[0], 0x0001) == 0x1p-24f);
    ck_assert(load_code(&formats[1], 0xC2F7) == -123.5f);
    ck_assert(load_code(&formats[1], 0x0001) == 0x1p-133f);
    ck_assert(load_code(&formats[2], 0x7E) == 448.0f);
    ck_assert(load_code(&formats[2], 0x01) == 0x1p-9f);
    ck_assert(load_code(&formats[2], 0x38) == 1.0f);
    ck_assert(load_code(&formats[3], 0x7B) == 57344.0f);
    ck_assert(load_code(&formats[3], 0x01) == 0x1p-16f);
    ck_assert(load_code(&formats[3], 0x3C) == 1.0f);
    ck_assert(load_code(&formats[3], 0x7C) == INFINITY);
}
END_TEST

/* Values, midpoints, and the doubles next to each: a store that rounds twice (through f32) fails here. */
START_TEST(stores_values_and_midpoints)
{
    for (int t = 0; t < NUM_FORMATS; t++) {
        const struct format *const f = &formats[t];
        for (unsigned code = 0; code <= f->max_code; code++) {
            const double value = value_of(f, code), middle = value + (value_of(f, code + 1) - value) / 2;
            check_store(f, value);
            check_store(f, nextafter(value, INFINITY));
            check_store(f, nextafter(middle, 0.0));
            check_store(f, middle);
            check_store(f, nextafter(middle, INFINITY));
        }
    }
}
END_TEST

/* splitmix64 */
static uint64_t next_bits(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* 2^lowest <= result < 2^(highest+1), uniform in the exponent. */
static double random_double(uint64_t *state, int lowest, int highest)
{
    const double significand = 1.0 + ldexp((double)(next_bits(state) >> 12), -52);
    return ldexp(significand, lowest + (int)(next_bits(state) % (uint64_t)(highest - lowest + 1)));
}

START_TEST(stores_random_doubles)
{
    uint64_t state = 1;
    for (int t = 0; t < NUM_FORMATS; t++)
        for (int n = 0; n < 100000; n++)
            check_store(&formats[t], random_double(&state, -150, 150));
    for (int t = 0; t < NUM_FORMATS; t++) {
        const double far[] = { 0x1p-1074, 0x1p-1022, 0x1p-200, 0x1p200, 0x1.fffffffffffffp1023 };
        for (unsigned n = 0; n < sizeof far / sizeof far[0]; n++)
            check_store(&formats[t], far[n]);
    }
}
END_TEST

START_TEST(stores_infinity_and_nan)
{
    for (int t = 0; t < NUM_FORMATS; t++) {
        const struct format *const f = &formats[t];
        const unsigned sign = 1u << (f->bits - 1), infinity = f->bits == 16 ? f->max_code + 1 : f->max_code;
        ck_assert_uint_eq(store_code(f, INFINITY), infinity);
        ck_assert_uint_eq(store_code(f, -INFINITY), infinity | sign);
        ck_assert_uint_eq(store_code(f, NAN) & ~sign, f->nan_code);
        ck_assert(isnan(load_code(f, store_code(f, NAN))));
    }
}
END_TEST

/* 1 + 2^-11 + 2^-40: f32 drops the last bit, the rest is a tie of f16 and would go down to 1. */
START_TEST(rounds_once)
{
    ck_assert_uint_eq(qattn__f64_to_f16(1.0 + 0x1p-11 + 0x1p-40), 0x3C01);
    ck_assert_uint_eq(qattn__f64_to_f16(1.0 + 0x1p-11), 0x3C00);
    ck_assert_uint_eq(qattn__f64_to_bf16(1.0 + 0x1p-8 + 0x1p-40), 0x3F81);
    ck_assert_uint_eq(qattn__f64_to_bf16(1.0 + 0x1p-8), 0x3F80);
    ck_assert_uint_eq(qattn__f64_to_f16(65519.99), 0x7BFF);
    ck_assert_uint_eq(qattn__f64_to_f16(65520.0), 0x7C00);
    ck_assert_uint_eq(qattn__f64_to_e4m3fn(1e9), 0x7E);
}
END_TEST

static void check_f32_store(double x)
{
    const float want = (float)x, got = qattn__f64_to_f32(x);
    if (qattn__f32_bits(want) != qattn__f32_bits(got))
        ck_abort_msg("%.17g -> %.9g, the compiler says %.9g", x, (double)got, (double)want);
}

/* To f32, against the machine's own conversion: all exponents, ties, overflow, subnormals. */
START_TEST(stores_f32)
{
    uint64_t state = 2;
    for (int n = 0; n < 300000; n++) {
        const double x = random_double(&state, -160, 135);
        const double value = (double)(float)random_double(&state, -149, 126);
        const double middle = value + (value * 0x1p-23 > 0x1p-149 ? ldexp(1.0, ilogb(value) - 24) : 0x1p-150);
        check_f32_store(x);
        check_f32_store(-x);
        check_f32_store(middle);
        check_f32_store(nextafter(middle, 0.0));
        check_f32_store(-nextafter(middle, INFINITY));
    }
    const double far[] = { 0.0, -0.0, INFINITY, -INFINITY, 0x1p-1074, 0x1p1023, 0x1.ffffffp127, 0x1.fffffefffffffp127 };
    for (unsigned n = 0; n < sizeof far / sizeof far[0]; n++)
        check_f32_store(far[n]);
    ck_assert(isnan(qattn__f64_to_f32(NAN)));
}
END_TEST

/* The f32 entries: every upper half of an f32 with lower halves around the tie of bf16. */
START_TEST(stores_from_f32)
{
    static const uint32_t lower[] = { 0, 1, 0x0FFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0xFFFF };
    for (uint32_t upper = 0; upper < 0x7F80; upper++) {
        for (unsigned n = 0; n < sizeof lower / sizeof lower[0]; n++) {
            const float x = qattn__f32_from_bits(upper << 16 | lower[n]);
            ck_assert_uint_eq(qattn__f32_to_bf16(x), nearest_code(&formats[1], (double)x));
            ck_assert_uint_eq(qattn__f32_to_bf16(-x), nearest_code(&formats[1], (double)x) | 0x8000);
            ck_assert_uint_eq(qattn__f32_to_f16(x), nearest_code(&formats[0], (double)x));
        }
    }
    ck_assert_uint_eq(qattn__f32_to_bf16(INFINITY), 0x7F80);
    ck_assert_uint_eq(qattn__f32_to_bf16(-INFINITY), 0xFF80);
    for (uint32_t u = 0x7F800001; u < 0x7F800001 + 0x10000; u++)
        ck_assert((qattn__f32_to_bf16(qattn__f32_from_bits(u)) & 0x7FFF) > 0x7F80);
    ck_assert((qattn__f32_to_bf16(qattn__f32_from_bits(0x7FFFFFFF)) & 0x7FFF) > 0x7F80);
    ck_assert_uint_eq(qattn__f32_to_e4m3fn(-3.25f), 0xC5);
    ck_assert_uint_eq(qattn__f32_to_e5m2(-3.25f), 0xC2);
}
END_TEST

START_TEST(whole_numbers)
{
    for (int n = -128; n < 128; n++) {
        const uint8_t byte = (uint8_t)(n & 0xFF);
        uint8_t stored;
        ck_assert(qattn__load(&byte, QATTN_DTYPE_I8) == (float)n);
        ck_assert(qattn__load(&byte, QATTN_DTYPE_U8) == (float)(n & 0xFF));
        ck_assert(qattn__load(&byte, QATTN_DTYPE_BOOL) == (float)(n & 0xFF));
        for (int quarter = -2; quarter <= 2; quarter++) {
            const double x = n + quarter / 4.0, want = nearbyint(x);
            qattn__store_f64(&stored, QATTN_DTYPE_I8, x);
            ck_assert_int_eq((int8_t)stored, (int)fmin(fmax(want, -128.0), 127.0));
        }
    }
    ck_assert_int_eq(qattn__f64_to_i8(1e300), 127);
    ck_assert_int_eq(qattn__f64_to_i8(-INFINITY), -128);
    ck_assert_int_eq(qattn__f64_to_i8(NAN), 0);
}
END_TEST

/* No alignment is needed, and neighbours stay as they are. */
START_TEST(touches_one_element)
{
    static const struct { int32_t dtype; int size; } types[] = {
        { QATTN_DTYPE_F32, 4 }, { QATTN_DTYPE_F16, 2 }, { QATTN_DTYPE_BF16, 2 },
        { QATTN_DTYPE_E4M3FN, 1 }, { QATTN_DTYPE_E5M2, 1 }, { QATTN_DTYPE_I8, 1 },
    };
    for (unsigned t = 0; t < sizeof types / sizeof types[0]; t++) {
        uint8_t bytes[8];
        memset(bytes, 0xA5, sizeof bytes);
        qattn__store(bytes + 1, types[t].dtype, -2.0f);
        ck_assert(qattn__load(bytes + 1, types[t].dtype) == -2.0f);
        ck_assert_uint_eq(bytes[0], 0xA5);
        ck_assert_uint_eq(bytes[1 + types[t].size], 0xA5);
    }
}
END_TEST

#if defined(__FLT16_MANT_DIG__) && !defined(__clang__)
/* The compiler's half type. */
START_TEST(agrees_with_float16)
{
    uint64_t state = 3;
    for (unsigned code = 0; code <= 0xFFFF; code++) {
        const uint16_t bits = (uint16_t)code;
        _Float16 half;
        memcpy(&half, &bits, sizeof half);
        const float want = (float)half, got = qattn__f16_to_f32(bits);
        ck_assert(isnan(want) ? isnan(got) : qattn__f32_bits(want) == qattn__f32_bits(got));
    }
    for (int n = 0; n < 300000; n++) {
        const double x = random_double(&state, -28, 17);
        const _Float16 half = (_Float16)x;
        uint16_t want;
        memcpy(&want, &half, sizeof want);
        ck_assert_uint_eq(qattn__f64_to_f16(x), want);
    }
}
END_TEST
#endif

Suite *suite_convert(void)
{
    Suite *const suite = suite_create("convert");
    TCase *const tc = tcase_create("convert");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, loads_every_code);
    tcase_add_test(tc, loads_infinity_and_nan);
    tcase_add_test(tc, known_values);
    tcase_add_test(tc, stores_values_and_midpoints);
    tcase_add_test(tc, stores_random_doubles);
    tcase_add_test(tc, stores_infinity_and_nan);
    tcase_add_test(tc, rounds_once);
    tcase_add_test(tc, stores_f32);
    tcase_add_test(tc, stores_from_f32);
    tcase_add_test(tc, whole_numbers);
    tcase_add_test(tc, touches_one_element);
#if defined(__FLT16_MANT_DIG__) && !defined(__clang__)
    tcase_add_test(tc, agrees_with_float16);
#endif
    suite_add_tcase(suite, tc);
    return suite;
}
