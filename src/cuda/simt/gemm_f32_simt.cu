/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The product of gemm_simt_kernels.cu for f32 and many rows, where the multiply-adds themselves are the cost.
 *
 * A block of 4 warps computes one tile of C, 128 x 128, a warp 64 x 64 of it, a thread 16 x 8: 128 sums, and 24 floats of shared
 * memory for 128 multiply-adds. K goes in steps of 16, copied by cp.async, which passes no register, two steps ahead of
 * the multiplication. A thread takes k in fours: B's 4 x 8 values by 8 reads of 16 bytes, then for each of its 16 rows
 * one read of four k and 32 multiply-adds.
 *
 * Shared memory, 49 KB, two blocks a multiprocessor: three times A [128][16 of k] and B [16 of k][128 n + 4]. A is copied
 * 16 bytes at a time; the four pieces of a line are permuted by gemm_f32_place, so that 4 neighbouring rows, which a warp
 * reads at once, lie in different banks. B comes 16 bytes at a time where its n lie side by side; where its k do (Q K^T)
 * 4 bytes at a time, which transposes it. Operands with other strides come element by element.
 *
 * Lane l of a warp has rows ty + 4 r, r < 16, and columns 4 tx + 32 c .. + 3, c < 2, where ty < 4 and tx < 8.
 *
 * Bits: every sum is a chain of fused multiply-adds over ascending k, as in gemm_simt_kernels.cu, whose P V alone has short chains.
 */
#include "cuda/common/ptx.cuh"
#include "cuda/simt/gemm_simt.h"
#include "cuda/simt/gemm_work.cuh"
#include "cuda/simt/tile_simt.cuh"

enum {
    A_TILE = GEMM_ROWS * TILE_K, B_PITCH = GEMM_COLUMNS + 4, B_TILE = TILE_K * B_PITCH, STAGE = A_TILE + B_TILE, STAGES = 3
};
static_assert(STAGES * STAGE * sizeof(float) == GEMM_F32_SHARED, "what the launcher asks for");
static_assert(GEMM_ROWS == 128 && GEMM_COLUMNS == 128 && GEMM_F32_THREADS == 128, "a warp has 64 x 64");

/* Float at which piece q (four k) of a line of A starts. */
__device__ __forceinline__ int gemm_f32_place(int line, int q)
{
    return line * TILE_K + ((q ^ (line >> 2) ^ (line >> 1)) & 3) * 4;
}

/* The three ways from memory: what is copied at once. */
enum gemm_f32_way { WAY_ELEMENTS, WAY_LINES, WAY_TRANSPOSE };

/* Elements from a tile's first one to where the thread starts reading; row, k: strides. */
__device__ __forceinline__ int64_t gemm_f32_first_a(bool lines, int64_t row)
{
    return lines ? (threadIdx.x >> 2) * row + (threadIdx.x & 3) * 4 : 0;
}

__device__ __forceinline__ int64_t gemm_f32_first_b(int way, int64_t row, int64_t k)
{
    return way == WAY_LINES ? (threadIdx.x >> 5) * k + (threadIdx.x & 31) * 4
                            : way == WAY_TRANSPOSE ? (threadIdx.x >> 3) * row + (threadIdx.x & 7) : 0;
}

/* Element by element, 0 where row >= rows or k >= ks. spot: float of (row, k) in the tile. */
template <bool is_a>
__device__ __noinline__ void gemm_f32_gather(uint32_t tile, const float *from, int64_t row_stride, int64_t k_stride, int rows,
                                             int ks)
{
    const bool along = (k_stride < 0 ? -k_stride : k_stride) <= (row_stride < 0 ? -row_stride : row_stride) ||
                       row_stride == 0;
#pragma unroll 1
    for (int i = threadIdx.x; i < 128 * TILE_K; i += GEMM_F32_THREADS) {
        const int row = along ? i / TILE_K : i % 128, k = along ? i % TILE_K : i / 128;
        const int spot = is_a ? gemm_f32_place(row, k / 4) + k % 4 : k * B_PITCH + row;
        const bool some = row < rows && k < ks;
        cp_async_4_zfill(tile + (uint32_t)spot * 4, from + (some ? row * row_stride + k * k_stride : 0), some ? 4 : 0);
    }
}

