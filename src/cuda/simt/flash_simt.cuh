/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Attention in one pass without tensor cores: any strides, types, lengths, pages and masks; fp32 throughout.
 *
 * What one block of 256 threads does: one tile of BM = 16 RM query rows of one KV head, against the keys that some row
 * of the tile sees, 128 at a time (online softmax: Milakov and Gimelshein 2018; Dao et al. 2022):
 *
 *     S [BM][128]  = Q K^T                 in chunks of 16 of D
 *     P            = e^(scale S - m)       after softcap, bias, ALiBi and masks; m is the running row maximum
 *     O [BM][64 NV] = O e^(m_old - m) + P V   in chunks of 16 keys
 *
 * The rows of a tile are (i, g): query row i of all heads of the group in turn, so K and V are read once for a group.
 *
 * Who does what: thread (ty, tx) = (tid / 16, tid % 16) owns RM rows and 8 keys of S, RM rows and 4 NV columns of O, in
 * registers: 64 + 64 at RM 8, NV 2. A step over one element of D or one key is then 64 multiply-adds for 16 floats
 * read from shared memory. The 16 threads of a row are neighbouring lanes, so row maxima are shuffles.
 *
 * Shared memory, in floats and in this order (BM 128, D 128: 226 KB; the launcher keeps Q out where it does not fit):
 *     ring   [2][16][W]             the chunk of K^T or V at work and the next one; W = max(128, 64 NV) + 4
 *     p      [128][BM + 4]          P transposed, keys in the order of slot_of
 *     spans  [BM][64 NV]            O of the spans before this one, each thread its own; or in memory
 *     q      [D up to 16][BM + 4]   the tile's queries, transposed; or two chunks [16][BM + 4], reloaded per key tile
 * Chunks run through one double-buffered sequence K0 .. Kn V0 .. V7 K0 ..: while one is multiplied, the next one is on
 * its way through registers; one barrier per chunk.
 *
 * Cost: 2 BM 128 (D + Dv) multiply-adds per key tile against 128 (D + Dv) loads, so for f32 the fused multiply-adds
 * bound it: 4 Hq Sq Sk D / (fp32 peak). Tiles no row sees are skipped; inside a tile masks cost a comparison per score,
 * and nothing where the whole tile is seen.
 *
 * Long sums: a chain of n additions of like numbers loses up to n/3 roundings, all in one
 * direction. P V is summed in chains of 16 keys, 32 chains make a span of 512, and spans are added
 * with what each rounding took (Kahan 1965), of which 8 bits suffice: a packed bf16. Row sums carry
 * their own remainder. So the error does not grow with the keys.
 *
 * Bits: a row's result is a function of its own query, keys and positions. The sums over D and over
 * keys run in ascending order with _rn arithmetic, key tiles, chains and spans start at multiples
 * of their length, and neither RM nor NV nor the group changes the order, so prefill, decode,
 * packed and paged calls agree. A tile that a row does not see leaves its state alone: the maximum
 * stays, e^0 = 1, and -0 is added.
 *
 * Non-finite V (docs/numerics.md): a hidden key's P is -0. A chunk of V that holds NaN or infinity, found while it is
 * loaded, is multiplied by a second loop that leaves out hidden pairs.
 */
#ifndef QATTN_CUDA_FLASH_SIMT_CUH
#define QATTN_CUDA_FLASH_SIMT_CUH

#include "cuda/common/ptx.cuh"
#include "cuda/simt/flash_item.cuh"
#include "cuda/simt/tile_simt.cuh"

template <int RM, int NV> struct fs_tile {
    static constexpr int bm = 16 * RM, pitch_m = bm + 4, width = 64 * NV;
    static constexpr int ring_pitch = (width > FS_BN ? width : FS_BN) + 4;
    static constexpr int ring_floats = FS_BK * ring_pitch, p_floats = FS_BN * pitch_m;
    static constexpr int v_loads = tile_share<width>::loads, k_loads = tile_share<FS_BN>::loads;
    static constexpr int loads = v_loads > k_loads ? v_loads : k_loads;    /* of a chunk, per thread */
    static constexpr int span_floats = bm * width;
};

/* Facts of the tile at work. */
template <int BM> struct fs_shared : fs_rows<BM> {
    float m[BM], l[BM], l_low[BM];          /* running maximum, sum of e^(s - m), what rounding took of it */
    float m_span[BM];                       /* the maximum that the spans before this one are scaled to */
    int64_t k_at[2][FS_BN], v_at[2][FS_BN]; /* of the keys of this tile and the next */
};

