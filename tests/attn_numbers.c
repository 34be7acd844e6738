/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Cases whose q, k and v are far from 1 while scale brings the scores back: the word `numbers`. */
#include <math.h>

#include "attn_logical.h"
#include "support.h"

enum { SPREAD = 4 };      /* powers of two from row to row */

/* Powers of two. f32 through TF32 works with queries and keys of 2^59 and more apart (cuda/sm80/tf32_sm80.cuh): rows of
 * those kinds lie on both sides of that, rows that do for some of their elements among them. */
static const struct { int q, k, v; bool spread_q, spread_k; } powers[NUMBERS_KINDS] = {
    [NUMBERS_LARGE_K] = { 0, 55, 0, false, true },
    [NUMBERS_LARGE_Q] = { 55, 0, 0, true, false },
    [NUMBERS_LARGE_QK] = { 55, 55, 0, true, true },
    [NUMBERS_LARGEST_K] = { -97, 124, 0, false, true },
    [NUMBERS_LARGE_V] = { 0, 0, 108, false, false },
    [NUMBERS_SMALL_QK] = { -60, -60, 0, true, true },
    [NUMBERS_TINY_K] = { 97, -128, 0, false, true },
    [NUMBERS_TINY_V] = { 0, 0, -145, false, false },
};

void attn_stretch(const struct attn_case *c, char which, uint64_t key, int64_t width, double *values)
{
    const int32_t dtype = which == 'q' ? c->q_dtype : c->kv_dtype;
    const int power = which == 'q'   ? powers[c->numbers].q
                      : which == 'k' ? powers[c->numbers].k
                                     : powers[c->numbers].v;
    const bool spread = which == 'q' ? powers[c->numbers].spread_q : which == 'k' && powers[c->numbers].spread_k;
    const int steep = which == 'v' && c->numbers == NUMBERS_TINY_V ? 4 : spread;     /* bf16 has nothing below 2^-133 */
    const int row = steep * (int)(hash64(key, 'n') % SPREAD);
    const double most = format_largest(dtype);
    for (int64_t d = 0; d < width; d++)
        values[d] = fmax(-most, fmin(most, format_round(dtype, ldexp(values[d], power + row))));
}

void attn_set_numbers(struct attn_case *c, int64_t kind)
{
    c->numbers = kind;
    if (powers[kind].q + powers[kind].k == 0)
        return;
    const int of_q = powers[kind].q + (powers[kind].spread_q ? SPREAD / 2 : 0);
    const int of_k = powers[kind].k + (powers[kind].spread_k ? SPREAD / 2 : 0);
    c->scale = (float)ldexp(1 / sqrt(c->d > 0 ? (double)c->d : 1.0), -of_q - of_k);
}

/* The step of TF32's smallest numbers is 2^-136: one below is off by more than the share of a product that
 * tolerance_product allows. */
double attn_tf32_floor(const struct attn_case *c, double x)
{
    const double least = c->precision == QATTN_PRECISION_TF32 ? 0x1p-126 : 0x1p-115;
    return x != 0 && fabs(x) < least ? least : fabs(x);
}
