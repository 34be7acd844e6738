/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Attention of few query rows: decode. The time is that of reading K and V once.
 *
 * What one block does: one split of one sequence and KV head. All rows of the sequence (query rows times heads of the
 * group, r = i * group + g, at most 64) against the split's keys, in units of 16 keys:
 *
 *     S [16][16] = Q K^T,  P = e^(scale S - m),  O [16][Dv] = O e^(m_old - m) + P V    mma.sync m16n8k16, fp32 sums
 *
 * Up to 8 rows of the common shapes are decode_direct.cuh's.
 *
 * Who does what: rows are cut in M = 1, 2 or 4 tiles of 16; M warps, one a tile, are a key group. Each group takes one
 * unit of each of the split's chunks (decode_range.h), with a ring of its own: they never wait for each other until the
 * end. A lone warp (M = 1: up to 16 rows, the common decode) waits for nobody at all. At the end the groups' m, l and O
 * are brought together in shared memory, in order, and go to O and LSE or, with splits, to the workspace; the last
 * split of a sequence and KV head to finish (arrive.cuh) adds the splits' parts in order, or for many rows a second
 * kernel does.
 *
 * Shared memory: ring  [groups][depth][16 rows of K, 16 rows of V]: whole lines of 128 bytes, their 16-byte pieces
 *                      exchanged (decode_turn); later O of the groups in fp32
 *                q     [16 M][D] in 16 bits, zeros beyond the rows and beyond D
 *                rows  [16 M], what each row sees, for units at an edge
 * A unit of D 128 is 8 KB.
 *
 * 8-bit k, v: copied as bytes, widened on the way to the registers (decode_bytes.cuh). One 32-bit word of a K row is
 * four elements 4c .. 4c + 3 of a step of 16, where a B fragment wants 2c, 2c + 1, 2c + 8, 2c + 9: Q is stored in that
 * order instead. Of V, ldmatrix transposes pairs of bytes, so one block of 8 columns of O holds the even, the next the
 * odd ones of 16.
 *
 * Masks cost a comparison per score in units at an edge only. A unit with a hidden pair and a non-finite V: the
 * product takes 0 for such elements, and a second one, of marks, finds the rows that see them.
 *
 * Read in this order: decode_splits.c (how many splits a call has), decode_range.h (which keys a split takes),
 * decode_copy.cuh (who a thread is, copies), decode_unit.cuh (one unit: products, scores, softmax), decode_bytes.cuh
 * (8-bit k, v), decode_join.cuh (splits), the kernel below, and decode_direct.cuh.
 */
#ifndef QATTN_CUDA_DECODE_SM80_CUH
#define QATTN_CUDA_DECODE_SM80_CUH

#include "cuda/common/arrive.cuh"
#include "cuda/sm80/decode_join.cuh"
#include "cuda/sm80/decode_unit.cuh"

/* ---------------------------------------------------------------- the end of an item */

/* The warps' m, l and O into shared memory: O at merge [warp][16][pitch]. */
template <class T, int BYTES, int NV>
__device__ __forceinline__ void decode_hand_in(const struct problem *p, struct decode_shared *sh,
                                               const struct decode_lane &t, const decode_state<NV> *w, float *merge,
                                               int pitch, int rows)
{
    const int c = t.lane & 3, g = t.lane >> 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float sum = lanes_sum<4>(w->l[half]) * decode_lowered(T()), unit = w->unit[half] * decode_lowered(T());
        if (c == 0) {
            sh->sums[t.warp].m[g + 8 * half] = w->m[half];
            sh->sums[t.warp].l[g + 8 * half] = sum;
        }
        if (16 * t.tile + g + 8 * half >= rows)
            continue;
        float *const line = merge + (t.warp * 16 + g + 8 * half) * pitch;
#pragma unroll
        for (int b = 0; b < NV; b++) {
            const float low = w->o[b][2 * half], high = w->o[b][2 * half + 1];
            if ((b & 7) == 0 && p->dv <= 8 * b)
                break;
            if (BYTES == 1) {
                line[decode_column<BYTES>(b, 0, c)] = low * unit;
                line[decode_column<BYTES>(b, 1, c)] = high * unit;
            } else {
                *(float2 *)(line + decode_column<BYTES>(b, 0, c)) = make_float2(low * unit, high * unit);
            }
        }
    }
}