/* The place of key j of a tile in p: the four floats a thread stores for each of its keys then fall
 * into different banks across tx. */
__device__ __forceinline__ constexpr int fs_slot_of(int j)
{
    return ((j >> 6) * 4 + (j & 3)) * 16 + ((j >> 2) & 15);
}

/* Where the keys of the tile that starts at j0 lie. */
__device__ __forceinline__ void fs_place_keys(const struct problem *p, const struct seq *s, int64_t kv_head, int64_t j0,
                                              int64_t *k_at, int64_t *v_at)
{
    if (threadIdx.x < FS_BN)
        fs_place_key(p, s, kv_head, j0 + threadIdx.x, &k_at[threadIdx.x], &v_at[threadIdx.x]);
}

/* The descale of all elements of a head of 8-bit k or v, where they share one; else 1. */
template <class T>
__device__ __forceinline__ float fs_one_descale(const struct problem *p, const struct fs_work &w, const struct seq *s,
                                                const struct descale *ds)
{
    if (sizeof(T) > 1 || ds->kind != DESCALE_SEQUENCE || ds->t.shape[3] > 1)
        return 1.0f;
    return seq_kv_descale(p, s, ds, w.kv_head / ds->head_div, 0, 0);
}

template <class T> __device__ __forceinline__ bool fs_many_descales(const struct descale *ds)
{
    return sizeof(T) == 1 && ds->kind != DESCALE_NONE && (ds->kind != DESCALE_SEQUENCE || ds->t.shape[3] > 1);
}

/* out = the thread's share of K[j0 + row][d0 + k]. */
template <class T>
__device__ __forceinline__ void fs_fetch_k(const struct problem *p, const struct fs_work &w,
                                           const struct seq *s, const struct tile_lane &lane, const int64_t *at,
                                           int64_t j0, int64_t d0, float *out)
{
    typedef tile_share<FS_BN> share;
    const int64_t d_stride = p->k.stride[3];
    const T *const base = (const T *)p->k.data + (d0 + lane.k) * d_stride;
    const float one = fs_one_descale<T>(p, w, s, &p->k_descale);
#pragma unroll
    for (int e = 0; e < share::loads; e++) {
        const int row = lane.row + lane.row_step * (e % share::near);
        const int k = lane.k_step * (e % share::near) + 8 * (e / share::near);
        const int64_t d = d0 + lane.k + k, offset = at[row];
        out[e] = 0.0f;
        if (offset != FS_NOWHERE && d < p->d) {
            out[e] = widen(base[offset + k * d_stride], p->k.dtype);
            if (sizeof(T) == 1)
                out[e] *= one;
        }
    }
    if (!fs_many_descales<T>(&p->k_descale))
        return;
#pragma unroll 1
    for (int e = 0; e < share::loads; e++) {         /* rolled: what finds a descale is long */
        const int row = lane.row + lane.row_step * (e % share::near);
        const int64_t d = d0 + lane.k + lane.k_step * (e % share::near) + 8 * (e / share::near);
        if (at[row] == FS_NOWHERE || d >= p->d)
            continue;
        const float scale = seq_kv_descale(p, s, &p->k_descale, w.kv_head / p->k_descale.head_div, j0 + row, d);
#pragma unroll
        for (int x = 0; x < share::loads; x++)
            out[x] = x == e ? out[x] * scale : out[x];
    }
}

