/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Geometry of the cases: shapes, strides, variants, and how a case too large for a slow row is
 * thinned. */
#include "case_data.h"

#include <math.h>
#include <string.h>

#include "support.h"

/* Shape of tensor t of the case; for pages the pool's. */
void case_shape(const struct test_case *c, int t, int64_t shape[4])
{
    const bool is_key = t == CASE_K || t == CASE_V;
    const bool pool = is_key && c->page_size > 0;
    shape[0] = pool ? c->pool_pages : c->b;
    shape[1] = is_key ? c->hkv : c->hq;
    shape[2] = pool ? c->page_size : is_key ? c->seqlen_k : c->seqlen_q;
    shape[3] = t == CASE_V || t == CASE_O ? c->dv : c->d;
    if (c->op == CASE_MATMUL_NT && t == CASE_O)
        shape[3] = c->seqlen_k;
    if (c->op == CASE_SOFTMAX_CAUSAL)
        shape[3] = c->seqlen_k;
}

/* Packed unless the case says otherwise. Pages: one pool holds K and V of a page behind each other,
 * or the page stride is given. */
void case_strides(const struct test_case *c, int t, int64_t stride[4])
{
    int64_t shape[4];
    case_shape(c, t, shape);
    if (c->tensors[t].strided) {
        memcpy(stride, c->tensors[t].stride, 4 * sizeof *stride);
        return;
    }
    tensor_pack(shape, stride);
    if (c->page_size == 0 || t == CASE_Q || t == CASE_O)
        return;
    if (c->page_stride > 0)
        stride[0] = c->page_stride;
    if (c->interleaved_kv) { /* [page][k, v][slot][head][d] */
        stride[0] = 2 * c->page_size * c->hkv * c->d;
        stride[1] = c->d;
        stride[2] = c->hkv * c->d;
    }
}

/* ---------------------------------------------------------------- variants */

static bool is_sweep(const struct test_case *c)
{
    return c->num_also == 1 && strcmp(c->also[0].field, "window") != 0 &&
           c->also[0].last > c->also[0].first;
}

int64_t case_runs(const struct test_case *c)
{
    if (is_sweep(c))
        return 2 + c->also[0].last - c->also[0].first;
    return c->num_also > 0 ? 2 : 1;
}

struct test_case case_variant(const struct test_case *c, int64_t i)
{
    struct test_case v = *c;
    for (int a = 0; i > 0 && a < c->num_also; a++) {
        const struct case_also *const also = &c->also[a];
        const int64_t value = is_sweep(c) ? also->first + i - 1 : also->first;
        if (strcmp(also->field, "Sq") == 0)
            v.seqlen_q = value;
        else if (strcmp(also->field, "Sk") == 0)
            v.seqlen_k = value;
        else if (strcmp(also->field, "B") == 0)
            v.b = value;
        else if (strcmp(also->field, "causal") == 0)
            v.causal = (enum case_causal)value;
        else {
            v.window_left = also->first;
            v.window_right = also->last;
        }
        for (int axis = 2; axis < 4; axis++) /* a full mask grows and shrinks along */
            if (c->mask.kind != CASE_NO_MASK && c->mask.shape[axis] != 1)
                v.mask.shape[axis] = axis == 2 ? v.seqlen_q : v.seqlen_k;
    }
    return v;
}

double case_flop(const struct test_case *c)
{
    const double pairs = (double)c->b * (double)c->hq * (double)c->seqlen_q * (double)c->seqlen_k;
    switch (c->op) {
    case CASE_MATMUL_NT: return 2 * pairs * (double)c->d;
    case CASE_SOFTMAX_CAUSAL: return 8 * pairs;
    default: return 2 * pairs * (double)(c->d + c->dv);
    }
}

/* ---------------------------------------------------------------- thinning */

/* Divides an axis of the listed tensors by n, their strides growing: the kept elements lie n apart.
 * */
