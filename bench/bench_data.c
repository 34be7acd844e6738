/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "bench_data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_device.h"
#include "core/convert.h"
#include "core/params.h"

/* ---------------------------------------------------------------- memory and values */

/* 256-byte aligned, zeroed; NULL for shapes only or when memory is out. */
static void *take_block(struct bench_data *d, size_t bytes)
{
    if (d->out_of_memory)
        return NULL;
    void *const block = aligned_alloc(256, bytes ? (bytes + 255) / 256 * 256 : 256);
    if (!block) {
        d->out_of_memory = true;
        return NULL;
    }
    memset(block, 0, bytes);
    d->block_bytes[d->num_blocks] = bytes;
    d->blocks[d->num_blocks++] = block;
    return block;
}

static uint64_t mix_bits(uint64_t z)
{
    z += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* About normal, variance 1: the sum of four uniform numbers of 16 bits. */
static float draw_normal(uint64_t seed, uint64_t i)
{
    const uint64_t z = mix_bits(seed * UINT64_C(0x100000001B3) + i);
    const uint64_t sum = (z & 0xFFFF) + (z >> 16 & 0xFFFF) + (z >> 32 & 0xFFFF) + (z >> 48);
    return (float)(((double)sum / 65536.0 - 2.0) * 1.7320508075688772);
}

/* A prime number of values is drawn and then repeated, so rows of any width differ. */
static void fill_normal(void *data, int64_t count, int32_t dtype, float factor, uint64_t seed)
{
    enum { PERIOD = 1048573 };
    const size_t item = (size_t)qattn__dtype_size(dtype);
    const int64_t drawn = count < PERIOD ? count : PERIOD;
    char *const bytes = data;
    for (int64_t i = 0; i < drawn; i++)
        qattn__store(bytes + (size_t)i * item, dtype, factor * draw_normal(seed, (uint64_t)i));
    for (int64_t i = drawn; i < count; i += drawn) {
        const int64_t part = count - i < drawn ? count - i : drawn;
        memcpy(bytes + (size_t)i * item, bytes, (size_t)part * item);
    }
}

/* A tensor packed in `layout`, filled with random values unless factor is 0. */
static void make_tensor(struct bench_data *d, qattn_tensor *t, int32_t dtype, int32_t layout, int64_t b,
                        int64_t h, int64_t s, int64_t width, float factor)
{
    if (qattn_tensor_init(t, NULL, dtype, QATTN_DEVICE_CPU, 0, layout, b, h, s, width) != QATTN_OK) {
        d->out_of_memory = true;                       /* sizes overflow */
        return;
    }
    const int64_t count = b * h * s * width;
    t->data = d->shapes_only ? NULL : take_block(d, (size_t)count * (size_t)qattn__dtype_size(dtype));
    if (t->data && factor != 0)
        fill_normal(t->data, count, dtype, factor, (uint64_t)d->num_blocks);
}

static void make_output(struct bench_data *d, qattn_tensor *t, int32_t dtype, int32_t layout, int64_t b,
                        int64_t h, int64_t s, int64_t width)
{
    make_tensor(d, t, dtype, layout, b, h, s, width, 0);
    d->out_block = t->data ? d->num_blocks - 1 : -1;
    d->out_bytes = t->data ? (size_t)(b * h * s * width) * (size_t)qattn__dtype_size(dtype) : 0;
}

/* I8 holds round(32 x): its descale is 1/32. */
static float stored_factor(int32_t dtype)
{
    return dtype == QATTN_DTYPE_I8 ? 32.0f : 1.0f;
}

static void make_descale(struct bench_data *d, qattn_tensor *t, int32_t dtype)
{
    float *const value = take_block(d, sizeof *value);
    if (value)
        *value = dtype == QATTN_DTYPE_I8 ? 1.0f / 32 : 1.0f;
    qattn_tensor_init(t, value, QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BHSD, 1, 1, 1, 1);
}

/* ---------------------------------------------------------------- attention */

/* Rows or keys of sequence n of a case. */
typedef int64_t length_of(const struct bench_case *c, int64_t n);

static const int32_t *make_starts(struct bench_data *d, const struct bench_case *c, length_of *length)
{
    int32_t *const starts = take_block(d, (size_t)(c->b + 1) * sizeof *starts);
    for (int64_t n = 0; starts && n < c->b; n++)
        starts[n + 1] = starts[n] + (int32_t)length(c, n);
    return starts;
}

static int64_t sum_lengths(const struct bench_case *c, length_of *length)
{
    int64_t sum = 0;
    for (int64_t n = 0; n < c->b; n++)
        sum += length(c, n);
    return sum;
}

/* Keys of a packed sequence: used_k shortens what is used of a slot, not the slot. */
static int64_t slot_keys(const struct bench_case *c, int64_t n)
{
    return c->ragged ? bench_case_keys(c, n) : c->sk;
}

static const int32_t *make_lengths(struct bench_data *d, const struct bench_case *c)
{
    int32_t *const lengths = take_block(d, (size_t)c->b * sizeof *lengths);
    for (int64_t n = 0; lengths && n < c->b; n++)
        lengths[n] = (int32_t)bench_case_keys(c, n);
    return lengths;
}

static int64_t common_divisor(int64_t x, int64_t y)
{
    while (y) {
        const int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return x;
}

/* Pages in a scattered order: entry i is i * step modulo the pool, step prime to the pool's size. */
static void make_pages(struct bench_data *d, const struct bench_case *c)
{
    qattn_attn_params *const p = &d->attn;
    p->max_pages = (c->sk + c->page - 1) / c->page;
    const int64_t total = c->b * p->max_pages;
    int64_t step = total / 2 + 1;
    while (common_divisor(step, total) > 1)
        step--;
    int32_t *const table = take_block(d, (size_t)total * sizeof *table);
    for (int64_t i = 0; table && i < total; i++)
        table[i] = (int32_t)(i * step % total);
    p->page_table = table;
}

static const float *make_floats(struct bench_data *d, int64_t n, float first, float ratio)
{
    float *const x = take_block(d, (size_t)n * sizeof *x);
    for (int64_t i = 0; x && i < n; i++, first *= ratio)
        x[i] = first;
    return x;
}

static void make_masks(struct bench_data *d, const struct bench_case *c)
{
    qattn_attn_params *const p = &d->attn;
    const int32_t bias_dtype = qattn__dtype_size(c->dtype) == 1 ? QATTN_DTYPE_F32 : c->dtype;
    const int64_t keys = c->page ? p->max_pages * c->page : c->sk;
    if (c->bias)
        make_tensor(d, &p->bias, bias_dtype, QATTN_LAYOUT_BHSD, 1, c->hq, c->sq, keys, 1);
    if (c->keep) {
        make_tensor(d, &p->keep, QATTN_DTYPE_U8, QATTN_LAYOUT_BHSD, 1, 1, c->sq, keys, 0);
        uint8_t *const keep = p->keep.data;
        for (int64_t i = 0; keep && i < c->sq * keys; i++)
            keep[i] = mix_bits((uint64_t)i) % 8 != 0;   /* one in eight hidden */
    }
    if (c->sinks)
        p->sinks = make_floats(d, c->hq, 1.0f, 1.0f);
    if (c->alibi)
        p->alibi_slopes = make_floats(d, c->hq, 0.5f, 0.75f);
    if (c->scores) {
        make_tensor(d, &p->scores, bias_dtype, QATTN_LAYOUT_BHSD, c->b, c->hq, c->sq, c->sk, 0);
        p->scores_stage = 3;
    }
}

static void make_lengths_arrays(struct bench_data *d, const struct bench_case *c)
{
    qattn_attn_params *const p = &d->attn;
    if (c->packed_q || c->packed_k) {
        p->num_seqs = c->b;
        p->max_seqlen_q = c->sq;
        p->max_seqlen_k = c->sk;
    }
    if (c->packed_q)
        p->cu_seqlens_q = make_starts(d, c, bench_case_rows);
    if (c->packed_k)
        p->cu_seqlens_k = make_starts(d, c, slot_keys);
    if (c->page)
        make_pages(d, c);
    if (c->page || c->used_k)
        p->seqused_k = make_lengths(d, c);
}

static void make_attention(struct bench_data *d, const struct bench_case *c)
{
    qattn_attn_params *const p = &d->attn;
    const int32_t q_layout = c->packed_q ? QATTN_LAYOUT_THD : c->layout;
    const int32_t k_layout = c->packed_k ? QATTN_LAYOUT_THD : c->layout;
    const int64_t q_b = c->packed_q ? 1 : c->b, q_s = c->packed_q ? sum_lengths(c, bench_case_rows) : c->sq;
    p->softcap = (float)c->softcap;
    p->mask = c->mask;
    p->flags = c->flags;
    if (c->mask & QATTN_MASK_WINDOW) {
        p->window_left = c->window_left;
        p->window_right = c->window_right;
    }
    p->num_splits = (int32_t)c->num_splits;
    p->precision = c->precision;
    make_lengths_arrays(d, c);
    const int64_t k_b = c->page ? c->b * p->max_pages : c->packed_k ? 1 : c->b;
    const int64_t k_s = c->page ? c->page : c->packed_k ? sum_lengths(c, slot_keys) : c->sk;
    const float kv_factor = stored_factor(c->kv_dtype);
    make_tensor(d, &d->in[0], c->dtype, q_layout, q_b, c->hq, q_s, c->d, stored_factor(c->dtype));
    make_tensor(d, &d->in[1], c->kv_dtype, k_layout, k_b, c->hkv, k_s, c->d, kv_factor);
    make_tensor(d, &d->in[2], c->kv_dtype, k_layout, k_b, c->hkv, k_s, c->dv, kv_factor);
    make_output(d, &d->out, c->out_dtype, q_layout, q_b, c->hq, q_s, c->dv);
    if (c->lse)
        make_tensor(d, &p->lse, QATTN_DTYPE_F32, QATTN_LAYOUT_BHSD, q_b, c->hq, q_s, 1, 0);
    make_masks(d, c);
    if (c->descale || c->kv_dtype == QATTN_DTYPE_I8) {
        make_descale(d, &p->k_descale, c->kv_dtype);
        make_descale(d, &p->v_descale, c->kv_dtype);
        if (qattn__dtype_size(c->dtype) == 1)
            make_descale(d, &p->q_descale, c->dtype);
    }
}

/* ---------------------------------------------------------------- the other operations */

static void make_matmul(struct bench_data *d, const struct bench_case *c)
{
    const bool nt = c->op == OP_MATMUL_NT;
    d->matmul.flags = c->flags;
    d->matmul.precision = c->precision;
    make_tensor(d, &d->in[0], c->dtype, c->layout, c->b, c->hq, c->sq, c->d, 1);
    if (nt)
        make_tensor(d, &d->in[1], c->dtype, c->layout, c->b, c->hkv, c->sk, c->d, 1);
    else
        make_tensor(d, &d->in[1], c->dtype, c->layout, c->b, c->hkv, c->d, c->sk, 1);
    make_output(d, &d->out, c->out_dtype, c->layout, c->b, c->hq, c->sq, c->sk);
}

static void make_softmax(struct bench_data *d, const struct bench_case *c)
{
    d->softmax.flags = c->flags;
    d->softmax.mask = c->mask;
    d->softmax.softcap = (float)c->softcap;
    make_tensor(d, &d->in[0], c->dtype, c->layout, c->b, c->hq, c->sq, c->sk, 1);
    make_output(d, &d->out, c->out_dtype, c->layout, c->b, c->hq, c->sq, c->sk);
}

static void make_merge(struct bench_data *d, const struct bench_case *c)
{
    const int64_t parts = c->parts < QATTN__MAX_PARTS ? c->parts : QATTN__MAX_PARTS;
    const int32_t f32 = QATTN_DTYPE_F32, bhsd = QATTN_LAYOUT_BHSD;
    d->merge.flags = c->flags;
    for (int64_t i = 0; i < parts; i++) {
        make_tensor(d, &d->part_o[i], c->dtype, c->layout, c->b, c->hq, c->sq, c->dv, 1);
        make_tensor(d, &d->part_lse[i], f32, bhsd, c->b, c->hq, c->sq, 1, 1);
    }
    make_output(d, &d->out, c->out_dtype, c->layout, c->b, c->hq, c->sq, c->dv);
    make_tensor(d, &d->out_lse, f32, bhsd, c->b, c->hq, c->sq, 1, 0);
}

/* ---------------------------------------------------------------- the case */

static void make_tensors(struct bench_data *d, const struct bench_case *c)
{
    switch (c->op) {
    case OP_MATMUL:
    case OP_MATMUL_NT: make_matmul(d, c); break;
    case OP_SOFTMAX:   make_softmax(d, c); break;
    case OP_MERGE:     make_merge(d, c); break;
    default:           make_attention(d, c);
    }
}

/* The checked problem of the tensors as they point now. */
static int32_t make_problem(struct bench_data *d, const struct bench_case *c, struct problem *p)
{
    const qattn_tensor *const in = d->in;
    const bool shapes = d->shapes_only;
    switch (c->op) {
    case OP_MATMUL:
    case OP_MATMUL_NT:
        return qattn__problem_matmul(p, c->op, &in[0], &in[1], &d->out, &d->matmul, shapes);
    case OP_SOFTMAX:
        return qattn__problem_softmax(p, &in[0], &d->out, &d->softmax, false, shapes);
    case OP_MERGE:
        return qattn__problem_merge(p, c->parts, d->part_o, d->part_lse, &d->out, &d->out_lse, &d->merge, shapes);
    default:
        return qattn__problem_attention(p, c->op, &in[0], &in[1], &in[2], &d->out, &d->attn, shapes);
    }
}

static int32_t make_all(struct bench_data *d, const struct bench_case *c)
{
    make_tensors(d, c);
    if (d->out_of_memory)
        return QATTN_ERR_OUT_OF_MEMORY;
    const int32_t status = make_problem(d, c, &d->host);
    d->problem = d->host;
    if (status != QATTN_OK || d->device_type == QATTN_DEVICE_CPU)
        return status;
    if (!bench_data_upload(d)) {
        d->out_of_memory = true;
        return QATTN_ERR_OUT_OF_MEMORY;
    }
    return make_problem(d, c, &d->problem);
}

bool bench_data_make(struct bench_data *out, const struct bench_case *c, int32_t device_type, int threads,
                     bool shapes_only, char *why, size_t cap)
{
    memset(out, 0, sizeof *out);
    out->shapes_only = shapes_only;
    out->device_type = device_type;
    out->out_block = -1;
    out->attn = (qattn_attn_params)QATTN_ATTN_PARAMS_INIT;
    out->matmul = (qattn_matmul_params)QATTN_MATMUL_PARAMS_INIT;
    out->softmax = (qattn_softmax_params)QATTN_SOFTMAX_PARAMS_INIT;
    out->merge = (qattn_merge_params)QATTN_MERGE_PARAMS_INIT;
    out->attn.num_threads = out->matmul.num_threads = threads;
    out->softmax.num_threads = out->merge.num_threads = threads;
    if (make_all(out, c) == QATTN_OK)
        return true;
    if (out->out_of_memory)
        snprintf(why, cap, "out of memory");
    else
        qattn_last_error(why, cap);
    bench_data_free(out);
    return false;
}

void bench_data_free(struct bench_data *d)
{
    for (int i = 0; i < d->num_blocks; i++) {
        free(d->blocks[i]);
        bench_device_free(d->mirrors[i]);
    }
    d->num_blocks = 0;
}

void bench_data_poison(const struct bench_data *d)
{
    if (d->out_block < 0)
        return;
    memset(d->blocks[d->out_block], 0xFF, d->out_bytes);
    if (d->mirrors[d->out_block])
        bench_device_upload(d->mirrors[d->out_block], d->blocks[d->out_block], d->out_bytes);
}

void bench_data_fetch(const struct bench_data *d)
{
    if (d->out_block >= 0 && d->mirrors[d->out_block])
        bench_device_download(d->blocks[d->out_block], d->mirrors[d->out_block], d->out_bytes);
}
