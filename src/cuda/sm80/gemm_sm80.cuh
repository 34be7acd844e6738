/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * C = alpha A B + beta C per (batch, head) on tensor cores: f16, bf16, and f32 as TF32 or 3xTF32; sums in f32.
 *
 * A block of 4 warps computes one tile of C, 128 x 128, a warp 64 x 64 of it: 4 x 8 fragments of 16
 * x 8, 128 sums a thread. It walks over K in steps of 128 bytes (64 elements of 16 bits, 32 of
 * f32), three of them in shared memory: while one is multiplied, two are on their way (cp.async),
 * one barrier a step. A warp reads 8 x 16 bytes of shared memory with one ldmatrix; for each k of
 * 16 (8) it reads 4 + 4 of those x4 and issues 32 mma.sync (96 for 3xTF32).
 *
 * Shared memory, 96 KB, two blocks a multiprocessor: three times A, B, where A is [128 rows][128
 * bytes of k], and B either the same ([n][k], b_along_k) or, where its n lie side by side, [k][128
 * n]. The 16-byte pieces of a line are permuted (piece ^ line % 8), so that neither copies nor
 * ldmatrix meet in a bank.
 *
 * Operands whose rows do not start at multiples of 16 bytes, or have gaps, are gathered element by
 * element into the same tiles: same bits, less speed. matmul and matmul_nt differ in which stride
 * of B walks with k, and nothing else.
 *
 * At the end C goes through the stages' memory, each warp's 64 x 64: as whole rows, or, past the
 * last column, with other strides or beta, in f32 and in loops.
 *
 * 3xTF32: x = hi + lo, both TF32; lo hi + hi lo, then hi hi are added: what is left out is 2^-22 of a product.
 *
 * For attention (gqa_forward) two ranges are cut: RANGE_SCORES leaves out tiles of S that no row
 * sees (their memory is not written), RANGE_VALUES sums over the keys that some row of the tile
 * sees and multiplies each row with its factor. There a hidden key's P is -0 (math.cuh). A step in
 * which some pair is hidden is searched for values of V that are not finite; if there are any, it
 * is multiplied with 0 in their place, and the sums of rows that see one become NaN.
 *
 * Bits: sums run over k in ascending order from a multiple of the step, whatever the tile.
 */
#ifndef QATTN_CUDA_GEMM_SM80_CUH
#define QATTN_CUDA_GEMM_SM80_CUH

#include "cuda/common/dtype.cuh"
#include "cuda/common/math.cuh"
#include "cuda/common/ptx.cuh"
#include "cuda/simt/gemm_work.cuh"
#include "cuda/sm80/gemm_sm80_args.h"

enum { GEMM_LINE = 128, GEMM_TILE_BYTES = GEMM_SM80_ROWS * GEMM_LINE, GEMM_STAGE_BYTES = 2 * GEMM_TILE_BYTES };

/* ---------------------------------------------------------------- elements */

template <int kind> struct gemm_element;
template <> struct gemm_element<GEMM_F16> { typedef __half type; typedef uint16_t raw; };
template <> struct gemm_element<GEMM_BF16> { typedef __nv_bfloat16 type; typedef uint16_t raw; };
template <> struct gemm_element<GEMM_TF32> { typedef float type; typedef uint32_t raw; };
template <> struct gemm_element<GEMM_3XTF32> { typedef float type; typedef uint32_t raw; };

template <int kind> struct gemm_shape {
    static constexpr bool f32 = kind == GEMM_TF32 || kind == GEMM_3XTF32;
    static constexpr int size = f32 ? 4 : 2, step = GEMM_LINE / size, piece = 16 / size;    /* elements */
    static constexpr uint32_t exponent = kind == GEMM_BF16 ? 0x7F807F80u : 0x7C007C00u;     /* of two 16-bit elements */
    static constexpr uint32_t carry = kind == GEMM_BF16 ? 0x00800080u : 0x04000400u;
    static constexpr uint32_t one = kind == GEMM_BF16 ? 0x3F803F80u : 0x3C003C00u;
};