__device__ __forceinline__ void gemm_f32_copy_a(uint32_t tile, const float *from, const struct gemm_operand *t, int rows,
                                                int ks)
{
    const int row = threadIdx.x >> 2, q = threadIdx.x & 3, bytes = min(max(ks - q * 4, 0), 4) * 4;
    const uint32_t to = tile + (uint32_t)gemm_f32_place(row, q) * 4;     /* 32 rows on, the permutation is the same */
    const int64_t step = 32 * t->row;
    if (!t->vectors) {
        gemm_f32_gather<true>(tile, from, t->row, t->k, rows, ks);
    } else if (rows == GEMM_ROWS && ks == TILE_K) {
#pragma unroll
        for (int x = 0; x < 4; x++, from += step)
            cp_async_16(to + x * 32 * TILE_K * 4, from);
    } else {
#pragma unroll
        for (int x = 0; x < 4; x++, from += step)
            cp_async_16_zfill(to + x * 32 * TILE_K * 4, from, row + 32 * x < rows ? bytes : 0);
    }
}

__device__ __forceinline__ void gemm_f32_copy_b(uint32_t tile, const float *from, const struct gemm_operand *t, int way,
                                                int rows, int ks)
{
    const int tid = threadIdx.x;
    if (way == WAY_LINES) {
        const int k = tid >> 5, n = (tid & 31) * 4, bytes = min(max(rows - n, 0), 4) * 4;
        const uint32_t to = tile + (uint32_t)(k * B_PITCH + n) * 4;
        const int64_t step = 4 * t->k;
#pragma unroll
        for (int x = 0; x < 4; x++, from += step)
            cp_async_16_zfill(to + x * 4 * B_PITCH * 4, from, k + 4 * x < ks ? bytes : 0);
    } else if (way == WAY_TRANSPOSE && rows == GEMM_COLUMNS && ks == TILE_K) {
        const uint32_t to = tile + (uint32_t)((tid & 7) * B_PITCH + (tid >> 3)) * 4;
        const int64_t step = 16 * t->row;
#pragma unroll
        for (int x = 0; x < 8; x++, from += step) {
            cp_async_small<4>(to + x * 16 * 4, from);
            cp_async_small<4>(to + (x * 16 + 8 * B_PITCH) * 4, from + 8);
        }
    } else {
        gemm_f32_gather<false>(tile, from - gemm_f32_first_b(way, t->row, t->k), t->row, t->k, rows, ks);
    }
}

/* Some value of V's step is not finite: each thread looks at those it copied by lines. */
__device__ __forceinline__ bool gemm_f32_search(const float *tile)
{
    bool bad = false;
#pragma unroll
    for (int x = 0; x < 4; x++) {
        const float4 v = *(const float4 *)(tile + ((threadIdx.x >> 5) + 4 * x) * B_PITCH + (threadIdx.x & 31) * 4);
        bad |= !is_finite(v.x) | !is_finite(v.y) | !is_finite(v.z) | !is_finite(v.w);
    }
    return bad;
}

/*
 * First row and first column of the thread in the tile, and where its pieces of A start. Because ty < 4, piece q of row r
 * (line row + 4 r) is a[(q ^ r ^ 2 r) & 1] + 64 r + 4 ((q ^ r ^ 2 r) & 2): constants, for unrolled q and r.
 */
struct gemm_f32_lane { int row, column, a[2]; };

__device__ __forceinline__ struct gemm_f32_lane gemm_f32_lane_of(void)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    struct gemm_f32_lane at;
    at.row = (warp >> 1) * 64 + ((lane & 1) | (lane >> 4) << 1);
    at.column = (warp & 1) * 64 + ((lane >> 1) & 7) * 4;
    at.a[0] = gemm_f32_place(at.row, 0);
    at.a[1] = gemm_f32_place(at.row, 1);
    return at;
}

