/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include <string.h>

#include "fuzz_call.h"

static const int64_t odd_values[] = {
    0, 1, -1, 2, 3, 4, 7, 8, 16, 63, 64, 65, 96, 255, 256, 1023, 1024, 1025, 4096, 65535, 65536, INT32_MAX, INT32_MIN,
    (int64_t)1 << 31, (int64_t)1 << 32, ((int64_t)1 << 32) + 1, (int64_t)1 << 62, INT64_MAX, INT64_MIN, -2, -8,
    0x7F800000 /* inf */, 0x7FC00000 /* NaN */, 0x022001, 0x021001, 0x041001, 0x0A0801, 0x000801, 0x060801,
};

static int64_t take_odd(struct bytes *in)
{
    const int64_t count = (int64_t)(sizeof odd_values / sizeof *odd_values);
    const int64_t i = take_below(in, count + 8);
    return i < count ? odd_values[i] : take_u8(in);
}

static void mutate_tensor(struct call *c, struct bytes *in)
{
    qattn_tensor *tensors[MAX_TENSORS];
    const int count = call_tensors(c, tensors);
    qattn_tensor *t = tensors[take_below(in, count)];
    const int64_t value = take_odd(in);
    switch (take_below(in, 14)) {
    case 0:  t->data = NULL; break;
    case 1:  t->data = t->data ? (char *)t->data + take_below(in, 9) - 4 : NULL; break;
    case 2:  t->data = tensors[take_below(in, count)]->data; break;
    case 3:  t->dtype = (int32_t)value; break;
    case 4:  t->device_type = (int32_t)value; break;
    case 5:  t->device_id = (int32_t)value; break;
    case 6:  t->reserved0 = (int32_t)value; break;
    case 7:  t->reserved1 = (uint64_t)value; break;
    case 8:  *t = *tensors[take_below(in, count)]; break;
    case 9:
    case 10: t->shape[take_below(in, 4)] = value; break;
    default: t->stride[take_below(in, 4)] = value; break;
    }
}

/* Any 4 or 8 bytes of the params, whatever field they are. */
static void mutate_params(struct call *c, struct bytes *in)
{
    const int64_t value = take_odd(in);
    const size_t words = c->params_size / 4;
    const size_t at = 4 * ((take_u8(in) * 256u + take_u8(in)) % words);
    const size_t size = take_chance(in, 2) && at + 8 <= c->params_size ? 8 : 4;
    memcpy((char *)&c->params + at, &value, size);
}

void call_mutate(struct call *c, struct bytes *in)
{
    const int64_t how = take_below(in, 8);
    if (how < 4)
        return;
    for (int64_t i = 4; i <= how; i++) {
        if (take_chance(in, 2))
            mutate_params(c, in);
        else
            mutate_tensor(c, in);
    }
    if (c->op == OP_MERGE && take_chance(in, 8))
        c->num_parts = take_odd(in);
    c->comparable = false;
}

/* ---------------------------------------------------------------- containment */

typedef __int128 wide;

/* An element count times a small size, inside the block that p points into. NULL is the library's to refuse. */
static bool holds(struct call *c, const void *p, wide count, size_t size)
{
    if (!p || count <= 0)
        return true;
    return count < 1 << 24 && call_find(c, p, (size_t)count * size);
}

static bool tensor_contained(struct call *c, const qattn_tensor *t)
{
    wide low = 0, high = 0;
    const int32_t size = qattn__dtype_size(t->dtype);
    if (!t->data || size == 0)
        return true;
    for (int i = 0; i < 4; i++) {
        if (t->shape[i] <= 0)
            return true;                /* empty, or negative and refused */
        const wide reach = (wide)(t->shape[i] - 1) * t->stride[i];
        low += reach < 0 ? reach : 0;
        high += reach > 0 ? reach : 0;
    }
    if (low < -(1 << 24) || high > 1 << 24)
        return false;
    const size_t bytes = (size_t)((int64_t)(high - low) + 1) * (size_t)size;
    return call_find(c, (char *)t->data + (int64_t)low * size, bytes) != NULL;
}

/* Product of the axes, saturating. */
static wide volume(const qattn_tensor *t)
{
    wide product = 1;
    for (int i = 0; i < 4; i++) {
        const int64_t n = t->shape[i];
        if (n <= 0)
            return 0;
        product = product > (1 << 24) / n ? 1 << 24 : product * n;
    }
    return product;
}

static bool attention_arrays_contained(struct call *c)
{
    const qattn_attn_params *p = &c->params.attn;
    const wide n = p->cu_seqlens_q ? p->num_seqs : c->a.shape[0], hq = c->a.shape[1];
    const wide stride = p->page_table_stride ? p->page_table_stride : p->max_pages;
    const wide alibi = hq + (n > 0 ? (n - 1) * p->alibi_batch_stride : 0);
    /* what bounds the work: sequences, keys a row may see, splits */
    if (n > 64 || p->num_splits > 64 || (p->page_table && p->max_pages > 4096) || c->b.shape[2] > 4096)
        return false;
    return holds(c, p->q_offsets, n, 4) && holds(c, p->cu_seqlens_q, n + 1, 4) && holds(c, p->cu_seqlens_k, n + 1, 4) &&
        holds(c, p->seqused_q, n, 4) && holds(c, p->seqused_k, n, 4) &&
        holds(c, p->page_table, n > 0 ? (n - 1) * stride + p->max_pages : 0, 4) && holds(c, p->sinks, hq, 4) &&
        holds(c, p->alibi_slopes, alibi, 4);
}

static bool softmax_arrays_contained(struct call *c)
{
    const qattn_softmax_params *p = &c->params.softmax;
    const wide n = c->a.shape[0], h = c->a.shape[1];
    return holds(c, p->q_offsets, n, 4) && holds(c, p->seqused_q, n, 4) && holds(c, p->seqused_k, n, 4) &&
        holds(c, p->sinks, h, 4) && holds(c, p->alibi_slopes, h + (n > 0 ? (n - 1) * p->alibi_batch_stride : 0), 4);
}

bool call_is_contained(struct call *c)
{
    qattn_tensor *tensors[MAX_TENSORS];
    const int count = call_tensors(c, tensors);
    const int32_t threads = c->op == OP_MATMUL || c->op == OP_MATMUL_NT ? c->params.matmul.num_threads :
        c->op == OP_SOFTMAX ? c->params.softmax.num_threads :
        c->op == OP_MERGE ? c->params.merge.num_threads : c->params.attn.num_threads;
    /* workspace is the second pointer of every params struct; fuzz_args.c sets it, so anything else is a mutation */
    if (c->params.attn.workspace || threads > 8)
        return false;
    if (c->op == OP_MERGE && (c->num_parts > MAX_FUZZ_PARTS))
        return false;
    for (int i = 0; i < count; i++)
        if (!tensor_contained(c, tensors[i]) || volume(tensors[i]) > 1 << 18)
            return false;
    if (c->op == OP_SOFTMAX)
        return softmax_arrays_contained(c);
    if (c->op == OP_GQA_FORWARD || c->op == OP_FLASH_FORWARD)
        return attention_arrays_contained(c);
    return true;
}
