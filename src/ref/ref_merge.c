/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Attention over all keys from attentions over disjoint sets of them. Each part has normalised by its own sum,
 * which its LSE remembers; with m = max_i lse_i and w_i = exp(lse_i - m):
 *
 *     o = sum_i w_i o_i / sum_i w_i,    lse = m + log(sum_i w_i)
 *
 * (Milakov and Gimelshein 2018, section 3.1: the merge of two softmaxes is associative. Flash-Decoding splits the
 * keys on it.) A part with LSE -inf saw nothing: its o is not read. A NaN or +inf LSE makes the row NaN.
 */
#include "ref/ref.h"

#include <math.h>

#include "core/convert.h"

/* Natural logarithm of part i's sum, whatever base the call speaks. */
static double part_lse(const struct problem *p, int64_t part, int64_t b, int64_t h, int64_t i)
{
    const struct view *const t = &p->parts[part].lse;
    const double lse = (double)qattn__load(view_at(t, b, h, i, 0), t->dtype);
    return p->flags & QATTN_FLAG_LSE_BASE2 ? lse * log(2.0) : lse;
}

double qattn__ref_merge_row(const struct problem *p, int64_t b, int64_t h, int64_t i, double *o, double *o_abs)
{
    double lse[QATTN__MAX_PARTS];
    for (int64_t part = 0; part < p->num_parts; part++)
        lse[part] = part_lse(p, part, b, h, i);

    /* The softmax of the parts' LSEs are their weights. */
    const struct ref_stats stats = qattn__ref_stats(lse, p->num_parts, -INFINITY);
    for (int64_t d = 0; o && d < p->o.shape[3]; d++) {
        double sum = 0.0, sum_abs = 0.0;
        for (int64_t part = 0; part < p->num_parts; part++) {
            const struct view *const t = &p->parts[part].o;
            if (lse[part] == -INFINITY)
                continue;
            const double value = qattn__ref_probability(&stats, lse[part]) *
                                 (double)qattn__load(view_at(t, b, h, i, d), t->dtype);
            sum += value;
            sum_abs += fabs(value);
        }
        o[d] = sum;
        if (o_abs)
            o_abs[d] = sum_abs;
    }
    return qattn__ref_lse(p, stats.lse);
}

/* o and lse may be part 0 itself: a row is read before it is written. Workspace: o of one row, [Dv]. */
void qattn__ref_merge(const struct problem *p)
{
    double *const row = (double *)(void *)p->workspace;
    const int64_t *const shape = p->parts[0].lse.shape;
    for (int64_t b = 0; b < shape[0]; b++) {
        for (int64_t h = 0; h < shape[1]; h++) {
            for (int64_t i = 0; i < shape[2]; i++) {
                const double lse = qattn__ref_merge_row(p, b, h, i, row, NULL);
                for (int64_t d = 0; d < p->o.shape[3]; d++)
                    qattn__store_f64(view_at(&p->o, b, h, i, d), p->o.dtype, row[d]);
                if (p->lse.dtype)
                    qattn__store_f64(view_at(&p->lse, b, h, i, 0), p->lse.dtype, lse);
            }
        }
    }
}
