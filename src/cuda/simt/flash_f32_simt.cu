/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The one-pass attention of flash_simt.cuh for f32, where the multiply-adds themselves are the
 * cost: many rows, D and Dv up to 128, rows of K and V on 16 bytes, no pages. Everything else
 * (masks, bias, lengths, splits) is as there.
 *
 * A block of 4 warps computes 64 query rows of one KV head against 128 keys at a time; two blocks a
 * multiprocessor, so that one multiplies while the other waits at a barrier or works on its
 * softmax:
 *
 *     S [64][128]  = Q K^T                  in chunks of 16 of D
 *     P            = e^(scale S - m)        m is the running row maximum
 *     O [64][128]  = O e^(m_old - m) + P V  in chunks of 16 keys
 *
 * Who does what: warp (wy, wx) owns rows 32 wy and keys, or columns of V, 64 wx of both products; a
 * thread (ty, tx) of it rows 4 ty + 16 x + 0..3 and columns 4 tx + 32 x + 0..3: 8 x 8 sums, 16
 * floats of shared memory for 64 multiply-adds.
 *
 * Registers: they lie in two banks, odd and even, a bank gives one operand a cycle, and a factor that
 * the next multiply-add has in common with this one is not read again. So runs of 8 products share
 * one factor and read the other, whose registers alternate between the banks (four rows of Q^T or
 * columns of V a read); the shared one comes four k a read (K, P). While S is computed O waits in
 * P's memory: with 64 registers free the compiler finds banks for the sums. And the loops of the
 * products are short, 256 multiply-adds: the code of both then stays in the first cache of
 * instructions, where loops of 1024 did not.
 *
 * Shared memory, in floats and in this order (109 KB at D 128):
 *     ring [4][2048]            chunks of K [128 keys][16 of d] or V [16 keys][128], by cp.async, three
 *                               ahead of the multiplication; K's lines and 16-byte pieces are permuted
 *     p    [64][128]            P, pieces permuted by the row; or O, each thread its own
 *     l    [2][8][128]          row sums of each thread over its own keys, what rounding took of them
 *     q    [D up to 16][64 + 4] transposed
 * One barrier a chunk, one more a tile, for the row maxima, of which two warps have each half.
 *
 * Cost: as flash_simt.cuh; 85 % of the instructions are multiply-adds.
 *
 * Long sums: as in flash_simt.cuh: chains of 16 keys, spans of 512, spans added with what rounding
 * took, here in local memory, which they need once in 65000 multiply-adds.
 *
 * Bits: a row's result is a function of its own query, keys and positions; but not the one of
 * flash_simt.cuh (row sums join in another order), so the launcher sends BATCH_INVARIANT there.
 *
 * Non-finite V (docs/numerics.md): a hidden key's P is -0. In tiles where some pair is hidden each
 * thread tests what it copied of V; a chunk with NaN or infinity is multiplied by a second loop
 * that leaves out hidden pairs.
 */
#include "cuda/common/ptx.cuh"
#include "cuda/simt/flash_item.cuh"

enum {
    FF_CHUNK = 16, FF_CHUNK_FLOATS = FF_CHUNK * FF_WIDTH, FF_V_CHUNKS = FS_BN / FF_CHUNK,
    FF_Q_PITCH = FF_ROWS + 4, FF_L = 8 * FF_THREADS
};
static_assert(FF_ROWS == 64 && FS_BN == 128 && FF_WIDTH == 128 && FF_THREADS == 128, "a warp has 32 x 64");

struct ff_shared : fs_rows<FF_ROWS> {
    struct fs_work work;
    float m[2][FF_ROWS];                    /* running maximum of each row, before and after the tile at work */
    float half[2][FF_ROWS];                 /* what the two warps of a row have each of it */
};
static_assert(sizeof(struct ff_shared) <= FF_STATIC, "the launcher reserves too little");

/* First row and first key or column of the thread; its warp's half of these. */
struct ff_lane { int row, column, ty, tx, wx; };

