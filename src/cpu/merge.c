/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * One result out of results over disjoint keys: with m = max_i lse_i and w_i = e^(lse_i - m),
 *
 *     o = sum_i (w_i / sum w) o_i,    lse = m + log(sum w)
 *
 * The few weights of a row are made in double; its o is summed in f32, parts in index order, PIECE elements at a time,
 * each piece read from all parts before it is written: o and lse may be part 0 themselves.
 */
#include "core/status.h"
#include "cpu/cpu.h"
#include "cpu/pool.h"
#include "cpu/rows.h"

enum { PIECE = 256, TASK_ELEMENTS = 16384 };

static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

/* The parts of a row that saw a key (LSE above -inf), their normalised weights, and the LSE of all. */
struct weights {
    int64_t count;
    int64_t part[QATTN__MAX_PARTS];
    float   weight[QATTN__MAX_PARTS];
    float   lse;
};

/* A LSE of NaN or +inf makes the maximum so, and with it every weight NaN. */
static void weigh_parts(const struct problem *p, int64_t b, int64_t h, int64_t i, struct weights *w)
{
    const double unit = p->flags & QATTN_FLAG_LSE_BASE2 ? 0.69314718055994531 : 1.0;   /* to natural */
    double lse[QATTN__MAX_PARTS], max = -INFINITY, sum = 0.0;
    w->count = 0;
    for (int64_t part = 0; part < p->num_parts; part++) {
        float value;
        memcpy(&value, view_at(&p->parts[part].lse, b, h, i, 0), sizeof value);
        if (value == -INFINITY)
            continue;
        lse[w->count] = unit * (double)value;
        if (lse[w->count] > max || isnan(lse[w->count]))
            max = lse[w->count];
        w->part[w->count++] = part;
    }
    for (int64_t k = 0; k < w->count; k++) {
        lse[k] = exp(lse[k] - max);
        sum += lse[k];
    }
    for (int64_t k = 0; k < w->count; k++)
        w->weight[k] = (float)(lse[k] / sum);
    w->lse = w->count ? (float)((max + log(sum)) / unit) : -INFINITY;
}

/* sum[n] += weight * part's o[n] */
static void add_part(const struct view *t, const char *o, float weight, int64_t n, float *sum)
{
    float piece[PIECE];
    load_row(o, t->stride[3], t->dtype, n, piece);
    for (int64_t d = 0; d < n; d += VL)
        vf_store(sum + d, vf_fmadd(vf_set1(weight), vf_load(piece + d), vf_load(sum + d)));
}

static void merge_row(const struct problem *p, int64_t b, int64_t h, int64_t i)
{
    struct weights w;
    float sum[PIECE];
    weigh_parts(p, b, h, i, &w);
    for (int64_t d = 0; d < p->o.shape[3]; d += PIECE) {
        const int64_t n = min64(p->o.shape[3] - d, PIECE);
        memset(sum, 0, sizeof sum);
        for (int64_t k = 0; k < w.count; k++) {
            const struct view *const part = &p->parts[w.part[k]].o;
            add_part(part, view_at(part, b, h, i, d), w.weight[k], n, sum);
        }
        store_row(sum, n, view_at(&p->o, b, h, i, d), p->o.stride[3], p->o.dtype);
    }
    if (p->lse.dtype)
        memcpy(view_at(&p->lse, b, h, i, 0), &w.lse, sizeof w.lse);
}

struct merge_call { const struct problem *p; int64_t rows, task_rows; };

static void merge_rows(void *arg, int64_t index, int worker)
{
    const struct merge_call *const call = arg;
    const int64_t *const shape = call->p->parts[0].lse.shape;
    (void)worker;
    for (int64_t at = index * call->task_rows; at < min64(call->rows, (index + 1) * call->task_rows); at++)
        merge_row(call->p, at / shape[2] / shape[1], at / shape[2] % shape[1], at % shape[2]);
}

size_t ISA_NAME(qattn__cpu_merge_workspace)(const struct problem *p)
{
    (void)p;
    return 0;
}

int32_t ISA_NAME(qattn__cpu_merge)(const struct problem *p)
{
    const int64_t *const shape = p->parts[0].lse.shape;
    struct merge_call call = { .p = p, .rows = shape[0] * shape[1] * shape[2] };
    call.task_rows = TASK_ELEMENTS / (p->num_parts * (p->o.shape[3] + 1));
    if (call.task_rows < 1)
        call.task_rows = 1;
    if (view_empty(&p->o) && !p->lse.dtype)
        return QATTN_OK;
    qattn__pool_run(p->num_threads, (call.rows + call.task_rows - 1) / call.task_rows, merge_rows, &call);
    return QATTN_OK;
}
