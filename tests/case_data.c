/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "case_data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/params.h"
#include "recipe.h"
#include "support.h"

/* Distinct random values of one tensor: a prime, so that larger tensors repeat out of step with
 * every axis. */
static const int64_t value_period = 4194301;

/* V is a narrower view of K's own pages where a case says so by D > Dv in pages (MLA). */
static bool shares_pages(const struct test_case *c)
{
    return c->page_size > 0 && c->d > c->dv;
}

static void init_tensor(qattn_tensor *t, const struct test_case *c, int which)
{
    memset(t, 0, sizeof *t);
    case_shape(c, which, t->shape);
    case_strides(c, which, t->stride);
    t->dtype = c->dtype;
    t->device_type = QATTN_DEVICE_CPU;
}

/* ---------------------------------------------------------------- values */

/* Encoded values to hand out in row-major order of the logical elements, again and again. */
struct values {
    char *encoded;
    int64_t count;
    int64_t item;
    int64_t next;
};

static struct values make_values(const struct case_tensor *t, int32_t dtype, uint64_t seed,
                                 int64_t elements)
{
    struct values v = { .item = format_size(dtype),
                        .count = elements < value_period ? elements : value_period };
    if (t->is_const || v.count < 1)
        v.count = 1;
    float *const z = malloc((size_t)v.count * sizeof *z);
    v.encoded = malloc((size_t)(v.count * v.item));
    recipe_normals(seed, 0, v.count, z);
    for (int64_t i = 0; i < v.count; i++)
        format_encode(dtype, v.encoded + i * v.item,
                      t->is_const ? t->value : (double)z[i] * t->std + t->add);
    free(z);
    return v;
}

/* The next n values to n elements, `stride` apart. */
static void put_values(struct values *v, char *to, int64_t n, int64_t stride)
{
    while (n > 0) {
        const int64_t run = v->count - v->next < n ? v->count - v->next : n;
        const char *const from = v->encoded + v->next * v->item;
        if (stride == 1)
            memcpy(to, from, (size_t)(run * v->item));
        for (int64_t i = 0; stride != 1 && i < run; i++)
            memcpy(to + i * stride * v->item, from + i * v->item, (size_t)v->item);
        to += run * stride * v->item;
        n -= run;
        v->next = (v->next + run) % v->count;
    }
}

/* Extent of an axis as memory has it: a stride of 0 is one element. */
static int64_t distinct(const qattn_tensor *t, int axis)
{
    return t->stride[axis] == 0 && t->shape[axis] > 1 ? 1 : t->shape[axis];
}

static void apply_patch(const qattn_tensor *t, const struct case_patch *patch)
{
    int64_t lo[4], hi[4];
    if (!patch->set)
        return;
    for (int i = 0; i < 4; i++) {
        lo[i] = patch->idx[i] == CASE_ALL ? 0 : patch->idx[i];
        hi[i] = patch->idx[i] == CASE_ALL ? t->shape[i] : patch->idx[i] + 1;
        if (hi[i] > t->shape[i])
            return; /* a thinned case may have lost the place */
    }
    for (int64_t b = lo[0]; b < hi[0]; b++)
        for (int64_t h = lo[1]; h < hi[1]; h++)
            for (int64_t s = lo[2]; s < hi[2]; s++)
                for (int64_t d = lo[3]; d < hi[3]; d++)
                    format_encode(t->dtype, tensor_at(t, b, h, s, d), patch->value);
}

/* Is page `page` of the pool in the table? */
static bool is_listed(const struct case_inputs *in, int64_t page)
{
    for (int64_t i = 0; i < in->c.page_columns; i++)
        if (in->page_table[i] == page)
            return true;
    return false;
}