/* out = the thread's share of V[j0 + first + k][slice + row]: here the rows of the step are columns of V. */
template <class T, int NV>
__device__ __forceinline__ void fs_fetch_v(const struct problem *p, const struct fs_work &w,
                                           const struct seq *s, const struct tile_lane &lane, const int64_t *at,
                                           int64_t j0, int first, float *out)
{
    typedef tile_share<64 * NV> share;
    const int64_t d_stride = p->v.stride[3], slice = w.slice * (64 * NV);
    const T *const base = (const T *)p->v.data + (slice + lane.row) * d_stride;
    const float one = fs_one_descale<T>(p, w, s, &p->v_descale);
#pragma unroll
    for (int e = 0; e < share::loads; e++) {
        const int column = lane.row_step * (e % share::near);
        const int key = first + lane.k + lane.k_step * (e % share::near) + 8 * (e / share::near);
        const int64_t d = slice + lane.row + column, offset = at[key];
        out[e] = 0.0f;
        if (offset != FS_NOWHERE && d < p->dv) {
            out[e] = widen(base[offset + column * d_stride], p->v.dtype);
            if (sizeof(T) == 1)
                out[e] *= one;
        }
    }
    if (!fs_many_descales<T>(&p->v_descale))
        return;
#pragma unroll 1
    for (int e = 0; e < share::loads; e++) {
        const int key = first + lane.k + lane.k_step * (e % share::near) + 8 * (e / share::near);
        const int64_t d = slice + lane.row + lane.row_step * (e % share::near);
        if (at[key] == FS_NOWHERE || d >= p->dv)
            continue;
        const float scale = seq_kv_descale(p, s, &p->v_descale, w.kv_head / p->v_descale.head_div, j0 + key, d);
#pragma unroll
        for (int x = 0; x < share::loads; x++)
            out[x] = x == e ? out[x] * scale : out[x];
    }
}

/* q[d][r] for d0 <= d < d0 + count (a multiple of 16), 0 beyond D and where there is no row. */
template <int BM, int PITCH>
__device__ void fs_load_q(const struct problem *p, const struct fs_work &w, const fs_shared<BM> *sh, int64_t d0,
                          int count, float *q)
{
    for (int x = threadIdx.x; x < count * BM; x += FS_THREADS) {
        /* 8 neighbouring d of a row, then the next row: whole 32-byte sectors of f32, and no two lanes in one bank */
        const int d = (x & 7) + 8 * (x / (8 * BM)), r = (x >> 3) % BM;
        float value = 0.0f;
        if (sh->q_at[r] != FS_NOWHERE && d0 + d < p->d) {
            value = load_any(p->q.data + (sh->q_at[r] + (d0 + d) * p->q.stride[3]) * p->q.itemsize, p->q.dtype);
            if (p->q_descale.kind != DESCALE_NONE) {
                const int64_t at = w.tile * BM + r;
                value *= seq_q_descale(p, &sh->seq, w.kv_head * p->group + at % p->group, at / p->group, d0 + d);
            }
        }
        q[d * PITCH + r] = value;
    }
}

/* Bias, keep and ALiBi of the tile's scores, -inf where hidden: one of the thread's 8 columns at a time, in a loop over
 * local memory, as it would be a fifth of the kernel's code unrolled. Lines of RM + 1: of RM, the compiler would move
 * four scores by one access, for which they must lie in neighbouring registers, and the products would meet in banks of
 * registers (5 % of a call without terms). */
template <int RM>
__device__ __forceinline__ void fs_add_terms(const struct problem *p, const fs_shared<16 * RM> *sh, int64_t j0, int ty,
                                             int tx, float (*s)[8])
{
    float kept[8][RM + 1];
#pragma unroll
    for (int x = 0; x < 8 * RM; x++)
        kept[x % 8][x / 8] = s[x / 8][x % 8];
#pragma unroll 1
    for (int c = 0; c < 8; c++) {
        const int64_t j = j0 + (c >> 2) * 64 + tx * 4 + (c & 3);
        float loaded[RM];
#pragma unroll
        for (int r = 0; r < RM; r++) {               /* all loads before the first use */
            const int row = tile_row_of<RM>(ty, r);
            loaded[r] = j >= sh->begin[row] && j < sh->end[row] ? score_load(p, &sh->row[row], j)
                                                                   : minus_infinity();
        }
#pragma unroll
        for (int r = 0; r < RM; r++)
            kept[c][r] = score_add(p, &sh->row[tile_row_of<RM>(ty, r)], j, kept[c][r], loaded[r]);
    }
#pragma unroll
    for (int x = 0; x < 8 * RM; x++)
        s[x / 8][x % 8] = kept[x % 8][x / 8];
}

