/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Decode: who a thread is, and how Q, K and V come to shared memory. See decode_sm80.cuh. */
#ifndef QATTN_CUDA_DECODE_COPY_CUH
#define QATTN_CUDA_DECODE_COPY_CUH

#include "cuda/common/ptx.cuh"
#include "cuda/common/score.cuh"
#include "cuda/sm80/decode_sm80.h"

/* One row of the sequence: the keys it sees by position, and what its scores need. */
struct decode_row { int32_t begin, end; struct score_row score; };
static_assert(sizeof(struct decode_row) <= DECODE_ROW_BYTES, "the launcher counts on it");

/* Of a warp's rows: maximum, sum. */
struct decode_sums { float m[16], l[16]; };

struct decode_shared {
    struct seq seq;
    struct decode_sums sums[DECODE_WARPS];                                  /* of each warp, at the end */
    struct decode_range range;
    struct decode_row *row;                                                 /* [16 M] */
};

/* Who this thread is. */
struct decode_lane {
    int lane, warp, warps;
    int tiles;          /* M: warps of a key group */
    int tile;           /* which 16 rows */
    int group, groups;  /* key group */
    int rank, threads;  /* in the key group */
};

__device__ __forceinline__ struct decode_lane decode_lane_of(int rows)
{
    struct decode_lane t;
    t.lane = threadIdx.x & 31;
    t.warp = threadIdx.x >> 5;
    t.warps = blockDim.x >> 5;
    const int tiles_log2 = decode_tiles_log2(rows);
    t.tiles = 1 << tiles_log2;
    t.tile = t.warp & (t.tiles - 1);
    t.group = t.warp >> tiles_log2;
    t.groups = t.warps >> tiles_log2;
    t.rank = t.tile * 32 + t.lane;
    t.threads = 32 * t.tiles;
    keep_in_register(t.lane);
    keep_in_register(t.tiles);
    keep_in_register(t.groups);
    return t;
}

/* All warps of the key group are here. */
__device__ __forceinline__ void decode_group_sync(const struct decode_lane &t)
{
    if (t.tiles == 1)
        __syncwarp();
    else
        named_barrier(1 + t.group, t.threads);
}

/* Until at most `pending` of the newest groups of copies are under way, or fewer. */
__device__ __forceinline__ void decode_wait(int pending)
{
    if (pending == 1)
        cp_async_wait<1>();
    else if (pending == 2)
        cp_async_wait<2>();
    else if (pending == 0)
        cp_async_wait<0>();
    else if (pending < 7)
        cp_async_wait<3>();
    else
        cp_async_wait<7>();
}

/* Rows of K and V in a slot: 16-byte piece x of row r lies in the place of piece x ^ (r & 7). So ldmatrix meets no bank
 * twice, and every piece keeps its 128-byte line: copies whose line is not theirs in memory cost half as much again in
 * reads of the second-level cache. */
__device__ __forceinline__ int decode_turn(int row) { return (row & 7) << 4; }

/* What a thread knows of one item's K, or V, all along. */
struct decode_source {
    const char *base;       /* first key of the sequence; with pages: row 0 of the head in page 0. Where rows are one
                               stride apart (a->whole): at the thread's first 16 bytes of a unit that starts there */
    int64_t hop;            /* bytes from the thread's row of a unit to its next */
    int64_t unit;           /* bytes from a unit to the next, but for pages */
    int at, drop, step;     /* of the thread's first 16 bytes in shared memory; from row to row of the thread, in bytes
                               and in rows, a power of two */
    int bytes;              /* 0 .. 16, of the thread's column that exist */
    int copies;             /* the thread has some */
    int fours;              /* times four copies of 16 bytes are all of the thread's of a whole unit; 0: they are not,
                               of some thread of the warp */
};

