/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The fp64 answer of a case, and the plain fp32 algorithm whose rms error is the yardstick. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn_logical.h"
#include "support.h"
#include "tolerance.h"

/* What errors of a score are in proportion to: of fp32 sums; of products (see struct attn_answer). */
struct size { double magnitude, floor; };

/* One KV head of one sequence at work. */
struct work {
    const struct attn_case *c;
    const struct sequence *s;
    struct attn_answer *a;
    int64_t d, dv;
    double *q, *k, *v;         /* [d], [len_k][d], [len_k][dv]: real values, descaled and spoilt */
    double *score, *mass;      /* [len_k] */
    struct size *size;         /* [len_k] */
    float  *k32, *v32, *acc;   /* the plain algorithm's */
};

/* out[width] = the row of normals, its bad values, its descales. */
static void real_row(const struct work *w, char which, int64_t h, int64_t row, int64_t width, double *out)
{
    const struct attn_case *c = w->c;
    const uint64_t id = w->s->id;
    const int64_t kind = which == 'q' ? c->q_scale : which == 'k' ? c->k_scale : c->v_scale;
    const uint64_t key = which == 'q' ? attn_q_key(c, id, h, w->s->first_row + row)
                       : which == 'k' ? attn_k_key(c, id, h, row) : attn_v_key(c, id, h, row);
    memcpy(out, normal_row(which == 'q' ? c->q_dtype : c->kv_dtype, key), (size_t)width * sizeof *out);
    if (c->numbers)
        attn_stretch(c, which, key, width, out);
    attn_spoil(c, w->s, which, h, row, width, out);
    if (kind != SCALE_NONE)
        for (int64_t d = 0; d < width; d++)
            out[d] *= attn_descale(c, which, kind, id, h, which == 'q' ? w->s->first_row + row : row, d);
}

/* sum a b and sum |a b|. Four sums each, so that the additions do not wait for each other. */
static double dot(const double *a, const double *b, int64_t n, double *absolute)
{
    double s[4] = { 0 }, t[4] = { 0 };
    int64_t d = 0;
    for (; d + 4 <= n; d += 4)
        for (int x = 0; x < 4; x++) {
            const double product = a[d + x] * b[d + x];
            s[x] += product;
            t[x] += fabs(product);
        }
    for (; d < n; d++) {
        s[0] += a[d] * b[d];
        t[0] += fabs(a[d] * b[d]);
    }
    *absolute = (t[0] + t[1]) + (t[2] + t[3]);
    return (s[0] + s[1]) + (s[2] + s[3]);
}

/* Does row i see key j by position? Exact for any 64-bit numbers. */
static bool position_sees(const struct work *w, int64_t i, int64_t j)
{
    const struct attn_case *c = w->c;
    const __int128 pos = (__int128)i + w->s->offset;
    if (c->causal && j > pos)
        return false;
    if (attn_window(c)) {
        if (c->left >= 0 && (__int128)j < pos - c->left)
            return false;
        if (c->right >= 0 && (__int128)j > pos + c->right)
            return false;
    }
    return true;
}

static double product_of(const struct work *w, int64_t h, int64_t i, int64_t j, struct size *size)
{
    const double *const k = w->k + j * w->d;
    if (w->c->op != OP_SOFTMAX) {
        const double product = dot(w->q, k, w->d, &size->magnitude);
        size->floor = size->magnitude;
        if (w->c->precision && w->c->numbers) {
            size->floor = 0;
            for (int64_t d = 0; d < w->d; d++)
                size->floor += attn_tf32_floor(w->c, w->q[d]) * attn_tf32_floor(w->c, k[d]);
        }
        return product;
    }
    double x =
        normal_row(w->c->q_dtype, attn_q_key(w->c, w->s->id, h,
                                             i * 4096 + j / NORMAL_MAX_ROW))[j % NORMAL_MAX_ROW];
    if (attn_bad_key(w->c, w->s, j) && !(i % 2 && w->c->nan == NAN_ONE_KEY))
        x = w->c->zero_bad ? 0.0 : w->c->nan == INF_ONE_KEY ? INFINITY : NAN;
    *size = (struct size){ fabs(x), 0 };
    return x;
}

/* Numbers so far below a bias that every order of fp32 sums gives the bias itself: no error, whatever its size. */
static bool is_absorbed(double bias, double others) { return others < 0x1p-40 * fabs(bias); }

