/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The tile of tf32_sm80.cuh, and how rows come to shared memory and are tested there. */
#ifndef QATTN_CUDA_TF32_LOAD_CUH
#define QATTN_CUDA_TF32_LOAD_CUH

#include "cuda/common/ptx.cuh"
#include "cuda/simt/flash_item.cuh"
#include "cuda/sm80/tf32_args.h"

template <int DV, int W> struct tf32_tile {
    static constexpr int threads = 32 * W, rows = 16 * W;
    static constexpr int keys = DV == 128 ? TF32_KEYS_128 : TF32_KEYS_256;
    static constexpr int key_blocks = keys / 8, key_words = keys / 32;
    static constexpr int group = DV == 128 ? 8 : 4;    /* blocks of 8 columns a group has */
    static constexpr int groups = DV / 8 / group;
    static constexpr int v_pitch = DV + TF32_PAD;
};

template <int DV, int W> struct tf32_shared : fs_rows<tf32_tile<DV, W>::rows> {
    static constexpr int keys = tf32_tile<DV, W>::keys;
    int64_t k_at[2][keys], v_at[2][keys];                 /* of the keys of this tile and the next, with pages */
    uint32_t bad_q[tf32_tile<DV, W>::rows / 32], bad_k[keys / 32];   /* rows with a bad value (tf32_bad), a bit each */
    uint32_t bad_v[keys / 32][DV];                        /* the keys of such values of a column */
};

/* A thread's place in the fragments: rows row and row + 8 of the tile; c and g of ptx.cuh. */
struct tf32_lane { int row, g, c; };

/* ---------------------------------------------------------------- memory to shared memory */

/* Where the rows of a tile lie: row r at `origin` + r `stride`, for r < `count`; or, where `at` is not
 * NULL, at at[r]. */
struct tf32_source { const int64_t *at; int64_t origin, stride; int count; };

/* `to` [rows][pitch], columns 0 .. width - 1; zeros up to `padded`, and where there is no row. Warp
 * w brings rows w, w + warps .., lane l the columns from 4 l (fours) or l on. */
template <int rows, int warps>
__device__ __forceinline__ void tf32_copy(float *to, int pitch, const struct view *t,
                                          const struct tf32_source &from, int width, int padded, bool fours)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, near = fours ? 4 : 1;
    const float *const base = (const float *)t->data;
#pragma unroll 1
    for (int x = near * lane; x < padded; x += 32 * near) {
        const uint32_t column = shared_address(to + warp * pitch + x);
        const int left = width - x, bytes = left >= near ? 4 * near : left > 0 ? 4 * left : 0;
        const int64_t along = fours ? x : x * t->stride[3], step = warps * from.stride;
        int64_t offset = from.origin + warp * from.stride;
#pragma unroll
        for (int i = 0; i < rows / warps; i++, offset += step) {
            const int64_t here = from.at                         ? from.at[warp + i * warps]
                                 : warp + i * warps < from.count ? offset
                                                                 : FS_NOWHERE;
            const int some = here == FS_NOWHERE ? 0 : bytes;
            const float *const source = some ? base + here + along : base;
            if (fours)
                cp_async_16_zfill(column + i * warps * pitch * 4, source, some);
            else
                cp_async_4_zfill(column + i * warps * pitch * 4, source, some);
        }
    }
}

/* From here on a value becomes infinite when it is rounded to TF32; and queries and keys may have scores that overflow,
 * which parts of 3xTF32 would do with both signs. */
#define TF32_TOO_LARGE   0x1.FFEp127f
#define TF32_LARGE_SCORE 0x1p59f

/* Bit i: row w + i warps has a value that is not finite, or not below `large`, among those that this thread copied. */
template <int rows, int warps>
__device__ __forceinline__ uint32_t tf32_bad(const float *from, int pitch, int padded, bool fours, float large)
{
    const int lane = threadIdx.x & 31, near = fours ? 4 : 1;
    uint32_t bad = 0;
    from += (threadIdx.x >> 5) * pitch;
#pragma unroll 1
    for (int x = near * lane; x < padded; x += 32 * near) {
        float any = 0.0f;                            /* a sum of magnitudes: as large as the largest, or NaN */
        if (fours) {
            float test[rows / warps];
#pragma unroll
            for (int i = 0; i < rows / warps; i++) {
                const float4 four = *(const float4 *)(from + i * warps * pitch + x);
                test[i] = __fadd_rn(__fadd_rn(fabsf(four.x), fabsf(four.y)), __fadd_rn(fabsf(four.z), fabsf(four.w)));
            }
#pragma unroll
            for (int i = 0; i < rows / warps; i++)
                any = __fadd_rn(any, test[i]);
        } else {
#pragma unroll 4
            for (int i = 0; i < rows / warps; i++)
                any = __fadd_rn(any, fabsf(from[i * warps * pitch + x]));
        }
        if (!(any < large)) {                        /* value by value: how they were copied changes no bits */
#pragma unroll 1
            for (int i = 0; i < rows / warps; i++)
#pragma unroll 1
                for (int y = 0; y < near; y++)
                    bad |= fabsf(from[i * warps * pitch + x + y]) < large ? 0 : 1u << i;
        }
    }
    return bad;
}

/* From each thread's tf32_bad to the bits of bad rows. All threads call; ends with a barrier. */
template <int rows, int warps> __device__ __forceinline__ void tf32_mark_rows(uint32_t bad, uint32_t *bits)
{
    if (threadIdx.x < rows / 32)
        bits[threadIdx.x] = 0;
    __syncthreads();
    for (int row = threadIdx.x >> 5; bad; bad >>= 1, row += warps)
        if (bad & 1)
            atomicOr(&bits[row / 32], 1u << (row & 31));
    __syncthreads();
}

/* The keys of values that are not finite, by column; they become 0. Values too large lose their last bits. All threads
 * call; ends with a barrier. */
template <int DV, int W> __device__ void tf32_take_out(float *v, tf32_shared<DV, W> *sh, bool fours)
{
    typedef tf32_tile<DV, W> tile;
    const int lane = threadIdx.x & 31, near = fours ? 4 : 1;
    for (int x = threadIdx.x; x < tile::key_words * DV; x += tile::threads)
        sh->bad_v[x / DV][x % DV] = 0;
    __syncthreads();
    for (int row = threadIdx.x >> 5; row < tile::keys; row += W)
        for (int x = near * lane; x < DV; x += 32 * near)
            for (int y = x; y < x + near; y++) {
                float *const value = &v[row * tile::v_pitch + y];
                if (!is_finite(*value)) {
                    *value = 0.0f;
                    atomicOr(&sh->bad_v[row / 32][y], 1u << (row & 31));
                } else if (fabsf(*value) >= TF32_TOO_LARGE) {
                    *value = __uint_as_float(__float_as_uint(*value) & 0xFFFFE000u);
                }
            }
    __syncthreads();
}

#endif