/* From S to final scores: -inf where hidden. */
template <int RM>
__device__ __forceinline__ void fs_finish_scores(const struct problem *p, const fs_shared<16 * RM> *sh,
                                                 int64_t j0, int ty, int tx, float (*s)[8])
{
    const bool whole = j0 >= sh->max_begin && j0 + FS_BN <= sh->min_end, terms = score_has_terms(p);
    const float scale = p->scale;
#pragma unroll
    for (int r = 0; r < RM; r++)
#pragma unroll
        for (int c = 0; c < 8; c++)
            s[r][c] = __fmul_rn(scale, s[r][c]);
    if (p->softcap != 0.0f) {
        const float cap = p->softcap;
#pragma unroll
        for (int r = 0; r < RM; r++)
#pragma unroll
            for (int c = 0; c < 8; c++)
                s[r][c] = score_cap(s[r][c], cap);
    }
    if (RM > 1 && terms) {
        fs_add_terms<RM>(p, sh, j0, ty, tx, s);
        return;
    }
    if (whole && !terms)
        return;
#pragma unroll
    for (int r = 0; r < RM; r++) {
        const int row = tile_row_of<RM>(ty, r);
        const int begin = (int)clamp64(sh->begin[row] - j0, 0, FS_BN), end = (int)clamp64(sh->end[row] - j0, 0, FS_BN);
#pragma unroll
        for (int c = 0; c < 8; c++) {
            const int j = (c >> 2) * 64 + tx * 4 + (c & 3);
            if (j < begin || j >= end)
                s[r][c] = minus_infinity();
            else if (RM == 1 && terms)
                s[r][c] = score_terms(p, &sh->row[row], j0 + j, s[r][c]);
        }
    }
}

/* Online softmax of the tile: P to shared memory, m, l and O brought to the new maximum. The 16
 * threads of a row read m and agree by shuffles; thread r of them keeps the books of the r-th row. */
template <int RM, int NV>
__device__ __forceinline__ void fs_softmax(float (*s)[8], fs_shared<16 * RM> *sh, float (*o)[4 * NV],
                                           float *p_shared, int ty, int tx)
{
    constexpr int pitch = fs_tile<RM, NV>::pitch_m;
    float my_top = 0.0f, my_keep = 0.0f, my_sum = 0.0f;
#pragma unroll
    for (int r = 0; r < RM; r++) {
        const float old = sh->m[tile_row_of<RM>(ty, r)];
        float top = old;
#pragma unroll
        for (int c = 0; c < 8; c++)
            top = fmaxf(top, s[r][c]);
        top = lanes_max<16>(top);
        const float from = top == minus_infinity() ? 0.0f : top;
        const float keep = exp2_approx(__fmul_rn(__fsub_rn(old, from), LOG2_E));
        float sum = 0.0f;
#pragma unroll
        for (int c = 0; c < 8; c++) {
            const float e = exp2_approx(__fmul_rn(__fsub_rn(s[r][c], from), LOG2_E));
            s[r][c] = s[r][c] == minus_infinity() ? hidden_p() : e;
            sum = __fadd_rn(sum, s[r][c]);
        }
        sum = lanes_sum<16>(sum);
        my_top = tx == r ? top : my_top;
        my_keep = tx == r ? keep : my_keep;
        my_sum = tx == r ? sum : my_sum;
#pragma unroll
        for (int c = 0; c < 4 * NV; c++)
            o[r][c] = __fmul_rn(o[r][c], keep);
    }
    __syncwarp();
    if (tx < RM) {
        const int row = tile_row_of<RM>(ty, tx);
        sh->m[row] = my_top;
        sum_scaled(&sh->l[row], &sh->l_low[row], my_keep, my_sum);
    }
#pragma unroll
    for (int c = 0; c < 8; c++) {
        float *const line = p_shared + (((c >> 2) * 4 + (c & 3)) * 16 + tx) * pitch;
        if (RM == 1) {
            line[ty] = s[0][c];
        } else {
#pragma unroll
            for (int x = 0; x < RM / 4; x++)
                *(float4 *)(line + x * 64 + ty * 4) =
                    make_float4(s[4 * x][c], s[4 * x + 1][c], s[4 * x + 2][c], s[4 * x + 3][c]);
        }
    }
}