/* Score of one pair at stage min(stage, 2); *size for the error bound; visible keys only get one > -inf. */
static double score_of(const struct work *w, int64_t h, int64_t i, int64_t j, int64_t stage, struct size *size)
{
    const struct attn_case *c = w->c;
    const int64_t row = w->s->first_row + i;
    double score = attn_scale(c) * product_of(w, h, i, j, size);
    size->magnitude *= fabs(attn_scale(c));
    size->floor *= fabs(attn_scale(c));
    if (stage >= 1 && c->softcap != 0)
        score = (float)c->softcap * tanh(score / (float)c->softcap);
    if (c->nan == OVERFLOW_KEY && score < -FLT_MAX)
        score = -INFINITY;              /* scores are fp32 on every path */
    if (stage < 2)
        return score;
    if (!position_sees(w, i, j) || (c->keep && !attn_keep(c, w->s->id, h, row, j)))
        return -INFINITY;
    if (c->bias) {
        const double bias = attn_bias(c, w->s->id, h, row, j);
        if (bias == -INFINITY)
            return -INFINITY;
        score += bias;
        if (is_absorbed(bias, fmax(size->magnitude, size->floor)) && !c->alibi)
            *size = (struct size){ 0, 0 };
        else
            size->magnitude += fabs(bias);
    }
    if (c->alibi) {
        const double fall = attn_slope(c, w->s->id, h) * fabs((double)i + (double)w->s->offset - (double)j);
        score -= fall;
        size->magnitude += fabs(fall);
    }
    return score;
}

/* Masses and the LSE of one row's scores. Returns the sum of masses. */
static double soften(const struct work *w, int64_t n, double sink, double *lse)
{
    double top = sink, sum = 0;
    bool broken = isnan(sink) || sink == INFINITY;
    for (int64_t j = 0; j < n; j++) {
        broken |= isnan(w->score[j]) || w->score[j] == INFINITY;
        top = fmax(top, w->score[j]);
    }
    for (int64_t j = 0; j < n; j++) {
        w->mass[j] = w->score[j] == -INFINITY ? 0.0 : broken ? NAN : exp(w->score[j] - top);
        sum += w->mass[j];
    }
    if (sink > -INFINITY)
        sum += exp(sink - top);
    *lse = broken ? NAN : sum == 0 ? -INFINITY : top + log(sum);
    return broken ? NAN : sum;
}

/* The largest sizes among keys that matter: a key at -FLT_MAX beside normal ones has an enormous error of its score and
 * none of the result. */
static struct size largest_of(const struct work *w, int64_t n, double sink, double lse)
{
    enum { NOTHING = -60 };      /* natural log of a probability */
    const double product = tolerance_product(w->c->q_dtype, (int32_t)w->c->precision);
    struct size most = { sink > -INFINITY ? fabs(sink) : 0, 0 };
    for (int64_t j = 0; j < n; j++) {
        const double e_s = tolerance_score_of(w->d, w->size[j].magnitude, product, w->size[j].floor);
        const double log_p = w->score[j] - lse + 2 * e_s;
        if (w->score[j] != -INFINITY && !(log_p < NOTHING)) {
            most.magnitude = fmax(most.magnitude, w->size[j].magnitude);
            most.floor = fmax(most.floor, w->size[j].floor);
        }
    }
    return most;
}

/* o and o_abs of one row. Column by column a visible non-finite value wins, whatever its mass. */
static void weigh(const struct work *w, int64_t n, double sum, double *restrict o, double *restrict o_abs)
{
    for (int64_t j = 0; j < n; j++) {
        if (w->mass[j] == 0 && w->score[j] == -INFINITY)
            continue;
        const double p = w->mass[j] / sum, *const restrict v = w->v + j * w->dv;
        for (int64_t d = 0, dv = w->dv; d < dv; d++) {
            o[d] += p * v[d];
            o_abs[d] += p * fabs(v[d]);
        }
        for (int64_t d = 0; d < w->dv && w->c->nan; d++)
            if (!isfinite(v[d]))
                o[d] = NAN;
    }
}

