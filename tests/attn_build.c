/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "attn_build.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/params.h"

enum { SPARE_PAGES = 2, ROW_ALIGN = 16 };

/* ---------------------------------------------------------------- where things lie */

static int64_t total_rows(const int64_t *start, const struct attn_build *b, bool keys)
{
    const int64_t last = b->c->b - 1;
    if (last < 0)
        return 2 * b->c->lead;
    return start[last] + (keys ? b->seqs[last].slot_k : b->seqs[last].slot_q) + b->c->lead;
}

static void place_packed(struct attn_build *b)
{
    int64_t q = b->c->lead, k = b->c->lead;
    for (int64_t n = 0; n < b->c->b; n++) {
        b->start_q[n] = q;
        b->start_k[n] = k;
        q += b->seqs[n].slot_q;
        k += b->seqs[n].slot_k;
    }
}

/* Deals the pages of a shuffled pool to the sequences; returns the pool's size. Unused columns keep -1. */
static int64_t place_pages(struct attn_build *b)
{
    const int64_t columns = attn_max_pages(b->c), most = b->c->b * columns + SPARE_PAGES;
    int32_t *ids = malloc((size_t)most * sizeof *ids);
    struct rng r = { hash64((uint64_t)b->c->seed, 'p'), 0 };
    int64_t used = 0, next = 0;
    for (int64_t n = 0; n < b->c->b; n++)
        used += (b->seqs[n].len_k + b->c->page - 1) / b->c->page;
    const int64_t pool = used + SPARE_PAGES;
    for (int64_t i = 0; i < pool; i++) {
        const int64_t j = rng_below(&r, i + 1);
        ids[i] = ids[j];
        ids[j] = (int32_t)i;
    }
    for (int64_t n = 0; n < b->c->b; n++)
        for (int64_t x = 0; x < columns; x++)
            b->pages[n * columns + x] = x * b->c->page < b->seqs[n].len_k ? ids[next++] : -1;
    free(ids);
    return pool;
}

void attn_place_q(const struct attn_build *b, int64_t n, int64_t i, int64_t *batch, int64_t *row)
{
    *batch = b->c->packed_q ? 0 : n;
    *row = b->c->packed_q ? b->start_q[n] + i : i;
}

static void place_k(const struct attn_build *b, int64_t n, int64_t j, int64_t *batch, int64_t *row)
{
    if (b->c->page) {
        *batch = b->pages[n * attn_max_pages(b->c) + j / b->c->page];
        *row = j % b->c->page;
    } else {
        *batch = b->c->packed_k ? 0 : n;
        *row = b->c->packed_k ? b->start_k[n] + j : j;
    }
}

/* ---------------------------------------------------------------- tensors */

enum tensor_id { T_Q, T_K, T_V, T_O, T_LSE, T_BIAS, T_KEEP, T_SCORES, T_QS, T_KS, T_VS };

static struct layout pick_layout(const struct attn_case *c, enum tensor_id id)
{
    static const int32_t packed[4] = { QATTN_LAYOUT_BHSD, QATTN_LAYOUT_BSHD, QATTN_LAYOUT_SBHD, QATTN_LAYOUT_BSHD };
    if (c->lay < 4) {
        struct layout l = layout_packed(packed[c->lay]);
        l.fence_low = id % 2;
        l.align = c->aligned ? ROW_ALIGN : 0;
        return l;
    }
    struct rng r = { hash64((uint64_t)c->lay, (uint64_t)id), 0 };
    const bool rows = id == T_K || id == T_V || (id == T_Q && c->aligned != 2) || (id == T_O && c->aligned == 1);
    struct layout l = c->aligned && rows ? layout_rows(&r, ROW_ALIGN) : layout_random(&r);
    l.broadcast[0] = (id == T_K || id == T_V) && (c->share & 1) && !c->packed_k && !c->page;
    l.broadcast[1] = id == T_Q ? (c->share & 4) != 0 : (id == T_K || id == T_V) && (c->share & 2);
    return l;
}

