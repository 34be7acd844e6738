/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * One sequence of a (possibly packed, padded or paged) batch: where its rows and keys lie and which keys a row
 * sees. The only reader of the length, offset and page arrays, on CPU and in CUDA kernels alike; everything it
 * returns is clamped into the tensors (contents of arrays are not trusted).
 */
#ifndef QATTN_CORE_SEQ_H
#define QATTN_CORE_SEQ_H

#include "core/problem.h"

struct seq {
    int64_t n;           /* index of the sequence */
    int64_t q_batch, q_row;   /* its row i is [q_batch, h, q_row + i, :] of q, o, lse, scores */
    int64_t rows;        /* rows to write: 0 .. rows-1 */
    int64_t len_q;       /* rows that are queries; rows len_q .. rows-1 get O = 0, LSE = -inf */
    int64_t k_batch, k_row;   /* its key j is [k_batch, h, k_row + j, :] of k and v, unless paged */
    int64_t len_k;       /* keys: 0 .. len_k-1 */
    int64_t offset;      /* pos(i) = i + offset */
};

QATTN_HD static inline int64_t clamp64(int64_t x, int64_t lo, int64_t hi) { return x < lo ? lo : x > hi ? hi : x; }

/* The position of query 0 among the keys of sequence n; n matters with q_offsets alone. */
QATTN_HD static inline int64_t seq_offset(const struct problem *p, int64_t n, int64_t len_q, int64_t len_k)
{
    switch (p->position) {
    case POSITION_TOP_LEFT: return 0;
    case POSITION_OFFSET:   return p->q_offsets ? p->q_offsets[n] : p->q_offset;
    default:                return len_k - len_q;
    }
}

QATTN_HD static inline struct seq seq_get(const struct problem *p, int64_t n)
{
    struct seq s = { 0 };
    s.n = s.q_batch = s.k_batch = n;
    int64_t slot_q = p->op == OP_SOFTMAX ? p->x.shape[2] : p->q.shape[2];
    if (p->cu_seqlens_q) {
        const int64_t total = p->q.shape[2];
        const int64_t start = clamp64(p->cu_seqlens_q[n], 0, total);
        const int64_t end = clamp64(p->cu_seqlens_q[n + 1], start, total);
        s.q_batch = 0;
        s.q_row = start;
        slot_q = end - start;
    }
    s.rows = slot_q < p->cap_q ? slot_q : p->cap_q;
    s.len_q = p->seqused_q ? clamp64(p->seqused_q[n], 0, s.rows) : s.rows;

    int64_t slot_k = p->cap_k;
    if (p->cu_seqlens_k) {
        const int64_t total = p->k.shape[2];
        const int64_t start = clamp64(p->cu_seqlens_k[n], 0, total);
        const int64_t end = clamp64(p->cu_seqlens_k[n + 1], start, total);
        s.k_batch = 0;
        s.k_row = start;
        slot_k = end - start < p->cap_k ? end - start : p->cap_k;
    }
    s.len_k = p->seqused_k ? clamp64(p->seqused_k[n], 0, slot_k) : slot_k;

    s.offset = seq_offset(p, n, s.len_q, s.len_k);
    return s;
}

/* x cut into 0 .. hi. 128 bits: offsets and windows are any int64, and no sum of them may wrap. */
QATTN_HD static inline int64_t seq_clamp_key(__int128 x, int64_t hi) { return x < 0 ? 0 : x > hi ? hi : (int64_t)x; }

/* Row i of the sequence sees, by position alone, the keys *begin <= j < *end, 0 <= *begin, *end <= len_k.
 * Empty: *begin >= *end. (keep and bias may hide more.) Exact for offsets and windows of any 64 bits. */
QATTN_HD static inline void seq_visible(const struct problem *p, const struct seq *s, int64_t i, int64_t *begin,
                                        int64_t *end)
{
    *begin = 0;
    *end = i < s->len_q ? s->len_k : 0;
    if (!p->causal && !p->window)
        return;
    const __int128 pos = (__int128)i + s->offset;
    if (p->causal && pos < *end - 1)
        *end = pos < 0 ? 0 : (int64_t)pos + 1;
    if (p->window && p->window_right >= 0 && pos + p->window_right < *end - 1)
        *end = pos + p->window_right < 0 ? 0 : (int64_t)(pos + p->window_right) + 1;
    if (p->window && p->window_left >= 0 && pos - p->window_left > 0)
        *begin = pos - p->window_left < s->len_k ? (int64_t)(pos - p->window_left) : s->len_k;
}

/* Page that holds the keys column * page_size .. of a paged sequence, clamped into the pool. */
QATTN_HD static inline int64_t seq_page_id(const struct problem *p, const struct seq *s, int64_t column)
{
    return clamp64(p->page_table[s->n * p->page_table_stride + column], 0, p->num_pages - 1);
}

/* Key j of a paged sequence lies in page *page at row *slot. */
QATTN_HD static inline void seq_page(const struct problem *p, const struct seq *s, int64_t j, int64_t *page,
                                     int64_t *slot)
{
    const int64_t column = j / p->page_size;
    *slot = j - column * p->page_size;
    *page = seq_page_id(p, s, column);
}

/* Address of element 0 of key j of KV head h in `t` (k or v). */
QATTN_HD static inline char *seq_key(const struct problem *p, const struct seq *s, const struct view *t, int64_t h,
                                     int64_t j)
{
    int64_t page, slot;
    if (!p->page_table)
        return view_at(t, s->k_batch, h, s->k_row + j, 0);
    seq_page(p, s, j, &page, &slot);
    return view_at(t, page, h, slot, 0);
}

/* Descale of q's row i, query head h, element d. */
QATTN_HD static inline float seq_q_descale(const struct problem *p, const struct seq *s, int64_t h, int64_t i,
                                           int64_t d)
{
    const struct descale *ds = &p->q_descale;
    if (ds->kind == DESCALE_NONE)
        return 1.0f;
    if (ds->kind == DESCALE_SEQUENCE)
        return *(const float *)(const void *)view_at(&ds->t, s->n, h / ds->head_div, 0, d);
    return *(const float *)(const void *)view_at(&ds->t, s->q_batch, h / ds->head_div, s->q_row + i, d);
}

/* Descale of key or value j of KV head h, element d; `ds` is p->k_descale or p->v_descale. */
QATTN_HD static inline float seq_kv_descale(const struct problem *p, const struct seq *s, const struct descale *ds,
                                            int64_t h, int64_t j, int64_t d)
{
    int64_t page, slot;
    switch (ds->kind) {
    case DESCALE_NONE:     return 1.0f;
    case DESCALE_SEQUENCE: return *(const float *)(const void *)view_at(&ds->t, s->n, h, 0, d);
    case DESCALE_ROW:      return *(const float *)(const void *)view_at(&ds->t, s->k_batch, h, s->k_row + j, d);
    default:
        seq_page(p, s, j, &page, &slot);
        return *(const float *)(const void *)view_at(&ds->t, page, h, slot, d);
    }
}

#endif
