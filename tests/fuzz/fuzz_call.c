/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "fuzz_call.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/convert.h"

static uint64_t mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static void *add_block(struct call *c, size_t bytes, bool output)
{
    if (c->num_blocks == MAX_BLOCKS)
        abort();
    struct block *block = &c->blocks[c->num_blocks++];
    block->mem = malloc(bytes ? bytes : 1);
    block->before = malloc(bytes ? bytes : 1);
    if (!block->mem || !block->before)
        abort();
    block->bytes = bytes;
    block->output = output;
    memset(block->mem, 0xFF, bytes ? bytes : 1);     /* NaN in every floating format */
    return block->mem;
}

struct block *call_find(struct call *c, const void *p, size_t bytes)
{
    const uintptr_t first = (uintptr_t)p;
    for (int i = 0; i < c->num_blocks; i++) {
        const uintptr_t start = (uintptr_t)c->blocks[i].mem, end = start + c->blocks[i].bytes;
        if (first >= start && first <= end && bytes <= end - first)
            return &c->blocks[i];
    }
    return NULL;
}

void call_free(struct call *c)
{
    for (int i = 0; i < c->num_blocks; i++) {
        free(c->blocks[i].mem);
        free(c->blocks[i].before);
    }
    c->num_blocks = 0;
}

/* ---------------------------------------------------------------- tensors */

/* One element: mostly small, now and then what breaks kernels. */
static float odd_float(uint64_t bits, int kind)
{
    const float small = (float)(bits >> 40) * 0x1p-22f - 2.0f;
    static const float specials[] = { 0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-40f, 3e4f, -3e4f };
    if (kind == 0)
        return small;
    if (kind == 1)
        return bits % 16 == 0 ? specials[bits / 16 % 8] : small;
    return kind == 2 ? small * 100.0f : 1.0f;
}

static void fill_values(qattn_tensor *t, unsigned char *mem, size_t bytes, uint64_t seed, int kind)
{
    const int32_t size = qattn__dtype_size(t->dtype);
    for (size_t at = 0; at + (size_t)size <= bytes; at += (size_t)size) {
        const uint64_t bits = mix(seed + at);
        if (t->dtype == QATTN_DTYPE_BOOL || t->dtype == QATTN_DTYPE_U8)
            mem[at] = bits % 4 != 0;
        else if (t->dtype == QATTN_DTYPE_F32 || t->dtype == QATTN_DTYPE_F16 || t->dtype == QATTN_DTYPE_BF16)
            qattn__store(mem + at, t->dtype, odd_float(bits, kind));
        else
            memcpy(mem + at, &bits, (size_t)size);
    }
}

/* A tensor in any axis order, with padding, a step, flips and (inputs) stride 0; sets data to its own block. */
static qattn_tensor make_tensor(struct call *c, struct bytes *in, int32_t dtype, const int64_t shape[4], bool output)
{
    static const uint8_t orders[6][4] = {
        { 3, 2, 1, 0 }, { 3, 1, 2, 0 }, { 3, 1, 0, 2 }, { 2, 3, 1, 0 }, { 0, 1, 2, 3 }, { 3, 2, 0, 1 },
    };
    const uint8_t how = take_u8(in), pads = take_u8(in), flips = take_u8(in);
    const uint8_t *order = orders[how % 6];
    qattn_tensor t = { .dtype = dtype, .device_type = QATTN_DEVICE_CPU };
    int64_t extent = 1 + (how / 6 % 8 == 7);         /* fastest axis: step 1, or 2 */
    int64_t low = 0, high = 0;
    bool empty = false;
    for (int i = 0; i < 4; i++) {
        const int axis = order[i];
        const int64_t n = shape[axis];
        t.shape[axis] = n;
        t.stride[axis] = extent;
        if (!output && how > 240 && i == pads % 4)
            t.stride[axis] = 0;
        else
            extent = extent * (n > 0 ? n : 1) + (pads >> (2 * i) & 3) * (how & 1);
        if (flips % 4 == 3 && (flips >> (2 + i) & 1))
            t.stride[axis] = -t.stride[axis];
        empty |= n == 0;
        const int64_t reach = (n > 0 ? n - 1 : 0) * t.stride[axis];
        low += reach < 0 ? reach : 0;
        high += reach > 0 ? reach : 0;
    }
    const int32_t size = qattn__dtype_size(dtype);
    const size_t bytes = empty ? 0 : (size_t)(high - low + 1) * (size_t)size;
    unsigned char *mem = add_block(c, bytes, output);
    if (!output)
        fill_values(&t, mem, bytes, (uint64_t)take_u8(in) << 20, (int)take_below(in, 4));
    t.data = mem + (empty ? 0 : -low * size);
    return t;
}

