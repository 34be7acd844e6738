/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Row softmax: y = e^(s - m) / sum, s = the scores of core/problem.h made from x. One row at a time: its visible keys
 * go, CHUNK at a time, through an f32 buffer of the thread's own (64 KiB: L2). A row of one chunk is read once; a
 * longer one three times (maximum, sum, result), so memory does not grow with the row. What lies outside the
 * visible range of a row is neither read nor computed, only zeroed in y.
 */
#include "cpu/softmax.h"

#include "core/status.h"
#include "cpu/cpu.h"
#include "cpu/pool.h"
#include "cpu/rows.h"

enum { CHUNK = 16384, STEP = 2048, PIECE = 256, SUM_BLOCK = 16 * 4 * VL };

static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---------------------------------------------------------------- scores */

void ISA_NAME(qattn__cap_scores)(float cap, float *row, int64_t n)
{
    const vf c = vf_set1(cap), inverse = vf_set1(1.0f / cap);
    const bool exact = isfinite(1.0f / cap);        /* a subnormal cap has no finite inverse */
    for (int64_t j = 0; j < n; j += VL) {
        const vf v = vf_load(row + j);
        vf_store(row + j, vf_mul(c, vf_tanh(exact ? vf_mul(v, inverse) : vf_div(v, c))));
    }
}

/* row[j] += bias[j]; a bias of -inf hides even a NaN. */
static void add_bias(const struct view *bias, const char *at, int64_t n, float *row)
{
    float piece[PIECE];
    load_row(at, bias->stride[3], bias->dtype, n, piece);
    for (int64_t j = 0; j < n; j += VL) {
        const vf b = vf_load(piece + j), hidden = vf_set1(-INFINITY);
        vf_store(row + j, vf_select(vm_eq(b, hidden), hidden, vf_add(vf_load(row + j), b)));
    }
}

/* row[j] -= slope |distance - j|, distance = pos(i) - first. Distances below 2^24 are exact. */
static void add_alibi(float slope, double distance, int64_t n, float *row)
{
    for (int64_t j = 0; j < n; j += VL) {
        const vf d = vf_sub(vf_set1((float)(distance - (double)j)), vf_iota());
        const vf penalty = vf_mul(vf_set1(slope), vf_abs(d));
        vf_store(row + j, vf_sub(vf_load(row + j), penalty));
    }
}

static void hide_unkept(const char *at, int64_t stride, int64_t n, float *row)
{
    uint8_t piece[PIECE];
    for (int64_t j = 0; j < n; j++)
        piece[j] = (uint8_t)at[j * stride];
    memset(piece + n, 0, (size_t)(padded_row(n) - n));
    for (int64_t j = 0; j < n; j += VL)
        vf_store(row + j, vf_select(vm_nonzero_u8(piece + j), vf_load(row + j), vf_set1(-INFINITY)));
}

void ISA_NAME(qattn__mask_scores)(const struct problem *p, const struct seq *s, int64_t h, int64_t i, int64_t first,
                                  int64_t n, float *row)
{
    const float slope = p->alibi_slopes ? p->alibi_slopes[s->n * p->alibi_batch_stride + h] : 0.0f;
    if (!p->bias.dtype && !p->alibi_slopes && !p->keep.dtype)
        return;
    for (int64_t j = 0; j < n; j += PIECE) {
        const int64_t count = min64(n - j, PIECE);
        if (p->alibi_slopes)                        /* before what hides: a slope of inf makes NaN of -inf or 0 */
            add_alibi(slope, (double)i + (double)s->offset - (double)(first + j), count, row + j);
        if (p->bias.dtype)
            add_bias(&p->bias, view_at(&p->bias, s->n, h, i, first + j), count, row + j);
        if (p->keep.dtype)
            hide_unkept(view_at(&p->keep, s->n, h, i, first + j), p->keep.stride[3], count, row + j);
    }
    pad_scores(row, n);
}

/* ---------------------------------------------------------------- softmax of a row in memory */

void ISA_NAME(qattn__max_scores)(const float *row, int64_t n, struct row_max *m)
{
    vf most = vf_set1(m->nan ? -INFINITY : m->max);
    vm ordered = vm_range(0, VL);
    for (int64_t j = 0; j < n; j += VL) {
        const vf v = vf_load(row + j);
        most = vf_max(v, most);                     /* most where v is NaN */
        ordered = vm_and(ordered, vm_eq(v, v));
    }
    m->max = vf_hmax(most);
    m->nan = m->nan || vm_bits(vm_not(ordered)) != 0;
}

