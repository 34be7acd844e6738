/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* How rows of Q, K and V reach shared memory: asynchronous copies of 16 bytes, or element by element. */
#ifndef QATTN_CUDA_FLASH_LOAD_CUH
#define QATTN_CUDA_FLASH_LOAD_CUH

#include "cuda/common/dtype.cuh"
#include "cuda/sm80/flash_rows.cuh"
#include "cuda/sm80/flash_tile.cuh"

/* Bytes that a row of `bytes` has in its 16-byte chunk. */
__device__ __forceinline__ int f80_chunk_bytes(int64_t bytes, int chunk)
{
    return (int)clamp64(bytes - 16 * chunk, 0, 16);
}

/* Starts the copies of one tile of K or V. from: the tile's first row; left: keys from the tile's first on;
 * width: bytes of a row. at: NULL, or byte offsets of the tile's rows from `from`.
 * BYTES: size of an element; tiles of bytes are not swizzled, each thread reads back only what it copied. */
template <class C, int BYTES>
__device__ __forceinline__ void f80_load_tile(uint32_t to, const char *from, int64_t stride, const int64_t *at,
                                              int left, int64_t width)
{
    constexpr int chunks = C::W * BYTES / 16, pass = C::THREADS / chunks, pitch = C::W * BYTES;
    const int chunk = threadIdx.x % chunks, row = threadIdx.x / chunks;
    to += BYTES == 2 ? f80_swizzle<C>(row, chunk) : (uint32_t)(row * pitch + chunk * 16);
    from += chunk * 16 + (at ? 0 : row * stride);
    if (at) {
        const int bytes = f80_chunk_bytes(width, chunk);
#pragma unroll
        for (int r = 0; r < C::BN; r += pass)
            cp_async_16_zfill(BYTES == 2 ? f80_below<C>(to, r) : to + r * pitch, from + at[row + r],
                              row + r < left ? bytes : 0);
    } else if (left >= C::BN && width == pitch) {
#pragma unroll
        for (int r = 0; r < C::BN; r += pass)
            cp_async_16(BYTES == 2 ? f80_below<C>(to, r) : to + r * pitch, from + r * stride);
    } else {
        const int bytes = f80_chunk_bytes(width, chunk);
#pragma unroll
        for (int r = 0; r < C::BN; r += pass)
            cp_async_16_zfill(BYTES == 2 ? f80_below<C>(to, r) : to + r * pitch, from + r * stride,
                              row + r < left ? bytes : 0);
    }
}

/* The same tile element by element, at once, from any strides (in bytes). */
template <class C>
__device__ __forceinline__ void f80_gather_tile(char *to, const char *from, int64_t stride, int64_t step,
                                                const int64_t *at, int left, int64_t width, bool bytes)
{
    const int per = bytes ? 16 : 8, chunks = C::W / per, pass = C::THREADS / chunks;
    const int chunk = threadIdx.x % chunks;
#pragma unroll 1
    for (int r = threadIdx.x / chunks; r < C::BN; r += pass) {
        const char *const row = from + (at ? at[r] : r * stride) + (int64_t)(chunk * per) * step;
        char *const out = to + (bytes ? (uint32_t)(r * C::W + chunk * 16) : f80_swizzle<C>(r, chunk));
        const int64_t there = r < left ? width - chunk * per : 0;
#pragma unroll 1
        for (int e = 0; e < per; e++) {
            if (bytes)
                out[e] = e < there ? row[e * step] : 0;
            else
                ((uint16_t *)out)[e] = e < there ? *(const uint16_t *)(row + e * step) : 0;
        }
    }
}

/* The thread's share of a tile of bytes becomes 16-bit elements, which hold every such value. */
template <class C> __device__ __forceinline__ void f80_widen_tile(char *to, const char *bytes, int32_t dtype)
{
    typedef typename C::type T;
    constexpr int chunks = C::W / 16, pass = C::THREADS / chunks;
    const int chunk = threadIdx.x % chunks, row = threadIdx.x / chunks;
#pragma unroll 1
    for (int r = row; r < C::BN; r += pass)
#pragma unroll 1
        for (int half = 0; half < 2; half++) {
            const uint2 in = *(const uint2 *)(bytes + r * C::W + chunk * 16 + half * 8);
            uint32_t out[4];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const uint32_t word = (e < 2 ? in.x : in.y) >> (16 * (e & 1));
                const byte8 low = { (uint8_t)(word & 0xFFu) }, high = { (uint8_t)(word >> 8 & 0xFFu) };
                out[e] = pack_16<T>(widen(low, dtype), widen(high, dtype));
            }
            *(uint4 *)(to + f80_swizzle<C>(r, 2 * chunk + half)) = make_uint4(out[0], out[1], out[2], out[3]);
        }
}