template <int BYTES>
__device__ __forceinline__ struct decode_source decode_source_of(const struct decode_sm80_args *a,
                                                                 const struct problem *p, const struct view *x,
                                                                 const struct seq *s, int kv_head, int width,
                                                                 bool aligned, int lanes, int pitch, int rank,
                                                                 int threads)
{
    struct decode_source y;
    const int padded = (width + DECODE_STEP - 1) & -DECODE_STEP, step = threads >> lanes, first = rank >> lanes;
    const int column = 16 * (rank & ((1 << lanes) - 1)), left = width * BYTES - column;
    const int64_t row_bytes = x->stride[2] * BYTES;
    y.base = p->page_table ? view_at(x, 0, kv_head, 0, 0) : view_at(x, s->k_batch, kv_head, s->k_row, 0);
    if (a->whole)
        y.base += first * row_bytes + column;
    y.hop = step * row_bytes;
    y.unit = DECODE_UNIT * row_bytes;
    y.at = first * pitch + (column ^ decode_turn(first));
    y.drop = step * pitch;
    y.step = step;
    y.bytes = left < 0 ? 0 : left < 16 ? left : 16;
    y.copies = column < padded * BYTES && first < DECODE_UNIT;
    y.fours = DECODE_UNIT / (4 * step);
    if (!__all_sync(0xFFFFFFFFu, a->whole && aligned && y.copies && left >= 16))
        y.fours = 0;
    if (BYTES == 2) {           /* 8-bit k, v need the registers elsewhere */
        keep_in_register(y.hop);
        keep_in_register(y.at);
        keep_in_register(y.drop);
        keep_in_register(y.fours);
    }
    return y;
}

/* Where a unit's keys lie. Rows one stride apart (a->whole): the thread's first 16 bytes. Else key lane %
 * DECODE_UNIT of the unit, NULL beyond the sequence. */
struct decode_place { const char *k, *v; };

template <int BYTES>
__device__ __forceinline__ struct decode_place decode_locate(const struct decode_sm80_args *a, const struct problem *p,
                                                             const struct seq *s, const struct decode_source &k,
                                                             const struct decode_source &v, int unit, int lane)
{
    int j = unit * DECODE_UNIT;
    struct decode_place at = { NULL, NULL };
    if (!p->page_table) {
        at.k = k.base + unit * k.unit;
        at.v = v.base + unit * v.unit;
        return at;
    }
    if (!a->whole) {
        j += lane & (DECODE_UNIT - 1);
        if (j >= s->len_k)
            return at;
    }
    const int column = a->page_shift >= 0 ? j >> a->page_shift : j / a->page_size, slot = j - column * a->page_size;
    const int64_t page = seq_page_id(p, s, column);
    at.k = k.base + page * (p->k.stride[0] * BYTES) + slot * (p->k.stride[2] * BYTES);
    at.v = v.base + page * (p->v.stride[0] * BYTES) + slot * (p->v.stride[2] * BYTES);
    return at;
}

__device__ __forceinline__ const char *shuffle_pointer(const char *x, int lane)
{
    return (const char *)__shfl_sync(0xFFFFFFFFu, (unsigned long long)x, lane);
}

/* Rows of a unit where not all is well: the last ones are beyond the sequence, or the width is no multiple of what
 * lanes copy, or each row has an address of its own. */
template <int BYTES>
static __device__ __noinline__ void decode_copy_some(int whole, const char *place, const char *dummy, int64_t hop,
                                                     int bytes, int copies, int keys, uint32_t to, int pitch, int lanes,
                                                     int rank, int threads)
{
    const int first = rank >> lanes, step = threads >> lanes, column = 16 * (rank & ((1 << lanes) - 1));
    for (int r = first; r < DECODE_UNIT + first; r += step) {
        const char *const row = whole ? place : shuffle_pointer(place, r & (DECODE_UNIT - 1)) + column;
        if (copies)
            cp_async_16_zfill(to + r * pitch + (column ^ decode_turn(r)), r < keys && bytes ? row : dummy,
                              r < keys ? bytes : 0);
        place += whole ? hop : 0;
    }
}

/* Element by element, where nothing is known of strides and addresses. */
template <int BYTES>
static __device__ __noinline__ void decode_gather(const struct view *x, int whole, const char *place, int keys,
                                                  int width, char *to, int pitch, int lanes, int rank, int threads)
{
    const int padded = (width + DECODE_STEP - 1) & -DECODE_STEP;
    if (whole)                  /* back to the first row and column */
        place -= (rank >> lanes) * (x->stride[2] * BYTES) + 16 * (rank & ((1 << lanes) - 1));
#pragma unroll 1
    for (int r = 0; r < DECODE_UNIT; r++) {
        const char *const row = shuffle_pointer(place, r), *const from = whole ? place + r * x->stride[2] * BYTES : row;
        for (int d = rank; d < padded; d += threads) {
            const bool there = r < keys && d < width;
            char *const at = to + r * pitch + (BYTES * d ^ decode_turn(r));
            if (BYTES == 1)
                *(uint8_t *)at = there ? *(const uint8_t *)(from + d * x->stride[3]) : 0;
            else
                *(uint16_t *)at = there ? *(const uint16_t *)(from + 2 * d * x->stride[3]) : 0;
        }
    }
}