/* Bit 15 (31) is set where the low (high) element is not finite. */
template <int kind> __device__ __forceinline__ uint32_t gemm_not_finite(uint32_t two)
{
    return ((two & gemm_shape<kind>::exponent) + gemm_shape<kind>::carry) & 0x80008000u;
}

/* 0x8000 -> 0xFFFF in both halves. */
__device__ __forceinline__ uint32_t gemm_spread(uint32_t bits) { return (bits >> 15) * 0xFFFFu; }

/* ---------------------------------------------------------------- memory to shared memory */

template <int pieces> __device__ __forceinline__ uint32_t gemm_place(int line, int piece)
{
    return (uint32_t)(line * (pieces * 16) + ((piece ^ (line & 7)) << 4));
}

/* f32 [k][n] tiles are read 4 bytes at a time, 4 lines at once (gemm_load_b): another permutation. */
template <int kind, int pieces> __device__ __forceinline__ uint32_t gemm_place_of(int line, int piece)
{
    if (gemm_shape<kind>::f32 && pieces == 32)
        return (uint32_t)(line * (pieces * 16) + ((piece ^ ((line & 3) << 1)) << 4));
    return gemm_place<pieces>(line, piece);
}

/* A tile of lines of 16 `pieces` bytes: at is the address of its first element in memory, line and
 * along the bytes from line to line and from element to element of a line; lines and left: lines
 * and elements of a line that exist, zeros come elsewhere. */
template <int kind, int pieces>
__device__ __forceinline__ void gemm_copy(uint32_t tile, const char *at, int64_t line_bytes, int lines, int left)
{
    constexpr int all_lines = GEMM_TILE_BYTES / (pieces * 16), rows = GEMM_SM80_THREADS / pieces;
    constexpr int piece_elements = gemm_shape<kind>::piece;
    const int piece = threadIdx.x % pieces, line = threadIdx.x / pieces;
    const char *from = at + line * line_bytes + piece * 16;
    if (lines >= all_lines && left >= pieces * piece_elements) {
#pragma unroll
        for (int x = 0; x < all_lines / rows; x++) {
            cp_async_16(tile + gemm_place_of<kind, pieces>(line + x * rows, piece), from);
            from += rows * line_bytes;
        }
        return;
    }
    const int bytes = min(max((left - piece * piece_elements) * gemm_shape<kind>::size, 0), 16);
#pragma unroll
    for (int x = 0; x < all_lines / rows; x++) {
        const int some = line + x * rows < lines ? bytes : 0;
        cp_async_16_zfill(tile + gemm_place_of<kind, pieces>(line + x * rows, piece), some ? from : at, some);
        from += rows * line_bytes;
    }
}

/* The same, element by element; lanes run along whatever lies closer in memory. */
template <int kind, int pieces>
__device__ __noinline__ void gemm_gather(char *tile, const char *at, int64_t line_bytes, int64_t along_bytes, int lines,
                                         int left)
{
    typedef typename gemm_element<kind>::raw raw;
    constexpr int all_lines = GEMM_TILE_BYTES / (pieces * 16), width = pieces * gemm_shape<kind>::piece;
    const bool along = (along_bytes < 0 ? -along_bytes : along_bytes) <= (line_bytes < 0 ? -line_bytes : line_bytes) ||
                       line_bytes == 0;
#pragma unroll 8
    for (int x = threadIdx.x; x < all_lines * width; x += GEMM_SM80_THREADS) {
        const int line = along ? x / width : x % all_lines, e = along ? x % width : x / all_lines;
        const uint32_t place = gemm_place_of<kind, pieces>(line, e / gemm_shape<kind>::piece) +
                               e % gemm_shape<kind>::piece * gemm_shape<kind>::size;
        raw value = 0;
        if (line < lines && e < left)
            value = *(const raw *)(at + line * line_bytes + e * along_bytes);
        *(raw *)(tile + place) = value;
    }
}