/* The yardstick: textbook order, fp32, P rounded to V's type unnormalised, O rounded. */
static void plain_row(const struct work *w, int64_t h, int64_t i, double sink, double *out)
{
    const struct attn_case *c = w->c;
    const double unit_p = tolerance_unit_p(c->q_dtype, c->kv_dtype);
    const int32_t p_dtype = unit_p == 0x1p-8    ? QATTN_DTYPE_BF16
                            : unit_p == 0x1p-11 ? QATTN_DTYPE_F16
                                                : QATTN_DTYPE_F32;
    float top = (float)sink, sum;
    for (int64_t j = 0; j < w->s->len_k; j++) {
        float s = 0;
        if (w->score[j] == -INFINITY)
            continue;
        for (int64_t d = 0; d < w->d; d++)
            s += (float)w->q[d] * w->k32[j * w->d + d];
        s *= (float)attn_scale(c);
        if (c->softcap != 0)
            s = (float)c->softcap * tanhf(s / (float)c->softcap);
        if (c->bias)
            s += (float)attn_bias(c, w->s->id, h, w->s->first_row + i, j);
        if (c->alibi)
            s -= (float)attn_slope(c, w->s->id, h) * (float)fabs((double)i + (double)w->s->offset - (double)j);
        w->mass[j] = s;
        top = fmaxf(top, s);
    }
    memset(w->acc, 0, (size_t)w->dv * sizeof *w->acc);
    sum = sink > -INFINITY ? expf((float)sink - top) : 0;
    for (int64_t j = 0; j < w->s->len_k; j++) {
        if (w->score[j] == -INFINITY)
            continue;
        const float p = expf((float)w->mass[j] - top);
        const float rounded = p_dtype == QATTN_DTYPE_F32 ? p : (float)format_round(p_dtype, p);
        sum += p;
        for (int64_t d = 0; d < w->dv; d++)
            w->acc[d] += rounded * w->v32[j * w->dv + d];
    }
    for (int64_t d = 0; d < w->dv; d++)
        out[d] = format_round(c->o_dtype, sum > 0 ? w->acc[d] / sum : 0);
}

static void fill_scores(const struct work *w, int64_t h, int64_t i, int64_t row, double sum)
{
    const struct attn_case *c = w->c;
    double *const out = w->a->scores + row * w->a->keys;
    const int64_t stage = c->op == OP_SOFTMAX ? 3 : c->stage;
    for (int64_t j = 0; j < w->a->keys; j++) {
        const bool exists = i < w->s->len_q && j < w->s->len_k;
        if (!exists)
            out[j] = stage == 2 ? -INFINITY : 0;
        else if (stage < 3) {
            struct size size;
            out[j] = score_of(w, h, i, j, stage, &size);
            w->a->score_magnitude[row * w->a->keys + j] = size.magnitude;
            w->a->score_floor[row * w->a->keys + j] = size.floor;
        } else
            out[j] = w->score[j] == -INFINITY ? 0 : w->mass[j] / sum;
    }
}

/* Does a mask hide key j from row i, or a bias of -inf? */
static bool is_masked(const struct work *w, int64_t h, int64_t i, int64_t j)
{
    const struct attn_case *c = w->c;
    const int64_t row = w->s->first_row + i;
    return !position_sees(w, i, j) || (c->keep && !attn_keep(c, w->s->id, h, row, j)) ||
           (c->bias && attn_bias(c, w->s->id, h, row, j) == -INFINITY);
}

static void solve_row(const struct work *w, int64_t h, int64_t i, int64_t row)
{
    struct attn_answer *a = w->a;
    const struct attn_case *c = w->c;
    const bool query = i < w->s->len_q;
    const int64_t n = query ? w->s->len_k : 0;
    const double sink = c->sinks && query ? attn_sink(c, h) : -INFINITY;
    if (query && c->op != OP_SOFTMAX)
        real_row(w, 'q', h, i, w->d, w->q);
    for (int64_t j = 0; j < n; j++) {
        w->score[j] = score_of(w, h, i, j, 2, &w->size[j]);
        if (w->score[j] != -INFINITY) {
            a->sees_bad[row] |= attn_bad_key(c, w->s, j);
        } else if (c->nan && attn_bad_key(c, w->s, j) && !is_masked(w, h, i, j)) {
            a->sees_bad[row] = true;            /* -inf by its values, so not hidden in the run with zeros */
        }
    }
    const double sum = soften(w, n, sink, &a->lse[row]);
    const struct size largest = largest_of(w, n, sink, a->lse[row]);
    a->magnitude[row] = largest.magnitude;
    a->floor[row] = largest.floor;
    if (c->op != OP_SOFTMAX)
        weigh(w, n, sum, a->o + row * a->dv, a->o_abs + row * a->dv);
    if (a->scores)
        fill_scores(w, h, i, row, sum);
    if (a->plain)
        plain_row(w, h, i, sink, a->plain + row * a->dv);
}

