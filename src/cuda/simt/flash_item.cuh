/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * What the one-pass kernels over f32 accumulators share: what one work item is, and the facts of its rows. The rows of
 * an item are (i, g): query row i of all heads of the group in turn, so K and V are read once for a group.
 */
#ifndef QATTN_CUDA_FLASH_ITEM_CUH
#define QATTN_CUDA_FLASH_ITEM_CUH

#include "cuda/simt/flash_close.cuh"

#define FS_NOWHERE INT64_MIN

/* Facts of the item's BM rows, written once per item. */
template <int BM> struct fs_rows {
    struct seq seq;
    int64_t begin[BM], end[BM];             /* keys each row sees by position */
    struct score_row row[BM];
    int64_t q_at[BM];                       /* element offset of the row's query; FS_NOWHERE: no such row */
    int64_t min_begin, max_begin, min_end, max_end;   /* over the rows that are queries */
};

struct fs_work { int64_t n, kv_head, tile, slice, split; };

/* Tiles go last to first: under a causal mask the longest ones then start first. */
__device__ __forceinline__ struct fs_work fs_work_of(const struct flash_simt_args *a, int64_t index)
{
    struct fs_work w;
    w.split = index % a->num_splits;
    index /= a->num_splits;
    w.slice = index % a->slices;
    index /= a->slices;
    w.kv_head = index % a->kv_heads;
    index /= a->kv_heads;
    w.n = index % a->n;
    w.tile = a->tiles - 1 - index / a->n;
    return w;
}

/* Fills sh, whose seq is set, for the item's rows. Row r is query row r / group of head r % group of the group. */
template <int BM> __device__ void fs_setup_rows(const struct problem *p, const struct fs_work &w, fs_rows<BM> *sh)
{
    const struct seq *const s = &sh->seq;
    const int r = (int)threadIdx.x;
    if (r < BM) {
        const int64_t at = w.tile * BM + r, i = at / p->group, h = w.kv_head * p->group + at % p->group;
        int64_t begin = 0, end = 0;
        sh->q_at[r] = FS_NOWHERE;
        if (i < s->len_q) {
            seq_visible(p, s, i, &begin, &end);
            sh->q_at[r] = s->q_batch * p->q.stride[0] + h * p->q.stride[1] + (s->q_row + i) * p->q.stride[2];
            sh->row[r] = score_row_of(p, s, h, i);
        }
        sh->begin[r] = begin;
        sh->end[r] = end;
    }
    if (r == 0) {    /* begin and end never fall from one row to the next */
        const int64_t rows = s->len_q * p->group - w.tile * BM;
        const int64_t first = w.tile * BM / p->group, last = (w.tile * BM + (rows < BM ? rows : BM) - 1) / p->group;
        sh->min_begin = sh->max_begin = sh->min_end = sh->max_end = 0;
        if (rows > 0) {
            seq_visible(p, s, first, &sh->min_begin, &sh->min_end);
            seq_visible(p, s, last, &sh->max_begin, &sh->max_end);
        }
    }
}

/* The key tiles [first, last) of `keys` keys each that the item's split has. */
template <int BM>
__device__ __forceinline__ void fs_split_of(const struct flash_simt_args *a, const fs_rows<BM> *sh,
                                            int64_t split, int keys, int64_t *first, int64_t *last)
{
    *first = sh->min_begin / keys;
    *last = sh->max_end > sh->min_begin ? (sh->max_end + keys - 1) / keys : *first;
    const int64_t share = (*last - *first + a->num_splits - 1) / a->num_splits;
    *first += split * share;
    *last = *first + share < *last ? *first + share : *last;
}

/* Element offsets of key j in k and v; FS_NOWHERE beyond the length. */
__device__ __forceinline__ void fs_place_key(const struct problem *p, const struct seq *s, int64_t kv_head, int64_t j,
                                             int64_t *k_at, int64_t *v_at)
{
    int64_t batch = s->k_batch, row = s->k_row + j;
    *k_at = *v_at = FS_NOWHERE;
    if (j >= s->len_k)
        return;
    if (p->page_table)
        seq_page(p, s, j, &batch, &row);
    *k_at = batch * p->k.stride[0] + kv_head * p->k.stride[1] + row * p->k.stride[2];
    *v_at = batch * p->v.stride[0] + kv_head * p->v.stride[1] + row * p->v.stride[2];
}

/* The number of the row in the arrays of partial results: its place in q times Hq, plus its head. */
__device__ __forceinline__ int64_t fs_part_row(const struct problem *p, const struct seq *s, int64_t h, int64_t i)
{
    return (s->q_batch * p->q.shape[2] + s->q_row + i) * p->hq + h;
}

#endif
