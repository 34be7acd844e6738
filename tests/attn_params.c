/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The arrays and params of a build: lengths, offsets, page tables, sinks, slopes. */
#include <limits.h>

#include "attn_build.h"

static struct scratch int_array(int64_t n) { return scratch_array((size_t)(n > 0 ? n : 0) * sizeof(int32_t)); }
static int32_t *ints(const struct scratch *s) { return (int32_t *)(void *)s->data; }

static void make_arrays(struct attn_build *b)
{
    const struct attn_case *c = b->c;
    const int64_t columns = attn_max_pages(c), pitch = columns + (c->lay >= 4 ? 3 : 0);
    b->cu_q = int_array(c->b + 1);
    b->cu_k = int_array(c->b + 1);
    b->used_q = int_array(c->b);
    b->used_k = int_array(c->b);
    b->offsets = int_array(c->b);
    b->table = int_array(c->b ? pitch * (c->b - 1) + columns : 0);
    ints(&b->cu_q)[0] = ints(&b->cu_k)[0] = (int32_t)c->lead;
    for (int64_t n = 0; n < c->b; n++) {
        ints(&b->cu_q)[n + 1] = (int32_t)(b->start_q[n] + b->seqs[n].slot_q);
        ints(&b->cu_k)[n + 1] = (int32_t)(b->start_k[n] + b->seqs[n].slot_k);
        ints(&b->used_q)[n] = b->seqs[n].used_q;
        ints(&b->used_k)[n] = b->seqs[n].used_k;
        ints(&b->offsets)[n] = b->seqs[n].q_off;
        for (int64_t x = 0; x < columns; x++) {
            const int32_t page = b->pages[n * columns + x];
            ints(&b->table)[n * pitch + x] = page >= 0 ? page : x % 2 ? INT32_MAX : INT32_MIN;   /* never read */
        }
    }
    b->attn.page_table_stride = c->page && c->lay >= 4 ? pitch : 0;
    const int64_t slope_pitch = c->alibi == 3 ? c->hq + 2 : c->hq;
    b->sinks = scratch_array((size_t)c->hq * sizeof(float));
    b->slopes = scratch_array(
        (size_t)(c->alibi >= 2 && c->b ? slope_pitch * (c->b - 1) + c->hq : c->hq) * sizeof(float));
    for (int64_t h = 0; h < c->hq; h++) {
        ((float *)(void *)b->sinks.data)[h] = (float)attn_sink(c, h);
        for (int64_t n = 0; n < (c->alibi >= 2 ? c->b : 1); n++)
            ((float *)(void *)b->slopes.data)[n * slope_pitch + h] =
                (float)attn_slope(c, c->b ? b->seqs[n].id : 0, h);
    }
    b->attn.alibi_batch_stride = c->alibi >= 2 ? slope_pitch : 0;
}

static void fill_params(struct attn_build *b)
{
    const struct attn_case *c = b->c;
    qattn_attn_params *p = &b->attn;
    p->struct_size = sizeof *p;
    p->flags = (c->as_given ? QATTN_FLAG_SCALE_AS_GIVEN : 0u) | (c->invariant ? QATTN_FLAG_BATCH_INVARIANT : 0u) |
               (c->base2 ? QATTN_FLAG_LSE_BASE2 : 0u);
    p->scale = (float)c->scale;
    p->softcap = (float)c->softcap;
    p->mask = (c->causal ? QATTN_MASK_CAUSAL : 0u) | (attn_window(c) ? QATTN_MASK_WINDOW : 0u) |
              (c->top_left ? QATTN_MASK_TOP_LEFT : 0u) | (c->offset ? QATTN_MASK_OFFSET : 0u);
    p->window_left = attn_window(c) ? (c->left == -2 ? -1 : c->left) : 0;
    p->window_right = attn_window(c) ? (c->right == -2 ? -1 : c->right) : 0;
    p->q_offset = c->offset ? c->q_off : 0;
    p->q_offsets = c->offset == 2 ? ints(&b->offsets) : NULL;
    p->cu_seqlens_q = c->packed_q ? ints(&b->cu_q) : NULL;
    p->cu_seqlens_k = c->packed_k ? ints(&b->cu_k) : NULL;
    p->seqused_q = c->used_q ? ints(&b->used_q) : NULL;
    p->seqused_k = c->used_k || c->page ? ints(&b->used_k) : NULL;
    p->num_seqs = c->packed_q ? c->b : 0;
    p->max_seqlen_q = c->max_q;
    p->max_seqlen_k = c->max_k;
    p->page_table = c->page ? ints(&b->table) : NULL;
    p->max_pages = attn_max_pages(c);
    p->precision = (int32_t)c->precision;
    p->num_splits = (int32_t)c->splits;
    p->scores_stage = (int32_t)c->stage;
    p->sinks = c->sinks ? (const float *)(const void *)b->sinks.data : NULL;
    p->alibi_slopes = c->alibi ? (const float *)(const void *)b->slopes.data : NULL;
    p->alibi_batch_stride = c->alibi ? p->alibi_batch_stride : 0;
    p->lse = b->lse.t;
    p->bias = b->bias.t;
    p->keep = b->keep.t;
    p->scores = b->scores.t;
    p->q_descale = b->q_descale.t;
    p->k_descale = b->k_descale.t;
    p->v_descale = b->v_descale.t;
    b->softmax = (qattn_softmax_params){
        .struct_size = sizeof b->softmax, .flags = p->flags, .scale = p->scale, .softcap = p->softcap,
        .mask = p->mask, .window_left = p->window_left, .window_right = p->window_right, .q_offset = p->q_offset,
        .q_offsets = p->q_offsets, .seqused_q = p->seqused_q, .seqused_k = p->seqused_k, .sinks = p->sinks,
        .alibi_slopes = p->alibi_slopes, .alibi_batch_stride = p->alibi_batch_stride, .lse = p->lse,
        .bias = p->bias, .keep = p->keep,
    };
}

void attn_build_params(struct attn_build *b)
{
    make_arrays(b);
    fill_params(b);
}