/* A tensor whose axes are those of shape, or 1. */
static qattn_tensor make_broadcast(struct call *c, struct bytes *in, int32_t dtype, const int64_t shape[4])
{
    const uint8_t full = take_u8(in);
    int64_t s[4];
    for (int i = 0; i < 4; i++)
        s[i] = full >> i & 1 ? shape[i] : 1;
    return make_tensor(c, in, dtype, s, false);
}

/* ---------------------------------------------------------------- arrays */

/* count int32 in [low, high], or (rarely) anything. */
static const int32_t *make_lengths(struct call *c, struct bytes *in, int64_t count, int64_t low, int64_t high)
{
    int32_t *x = add_block(c, (size_t)count * sizeof *x, false);
    const bool wild = take_chance(in, 16);
    c->comparable &= !wild;
    for (int64_t i = 0; i < count; i++)
        x[i] = wild ? (int32_t)mix(take_u8(in)) : (int32_t)(low + take_below(in, high - low + 1));
    return x;
}

/* Starts of packed sequences: ascending to at most total, or (rarely) anything. */
static const int32_t *make_starts(struct call *c, struct bytes *in, int64_t num_seqs, int64_t total)
{
    int32_t *x = add_block(c, (size_t)(num_seqs + 1) * sizeof *x, false);
    const bool wild = take_chance(in, 16);
    int64_t at = take_chance(in, 4) ? take_below(in, total + 1) : 0;
    c->comparable &= !wild;
    for (int64_t i = 0; i <= num_seqs; i++) {
        x[i] = wild ? (int32_t)mix(take_u8(in)) : (int32_t)at;
        at += take_below(in, total - at + 1);
    }
    return x;
}

static const float *make_floats(struct call *c, struct bytes *in, int64_t count)
{
    float *x = add_block(c, (size_t)count * sizeof *x, false);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)take_u8(in) / 64.0f - 2.0f;
    return x;
}

/* ---------------------------------------------------------------- operations */

/* 0 .. most, small ones more often. */
static int64_t take_size(struct bytes *in, int64_t most)
{
    const int64_t n = take_below(in, most + 4);
    if (n > most)
        return 1;
    return take_chance(in, 4) ? n : n % 12;
}

static int32_t take_float_type(struct bytes *in)
{
    static const int32_t types[4] = { QATTN_DTYPE_F32, QATTN_DTYPE_F16, QATTN_DTYPE_BF16, QATTN_DTYPE_F32 };
    return types[take_below(in, 4)];
}

static uint64_t take_flags(struct bytes *in, uint64_t allowed)
{
    return take_chance(in, 3) ? take_u8(in) & allowed : 0;
}

static void make_matmul(struct call *c, struct bytes *in)
{
    qattn_matmul_params *p = &c->params.matmul;
    const int32_t type = take_float_type(in);
    const int64_t hb = 1 + take_below(in, 2), group = 1 + take_below(in, 3);
    const int64_t b = take_size(in, 2), m = take_size(in, 70), n = take_size(in, 70), k = take_size(in, 70);
    const int64_t sa[4] = { b, hb * group, m, k }, sc[4] = { b, hb * group, m, n };
    const int64_t sb[4] = { b, hb, c->op == OP_MATMUL ? k : n, c->op == OP_MATMUL ? n : k };
    c->params_size = p->struct_size = sizeof *p;
    p->flags = take_flags(in, 1 | 2);
    p->alpha = (float)take_below(in, 5) / 2.0f - 1.0f;
    p->beta = take_chance(in, 2) ? 0.5f : 0.0f;
    p->num_threads = (int32_t)take_below(in, 4);
    c->a = make_tensor(c, in, type, sa, false);
    c->b = make_tensor(c, in, type, sb, false);
    c->c = make_tensor(c, in, take_chance(in, 2) ? QATTN_DTYPE_F32 : type, sc, true);
    if (p->beta != 0.0f) {
        struct block *block = &c->blocks[c->num_blocks - 1];
        fill_values(&c->c, block->mem, block->bytes, 7, 0);
    }
}