/* The descales of v, which may vary along D. */
__device__ __forceinline__ void decode_scale_o(const struct problem *p, const struct seq *s, int kv_head, int d,
                                               float4 *o)
{
    float *const columns[4] = { &o->x, &o->y, &o->z, &o->w };
#pragma unroll
    for (int e = 0; e < 4; e++)
        if (d + e < p->dv)
            *columns[e] *= seq_kv_descale(p, s, &p->v_descale, kv_head / p->v_descale.head_div, 0, d + e);
}

/* Brings the key groups together, a warp a row, and writes O and LSE or, with part >= 0, rows of the split's part.
 * sums, merge: [warp], [warp][block][pitch]. Lane k has the weight of group k, of `most` groups at most. */
template <int BYTES, int most>
__device__ __forceinline__ void decode_hand_out(const struct decode_sm80_args *a, const struct problem *p,
                                                const struct seq *s, const struct decode_lane &t, int kv_head,
                                                int64_t part, const struct decode_sums *sums, const float *merge,
                                                int block, int pitch, int rows)
{
#pragma unroll 1
    for (int r = t.warp; r < rows; r += t.warps) {
        const int tile = r >> 4, x = r & 15, k = t.lane & (most - 1), warp = k * t.tiles + tile;
        const float mine = k < t.groups ? sums[warp].m[x] : minus_infinity(), max = lanes_max<most>(mine);
        const float weight = exp_below(mine, max);
        const float sum = lanes_sum<most>(k < t.groups ? __fmul_rn(sums[warp].l[x], weight) : 0.0f);
        float weights[most], factor = 1.0f;
#pragma unroll
        for (int g = 0; g < most; g++)
            weights[g] = __shfl_sync(0xFFFFFFFFu, weight, g);
        char *out = NULL;
        if (part < 0) {
            const int i = (int)divide((unsigned)r, a->by_group);
            const int64_t h = kv_head * p->group + r - i * (int)p->group;
            struct flash_end end;
            factor = flash_factor(p, h, false, max, sum, &end);
            out = decode_row_of(&a->o, s->q_batch, h, s->q_row + i);
            if (t.lane == 0 && p->lse.dtype)
                *(float *)view_at(&p->lse, s->q_batch, h, s->q_row + i, 0) = flash_lse(p, false, end);
        } else if (t.lane == 0) {
            *(float2 *)(a->parts_ml + 2 * (part + r)) = make_float2(max, sum);
        }
#pragma unroll 1
        for (int d = 4 * t.lane; d < p->dv; d += 128) {
            float4 o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
            for (int g = 0; g < most; g++)
                if (g < t.groups) {
                    const float4 y = *(const float4 *)(merge + ((g * t.tiles + tile) * block + x) * pitch + d);
                    o.x = __fmaf_rn(y.x, weights[g], o.x);
                    o.y = __fmaf_rn(y.y, weights[g], o.y);
                    o.z = __fmaf_rn(y.z, weights[g], o.z);
                    o.w = __fmaf_rn(y.w, weights[g], o.w);
                }
            if (BYTES == 1 && p->v_descale.kind == DESCALE_SEQUENCE && sum != 0.0f)
                decode_scale_o(p, s, kv_head, d, &o);
            if (part >= 0)
                *(float4 *)(a->parts_o + (part + r) * a->part_pitch + d) = o;
            else
                decode_store(a, p, out, d, o, factor);
        }
    }
}

/* Rows past seqused_q: O = 0, LSE = -inf. */
static __device__ __noinline__ void decode_write_dead(const struct problem *p, const struct seq *s, int kv_head)
{
    const int64_t dead = (s->rows - s->len_q) * p->group;
    for (int64_t x = threadIdx.x >> 5; x < dead; x += blockDim.x >> 5) {
        const int64_t i = s->len_q + x / p->group, h = kv_head * p->group + x % p->group;
        for (int64_t d = threadIdx.x & 31; d < p->dv; d += 32)
            store_any(view_at(&p->o, s->q_batch, h, s->q_row + i, d), p->o.dtype, 0.0f);
        if (p->lse.dtype && (threadIdx.x & 31) == 0)
            *(float *)view_at(&p->lse, s->q_batch, h, s->q_row + i, 0) = minus_infinity();
    }
}

