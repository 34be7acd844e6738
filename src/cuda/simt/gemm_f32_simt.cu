/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The product of gemm_simt_kernels.cu for f32 and many rows, where the multiply-adds themselves are the cost.
 *
 * A block of 4 warps computes tiles of C, 128 x 128, a warp 64 x 64 of it, a thread 16 x 8: 128 sums, and
 * 24 floats of shared memory for 128 multiply-adds. K goes in steps of 16, copied by cp.async, which passes
 * no register, two steps ahead of the multiplication. A thread takes k in fours: B's 4 x 8 values by 8 reads
 * of 16 bytes, then for each of its 16 rows one read of four k and 32 multiply-adds; that loop is not
 * unrolled, so that its code stays in the first cache of instructions.
 *
 * Where all tiles cost the same there are two blocks a multiprocessor, and each walks over tiles in one
 * pipeline of steps: the next tile's first steps are on their way while the last one's results are written.
 *
 * Shared memory, 49 KB, two blocks a multiprocessor: three times A [128][16 of k] and B [16 of
 * k][128 n + 4]. A is copied 16 bytes at a time; the four pieces of a line are permuted by
 * gemm_f32_place, so that 4 neighbouring rows, which a warp reads at once, lie in different banks.
 * B comes 16 bytes at a time where its n lie side by side; where its k do (Q K^T) 4 bytes at a
 * time, which transposes it. Operands with other strides come element by element.
 *
 * Lane l of a warp has rows ty + 4 r, r < 16, and columns 4 tx + 32 c .. + 3, c < 2, where ty < 4 and tx < 8.
 *
 * Bits: every sum is a chain of fused multiply-adds over ascending k, as in gemm_simt_kernels.cu,
 * whose P V alone has short chains.
 */
#include "cuda/common/ptx.cuh"
#include "cuda/simt/gemm_simt.h"
#include "cuda/simt/gemm_work.cuh"
#include "cuda/simt/tile_simt.cuh"

enum {
    A_TILE = GEMM_ROWS * TILE_K, B_PITCH = GEMM_COLUMNS + 4, B_TILE = TILE_K * B_PITCH,
    STAGE = A_TILE + B_TILE, STAGES = 3
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
__device__ __noinline__ void gemm_f32_gather(uint32_t tile, const float *from, int64_t row_stride,
                                             int64_t k_stride, int rows, int ks)
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

__device__ __forceinline__ void gemm_f32_copy_a(uint32_t tile, const float *from, const struct gemm_operand *t,
                                                int rows, int ks)
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
 * First row and first column of the thread in the tile, and where its pieces of A start. Because ty
 * < 4, piece q of row r (line row + 4 r) is a[(q ^ r ^ 2 r) & 1] + 64 r + 4 ((q ^ r ^ 2 r) & 2):
 * constants, for unrolled q and r.
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
    int piece[4];
#pragma unroll
    for (int x = 0; x < 4; x++)
        piece[x] = gemm_f32_place(at.row, q ^ x);
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
        const float4 four = *(const float4 *)(a + piece[(r ^ 2 * r) & 3] + 64 * r);
        const float row[4] = { four.x, four.y, four.z, four.w };
#pragma unroll
        for (int x = 0; x < 4; x++)
#pragma unroll
            for (int c = 0; c < 8; c++)
                sum[r][c] = __fmaf_rn(row[x], column[x][c], sum[r][c]);
    }
}

/* Beside the fast way of gemm_f32_write, out of its code. */
static __device__ __noinline__ void gemm_f32_put(const struct gemm_args *a, char *c, int64_t m, int64_t n,
                                                 float4 four, float scale)
{
    const float values[4] = { four.x, four.y, four.z, four.w };
    gemm_put_four(a, c, m, n, values, scale);
}

