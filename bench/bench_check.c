/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The check before timing. It guards against timing a wrong answer; the accuracy gate proper is the test suite.
 * Samples: the first and the last row and random ones, as many as an fp64 computation of about 40 million steps
 * allows, at least 4 and at most 24.
 */
#include <math.h>
#include <stdlib.h>

#include "bench_data.h"
#include "core/convert.h"
#include "core/seq.h"
#include "ref/ref.h"

/* Half a unit in the last place of a type, relative. */
static double unit_of(int32_t dtype)
{
    switch (dtype) {
    case QATTN_DTYPE_F32: return 0x1p-24;
    case QATTN_DTYPE_F16: return 0x1p-11;
    default:              return 0x1p-8;       /* bf16; 8-bit values are multiplied as bf16 at worst */
    }
}

/* Notes the error of one element and tells whether it is within its bound. NaN is not. */
static bool judge(double got, double want, double bound, double *max_err)
{
    const double err = fabs(got - want);
    if (!(err <= *max_err))
        *max_err = err;
    return err <= bound || (isinf(want) && got == want);
}

static double load_at(const struct view *t, int64_t b, int64_t h, int64_t s, int64_t e)
{
    return (double)qattn__load(view_at(t, b, h, s, e), t->dtype);
}

static int count_samples(double steps_per_sample)
{
    const double fit = 4e7 / (steps_per_sample + 1);
    return fit < 4 ? 4 : fit > 24 ? 24 : (int)fit;
}

/* Sample k of `count` picks one of `total` rows: the first, the last, then a spread. */
static int64_t pick_row(int k, int64_t total)
{
    if (k < 2)
        return k == 0 ? 0 : total - 1;
    return (int64_t)((uint64_t)k * UINT64_C(0x9E3779B97F4A7C15) >> 17) % total;
}

/* ---------------------------------------------------------------- attention */

static bool check_attention(const struct problem *p, double *max_err)
{
    struct ref_row *const want = malloc(sizeof *want);
    const int64_t rows = p->n * p->hq * p->cap_q;
    const int count = rows ? count_samples((double)p->cap_k * (double)(p->d + p->dv)) : 0;
    bool good = want != NULL;
    for (int k = 0; good && k < count; k++) {
        const int64_t row = pick_row(k, rows);
        const struct seq s = seq_get(p, row / (p->hq * p->cap_q));
        const int64_t h = row / p->cap_q % p->hq, i = row % p->cap_q;
        if (i >= s.rows)
            continue;
        qattn__ref_attention_row(p, &s, h, i, want);
        const double e_s = (double)(p->d + 16) * 0x1p-24 * want->score_mag;    /* docs/numerics.md, "One score" */
        for (int64_t e = 0; e < p->dv; e++) {
            const double got = load_at(&p->o, s.q_batch, h, s.q_row + i, e);
            const double bound = unit_of(p->o.dtype) * fabs(want->o[e])
                               + (unit_of(p->v.dtype) + 2 * e_s + 0x1p-20) * want->o_abs[e];
            good &= judge(got, want->o[e], bound, max_err);
        }
    }
    free(want);
    return good;
}

/* ---------------------------------------------------------------- the other operations */

static bool check_matmul(const struct problem *p, double *max_err)
{
    const struct view *const c = &p->c;
    const int64_t heads = c->shape[1], m = c->shape[2], n = c->shape[3], depth = p->a.shape[3];
    const int64_t rows = c->shape[0] * heads * m;
    const int count = rows > 0 && n > 0 ? count_samples((double)depth) : 0;
    bool good = true;
    for (int k = 0; k < count; k++) {
        const int64_t row = pick_row(k, rows), j = pick_row(k * 7 + k % 2, n);
        const int64_t i = row % m, h = row / m % heads, b = row / m / heads;
        double sum_abs;
        const double want = p->alpha * qattn__ref_matmul_element(p, b, h, i, j, &sum_abs);
        const double bound = unit_of(c->dtype) * fabs(want) + (double)(depth + 2) * 0x1p-24 * sum_abs;
        good &= judge(load_at(c, b, h, i, j), want, bound, max_err);
    }
    return good;
}

static bool check_softmax(const struct problem *p, double *max_err)
{
    const int64_t heads = p->x.shape[1], sq = p->x.shape[2], sk = p->x.shape[3];
    const int64_t rows = p->x.shape[0] * heads * sq;
    const int count = rows > 0 ? count_samples((double)sk) : 0;
    double *const want = malloc((size_t)(sk + 1) * sizeof *want);
    bool good = want != NULL;
    for (int k = 0; good && k < count; k++) {
        const int64_t row = pick_row(k, rows), i = row % sq, h = row / sq % heads;
        const struct seq s = seq_get(p, row / sq / heads);
        qattn__ref_softmax_row(p, &s, h, i, want);
        for (int64_t j = 0; j < sk; j++) {
            const double bound = want[j] * (unit_of(p->y.dtype) + 0x1p-18) + 0x1p-126;
            good &= judge(load_at(&p->y, s.n, h, i, j), want[j], bound, max_err);
        }
    }
    free(want);
    return good;
}

static bool check_merge(const struct problem *p, double *max_err)
{
    const int64_t heads = p->o.shape[1], sq = p->o.shape[2], width = p->o.shape[3];   /* any width: no limit here */
    const int64_t rows = p->o.shape[0] * heads * sq;
    const int count = rows > 0 ? count_samples((double)(p->num_parts * width)) : 0;
    double *const want = malloc((size_t)(2 * width + 1) * sizeof *want), *const want_abs = want ? want + width : NULL;
    bool good = want != NULL;
    for (int k = 0; good && k < count; k++) {
        const int64_t row = pick_row(k, rows), i = row % sq, h = row / sq % heads, b = row / sq / heads;
        qattn__ref_merge_row(p, b, h, i, want, want_abs);
        for (int64_t e = 0; e < width; e++) {
            const double bound = unit_of(p->o.dtype) * fabs(want[e]) + 0x1p-18 * want_abs[e];
            good &= judge(load_at(&p->o, b, h, i, e), want[e], bound, max_err);
        }
    }
    free(want);
    return good;
}

bool bench_check(const struct bench_data *d, const struct bench_case *c, double *max_err)
{
    *max_err = 0;
    switch (c->op) {
    case OP_MATMUL:
    case OP_MATMUL_NT: return check_matmul(&d->host, max_err);
    case OP_SOFTMAX:   return check_softmax(&d->host, max_err);
    case OP_MERGE:     return check_merge(&d->host, max_err);
    default:           return check_attention(&d->host, max_err);
    }
}