/* Byte offsets of the keys of the tile that starts at j0, from element 0 of the pool: k, and v 2 BN further on. */
template <int BN>
__device__ __forceinline__ void f80_place_keys(const struct problem *p, int n, int len_k, int j0, int64_t *at)
{
    const int j = j0 + (int)threadIdx.x;
    if (threadIdx.x < BN && j < len_k) {
        struct seq s = { 0 };
        int64_t page, slot;
        s.n = n;
        seq_page(p, &s, j, &page, &slot);
        at[threadIdx.x] = (page * p->k.stride[0] + slot * p->k.stride[2]) * p->k.itemsize;
        at[threadIdx.x + 2 * BN] = (page * p->v.stride[0] + slot * p->v.stride[2]) * p->v.itemsize;
    } else if (threadIdx.x < BN) {
        at[threadIdx.x] = at[threadIdx.x + 2 * BN] = 0;
    }
}

/* How a warp walks its 16 MB rows 16 bytes a lane: row r0 + i STEP, i = 0 .. PASSES - 1. */
template <class C> struct f80_walk {
    static constexpr int STEP = 32 / C::CHUNKS, PASSES = 16 * C::MB / STEP;
    static_assert(32 % C::CHUNKS == 0, "a warp covers whole rows");
};

/* Offset of the lane's 16 bytes in row r0 + i STEP of the warp: r0 < STEP, so it flips no bit that i STEP has. */
template <class C> __device__ __forceinline__ uint32_t f80_walk_at(int chunk, int r0, int i)
{
    constexpr int step = f80_walk<C>::STEP;
    return (uint32_t)((r0 + i * step) * C::ROW_BYTES) + ((uint32_t)((chunk ^ r0) ^ (i * step & 7)) << 4);
}

/* The warp's rows of Q; those that are no queries are 0. from: row 0 of head 0 of the sequence; queries: rows of the
 * tile that are. */
template <class C>
__device__ __forceinline__ void f80_load_q(const struct flash_sm80_args *a, const struct problem *p, const char *from,
                                           const struct f80_rows &rows, int queries, char *q)
{
    typedef typename C::type T;
    typedef f80_walk<C> walk;
    const int lane = threadIdx.x & 31, chunk = lane % C::CHUNKS, r0 = lane / C::CHUNKS,
              first_row = (threadIdx.x >> 5) * 16 * C::MB;
    const int bytes = C::EVEN ? 16 : f80_chunk_bytes(2 * p->d, chunk), left = queries - first_row - r0;
    const uint32_t to = shared_address(q) + first_row * C::ROW_BYTES;
    const int64_t i_stride = 2 * p->q.stride[2], h_stride = 2 * p->q.stride[1];
    if ((C::EVEN || a->q_vector) && rows.group.by == 1) {
        const char *at = from + (rows.i0 + first_row + r0) * i_stride + rows.h0 * h_stride + chunk * 16;
#pragma unroll
        for (int i = 0; i < walk::PASSES; i++) {
            cp_async_16_zfill(to + f80_walk_at<C>(chunk, r0, i), at, i * walk::STEP < left ? bytes : 0);
            at += walk::STEP * i_stride;
        }
        return;
    }
#pragma unroll 1
    for (int i = 0; i < walk::PASSES; i++) {
        const struct f80_row row = f80_row_of(rows, first_row + r0 + i * walk::STEP);
        const char *const at = from + row.i * i_stride + row.h * h_stride;
        const int there = i * walk::STEP < left ? bytes : 0;
        if (C::EVEN || a->q_vector) {
            cp_async_16_zfill(to + f80_walk_at<C>(chunk, r0, i), at + chunk * 16, there);
        } else {
            char *const out = q + first_row * C::ROW_BYTES + f80_walk_at<C>(chunk, r0, i);
#pragma unroll 1
            for (int e = 0; e < 8; e++)
                ((T *)out)[e] = 2 * e < there ? *(const T *)(at + (chunk * 8 + e) * p->q.stride[3] * 2) : T(0.0f);
        }
    }
}

#endif