template <bool factors>
__device__ __forceinline__ void gemm_f32_write(const struct gemm_args *a, const struct gemm_work &w,
                                               const struct gemm_f32_lane &at, float (*sum)[8])
{
    char *const c = a->c + (w.batch * a->c_batch + w.head * a->c_head) * a->c_itemsize;
    const bool fast = a->c_vectors && w.n0 + GEMM_COLUMNS <= a->n;
    const int there = (int)min(a->m - w.m0, (int64_t)GEMM_ROWS);
    float *to = (float *)(void *)c + (w.m0 + at.row) * a->c_row + w.n0 + at.column;
#pragma unroll
    for (int r = 0; r < 16; r++, to += 4 * a->c_row) {
        const int64_t m = w.m0 + at.row + 4 * r;
        if (at.row + 4 * r >= there)
            continue;
        const float scale = gemm_scale(a, w, m);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float *const value = sum[r] + 4 * half;
            float four[4];
#pragma unroll
            for (int x = 0; x < 4; x++)
                four[x] = factors ? __fadd_rn(__fmul_rn(scale, value[x]), 0.0f) : __fmul_rn(scale, value[x]);
            if (fast)
                *(float4 *)(to + 32 * half) = make_float4(four[0], four[1], four[2], four[3]);
            else
                gemm_f32_put(a, c, m, w.n0 + at.column + 32 * half, make_float4(value[0], value[1], value[2], value[3]),
                             scale);
        }
    }
}

/* An item as its multiplication needs it. */
struct gemm_f32_item { struct gemm_work w; int64_t first, steps, all_begin, all_end; };
enum { GEMM_F32_ITEMS = 4 };    /* begun and not done: one at work, and a step's each for two ahead */

/* What is brought: where this thread reads next of A and B, k of the item to come, the block's next
 * item, items begun. */
struct gemm_f32_feed {
    const float *a, *b;
    int64_t coming, index;
    int a_rows, b_rows, items;
    bool some;                  /* the item has keys; else it is one step of zeros */
};

/* Begins the block's next item that has work, if there is any: then coming > 0. */
__device__ __forceinline__ void gemm_f32_begin(const struct gemm_args *a, const struct problem *p, int way,
                                               struct gemm_f32_feed *f, struct gemm_f32_item *items)
{
    for (; f->index < a->work; f->index += gridDim.x) {
        const struct gemm_work w = gemm_work_of(a, f->index, GEMM_ROWS);
        struct gemm_keys keys;
        if (!gemm_keys_of_item(a, p, w, GEMM_ROWS, &keys))
            continue;
        int64_t b_head = w.head;
        split_index(&b_head, a->b_head_div);
        const int64_t start = keys.begin / TILE_K * TILE_K;
        f->a = (const float *)a->a.data + w.batch * a->a.batch + w.head * a->a.head + w.m0 * a->a.row + start * a->a.k +
               gemm_f32_first_a(a->a.vectors, a->a.row);
        f->b = (const float *)a->b.data + w.batch * a->b.batch + b_head * a->b.head + w.n0 * a->b.row + start * a->b.k +
               gemm_f32_first_b(way, a->b.row, a->b.k);
        f->a_rows = (int)min(a->m - w.m0, (int64_t)GEMM_ROWS);
        f->b_rows = (int)min(a->n - w.n0, (int64_t)GEMM_COLUMNS);
        f->some = keys.end > start;
        f->coming = f->some ? keys.end - start : 1;
        if (threadIdx.x == 0)
            items[f->items % GEMM_F32_ITEMS] = (struct gemm_f32_item){ w, start, (f->coming + TILE_K - 1) / TILE_K,
                                                                       keys.all_begin, keys.all_end };
        f->items++;
        f->index += gridDim.x;
        return;
    }
}

/* Starts the copies of the next step into the stage at `to`. */
__device__ __forceinline__ void gemm_f32_bring(const struct gemm_args *a, int way, struct gemm_f32_feed *f,
                                               uint32_t to)
{
    const int ks = !f->some ? 0 : f->coming < TILE_K ? (int)f->coming : TILE_K;
    gemm_f32_copy_a(to, f->a, &a->a, f->a_rows, ks);
    gemm_f32_copy_b(to + A_TILE * 4, f->b, &a->b, way, f->b_rows, ks);
    f->a += TILE_K * a->a.k;
    f->b += TILE_K * a->b.k;
    f->coming -= TILE_K;
}