template <int RM, int NV>
__device__ __forceinline__ void fs_no_spans(float4 *spans, uint32_t (*low)[2 * NV])
{
#pragma unroll
    for (int r = 0; r < RM; r++)
#pragma unroll
        for (int x = 0; x < 2 * NV; x++) {
            low[r][x] = 0;
            if (x < NV)
                spans[(r * NV + x) * FS_THREADS + threadIdx.x] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
}

template <int RM, int NV> __device__ __forceinline__ void fs_add(float (*o)[4 * NV], const float (*chain)[4 * NV])
{
#pragma unroll
    for (int r = 0; r < RM; r++)
#pragma unroll
        for (int c = 0; c < 4 * NV; c++)
            o[r][c] = __fadd_rn(o[r][c], chain[r][c]);
}

/* A span ends: the thread's o joins what the spans before it left, in `spans` and (what rounding
 * took) `low`. `last`: the sum stays in o; else o is 0 afterwards. `zero` is 0, which the compiler
 * does not know: so `low` stays in local memory. In registers it drives others out of the loops (4k
 * keys: 5008 us instead of 4336), and declared volatile it costs as much. */
template <int RM, int NV, bool last>
__device__ __forceinline__ void fs_fold(fs_shared<16 * RM> *sh, float4 *spans, uint32_t (*low)[2 * NV],
                                        float (*o)[4 * NV], int ty, int tx, int zero)
{
#pragma unroll
    for (int r = 0; r < RM; r++) {
        const int row = tile_row_of<RM>(ty, r);
        const float keep = exp_below(sh->m_span[row], sh->m[row]);
#pragma unroll
        for (int x = 0; x < NV; x++) {
            float4 *const at = spans + (r * NV + x) * FS_THREADS + threadIdx.x;
            const float4 four = *at;
            float sum[4] = { four.x, four.y, four.z, four.w };
#pragma unroll
            for (int c = 0; c < 4; c += 2) {
                const uint32_t pair = low[r + zero][2 * x + c / 2];
                float rest[2] = { __uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u) };
#pragma unroll
                for (int y = 0; y < 2; y++) {
                    sum_scaled(&sum[c + y], &rest[y], keep, o[r][4 * x + c + y]);
                    o[r][4 * x + c + y] = last ? sum[c + y] : 0.0f;
                }
                if (!last)
                    low[r + zero][2 * x + c / 2] = pack_low(rest[0], rest[1]);
            }
            if (!last)
                *at = make_float4(sum[0], sum[1], sum[2], sum[3]);
        }
    }
    __syncwarp();
    if (tx < RM)
        sh->m_span[tile_row_of<RM>(ty, tx)] = sh->m[tile_row_of<RM>(ty, tx)];
    __syncwarp();
}

/* o = P V over the 16 keys first .. first + 15 of the tile. `bad`: leave out hidden pairs. */
template <int RM, int NV>
__device__ __forceinline__ void fs_multiply_v(const float *p_shared, int first, const float *v, int v_pitch,
                                              bool bad, int ty, int tx, float (*o)[4 * NV])
{
    constexpr int pitch = fs_tile<RM, NV>::pitch_m;
    const float *const lines = p_shared + ((first >> 6) * 64 + ((first >> 2) & 15)) * pitch;
    if (!bad) {
#pragma unroll
        for (int x = 0; x < FS_BK; x++) {
            float a[RM], b[4 * NV];
            tile_read_rows<RM>(lines + fs_slot_of(x) * pitch, ty, a);
            tile_read_columns<NV>(v + x * v_pitch, tx, b);
#pragma unroll
            for (int r = 0; r < RM; r++)
#pragma unroll
                for (int c = 0; c < 4 * NV; c++)
                    o[r][c] = x == 0 ? __fmul_rn(a[r], b[c]) : __fmaf_rn(a[r], b[c], o[r][c]);
        }
        return;
    }
#pragma unroll
    for (int r = 0; r < RM; r++)
#pragma unroll
        for (int c = 0; c < 4 * NV; c++)
            o[r][c] = 0.0f;
#pragma unroll 1
    for (int x = 0; x < FS_BK; x++) {
        float a[RM], b[4 * NV];
        tile_read_rows<RM>(lines + fs_slot_of(x) * pitch, ty, a);
        tile_read_columns<NV>(v + x * v_pitch, tx, b);
#pragma unroll
        for (int r = 0; r < RM; r++)
#pragma unroll
            for (int c = 0; c < 4 * NV; c++)
                o[r][c] = is_hidden_p(a[r]) ? o[r][c] : __fmaf_rn(a[r], b[c], o[r][c]);
    }
}