static void solve_head(struct work *w, int64_t n, int64_t kv_head)
{
    const int64_t group = w->c->hq / w->c->hkv, keys = w->s->len_k;
    for (int64_t j = 0; j < keys && w->c->op != OP_SOFTMAX; j++) {
        real_row(w, 'k', kv_head, j, w->d, w->k + j * w->d);
        real_row(w, 'v', kv_head, j, w->dv, w->v + j * w->dv);
    }
    for (int64_t x = 0; x < keys * w->d && w->a->plain; x++)
        w->k32[x] = (float)w->k[x];
    for (int64_t x = 0; x < keys * w->dv && w->a->plain; x++)
        w->v32[x] = (float)w->v[x];
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; h++)
        for (int64_t i = 0; i < w->s->rows; i++)
            solve_row(w, h, i, w->a->first[n] + h * w->s->rows + i);
}

int64_t attn_row(const struct attn_case *c, const struct attn_answer *a, const struct sequence *seqs,
                 int64_t n, int64_t h, int64_t i)
{
    (void)c;
    return a->first[n] + h * seqs[n].rows + i;
}

static void *zeros(int64_t n, size_t size) { return calloc((size_t)(n > 0 ? n : 1), size); }

static struct attn_answer answer_new(const struct attn_case *c, const struct sequence *seqs, bool plain)
{
    const bool softmax = c->op == OP_SOFTMAX;
    struct attn_answer a = { .dv = softmax ? 0 : attn_dv(c), .keys = attn_capacity_k(c) };
    int64_t rows = 0;
    a.first = zeros(c->b, sizeof *a.first);
    for (int64_t n = 0; n < c->b; n++) {
        a.first[n] = rows;
        rows += seqs[n].rows * c->hq;
    }
    a.o = zeros(rows * a.dv, sizeof *a.o);
    a.o_abs = zeros(rows * a.dv, sizeof *a.o_abs);
    a.lse = zeros(rows, sizeof *a.lse);
    a.magnitude = zeros(rows, sizeof *a.magnitude);
    a.floor = zeros(rows, sizeof *a.floor);
    a.sees_bad = zeros(rows, sizeof *a.sees_bad);
    a.scores = c->scores || softmax ? zeros(rows * a.keys, sizeof *a.scores) : NULL;
    a.score_magnitude = a.scores ? zeros(rows * a.keys, sizeof *a.scores) : NULL;
    a.score_floor = a.scores ? zeros(rows * a.keys, sizeof *a.scores) : NULL;
    a.plain = plain ? zeros(rows * a.dv, sizeof *a.plain) : NULL;
    return a;
}

struct attn_answer attn_solve(const struct attn_case *c, const struct sequence *seqs, bool plain)
{
    struct attn_answer a = answer_new(c, seqs, plain);
    struct work w = { .c = c, .a = &a, .d = c->d, .dv = a.dv };
    int64_t keys = 1;
    for (int64_t n = 0; n < c->b; n++)
        keys = seqs[n].len_k > keys ? seqs[n].len_k : keys;
    w.q = zeros(c->d, sizeof *w.q);
    w.k = zeros(keys * c->d, sizeof *w.k);
    w.v = zeros(keys * a.dv, sizeof *w.v);
    w.score = zeros(keys, sizeof *w.score);
    w.mass = zeros(keys, sizeof *w.mass);
    w.size = zeros(keys, sizeof *w.size);
    w.k32 = zeros(plain ? keys * c->d : 0, sizeof *w.k32);
    w.v32 = zeros(plain ? keys * a.dv : 0, sizeof *w.v32);
    w.acc = zeros(a.dv, sizeof *w.acc);
    for (int64_t n = 0; n < c->b; n++)
        for (int64_t h = 0; h < c->hkv && c->hq; h++) {
            w.s = &seqs[n];
            solve_head(&w, n, h);
        }
    free(w.q);
    free(w.k);
    free(w.v);
    free(w.score);
    free(w.mass);
    free(w.size);
    free(w.k32);
    free(w.v32);
    free(w.acc);
    return a;
}

void attn_answer_free(struct attn_answer *a)
{
    free(a->first); free(a->o); free(a->o_abs); free(a->lse); free(a->magnitude); free(a->floor); free(a->scores);
    free(a->score_magnitude); free(a->score_floor); free(a->sees_bad); free(a->plain);
    *a = (struct attn_answer){ 0 };
}