template <int kind, int pieces>
__device__ __forceinline__ void gemm_bring(char *tile, const char *at, int64_t line, int64_t along,
                                           bool vectors, int lines, int left)
{
    constexpr int size = gemm_shape<kind>::size;
    if (vectors)
        gemm_copy<kind, pieces>(shared_address(tile), at, line * size, lines, left);
    else
        gemm_gather<kind, pieces>(tile, at, line * size, along * size, lines, left);
}

/* Some element of this thread's pieces of a [k][n] tile (those it copied) is not finite. 16-bit kinds. */
template <int kind, int pieces> __device__ __forceinline__ bool gemm_search(const char *tile)
{
    constexpr int all_lines = GEMM_TILE_BYTES / (pieces * 16), rows = GEMM_SM80_THREADS / pieces;
    const int piece = threadIdx.x % pieces, line = threadIdx.x / pieces;
    uint32_t bad = 0;
#pragma unroll
    for (int x = 0; x < all_lines / rows; x++) {
        const uint4 v = *(const uint4 *)(tile + gemm_place<pieces>(line + x * rows, piece));
        bad |= gemm_not_finite<kind>(v.x) | gemm_not_finite<kind>(v.y);
        bad |= gemm_not_finite<kind>(v.z) | gemm_not_finite<kind>(v.w);
    }
    return bad != 0;
}

/* ---------------------------------------------------------------- shared memory to sums */

/* Where this lane's ldmatrix rows lie. */
struct gemm_lane { uint32_t a, b; int wm, wn; };

template <int kind, bool b_along_k> __device__ __forceinline__ struct gemm_lane gemm_lane_of(void)
{
    const int l = threadIdx.x & 31, warp = threadIdx.x >> 5;
    struct gemm_lane lane;
    lane.wm = (warp >> 1) * 64;
    lane.wn = (warp & 1) * 64;
    lane.a = gemm_place<8>(lane.wm + (l & 15), l >> 4);
    if (b_along_k)
        lane.b = gemm_place<8>(lane.wn + ((l >> 4) << 3) + (l & 7), (l >> 3) & 1);
    else if (gemm_shape<kind>::f32)
        lane.b = gemm_place_of<kind, 32>(l & 3, lane.wn / 4 + (l >> 4)) + ((l >> 2) & 3) * 4;
    else
        lane.b = gemm_place<16>((((l >> 3) & 1) << 3) + (l & 7), lane.wn / 8 + (l >> 4));
    return lane;
}

/* Fragment of rows 16 x.. of the warp, k 16 kk.. (8 kk.. of f32). */
__device__ __forceinline__ void gemm_load_a(uint32_t tile, const struct gemm_lane *lane, int kk, int x, uint32_t *a)
{
    ldmatrix_x4(a, tile + (lane->a ^ (uint32_t)(kk << 5)) + (uint32_t)(x * 16 * GEMM_LINE));
}

/* Fragments of columns 16 x.. and 16 x + 8.. of the warp. */
template <int kind, bool b_along_k>
__device__ __forceinline__ void gemm_load_b(const char *tile, const struct gemm_lane *lane, int kk, int x, uint32_t *b)
{
    if (b_along_k) {
        ldmatrix_x4(b, shared_address(tile) + (lane->b ^ (uint32_t)(kk << 5)) + (uint32_t)(x * 16 * GEMM_LINE));
    } else if (gemm_shape<kind>::f32) {
        const char *const at = tile + kk * 8 * 512;
#pragma unroll
        for (int y = 0; y < 2; y++) {
            const uint32_t place = lane->b ^ (uint32_t)((2 * x + y) << 5);
            b[2 * y] = *(const uint32_t *)(at + place);
            b[2 * y + 1] = *(const uint32_t *)(at + place + 4 * 512);
        }
    } else {
        ldmatrix_x4_trans(b, shared_address(tile) + (lane->b ^ (uint32_t)(x << 5)) + (uint32_t)(kk * 16 * 256));
    }
}