/* What rows see, for masks and terms; rows of the last tile beyond the sequence's see what its last row sees. */
__device__ __forceinline__ void decode_setup(const struct decode_sm80_args *a, const struct problem *p,
                                             const struct seq *s, int kv_head, int rows, struct decode_row *row)
{
    const int padded = 16 << decode_tiles_log2(rows);
    for (int r = threadIdx.x; r < padded; r += blockDim.x) {
        const int at = r < rows ? r : rows - 1, i = at / (int)p->group;
        int64_t begin, end;
        seq_visible(p, s, i, &begin, &end);
        row[r].begin = (int32_t)begin;
        row[r].end = (int32_t)end;
        if (a->terms)
            row[r].score = score_row_of(p, s, kv_head * p->group + at - i * p->group, i);
    }
}

/* Units of key group g of a split: their number. The first is number (split << chunk_log2) + g of those that the
 * sequence sees, the others follow num_splits chunks apart. */
__device__ __forceinline__ int decode_count(const struct decode_sm80_args *a, const struct decode_range &range,
                                            int split, int g)
{
    const int from = (split << range.chunk_log2) + g;
    if (g >> range.chunk_log2 || from >= range.units)
        return 0;
    return (int)divide((unsigned)(range.units - 1 - from) >> range.chunk_log2, a->by_splits) + 1;
}

/* Does the split have units that need decode_setup's rows? */
__device__ __forceinline__ bool decode_needs_rows(const struct decode_sm80_args *a, const struct decode_range &range,
                                                  int split)
{
    const int from = split << range.chunk_log2, chunks = decode_count(a, range, split, 0);
    const int end = from + (((chunks - 1) * a->cut.num_splits + 1) << range.chunk_log2);
    return a->terms || (chunks > 0 && ((range.first + from) * DECODE_UNIT < range.max_begin ||
                                       (range.first + min(end, range.units)) * DECODE_UNIT > range.min_end));
}

/* What a block does: one split of one sequence and KV head. */
struct decode_item {
    int index, split;           /* of the split among all, and among those of the sequence and KV head */
    int n, kv_head;
    unsigned long long *word;   /* where the splits arrive; NULL: a second kernel adds parts */
};

__device__ __forceinline__ struct decode_item decode_item_of(const struct decode_sm80_args *a)
{
    struct decode_item x;
    x.index = (int)blockIdx.x;
    const unsigned item = divide(blockIdx.x, a->by_splits), n = divide(item, a->by_heads);
    x.split = (int)(blockIdx.x - item * a->by_splits.by);
    x.n = (int)n;
    x.kv_head = (int)(item - n * a->by_heads.by);
    x.word = a->words ? a->words + item : NULL;
    return x;
}

/* The sequence, where all are alike. */
__device__ __forceinline__ struct seq decode_seq_of(const struct decode_sm80_args *a, int n)
{
    struct seq s = a->seq;
    s.n = s.q_batch = s.k_batch = n;
    return s;
}

/* Are there rows past the queries, and this block's? */
__device__ __forceinline__ bool decode_has_dead(const struct decode_item &x, const struct seq &s,
                                                const struct decode_range &range)
{
    return x.split == 0 && s.len_q < s.rows && range.rows >= 0;
}

/* The first split closes a sequence without keys. */
__device__ __forceinline__ bool decode_is_live(const struct decode_item &x, const struct decode_range &range)
{
    return range.rows > 0 && (x.split == 0 || x.split < range.live);
}

/* By all threads: looks the item's sequence up, writes its dead rows. False: nothing else is to be done. */
__device__ __forceinline__ bool decode_enter(const struct decode_sm80_args *a, const struct problem *p,
                                             const struct decode_item &x, struct decode_shared *sh)
{
    const bool alike = a->alike == DECODE_ALIKE;
    if (threadIdx.x == 0) {
        sh->seq = alike ? decode_seq_of(a, x.n) : seq_get(p, x.n);
        sh->range = alike ? a->range : decode_range_of(p, &sh->seq, a->longest, &a->cut);
    }
    __syncthreads();
    if (decode_has_dead(x, sh->seq, sh->range))
        decode_write_dead(p, &sh->seq, x.kv_head);
    return decode_is_live(x, sh->range);
}