__device__ __forceinline__ struct ff_lane ff_lane_of(void)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    struct ff_lane at;
    at.ty = (lane & 1) | (lane >> 4) << 1;
    at.tx = (lane >> 1) & 7;
    at.wx = warp & 1;
    at.row = (warp >> 1) * 32 + 4 * at.ty;
    at.column = at.wx * 64 + 4 * at.tx;
    return at;
}

__device__ __forceinline__ int ff_row(int first, int r) { return first + (r & 3) + 16 * (r >> 2); }
__device__ __forceinline__ int ff_column(int first, int c) { return first + (c & 3) + 32 * (c >> 2); }

/* Over the 8 lanes that hold one row. */
__device__ __forceinline__ float ff_lanes_max(float x)
{
#pragma unroll
    for (int step = 2; step <= 8; step *= 2)
        x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
    return x;
}

__device__ __forceinline__ float ff_lanes_sum(float x)
{
#pragma unroll
    for (int step = 2; step <= 8; step *= 2)
        x = __fadd_rn(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
    return x;
}

/* ---------------------------------------------------------------- memory to shared memory */

/* Float at which piece `piece` (four d) of a key lies in a chunk of K: bits 0 and 2 of the key
 * change places, so that the 8 keys 4 tx + constant, which a warp reads at once, lie in different
 * banks. */
__device__ __forceinline__ int ff_place_k(int key, int piece)
{
    const int line = (key & ~5) | (key >> 2 & 1) | (key & 1) << 2;
    return line * FF_CHUNK + ((piece ^ key >> 3) & 3) * 4;
}

/* What chunk comes next, and where this thread reads its part of it. */
struct ff_feed {
    const float *k, *v;
    int64_t keys;               /* from the chunk's tile to the length */
    int tiles, chunk;           /* tiles to come, that one included; K's chunks, then V's */
    uint32_t to;                /* shared address */
};

/* Q^T; 0 beyond D and where there is no row. */
__device__ __forceinline__ void ff_copy_q(const struct problem *p, const ff_shared *sh, int lines, uint32_t q)
{
#pragma unroll 4
    for (int x = threadIdx.x; x < lines * FF_ROWS; x += FF_THREADS) {
        const int d = (x & 7) + 8 * (x / (8 * FF_ROWS)), r = (x >> 3) % FF_ROWS;
        const int64_t at = sh->q_at[r];
        const bool some = at != FS_NOWHERE && d < p->d;
        const float *const from = (const float *)p->q.data + (some ? at + d * p->q.stride[3] : 0);
        cp_async_4_zfill(q + (uint32_t)(d * FF_Q_PITCH + r) * 4, from, some ? 4 : 0);
    }
}

__device__ __forceinline__ void ff_copy_k(const struct problem *p, const struct ff_feed *f)
{
    const int key = threadIdx.x >> 2, piece = threadIdx.x & 3, left = (int)p->d - f->chunk * FF_CHUNK - piece * 4;
    const uint32_t to = f->to + (uint32_t)ff_place_k(key, piece) * 4;
    const int64_t step = 32 * p->k.stride[2];
    const float *from = f->k;
    if (f->keys >= FS_BN && f->chunk * FF_CHUNK + FF_CHUNK <= p->d) {
#pragma unroll
        for (int x = 0; x < 4; x++, from += step)
            cp_async_16(to + x * 32 * FF_CHUNK * 4, from);
        return;
    }
    const int bytes = min(max(left, 0), 4) * 4;
#pragma unroll
    for (int x = 0; x < 4; x++, from += step) {
        const int some = key + 32 * x < f->keys ? bytes : 0;
        cp_async_16_zfill(to + x * 32 * FF_CHUNK * 4, some ? from : (const float *)p->k.data, some);
    }
}

__device__ __forceinline__ void ff_copy_v(const struct problem *p, const struct ff_feed *f, int first)
{
    const int key = threadIdx.x >> 5, column = (threadIdx.x & 31) * 4;
    const uint32_t to = f->to + (uint32_t)(key * FF_WIDTH + column) * 4;
    const int64_t step = 4 * p->v.stride[2];
    const int bytes = min(max((int)p->dv - column, 0), 4) * 4;
    const float *from = f->v;
#pragma unroll
    for (int x = 0; x < 4; x++, from += step) {
        const int some = first + key + 4 * x < f->keys ? bytes : 0;
        cp_async_16_zfill(to + x * 4 * FF_WIDTH * 4, some ? from : (const float *)p->v.data, some);
    }
}

/* Starts the copy of the next chunk, if there is one. v_last: chunks of V that the last tile has. */
__device__ __forceinline__ void ff_bring(const struct problem *p, struct ff_feed *f, int k_chunks, int v_last,
                                         uint32_t ring)
{
    if (f->tiles > 0) {
        const int v_chunks = f->tiles == 1 ? v_last : FF_V_CHUNKS;
        if (f->chunk < k_chunks) {
            ff_copy_k(p, f);
            f->k += FF_CHUNK;
        } else {
            ff_copy_v(p, f, (f->chunk - k_chunks) * FF_CHUNK);
            f->v += FF_CHUNK * p->v.stride[2];
        }
        f->chunk++;
        f->to = f->to == ring + (FF_STAGES - 1) * FF_CHUNK_FLOATS * 4 ? ring : f->to + FF_CHUNK_FLOATS * 4;
        if (f->chunk == k_chunks + v_chunks) {
            f->chunk = 0;
            f->tiles--;
            f->keys -= FS_BN;
            f->k += FS_BN * p->k.stride[2] - k_chunks * FF_CHUNK;
        }
    }
    cp_async_commit();
}

/* Some value of V's chunk is not finite: each thread looks at those it copied. */
__device__ __forceinline__ bool ff_search(const float *chunk)
{
    bool bad = false;
#pragma unroll
    for (int x = 0; x < 4; x++) {
        const float4 v = *(const float4 *)(chunk + ((threadIdx.x >> 5) + 4 * x) * FF_WIDTH + (threadIdx.x & 31) * 4);
        bad |= !is_finite(v.x) | !is_finite(v.y) | !is_finite(v.z) | !is_finite(v.w);
    }
    return bad;
}

/* ---------------------------------------------------------------- products */

/* out = 8 floats: `near` floats apart lie the two fours. */
__device__ __forceinline__ void ff_read(const float *from, int near, float *out)
{
#pragma unroll
    for (int x = 0; x < 2; x++) {
        const float4 four = *(const float4 *)(from + x * near);
        out[4 * x] = four.x;
        out[4 * x + 1] = four.y;
        out[4 * x + 2] = four.z;
        out[4 * x + 3] = four.w;
    }
}

/* s += Q K^T over the 16 d of a chunk. q: of the thread's rows. k_at: where pieces 0 .. 3 of the
 * thread's first key lie. */
__device__ __forceinline__ void ff_scores(const float *q, const float *chunk, int k_at, float (*s)[8])
{
#pragma unroll 1
    for (int piece = 0; piece < 4; piece++) {
        float row[4][8];
#pragma unroll
        for (int x = 0; x < 4; x++)
            ff_read(q + (4 * piece + x) * FF_Q_PITCH, 16, row[x]);
#pragma unroll
        for (int c = 0; c < 8; c++) {
            const float4 four = *(const float4 *)(chunk + (k_at ^ piece * 4) + (c >> 2) * 32 * FF_CHUNK +
                                                  (c & 2) * FF_CHUNK + (c & 1) * 4 * FF_CHUNK);
            const float key[4] = { four.x, four.y, four.z, four.w };
#pragma unroll
            for (int x = 0; x < 4; x++)
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const int r = (c ^ x) & 1 ? 7 - i : i;
                    s[r][c] = __fmaf_rn(row[x][r], key[x], s[r][c]);
                }
        }
    }
}