/* x = hi + lo. Infinities and NaN are all in hi; so is what would round to infinity, cut off instead. */
__device__ __forceinline__ void gemm_split(uint32_t x, uint32_t *hi, uint32_t *lo)
{
    const float value = __uint_as_float(x);
    uint32_t high = round_tf32(value);
    float rest = __fsub_rn(value, __uint_as_float(high));
    if (!is_finite(rest)) {
        high = is_finite(value) ? x & 0xFFFFE000u : high;
        rest = is_finite(value) ? __fsub_rn(value, __uint_as_float(high)) : 0.0f;
    }
    *hi = high;
    *lo = round_tf32(rest);
}

/* sum += A B over one step. clean: values of B that are not finite count as 0. */
template <int kind, bool b_along_k, bool clean>
__device__ __forceinline__ void gemm_multiply(const char *a_tile, const char *b_tile, const struct gemm_lane *lane,
                                              float (*sum)[8][4])
{
    const uint32_t a_at = shared_address(a_tile);
    constexpr int three = kind == GEMM_3XTF32;
#pragma unroll
    for (int kk = 0; kk < 4; kk++) {
        uint32_t a[4][4], b[8][2], a_low[three ? 4 : 1][4], b_low[three ? 8 : 1][2];
#pragma unroll
        for (int x = 0; x < 4; x++)
            gemm_load_a(a_at, lane, kk, x, a[x]);
#pragma unroll
        for (int x = 0; x < 4; x++)
            gemm_load_b<kind, b_along_k>(b_tile, lane, kk, x, b[2 * x]);
        if (clean) {
#pragma unroll
            for (int x = 0; x < 16; x++)
                b[x / 2][x % 2] &= ~gemm_spread(gemm_not_finite<kind>(b[x / 2][x % 2]));
        }
        if constexpr (three) {
#pragma unroll
            for (int x = 0; x < 16; x++) {
                gemm_split(a[x / 4][x % 4], &a[x / 4][x % 4], &a_low[x / 4][x % 4]);
                gemm_split(b[x / 2][x % 2], &b[x / 2][x % 2], &b_low[x / 2][x % 2]);
            }
        } else if constexpr (kind == GEMM_TF32) {
#pragma unroll
            for (int x = 0; x < 16; x++) {
                a[x / 4][x % 4] = round_tf32(__uint_as_float(a[x / 4][x % 4]));
                b[x / 2][x % 2] = round_tf32(__uint_as_float(b[x / 2][x % 2]));
            }
        }
#pragma unroll
        for (int x = 0; x < 4; x++)
#pragma unroll
            for (int y = 0; y < 8; y++) {
                if constexpr (three) {
                    mma_1688_tf32(sum[x][y], a_low[x], b[y]);
                    mma_1688_tf32(sum[x][y], a[x], b_low[y]);
                }
                if constexpr (gemm_shape<kind>::f32)
                    mma_1688_tf32(sum[x][y], a[x], b[y]);
                else
                    mma_16816<typename gemm_element<kind>::type>(sum[x][y], a[x], b[y]);
            }
    }
}

/* Rows that see a value of V that is not finite get NaN in its column: counts of such pairs, as a product of ones. */
template <int kind>
__device__ __forceinline__ void gemm_mark(const char *a_tile, const char *b_tile, const struct gemm_lane *lane,
                                          float (*sum)[8][4])
{
#pragma unroll
    for (int x = 0; x < 4; x++) {
        float count[8][4] = {};
#pragma unroll 1
        for (int kk = 0; kk < 4; kk++) {
            uint32_t a[4];
            gemm_load_a(shared_address(a_tile), lane, kk, x, a);
#pragma unroll
            for (int r = 0; r < 4; r++) {
                const uint32_t low = (a[r] & 0xFFFFu) == 0x8000u ? 0u : 0xFFFFu;
                const uint32_t high = a[r] >> 16 == 0x8000u ? 0u : 0xFFFF0000u;
                a[r] = gemm_shape<kind>::one & (low | high);
            }
#pragma unroll
            for (int y = 0; y < 4; y++) {
                uint32_t b[4];
                gemm_load_b<kind, false>(b_tile, lane, kk, y, b);
#pragma unroll
                for (int r = 0; r < 4; r++)
                    b[r] = gemm_shape<kind>::one & gemm_spread(gemm_not_finite<kind>(b[r]));
                mma_16816<typename gemm_element<kind>::type>(count[2 * y], a, b);
                mma_16816<typename gemm_element<kind>::type>(count[2 * y + 1], a, b + 2);
            }
        }
#pragma unroll
        for (int y = 0; y < 32; y++)
            if (count[y / 4][y % 4] != 0.0f)
                sum[x][y / 4][y % 4] = __int_as_float(0x7FC00000);
    }
}