static bool interleaved(const struct attn_case *c)
{
    return c->lay == 3 && c->op != OP_SOFTMAX && !c->packed_q && !c->page && c->sq == c->sk &&
           c->q_dtype == c->kv_dtype && attn_dv(c) == c->d;
}

/* q, k, v as slices of the heads of one buffer [B][S][Hq + 2 Hkv][D]. */
static void make_interleaved(struct attn_build *b)
{
    const struct attn_case *c = b->c;
    const int64_t shape[4] = { c->b, c->hq + 2 * c->hkv, c->sq, c->d };
    const struct layout l = pick_layout(c, T_Q);
    b->q = box_new(c->q_dtype, shape, &l, POISON_INPUT);
    b->k.t = b->v.t = b->q.t;
    b->k.t.data = box_at(&b->q, 0, c->hq, 0, 0);
    b->v.t.data = box_at(&b->q, 0, c->hq + c->hkv, 0, 0);
    b->q.t.shape[1] = c->hq;
    b->k.t.shape[1] = b->v.t.shape[1] = c->hkv;
}

static void make_qkv(struct attn_build *b, int64_t pool)
{
    const struct attn_case *c = b->c;
    const struct layout lq = pick_layout(c, T_Q), lk = pick_layout(c, T_K), lv = pick_layout(c, T_V);
    int64_t q[4] = { c->packed_q ? 1 : c->b, c->hq, c->packed_q ? total_rows(b->start_q, b, false) : c->sq, c->d };
    int64_t k[4] = { c->b, c->hkv, c->sk, c->d };
    if (c->op == OP_SOFTMAX) {
        q[3] = c->sk;
        b->q = box_new(c->q_dtype, q, &lq, POISON_INPUT);
        return;
    }
    if (interleaved(c)) {
        make_interleaved(b);
        return;
    }
    if (c->packed_k) {
        k[0] = 1;
        k[2] = total_rows(b->start_k, b, true);
    } else if (c->page) {
        k[0] = pool;
        k[2] = c->page;
    }
    const int64_t v[4] = { k[0], k[1], k[2], attn_dv(c) };
    b->q = box_new(c->q_dtype, q, &lq, POISON_INPUT);
    b->k = box_new(c->kv_dtype, k, &lk, POISON_INPUT);
    b->v = box_new(c->kv_dtype, v, &lv, POISON_INPUT);
}

static void make_outputs(struct attn_build *b)
{
    const struct attn_case *c = b->c;
    const struct layout lo = pick_layout(c, T_O), ll = pick_layout(c, T_LSE), ls = pick_layout(c, T_SCORES);
    const int64_t rows = b->q.t.shape[2], batch = b->q.t.shape[0];
    const int64_t o[4] = { batch, c->hq, rows, c->op == OP_SOFTMAX ? c->sk : attn_dv(c) };
    const int64_t lse[4] = { batch, c->hq, rows, 1 }, scores[4] = { batch, c->hq, rows, attn_capacity_k(c) };
    const struct layout lx = pick_layout(c, T_Q);
    b->o = box_new(c->o_dtype, o, c->in_place ? &lx : &lo, POISON_OUTPUT);
    if (!c->no_lse)
        b->lse = box_new(QATTN_DTYPE_F32, lse, &ll, POISON_OUTPUT);
    if (c->scores)
        b->scores = box_new(c->scores == 2 ? c->q_dtype : QATTN_DTYPE_F32, scores, &ls, POISON_OUTPUT);
}

/* bias or keep: axes not full have size 1, or with random layouts now and then stride 0. */
static void make_mask(struct attn_build *b, struct box *box, int64_t axes, int32_t dtype, enum tensor_id id)
{
    const struct attn_case *c = b->c;
    const int64_t full[4] = { c->b, c->hq, c->sq, attn_capacity_k(c) };
    struct layout l = pick_layout(c, id);
    struct rng r = { hash64((uint64_t)c->lay, (uint64_t)id + 100), 0 };
    int64_t shape[4];
    for (int axis = 0; axis < 4; axis++) {
        const bool varies = axes >> axis & 1;
        l.broadcast[axis] = !varies && c->lay >= 4 && rng_below(&r, 2);
        shape[axis] = varies || l.broadcast[axis] ? full[axis] : 1;
    }
    *box = box_new(dtype, shape, &l, POISON_INPUT);
}