static void fill_tensor(struct case_inputs *in, int which)
{
    const qattn_tensor *const t = &in->tensors[which];
    const bool pool = in->c.page_size > 0 && which != CASE_Q;
    const int64_t axes[3] = { distinct(t, 0), distinct(t, 1), distinct(t, 2) };
    const int64_t elements =
        (pool ? in->c.page_columns : axes[0]) * axes[1] * axes[2] * t->shape[3];
    struct values v = make_values(&in->c.tensors[which], t->dtype,
                                  recipe_bits(20261129, (uint64_t)which), elements);
    for (int64_t b = 0; b < axes[0]; b++) {
        if (pool && !is_listed(in, b))
            continue;
        for (int64_t h = 0; h < axes[1]; h++)
            for (int64_t s = 0; s < axes[2]; s++)
                put_values(&v, tensor_at(t, b, h, s, 0), distinct(t, 3), t->stride[3]);
    }
    free(v.encoded);
    apply_patch(t, &in->c.tensors[which].patch);
}

/* Rows past the lengths, where the case asks for poison: NaN, or 0. */
static void fill_hidden(struct case_inputs *in, int which, bool zero)
{
    const qattn_tensor *const t = &in->tensors[which];
    const struct case_list *const lens = which == CASE_Q ? &in->c.q_lens : &in->c.kv_lens;
    const bool pool = in->c.page_size > 0 && which != CASE_Q;
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t s = 0; s < t->shape[2]; s++) {
            int64_t position = s, length = lens->count > b ? (int64_t)lens->at[b] : t->shape[2];
            if (pool) { /* one sequence: the page's column tells the position */
                length = (int64_t)lens->at[0];
                position = INT64_MAX;
                for (int64_t column = 0; column < in->c.page_columns; column++)
                    if (in->page_table[column] == b)
                        position = column * in->c.page_size + s;
            }
            for (int64_t x = 0; position >= length && x < t->shape[1] * t->shape[3]; x++)
                format_encode(t->dtype, tensor_at(t, b, x / t->shape[3], s, x % t->shape[3]),
                              zero ? 0.0 : (double)NAN);
        }
}

/* ---------------------------------------------------------------- masks */

/* Entry [b, s, j] of a patterned mask; random ones are filled by values. */
static double mask_value(const struct case_mask *m, int64_t b, int64_t s, int64_t j)
{
    switch (m->pattern) {
    case PATTERN_TRIL: return j <= s;
    case PATTERN_RECT:
        return s >= m->rows[0] && s < m->rows[1] && j >= m->cols[0] && j < m->cols[1];
    case PATTERN_LENS:
        return (b >= m->q_lens.count || s < (int64_t)m->q_lens.at[b]) &&
               j < (int64_t)m->kv_lens.at[b];
    default: return j >= m->cols[0] && j < m->cols[1] ? m->value : 0;
    }
}

static void fill_mask(const struct case_mask *m, const qattn_tensor *t)
{
    const struct case_tensor random = { .std = m->std };
    const int64_t axes[3] = { distinct(t, 0), distinct(t, 1), distinct(t, 2) };
    const int64_t n = distinct(t, 3);
    struct values v = { 0 };
    if (m->pattern == PATTERN_RANDOM)
        v = make_values(&random, t->dtype, recipe_bits(20261129, 3),
                        axes[0] * axes[1] * axes[2] * n);
    for (int64_t b = 0; b < axes[0]; b++)
        for (int64_t h = 0; h < axes[1]; h++)
            for (int64_t s = 0; s < axes[2]; s++) {
                char *const row = tensor_at(t, b, h, s, 0);
                if (m->pattern == PATTERN_RANDOM) {
                    put_values(&v, row, n, t->stride[3]);
                } else if (m->pattern == PATTERN_TRIL && t->stride[3] == 1 &&
                           format_size(t->dtype) == 1) {
                    const int64_t visible = s + 1 < n ? s + 1 : n;
                    memset(row, 1, (size_t)visible);
                    memset(row + visible, 0, (size_t)(n - visible));
                } else {
                    for (int64_t j = 0; j < n; j++) {
                        const double x = mask_value(m, b, s, j);
                        format_encode(t->dtype, tensor_at(t, b, h, s, j), x);
                    }
                }
            }
    free(v.encoded);
    apply_patch(t, &m->patch);
}