/* The first `keys` rows of the unit, of `width` elements each, to `to`; zeros in the other rows, and behind the
 * elements up to a multiple of DECODE_STEP. `lanes`: log2 of the threads a row. */
template <int BYTES>
__device__ __forceinline__ void decode_copy(const struct decode_sm80_args *a, const struct view *x,
                                            const struct decode_source &source, int width, const char *place, int keys,
                                            bool aligned, int lanes, char *to, int pitch, int rank, int threads)
{
    if (source.fours && keys >= DECODE_UNIT) {
        uint32_t at = shared_address(to) + source.at;
        const char *from = place;
#pragma unroll 1
        for (int x = source.fours; x > 0; x--) {
#pragma unroll
            for (int y = 0; y < 4; y++)
                cp_async_16((at ^ decode_turn(y * source.step)) + y * source.drop, from + y * source.hop);
            at = (at ^ decode_turn(4 * source.step)) + 4 * source.drop;
            from += 4 * source.hop;
        }
    } else if (!aligned) {
        decode_gather<BYTES>(x, a->whole, place, keys, width, to, pitch, lanes, rank, threads);
    } else {
        decode_copy_some<BYTES>(a->whole, place, x->data, source.hop, source.bytes, source.copies, keys,
                                shared_address(to), pitch, lanes, rank, threads);
    }
}

/* K and V of one unit into the slot. */
template <int BYTES>
__device__ __forceinline__ void decode_issue(const struct decode_sm80_args *a, const struct problem *p,
                                             const struct decode_lane &t, const struct decode_source &k,
                                             const struct decode_source &v, struct decode_place at, int keys,
                                             char *slot)
{
    decode_copy<BYTES>(a, &p->k, k, (int)p->d, at.k, keys, a->k_vector, a->k_lanes, slot, a->k_pitch, t.rank,
                       t.threads);
    if (!a->v_in_k)
        decode_copy<BYTES>(a, &p->v, v, (int)p->dv, at.v, keys, a->v_vector, a->v_lanes,
                           slot + DECODE_UNIT * a->k_pitch, a->v_pitch, t.rank, t.threads);
}

/* Q, zeros in the rows beyond the sequence's and in the columns beyond D. Asynchronous where rows allow it. */
template <class T, int BYTES>
__device__ __forceinline__ void decode_load_q(const struct decode_sm80_args *a, const struct problem *p,
                                              const struct seq *s, int kv_head, int rows, int tiles, char *q)
{
    const int width = (int)p->d, padded = (width + DECODE_STEP - 1) & -DECODE_STEP, group = (int)p->group;
    const char *const base = view_at(&p->q, s->q_batch, (int64_t)kv_head * group, s->q_row, 0);
    if (BYTES == 2 && a->q_vector) {
        const int column = 16 * (threadIdx.x & ((1 << a->q_lanes) - 1)), left = 2 * width - column;
#pragma unroll 1
        for (int r = threadIdx.x >> a->q_lanes; r < 16 * tiles; r += blockDim.x >> a->q_lanes) {
            const int i = r < group ? 0 : r / group, g = r - i * group;
            const char *const from = base + (g * p->q.stride[1] + i * p->q.stride[2]) * 2 + column;
            const int bytes = r >= rows || left < 0 ? 0 : left < 16 ? left : 16;
            if (column < 2 * padded)
                cp_async_16_zfill(shared_address(q) + r * a->q_pitch + column, bytes ? from : p->q.data, bytes);
        }
        return;
    }
#pragma unroll 1
    for (int r = threadIdx.x >> 5; r < 16 * tiles; r += blockDim.x >> 5) {
        const int i = r / group, g = r - i * group;
        const char *const from = base + (g * p->q.stride[1] + i * p->q.stride[2]) * 2;
        for (int d = threadIdx.x & 31; d < padded; d += 32) {
            const int x = d & 15;
            const int at = BYTES == 1 ? (d & ~15) + 2 * (x >> 2) + (x >> 1 & 1) + 8 * (x & 1) : d;
            *(T *)(q + r * a->q_pitch + 2 * at) =
                r < rows && d < width ? *(const T *)(from + 2 * d * p->q.stride[3]) : (T)0.0f;
        }
    }
}

#endif