static void make_descale(struct attn_build *b, struct box *box, int64_t kind, const struct box *of, enum tensor_id id)
{
    const struct attn_case *c = b->c;
    const int64_t heads = id == T_QS ? c->hq : c->hkv, width = of->t.shape[3];
    const struct layout l = pick_layout(c, id);
    int64_t shape[4] = { 1, 1, 1, 1 };
    if (kind >= SCALE_HEAD)
        shape[1] = kind == SCALE_HEAD || kind == SCALE_SEQ_KVHEAD_D ? c->hkv : heads;
    if (kind == SCALE_SEQ_HEAD || kind == SCALE_SEQ_KVHEAD_D)
        shape[0] = c->b;
    if (kind >= SCALE_ROW) {
        shape[0] = of->t.shape[0];
        shape[2] = of->t.shape[2];
    }
    if (kind == SCALE_SEQ_KVHEAD_D || kind == SCALE_ROW_D)
        shape[3] = width;
    *box = box_new(QATTN_DTYPE_F32, shape, &l, POISON_INPUT);
}

/* ---------------------------------------------------------------- values */

static void fill_row(const struct attn_build *b, struct box *box, char which, int64_t n, int64_t h, int64_t i)
{
    const struct attn_case *c = b->c;
    const struct sequence *s = &b->seqs[n];
    const int64_t width = box->t.shape[3], logical = which == 'q' ? s->first_row + i : i;
    const int32_t dtype = which == 'q' ? c->q_dtype : c->kv_dtype;
    const uint64_t key = which == 'q' ? attn_q_key(c, s->id, h, logical)
                       : which == 'k' ? attn_k_key(c, s->id, h, i) : attn_v_key(c, s->id, h, i);
    int64_t batch, row;
    if (which == 'q')
        attn_place_q(b, n, i, &batch, &row);
    else
        place_k(b, n, i, &batch, &row);
    box_set_row(box, batch, h, row, width, normal_row_encoded(dtype, key));
    if (!c->numbers && (!c->nan || (which != 'q' && c->nan != OVERFLOW_KEY && !attn_bad_key(c, s, i))))
        return;
    double values[NORMAL_MAX_ROW];
    memcpy(values, normal_row(dtype, key), (size_t)width * sizeof *values);
    if (c->numbers)
        attn_stretch(c, which, key, width, values);
    attn_spoil(c, s, which, h, i, width, values);
    for (int64_t d = 0; d < width; d++)
        box_set(box, batch, h, row, d, values[d]);
}

/* x[b,h,i,j]: the same formula as in attn_oracle.c's product_of. */
static void fill_softmax_row(const struct attn_build *b, struct box *box, int64_t n, int64_t h, int64_t i)
{
    const struct attn_case *c = b->c;
    const struct sequence *s = &b->seqs[n];
    for (int64_t j = 0; j < s->len_k; j++) {
        double x = normal_row(c->q_dtype, attn_q_key(c, s->id, h, i * 4096 + j / NORMAL_MAX_ROW))[j % NORMAL_MAX_ROW];
        if (attn_bad_key(c, s, j) && !(i % 2 && c->nan == NAN_ONE_KEY))
            x = c->zero_bad ? 0.0 : c->nan == INF_ONE_KEY ? (double)INFINITY : (double)NAN;
        box_set(box, n, h, i, j, x);
    }
}