static bool make_mask(struct case_inputs *in)
{
    const struct case_mask *const m = &in->c.mask;
    qattn_tensor *const t = m->kind == CASE_MASK_BOOL ? &in->params.keep : &in->params.bias;
    if (m->kind == CASE_NO_MASK)
        return true;
    t->dtype = m->dtype;
    t->device_type = QATTN_DEVICE_CPU;
    memcpy(t->shape, m->shape, sizeof t->shape);
    memcpy(t->stride, m->stride, sizeof t->stride);
    if (!m->strided)
        tensor_pack(t->shape, t->stride);
    if (!span_make(&in->mask_span,
                   (size_t)(tensor_extent(t->shape, t->stride) * format_size(t->dtype))))
        return false;
    t->data = in->mask_span.data;
    fill_mask(m, t);
    return true;
}

/* ---------------------------------------------------------------- inputs */

static void make_lengths(const struct case_list *list, int32_t *to, const int32_t **param)
{
    for (int i = 0; i < list->count; i++)
        to[i] = (int32_t)list->at[i];
    if (list->count > 0)
        *param = to;
}

/* The case's own table, or one that takes the pages in a scattered order. */
static bool make_pages(struct case_inputs *in)
{
    struct test_case *const c = &in->c;
    if (c->page_size == 0)
        return true;
    if (c->page_table.count == 0)
        c->page_columns = (c->seqlen_k + c->page_size - 1) / c->page_size;
    if (c->pool_pages == 0)
        c->pool_pages = c->page_columns;
    in->page_table = calloc((size_t)c->page_columns, sizeof *in->page_table);
    if (!in->page_table)
        return false;
    for (int64_t i = 0; i < c->page_columns; i++)
        in->page_table[i] = c->page_table.count ? (int32_t)c->page_table.at[i]
                                                : (int32_t)((i * 7 + 3) % c->page_columns);
    if (c->kv_lens.count == 0) {
        c->kv_lens.count = 1;
        c->kv_lens.at[0] = (double)c->seqlen_k;
    }
    in->params.page_table = in->page_table;
    in->params.max_pages = c->page_columns;
    return true;
}

static void make_params(struct case_inputs *in)
{
    const struct test_case *const c = &in->c;
    in->params.scale = (float)c->scale;
    in->params.softcap = (float)c->softcap;
    if (c->causal != CASE_FULL)
        in->params.mask |= QATTN_MASK_CAUSAL;
    if (c->causal == CASE_TOP_LEFT)
        in->params.mask |= QATTN_MASK_TOP_LEFT;
    if (c->window) {
        in->params.mask |= QATTN_MASK_WINDOW;
        in->params.window_left = c->window_left;
        in->params.window_right = c->window_right;
    }
    for (int i = 0; i < c->sink.count; i++)
        in->sinks[i] = (float)c->sink.at[i];
    if (c->sink.count > 0)
        in->params.sinks = in->sinks;
    make_lengths(&c->q_lens, in->seqused_q, &in->params.seqused_q);
    make_lengths(&c->kv_lens, in->seqused_k, &in->params.seqused_k);
    if (case_find(c, "batch_slice_equal"))
        in->params.flags |= QATTN_FLAG_BATCH_INVARIANT;
}

static bool make_span(struct span *span, qattn_tensor *t)
{
    if (!span_make(span, (size_t)(tensor_extent(t->shape, t->stride) * format_size(t->dtype))))
        return false;
    t->data = span->data;
    return true;
}

/* A packed copy of tensor `which`, which has the case's strides (they may broadcast or overlap). */
static bool pack_tensor(struct case_inputs *in, int which)
{
    const qattn_tensor from = in->tensors[which];
    qattn_tensor *const t = &in->tensors[which];
    struct span old = in->spans[which];
    const size_t item = (size_t)format_size(t->dtype);
    tensor_pack(t->shape, t->stride);
    if (!make_span(&in->spans[which], t)) {
        in->spans[which] = old;
        return false;
    }
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t s = 0; s < t->shape[2]; s++)
                for (int64_t d = 0; d < t->shape[3]; d++)
                    memcpy(tensor_at(t, b, h, s, d), tensor_at(&from, b, h, s, d), item);
    span_free(&old);
    return true;
}

