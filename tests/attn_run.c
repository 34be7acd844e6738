/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "attn_run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "tolerance.h"

static char reason[160];

const char *attn_run_reason(void) { return reason; }

bool attn_row_wanted(const struct impl *row)
{
    const char *only = getenv("QATTN_TEST_IMPL");
    const int32_t device = gpu_wanted() ? QATTN_DEVICE_CUDA : QATTN_DEVICE_CPU;
    return row->device_type == device && (!only || !*only || strcmp(only, row->id) == 0);
}

/* ---------------------------------------------------------------- running */

static enum attn_ran refused(int32_t status)
{
    char text[256];
    qattn_last_error(text, sizeof text);
    snprintf(reason, sizeof reason, "%s", qattn_status_name(status));
    if (status / 1000 == 2)
        return ATTN_UNSUPPORTED;
    note_failure("valid arguments refused with %d: %s", status, text);
    return ATTN_FAILED;
}

enum attn_ran attn_run(const struct impl *row, struct attn_build *b, int32_t num_threads, int fill)
{
    static struct problem p;             /* large: see problem.h */
    const int32_t status = attn_build_problem(b, &p, num_threads);
    if (status != QATTN_OK)
        return refused(status);
    struct gpu_regions regions = { .count = 0 };
    int32_t ran = QATTN_OK;
    attn_build_regions(b, &regions);
    if (!gpu_run_row(row, &p, &regions, fill, &ran, reason, sizeof reason))
        return ATTN_UNSUPPORTED;
    if (ran != QATTN_OK) {
        char text[256];
        qattn_last_error(text, sizeof text);
        note_failure("run returned %d: %s", ran, text);
    }
    const char *changed = attn_build_changed_input(b);
    if (changed)
        note_failure("input %s was changed", changed);
    return ran == QATTN_OK ? ATTN_RAN : ATTN_FAILED;
}

/* ---------------------------------------------------------------- comparing */

enum { MIN_RMS_ELEMENTS = 4096, MAX_PLAIN_WORK = 4 << 20 };

/* With `numbers` the plain algorithm's own products leave fp32's range. */
bool attn_wants_plain(const struct attn_case *c, const struct sequence *seqs)
{
    int64_t elements = 0, work = 0;
    if (c->op == OP_SOFTMAX || c->nan || c->numbers || c->sinks == 2 || c->bias_kind == BIAS_ODD || c->odd_scale ||
        c->odd_slopes || c->hkv == 0)
        return false;
    for (int64_t n = 0; n < c->b; n++) {
        elements += c->hq * seqs[n].len_q * attn_dv(c);
        work += c->hq * seqs[n].len_q * seqs[n].len_k * (c->d + attn_dv(c));
    }
    return elements >= MIN_RMS_ELEMENTS && work <= MAX_PLAIN_WORK;
}

/* One row's errors, collected over a case. */
struct verdict {
    double worst_o, worst_lse, worst_score;      /* error / bound */
    double square, plain_square, size_square;    /* of errors, of the plain algorithm's, of o_abs */
    double plain_fourth;                         /* sum over rows of (their part of plain_square)^2 */
    int64_t elements;
};

/* Error over bound; 0 where both are NaN or equal. */
static double ratio_of(double got, double want, double bound)
{
    if (got == want)
        return 0;
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (isinf(want) || isinf(got))
        return INFINITY;
    return fabs(got - want) / bound;
}

static double ratio_of_output(const struct attn_case *c, const struct attn_answer *a, int64_t row, int64_t d,
                              int32_t precision, double e_s, double got)
{
    const int64_t at = row * a->dv + d;
    const double want = a->o[at];
    if (!isfinite(want))
        return isfinite(got) ? INFINITY : 0;     /* which non-finite value is not promised */
    /* 3xTF32 cuts a V within 2^-12 of the largest f32 to 11 bits: rows that see it. */
    if (c->nan == MAX_LAST_VALUE && precision == QATTN_PRECISION_3XTF32 && a->sees_bad[row])
        precision = QATTN_PRECISION_TF32;
    const double bound = tolerance_output_of(c->q_dtype, c->kv_dtype, c->o_dtype,
                                             tolerance_product(c->q_dtype, precision),
                                             e_s, want, a->o_abs[at]);
    if (isinf(got) && !isinf(format_round(c->o_dtype, fabs(want) + bound)))
        return INFINITY;
    return isinf(got) ? 0 : ratio_of(got, want, bound);
}