/* Float of P at which piece `piece` (four keys) of row `first` + 16 x lies, first being the thread's first row. */
__device__ __forceinline__ int ff_place_p(const struct ff_lane &at, int x, int piece)
{
    return (at.row + 16 * x) * FS_BN + (piece ^ (4 * x + at.ty)) * 4;
}

/* chain = P V over the 16 keys of chunk `index` of the tile. */
__device__ __forceinline__ void ff_values(const float *p, int index, const float *v, const struct ff_lane &at,
                                          float (*chain)[8])
{
#pragma unroll
    for (int x = 0; x < 64; x++)
        chain[x / 8][x % 8] = 0.0f;
#pragma unroll 1
    for (int piece = 0; piece < 4; piece++) {
        float column[4][8];
#pragma unroll
        for (int x = 0; x < 4; x++)
            ff_read(v + (4 * piece + x) * FF_WIDTH + at.column, 32, column[x]);
#pragma unroll
        for (int r = 0; r < 8; r++) {
            const float4 four = *(const float4 *)(p + ff_place_p(at, r >> 2, 4 * index + piece) + (r & 3) * FS_BN);
            const float row[4] = { four.x, four.y, four.z, four.w };
#pragma unroll
            for (int x = 0; x < 4; x++)
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const int c = (r ^ x) & 1 ? 7 - i : i;
                    chain[r][c] = __fmaf_rn(row[x], column[x][c], chain[r][c]);
                }
        }
    }
}