/* mask, windows and offsets: the same fields in two structs. */
#define MAKE_POSITION(c, in, p, n) \
    do { \
        (p)->mask = (uint32_t)take_below(in, 8) & ~(uint32_t)(take_chance(in, 2) ? 4 : 0); \
        if (!((p)->mask & QATTN_MASK_TOP_LEFT) && take_chance(in, 4)) { \
            (p)->mask |= QATTN_MASK_OFFSET; \
            (p)->q_offset = take_below(in, 60) - 30; \
            if (take_chance(in, 3)) \
                (p)->q_offsets = make_lengths(c, in, n, 0, 50); \
        } \
        (p)->window_left = take_below(in, 24) - 1; \
        (p)->window_right = take_below(in, 24) - 1; \
        (p)->scale = take_chance(in, 3) ? (float)take_u8(in) / 100.0f - 1.0f : 0.0f; \
        (p)->softcap = take_chance(in, 4) ? 5.0f : 0.0f; \
        (p)->num_threads = (int32_t)take_below(in, 4); \
    } while (0)

static void make_softmax(struct call *c, struct bytes *in)
{
    qattn_softmax_params *p = &c->params.softmax;
    const int32_t type = take_float_type(in);
    const int64_t shape[4] = { take_size(in, 2), take_size(in, 3), take_size(in, 40), take_size(in, 150) };
    const int64_t lse[4] = { shape[0], shape[1], shape[2], 1 };
    c->params_size = p->struct_size = sizeof *p;
    p->flags = take_flags(in, 1 | 2 | 4);
    MAKE_POSITION(c, in, p, shape[0]);
    c->causal_twin = take_chance(in, 3);
    c->a = make_tensor(c, in, type, shape, false);
    c->b = make_tensor(c, in, take_chance(in, 2) ? QATTN_DTYPE_F32 : type, shape, true);
    if (take_chance(in, 2))
        p->lse = make_tensor(c, in, QATTN_DTYPE_F32, lse, true);
    if (take_chance(in, 4))
        p->bias = make_broadcast(c, in, take_float_type(in), shape);
    if (take_chance(in, 4))
        p->keep = make_broadcast(c, in, QATTN_DTYPE_BOOL, shape);
    if (take_chance(in, 4))
        p->seqused_q = make_lengths(c, in, shape[0], 0, shape[2]);
    if (take_chance(in, 4))
        p->seqused_k = make_lengths(c, in, shape[0], 0, shape[3]);
    if (take_chance(in, 4))
        p->sinks = make_floats(c, in, shape[1]);
    if (take_chance(in, 4)) {
        p->alibi_batch_stride = take_chance(in, 2) ? shape[1] : 0;
        p->alibi_slopes = make_floats(c, in, p->alibi_batch_stride ? shape[0] * shape[1] : shape[1]);
    }
}

static void take_attention_types(struct bytes *in, int32_t *q, int32_t *kv, int32_t *o)
{
    static const int32_t bytes8[3] = { QATTN_DTYPE_E4M3FN, QATTN_DTYPE_E5M2, QATTN_DTYPE_I8 };
    *q = *kv = take_float_type(in);
    const int64_t narrow = take_below(in, 8);
    if (narrow >= 6)
        *kv = bytes8[take_below(in, 3)];
    if (narrow == 6 && *q == QATTN_DTYPE_F32)
        *q = QATTN_DTYPE_BF16;
    if (narrow == 7)
        *q = *kv;
    *o = take_chance(in, 2) || *q == QATTN_DTYPE_F32 ? QATTN_DTYPE_F32 : narrow == 7 ? QATTN_DTYPE_F16 : *q;
}

