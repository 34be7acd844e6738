/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Attention as its formula reads (Vaswani et al. 2017, section 3.2.1, equation 1), one query row at a time:
 *
 *     s_j = scale sum_d q_d k_jd        then softcap, bias, masks: ref_softmax.c
 *     p_j = exp(s_j - m) / sum_j exp(s_j - m),   m = max_j s_j
 *     o_d = sum_j p_j v_jd
 *     lse = m + log(sum_j exp(s_j - m))
 *
 * over the keys j = 0 .. len_k - 1 of the row's own sequence. Query head h reads the keys and values of head
 * h / group, group = Hq / Hkv (Ainslie et al. 2023, section 2.2; group 1 is multi-head, Hkv 1 multi-query
 * attention). A hidden key is skipped, not multiplied by 0: what its value holds never matters.
 */
#include "ref/ref.h"

#include <math.h>
#include <stdlib.h>

#include "core/convert.h"

/* out[d] = element d of the row at `base`, in double. Reads nothing when width is 0. */
static void read_row(const struct view *t, const char *base, int64_t width, double *out)
{
    const int64_t step = t->stride[3] * t->itemsize;
    for (int64_t d = 0; d < width; d++)
        out[d] = (double)qattn__load(base + d * step, t->dtype);
}

/* out[D] = q's row i of query head h, descaled. */
static void read_query(const struct problem *p, const struct seq *s, int64_t h, int64_t i, double *out)
{
    if (p->d == 0)
        return;
    read_row(&p->q, view_at(&p->q, s->q_batch, h, s->q_row + i, 0), p->d, out);
    if (p->q_descale.kind != DESCALE_NONE)
        for (int64_t d = 0; d < p->d; d++)
            out[d] *= (double)seq_q_descale(p, s, h, i, d);
}

/* out[width] = key or value j of KV head h, descaled. */
static void read_key(const struct problem *p, const struct seq *s, const struct view *t, const struct descale *ds,
                     int64_t h, int64_t j, int64_t width, double *out)
{
    if (width == 0)
        return;
    read_row(t, seq_key(p, s, t, h, j), width, out);
    if (ds->kind != DESCALE_NONE)
        for (int64_t d = 0; d < width; d++)
            out[d] *= (double)seq_kv_descale(p, s, ds, h / ds->head_div, j, d);
}

/* Memory of one row: the query, one key or value, and a score per key. */
static double *query_of(double *scratch) { return scratch; }
static double *key_of(double *scratch) { return scratch + QATTN__MAX_WIDTH; }
static double *scores_of(double *scratch) { return scratch + 2 * QATTN__MAX_WIDTH; }

size_t qattn__ref_scratch(const struct problem *p)
{
    const int64_t keys = p->cap_k > p->scores.shape[3] ? p->cap_k : p->scores.shape[3];
    return 2 * QATTN__MAX_WIDTH + (size_t)keys;
}

/* scores[len_k] of row i, head h at `stage` <= REF_MASKED; REF_MASKED leaves out the keys hidden by position.
 * Returns the largest magnitude (ref.h) among the keys not hidden. */
static double score_row(const struct problem *p, const struct seq *s, int64_t h, int64_t i, enum ref_stage stage,
                        double *scratch)
{
    double *const q = query_of(scratch), *const k = key_of(scratch), *const score = scores_of(scratch);
    double magnitude = 0.0;
    int64_t begin, end;
    seq_visible(p, s, i, &begin, &end);
    if (stage < REF_MASKED) {
        begin = 0;
        end = s->len_k;
    }
    if (begin < end)
        read_query(p, s, h, i, q);
    for (int64_t j = 0; j < s->len_k; j++) {
        score[j] = -INFINITY;
        if (j < begin || j >= end)
            continue;
        double product = 0.0, abs_product = 0.0;
        read_key(p, s, &p->k, &p->k_descale, h / p->group, j, p->d, k);
        for (int64_t d = 0; d < p->d; d++) {
            product += q[d] * k[d];
            abs_product += fabs(q[d] * k[d]);
        }
        score[j] = qattn__ref_score(p, s, h, i, j, product, stage);
        if (score[j] != -INFINITY)
            magnitude = fmax(magnitude, qattn__ref_score_magnitude(p, s, h, i, j, abs_product));
    }
    return magnitude;
}