/* The same, where the chunk has values that are not finite: hidden pairs are left out. */
__device__ __forceinline__ void ff_values_hiding(const float *p, int index, const float *v, const struct ff_lane &at,
                                                 float (*chain)[8])
{
#pragma unroll
    for (int x = 0; x < 64; x++)
        chain[x / 8][x % 8] = 0.0f;
#pragma unroll 1
    for (int key = 0; key < FF_CHUNK; key++) {
        float column[8];
        ff_read(v + key * FF_WIDTH + at.column, 32, column);
#pragma unroll
        for (int r = 0; r < 8; r++) {
            const float row = p[ff_place_p(at, r >> 2, 4 * index + key / 4) + (r & 3) * FS_BN + key % 4];
#pragma unroll
            for (int c = 0; c < 8; c++)
                chain[r][c] = is_hidden_p(row) ? chain[r][c] : __fmaf_rn(row, column[c], chain[r][c]);
        }
    }
}

/* ---------------------------------------------------------------- scores to probabilities */

/* From S to final scores: -inf where hidden. Tells whether this thread may have hidden pairs. */
__device__ __forceinline__ bool ff_finish_scores(const struct problem *p, const ff_shared *sh, int64_t j0,
                                                 const struct ff_lane &at, float (*s)[8])
{
    const bool whole = j0 >= sh->max_begin && j0 + FS_BN <= sh->min_end, terms = score_has_terms(p);
    const float scale = p->scale;
#pragma unroll
    for (int x = 0; x < 64; x++)
        s[x / 8][x % 8] = __fmul_rn(scale, s[x / 8][x % 8]);
    if (p->softcap != 0.0f) {
        const float cap = p->softcap;
#pragma unroll
        for (int x = 0; x < 64; x++)
            s[x / 8][x % 8] = score_cap(s[x / 8][x % 8], cap);
    }
    if (whole && !terms) {
        float low = s[0][0];                         /* products may overflow to -inf */
#pragma unroll
        for (int x = 1; x < 64; x++)
            low = fminf(low, s[x / 8][x % 8]);
        return low == minus_infinity();
    }
#pragma unroll
    for (int r = 0; r < 8; r++) {
        const int row = ff_row(at.row, r);
        const int begin = (int)clamp64(sh->begin[row] - j0, 0, FS_BN), end = (int)clamp64(sh->end[row] - j0, 0, FS_BN);
#pragma unroll
        for (int c = 0; c < 8; c++) {
            const int j = ff_column(at.column, c);
            if (j < begin || j >= end)
                s[r][c] = minus_infinity();
            else if (terms)
                s[r][c] = score_terms(p, &sh->row[row], j0 + j, s[r][c]);
        }
    }
    return true;
}