/* A step's values that are not finite: marks the sums of rows that see one; then they count as 0. All threads call. */
__device__ __forceinline__ void gemm_f32_take_out(const float *a, float *b, const struct gemm_f32_lane &at,
                                                  float (*sum)[8])
{
    gemm_f32_mark(a, b, at, sum);
    __syncthreads();
    gemm_f32_clean(b);
    __syncthreads();
}

/* The steps of a block's items run through one pipeline: while an item's last steps are multiplied and its results
 * written, the next one's first steps are on their way. */
template <bool hiding>
static __global__ void __launch_bounds__(GEMM_F32_THREADS, 2)
gemm_f32_simt_kernel(const __grid_constant__ struct gemm_args args,
                     const __grid_constant__ struct problem_param packed)
{
    extern __shared__ __align__(16) float gemm_f32_shared[];
    __shared__ struct gemm_f32_item items[GEMM_F32_ITEMS];
    const struct gemm_args *const a = &args;
    const struct gemm_f32_lane at = gemm_f32_lane_of();
    const int way = !a->b.vectors ? WAY_ELEMENTS : a->b.along_k ? WAY_TRANSPOSE : WAY_LINES;
    struct gemm_f32_feed feed = { NULL, NULL, 0, blockIdx.x, 0, 0, 0, false };
    struct gemm_keys keys = { 0, 0, 0, 0 };          /* begin: first k of the step to multiply */
    int64_t left = 0;                                /* steps of the item to multiply */
    int tile = 0, next = 0, ahead = 0, done = 0;     /* floats into shared memory; steps brought; items multiplied */
    bool marked = false;
    float sum[16][8];

    wait_for_predecessor();
    for (;;) {
        const bool multiply = ahead == STAGES - 1;
        bool bad = false;
        if (multiply) {
            if (left == 0 && done == feed.items)
                break;
            cp_async_wait<STAGES - 2>();
            __syncthreads();
            if (left == 0) {                         /* an item begins */
                const struct gemm_f32_item *const item = &items[done % GEMM_F32_ITEMS];
                left = item->steps;
                keys = (struct gemm_keys){ item->first, 0, item->all_begin, item->all_end };
                if constexpr (hiding)
                    marked = __syncthreads_or(gemm_marked(a, item->w));
#pragma unroll
                for (int x = 0; x < 128; x++)
                    sum[x / 8][x % 8] = 0.0f;
            }
            if constexpr (hiding) {
                if (marked || keys.begin < keys.all_begin || keys.begin + TILE_K > keys.all_end)
                    bad = __syncthreads_or(gemm_f32_search(gemm_f32_shared + tile + A_TILE));
                keys.begin += TILE_K;
            }
        }
        if (feed.coming <= 0)
            gemm_f32_begin(a, problem_of(&packed), way, &feed, items);
        if (feed.coming > 0) {
            gemm_f32_bring(a, way, &feed, shared_address(gemm_f32_shared + next));
            next = next == (STAGES - 1) * STAGE ? 0 : next + STAGE;
        }
        cp_async_commit();
        if (!multiply) {
            ahead++;
            continue;
        }
        float *const a_tile = gemm_f32_shared + tile, *const b_tile = a_tile + A_TILE;
        if (hiding && bad)
            gemm_f32_take_out(a_tile, b_tile, at, sum);
#pragma unroll 1
        for (int q = 0; q < TILE_K / 4; q++)
            gemm_f32_four(a_tile, b_tile, q, at, sum);
        tile = tile == (STAGES - 1) * STAGE ? 0 : tile + STAGE;
        if (--left == 0)
            gemm_f32_write<hiding>(a, items[done++ % GEMM_F32_ITEMS].w, at, sum);
    }
}

const void *qattn__gemm_f32_simt(bool hiding)
{
    return hiding ? (const void *)gemm_f32_simt_kernel<true> : (const void *)gemm_f32_simt_kernel<false>;
}