static bool make_tensor(struct case_inputs *in, int which, bool strided)
{
    qattn_tensor *const t = &in->tensors[which];
    init_tensor(t, &in->c, which);
    if (which == CASE_V && shares_pages(&in->c)) {
        memcpy(t->stride, in->tensors[CASE_K].stride, sizeof t->stride);
        t->data = in->tensors[CASE_K].data;
        return true;
    }
    if (which == CASE_O) {
        if (!strided)
            tensor_pack(t->shape, t->stride);
        return true;
    }
    if (!make_span(&in->spans[which], t))
        return false;
    fill_tensor(in, which);
    return strided || pack_tensor(in, which);
}

bool case_inputs_make(struct case_inputs *in, const struct test_case *c, unsigned strided,
                      bool hidden_zero)
{
    memset(in, 0, sizeof *in);
    in->c = *c;
    in->params = (qattn_attn_params)QATTN_ATTN_PARAMS_INIT;
    const bool softmax = c->op == CASE_SOFTMAX_CAUSAL, matmul = c->op == CASE_MATMUL_NT;
    bool ok = make_pages(in) && make_mask(in);
    for (int t = 0; ok && t < CASE_TENSORS; t++)
        if ((t != CASE_K || !softmax) && (t != CASE_V || (!softmax && !matmul)))
            ok = make_tensor(in, t, strided >> t & 1);
    for (int t = CASE_Q; ok && c->poison && t <= CASE_K + !shares_pages(c); t++)
        if (t != CASE_Q || c->q_lens.count > 0)
            fill_hidden(in, t, hidden_zero);
    make_params(in);
    if (!ok)
        case_inputs_free(in);
    return ok;
}

void case_inputs_free(struct case_inputs *in)
{
    for (int t = 0; t < CASE_TENSORS; t++)
        span_free(&in->spans[t]);
    span_free(&in->mask_span);
    free(in->page_table);
    in->page_table = NULL;
}

/* ---------------------------------------------------------------- outputs */

bool case_outputs_make(struct case_outputs *out, const struct case_inputs *in)
{
    memset(out, 0, sizeof *out);
    out->o = in->tensors[CASE_O];
    out->lse = out->o;
    out->lse.dtype = QATTN_DTYPE_F32;
    out->lse.shape[3] = 1;
    tensor_pack(out->lse.shape, out->lse.stride);
    if (span_make(&out->o_span, (size_t)(tensor_extent(out->o.shape, out->o.stride) *
                                         format_size(out->o.dtype))) &&
        span_make(&out->lse_span, (size_t)(tensor_extent(out->lse.shape, out->lse.stride) * 4))) {
        out->o.data = out->o_span.data;
        out->lse.data = out->lse_span.data;
        return true;
    }
    case_outputs_free(out);
    return false;
}

void case_outputs_free(struct case_outputs *out)
{
    span_free(&out->o_span);
    span_free(&out->lse_span);
}

bool case_outputs_intact(const struct case_outputs *out)
{
    return span_intact(&out->o_span, &out->o) && span_intact(&out->lse_span, &out->lse);
}

int32_t case_problem(struct problem *p, const struct case_inputs *in, struct case_outputs *out,
                     enum op op)
{
    qattn_attn_params params = in->params;
    params.lse = out->lse;
    if (op == OP_SOFTMAX) {
        qattn_softmax_params softmax = QATTN_SOFTMAX_PARAMS_INIT;
        softmax.lse = out->lse;
        return qattn__problem_softmax(p, &in->tensors[CASE_Q], &out->o, &softmax, true, false);
    }
    if (op == OP_MATMUL_NT)
        return qattn__problem_matmul(p, op, &in->tensors[CASE_Q], &in->tensors[CASE_K], &out->o,
                                     NULL, false);
    return qattn__problem_attention(p, op, &in->tensors[CASE_Q], &in->tensors[CASE_K],
                                    &in->tensors[CASE_V], &out->o, &params, false);
}