void qattn__ref_attention_row_in(const struct problem *p, const struct seq *s, int64_t h, int64_t i,
                                 double *scratch, struct ref_row *out)
{
    out->score_mag = score_row(p, s, h, i, REF_MASKED, scratch);

    const double *const score = scores_of(scratch);
    const struct ref_stats stats = qattn__ref_stats(score, s->len_k, qattn__ref_sink(p, s, h, i));
    out->lse = qattn__ref_lse(p, stats.lse);
    out->visible = stats.visible;

    double *const v = key_of(scratch);
    for (int64_t d = 0; d < p->dv; d++)
        out->o[d] = out->o_abs[d] = 0.0;
    for (int64_t j = 0; j < s->len_k; j++) {
        if (score[j] == -INFINITY)
            continue;
        const double p_j = qattn__ref_probability(&stats, score[j]);
        read_key(p, s, &p->v, &p->v_descale, h / p->group, j, p->dv, v);
        for (int64_t d = 0; d < p->dv; d++) {
            out->o[d] += p_j * v[d];
            out->o_abs[d] += p_j * fabs(v[d]);
        }
    }
}

void qattn__ref_attention_row(const struct problem *p, const struct seq *s, int64_t h, int64_t i, struct ref_row *out)
{
    double *const scratch = malloc(qattn__ref_scratch(p) * sizeof *scratch);
    if (scratch) {
        qattn__ref_attention_row_in(p, s, h, i, scratch, out);
    } else {
        out->lse = out->score_mag = NAN;
        for (int64_t d = 0; d < p->dv; d++)
            out->o[d] = out->o_abs[d] = NAN;
    }
    free(scratch);
}

/* Stages 0 and 1 know no masks: every key below len_k has its score. */
const double *qattn__ref_scores_row(const struct problem *p, const struct seq *s, int64_t h, int64_t i, double *scratch)
{
    const enum ref_stage stage = (enum ref_stage)p->scores_stage;
    const int64_t scored = i < s->len_q ? s->len_k : 0;
    double *const score = scores_of(scratch);
    for (int64_t j = scored; j < p->scores.shape[3]; j++)
        score[j] = stage == REF_MASKED ? -INFINITY : 0.0;
    if (scored)
        score_row(p, s, h, i, stage < REF_MASKED ? stage : REF_MASKED, scratch);
    if (stage == REF_SOFTMAX) {
        const struct ref_stats stats = qattn__ref_stats(score, scored, qattn__ref_sink(p, s, h, i));
        for (int64_t j = 0; j < scored; j++)
            score[j] = qattn__ref_probability(&stats, score[j]);
    }
    return score;
}

/* Row i of head h of the outputs: scores, o, lse. */
static void write_row(const struct problem *p, const struct seq *s, int64_t h, int64_t i, double *scratch,
                      struct ref_row *row)
{
    const int64_t b = s->q_batch, at = s->q_row + i;
    if (p->scores.dtype) {
        const double *const score = qattn__ref_scores_row(p, s, h, i, scratch);
        for (int64_t j = 0; j < p->scores.shape[3]; j++)
            qattn__store_f64(view_at(&p->scores, b, h, at, j), p->scores.dtype, score[j]);
    }
    qattn__ref_attention_row_in(p, s, h, i, scratch, row);
    for (int64_t d = 0; d < p->dv; d++)
        qattn__store_f64(view_at(&p->o, b, h, at, d), p->o.dtype, row->o[d]);
    if (p->lse.dtype)
        qattn__store_f64(view_at(&p->lse, b, h, at, 0), p->lse.dtype, row->lse);
}

/* gqa_forward and flash_forward: every row of every head of every sequence. Rows that no sequence covers, and
 * rows beyond max_seqlen_q, are not touched. Workspace: one struct ref_row, then the scratch. */
void qattn__ref_attention(const struct problem *p)
{
    struct ref_row *const row = (struct ref_row *)(void *)p->workspace;
    double *const scratch = (double *)(void *)(p->workspace + sizeof *row);
    for (int64_t n = 0; n < p->n; n++) {
        const struct seq s = seq_get(p, n);
        for (int64_t h = 0; h < p->hq; h++)
            for (int64_t i = 0; i < s.rows; i++)
                write_row(p, &s, h, i, scratch, row);
    }
}