static int64_t thin_axis(struct test_case *c, int axis, int64_t size, int64_t n, unsigned tensors,
                         bool mask)
{
    const int64_t kept = (size + n - 1) / n;
    for (int t = 0; t < CASE_TENSORS; t++)
        if (tensors & 1u << t)
            c->tensors[t].stride[axis] *= n;
    if (mask && c->mask.kind != CASE_NO_MASK && c->mask.shape[axis] == size && size > 1) {
        c->mask.stride[axis] *= n;
        c->mask.shape[axis] = kept;
    }
    return kept;
}

bool case_thin(struct test_case *c, double flop)
{
    const unsigned all = 1u << CASE_Q | 1u << CASE_K | 1u << CASE_V | 1u << CASE_O;
    if (c->page_size > 0 || c->op != CASE_ATTN_FWD)
        return case_flop(c) <= flop;
    for (int t = 0; t < CASE_TENSORS; t++) {
        int64_t stride[4];
        case_strides(c, t, stride);
        memcpy(c->tensors[t].stride, stride, sizeof stride);
        c->tensors[t].strided = true;
    }
    if (c->mask.kind != CASE_NO_MASK && !c->mask.strided) {
        tensor_pack(c->mask.shape, c->mask.stride);
        c->mask.strided = true;
    }
    const double wish = case_flop(c) / flop;
    if (wish > 1 && c->b > 2) {
        const int64_t n = (int64_t)fmin(wish + 1, (double)(c->b - 1));
        c->b = thin_axis(c, 0, c->b, n, all, true);
    }
    /* heads, smallest factor first: of the group alone, or of both where the groups are 1, so that
     * head h of what is left still reads the key head it read before */
    for (int64_t n = 2; case_flop(c) > flop && n <= c->hq; n++) {
        const bool single = c->hq == c->hkv;
        if (c->hkv == 0 || (single ? c->hq : c->hq / c->hkv) % n != 0)
            continue;
        c->hq = thin_axis(c, 1, c->hq, n, 1u << CASE_Q | 1u << CASE_O, true);
        if (single)
            c->hkv = thin_axis(c, 1, c->hkv, n, 1u << CASE_K | 1u << CASE_V, false);
        n = 1;
    }
    if (case_flop(c) > flop && c->causal == CASE_FULL && !c->window && c->seqlen_q > 1) {
        const int64_t n = (int64_t)fmin(case_flop(c) / flop + 1, (double)(c->seqlen_q - 1));
        c->seqlen_q = thin_axis(c, 2, c->seqlen_q, n, 1u << CASE_Q | 1u << CASE_O, true);
    }
    return case_flop(c) <= flop * 6;
}

/* Rows that follow one another closely share pages; the others have pages of their own. */
static double touched_by(const int64_t shape[4], const int64_t stride[4], double item)
{
    const double page = 4096;
    double block = item, pieces = 1;
    int64_t order[4] = { 3, 2, 1, 0 };
    for (int i = 0; i < 4; i++) /* by stride, smallest first */
        for (int k = i + 1; k < 4; k++)
            if (stride[order[k]] < stride[order[i]]) {
                const int64_t axis = order[i];
                order[i] = order[k];
                order[k] = axis;
            }
    for (int i = 0; i < 4; i++) {
        const double step = (double)stride[order[i]] * item, n = (double)shape[order[i]];
        if (n == 0)
            return 0;
        if (pieces == 1 && step <= block + page)
            block += step * (n - 1);
        else
            pieces *= step == 0 ? 1 : n;
    }
    return pieces * (pieces > 1 ? block + page : block);
}

double case_touched(const struct test_case *c)
{
    double bytes = 0;
    int64_t shape[4], stride[4];
    for (int t = 0; t < CASE_TENSORS; t++) {
        case_shape(c, t, shape);
        case_strides(c, t, stride);
        if (shape[0] == c->pool_pages && c->page_size > 0)
            shape[0] = c->page_columns ? c->page_columns : shape[0];
        bytes += touched_by(shape, stride, format_size(c->dtype));
    }
    if (c->mask.kind != CASE_NO_MASK) {
        memcpy(stride, c->mask.stride, sizeof stride);
        if (!c->mask.strided)
            tensor_pack(c->mask.shape, stride);
        bytes += touched_by(c->mask.shape, stride, format_size(c->mask.dtype));
    }
    return bytes;
}
