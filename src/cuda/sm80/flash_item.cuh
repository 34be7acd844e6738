/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* What the blocks of flash_sm80.cuh work on. */
#ifndef QATTN_CUDA_SM80_FLASH_ITEM_CUH
#define QATTN_CUDA_SM80_FLASH_ITEM_CUH

#include "cuda/sm80/flash_rows.cuh"
#include "cuda/sm80/flash_tile.cuh"

/* An item: one tile of rows of one KV head, and its share of the keys. Lies in shared memory: the loop has no
 * registers for it. */
struct f80_item {
    struct f80_rows rows;
    struct f80_sight sight;
    const char *k_from, *v_from; /* element 0 of key 0; paged: of the pool */
    const char *q_from;          /* row 0 of head 0 of the sequence */
    int64_t q_batch, q_row;      /* of the sequence in o and lse */
    int64_t distance;            /* position of the tile's first query row */
    float scale, by_cap;         /* with the descale of k; over softcap */
    float v_descale;
    int n, split;
    int rows_written, queries; /* rows of the tile that are written, that are queries */
    int first, last;           /* key tiles */
    int found;
};

struct f80_shared {
    int round, reserved0[3]; /* items this block has finished */
    struct f80_item item[3]; /* this one and the next, in turn; even: one */
    int4 bounds[8];          /* of each warp: keys (even: their tiles) that some of its rows see, first and end; that
                                all of them see */
};
static_assert(sizeof(struct f80_shared) <= F80_STATIC_BYTES, "the launcher counts on it");

/* Keys that some row of the warp sees, first (x) and end (y); that all of them see (z, w). */
template <class C> __device__ __forceinline__ int4 f80_keys_seen(const struct f80_item *item)
{
    const int first_row = (f80_thread() >> 5) * 16 * C::MB;
    int4 seen;
    f80_see(item->sight, item->rows, first_row, &seen.x, &seen.w);
    f80_see(item->sight, item->rows, first_row + 16 * C::MB - 1, &seen.z, &seen.y);
    return seen;
}

#endif