static void fill_descale(const struct attn_build *b, struct box *box, char which, int64_t kind)
{
    const struct attn_case *c = b->c;
    for (int64_t n = 0; n < c->b; n++)
        for (int64_t i = 0; i < (which == 'q' ? b->seqs[n].len_q : b->seqs[n].len_k); i++) {
            int64_t batch, row;
            if (which == 'q')
                attn_place_q(b, n, i, &batch, &row);
            else
                place_k(b, n, i, &batch, &row);
            if (kind < SCALE_ROW) {
                batch = box->t.shape[0] == 1 ? 0 : n;
                row = 0;
            }
            for (int64_t h = 0; h < box->t.shape[1]; h++)
                for (int64_t d = 0; d < box->t.shape[3]; d++) {
                    /* the value of any head that reads entry h; attn_descale collapses query heads itself */
                    const int64_t head = which == 'q' && box->t.shape[1] != c->hq ? h * (c->hq / c->hkv) : h;
                    const int64_t logical = which == 'q' ? b->seqs[n].first_row + i : i;
                    box_set(box, batch, h, row, d, attn_descale(c, which, kind, b->seqs[n].id, head, logical, d));
                }
        }
}

static void fill_mask(const struct attn_build *b, struct box *box, bool bias)
{
    const struct attn_case *c = b->c;
    for (int64_t n = 0; n < box->t.shape[0]; n++)
        for (int64_t h = 0; h < box->t.shape[1]; h++)
            for (int64_t i = 0; i < box->t.shape[2]; i++)
                for (int64_t j = 0; j < box->t.shape[3]; j++) {
                    /* beyond a sequence's lengths the mask keeps its poison */
                    if (box->t.shape[0] > 1 && ((box->t.shape[2] > 1 && i >= b->seqs[n].len_q) ||
                                                (box->t.shape[3] > 1 && j >= b->seqs[n].len_k)))
                        continue;
                    const struct sequence *s = &b->seqs[c->b ? n % c->b : 0];
                    const uint64_t id = c->b ? s->id : 0;
                    const int64_t row = i + (c->b ? s->first_row : 0);
                    box_set(box, n, h, i, j, bias ? attn_bias(c, id, h, row, j) : attn_keep(c, id, h, row, j) ? 1 : 0);
                }
}

static void fill_values(struct attn_build *b)
{
    const struct attn_case *c = b->c;
    for (int64_t n = 0; n < c->b; n++) {
        for (int64_t h = 0; h < c->hq; h++)
            for (int64_t i = 0; i < b->seqs[n].len_q; i++) {
                if (c->op == OP_SOFTMAX)
                    fill_softmax_row(b, &b->q, n, h, i);
                else
                    fill_row(b, &b->q, 'q', n, h, i);
            }
        for (int64_t h = 0; h < c->hkv && c->op != OP_SOFTMAX; h++)
            for (int64_t j = 0; j < b->seqs[n].len_k; j++) {
                fill_row(b, &b->k, 'k', n, h, j);
                fill_row(b, &b->v, 'v', n, h, j);
            }
    }
}

/* ---------------------------------------------------------------- whole builds */

static struct box *const *inputs_of(struct attn_build *b, struct box *list[9])
{
    struct box *const all[9] = { &b->q, &b->k, &b->v, &b->bias, &b->keep, &b->q_descale, &b->k_descale, &b->v_descale };
    memcpy(list, all, sizeof all);
    return list;
}