static qattn_tensor make_descale(struct call *c, struct bytes *in, int64_t n, const qattn_tensor *of)
{
    const bool per_row = take_chance(in, 3);
    const int64_t s[4] = { per_row ? of->shape[0] : take_chance(in, 2) ? n : 1, take_chance(in, 2) ? of->shape[1] : 1,
                           per_row ? of->shape[2] : 1, 1 };
    return make_tensor(c, in, QATTN_DTYPE_F32, s, false);
}

/* As many of `rows` as the oracle can do in a fraction of a second, under sanitizers, for each row of the table. */
static int64_t affordable(int64_t rows, int64_t work)
{
    enum { MOST = 1 << 20 };
    while (rows > 1 && rows * work > MOST)
        rows = (rows + 1) / 2;
    return rows;
}

static void make_attention(struct call *c, struct bytes *in)
{
    qattn_attn_params *p = &c->params.attn;
    int32_t tq, tkv, to;
    take_attention_types(in, &tq, &tkv, &to);
    const bool flash = c->op == OP_FLASH_FORWARD;
    const bool packed_q = flash && take_chance(in, 3), paged = flash && take_chance(in, 3);
    const bool packed_k = flash && packed_q && !paged && take_chance(in, 2);
    const int64_t n = take_size(in, 3), hkv = 1 + take_below(in, 2), hq = hkv * (1 + take_below(in, 4));
    const int64_t rows = take_size(in, 40), sk = take_size(in, 140), d = take_size(in, 72), dv = take_size(in, 72);
    const int64_t max_pages = take_size(in, 6), page_size = 1 + take_below(in, 20), num_pages = 1 + take_below(in, 6);
    const int64_t keys = paged ? max_pages * page_size : sk, sq = affordable(rows, n * hq * keys * (d + dv));
    const int64_t q[4] = { packed_q ? 1 : n, hq, sq, d }, o[4] = { q[0], hq, sq, dv }, lse[4] = { q[0], hq, sq, 1 };
    const int64_t kb = paged ? num_pages : packed_k ? 1 : n, ks = paged ? page_size : sk;
    const int64_t k[4] = { kb, hkv, ks, d }, v[4] = { kb, hkv, ks, dv };
    const int64_t scores[4] = { n, hq, sq, keys };

    c->params_size = p->struct_size = sizeof *p;
    p->flags = take_flags(in, 1 | 2 | 4);
    MAKE_POSITION(c, in, p, n);
    c->a = make_tensor(c, in, tq, q, false);
    c->b = make_tensor(c, in, tkv, k, false);
    c->c = make_tensor(c, in, tkv, v, false);
    c->d = make_tensor(c, in, to, o, true);
    if (packed_q) {
        p->num_seqs = n;
        p->cu_seqlens_q = make_starts(c, in, n, sq);
    }
    if (packed_k)
        p->cu_seqlens_k = make_starts(c, in, n, sk);
    if (paged) {
        p->max_pages = max_pages;
        p->page_table_stride = take_chance(in, 2) ? max_pages + 2 : 0;
        const int64_t stride = p->page_table_stride ? p->page_table_stride : max_pages;
        p->page_table = make_lengths(c, in, n > 0 ? (n - 1) * stride + max_pages : 0, 0, num_pages - 1);
    }
    if (paged || take_chance(in, 4))
        p->seqused_k = make_lengths(c, in, n, 0, keys < 200 ? keys : 200);
    if (take_chance(in, 4))
        p->seqused_q = make_lengths(c, in, n, 0, sq);
    if (take_chance(in, 4))
        p->max_seqlen_q = take_below(in, 50);
    if (take_chance(in, 4))
        p->max_seqlen_k = take_below(in, 150);
    if (take_chance(in, 2))
        p->lse = make_tensor(c, in, QATTN_DTYPE_F32, lse, true);
    if (!packed_q && !packed_k && take_chance(in, 4))
        p->bias = make_broadcast(c, in, take_float_type(in), scores);
    if (!packed_q && !packed_k && take_chance(in, 4))
        p->keep = make_broadcast(c, in, QATTN_DTYPE_U8, scores);
    if (!flash && take_chance(in, 3)) {
        p->scores_stage = (int32_t)take_below(in, 4);
        p->scores = make_tensor(c, in, QATTN_DTYPE_F32, scores, true);
    }
    if (take_chance(in, 4))
        p->sinks = make_floats(c, in, hq);
    if (take_chance(in, 4)) {
        p->alibi_batch_stride = take_chance(in, 2) ? hq : 0;
        p->alibi_slopes = make_floats(c, in, p->alibi_batch_stride ? n * hq : hq);
    }
    if (qattn__dtype_size(tq) == 1 && take_chance(in, 2))
        p->q_descale = make_descale(c, in, n, &c->a);
    if (qattn__dtype_size(tkv) == 1 && take_chance(in, 2))
        p->k_descale = make_descale(c, in, n, &c->b);
    if (qattn__dtype_size(tkv) == 1 && take_chance(in, 2))
        p->v_descale = make_descale(c, in, n, &c->c);
    if (flash && !(p->flags & QATTN_FLAG_BATCH_INVARIANT) && take_chance(in, 4))
        p->num_splits = (int32_t)take_below(in, 6);
}

