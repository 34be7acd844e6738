/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "recipe.h"

#include <math.h>
#include <string.h>

enum tensor_seed { SEED_Q, SEED_K, SEED_V, SEED_KEEP };

uint64_t recipe_bits(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* Natural log of u > 0: exponent apart, then atanh's series in (m-1)/(m+1). */
static double exact_log(double u)
{
    int e;
    double m = frexp(u, &e);
    if (m < 0x1.6a09e667f3bcdp-1) {
        m = m + m;
        e = e - 1;
    }
    const double s = (m - 1) / (m + 1);
    const double t = s * s;
    double g = 1.0 / 21;
    for (int k = 9; k >= 0; k--)
        g = g * t + 1.0 / (2 * k + 1);
    return e * 0x1.62e42fefa39efp-1 + (s + s) * g;
}

/* (-1)^n / m! */
static double taylor(int n, int m)
{
    double factorial = 1;
    for (int i = 2; i <= m; i++)
        factorial = factorial * i;
    return (n % 2 ? -1.0 : 1.0) / factorial;
}

/* Coefficients of the two Taylor series: cos in c[0..9], sin(a)/a in s[0..8], in powers of a*a. */
struct series {
    double c[10], s[9];
};

static struct series make_series(void)
{
    struct series x;
    for (int n = 0; n < 10; n++)
        x.c[n] = taylor(n, 2 * n);
    for (int n = 0; n < 9; n++)
        x.s[n] = taylor(n, 2 * n + 1);
    return x;
}

/* Cosine and sine of a whole turn times v, v in [0,1). */
static void exact_turn(const struct series *series, double v, double *cosine, double *sine)
{
    const int k = (int)floor(4 * v + 0.5);
    const double a = (v - k * 0.25) * 0x1.921fb54442d18p+2;
    const double b = a * a;
    double c = series->c[9];
    for (int n = 8; n >= 0; n--)
        c = c * b + series->c[n];
    double w = series->s[8];
    for (int n = 7; n >= 0; n--)
        w = w * b + series->s[n];
    w = a * w;
    switch (k % 4) {
    case 0:
        *cosine = c;
        *sine = w;
        break;
    case 1:
        *cosine = -w;
        *sine = c;
        break;
    case 2:
        *cosine = -c;
        *sine = -w;
        break;
    default:
        *cosine = w;
        *sine = -c;
        break;
    }
}

void recipe_normals(uint64_t seed, int64_t first, int64_t count, float *out)
{
    const struct series series = make_series();
    const int64_t end = first + count;
    for (int64_t p = first / 2; 2 * p < end; p++) {
        const double u = (double)((recipe_bits(seed, 2 * (uint64_t)p) >> 11) + 1) * 0x1p-53;
        const double v = (double)(recipe_bits(seed, 2 * (uint64_t)p + 1) >> 11) * 0x1p-53;
        const double r = sqrt(-2 * exact_log(u));
        double c, s;
        exact_turn(&series, v, &c, &s);
        if (2 * p >= first)
            out[2 * p - first] = (float)(r * c);
        if (2 * p + 1 < end)
            out[2 * p + 1 - first] = (float)(r * s);
    }
}

static void fill(const struct recipe *r, enum tensor_seed which, int64_t count, float *out)
{
    recipe_normals(recipe_bits(r->base, which), 0, count, out);
}

static float poison(int64_t j)
{
    static const uint32_t bits[4] = { 0x7FC00000u, 0x7F800000u, 0xFF800000u, 0 };
    float x = 3.0e38f;
    if (j % 4 != 3)
        memcpy(&x, &bits[j % 4], sizeof x);
    return x;
}

static int32_t poison_length(const struct recipe *r, int64_t b)
{
    return (int32_t)(r->seqlen_k - 1 - (5 * b + 3) % (r->seqlen_k / 2));
}

/* Key j of batch b is hidden by the length or by the mask of kind poison. */
static bool is_poisoned(const struct recipe *r, int64_t b, int64_t j)
{
    return j >= poison_length(r, b) || j % 7 == 6;
}

void recipe_q(const struct recipe *r, float *q)
{
    const int64_t rows = r->b * r->hq * r->seqlen_q;
    static const float ramp[3] = { 8192.0f, 32.0f, 0.125f };
    const bool is_ramp = r->kind == RECIPE_RAMP || r->kind == RECIPE_RAMP_DOWN;
    fill(r, SEED_Q, rows * r->d, q);
    for (int64_t i = 0; i < rows; i++) {
        float *const row = q + i * r->d;
        if (r->kind == RECIPE_SINK)
            row[0] = 8.0f;
        for (int64_t x = 0; is_ramp && x < r->d; x++)
            row[x] = x < 3 ? ramp[x] : row[x] * 0.25f;
    }
}

/* Changes row j of head h of batch b of K. */
static void change_key(const struct recipe *r, int64_t b, int64_t h, int64_t j, float *row)
{
    switch (r->kind) {
    case RECIPE_OUTLIER:
        for (int64_t n = 0; n < 4; n++)
            row[(7 + 16 * h + 29 * n) % r->d] *= 20.0f;
        break;
    case RECIPE_SINK:
        for (int64_t x = 0; j == 0 && x < r->d; x++)
            row[x] = x == 0 ? (float)(2.25 * sqrt((double)r->d)) : 0.0f;
        break;
    case RECIPE_RAMP:
    case RECIPE_RAMP_DOWN: {
        const int64_t n = r->kind == RECIPE_RAMP ? j : r->seqlen_k - 1 - j;
        row[0] = (float)(n >> 16);
        row[1] = (float)(n >> 8 & 255);
        row[2] = (float)(n & 255);
        break;
    }
    case RECIPE_POISON:
        for (int64_t x = 0; is_poisoned(r, b, j) && x < r->d; x++)
            row[x] = poison(j);
        break;
    default: break;
    }
}

void recipe_k(const struct recipe *r, float *k)
{
    fill(r, SEED_K, r->b * r->hkv * r->seqlen_k * r->d, k);
    for (int64_t b = 0; b < r->b; b++)
        for (int64_t h = 0; h < r->hkv; h++)
            for (int64_t j = 0; j < r->seqlen_k; j++)
                change_key(r, b, h, j, k + ((b * r->hkv + h) * r->seqlen_k + j) * r->d);
}

void recipe_v(const struct recipe *r, float *v)
{
    fill(r, SEED_V, r->b * r->hkv * r->seqlen_k * r->dv, v);
    for (int64_t i = 0; i < r->b * r->hkv * r->seqlen_k; i++) {
        const int64_t b = i / (r->hkv * r->seqlen_k);
        const int64_t j = i % r->seqlen_k;
        float *const row = v + i * r->dv;
        for (int64_t x = 0; r->kind == RECIPE_SINK && j == 0 && x < r->dv; x++)
            row[x] *= 1.0f / 64;
        for (int64_t x = 0; r->kind == RECIPE_POISON && is_poisoned(r, b, j) && x < r->dv; x++)
            row[x] = poison(j + 1);
    }
}

bool recipe_has_keep(const struct recipe *r)
{
    return r->kind == RECIPE_DEAD_ROWS || r->kind == RECIPE_POISON;
}

bool recipe_has_lengths(const struct recipe *r)
{
    return r->kind == RECIPE_POISON;
}

void recipe_keep(const struct recipe *r, uint8_t *keep)
{
    const uint64_t seed = recipe_bits(r->base, SEED_KEEP);
    for (int64_t i = 0; i < r->seqlen_q; i++)
        for (int64_t j = 0; j < r->seqlen_k; j++) {
            const int64_t at = i * r->seqlen_k + j;
            if (r->kind == RECIPE_POISON)
                keep[at] = j % 7 != 6;
            else
                keep[at] = i % 5 != 3 &&
                           (j == i % r->seqlen_k || recipe_bits(seed, (uint64_t)at) >> 62 != 0);
        }
}

void recipe_lengths(const struct recipe *r, int32_t *seqused_k)
{
    for (int64_t b = 0; b < r->b; b++)
        seqused_k[b] = poison_length(r, b);
}

const char *recipe_name(enum recipe_kind kind)
{
    static const char *const names[RECIPE_KINDS] = {
        "normal", "outlier", "sink", "ramp", "ramp_down", "dead_rows", "poison",
    };
    return names[kind];
}

uint64_t recipe_fnv(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *const at = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}
