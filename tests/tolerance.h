/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The one place where the tests' error bounds live; docs/numerics.md derives them. */
#ifndef QATTN_TESTS_TOLERANCE_H
#define QATTN_TESTS_TOLERANCE_H

#include <stdint.h>

/* Unit roundoff of a type: 2^-24 f32, 2^-11 f16, 2^-8 bf16. */
double tolerance_unit(int32_t dtype);

/* Unit to which a path may round P before P V: that of v; for 8-bit v that of a 16-bit q, else bf16's. */
double tolerance_unit_p(int32_t q_dtype, int32_t v_dtype);

/* Error of one product of f32 numbers relative to it, beyond fp32's: 0 for IEEE and other types than f32. precision:
 * QATTN_PRECISION_*, which the CPU may exceed. */
double tolerance_product(int32_t dtype, int32_t precision);

/* Half the spacing of the type's subnormal numbers: the absolute part of one rounding. */
double tolerance_tiny(int32_t dtype);

/* e_s: fp32 error of one final score. d: terms of the dot product (0: the score was given). magnitude: max over
 * visible keys of |scale| sum |q_i k_i| + |bias| + |alibi|. */
double tolerance_score(int64_t d, double magnitude);
/* The same where products err by `product` (tolerance_product) of `floor`, which is |scale| sum |q_i k_i| or more. */
double tolerance_score_of(int64_t d, double magnitude, double product, double floor);

/* |O - O64| for one element. e_s from tolerance_score; o_abs = sum_j p_j |v_j|. */
double tolerance_output(int32_t q_dtype, int32_t v_dtype, int32_t o_dtype, double e_s, double o64, double o_abs);
double tolerance_output_of(int32_t q_dtype, int32_t v_dtype, int32_t o_dtype, double product, double e_s, double o64,
                           double o_abs);

/* |LSE - LSE64|, both as natural logarithms (convert a base-2 result first). */
double tolerance_lse(double e_s, double magnitude, double lse64);

/* One score of stage 0, 1 or 2 stored in `dtype`; one probability (stage 3, or softmax's y). */
double tolerance_stored_score(int32_t dtype, double e_s, double s64);
double tolerance_probability(int32_t dtype, double e_s, double p64);

/* |C - C64| of a matmul over k terms; c_abs = |alpha| sum |a b|, base = |beta c|. */
double tolerance_matmul(int32_t c_dtype, int64_t k, double c64, double c_abs, double base);
double tolerance_matmul_of(int32_t c_dtype, int64_t k, double product, double c64, double c_abs, double base);

/* One element of a merge of parts; magnitude = max |lse_i|, o_abs = sum w_i |o_i| / sum w_i. */
double tolerance_merge(int32_t o_dtype, double magnitude, double o64, double o_abs);

/* Root mean square error allowed, in units of the plain algorithm's: element types of 16 and 8 bits, and f32, where
 * the plain algorithm's own error is rounding noise. */
#define TOLERANCE_RMS_FACTOR 1.1
#define TOLERANCE_RMS_FACTOR_F32 3.0
/* 16 and 8 bits, where fewer rows than these have nearly all of the plain algorithm's error: one row's roundings of P
 * are one draw, and any order of maxima draws others. */
#define TOLERANCE_RMS_ROWS       4
#define TOLERANCE_RMS_FACTOR_FEW 1.6

/* The same with a floor for 16 and 8 bits: fp32 noise, 2^-22 of rms(o_abs), for rows where the plain algorithm
 * rounds nothing (one key, equal scores). rows: among how many the plain algorithm's error is shared out. */
double tolerance_rms(int32_t q_dtype, double rows, double plain, double o_abs);

#endif