/* The warp's half of each row's maximum. */
__device__ __forceinline__ void ff_maxima(ff_shared *sh, const struct ff_lane &at, const float (*s)[8])
{
    float mine = 0.0f;
#pragma unroll
    for (int r = 0; r < 8; r++) {
        float top = s[r][0];
#pragma unroll
        for (int c = 1; c < 8; c++)
            top = fmaxf(top, s[r][c]);
        top = ff_lanes_max(top);
        mine = at.tx == r ? top : mine;
    }
    sh->half[at.wx][ff_row(at.row, at.tx)] = mine;
}

/* Online softmax of the tile: P to shared memory, m, l and O brought to the new maximum. m: which
 * of sh->m is the old one. */
__device__ __forceinline__ void ff_softmax(ff_shared *sh, int m, float *p_shared, float *l, const struct ff_lane &at,
                                           float (*s)[8], float (*o)[8])
{
#pragma unroll
    for (int r = 0; r < 8; r++) {
        const int row = ff_row(at.row, r);
        const float old = sh->m[m][row], top = fmaxf(old, fmaxf(sh->half[0][row], sh->half[1][row]));
        const float from = top == minus_infinity() ? 0.0f : top;
        const float keep = exp2_approx(__fmul_rn(__fsub_rn(old, from), LOG2_E));
        float sum = 0.0f;
#pragma unroll
        for (int c = 0; c < 8; c++) {
            const float e = exp2_approx(__fmul_rn(__fsub_rn(s[r][c], from), LOG2_E));
            s[r][c] = s[r][c] == minus_infinity() ? hidden_p() : e;
            sum = __fadd_rn(sum, s[r][c]);
        }
        sum_scaled(&l[r * FF_THREADS + threadIdx.x], &l[FF_L + r * FF_THREADS + threadIdx.x], keep, sum);
#pragma unroll
        for (int c = 0; c < 8; c++)
            o[r][c] = __fmul_rn(o[r][c], keep);
#pragma unroll
        for (int x = 0; x < 2; x++)
            *(float4 *)(p_shared + ff_place_p(at, r >> 2, at.column / 4 + 8 * x) + (r & 3) * FS_BN) =
                make_float4(s[r][4 * x], s[r][4 * x + 1], s[r][4 * x + 2], s[r][4 * x + 3]);
        if (at.wx == 0 && at.tx == r)
            sh->m[m ^ 1][row] = top;
    }
}

/* O waits in P's memory while S is computed: 64 registers less there. Each thread its own. */
__device__ __forceinline__ void ff_stash(float4 *to, const float (*o)[8])
{
#pragma unroll
    for (int x = 0; x < 16; x++)
        to[x * FF_THREADS + threadIdx.x] = make_float4(o[x / 2][x % 2 * 4], o[x / 2][x % 2 * 4 + 1],
                                                       o[x / 2][x % 2 * 4 + 2], o[x / 2][x % 2 * 4 + 3]);
}

__device__ __forceinline__ void ff_unstash(const float4 *from, float (*o)[8])
{
#pragma unroll
    for (int x = 0; x < 16; x++) {
        const float4 four = from[x * FF_THREADS + threadIdx.x];
        o[x / 2][x % 2 * 4] = four.x;
        o[x / 2][x % 2 * 4 + 1] = four.y;
        o[x / 2][x % 2 * 4 + 2] = four.z;
        o[x / 2][x % 2 * 4 + 3] = four.w;
    }
}

/* ---------------------------------------------------------------- sums of spans, results */

/* O of the spans before this one, what rounding took of it, and the maximum it is scaled to. In
 * local memory: indices contain a zero that the compiler does not know. */
struct ff_spans { float sum[8][8], low[8][8], m[8]; };

/* A span ends: o joins the spans. `last`: the sum stays in o; else o is 0 afterwards. */
template <bool last>
__device__ __forceinline__ void ff_fold(struct ff_spans *spans, const float *m, const struct ff_lane &at, int zero,
                                        float (*o)[8])
{
#pragma unroll
    for (int r = 0; r < 8; r++) {
        const float now = m[ff_row(at.row, r)], keep = exp_below(spans->m[r + zero], now);
        spans->m[r + zero] = now;
#pragma unroll
        for (int c = 0; c < 8; c++) {
            float sum = spans->sum[r + zero][c], low = spans->low[r + zero][c];
            sum_scaled(&sum, &low, keep, o[r][c]);
            o[r][c] = last ? sum : 0.0f;
            if (!last) {
                spans->sum[r + zero][c] = sum;
                spans->low[r + zero][c] = low;
            }
        }
    }
}