/* Writes O and LSE of the thread's rows, or the split's part of them. */
template <int RM, int NV>
__device__ void fs_finish(const struct flash_simt_args *a, const struct problem *p, const struct fs_work &w,
                          const fs_shared<16 * RM> *sh, float (*o)[4 * NV], int ty, int tx)
{
    constexpr int bm = 16 * RM, width = 64 * NV;
    const struct seq *const s = &sh->seq;
#pragma unroll
    for (int r = 0; r < RM; r++) {
        const int row = tile_row_of<RM>(ty, r);
        const float max = sh->m[row], sum = __fadd_rn(sh->l[row], sh->l_low[row]);
        const int64_t at = w.tile * bm + row, i = at / p->group, h = w.kv_head * p->group + at % p->group;
        if (i >= s->rows)
            continue;
        const bool dead = i >= s->len_q;
        if (a->parts_o) {
            const int64_t part = w.split * a->part_rows + fs_part_row(p, s, h, i);
            if (w.slice == 0 && tx == 0) {
                a->parts_ml[2 * part] = dead ? minus_infinity() : max;
                a->parts_ml[2 * part + 1] = dead ? 0.0f : sum;
            }
#pragma unroll
            for (int c = 0; c < 4 * NV; c++) {
                const int64_t d = w.slice * width + (c >> 2) * 64 + tx * 4 + (c & 3);
                if (d < p->dv)
                    a->parts_o[part * p->dv + d] = dead ? 0.0f : o[r][c];
            }
            continue;
        }
        float factor, lse;
        flash_close(p, h, dead, max, sum, &factor, &lse);
        char *const out = view_at(&p->o, s->q_batch, h, s->q_row + i, 0);
#pragma unroll
        for (int c = 0; c < 4 * NV; c++) {
            const int64_t d = w.slice * width + (c >> 2) * 64 + tx * 4 + (c & 3);
            if (d < p->dv)
                store_any(out + d * p->o.stride[3] * p->o.itemsize, p->o.dtype, flash_result(dead, o[r][c], factor));
        }
        if (p->lse.dtype && w.slice == 0 && tx == 0)
            *(float *)view_at(&p->lse, s->q_batch, h, s->q_row + i, 0) = lse;
    }
}

/* ---------------------------------------------------------------- an item */

/* What all items of a block have in common, and the thread's place. */
template <int RM, int NV> struct fs_block {
    const struct flash_simt_args *a;
    const struct problem *p;
    fs_shared<16 * RM> *sh;
    float *ring, *p_shared, *q_shared;
    float4 *spans;
    int tx, ty, chunks;         /* chunks of D */
    bool resident;
    struct tile_lane k_lane, v_lane;
};

template <int RM, int NV>
__device__ __forceinline__ fs_block<RM, NV> fs_block_of(const struct flash_simt_args *a, const struct problem *p,
                                                        fs_shared<16 * RM> *sh, float *memory)
{
    typedef fs_tile<RM, NV> tile;
    fs_block<RM, NV> b;
    b.a = a;
    b.p = p;
    b.sh = sh;
    b.ring = memory;
    b.p_shared = b.ring + 2 * tile::ring_floats;
    float *const spans_shared = b.p_shared + tile::p_floats;
    b.q_shared = spans_shared + (a->spans_shared ? tile::span_floats : 0);
    b.spans = (float4 *)(a->spans ? a->spans + (int64_t)blockIdx.x * tile::span_floats : spans_shared);
    b.tx = threadIdx.x & 15;
    b.ty = threadIdx.x >> 4;
    b.chunks = p->d > FS_BK ? (int)((p->d + FS_BK - 1) / FS_BK) : 1;
    b.resident = a->q_resident;
    b.k_lane = tile_lane_of<FS_BN>(a->k_along_d);
    b.v_lane = tile_lane_of<tile::width>(!a->v_along_d);
    return b;
}

/* Where the pipeline of chunks stands: half of the ring, half of k_at and v_at at work; the chunk on its way. */
template <int RM, int NV> struct fs_pipe {
    int buffer, keys;
    float staged[fs_tile<RM, NV>::loads];
};