/* ---------------------------------------------------------------- results */

/* An element of C before it is rounded. -0 of attention becomes 0: which it is may depend on hidden keys. */
__device__ __forceinline__ float gemm_scaled(bool attention, float value, float scale)
{
    value = __fmul_rn(scale, value);
    return attention ? __fadd_rn(value, 0.0f) : value;
}

/* The warp's place for its 64 x 64 results; lines are 8 elements longer than that, against conflicts of banks. */
enum { GEMM_WARP = 64, GEMM_PITCH = GEMM_WARP + 8, GEMM_PLACE_BYTES = GEMM_WARP * GEMM_PITCH * 4 };
static_assert(GEMM_SM80_THREADS / 32 * GEMM_PLACE_BYTES <= GEMM_SM80_SHARED, "results lie where the stages were");

__device__ __forceinline__ char *gemm_staging(void)
{
    extern __shared__ __align__(128) char gemm_shared[];
    return gemm_shared + (threadIdx.x >> 5) * GEMM_PLACE_BYTES;
}

/* The warp's 64 x 64 results to its place, `size` bytes each: 4, f32, or 2, C's own type. */
template <int kind>
__device__ __forceinline__ void gemm_stage(const struct gemm_args *a, int size, const float *scales, float (*sum)[8][4])
{
    typedef typename gemm_element<kind>::type type;
    const int l = threadIdx.x & 31;
    char *const own = gemm_staging() + l / 4 * GEMM_PITCH * size + l % 4 * 2 * size;
#pragma unroll
    for (int x = 0; x < 64; x++) {                   /* two neighbours each: rows 8 (x / 8).., columns 8 (x % 8).. */
        const float *const two = &sum[x / 16][x % 8][x / 8 % 2 * 2];
        const float low = gemm_scaled(a->factors, two[0], scales[x / 8]);
        const float high = gemm_scaled(a->factors, two[1], scales[x / 8]);
        if (gemm_shape<kind>::f32 || size == 4)
            *(float2 *)(own + x / 8 * 8 * GEMM_PITCH * 4 + x % 8 * 32) = make_float2(low, high);
        else if constexpr (!gemm_shape<kind>::f32)
            *(uint32_t *)(own + x / 8 * 8 * GEMM_PITCH * 2 + x % 8 * 16) = pack_16<type>(low, high);
    }
    __syncwarp();
}

/* From there to C in whole rows, 16 bytes a lane. */
__device__ __forceinline__ void gemm_store_rows(const struct gemm_args *a, char *c, int64_t row, int64_t column)
{
    const int l = threadIdx.x & 31, size = a->c_itemsize, pitch = GEMM_PITCH * size, pieces = 4 * size;
    const int first = l / pieces, rows = 32 / pieces, piece = l % pieces * 16;
    char *to = c + ((row + first) * a->c_row + column) * size + piece;
    const char *from = gemm_staging() + first * pitch + piece;
    const int64_t step = rows * a->c_row * size;
    const int there = (int)min(a->m - row, (int64_t)GEMM_WARP);
#pragma unroll 8
    for (int r = first; r < GEMM_WARP; r += rows) {
        if (r < there)
            *(uint4 *)to = *(const uint4 *)from;
        to += step;
        from += rows * pitch;
    }
}