/* Sums whose row sees a value of V's step that is not finite become NaN. */
__device__ __forceinline__ void gemm_f32_mark(const float *a, const float *b, const struct gemm_f32_lane &at,
                                              float (*sum)[8])
{
#pragma unroll 1
    for (int k = 0; k < TILE_K; k++) {
        uint32_t bad = 0;
#pragma unroll
        for (int c = 0; c < 8; c++)
            bad |= is_finite(b[k * B_PITCH + at.column + (c >> 2) * 32 + (c & 3)]) ? 0u : 1u << c;
#pragma unroll
        for (int r = 0; r < 16; r++) {
            const uint32_t hit = is_hidden_p(a[gemm_f32_place(at.row + 4 * r, k / 4) + k % 4]) ? 0 : bad;
#pragma unroll
            for (int c = 0; c < 8; c++)
                sum[r][c] = hit & 1u << c ? __int_as_float(0x7FC00000) : sum[r][c];
        }
    }
}

/* Then they count as 0. */
__device__ __forceinline__ void gemm_f32_clean(float *b)
{
#pragma unroll 1
    for (int i = threadIdx.x; i < B_TILE; i += GEMM_F32_THREADS)
        b[i] = is_finite(b[i]) ? b[i] : 0.0f;
}

/* sum += A B over four k. */
__device__ __forceinline__ void gemm_f32_four(const float *a, const float *b, int q, const struct gemm_f32_lane &at,
                                              float (*sum)[8])
{
    float column[4][8];
#pragma unroll
    for (int x = 0; x < 8; x++) {
        const float4 four = *(const float4 *)(b + (4 * q + x / 2) * B_PITCH + at.column + x % 2 * 32);
        column[x / 2][x % 2 * 4] = four.x;
        column[x / 2][x % 2 * 4 + 1] = four.y;
        column[x / 2][x % 2 * 4 + 2] = four.z;
        column[x / 2][x % 2 * 4 + 3] = four.w;
    }
#pragma unroll
    for (int r = 0; r < 16; r++) {
        const int swapped = (q ^ r ^ 2 * r) & 3;
        const float4 four = *(const float4 *)(a + at.a[swapped & 1] + 64 * r + 4 * (swapped & 2));
        const float row[4] = { four.x, four.y, four.z, four.w };
#pragma unroll
        for (int x = 0; x < 4; x++)
#pragma unroll
            for (int c = 0; c < 8; c++)
                sum[r][c] = __fmaf_rn(row[x], column[x][c], sum[r][c]);
    }
}

__device__ __forceinline__ void gemm_f32_write(const struct gemm_simt_args *a, const struct gemm_work &w,
                                               const struct gemm_f32_lane &at, float (*sum)[8])
{
    char *const c = a->c + (w.batch * a->c_batch + w.head * a->c_head) * a->c_itemsize;
#pragma unroll
    for (int r = 0; r < 16; r++) {
        const int64_t m = w.m0 + at.row + 4 * r;
        if (m >= a->m)
            continue;
        const float scale = gemm_scale(a, w, m);
        gemm_put_four(a, c, m, w.n0 + at.column, sum[r], scale);
        gemm_put_four(a, c, m, w.n0 + at.column + 32, sum[r] + 4, scale);
    }
}

/* Some row of the tile has hidden keys among those it sees by position: its factor is marked with a sign. */
__device__ __forceinline__ bool gemm_f32_marked(const struct gemm_simt_args *a, const struct gemm_work &w)
{
    const int64_t m = w.m0 + threadIdx.x;
    return m < a->m && __float_as_int(a->factors[(w.batch * a->heads + w.head) * a->m + m]) < 0;
}

