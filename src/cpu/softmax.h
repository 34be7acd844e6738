/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* What happens to a row of scores, in steps that qattn_softmax and the three-kernel path share. A row is f32, whole
 * vectors long: whoever fills it puts -inf behind its n elements (pad_scores). */
#ifndef QATTN_CPU_SOFTMAX_H
#define QATTN_CPU_SOFTMAX_H

#include "core/problem.h"
#include "core/seq.h"
#include "cpu/isa.h"

/* Room a row of n elements needs. */
static inline int64_t padded_row(int64_t n) { return (n + VL - 1) / VL * VL; }

static inline void pad_scores(float *row, int64_t n)
{
    for (int64_t j = n; j < padded_row(n); j++)
        row[j] = -INFINITY;
}

/* A row's maximum so far. nan: an element was NaN. Start from { sink, isnan(sink) }. */
struct row_max { float max; bool nan; };

/* row[j] = cap tanh(row[j] / cap) */
void ISA_NAME(qattn__cap_scores)(float cap, float *row, int64_t n);
/* Adds bias and ALiBi to the scores of row i's keys first .. first+n-1, all visible by position, and hides (-inf) what
 * keep and bias hide. */
void ISA_NAME(qattn__mask_scores)(const struct problem *p, const struct seq *s, int64_t h, int64_t i, int64_t first,
                                  int64_t n, float *row);
void ISA_NAME(qattn__max_scores)(const float *row, int64_t n, struct row_max *m);
/* row[j] = e^(row[j] - max), max finite; returns their sum. */
double ISA_NAME(qattn__exp_scores)(float *row, int64_t n, float max);
/* row[j] /= sum, sum >= 1. What would be subnormal becomes 0: such numbers slow the product with V down. */
void ISA_NAME(qattn__divide_row)(float *row, int64_t n, float sum);
/* The row of a maximum that is NaN or +inf: NaN where a key is visible, 0 where it is hidden (-inf). */
void ISA_NAME(qattn__spoil_row)(float *row, int64_t n);

/* The extra logit of row i: -inf without sinks and for rows that are no queries. */
static inline float sink_of(const struct problem *p, const struct seq *s, int64_t h, int64_t i)
{
    return p->sinks && i < s->len_q ? p->sinks[h] : -INFINITY;
}

static inline struct row_max start_max(float sink)
{
    return (struct row_max){ .max = sink, .nan = sink != sink };
}

/* NaN or +inf among the scores: no softmax exists. */
static inline bool is_spoilt(const struct row_max *m) { return m->nan || m->max == INFINITY; }

/* log(sum e^score) from the sum of e^(score - max), sink included; in the base the call asks for. */
static inline float row_lse(const struct problem *p, const struct row_max *m, float sum)
{
    if (is_spoilt(m))
        return NAN;
    if (m->max == -INFINITY)
        return -INFINITY;
    const double lse = (double)m->max + log((double)sum);
    return (float)(p->flags & QATTN_FLAG_LSE_BASE2 ? lse * 1.4426950408889634 : lse);
}

/* LSE of row [b,h,i], if the call wants it. */
static inline void store_lse(const struct problem *p, int64_t b, int64_t h, int64_t i,
                             const struct row_max *m, float sum)
{
    if (p->lse.dtype) {
        const float lse = row_lse(p, m, sum);
        memcpy(view_at(&p->lse, b, h, i, 0), &lse, sizeof lse);
    }
}

#endif