void attn_build_init(struct attn_build *b, const struct attn_case *c, struct sequence *seqs)
{
    *b = (struct attn_build){ .c = c, .seqs = seqs };
    const size_t n = (size_t)(c->b > 0 ? c->b : 1);
    b->start_q = calloc(n, sizeof *b->start_q);
    b->start_k = calloc(n, sizeof *b->start_k);
    b->pages = calloc(n * (size_t)(attn_max_pages(c) + 1), sizeof *b->pages);
    place_packed(b);
    make_qkv(b, c->page ? place_pages(b) : 0);
    make_outputs(b);
    fill_values(b);
    if (c->bias) {
        make_mask(b, &b->bias, c->bias, attn_bias_dtype(c), T_BIAS);
        fill_mask(b, &b->bias, true);
    }
    if (c->keep) {
        make_mask(b, &b->keep, c->keep, c->keep_u8 ? QATTN_DTYPE_U8 : QATTN_DTYPE_BOOL, T_KEEP);
        fill_mask(b, &b->keep, false);
    }
    const struct { struct box *box; int64_t kind; const struct box *of; enum tensor_id id; char which; } scales[3] = {
        { &b->q_descale, c->q_scale, &b->q, T_QS, 'q' }, { &b->k_descale, c->k_scale, &b->k, T_KS, 'k' },
        { &b->v_descale, c->v_scale, &b->v, T_VS, 'v' },
    };
    for (int i = 0; i < 3; i++)
        if (scales[i].kind) {
            make_descale(b, scales[i].box, scales[i].kind, scales[i].of, scales[i].id);
            fill_descale(b, scales[i].box, scales[i].which, scales[i].kind);
        }
    attn_build_params(b);
    struct box *list[9] = { 0 };
    inputs_of(b, list);
    for (int i = 0; list[i]; i++)
        if (list[i]->mem)
            box_snapshot(list[i]);
    attn_build_reset(b);
}

void attn_build_reset(struct attn_build *b)
{
    struct box *const outputs[] = { &b->o, &b->lse, &b->scores };
    for (int i = 0; i < 3; i++)
        if (outputs[i]->mem) {
            box_poison(outputs[i], POISON_OUTPUT);
            if (i == 0 && b->c->in_place)
                memcpy(b->o.mem, b->q.mem, b->o.bytes);      /* y is x: o holds a copy of x, and is both */
            box_snapshot(outputs[i]);
        }
}

void attn_build_free(struct attn_build *b)
{
    struct box *list[9] = { 0 };
    inputs_of(b, list);
    for (int i = 0; list[i]; i++)
        box_free(list[i]);
    box_free(&b->o);
    box_free(&b->lse);
    box_free(&b->scores);
    struct scratch *const arrays[] = { &b->cu_q, &b->cu_k, &b->used_q, &b->used_k, &b->offsets, &b->table, &b->sinks,
                                       &b->slopes };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        scratch_free(arrays[i]);
    free(b->start_q);
    free(b->start_k);
    free(b->pages);
}

int32_t attn_build_problem(const struct attn_build *b, struct problem *p, int32_t num_threads)
{
    if (b->c->op == OP_SOFTMAX) {
        qattn_softmax_params params = b->softmax;
        params.num_threads = num_threads;
        return qattn__problem_softmax(p, b->c->in_place ? &b->o.t : &b->q.t, &b->o.t, &params, false, false);
    }
    qattn_attn_params params = b->attn;
    params.num_threads = num_threads;
    return qattn__problem_attention(p, b->c->op, &b->q.t, &b->k.t, &b->v.t, &b->o.t, &params, false);
}

void attn_build_regions(const struct attn_build *b, struct gpu_regions *regions)
{
    const struct box *const boxes[] = { &b->q, &b->k, &b->v, &b->o, &b->lse, &b->bias, &b->keep, &b->scores,
                                        &b->q_descale, &b->k_descale, &b->v_descale };
    const struct scratch *const arrays[] = { &b->cu_q,    &b->cu_k,  &b->used_q, &b->used_k,
                                             &b->offsets, &b->table, &b->sinks,  &b->slopes };
    for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++)
        gpu_add_box(regions, boxes[i]);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        gpu_add(regions, arrays[i]->data, arrays[i]->bytes);
}

const char *attn_build_changed_input(const struct attn_build *b)
{
    const struct { const struct box *box; const char *name; } all[] = {
        { &b->q, "q" }, { &b->k, "k" }, { &b->v, "v" }, { &b->bias, "bias" }, { &b->keep, "keep" },
        { &b->q_descale, "q_descale" }, { &b->k_descale, "k_descale" }, { &b->v_descale, "v_descale" },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].box->mem && !box_intact(all[i].box))
            return all[i].name;
    return NULL;
}