/* Q, and the first chunk of K of the tile at j0. */
template <class T, int RM, int NV>
__device__ __forceinline__ void fs_begin(const fs_block<RM, NV> &b, const struct fs_work &w, int64_t j0,
                                         fs_pipe<RM, NV> *x)
{
    typedef fs_tile<RM, NV> tile;
    x->buffer = x->keys = 0;
    fs_place_keys(b.p, &b.sh->seq, w.kv_head, j0, b.sh->k_at[0], b.sh->v_at[0]);
    if (b.resident)
        fs_load_q<tile::bm, tile::pitch_m>(b.p, w, b.sh, 0, b.chunks * FS_BK, b.q_shared);
    __syncthreads();
    fs_fetch_k<T>(b.p, w, &b.sh->seq, b.k_lane, b.sh->k_at[0], j0, 0, x->staged);
    tile_store<FS_BN>(b.k_lane, b.ring, tile::ring_pitch, x->staged);
    if (!b.resident)
        fs_load_q<tile::bm, tile::pitch_m>(b.p, w, b.sh, 0, FS_BK, b.q_shared);
    __syncthreads();
}

/* s = Q K^T of the tile at j0; at the end the first chunk of V is on its way. */
template <class T, int RM, int NV>
__device__ __forceinline__ void fs_scores(const fs_block<RM, NV> &b, const struct fs_work &w, int64_t j0,
                                          fs_pipe<RM, NV> *x, float (*s)[8])
{
    typedef fs_tile<RM, NV> tile;
#pragma unroll
    for (int r = 0; r < RM; r++)
#pragma unroll
        for (int c = 0; c < 8; c++)
            s[r][c] = 0.0f;
#pragma unroll 1
    for (int c = 0; c < b.chunks; c++) {
        if (c + 1 < b.chunks)
            fs_fetch_k<T>(b.p, w, &b.sh->seq, b.k_lane, b.sh->k_at[x->keys], j0, (c + 1) * FS_BK, x->staged);
        else
            fs_fetch_v<T, NV>(b.p, w, &b.sh->seq, b.v_lane, b.sh->v_at[x->keys], j0, 0, x->staged);
        tile_multiply<RM, 2>(b.q_shared + (b.resident ? c * FS_BK : (c & 1) * FS_BK) * tile::pitch_m, tile::pitch_m,
                             b.ring + x->buffer * tile::ring_floats, tile::ring_pitch, b.ty, b.tx, s);
        if (c + 1 == b.chunks)
            break;
        x->buffer ^= 1;
        tile_store<FS_BN>(b.k_lane, b.ring + x->buffer * tile::ring_floats, tile::ring_pitch, x->staged);
        if (!b.resident)
            fs_load_q<tile::bm, tile::pitch_m>(b.p, w, b.sh, (c + 1) * FS_BK, FS_BK,
                                               b.q_shared + ((c + 1) & 1) * FS_BK * tile::pitch_m);
        __syncthreads();
    }
}

/* o += P V of the tile at j0, whose first chunk of V lies in the ring; bad: with values that are not finite. `next`:
 * there is a next tile; at the end its first chunk of K lies in the ring. */
template <class T, int RM, int NV>
__device__ __forceinline__ void fs_values(const fs_block<RM, NV> &b, const struct fs_work &w, int64_t j0, bool next,
                                          bool bad, fs_pipe<RM, NV> *x, float (*o)[4 * NV])
{
    typedef fs_tile<RM, NV> tile;
    float chain[RM][4 * NV];
    /* chunks of keys that some row of the tile may see; the rest of P is -0 */
    const int v_chunks = (int)((clamp64(b.sh->max_end - j0, 1, FS_BN) + FS_BK - 1) / FS_BK);
#pragma unroll 1
    for (int c = 0; c < v_chunks; c++) {
        const bool more = c + 1 < v_chunks;
        if (more)
            fs_fetch_v<T, NV>(b.p, w, &b.sh->seq, b.v_lane, b.sh->v_at[x->keys], j0, (c + 1) * FS_BK, x->staged);
        else if (next)
            fs_fetch_k<T>(b.p, w, &b.sh->seq, b.k_lane, b.sh->k_at[x->keys ^ 1], j0 + FS_BN, 0, x->staged);
        fs_multiply_v<RM, NV>(b.p_shared, c * FS_BK, b.ring + x->buffer * tile::ring_floats, tile::ring_pitch, bad,
                              b.ty, b.tx, chain);
        fs_add<RM, NV>(o, chain);
        x->buffer ^= 1;
        float *const to = b.ring + x->buffer * tile::ring_floats;
        if (more) {
            bad = tile_store<tile::width>(b.v_lane, to, tile::ring_pitch, x->staged);
        } else if (next) {
            tile_store<FS_BN>(b.k_lane, to, tile::ring_pitch, x->staged);
            if (!b.resident)
                fs_load_q<tile::bm, tile::pitch_m>(b.p, w, b.sh, 0, FS_BK, b.q_shared);
        }
        bad = __syncthreads_or(bad && more);
    }
    x->keys ^= 1;
}

