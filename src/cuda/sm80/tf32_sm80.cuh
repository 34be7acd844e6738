/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Attention in one pass for f32 tensors on tensor cores (mma.sync m16n8k8, TF32): one product (TF32) or three (3xTF32).
 *
 * 3xTF32: x = hi + lo, hi = x rounded to the 11 bits of TF32, lo = x - hi, exact, of which the
 * tensor core uses 11 bits; a b = hi hi + hi lo + lo hi. What is left out is below 2^-22 of |a b|.
 *
 * What one block of W = 8 warps does: 16 W query rows of one KV head against the keys that some row
 * sees, BN = 64 (Dv <= 128) or 32 at a time; W = 4, two blocks a multiprocessor, where there are
 * few rows (decode waits for memory):
 *
 *     S [16 W][BN]  = Q K^T     in steps of 8 of D, straight from the f32 values: fragments are split in registers
 *     P            = e^(scale S - m), in registers: the accumulators of S are, keys permuted, the A fragments of P V
 *     O [16 W][DV] += P V       in groups of 64 columns, each summed over the tile from 0 and then added to O
 *
 * The rows are (i, g): query row i of all heads of the group in turn. Warp w owns rows 16 w .. 16 w
 * + 15 and all columns.
 *
 * Shared memory, in floats (D 128, Dv 128, W 8: 135 KB):
 *     q [16 W][D up to 8, + 4]     k [BN][D up to 8, + 4]     v [BN][DV + 4]
 * filled by cp.async, 16 bytes at a time, or 4 for other strides and alignments. V of a tile is on its way while S is
 * computed, K of the next tile while P V is. Two barriers a tile.
 *
 * Fragments without a conflict of banks: K and Q by ldmatrix, whose 16-byte rows are four f32 and
 * whose lanes then hold what m16n8k8 wants. V by 16-byte reads: of a group of 32 columns lane 4 g +
 * c reads columns 4 g .. 4 g + 3 of keys 2 c and 2 c + 1, and column 4 g + x is column g of the
 * x-th product of 8 columns. The key of k index c is 2 c, of c + 4 it is 2 c + 1, which makes S's
 * accumulators P's fragment.
 *
 * Long sums: tensor cores cut the sums they carry (towards 0), so no sum over keys runs there for
 * longer than a tile; O is added in fp32, and the row sum keeps what rounding took.
 *
 * Bits: as in cuda/simt/flash_simt.cuh: a row's result is a function of its own query, keys and positions.
 *
 * Non-finite and large values: a tile is tested while it arrives, each thread what it copied. Scores of a key or query
 * that has any of 2^59 and more are computed again one by one in fp32: elsewhere no score can
 * overflow. A value of V that is not finite counts as 0, and afterwards makes its column NaN in the rows that see its
 * key; one too large keeps its first 11 bits.
 */
#ifndef QATTN_CUDA_TF32_SM80_CUH
#define QATTN_CUDA_TF32_SM80_CUH

#include "cuda/sm80/tf32_load.cuh"

/* ---------------------------------------------------------------- fragments */

/* x as TF32: in 3xTF32 hi and lo, else hi alone. The tensor core ignores the low 13 bits. */
template <bool three> __device__ __forceinline__ void tf32_split(uint32_t x, uint32_t *hi, uint32_t *lo)
{
    *hi = x + 0x1000u;
    if (three) {
        *hi &= 0xFFFFE000u;
        *lo = __float_as_uint(__fsub_rn(__uint_as_float(x), __uint_as_float(*hi)));
    }
}

