/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "fuzz_compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/convert.h"
#include "core/seq.h"
#include "ref/ref.h"
#include "tolerance.h"

void require(bool cond, const char *format, ...)
{
    va_list args;
    if (cond)
        return;
    va_start(args, format);
    fputs("fuzz: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

/* The comparison under way: p sees the memory as it is, old the copies from before the call. */
struct comparison {
    struct call *c;
    const struct problem *p;
    struct problem old;
    const char *who;
};

static void *before(struct call *c, const void *data)
{
    struct block *block = data ? call_find(c, data, 0) : NULL;
    return block ? block->before + ((const unsigned char *)data - block->mem) : NULL;
}

static void point_at_copies(struct call *c, struct problem *old)
{
    struct view *const views[] = { &old->a, &old->b, &old->c, &old->x, &old->q, &old->k, &old->v, &old->bias,
                                   &old->keep, &old->q_descale.t, &old->k_descale.t, &old->v_descale.t };
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        views[i]->data = before(c, views[i]->data);
    for (int64_t i = 0; i < old->num_parts; i++) {
        old->parts[i].o.data = before(c, old->parts[i].o.data);
        old->parts[i].lse.data = before(c, old->parts[i].lse.data);
    }
}

/* What an infinite answer promises: a sum over values that are not finite is not finite, and no more (a weight that
 * fp32 rounds to 0 makes NaN of an infinity); -inf of a hidden score, a LSE of no keys or a product is itself. */
enum promise { NOT_FINITE, ITSELF };

/* One element of an output: `wanted` within `bound`, then the old bytes again. */
static void check_element(struct comparison *cmp, const struct view *t, const char *name, const int64_t i[4],
                          enum promise promise, double wanted, double bound)
{
    char *at = view_at(t, i[0], i[1], i[2], i[3]);
    const double got = (double)qattn__load(at, t->dtype);
    const double most = t->dtype == QATTN_DTYPE_F16 ? 60000.0 : 1e37;
    bool good;
    if (isnan(wanted) || wanted == INFINITY || (wanted == -INFINITY && promise == NOT_FINITE))
        good = !isfinite(got);
    else if (wanted == -INFINITY)
        good = got == wanted;
    else
        good = fabs(wanted) > most || !isfinite(bound) || fabs(got - wanted) <= bound;
    require(good, "%s: %s %s[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "] is %.9g, must be %.9g within %.3g",
            cmp->who, qattn__op_name(cmp->p->op), name, i[0], i[1], i[2], i[3], got, wanted, bound);
    memcpy(at, before(cmp->c, at), (size_t)t->itemsize);
}

static double natural(const struct problem *p, double lse)
{
    return p->flags & QATTN_FLAG_LSE_BASE2 ? lse * 0.69314718055994530942 : lse;
}

static double lse_bound(const struct problem *p, double e_s, double magnitude, double lse)
{
    const double bound = tolerance_lse(e_s, magnitude, natural(p, lse));
    return p->flags & QATTN_FLAG_LSE_BASE2 ? bound / 0.69314718055994530942 : bound;
}

static void compare_scores(struct comparison *cmp, const struct seq *s, int64_t h, int64_t i, double e_s)
{
    const struct problem *old = &cmp->old;
    double *scratch = malloc(qattn__ref_scratch(old) * sizeof *scratch);
    require(scratch != NULL, "out of memory");
    const double *row = qattn__ref_scores_row(old, s, h, i, scratch);
    for (int64_t j = 0; j < cmp->p->scores.shape[3]; j++) {
        const int64_t at[4] = { s->n, h, i, j };
        const double bound = old->scores_stage == 3 ? tolerance_probability(cmp->p->scores.dtype, e_s, row[j])
                                                    : tolerance_stored_score(cmp->p->scores.dtype, e_s, row[j]);
        check_element(cmp, &cmp->p->scores, "scores", at, ITSELF, row[j], bound);
    }
    free(scratch);
}

/* Error of one score before any mask: stages 0 to 2 show keys that no row sees too. */
static double widest_score_error(const struct problem *old, const struct seq *s, int64_t h, int64_t i)
{
    double widest = 0;
    for (int64_t j = 0; j < s->len_k; j++) {
        double product = 0;
        for (int64_t d = 0; d < old->d; d++) {
            const double q = (double)qattn__load(view_at(&old->q, s->q_batch, h, s->q_row + i, d), old->q.dtype) *
                (double)seq_q_descale(old, s, h, i, d);
            const int64_t hk = h / old->group;
            const char *key = seq_key(old, s, &old->k, hk, j) + d * old->k.stride[3] * old->k.itemsize;
            product += fabs(q * (double)qattn__load(key, old->k.dtype) *
                            (double)seq_kv_descale(old, s, &old->k_descale, hk, j, d));
        }
        const double magnitude = qattn__ref_score_magnitude(old, s, h, i, j, product);
        widest = isnan(magnitude) || magnitude > widest ? magnitude : widest;
    }
    return tolerance_score(old->d, widest);
}

/* What probabilities below fp32's least normal number may take with them: each may be 0. */
static double lost_below(const struct problem *old, const struct seq *s, int64_t h, int64_t d)
{
    const int64_t hk = h / old->group;
    double sum = 0;
    for (int64_t j = 0; j < s->len_k; j++) {
        const char *value = seq_key(old, s, &old->v, hk, j) + d * old->v.stride[3] * old->v.itemsize;
        double v = (double)qattn__load(value, old->v.dtype);
        if (old->v_descale.kind != DESCALE_NONE)
            v *= (double)seq_kv_descale(old, s, &old->v_descale, hk / old->v_descale.head_div, j, d);
        sum += isfinite(v) ? fabs(v) : 0;
    }
    return 0x1p-126 * sum;
}

static void compare_attention_row(struct comparison *cmp, const struct seq *s, int64_t h, int64_t i)
{
    static struct ref_row row;
    const struct problem *p = cmp->p;
    qattn__ref_attention_row(&cmp->old, s, h, i, &row);
    const double e_s = tolerance_score(p->d, row.score_mag);
    for (int64_t d = 0; d < p->dv; d++) {
        const int64_t at[4] = { s->q_batch, h, s->q_row + i, d };
        const double got = (double)qattn__load(view_at(&p->o, at[0], at[1], at[2], at[3]), p->o.dtype);
        double bound = tolerance_output(p->q.dtype, p->v.dtype, p->o.dtype, e_s, row.o[d], row.o_abs[d]);
        if (fabs(got - row.o[d]) > bound)
            bound += lost_below(&cmp->old, s, h, d);
        check_element(cmp, &p->o, "o", at, NOT_FINITE, row.o[d], bound);
    }
    if (p->lse.dtype) {
        const int64_t at[4] = { s->q_batch, h, s->q_row + i, 0 };
        check_element(cmp, &p->lse, "lse", at, ITSELF, row.lse, lse_bound(p, e_s, row.score_mag, row.lse));
    }
    if (p->scores.dtype)
        compare_scores(cmp, s, h, i, widest_score_error(&cmp->old, s, h, i));
}

static void compare_attention(struct comparison *cmp)
{
    const struct problem *p = cmp->p;
    for (int64_t n = 0; n < p->n; n++) {
        const struct seq s = seq_get(&cmp->old, n);
        for (int64_t h = 0; h < p->hq; h++)
            for (int64_t i = 0; i < s.rows; i++)
                compare_attention_row(cmp, &s, h, i);
    }
}

static void compare_softmax(struct comparison *cmp)
{
    const struct problem *p = cmp->p;
    double *y = malloc(((size_t)p->x.shape[3] + 1) * sizeof *y);
    require(y != NULL, "out of memory");
    for (int64_t n = 0; n < p->n; n++) {
        const struct seq s = seq_get(&cmp->old, n);
        for (int64_t h = 0; h < p->hq; h++)
            for (int64_t i = 0; i < p->x.shape[2]; i++) {
                const double lse = qattn__ref_softmax_row(&cmp->old, &s, h, i, y);
                double magnitude = 0;
                int64_t begin, end;
                seq_visible(&cmp->old, &s, i, &begin, &end);
                for (int64_t j = begin; j < end; j++) {
                    const double x = (double)qattn__load(view_at(&cmp->old.x, n, h, i, j), p->x.dtype);
                    const double m = qattn__ref_score_magnitude(&cmp->old, &s, h, i, j, fabs(x));
                    magnitude = isfinite(m) && m > magnitude ? m : magnitude;
                }
                const double e_s = tolerance_score(0, magnitude);
                for (int64_t j = 0; j < p->x.shape[3]; j++) {
                    const int64_t at[4] = { n, h, i, j };
                    check_element(cmp, &p->y, "y", at, ITSELF, y[j], tolerance_probability(p->y.dtype, e_s, y[j]));
                }
                const int64_t at[4] = { n, h, i, 0 };
                if (p->lse.dtype)
                    check_element(cmp, &p->lse, "lse", at, ITSELF, lse, lse_bound(p, e_s, magnitude, lse));
            }
    }
    free(y);
}

static void compare_matmul(struct comparison *cmp)
{
    const struct problem *p = cmp->p;
    const int64_t *shape = p->c.shape;
    for (int64_t i = 0; !view_empty(&p->c) && i < shape[0] * shape[1] * shape[2] * shape[3]; i++) {
        const int64_t at[4] = { i / shape[3] / shape[2] / shape[1], i / shape[3] / shape[2] % shape[1],
                                i / shape[3] % shape[2], i % shape[3] };
        double absolute, base = 0;
        const double sum = qattn__ref_matmul_element(&cmp->old, at[0], at[1], at[2], at[3], &absolute);
        if (p->beta != 0.0f)
            base = (double)p->beta *
                (double)qattn__load(view_at(&cmp->old.c, at[0], at[1], at[2], at[3]), p->c.dtype);
        const double alpha = (double)p->alpha, wanted = p->a.shape[3] > 0 ? alpha * sum + base : base;
        check_element(cmp, &p->c, "c", at, ITSELF, wanted,
                      tolerance_matmul(p->c.dtype, p->a.shape[3], wanted, fabs(alpha) * absolute, fabs(base)));
    }
}

static void compare_merge(struct comparison *cmp)
{
    static double o[QATTN__MAX_WIDTH], o_abs[QATTN__MAX_WIDTH];
    const struct problem *p = cmp->p;
    const int64_t *shape = p->o.shape;
    for (int64_t row = 0; row < shape[0] * shape[1] * shape[2]; row++) {
        const int64_t b = row / shape[2] / shape[1], h = row / shape[2] % shape[1], i = row % shape[2];
        const double lse = qattn__ref_merge_row(&cmp->old, b, h, i, o, o_abs);
        double magnitude = 0;
        for (int64_t k = 0; k < p->num_parts; k++) {
            const double x = (double)qattn__load(view_at(&cmp->old.parts[k].lse, b, h, i, 0), QATTN_DTYPE_F32);
            magnitude = isfinite(x) && fabs(x) > magnitude ? fabs(x) : magnitude;
        }
        for (int64_t d = 0; d < shape[3]; d++) {
            const int64_t at[4] = { b, h, i, d };
            check_element(cmp, &p->o, "o", at, NOT_FINITE, o[d],
                          tolerance_merge(p->o.dtype, magnitude, o[d], o_abs[d]));
        }
        const int64_t at[4] = { b, h, i, 0 };
        if (p->lse.dtype)
            check_element(cmp, &p->lse, "lse", at, ITSELF, lse,
                          lse_bound(p, tolerance_score(0, magnitude), magnitude, lse));
    }
}

void compare_outputs(struct call *c, const struct problem *p, const char *who)
{
    static struct comparison cmp;
    cmp.c = c;
    cmp.p = p;
    cmp.old = *p;
    cmp.who = who;
    point_at_copies(c, &cmp.old);
    switch (p->op) {
    case OP_MATMUL:
    case OP_MATMUL_NT: compare_matmul(&cmp); break;
    case OP_SOFTMAX:   compare_softmax(&cmp); break;
    case OP_MERGE:     compare_merge(&cmp); break;
    default:           compare_attention(&cmp); break;
    }
    for (int i = 0; i < c->num_blocks; i++)
        require(memcmp(c->blocks[i].mem, c->blocks[i].before, c->blocks[i].bytes) == 0,
                "%s: %s wrote to block %d (%s, %zu bytes) where nothing was asked for", who, qattn__op_name(p->op), i,
                c->blocks[i].output ? "output" : "input", c->blocks[i].bytes);
}