/* The key tiles first .. last - 1, one at least. */
template <class T, int RM, int NV>
__device__ __forceinline__ void fs_walk(const fs_block<RM, NV> &b, const struct fs_work &w, int64_t first,
                                        int64_t last, float (*o)[4 * NV])
{
    typedef fs_tile<RM, NV> tile;
    const bool folds = (last - 1) / FS_SPAN > first / FS_SPAN;
    uint32_t low[RM][2 * NV];                        /* in local memory: see fs_fold */
    fs_pipe<RM, NV> x;
    if (folds)
        fs_no_spans<RM, NV>(b.spans, low);
    fs_begin<T>(b, w, first * FS_BN, &x);
    for (int64_t t = first; t < last; t++) {
        const int64_t j0 = t * FS_BN;
        float s[RM][8];
        fs_scores<T>(b, w, j0, &x, s);
        fs_finish_scores<RM>(b.p, b.sh, j0, b.ty, b.tx, s);
        fs_softmax<RM, NV>(s, b.sh, o, b.p_shared, b.ty, b.tx);
        x.buffer ^= 1;
        bool bad = tile_store<tile::width>(b.v_lane, b.ring + x.buffer * tile::ring_floats, tile::ring_pitch, x.staged);
        if (t + 1 < last)
            fs_place_keys(b.p, &b.sh->seq, w.kv_head, j0 + FS_BN, b.sh->k_at[x.keys ^ 1], b.sh->v_at[x.keys ^ 1]);
        bad = __syncthreads_or(bad);
        fs_values<T>(b, w, j0, t + 1 < last, bad, &x, o);
        if ((t + 1) % FS_SPAN == 0 && t + 1 < last)
            fs_fold<RM, NV, false>(b.sh, b.spans, low, o, b.ty, b.tx, b.a->zero);
    }
    __syncwarp();                                    /* m and l come from another lane */
    if (folds)
        fs_fold<RM, NV, true>(b.sh, b.spans, low, o, b.ty, b.tx, b.a->zero);
}

/* T: stored type of k and v. */
template <class T, int RM, int NV>
__global__ void __launch_bounds__(FS_THREADS, RM == 1 ? 2 : 1)
flash_simt_kernel(const __grid_constant__ struct flash_simt_args args,
                  const __grid_constant__ struct problem_param packed)
{
    constexpr int bm = fs_tile<RM, NV>::bm;
    static_assert(sizeof(fs_shared<bm>) <= (RM == 8 ? FS_STATIC_128 : RM == 4 ? FS_STATIC_64 : FS_STATIC_16),
                  "the launcher reserves too little");
    extern __shared__ __align__(16) float memory[];
    __shared__ fs_shared<bm> sh;
    const struct problem *const p = problem_of(&packed);
    wait_for_predecessor();
    const struct flash_simt_args *const a = &args;
    const fs_block<RM, NV> b = fs_block_of<RM, NV>(a, p, &sh, memory);

    for (int64_t index = blockIdx.x; index < a->work; index += gridDim.x) {
        const struct fs_work w = fs_work_of(a, index);
        __syncthreads();                             /* the last item's readers are done */
        if (threadIdx.x == 0)
            sh.seq = seq_get(p, w.n);
        __syncthreads();
        if (w.tile * bm >= sh.seq.rows * p->group)
            continue;
        fs_setup_rows<bm>(p, w, &sh);
        if (threadIdx.x < bm) {
            sh.m[threadIdx.x] = sh.m_span[threadIdx.x] = minus_infinity();
            sh.l[threadIdx.x] = sh.l_low[threadIdx.x] = 0.0f;
        }
        __syncthreads();

        int64_t first, last;
        fs_split_of<bm>(a, &sh, w.split, FS_BN, &first, &last);
        float o[RM][4 * NV];
#pragma unroll
        for (int r = 0; r < RM; r++)
#pragma unroll
            for (int c = 0; c < 4 * NV; c++)
                o[r][c] = 0.0f;
        if (first < last)
            fs_walk<T>(b, w, first, last, o);
        fs_finish<RM, NV>(a, p, w, &sh, o, b.ty, b.tx);
    }
}

#endif