/* Four neighbours of a row of O at `to`, of which `left` exist. fours: 16 bytes at once. */
__device__ __forceinline__ void ff_store_four(float *to, int64_t stride, int left, bool fours, const float *value)
{
    if (fours && left >= 4) {
        *(float4 *)to = make_float4(value[0], value[1], value[2], value[3]);
        return;
    }
#pragma unroll
    for (int x = 0; x < 4; x++)
        if (x < left)
            to[x * stride] = value[x];
}

/* Writes O and LSE of the thread's rows, or the split's part of them. m: final maxima. Row sums go
 * through sh->half. */
__device__ __forceinline__ void ff_finish(const struct flash_simt_args *a, const struct problem *p, ff_shared *sh,
                                          const float *m, const float *l, const struct ff_lane &at, float (*o)[8])
{
    const struct seq *const s = &sh->seq;
    const struct fs_work &w = sh->work;
    float mine = 0.0f;
#pragma unroll
    for (int r = 0; r < 8; r++) {
        const float sum =
            ff_lanes_sum(__fadd_rn(l[r * FF_THREADS + threadIdx.x], l[FF_L + r * FF_THREADS + threadIdx.x]));
        mine = at.tx == r ? sum : mine;
    }
    sh->half[at.wx][ff_row(at.row, at.tx)] = mine;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 8; r++) {
        const int row = ff_row(at.row, r);
        const int64_t index = w.tile * FF_ROWS + row, i = index / p->group, h = w.kv_head * p->group + index % p->group;
        if (i >= s->rows)
            continue;
        const float max = m[row], sum = __fadd_rn(sh->half[0][row], sh->half[1][row]);
        const bool dead = i >= s->len_q, split = a->parts_o != NULL, leader = at.wx == 0 && at.tx == 0;
        const int64_t part = w.split * a->part_rows + fs_part_row(p, s, h, i);
        float factor = 1.0f, lse = 0.0f, value[8];
        if (!split)
            flash_close(p, h, dead, max, sum, &factor, &lse);
#pragma unroll
        for (int c = 0; c < 8; c++)
            value[c] = split ? (dead ? 0.0f : o[r][c]) : flash_result(dead, o[r][c], factor);
        float *const out = split ? a->parts_o + part * p->dv : (float *)view_at(&p->o, s->q_batch, h, s->q_row + i, 0);
        const int64_t stride = split ? 1 : p->o.stride[3];
#pragma unroll
        for (int x = 0; x < 2; x++) {
            const int column = at.column + 32 * x;
            ff_store_four(out + column * stride, stride, (int)p->dv - column, split ? p->dv % 4 == 0 : a->o_fours,
                          value + 4 * x);
        }
        if (split && leader) {
            a->parts_ml[2 * part] = dead ? minus_infinity() : max;
            a->parts_ml[2 * part + 1] = dead ? 0.0f : sum;
        } else if (!split && leader && p->lse.dtype) {
            *(float *)view_at(&p->lse, s->q_batch, h, s->q_row + i, 0) = lse;
        }
    }
}

/* ---------------------------------------------------------------- kernel */

/* What all items of a block have in common, and the thread's place. */
struct ff_block {
    const struct problem *p;
    ff_shared *sh;
    float *memory, *p_shared, *l, *q;
    uint32_t ring;
    struct ff_lane at;
    int k_chunks, k_at;         /* chunks of D; where the thread's first key starts in a chunk */
};