static void judge(double ratio, double *worst, const char *what, int64_t n, int64_t h, int64_t i,
                  int64_t x, double got, double want)
{
    if (!(ratio <= 1))
        note_failure("%s n%" PRId64 " h%" PRId64 " i%" PRId64 " [%" PRId64 "] is %.9g, want %.9g (%.3g x the bound)",
                     what, n, h, i, x, got, want, ratio);
    if (ratio > *worst)
        *worst = ratio;
}

/* Rows that see keys of NaN, Inf and 3e38 at once, or a key of the largest numbers: fp32 may overflow where fp64 does
 * not, so nothing is promised beyond being written. (NAN_ONE_KEY and the like are judged in full.) */
static bool sees_all_kinds(const struct attn_case *c, const struct attn_answer *a, int64_t row)
{
    return a->sees_bad[row] && (c->nan == NAN_LAST_KEYS || c->nan == NAN_SEVENTH_KEYS || c->nan == MAX_LAST_KEY);
}

static void compare_row(struct attn_build *b, const struct attn_answer *a, int64_t n, int64_t h, int64_t i,
                        int32_t precision, struct verdict *v)
{
    const struct attn_case *c = b->c;
    const int64_t row = attn_row(c, a, b->seqs, n, h, i);
    int64_t batch, at;
    attn_place_q(b, n, i, &batch, &at);
    const double product = tolerance_product(c->q_dtype, precision);
    const double e_s = tolerance_score_of(c->op == OP_SOFTMAX ? 0 : c->d, a->magnitude[row], product, a->floor[row]);
    const bool lenient = sees_all_kinds(c, a, row);
    double plain_row = 0;
    for (int64_t d = 0; d < a->dv; d++) {
        const double got = box_get(&b->o, batch, h, at, d), want = a->o[row * a->dv + d];
        box_expect_written(&b->o, batch, h, at, d);
        if (lenient)
            continue;
        judge(ratio_of_output(c, a, row, d, precision, e_s, got), &v->worst_o, "o", n, h, i, d, got, want);
        if (a->plain) {
            v->square += (got - want) * (got - want);
            plain_row += (a->plain[row * a->dv + d] - want) * (a->plain[row * a->dv + d] - want);
            v->size_square += a->o_abs[row * a->dv + d] * a->o_abs[row * a->dv + d];
            v->elements++;
        }
    }
    v->plain_square += plain_row;
    v->plain_fourth += plain_row * plain_row;
    if (b->lse.mem) {
        const double stored = box_get(&b->lse, batch, h, at, 0), got = c->base2 ? stored * log(2.0) : stored;
        const double want = a->lse[row], bound = tolerance_lse(e_s, a->magnitude[row], want);
        const bool overflows = c->base2 && isinf(got) && isinf(format_round(QATTN_DTYPE_F32, want / log(2.0)));
        judge(overflows || lenient ? 0 : ratio_of(got, want, bound), &v->worst_lse, "lse", n, h, i, 0, got, want);
        box_expect_written(&b->lse, batch, h, at, 0);
    }
    struct box *const scores = c->op == OP_SOFTMAX ? &b->o : c->scores ? &b->scores : NULL;
    const int64_t stage = c->op == OP_SOFTMAX ? 3 : c->stage;
    for (int64_t j = 0; scores && j < a->keys; j++) {
        const double got = box_get(scores, batch, h, at, j), want = a->scores[row * a->keys + j];
        const bool exists = i < b->seqs[n].len_q && j < b->seqs[n].len_k;
        box_expect_written(scores, batch, h, at, j);
        if (lenient || (!exists && stage < 2))
            continue;                            /* no key, no score: not promised */
        if (c->nan == MAX_LAST_KEY && stage < 2 && attn_bad_key(c, &b->seqs[n], j))
            continue;                            /* before any mask: fp32 may overflow */
        if (stage == 3 && want == 0 && isnan(got) && isnan(a->lse[row]))
            continue;                            /* a hidden key in a row that is NaN */
        const int64_t pair = row * a->keys + j;
        const double e = tolerance_score_of(c->d, a->score_magnitude[pair], product, a->score_floor[pair]);
        const double bound = stage == 3 ? tolerance_probability(scores->t.dtype, e_s, want)
                                        : tolerance_stored_score(scores->t.dtype, e, want);
        judge(got == format_round(scores->t.dtype, want) ? 0 : ratio_of(got, want, bound),
              &v->worst_score, "score", n, h, i, j, got, want);
    }
}

/* Among how many rows the plain algorithm's error is shared out: 1 where one row has all of it. */
static double rows_that_err(const struct verdict *v)
{
    return v->plain_fourth > 0 ? v->plain_square * v->plain_square / v->plain_fourth : 0;
}