/* Sums of SUM_BLOCK terms, four vectors wide and 16 terms deep, are added in double: the error does not grow with the
 * row. */
double ISA_NAME(qattn__exp_scores)(float *row, int64_t n, float max)
{
    const vf m = vf_set1(max);
    double total = 0.0;
    for (int64_t start = 0; start < n; start += SUM_BLOCK) {
        const int64_t end = min64(padded_row(n), start + SUM_BLOCK);
        vf sum[4] = { vf_zero(), vf_zero(), vf_zero(), vf_zero() };
        int64_t j = start;
        for (; j + 4 * VL <= end; j += 4 * VL) {
            ISA_UNROLL
            for (int t = 0; t < 4; t++) {
                const vf e = vf_exp(vf_sub(vf_load(row + j + t * VL), m));
                vf_store(row + j + t * VL, e);
                sum[t] = vf_add(sum[t], e);
            }
        }
        for (; j < end; j += VL) {
            const vf e = vf_exp(vf_sub(vf_load(row + j), m));
            vf_store(row + j, e);
            sum[0] = vf_add(sum[0], e);
        }
        total += (double)vf_hsum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
    }
    return total;
}

void ISA_NAME(qattn__divide_row)(float *row, int64_t n, float sum)
{
    const vf inverse = vf_set1(1.0f / sum), least = vf_set1(0x1p-126f);
    for (int64_t j = 0; j < n; j += VL) {
        const vf v = vf_mul(vf_load(row + j), inverse);
        vf_store(row + j, vf_select(vm_lt(v, least), vf_zero(), v));
    }
}

void ISA_NAME(qattn__spoil_row)(float *row, int64_t n)
{
    for (int64_t j = 0; j < n; j += VL)
        vf_store(row + j, vf_select(vm_eq(vf_load(row + j), vf_set1(-INFINITY)), vf_zero(), vf_set1(NAN)));
}

/* ---------------------------------------------------------------- the operation */

/* One row of the call: row i of head h of sequence s, keys begin .. end-1. */
struct softmax_row {
    const struct problem *p;
    struct seq s;
    int64_t h, i, begin, end;
    float *chunk;               /* [CHUNK], the thread's own */
};

/* Scores of keys first .. first+n-1 into r->chunk, n <= CHUNK; m, if not NULL, learns of them. STEP by STEP: what was
 * just loaded is still in L1. */
static void load_scores(const struct softmax_row *r, int64_t first, int64_t n, struct row_max *m)
{
    const struct problem *const p = r->p;
    for (int64_t at = 0; at < n; at += STEP) {
        const int64_t count = min64(n - at, STEP), key = first + at;
        float *const row = r->chunk + at;
        load_row(view_at(&p->x, r->s.n, r->h, r->i, key), p->x.stride[3], p->x.dtype, count, row);
        for (int64_t j = 0; j < count && p->scale != 1.0f; j += VL)
            vf_store(row + j, vf_mul(vf_load(row + j), vf_set1(p->scale)));
        if (p->softcap != 0.0f)
            ISA_NAME(qattn__cap_scores)(p->softcap, row, count);
        pad_scores(row, count);
        ISA_NAME(qattn__mask_scores)(p, &r->s, r->h, r->i, key, count, row);
        if (m)
            ISA_NAME(qattn__max_scores)(row, count, m);
    }
}

/* Zero has no bits set in any type. */
static void store_zeros(const struct softmax_row *r, int64_t first, int64_t end)
{
    const struct view *const t = &r->p->y;
    if (t->stride[3] == 1 && first < end)
        memset(view_at(t, r->s.n, r->h, r->i, first), 0, (size_t)((end - first) * t->itemsize));
    else
        for (int64_t j = first; j < end; j++)
            memset(view_at(t, r->s.n, r->h, r->i, j), 0, (size_t)t->itemsize);
}

/* y of keys first .. first+n-1 from r->chunk, which holds their e^(s - m), in a spoilt row their scores. */
static void store_chunk(const struct softmax_row *r, const struct row_max *m, float sum, int64_t first, int64_t n)
{
    const struct view *const t = &r->p->y;
    for (int64_t at = 0; at < n; at += STEP) {
        const int64_t count = min64(n - at, STEP);
        if (is_spoilt(m))
            ISA_NAME(qattn__spoil_row)(r->chunk + at, count);
        else
            ISA_NAME(qattn__divide_row)(r->chunk + at, count, sum);
        store_row(r->chunk + at, count, view_at(t, r->s.n, r->h, r->i, first + at), t->stride[3], t->dtype);
    }
}