/* beta C, of type T, to the warp's place, which holds f32. The same lane stores an element to C: no barrier between. */
template <class T>
__device__ __forceinline__ void gemm_add_c(const struct gemm_args *a, const T *c, bool by_row, int there, int wide)
{
    float *const to = (float *)gemm_staging();
#pragma unroll 1
    for (int first = threadIdx.x & 31; first < GEMM_WARP * GEMM_WARP; first += 8 * 32) {
        T old[8];
#pragma unroll
        for (int y = 0; y < 16; y++) {               /* all loads before the first use */
            const int slow = (first + y % 8 * 32) / GEMM_WARP, fast = (first + y % 8 * 32) % GEMM_WARP;
            const int m = by_row ? slow : fast, n = by_row ? fast : slow;
            if (m >= there || n >= wide)
                continue;
            if (y < 8)
                old[y % 8] = c[m * a->c_row + n * a->c_column];
            else
                to[m * GEMM_PITCH + n] = __fmaf_rn(a->beta, widen(old[y % 8], 0), to[m * GEMM_PITCH + n]);
        }
    }
}

/* From there, in f32, to C of any type and strides, one by one. Lanes run along what lies closer in memory, or, of a
 * narrow piece, along its longer side. */
__device__ __forceinline__ void gemm_store_each(const struct gemm_args *a, char *c, int64_t row, int64_t column)
{
    const float *const from = (const float *)gemm_staging();
    const int there = (int)min(a->m - row, (int64_t)GEMM_WARP), wide = (int)min(a->n - column, (int64_t)GEMM_WARP);
    const bool by_row = min(there, wide) < 32 ? there <= wide : llabs(a->c_column) <= llabs(a->c_row);
    const int lane = threadIdx.x & 31, across = by_row ? 1 : 32;
    c += (row * a->c_row + column * a->c_column) * a->c_itemsize;
    if (a->beta != 0.0f) {
        switch (a->c_dtype) {
        case QATTN_DTYPE_F32: gemm_add_c(a, (const float *)c, by_row, there, wide); break;
        case QATTN_DTYPE_F16: gemm_add_c(a, (const __half *)c, by_row, there, wide); break;
        default:              gemm_add_c(a, (const __nv_bfloat16 *)c, by_row, there, wide); break;
        }
    }
#pragma unroll 2
    for (int m = lane % across; m < there; m += across)
#pragma unroll 2
        for (int n = lane / across; n < wide; n += 32 / across)
            store_any(c + (m * a->c_row + n * a->c_column) * a->c_itemsize, a->c_dtype, from[m * GEMM_PITCH + n]);
}

template <int kind>
__device__ __forceinline__ void gemm_write(const struct gemm_args *a, const struct gemm_work *w,
                                           const struct gemm_lane *lane, float (*sum)[8][4])
{
    const int l = threadIdx.x & 31;
    const int64_t row = w->m0 + lane->wm, column = w->n0 + lane->wn;
    char *const c = a->c + (w->batch * a->c_batch + w->head * a->c_head) * a->c_itemsize;
    float scales[8];                                 /* of rows 8 x + l / 4 of the warp */
#pragma unroll
    for (int x = 0; x < 8; x++) {
        const int64_t m = row + 8 * x + l / 4;
        scales[x] = a->alpha;
        if (a->factors)
            scales[x] = m < a->m ? fabsf(a->factors[(w->batch * a->heads + w->head) * a->m + m]) : 0.0f;
    }
    const bool rows = a->c_vectors && column + GEMM_WARP <= a->n;
    gemm_stage<kind>(a, rows ? a->c_itemsize : 4, scales, sum);
    if (rows)
        gemm_store_rows(a, c, row, column);
    else
        gemm_store_each(a, c, row, column);
}

/* ---------------------------------------------------------------- kernel */