static void judge_rms(const char *impl_id, const struct attn_case *c, int32_t precision, const struct verdict *v)
{
    char key[96];
    static const char *const precisions[] = { "", " 3xtf32", " tf32" };
    snprintf(key, sizeof key, "%s %s/%s>%s%s o", impl_id, format_name(c->q_dtype), format_name(c->kv_dtype),
             format_name(c->o_dtype), precisions[precision]);
    report_ratio(key, v->worst_o);
    if (v->elements >= MIN_RMS_ELEMENTS) {
        const double plain = sqrt(v->plain_square), size = sqrt(v->size_square);
        const double strict = tolerance_rms(c->q_dtype, INFINITY, plain, size);
        const double allowed = tolerance_rms(c->q_dtype, rows_that_err(v), plain, size) +
                               tolerance_product(c->q_dtype, precision) * size;
        if (sqrt(v->square) > strict && sqrt(v->square) <= allowed && precision == QATTN_PRECISION_IEEE)
            count_run("rms of few rows, above what many are allowed", 1);
        if (v->plain_square > 0)
            report_rms(key, sqrt(v->square / v->plain_square));
        if (!(sqrt(v->square) <= allowed))
            note_failure("rms error %.4g is %.3f x the plain algorithm's", sqrt(v->square / (double)v->elements),
                         sqrt(v->square / v->plain_square));
    }
    snprintf(key, sizeof key, "%s %s/%s%s lse", impl_id, format_name(c->q_dtype), format_name(c->kv_dtype),
             precisions[precision]);
    report_ratio(key, v->worst_lse);
    snprintf(key, sizeof key, "%s %s scores", impl_id, format_name(c->q_dtype));
    if (c->scores || c->op == OP_SOFTMAX)
        report_ratio(key, v->worst_score);
}

void attn_compare(const char *impl_id, struct attn_build *b, const struct attn_answer *a)
{
    const struct attn_case *c = b->c;
    const int32_t precision = gpu_precision(impl_id, c->precision);
    struct verdict v = { 0 };
    for (int64_t n = 0; n < c->b; n++)
        for (int64_t h = 0; h < c->hq; h++)
            for (int64_t i = 0; i < b->seqs[n].rows; i++)
                compare_row(b, a, n, h, i, precision, &v);
    const struct { const struct box *box; const char *name; } outputs[] = {
        { &b->o, "o" }, { &b->lse, "lse" }, { &b->scores, "scores" },
    };
    for (int i = 0; i < 3; i++)
        if (outputs[i].box->mem && !box_intact(outputs[i].box))
            note_failure("%s: bytes outside the rows to write were changed", outputs[i].name);
    judge_rms(impl_id, c, precision, &v);
}

/* ---------------------------------------------------------------- bits */

static void *copy_of(const struct box *box)
{
    if (!box->mem)
        return NULL;
    void *copy = malloc(box->bytes);
    return memcpy(copy, box->mem, box->bytes);
}

struct attn_copy attn_copy_outputs(const struct attn_build *b)
{
    return (struct attn_copy){ copy_of(&b->o), copy_of(&b->lse), copy_of(&b->scores) };
}

bool attn_copy_equal(const struct attn_copy *copy, const struct attn_build *b)
{
    return memcmp(copy->o, b->o.mem, b->o.bytes) == 0 &&
           (!copy->lse || memcmp(copy->lse, b->lse.mem, b->lse.bytes) == 0) &&
           (!copy->scores || memcmp(copy->scores, b->scores.mem, b->scores.bytes) == 0);
}

void attn_copy_free(const struct attn_copy *copy)
{
    free(copy->o);
    free(copy->lse);
    free(copy->scores);
}

bool attn_same_row(const struct attn_build *a, const struct attn_build *b, int64_t n, int64_t i, int64_t m, int64_t j,
                   int64_t h)
{
    int64_t batch_a, row_a, batch_b, row_b;
    attn_place_q(a, n, i, &batch_a, &row_a);
    attn_place_q(b, m, j, &batch_b, &row_b);
    const size_t size = (size_t)format_size(a->o.t.dtype);
    for (int64_t d = 0; d < a->o.t.shape[3]; d++)
        if (memcmp(box_at(&a->o, batch_a, h, row_a, d), box_at(&b->o, batch_b, h, row_b, d), size) != 0)
            return false;
    return !a->lse.mem || !b->lse.mem ||
           memcmp(box_at(&a->lse, batch_a, h, row_a, 0), box_at(&b->lse, batch_b, h, row_b, 0), sizeof(float)) == 0;
}