static struct row_max find_max(const struct softmax_row *r, float sink)
{
    struct row_max m = start_max(sink);
    for (int64_t j = r->begin; j < r->end; j += CHUNK)
        load_scores(r, j, min64(r->end - j, CHUNK), &m);
    return m;
}

/* Sum of e^(s - max). A row of one chunk is left in r->chunk as its terms. */
static float find_sum(const struct softmax_row *r, float max, float sink)
{
    double sum = sink == -INFINITY ? 0.0 : (double)isa_exp(sink - max);
    for (int64_t j = r->begin; j < r->end; j += CHUNK) {
        if (r->end - r->begin > CHUNK)
            load_scores(r, j, min64(r->end - j, CHUNK), NULL);
        sum += ISA_NAME(qattn__exp_scores)(r->chunk, min64(r->end - j, CHUNK), max);
    }
    return (float)sum;
}

static void run_row(const struct softmax_row *r)
{
    const float sink = sink_of(r->p, &r->s, r->h, r->i);
    const struct row_max m = find_max(r, sink);
    float sum = 0.0f;
    if (m.max == -INFINITY && !m.nan) {
        store_zeros(r, 0, r->p->y.shape[3]);        /* no key and no sink */
    } else {
        if (!is_spoilt(&m))
            sum = find_sum(r, m.max, sink);
        store_zeros(r, 0, r->begin);
        for (int64_t j = r->begin; j < r->end; j += CHUNK) {
            const int64_t n = min64(r->end - j, CHUNK);
            if (r->end - r->begin > CHUNK) {
                load_scores(r, j, n, NULL);
                if (!is_spoilt(&m))
                    ISA_NAME(qattn__exp_scores)(r->chunk, n, m.max);
            }
            store_chunk(r, &m, sum, j, n);
        }
        store_zeros(r, r->end, r->p->y.shape[3]);
    }
    store_lse(r->p, r->s.n, r->h, r->i, &m, sum);
}

struct softmax_call { const struct problem *p; int64_t rows, task_rows; };

static void run_rows(void *arg, int64_t index, int worker)
{
    const struct softmax_call *const call = arg;
    const struct problem *const p = call->p;
    const int64_t heads = p->x.shape[1], rows = p->x.shape[2];
    struct softmax_row r = { .p = p, .s = { .n = -1 } };
    r.chunk = (float *)(void *)p->workspace + (size_t)worker * CHUNK;
    for (int64_t at = index * call->task_rows; at < min64(call->rows, (index + 1) * call->task_rows); at++) {
        const int64_t b = at / rows / heads;
        if (r.s.n != b)
            r.s = seq_get(p, b);
        r.h = at / rows % heads;
        r.i = at % rows;
        seq_visible(p, &r.s, r.i, &r.begin, &r.end);
        if (r.begin > r.end)
            r.begin = r.end = 0;
        run_row(&r);
    }
}

/* Tasks of some 32768 elements, fewer where that leaves threads without work. */
static struct softmax_call plan_rows(const struct problem *p)
{
    const int64_t keys = p->x.shape[3] > 0 ? p->x.shape[3] : 1;
    struct softmax_call call = { .p = p, .rows = p->x.shape[0] * p->x.shape[1] * p->x.shape[2] };
    call.task_rows = 32768 / keys;
    const int64_t share = call.rows / (8 * (int64_t)p->num_threads);
    if (call.task_rows > share && p->num_threads > 1)
        call.task_rows = share;
    if (call.task_rows < 1)
        call.task_rows = 1;
    return call;
}

static int64_t tasks_of(const struct softmax_call *call)
{
    return (call->rows + call->task_rows - 1) / call->task_rows;
}

size_t ISA_NAME(qattn__cpu_softmax_workspace)(const struct problem *p)
{
    const struct softmax_call call = plan_rows(p);
    return (size_t)qattn__pool_threads(p->num_threads, tasks_of(&call)) * CHUNK * sizeof(float);
}

int32_t ISA_NAME(qattn__cpu_softmax)(const struct problem *p)
{
    struct softmax_call call = plan_rows(p);
    if (view_empty(&p->y) && !p->lse.dtype)
        return QATTN_OK;
    qattn__pool_run(p->num_threads, tasks_of(&call), run_rows, &call);
    return QATTN_OK;
}
