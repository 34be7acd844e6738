/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The register tile of all kernels here: 256 threads, thread (ty, tx), as a rule (tid / 16, tid %
 * 16), owns RM rows and 4 NC columns of a product of [16 RM] x [64 NC], in fours: rows 4 ty + 64 x,
 * columns 4 tx + 64 x, so that one 16-byte read of shared memory serves four of them. Both operands
 * lie there as [16 of k][rows], `pitch` floats apart.
 */
#ifndef QATTN_CUDA_TILE_SIMT_CUH
#define QATTN_CUDA_TILE_SIMT_CUH

#include "cuda/common/dtype.cuh"
#include "cuda/common/math.cuh"

enum { TILE_THREADS = 256, TILE_K = 16 };

template <int RM> __device__ __forceinline__ int tile_row_of(int ty, int r)
{
    return RM == 1 ? ty : (r >> 2) * 64 + ty * 4 + (r & 3);
}

/* Another deal of (ty, tx) to threads, a warp covering 4 x 8 of them: its reads take the fewest cycles of the shared
 * memory (33.5 M instead of 50.3 M in a product of 2048 x 2048 x 128 x 16). For kernels that never add across a row. */
__device__ __forceinline__ void tile_deal(int *ty, int *tx)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    *tx = (warp & 1) * 8 + ((lane >> 1) & 7);
    *ty = (warp >> 1) * 4 + ((lane & 1) | (lane >> 4) << 1);
}

/*
 * How a thread brings its share of a step [rows][16 of k] from memory to shared memory. Element e =
 * 0 .. loads - 1 lies at (row + row_step (e % near), k + k_step (e % near) + 8 (e / near)).
 * along_k: 8 lanes side by side along k, then the next row (whole 32-byte sectors of f32); else
 * lanes side by side along the rows. No two lanes of a store share a bank.
 */
struct tile_lane {
    int row, k;
    int row_step, k_step;
};

template <int rows> struct tile_share {
    static constexpr int loads = rows * TILE_K / TILE_THREADS, near = rows >= 32 ? rows / 32 : 1;
};

template <int rows> __device__ __forceinline__ struct tile_lane tile_lane_of(bool along_k)
{
    struct tile_lane lane;
    const int tid = threadIdx.x;
    lane.row = along_k ? (tid >> 3) % rows : tid % rows;
    lane.k = along_k ? (tid & 7) + 8 * (tid / (8 * rows)) : tid / rows;
    lane.row_step = along_k ? TILE_THREADS / 8 : 0;
    lane.k_step = along_k ? 0 : TILE_THREADS / rows;
    return lane;
}

/* out[e] from `at`, the thread's (row, k); strides in elements. rows_left, k_left: how many rows
 * and k of the step exist; 0 is delivered elsewhere. */
template <class T, int rows>
__device__ __forceinline__ void tile_fetch(const struct tile_lane &lane, const T *at, int64_t row_stride,
                                           int64_t k_stride, int32_t dtype, int64_t rows_left, int64_t k_left,
                                           float *out)
{
    constexpr int loads = tile_share<rows>::loads, near = tile_share<rows>::near;
    const int64_t step = lane.row_step * row_stride + lane.k_step * k_stride, far = 8 * k_stride;
    if (rows_left >= rows && k_left >= TILE_K) {
#pragma unroll
        for (int e = 0; e < loads; e++)
            out[e] = widen(at[e % near * step + e / near * far], dtype);
        return;
    }
#pragma unroll
    for (int e = 0; e < loads; e++) {
        const int row = lane.row + lane.row_step * (e % near), k = lane.k + lane.k_step * (e % near) + 8 * (e / near);
        out[e] = 0.0f;
        if (row < rows_left && k < k_left)
            out[e] = widen(at[e % near * step + e / near * far], dtype);
    }
}

/* To a tile of `pitch` floats a line. Tells whether an element is not finite. */
template <int rows>
__device__ __forceinline__ bool tile_store(const struct tile_lane &lane, float *tile, int pitch, const float *in)
{
    constexpr int loads = tile_share<rows>::loads, near = tile_share<rows>::near;
    float *const to = tile + lane.k * pitch + lane.row;
    const int step = lane.row_step + lane.k_step * pitch;
    bool bad = false;
#pragma unroll
    for (int e = 0; e < loads; e++) {
        to[e % near * step + e / near * 8 * pitch] = in[e];
        bad |= !is_finite(in[e]);
    }
    return bad;
}

/* RM floats of the thread's rows from one line. */
template <int RM> __device__ __forceinline__ void tile_read_rows(const float *line, int ty, float *out)
{
    if (RM == 1) {
        out[0] = line[ty];
    } else {
#pragma unroll
        for (int x = 0; x < RM / 4; x++) {
            const float4 four = *(const float4 *)(line + x * 64 + ty * 4);
            out[4 * x] = four.x;
            out[4 * x + 1] = four.y;
            out[4 * x + 2] = four.z;
            out[4 * x + 3] = four.w;
        }
    }
}

/* 4 NC floats of the thread's columns. */
template <int NC> __device__ __forceinline__ void tile_read_columns(const float *line, int tx, float *out)
{
#pragma unroll
    for (int x = 0; x < NC; x++) {
        const float4 four = *(const float4 *)(line + x * 64 + tx * 4);
        out[4 * x] = four.x;
        out[4 * x + 1] = four.y;
        out[4 * x + 2] = four.z;
        out[4 * x + 3] = four.w;
    }
}

/* sum += A B over 16 of k, in ascending order. */
template <int RM, int NC>
__device__ __forceinline__ void tile_multiply(const float *a, int a_pitch, const float *b, int b_pitch, int ty, int tx,
                                              float (*sum)[4 * NC])
{
#pragma unroll
    for (int k = 0; k < TILE_K; k++) {
        float row[RM], column[4 * NC];
        tile_read_rows<RM>(a + k * a_pitch, ty, row);
        tile_read_columns<NC>(b + k * b_pitch, tx, column);
#pragma unroll
        for (int r = 0; r < RM; r++)
#pragma unroll
            for (int c = 0; c < 4 * NC; c++)
                sum[r][c] = __fmaf_rn(row[r], column[c], sum[r][c]);
    }
}

/* The same, but where A holds a hidden key's -0 (math.cuh) the product is left out, not added. */
template <int RM, int NC>
__device__ __forceinline__ void tile_multiply_hiding(const float *a, int a_pitch, const float *b, int b_pitch,
                                                     int ty, int tx, float (*sum)[4 * NC])
{
#pragma unroll 1
    for (int k = 0; k < TILE_K; k++) {
        float row[RM], column[4 * NC];
        tile_read_rows<RM>(a + k * a_pitch, ty, row);
        tile_read_columns<NC>(b + k * b_pitch, tx, column);
#pragma unroll
        for (int r = 0; r < RM; r++)
#pragma unroll
            for (int c = 0; c < 4 * NC; c++)
                sum[r][c] = is_hidden_p(row[r]) ? sum[r][c] : __fmaf_rn(row[r], column[c], sum[r][c]);
    }
}

#endif