template <int kind, bool b_along_k, bool hiding>
static __global__ void __launch_bounds__(GEMM_SM80_THREADS, 2)
gemm_sm80_kernel(const __grid_constant__ struct gemm_args args,
                 const __grid_constant__ struct problem_param packed)
{
    constexpr int stages = GEMM_SM80_STAGES, step = gemm_shape<kind>::step, size = gemm_shape<kind>::size;
    constexpr int b_pieces = b_along_k ? 8 : GEMM_TILE_BYTES / 16 / step;
    extern __shared__ __align__(128) char gemm_shared[];
    __shared__ struct gemm_work kept;                /* registers less in the loop */
    const struct gemm_args *const a = &args;
    const struct gemm_lane lane = gemm_lane_of<kind, b_along_k>();

    wait_for_predecessor();
    for (int64_t index = blockIdx.x; index < a->work; index += gridDim.x) {
        const struct gemm_work w = gemm_work_of(a, index, GEMM_SM80_ROWS);
        struct gemm_keys keys;
        if (!gemm_keys_of_item(a, problem_of(&packed), w, GEMM_SM80_ROWS, &keys))
            continue;
        const int64_t start = keys.begin / step * step;
        const int64_t b_line = b_along_k ? a->b.row : a->b.k, b_along = b_along_k ? a->b.k : a->b.row;
        int64_t b_head = w.head;
        split_index(&b_head, a->b_head_div);
        const char *a_from =
            a->a.data + (w.batch * a->a.batch + w.head * a->a.head + w.m0 * a->a.row + start * a->a.k) * size;
        const char *b_from =
            a->b.data + (w.batch * a->b.batch + b_head * a->b.head + w.n0 * a->b.row + start * a->b.k) * size;
        const int a_rows = (int)min(a->m - w.m0, (int64_t)GEMM_SM80_ROWS);
        const int b_rows = (int)min(a->n - w.n0, (int64_t)GEMM_SM80_COLUMNS);
        int64_t coming = keys.end - start, k0 = start;   /* k to bring; first k to multiply */
        int pending = 0;                             /* steps brought and not multiplied */
        float sum[4][8][4];
#pragma unroll
        for (int x = 0; x < 128; x++)
            sum[x / 32][x / 4 % 8][x % 4] = 0.0f;

        bool marked = hiding && gemm_marked(a, w);
        marked = hiding ? __syncthreads_or(marked) : (__syncthreads(), false);
                                                     /* and the last item's readers are done */
        if (threadIdx.x == 0)
            kept = w;
        char *tile = gemm_shared, *next = gemm_shared;   /* the steps to multiply and to bring */
#pragma unroll 1
        for (int ahead = 0; coming > 0 || pending > 0; ahead++) {
            const bool multiply = ahead >= stages - 1;
            bool bad = false;
            if (multiply) {
                cp_async_wait<stages - 2>();
                if constexpr (hiding) {
                    const bool search = marked || k0 < keys.all_begin || k0 + step > keys.all_end;
                    if (search && !a->b.vectors)
                        __syncthreads();             /* others' elements */
                    bad = __syncthreads_or(search && gemm_search<kind, b_pieces>(tile + GEMM_TILE_BYTES));
                    k0 += step;
                } else {
                    __syncthreads();
                }
            }
            if (coming > 0) {
                const int some = coming < step ? (int)coming : step;
                gemm_bring<kind, 8>(next, a_from, a->a.row, a->a.k, a->a.vectors, a_rows, some);
                gemm_bring<kind, b_pieces>(next + GEMM_TILE_BYTES, b_from, b_line, b_along, a->b.vectors,
                                           b_along_k ? b_rows : some, b_along_k ? some : b_rows);
                a_from += step * a->a.k * size;
                b_from += step * a->b.k * size;
                coming -= step;
                pending++;
                next = next == gemm_shared + (stages - 1) * GEMM_STAGE_BYTES ? gemm_shared : next + GEMM_STAGE_BYTES;
            }
            cp_async_commit();
            if (!multiply)
                continue;
            const char *const b_tile = tile + GEMM_TILE_BYTES;
            if constexpr (hiding) {
                if (bad) {
                    gemm_mark<kind>(tile, b_tile, &lane, sum);
                    gemm_multiply<kind, b_along_k, true>(tile, b_tile, &lane, sum);
                }
            }
            if (!bad)
                gemm_multiply<kind, b_along_k, false>(tile, b_tile, &lane, sum);
            pending--;
            tile = tile == gemm_shared + (stages - 1) * GEMM_STAGE_BYTES ? gemm_shared : tile + GEMM_STAGE_BYTES;
        }
        __syncthreads();                             /* the stages are free; kept, where there was no step */
        gemm_write<kind>(a, &kept, &lane, sum);
    }
}

#endif