static void make_merge(struct call *c, struct bytes *in)
{
    qattn_merge_params *p = &c->params.merge;
    const int32_t type = take_float_type(in);
    const int64_t o[4] = { take_size(in, 2), take_size(in, 3), take_size(in, 20), take_size(in, 70) };
    const int64_t lse[4] = { o[0], o[1], o[2], 1 };
    c->params_size = p->struct_size = sizeof *p;
    p->flags = take_flags(in, 2 | 4);
    p->num_threads = (int32_t)take_below(in, 4);
    c->num_parts = 1 + take_below(in, MAX_FUZZ_PARTS);
    for (int64_t i = 0; i < c->num_parts; i++) {
        c->o_parts[i] = make_tensor(c, in, type, o, false);
        c->lse_parts[i] = make_tensor(c, in, QATTN_DTYPE_F32, lse, false);
    }
    c->c = make_tensor(c, in, take_chance(in, 2) ? QATTN_DTYPE_F32 : type, o, true);
    c->d = make_tensor(c, in, QATTN_DTYPE_F32, lse, true);
}

void call_make(struct call *c, struct bytes *in)
{
    memset(c, 0, sizeof *c);
    c->comparable = true;
    c->op = (enum op)(take_u8(in) % 8 % OP_COUNT);
    switch (c->op) {
    case OP_MATMUL:
    case OP_MATMUL_NT: make_matmul(c, in); break;
    case OP_SOFTMAX:   make_softmax(c, in); break;
    case OP_MERGE:     make_merge(c, in); break;
    default:
        c->op = take_chance(in, 3) ? OP_GQA_FORWARD : OP_FLASH_FORWARD;
        make_attention(c, in);
        break;
    }
}

int call_tensors(struct call *c, qattn_tensor *out[MAX_TENSORS])
{
    int count = 0;
    qattn_tensor *const operands[4] = { &c->a, &c->b, &c->c, &c->d };
    for (int i = 0; i < 4; i++)
        out[count++] = operands[i];
    for (int64_t i = 0; c->op == OP_MERGE && i < MAX_FUZZ_PARTS; i++) {
        out[count++] = &c->o_parts[i];
        out[count++] = &c->lse_parts[i];
    }
    if (c->op == OP_SOFTMAX) {
        out[count++] = &c->params.softmax.lse;
        out[count++] = &c->params.softmax.bias;
        out[count++] = &c->params.softmax.keep;
    } else if (c->op == OP_GQA_FORWARD || c->op == OP_FLASH_FORWARD) {
        qattn_attn_params *p = &c->params.attn;
        qattn_tensor *const extra[7] = { &p->lse, &p->bias, &p->keep, &p->scores, &p->q_descale, &p->k_descale,
                                         &p->v_descale };
        for (int i = 0; i < 7; i++)
            out[count++] = extra[i];
    }
    return count;
}
