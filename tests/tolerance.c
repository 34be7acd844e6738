/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "tolerance.h"

#include <math.h>

#include "qattn.h"

static const double unit_f32 = 0x1p-24;
/* Sum, exponential and P V of one row in fp32: the 2^-20 of the contract. */
static const double unit_row = 0x1p-20;
/* Roundings of a score beside its dot product: scale, log2(e), softcap's tanh (4), bias, ALiBi (2), descales (2),
 * the subtraction of the maximum, and the maximum's own. */
static const double score_roundings = 16;

double tolerance_unit(int32_t dtype)
{
    switch (dtype) {
    case QATTN_DTYPE_BF16: return 0x1p-8;
    case QATTN_DTYPE_F16:  return 0x1p-11;
    default:               return unit_f32;
    }
}

double tolerance_unit_p(int32_t q_dtype, int32_t v_dtype)
{
    switch (v_dtype) {
    case QATTN_DTYPE_F32:
    case QATTN_DTYPE_F16:
    case QATTN_DTYPE_BF16: return tolerance_unit(v_dtype);
    default:               return q_dtype == QATTN_DTYPE_F16 ? 0x1p-11 : 0x1p-8;
    }
}

/* TF32 rounds both factors to 11 bits, 2^-11 each. Three products of halves leave out what the second halves round
 * away, 2^-22 each, and their product, 2^-22. */
double tolerance_product(int32_t dtype, int32_t precision)
{
    if (dtype != QATTN_DTYPE_F32 || precision == QATTN_PRECISION_IEEE)
        return 0;
    return precision == QATTN_PRECISION_TF32 ? 0x1.01p-10 : 0x1.8p-21;
}

double tolerance_tiny(int32_t dtype)
{
    switch (dtype) {
    case QATTN_DTYPE_F16: return 0x1p-25;
    default:              return 0x1p-126;      /* f32 and bf16: a subnormal may also become 0 */
    }
}

double tolerance_score_of(int64_t d, double magnitude, double product, double floor)
{
    const double sums = ((double)d + score_roundings) * unit_f32 * magnitude;
    return product > 0 ? sums + product * floor : sums;         /* floor may be infinite */
}

double tolerance_score(int64_t d, double magnitude) { return tolerance_score_of(d, magnitude, 0, 0); }

/* Bound after one more rounding to dtype of a value known to `inner`. */
static double round_on(int32_t dtype, double exact, double inner)
{
    return inner + tolerance_unit(dtype) * (fabs(exact) + inner) + tolerance_tiny(dtype);
}

double tolerance_output_of(int32_t q_dtype, int32_t v_dtype, int32_t o_dtype, double product, double e_s, double o64,
                           double o_abs)
{
    const double inner = (tolerance_unit_p(q_dtype, v_dtype) + product + expm1(2 * e_s) + unit_row) * o_abs;
    return round_on(o_dtype, o64, inner);
}

double tolerance_output(int32_t q_dtype, int32_t v_dtype, int32_t o_dtype, double e_s, double o64, double o_abs)
{
    return tolerance_output_of(q_dtype, v_dtype, o_dtype, 0, e_s, o64, o_abs);
}

double tolerance_lse(double e_s, double magnitude, double lse64)
{
    return e_s + unit_row + 4 * unit_f32 * fmax(fabs(lse64), magnitude);
}

double tolerance_stored_score(int32_t dtype, double e_s, double s64)
{
    return round_on(dtype, s64, e_s);
}

double tolerance_probability(int32_t dtype, double e_s, double p64)
{
    return round_on(dtype, p64, (expm1(2 * e_s) + unit_row) * p64);
}

double tolerance_matmul_of(int32_t c_dtype, int64_t k, double product, double c64, double c_abs, double base)
{
    return round_on(c_dtype, c64, (((double)k + 4) * unit_f32 + product) * c_abs + 4 * unit_f32 * base);
}

double tolerance_matmul(int32_t c_dtype, int64_t k, double c64, double c_abs, double base)
{
    return tolerance_matmul_of(c_dtype, k, 0, c64, c_abs, base);
}

double tolerance_merge(int32_t o_dtype, double magnitude, double o64, double o_abs)
{
    return round_on(o_dtype, o64, (expm1(2 * tolerance_score(0, magnitude)) + unit_row) * o_abs);
}

double tolerance_rms(int32_t q_dtype, double rows, double plain, double o_abs)
{
    if (q_dtype == QATTN_DTYPE_F32)
        return TOLERANCE_RMS_FACTOR_F32 * plain;
    return (rows < TOLERANCE_RMS_ROWS ? TOLERANCE_RMS_FACTOR_FEW : TOLERANCE_RMS_FACTOR) * plain + 0x1p-22 * o_abs;
}