__device__ __forceinline__ struct ff_block ff_block_of(const struct problem *p, ff_shared *sh, float *memory)
{
    struct ff_block b;
    b.p = p;
    b.sh = sh;
    b.memory = memory;
    b.p_shared = memory + FF_STAGES * FF_CHUNK_FLOATS;
    b.l = b.p_shared + FF_ROWS * FS_BN;
    b.q = b.l + 2 * FF_L;
    b.ring = shared_address(memory);
    b.at = ff_lane_of();
    b.k_chunks = p->d > FF_CHUNK ? (int)((p->d + FF_CHUNK - 1) / FF_CHUNK) : 1;
    b.k_at = ff_place_k(b.at.column, 0);
    return b;
}

/* Starts the copies of Q and of the first chunks of `tiles` key tiles from tile `first` on. */
__device__ __forceinline__ struct ff_feed ff_begin(const struct ff_block &b, int64_t kv_head, int64_t first,
                                                   int tiles, int v_last)
{
    const struct problem *const p = b.p;
    const struct seq *const s = &b.sh->seq;
    struct ff_feed feed;
    feed.tiles = tiles;
    if (tiles) {
        const int64_t row = s->k_row + first * FS_BN;
        feed.keys = s->len_k - first * FS_BN;
        feed.chunk = 0;
        feed.to = b.ring;
        feed.k = (const float *)p->k.data + s->k_batch * p->k.stride[0] + kv_head * p->k.stride[1] +
                 (row + (threadIdx.x >> 2)) * p->k.stride[2] + (threadIdx.x & 3) * 4;
        feed.v = (const float *)p->v.data + s->k_batch * p->v.stride[0] + kv_head * p->v.stride[1] +
                 (row + (threadIdx.x >> 5)) * p->v.stride[2] + (threadIdx.x & 31) * 4;
        ff_copy_q(p, b.sh, b.k_chunks * FF_CHUNK, shared_address(b.q));
#pragma unroll 1
        for (int x = 0; x < FF_STAGES - 1; x++)
            ff_bring(p, &feed, b.k_chunks, v_last, b.ring);
    }
    return feed;
}

__device__ __forceinline__ int ff_next_stage(int stage)
{
    return stage == (FF_STAGES - 1) * FF_CHUNK_FLOATS ? 0 : stage + FF_CHUNK_FLOATS;
}

/* s = Q K^T of a tile, whose first chunk has arrived. stage: float of the ring at work. */
__device__ __forceinline__ void ff_multiply_k(const struct ff_block &b, struct ff_feed *feed, int v_last, int *stage,
                                              float (*s)[8])
{
#pragma unroll 1
    for (int c = 0; c < b.k_chunks; c++) {
        if (c > 0) {
            cp_async_wait<FF_STAGES - 2>();
            __syncthreads();
        }
        ff_bring(b.p, feed, b.k_chunks, v_last, b.ring);
        ff_scores(b.q + c * FF_CHUNK * FF_Q_PITCH + b.at.row, b.memory + *stage, b.k_at, s);
        *stage = ff_next_stage(*stage);
    }
}

/* o += P V of a tile. hides: some pair may be hidden. */
__device__ __forceinline__ void ff_multiply_v(const struct ff_block &b, struct ff_feed *feed, int v_last, int v_chunks,
                                              bool hides, int *stage, float (*o)[8])
{
#pragma unroll 1
    for (int c = 0; c < v_chunks; c++) {
        float chain[8][8];
        bool bad = false;
        cp_async_wait<FF_STAGES - 2>();
        if (hides)
            bad = __syncthreads_or(ff_search(b.memory + *stage));
        else
            __syncthreads();
        ff_bring(b.p, feed, b.k_chunks, v_last, b.ring);
        if (bad)
            ff_values_hiding(b.p_shared, c, b.memory + *stage, b.at, chain);
        else
            ff_values(b.p_shared, c, b.memory + *stage, b.at, chain);
#pragma unroll
        for (int x = 0; x < 64; x++)
            o[x / 8][x % 8] = __fadd_rn(o[x / 8][x % 8], chain[x / 8][x % 8]);
        *stage = ff_next_stage(*stage);
    }
}