/* s = Q K^T for the warp's 16 rows. */
template <int blocks, bool three>
__device__ __forceinline__ void tf32_scores(const float *q, const float *k, int pitch, int steps, float (*s)[4])
{
    const int lane = threadIdx.x & 31;
    uint32_t q_at = shared_address(q + ((lane & 7) + (lane & 8)) * pitch + (lane >> 4) * 4);
    uint32_t k_at = shared_address(k + ((lane & 7) + (lane >> 4) * 8) * pitch + ((lane >> 3) & 1) * 4);
#pragma unroll
    for (int n = 0; n < blocks; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[n][e] = 0.0f;
#pragma unroll 2
    for (int step = 0; step < steps; step++, q_at += 32, k_at += 32) {
        uint32_t raw[4], a_hi[4], a_lo[4], b_hi[2 * blocks], b_lo[2 * blocks];
        ldmatrix_x4(raw, q_at);
#pragma unroll
        for (int x = 0; x < 4; x++)
            tf32_split<three>(raw[x], &a_hi[x], &a_lo[x]);
#pragma unroll
        for (int n = 0; n < blocks; n += 2) {
            ldmatrix_x4(raw, k_at + n * 8 * pitch * 4);
#pragma unroll
            for (int x = 0; x < 4; x++)
                tf32_split<three>(raw[x], &b_hi[2 * n + x], &b_lo[2 * n + x]);
        }
        if (three) {
#pragma unroll
            for (int n = 0; n < blocks; n++)
                mma_1688_tf32(s[n], a_lo, b_hi + 2 * n);
#pragma unroll
            for (int n = 0; n < blocks; n++)
                mma_1688_tf32(s[n], a_hi, b_lo + 2 * n);
        }
#pragma unroll
        for (int n = 0; n < blocks; n++)
            mma_1688_tf32(s[n], a_hi, b_hi + 2 * n);
    }
}

/* Scores whose query or key is not finite or is large, one by one. */
template <int DV, int W>
__device__ __forceinline__ void tf32_bad_scores(const tf32_shared<DV, W> *sh, const float *q, const float *k,
                                                int pitch, int d, const struct tf32_lane &lane, float (*s)[4])
{
    constexpr int blocks = tf32_tile<DV, W>::key_blocks;
    float kept[blocks][4];                           /* in local memory: so the loop need not be unrolled */
#pragma unroll
    for (int x = 0; x < 4 * blocks; x++)
        kept[x / 4][x % 4] = s[x / 4][x % 4];
#pragma unroll 1
    for (int n = 0; n < blocks; n++)
#pragma unroll 1
        for (int e = 0; e < 4; e++) {
            const int row = lane.row + 8 * (e >> 1), key = 8 * n + 2 * lane.c + (e & 1);
            if (!((sh->bad_q[row >> 5] >> (row & 31) | sh->bad_k[key >> 5] >> (key & 31)) & 1))
                continue;
            float sum = 0.0f;
#pragma unroll 1
            for (int x = 0; x < d; x++)
                sum = __fmaf_rn(q[row * pitch + x], k[key * pitch + x], sum);
            kept[n][e] = sum;
        }
#pragma unroll
    for (int x = 0; x < 4 * blocks; x++)
        s[x / 4][x % 4] = kept[x / 4][x % 4];
}

/* o += P V for one group of columns. */
template <int DV, int W, bool three>
__device__ __forceinline__ void tf32_values(const float (*p)[4], const float *v, const struct tf32_lane &lane,
                                            float (*o)[4])
{
    typedef tf32_tile<DV, W> tile;
    float sum[tile::group][4];
#pragma unroll
    for (int n = 0; n < tile::group; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            sum[n][e] = 0.0f;
    v += 2 * lane.c * tile::v_pitch + 4 * lane.g;
#pragma unroll
    for (int j = 0; j < tile::key_blocks; j++) {
        uint32_t a_hi[4], a_lo[4], b_hi[2 * tile::group], b_lo[2 * tile::group];
#pragma unroll
        for (int x = 0; x < 4; x++)     /* a0 a1 a2 a3 = d0 d2 d1 d3 */
            tf32_split<three>(__float_as_uint(p[j][(x & 1) * 2 + (x >> 1)]), &a_hi[x], &a_lo[x]);
#pragma unroll
        for (int y = 0; y < tile::group / 4; y++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float4 four = *(const float4 *)(v + (8 * j + half) * tile::v_pitch + 32 * y);
                const float value[4] = { four.x, four.y, four.z, four.w };
#pragma unroll
                for (int x = 0; x < 4; x++)
                    tf32_split<three>(__float_as_uint(value[x]), &b_hi[2 * (4 * y + x) + half],
                                      &b_lo[2 * (4 * y + x) + half]);
            }
        if (three) {
#pragma unroll
            for (int n = 0; n < tile::group; n++)
                mma_1688_tf32(sum[n], a_lo, b_hi + 2 * n);
#pragma unroll
            for (int n = 0; n < tile::group; n++)
                mma_1688_tf32(sum[n], a_hi, b_lo + 2 * n);
        }
#pragma unroll
        for (int n = 0; n < tile::group; n++)
            mma_1688_tf32(sum[n], a_hi, b_hi + 2 * n);
    }
#pragma unroll
    for (int n = 0; n < tile::group; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            o[n][e] = __fadd_rn(o[n][e], sum[n][e]);
}

/* Column of O, below DV, that element e of block n holds. */
__device__ __forceinline__ int tf32_column(int n, int e, int c)
{
    return (n >> 2) * 32 + 8 * c + 4 * (e & 1) + (n & 3);
}

/* Columns in which a row sees a value that is not finite become NaN. */
template <int DV, int W>
__device__ __forceinline__ void tf32_put_back(const tf32_shared<DV, W> *sh, const float (*p)[4],
                                              const struct tf32_lane &lane, float (*o)[4])
{
    typedef tf32_tile<DV, W> tile;
    uint32_t seen[2][tile::key_words] = { };
#pragma unroll
    for (int n = 0; n < tile::key_blocks; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (!is_hidden_p(p[n][e]))
                seen[e >> 1][n >> 2] |= 1u << ((n & 3) * 8 + 2 * lane.c + (e & 1));
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int x = 0; x < tile::key_words; x++) {
            seen[half][x] |= __shfl_xor_sync(0xFFFFFFFFu, seen[half][x], 1);
            seen[half][x] |= __shfl_xor_sync(0xFFFFFFFFu, seen[half][x], 2);
        }
#pragma unroll
    for (int n = 0; n < DV / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
#pragma unroll
            for (int x = 0; x < tile::key_words; x++)
                if (seen[e >> 1][x] & sh->bad_v[x][tf32_column(n, e, lane.c)])
                    o[n][e] = __int_as_float(0x7FC00000);
}

/* ---------------------------------------------------------------- scores to probabilities */

/* Bias, keep and ALiBi of the tile's scores, -inf where hidden: four at a time, in a loop over local memory. That four
 * lie side by side costs nothing here, as those of a fragment do. */
template <int DV, int W>
__device__ __forceinline__ void tf32_add_terms(const struct problem *p, const tf32_shared<DV, W> *sh, int64_t j0,
                                               const struct tf32_lane &lane, float (*s)[4])
{
    constexpr int blocks = tf32_tile<DV, W>::key_blocks;
    float kept[blocks][4];
#pragma unroll
    for (int x = 0; x < 4 * blocks; x++)
        kept[x / 4][x % 4] = s[x / 4][x % 4];
#pragma unroll 1
    for (int n = 0; n < blocks; n++) {
        float loaded[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = lane.row + 8 * (e >> 1);
            const int64_t j = j0 + 8 * n + 2 * lane.c + (e & 1);
            loaded[e] = j >= sh->begin[row] && j < sh->end[row] ? score_load(p, &sh->row[row], j) : minus_infinity();
        }
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int64_t j = j0 + 8 * n + 2 * lane.c + (e & 1);
            kept[n][e] = score_add(p, &sh->row[lane.row + 8 * (e >> 1)], j, kept[n][e], loaded[e]);
        }
    }
#pragma unroll
    for (int x = 0; x < 4 * blocks; x++)
        s[x / 4][x % 4] = kept[x / 4][x % 4];
}

/* From S to final scores: -inf where hidden. `partial`: some pair may be hidden. */
template <int DV, int W>
__device__ __forceinline__ void tf32_finish_scores(const struct problem *p, const tf32_shared<DV, W> *sh,
                                                   int64_t j0, bool partial, const struct tf32_lane &lane,
                                                   float (*s)[4])
{
    constexpr int keys = tf32_tile<DV, W>::keys, blocks = tf32_tile<DV, W>::key_blocks;
    const float scale = p->scale;
#pragma unroll
    for (int n = 0; n < blocks; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[n][e] = __fmul_rn(scale, s[n][e]);
    if (p->softcap != 0.0f) {
        const float cap = p->softcap;
#pragma unroll
        for (int n = 0; n < blocks; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[n][e] = score_cap(s[n][e], cap);
    }
    if (score_has_terms(p)) {
        tf32_add_terms<DV, W>(p, sh, j0, lane, s);
        return;
    }
    if (!partial)
        return;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = lane.row + 8 * half;
        const int begin = (int)clamp64(sh->begin[row] - j0, 0, keys), end = (int)clamp64(sh->end[row] - j0, 0, keys);
#pragma unroll
        for (int n = 0; n < blocks; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int j = 8 * n + 2 * lane.c + e;
                float *const x = &s[n][2 * half + e];
                if (j < begin || j >= end)
                    *x = minus_infinity();
            }
    }
}

/* Running state of a thread's two rows; l and l_low are the sums over this thread's keys alone. */
struct tf32_state { float m[2], l[2], l_low[2]; };

/* Online softmax of the tile, s becomes P. */
template <int DV, int W>
__device__ __forceinline__ void tf32_softmax(float (*s)[4], struct tf32_state *state, float (*o)[4])
{
    constexpr int blocks = tf32_tile<DV, W>::key_blocks;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = state->m[half], sum = 0.0f;
#pragma unroll
        for (int n = 0; n < blocks; n++)
            top = fmaxf(top, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        top = lanes_max<4>(top);
        const float from = top == minus_infinity() ? 0.0f : top;
        const float keep = exp2_approx(__fmul_rn(__fsub_rn(state->m[half], from), LOG2_E));
#pragma unroll
        for (int n = 0; n < blocks; n++)
#pragma unroll
            for (int e = 2 * half; e < 2 * half + 2; e++) {
                const float x = exp2_approx(__fmul_rn(__fsub_rn(s[n][e], from), LOG2_E));
                s[n][e] = s[n][e] == minus_infinity() ? hidden_p() : x;
                sum = __fadd_rn(sum, s[n][e]);
            }
        state->m[half] = top;
        sum_scaled(&state->l[half], &state->l_low[half], keep, sum);
#pragma unroll
        for (int n = 0; n < DV / 8; n++) {
            o[n][2 * half] = __fmul_rn(o[n][2 * half], keep);
            o[n][2 * half + 1] = __fmul_rn(o[n][2 * half + 1], keep);
        }
    }
}

/* ---------------------------------------------------------------- the end */

/* A row's values one by one, from local memory. */
template <int DV>
__device__ __forceinline__ void tf32_store_each(float *out, int64_t stride, int dv, int c, const float (*value)[2])
{
    float kept[DV / 8][2];
#pragma unroll
    for (int x = 0; x < DV / 4; x++)
        kept[x / 2][x % 2] = value[x / 2][x % 2];
#pragma unroll 1
    for (int n = 0; n < DV / 8; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int d = tf32_column(n, e, c);
            if (d < dv)
                out[d * stride] = kept[n][e];
        }
}

/* Writes O and LSE of the thread's rows, or the split's part of them. */
template <int DV, int W>
__device__ __forceinline__ void tf32_finish(const struct tf32_args *args, const struct problem *p,
                                            const struct fs_work &w, const struct seq *s,
                                            const struct tf32_state *state, const struct tf32_lane &lane,
                                            float (*o)[4])
{
    const struct flash_simt_args *const a = &args->item;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int64_t at = w.tile * tf32_tile<DV, W>::rows + lane.row + 8 * half, i = at / p->group;
        const int64_t h = w.kv_head * p->group + at % p->group;
        const float sum = lanes_sum<4>(__fadd_rn(state->l[half], state->l_low[half])), max = state->m[half];
        if (i >= s->rows)
            continue;
        const bool dead = i >= s->len_q, split = a->parts_o != NULL;
        const int64_t part = w.split * a->part_rows + fs_part_row(p, s, h, i);
        float factor = 1.0f, lse = 0.0f;
        if (!split)
            flash_close(p, h, dead, max, sum, &factor, &lse);
        float *const out = split ? a->parts_o + part * p->dv : (float *)view_at(&p->o, s->q_batch, h, s->q_row + i, 0);
        const int64_t stride = split ? 1 : p->o.stride[3];
        float value[DV / 8][2];
#pragma unroll
        for (int x = 0; x < DV / 4; x++)
            value[x / 2][x % 2] = split ? (dead ? 0.0f : o[x / 2][2 * half + x % 2])
                                        : flash_result(dead, o[x / 2][2 * half + x % 2], factor);
        if (p->dv % 4 == 0 && (split || args->o_fours)) {
#pragma unroll
            for (int x = 0; x < DV / 16; x++) {
                const int n = x / 2 * 4, e = x % 2, d = tf32_column(n, e, lane.c);
                if (d < p->dv)
                    *(float4 *)(out + d) = make_float4(value[n][e], value[n + 1][e], value[n + 2][e], value[n + 3][e]);
            }
        } else {
            tf32_store_each<DV>(out, stride, (int)p->dv, lane.c, value);
        }
        if (lane.c != 0)
            continue;
        if (split) {
            a->parts_ml[2 * part] = dead ? minus_infinity() : max;
            a->parts_ml[2 * part + 1] = dead ? 0.0f : sum;
        } else if (p->lse.dtype) {
            *(float *)view_at(&p->lse, s->q_batch, h, s->q_row + i, 0) = lse;
        }
    }
}

/* Where the keys of the tile that starts at j0 lie in pages. */
template <int DV, int W>
__device__ __forceinline__ void tf32_place_keys(const struct problem *p, tf32_shared<DV, W> *sh,
                                                int64_t kv_head, int64_t j0, int set)
{
    if (threadIdx.x < tf32_tile<DV, W>::keys)
        fs_place_key(p, &sh->seq, kv_head, j0 + threadIdx.x, &sh->k_at[set][threadIdx.x], &sh->v_at[set][threadIdx.x]);
}

/* The rows of t, k or v, that start at key j0. */
__device__ __forceinline__ struct tf32_source tf32_keys_of(const struct view *t, const struct seq *s,
                                                           int64_t kv_head, int64_t j0, const int64_t *at)
{
    const int64_t left = s->len_k - j0;
    return (struct tf32_source){ at,
                                 s->k_batch * t->stride[0] + kv_head * t->stride[1] +
                                     (s->k_row + j0) * t->stride[2],
                                 t->stride[2], (int)(left < 4096 ? left : 4096) };
}

/* Keys that the warp's rows see: some of them in begin .. end - 1, all of them in all_begin .. all_end - 1. */
struct tf32_range { int64_t begin, end, all_begin, all_end; };

template <int DV, int W>
__device__ __forceinline__ struct tf32_range tf32_range_of(const tf32_shared<DV, W> *sh, int64_t rows, int first)
{
    struct tf32_range r = { 0, 0, 0, 0 };
    const int last = rows - 1 < first + 15 ? (int)(rows - 1) : first + 15;
    if (last >= first)
        r = (struct tf32_range){ sh->begin[first], sh->end[last], sh->begin[last], sh->end[first] };
    return r;
}

/* ---------------------------------------------------------------- an item */

/* What all items of a block have in common, and the thread's place. */
template <int DV, int W> struct tf32_block {
    const struct tf32_args *args;
    const struct problem *p;
    tf32_shared<DV, W> *sh;
    float *q, *k, *v;
    int d, padded, pitch, dv;
    struct tf32_lane lane;
    bool paged;
};

template <int DV, int W>
__device__ __forceinline__ tf32_block<DV, W> tf32_block_of(const struct tf32_args *args, const struct problem *p,
                                                           tf32_shared<DV, W> *sh, float *memory)
{
    typedef tf32_tile<DV, W> tile;
    tf32_block<DV, W> b;
    b.args = args;
    b.p = p;
    b.sh = sh;
    b.d = (int)p->d;
    b.padded = (b.d + 7) / 8 * 8;
    b.pitch = b.padded + TF32_PAD;
    b.dv = (int)p->dv;
    b.q = memory;
    b.k = b.q + tile::rows * b.pitch;
    b.v = b.k + tile::keys * b.pitch;
    b.lane.row = 16 * (int)(threadIdx.x >> 5) + (int)(threadIdx.x & 31) / 4;
    b.lane.g = (int)(threadIdx.x & 31) / 4;
    b.lane.c = (int)threadIdx.x & 3;
    b.paged = p->page_table != NULL;
    return b;
}

/* Starts the copies of K, or V, of the tile at j0. set: of k_at and v_at, that has its keys. */
template <int DV, int W>
__device__ __forceinline__ void tf32_bring_k(const tf32_block<DV, W> &b, int64_t kv_head, int64_t j0, int set)
{
    tf32_copy<tf32_tile<DV, W>::keys, W>(
        b.k, b.pitch, &b.p->k,
        tf32_keys_of(&b.p->k, &b.sh->seq, kv_head, j0, b.paged ? b.sh->k_at[set] : NULL), b.d, b.padded,
        b.args->k_fours);
}

template <int DV, int W>
__device__ __forceinline__ void tf32_bring_v(const tf32_block<DV, W> &b, int64_t kv_head, int64_t j0, int set)
{
    tf32_copy<tf32_tile<DV, W>::keys, W>(
        b.v, tf32_tile<DV, W>::v_pitch, &b.p->v,
        tf32_keys_of(&b.p->v, &b.sh->seq, kv_head, j0, b.paged ? b.sh->v_at[set] : NULL), b.dv, DV, b.args->v_fours);
}

/* Brings Q and starts K of the first tile, which is at j0. Tells whether some query is not finite or large. */
template <int DV, int W>
__device__ __forceinline__ bool tf32_begin(const tf32_block<DV, W> &b, int64_t kv_head, int64_t j0)
{
    constexpr int rows = tf32_tile<DV, W>::rows;
    if (b.paged) {
        tf32_place_keys<DV, W>(b.p, b.sh, kv_head, j0, 0);
        __syncthreads();
    }
    tf32_copy<rows, W>(b.q, b.pitch, &b.p->q, { b.sh->q_at, 0, 0, 0 }, b.d, b.padded, b.args->q_fours);
    tf32_bring_k<DV, W>(b, kv_head, j0, 0);
    cp_async_commit();
    cp_async_wait<0>();
    const uint32_t bad = tf32_bad<rows, W>(b.q, b.pitch, b.padded, b.args->q_fours, TF32_LARGE_SCORE);
    const bool bad_q = __syncthreads_or(bad != 0);
    if (bad_q)
        tf32_mark_rows<rows, W>(bad, b.sh->bad_q);
    else if (threadIdx.x < rows / 32)
        b.sh->bad_q[threadIdx.x] = 0;
    return bad_q;
}

/* s = P of the warp's rows and the tile at j0. bad: some query or key is not finite or large; partial: some pair may be
 * hidden. */
template <int DV, int W, bool three>
__device__ __forceinline__ void tf32_multiply_k(const tf32_block<DV, W> &b, int64_t j0, bool bad, bool partial,
                                                float (*s)[4], struct tf32_state *state, float (*o)[4])
{
    tf32_scores<tf32_tile<DV, W>::key_blocks, three>(b.q + 16 * (int)(threadIdx.x >> 5) * b.pitch, b.k, b.pitch,
                                                     b.padded / 8, s);
    if (bad)
        tf32_bad_scores<DV, W>(b.sh, b.q, b.k, b.pitch, b.d, b.lane, s);
    tf32_finish_scores<DV, W>(b.p, b.sh, j0, partial, b.lane, s);
    tf32_softmax<DV, W>(s, state, o);
}

/* o += P V. bad: V has values that are not finite. */
template <int DV, int W, bool three>
__device__ __forceinline__ void tf32_multiply_v(const tf32_block<DV, W> &b, bool bad, const float (*s)[4],
                                                float (*o)[4])
{
    typedef tf32_tile<DV, W> tile;
#pragma unroll
    for (int x = 0; x < tile::groups; x++)
        if (8 * tile::group * x < b.dv)
            tf32_values<DV, W, three>(s, b.v + 8 * tile::group * x, b.lane, o + tile::group * x);
    if (bad)
        tf32_put_back<DV, W>(b.sh, s, b.lane, o);
}

/* The key tiles first .. last - 1. */
template <int DV, int W, bool three>
__device__ __forceinline__ void tf32_walk(const tf32_block<DV, W> &b, int64_t kv_head, int64_t first, int64_t last,
                                          const struct tf32_range &range, struct tf32_state *state, float (*o)[4])
{
    typedef tf32_tile<DV, W> tile;
    int set = 0;                                     /* of k_at and v_at, at work */
    const bool bad_q = first < last && tf32_begin<DV, W>(b, kv_head, first * tile::keys);
    for (int64_t t = first; t < last; t++) {
        const int64_t j0 = t * tile::keys;
        const bool sees = j0 < range.end && j0 + tile::keys > range.begin;
        float s[tile::key_blocks][4];
        cp_async_wait<0>();
        const uint32_t bad = tf32_bad<tile::keys, W>(b.k, b.pitch, b.padded, b.args->k_fours, TF32_LARGE_SCORE);
        const bool bad_k = __syncthreads_or(bad != 0);
        tf32_bring_v<DV, W>(b, kv_head, j0, set);
        cp_async_commit();
        if (bad_k || bad_q)
            tf32_mark_rows<tile::keys, W>(bad, b.sh->bad_k);
        const bool partial = j0 < range.all_begin || j0 + tile::keys > range.all_end || bad_k || bad_q;
        if (sees)
            tf32_multiply_k<DV, W, three>(b, j0, bad_k || bad_q, partial, s, state, o);
        if (b.paged && t + 1 < last)
            tf32_place_keys<DV, W>(b.p, b.sh, kv_head, j0 + tile::keys, set ^ 1);
        cp_async_wait<0>();
        const uint32_t bad_values = tf32_bad<tile::keys, W>(b.v, tile::v_pitch, DV, b.args->v_fours, TF32_TOO_LARGE);
        const bool bad_v = __syncthreads_or(bad_values != 0);
        if (bad_v)
            tf32_take_out<DV, W>(b.v, b.sh, b.args->v_fours);
        set ^= 1;
        if (t + 1 < last)
            tf32_bring_k<DV, W>(b, kv_head, j0 + tile::keys, set);
        cp_async_commit();
        if (sees)
            tf32_multiply_v<DV, W, three>(b, bad_v, s, o);
    }
}

template <int DV, int W, bool three>
__global__ void __launch_bounds__(32 * W, W == 4 ? 2 : 1)
tf32_sm80_kernel(const __grid_constant__ struct tf32_args args, const __grid_constant__ struct problem_param packed)
{
    typedef tf32_tile<DV, W> tile;
    static_assert(sizeof(tf32_shared<DV, W>) <= (W == 4 ? TF32_STATIC_4 : TF32_STATIC_8),
                  "the launcher reserves too little");
    extern __shared__ __align__(16) float memory[];
    __shared__ tf32_shared<DV, W> sh;
    const struct problem *const p = problem_of(&packed);
    wait_for_predecessor();
    const struct flash_simt_args *const a = &args.item;
    const tf32_block<DV, W> b = tf32_block_of<DV, W>(&args, p, &sh, memory);

    for (int64_t index = blockIdx.x; index < a->work; index += gridDim.x) {
        const struct fs_work w = fs_work_of(a, index);
        __syncthreads();                             /* the last item's readers are done */
        if (threadIdx.x == 0)
            sh.seq = seq_get(p, w.n);
        __syncthreads();
        if (w.tile * tile::rows >= sh.seq.rows * p->group)
            continue;
        fs_setup_rows<tile::rows>(p, w, &sh);
        __syncthreads();
        int64_t first, last;
        fs_split_of<tile::rows>(a, &sh, w.split, tile::keys, &first, &last);
        const struct tf32_range range = tf32_range_of<DV, W>(&sh, sh.seq.len_q * p->group - w.tile * tile::rows,
                                                             16 * (int)(threadIdx.x >> 5));
        float o[DV / 8][4];
        struct tf32_state state = { { minus_infinity(), minus_infinity() }, { 0.0f, 0.0f }, { 0.0f, 0.0f } };
#pragma unroll
        for (int x = 0; x < DV / 2; x++)
            o[x / 4][x % 4] = 0.0f;
        tf32_walk<DV, W, three>(b, w.kv_head, first, last, range, &state, o);
        tf32_finish<DV, W>(&args, p, w, &sh.seq, &state, b.lane, o);
    }
}

#endif
