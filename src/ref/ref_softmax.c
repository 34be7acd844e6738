/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * From a product q.k to a probability, in the order that binds every implementation:
 *
 *     s = scale (q.k)                                    stage 0
 *     s = c tanh(s / c)                                  stage 1, softcap c
 *     s = s + bias - slope |pos(i) - j|                  stage 2: bias and ALiBi (Press et al. 2022, section 3),
 *     s = -inf   where a mask hides key j from row i              and every mask
 *     p_j = exp(s_j - m) / (sum_j exp(s_j - m) + exp(sink - m))    stage 3
 *
 * m = max(s_j, sink) changes nothing in exact arithmetic and keeps exp in range: the "safe softmax" of Milakov
 * and Gimelshein 2018, section 2. The sink is a logit without a value (Xiao et al. 2024, section 3.3, where it
 * is a key whose value is 0). A score of -inf is a hidden key, whatever made it so.
 */
#include "ref/ref.h"

#include <math.h>

#include "core/convert.h"

static double bias_of(const struct problem *p, const struct seq *s, int64_t h, int64_t i, int64_t j)
{
    return p->bias.dtype ? (double)qattn__load(view_at(&p->bias, s->n, h, i, j), p->bias.dtype) : 0.0;
}

/* slope |pos(i) - j|, pos(i) = i + offset. In double: the offset may be any 64-bit number. */
static double alibi_of(const struct problem *p, const struct seq *s, int64_t h, int64_t i, int64_t j)
{
    if (!p->alibi_slopes)
        return 0.0;
    const double slope = (double)p->alibi_slopes[s->n * p->alibi_batch_stride + h];
    return slope * fabs((double)i + (double)s->offset - (double)j);
}

static bool kept(const struct problem *p, const struct seq *s, int64_t h, int64_t i, int64_t j)
{
    return !p->keep.dtype || *(const uint8_t *)view_at(&p->keep, s->n, h, i, j) != 0;
}

double qattn__ref_score(const struct problem *p, const struct seq *s, int64_t h, int64_t i, int64_t j,
                        double product, enum ref_stage stage)
{
    double score = (double)p->scale * product;
    if (stage >= REF_CAPPED && p->softcap != 0.0f)
        score = (double)p->softcap * tanh(score / (double)p->softcap);
    if (stage >= REF_MASKED) {
        const double bias = bias_of(p, s, h, i, j);
        if (!kept(p, s, h, i, j) || bias == -INFINITY)
            return -INFINITY;                   /* also where the product is NaN or +inf */
        score = score + bias - alibi_of(p, s, h, i, j);
    }
    return score;
}

double qattn__ref_score_magnitude(const struct problem *p, const struct seq *s, int64_t h, int64_t i, int64_t j,
                                  double abs_product)
{
    return fabs((double)p->scale) * abs_product + fabs(bias_of(p, s, h, i, j)) + fabs(alibi_of(p, s, h, i, j));
}

double qattn__ref_sink(const struct problem *p, const struct seq *s, int64_t h, int64_t i)
{
    return p->sinks && i < s->len_q ? (double)p->sinks[h] : -INFINITY;
}

/* Special rows need no branch. A NaN score makes the sum NaN; so does one of +inf, as inf - inf; then LSE and every
 * probability are NaN. Only hidden keys: max -inf, sum 0, LSE -inf + log(0) = -inf. */
struct ref_stats qattn__ref_stats(const double *score, int64_t n, double sink)
{
    struct ref_stats stats = { .max = sink };
    for (int64_t j = 0; j < n; j++) {
        if (score[j] > stats.max)
            stats.max = score[j];
        stats.visible += score[j] != -INFINITY;
    }
    if (sink != -INFINITY)
        stats.sum = exp(sink - stats.max);
    for (int64_t j = 0; j < n; j++)
        if (score[j] != -INFINITY)
            stats.sum += exp(score[j] - stats.max);
    stats.lse = stats.max + log(stats.sum);
    return stats;
}

double qattn__ref_probability(const struct ref_stats *stats, double score)
{
    return score == -INFINITY ? 0.0 : exp(score - stats->max) / stats->sum;
}

double qattn__ref_lse(const struct problem *p, double natural)
{
    return p->flags & QATTN_FLAG_LSE_BASE2 ? natural / log(2.0) : natural;
}

/* The whole row of x is read before y is touched: y may be x. */
double qattn__ref_softmax_row(const struct problem *p, const struct seq *s, int64_t h, int64_t i, double *y)
{
    int64_t begin, end;
    seq_visible(p, s, i, &begin, &end);
    for (int64_t j = 0; j < p->x.shape[3]; j++) {
        y[j] = -INFINITY;
        if (begin <= j && j < end) {
            const double x = (double)qattn__load(view_at(&p->x, s->n, h, i, j), p->x.dtype);
            y[j] = qattn__ref_score(p, s, h, i, j, x, REF_MASKED);
        }
    }
    const struct ref_stats stats = qattn__ref_stats(y, p->x.shape[3], qattn__ref_sink(p, s, h, i));
    for (int64_t j = 0; j < p->x.shape[3]; j++)
        y[j] = qattn__ref_probability(&stats, y[j]);
    return qattn__ref_lse(p, stats.lse);
}

/* y = softmax of every row of x [B,H,Sq,Sk]. */
void qattn__ref_softmax(const struct problem *p)
{
    double *const row = (double *)(void *)p->workspace;
    for (int64_t b = 0; b < p->n; b++) {
        const struct seq s = seq_get(p, b);
        for (int64_t h = 0; h < p->hq; h++) {
            for (int64_t i = 0; i < s.rows; i++) {
                const double lse = qattn__ref_softmax_row(p, &s, h, i, row);
                for (int64_t j = 0; j < p->y.shape[3]; j++)
                    qattn__store_f64(view_at(&p->y, b, h, i, j), p->y.dtype, row[j]);
                if (p->lse.dtype)
                    qattn__store_f64(view_at(&p->lse, b, h, i, 0), p->lse.dtype, lse);
            }
        }
    }
}