/* `tiles` key tiles from tile `first` on. Returns which of sh->m has the final maxima. */
__device__ __forceinline__ int ff_walk(const struct ff_block &b, int64_t kv_head, int64_t first, int tiles, int zero,
                                       float (*o)[8])
{
    const int64_t last = first + tiles;
    const bool folds = tiles > 0 && (last - 1) / FS_SPAN > first / FS_SPAN;
    const int v_last = (int)(clamp64(b.sh->max_end - (last - 1) * FS_BN, 1, FS_BN) + FF_CHUNK - 1) / FF_CHUNK;
    struct ff_spans spans;
    if (folds)
        for (int x = zero; x < 8; x++) {
            spans.m[x] = minus_infinity();
            for (int c = 0; c < 8; c++)
                spans.sum[x][c] = spans.low[x][c] = 0.0f;
        }
    struct ff_feed feed = ff_begin(b, kv_head, first, tiles, v_last);
    int m = 0, stage = 0;                            /* which of sh->m is current; float of the ring at work */
    int64_t j0 = first * FS_BN;
    for (int left = tiles; left > 0; left--, j0 += FS_BN) {
        float s[8][8];
#pragma unroll
        for (int x = 0; x < 64; x++)
            s[x / 8][x % 8] = 0.0f;
        cp_async_wait<FF_STAGES - 2>();
        __syncthreads();                             /* the last tile's P is read */
        ff_stash((float4 *)b.p_shared, o);
        ff_multiply_k(b, &feed, v_last, &stage, s);
        bool hides = ff_finish_scores(b.p, b.sh, j0, b.at, s);
        ff_maxima(b.sh, b.at, s);
        ff_unstash((const float4 *)b.p_shared, o);
        hides = __syncthreads_or(hides);
        ff_softmax(b.sh, m, b.p_shared, b.l, b.at, s, o);
        m ^= 1;
        ff_multiply_v(b, &feed, v_last, left > 1 ? FF_V_CHUNKS : v_last, hides, &stage, o);
        if (left > 1 && (int)(j0 / FS_BN) % FS_SPAN == FS_SPAN - 1)
            ff_fold<false>(&spans, b.sh->m[m], b.at, zero, o);
    }
    if (folds)
        ff_fold<true>(&spans, b.sh->m[m], b.at, zero, o);
    return m;
}

static __global__ void __launch_bounds__(FF_THREADS, 2)
flash_f32_simt_kernel(const __grid_constant__ struct flash_simt_args args,
                      const __grid_constant__ struct problem_param packed)
{
    extern __shared__ __align__(16) float memory[];
    __shared__ ff_shared sh;
    const struct problem *const p = problem_of(&packed);
    wait_for_predecessor();
    const struct flash_simt_args *const a = &args;
    const struct ff_block b = ff_block_of(p, &sh, memory);

    for (int64_t index = blockIdx.x; index < a->work; index += gridDim.x) {
        const struct fs_work w = fs_work_of(a, index);
        __syncthreads();                             /* the last item's readers are done */
        if (threadIdx.x == 0) {
            sh.seq = seq_get(p, w.n);
            sh.work = w;
        }
        __syncthreads();
        if (w.tile * FF_ROWS >= sh.seq.rows * p->group)
            continue;
        fs_setup_rows<FF_ROWS>(p, w, &sh);
        if (threadIdx.x < FF_ROWS)
            sh.m[0][threadIdx.x] = minus_infinity();
        __syncthreads();

        int64_t first, last;
        fs_split_of<FF_ROWS>(a, &sh, w.split, FS_BN, &first, &last);
        float o[8][8];
#pragma unroll
        for (int x = 0; x < 64; x++)
            o[x / 8][x % 8] = 0.0f;
#pragma unroll
        for (int r = 0; r < 16; r++)
            b.l[r * FF_THREADS + threadIdx.x] = 0.0f;
        const int m = ff_walk(b, w.kv_head, first, first < last ? (int)(last - first) : 0, a->zero, o);
        ff_finish(a, p, &sh, sh.m[m], b.l, b.at, o);
    }
}

const void *qattn__flash_f32_simt(void)
{
    return (const void *)flash_f32_simt_kernel;
}
