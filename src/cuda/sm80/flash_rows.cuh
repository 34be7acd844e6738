/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Which rows a tile of flash_sm80.cuh has and which keys they see, in 32 bits: the launcher admits up to 2^30 keys. */
#ifndef QATTN_CUDA_FLASH_ROWS_CUH
#define QATTN_CUDA_FLASH_ROWS_CUH

#include "core/seq.h"
#include "cuda/sm80/flash_sm80_kernel.h"

/* Row r of a tile is query row i0 + (rest + r) / group of head h0 + (rest + r) % group. */
struct f80_rows {
    int64_t i0, h0;
    unsigned rest;
    struct divisor group;
};
struct f80_row {
    int64_t i, h;
};

__device__ __forceinline__ struct f80_rows f80_rows_of(const struct flash_sm80_args *a, int tile, int kv_head, int bm)
{
    struct f80_rows rows;
    const int64_t first = (int64_t)tile * bm;
    rows.group = a->by_group;
    rows.i0 = a->by_group.by == 1 ? first : first / a->by_group.by;
    rows.rest = (unsigned)(first - rows.i0 * a->by_group.by);
    rows.h0 = (int64_t)kv_head * a->by_group.by;
    return rows;
}

__device__ __forceinline__ struct f80_row f80_row_of(const struct f80_rows &rows, int r)
{
    struct f80_row row = { rows.i0 + r, rows.h0 };
    if (rows.group.by != 1) {
        const unsigned x = rows.rest + (unsigned)r, i = divide(x, rows.group);
        row.i = rows.i0 + i;
        row.h = rows.h0 + (x - i * rows.group.by);
    }
    return row;
}

/* Query row i0 + x of a tile sees the keys begin0 + x <= j < end0 + x, cut into 0 .. len_k. Rows past the last query
 * count as that one: what they give is not used. */
struct f80_sight {
    int begin0, end0, len_k, last;
};

__device__ __forceinline__ int f80_narrow(__int128 x)
{
    const int limit = FLASH_SM80_FAR;
    return x < -limit ? -limit : x > limit ? limit : (int)x;
}

__device__ __forceinline__ struct f80_sight f80_sight_of(const struct problem *p, const struct seq *s, int64_t i0)
{
    const __int128 pos = (__int128)i0 + s->offset;
    struct f80_sight sight;
    sight.len_k = s->len_q > i0 ? (int)s->len_k : 0;
    sight.last = f80_narrow(s->len_q - 1 - i0);
    sight.end0 = p->causal ? f80_narrow(pos + 1) : FLASH_SM80_FAR;
    sight.begin0 = -FLASH_SM80_FAR;
    if (p->window && p->window_right >= 0) {
        const int end0 = f80_narrow(pos + p->window_right + 1);
        sight.end0 = end0 < sight.end0 ? end0 : sight.end0;
    }
    if (p->window && p->window_left >= 0)
        sight.begin0 = f80_narrow(pos - p->window_left);
    return sight;
}

/* Row r of the tile; begin and end never fall from one row to the next. */
__device__ __forceinline__ void f80_see(const struct f80_sight &sight, const struct f80_rows &rows, int r, int *begin,
                                        int *end)
{
    int x = rows.group.by == 1 ? r : (int)divide(rows.rest + (unsigned)r, rows.group);
    x = x < sight.last ? x : sight.last;
    *begin = min(max(sight.begin0 + x, 0), sight.len_k);
    *end = min(max(sight.end0 + x, 0), sight.len_k);
}

#endif