template <bool hiding>
static __global__ void __launch_bounds__(GEMM_F32_THREADS, 2)
gemm_f32_simt_kernel(const __grid_constant__ struct gemm_simt_args args, const __grid_constant__ struct problem_param packed)
{
    extern __shared__ __align__(16) float gemm_f32_shared[];
    __shared__ struct gemm_work kept;                /* registers less in the loop */
    const struct gemm_simt_args *const a = &args;
    const struct gemm_f32_lane at = gemm_f32_lane_of();
    const int way = !a->b.vectors ? WAY_ELEMENTS : a->b.along_k ? WAY_TRANSPOSE : WAY_LINES;

    for (int64_t index = blockIdx.x; index < a->work; index += gridDim.x) {
        const struct gemm_work w = gemm_work_of(a, index, GEMM_ROWS);
        struct gemm_keys keys = { 0, a->k, 0, a->k };
        if (a->cut)
            keys = gemm_keys_of(problem_of(&packed), w.batch, w.m0, GEMM_ROWS);
        if (a->cut && a->range == RANGE_SCORES) {
            if (keys.begin == keys.end || keys.end <= w.n0 || keys.begin >= w.n0 + GEMM_COLUMNS)
                continue;
            keys.begin = 0;
            keys.end = a->k;
        }
        float sum[16][8];
#pragma unroll
        for (int x = 0; x < 128; x++)
            sum[x / 8][x % 8] = 0.0f;

        const int64_t start = keys.begin / TILE_K * TILE_K;
        const float *a_from = (const float *)a->a.data + w.batch * a->a.batch + w.head * a->a.head + w.m0 * a->a.row +
                              start * a->a.k + gemm_f32_first_a(a->a.vectors, a->a.row);
        const float *b_from = (const float *)a->b.data + w.batch * a->b.batch + w.head / a->b_head_div * a->b.head +
                              w.n0 * a->b.row + start * a->b.k + gemm_f32_first_b(way, a->b.row, a->b.k);
        const int a_rows = (int)min(a->m - w.m0, (int64_t)GEMM_ROWS);
        const int b_rows = (int)min(a->n - w.n0, (int64_t)GEMM_COLUMNS);
        int64_t coming = keys.end - start, k0 = start;   /* k to bring; first k to multiply */
        int tile = 0, next = 0, pending = 0;         /* floats into shared memory; steps brought and not multiplied */
        bool marked = false;
        if constexpr (hiding)
            marked = __syncthreads_or(gemm_f32_marked(a, w));    /* and the last item's readers are done */
        else
            __syncthreads();
        if (threadIdx.x == 0)
            kept = w;
#pragma unroll 1
        for (int ahead = 0; coming > 0 || pending > 0; ahead++) {
            const bool multiply = ahead >= STAGES - 1;
            bool bad = false;
            if (multiply) {
                cp_async_wait<STAGES - 2>();
                __syncthreads();
                if constexpr (hiding) {
                    if (marked || k0 < keys.all_begin || k0 + TILE_K > keys.all_end)
                        bad = __syncthreads_or(gemm_f32_search(gemm_f32_shared + tile + A_TILE));
                    k0 += TILE_K;
                }
            }
            if (coming > 0) {
                const int some = coming < TILE_K ? (int)coming : TILE_K;
                const uint32_t to = shared_address(gemm_f32_shared + next);
                gemm_f32_copy_a(to, a_from, &a->a, a_rows, some);
                gemm_f32_copy_b(to + A_TILE * 4, b_from, &a->b, way, b_rows, some);
                a_from += TILE_K * a->a.k;
                b_from += TILE_K * a->b.k;
                coming -= TILE_K;
                pending++;
                next = next == (STAGES - 1) * STAGE ? 0 : next + STAGE;
            }
            cp_async_commit();
            if (!multiply)
                continue;
            float *const a_tile = gemm_f32_shared + tile, *const b_tile = a_tile + A_TILE;
            if (hiding && bad) {
                gemm_f32_mark(a_tile, b_tile, at, sum);
                __syncthreads();
                gemm_f32_clean(b_tile);
                __syncthreads();
            }
#pragma unroll
            for (int q = 0; q < TILE_K / 4; q++)
                gemm_f32_four(a_tile, b_tile, q, at, sum);
            pending--;
            tile = tile == (STAGES - 1) * STAGE ? 0 : tile + STAGE;
        }
        __syncthreads();                             /* kept, where there was no step */
        gemm_f32_write(a, kept, at, sum);
    }
}

const void *qattn__gemm_f32_simt(bool hiding)
{
    return hiding ? (const void *)gemm_f32_simt_kernel<true> : (const void *)gemm_f32_simt_kernel<false>;
}