/* Does this thread arrive for a split of several? */
__device__ __forceinline__ bool decode_arrives(const struct decode_item &x, int live)
{
    return threadIdx.x == 0 && x.word && live > 1;
}

/* By all threads, when O and the sums of the warps are in `merge`: to O and LSE, or to the split's part; the last
 * of `live` splits to get here adds all parts. */
template <int BYTES, int most>
__device__ __forceinline__ void decode_leave(const struct decode_sm80_args *a, const struct problem *p,
                                             const struct seq *s, const struct decode_item &x, int live,
                                             const struct decode_lane &t, const struct decode_sums *sums,
                                             const float *merge, int block, int pitch, int rows)
{
    const bool parts = live > 1;
    decode_hand_out<BYTES, most>(a, p, s, t, x.kv_head, parts ? (int64_t)x.index * a->part_rows : -1, sums, merge,
                                 block, pitch, rows);
    if (x.word && parts && arrive_last(x.word, live))
#pragma unroll 1
        for (int r = t.warp; r < rows; r += t.warps)
            decode_join_row(a, p, s, x.kv_head, r, (int64_t)(x.index - x.split) * a->part_rows + r, live);
}

/* What the warps of a block share of an item. */
struct decode_work {
    const struct decode_sm80_args *a;
    const struct problem *p;
    struct decode_shared *sh;
    struct decode_lane t;
    struct decode_source k, v;
    int first, step, mine;      /* the key group's units: the first, the distance to the next, how many */
    int most;                   /* units of the group that has most */
    int ring, slot_bytes, depth;
    int kv_head;
    char *memory;
};

template <int BYTES> __device__ __forceinline__ struct decode_place decode_find(const struct decode_work &c, int x)
{
    return decode_locate<BYTES>(c.a, c.p, &c.sh->seq, c.k, c.v, c.first + x * c.step, c.t.lane);
}

/* Copies of the key group's unit x into the slot. */
template <int BYTES>
__device__ __forceinline__ void decode_start(const struct decode_work &c, int x, struct decode_place at, int slot)
{
    const int unit = c.first + x * c.step;
    decode_issue<BYTES>(c.a, c.p, c.t, c.k, c.v, at, (int)c.sh->seq.len_k - unit * DECODE_UNIT, c.memory + slot);
}

/* All units of the key group; O and the sums of the warps into `merge`. */
template <class T, int BYTES, int NV>
__device__ __forceinline__ void decode_walk(const struct decode_work &c, const char *q, float *merge, int pitch,
                                            int rows)
{
    const struct decode_sm80_args *const a = c.a;
    const struct problem *const p = c.p;
    float k_scale = 1.0f;
    if (BYTES == 1 && p->k_descale.kind == DESCALE_SEQUENCE)
        k_scale = seq_kv_descale(p, &c.sh->seq, &p->k_descale, c.kv_head / p->k_descale.head_div, 0, 0);
    decode_state<NV> w;
#pragma unroll
    for (int b = 0; b < NV; b++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            w.o[b][e] = 0.0f;
    w.m[0] = w.m[1] = minus_infinity();
    w.l[0] = w.l[1] = 0.0f;
    w.unit[0] = w.unit[1] = BYTES == 1 && has_key_descale(&p->v_descale) ? 1.17549435e-38f : 1.0f;
    struct decode_view view = decode_view_of<BYTES>(a, c.t, shared_address(q), shared_address(c.memory));
    view.full_begin = c.sh->range.max_begin;
    view.full_end = c.sh->range.min_end - DECODE_UNIT;

    int slot = c.ring;                               /* offset of the slot at work */
#pragma unroll 1
    for (int x = 0; x < c.mine; x++) {
        const int j0 = (c.first + x * c.step) * DECODE_UNIT;
        struct decode_place next = { NULL, NULL };
        if (x + c.depth < c.mine)                    /* a page table's entries come while this unit is worked on */
            next = decode_find<BYTES>(c, x + c.depth);
        decode_wait(c.depth - 1);
        decode_group_sync(c.t);
        if (BYTES == 1 && p->k.dtype == QATTN_DTYPE_I8)
            decode_unit<T, BYTES, BYTES == 1, NV>(a, p, c.sh, c.t, view, c.kv_head, j0, k_scale, slot, c.memory, &w);
        else
            decode_unit<T, BYTES, false, NV>(a, p, c.sh, c.t, view, c.kv_head, j0, k_scale, slot, c.memory, &w);
        decode_group_sync(c.t);
        if (x + c.depth < c.mine)
            decode_start<BYTES>(c, x + c.depth, next, slot);
        cp_async_commit();
        slot = slot + c.slot_bytes < c.ring + c.depth * c.slot_bytes ? slot + c.slot_bytes : c.ring;
    }
    cp_async_wait<0>();
    for (int x = c.t.tiles > 1 ? c.mine : c.most; x < c.most; x++) {    /* all warps pass as many barriers: racecheck
                                                                           counts them */
        decode_group_sync(c.t);
        decode_group_sync(c.t);
    }
    __syncthreads();                                 /* the ring is free */
    decode_hand_in<T, BYTES, NV>(p, c.sh, c.t, &w, merge, pitch, rows);
}

/* T: type of q; BYTES of an element of k and v; NV: blocks of 8 columns of O. */
template <class T, int BYTES, int NV>
__global__ void __launch_bounds__(32 * DECODE_WARPS, 2)
decode_kernel(const __grid_constant__ struct decode_sm80_args args, const __grid_constant__ struct problem_param packed)
{
    extern __shared__ __align__(128) char memory[];
    __shared__ struct decode_shared sh;
    static_assert(sizeof sh + SYSTEM_SHARED_BYTES <= DECODE_STATIC_BYTES, "the launcher counts on it");
    const struct problem *const p = problem_of(&packed);
    wait_for_predecessor();
    const struct decode_sm80_args *const a = &args;
    char *const q = memory + a->q_offset;
    const struct decode_item x = decode_item_of(a);
    if (a->parts_o && !a->words)
        launch_dependents();
    if (threadIdx.x == 0)
        sh.row = (struct decode_row *)(memory + a->row_offset);
    if (!decode_enter(a, p, x, &sh))
        return;

    const struct seq *const s = &sh.seq;
    const int rows = sh.range.rows, live = sh.range.live, kv_head = x.kv_head;
    struct decode_work c = { a, p, &sh, decode_lane_of(rows) };
    const struct decode_lane &t = c.t;
    c.slot_bytes = DECODE_UNIT * (a->k_pitch + a->v_pitch);
    c.depth = a->stages * t.tiles;
    c.ring = t.group * (c.depth * c.slot_bytes);
    c.first = sh.range.first + (x.split << sh.range.chunk_log2) + t.group;
    c.step = a->cut.num_splits << sh.range.chunk_log2;
    c.mine = decode_count(a, sh.range, x.split, t.group);
    c.most = decode_count(a, sh.range, x.split, 0);
    c.kv_head = kv_head;
    c.memory = memory;
    c.k = decode_source_of<BYTES>(a, p, &p->k, s, kv_head, (int)p->d, a->k_vector, a->k_lanes, a->k_pitch, t.rank,
                                  t.threads);
    c.v = decode_source_of<BYTES>(a, p, &p->v, s, kv_head, (int)p->dv, a->v_vector, a->v_lanes, a->v_pitch, t.rank,
                                  t.threads);
    const unsigned long long arrived = decode_arrives(x, live) ? __ldcg(x.word) : 0;
#pragma unroll 1
    for (int u = 0; u < c.depth; u++) {
        if (u < c.mine)
            decode_start<BYTES>(c, u, decode_find<BYTES>(c, u), c.ring + u * c.slot_bytes);
        if (u == 0)
            decode_load_q<T, BYTES>(a, p, s, kv_head, rows, t.tiles, q);
        cp_async_commit();
    }
    if (decode_needs_rows(a, sh.range, x.split))
        decode_setup(a, p, s, kv_head, rows, sh.row);
    decode_wait(c.depth - 1);                        /* Q */
    __syncthreads();

    const int pitch = (((int)p->dv + DECODE_STEP - 1) & -DECODE_STEP) + 8;
    float *const merge = (float *)memory;
    if (decode_arrives(x, live))
        arrive_prepare(x.word, arrived, a->tag);
    decode_walk<T, BYTES, NV>(c, q, merge, pitch, rows);
    __syncthreads();
    decode_leave<BYTES, DECODE_WARPS>(a, p, s, x, live, t, sh.sums, merge, 16, pitch, rows);
}

#endif
