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
 * Who does what: rows are cut in M = 1, 2 or 4 tiles of 16; M warps, one a tile, are a key group. The groups share the
 * units of the split in turn, each with a ring of its own: they never wait for each other until the end. A lone warp
 * (M = 1: up to 16 rows, the common decode) waits for nobody at all. At the end the groups' m, l and O are brought
 * together in shared memory, in order, and go to O and LSE or, with splits, to the workspace; the last split of a
 * sequence and KV head to finish (arrive.cuh) adds the splits' parts in order, or for many rows a second kernel does.
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
 * Read in this order: decode_range.cuh (which keys a split takes), decode_copy.cuh (who a thread is, copies),
 * decode_unit.cuh (one unit: products, scores, softmax), decode_bytes.cuh (8-bit k, v), decode_join.cuh (splits), the
 * kernel below, and decode_direct.cuh.
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
            sh->m[t.warp][g + 8 * half] = w->m[half];
            sh->l[t.warp][g + 8 * half] = sum;
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

/* Brings the key groups together, a warp a row, and writes O and LSE or, with part >= 0, rows of the split's part.
 * merge: [warp][block][pitch]. */
template <int BYTES>
__device__ __forceinline__ void decode_hand_out(const struct decode_sm80_args *a, const struct problem *p,
                                                const struct decode_shared *sh, const struct decode_lane &t,
                                                int kv_head, int64_t part, const float *merge, int block, int pitch,
                                                int rows)
{
    const struct seq *const s = &sh->seq;
    for (int r = t.warp; r < rows; r += t.warps) {
        const int tile = r >> 4, x = r & 15;
        const int i = r / (int)p->group;
        const int64_t h = kv_head * p->group + r - i * (int)p->group;
        float max = minus_infinity(), sum = 0.0f, weight[DECODE_MAX_WARPS];
        for (int k = 0; k < t.groups; k++)
            max = fmaxf(max, sh->m[k * t.tiles + tile][x]);
#pragma unroll
        for (int k = 0; k < DECODE_MAX_WARPS; k++)
            if (k < t.groups) {
                weight[k] = exp_below(sh->m[k * t.tiles + tile][x], max);
                sum += sh->l[k * t.tiles + tile][x] * weight[k];
            }
        float factor = 1.0f, lse;
        if (part < 0)
            flash_close(p, h, false, max, sum, &factor, &lse);
        char *const out = view_at(&p->o, s->q_batch, h, s->q_row + i, 0);
        for (int d = t.lane; d < p->dv; d += 32) {
            float o = 0.0f;
#pragma unroll
            for (int k = 0; k < DECODE_MAX_WARPS; k++)
                if (k < t.groups)
                    o += merge[((k * t.tiles + tile) * block + x) * pitch + d] * weight[k];
            if (BYTES == 1 && p->v_descale.kind == DESCALE_SEQUENCE && sum != 0.0f)
                o *= seq_kv_descale(p, s, &p->v_descale, kv_head / p->v_descale.head_div, 0, d);
            if (part >= 0)
                a->parts_o[(part + r) * a->part_pitch + d] = o;
            else
                store_any(out + d * p->o.stride[3] * p->o.itemsize, p->o.dtype, flash_result(false, o, factor));
        }
        if (t.lane == 0 && part >= 0) {
            a->parts_ml[2 * (part + r)] = max;
            a->parts_ml[2 * (part + r) + 1] = sum;
        } else if (t.lane == 0 && p->lse.dtype) {
            *(float *)view_at(&p->lse, s->q_batch, h, s->q_row + i, 0) = lse;
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
__device__ __forceinline__ void decode_setup(const struct problem *p, struct decode_shared *sh, int kv_head, int rows)
{
    const int padded = rows <= 16 ? 16 : rows <= 32 ? 32 : 64;
    for (int r = threadIdx.x; r < padded; r += blockDim.x) {
        const int at = r < rows ? r : rows - 1, i = at / (int)p->group;
        struct decode_row *const row = &sh->row[r];
        int64_t begin, end;
        seq_visible(p, &sh->seq, i, &begin, &end);
        row->begin = (int32_t)begin;
        row->end = (int32_t)end;
        if (score_has_terms(p))
            row->score = score_row_of(p, &sh->seq, kv_head * p->group + at - i * p->group, i);
    }
}

/* By one thread: the sequence, its rows (-1: not this kernel's) and the keys they see. */
__device__ __forceinline__ void decode_open(const struct decode_sm80_args *a, const struct problem *p, int n,
                                            struct decode_shared *sh, struct decode_row *row)
{
    const struct seq s = seq_get(p, n);
    sh->seq = s;
    sh->row = row;
    sh->rows = s.len_q <= a->longest ? (int)s.len_q * (int)p->group : -1;
    if (sh->rows > 0) {
        int64_t begin, end, last_begin, last_end;
        seq_visible(p, &s, 0, &begin, &end);
        seq_visible(p, &s, s.len_q - 1, &last_begin, &last_end);
        sh->range = decode_range_of((int)begin, (int)last_end);
        sh->max_begin = (int)last_begin;
        sh->min_end = (int)end;
    }
}

/* What a block does: one split of one sequence and KV head. */
struct decode_item {
    int index, split;           /* of the split among all, and among those of the sequence and KV head */
    int n, kv_head;
    int live;                   /* splits that have keys */
    unsigned long long *word;   /* where the splits arrive, and what stood there; NULL: a second kernel adds parts */
    unsigned long long arrived;
};

/* By all threads: opens the block's item and writes its sequence's dead rows. False: nothing else is to be done. */
__device__ __forceinline__ bool decode_enter(const struct decode_sm80_args *a, const struct problem *p,
                                             struct decode_shared *sh, struct decode_row *row, struct decode_item *x)
{
    const int index = blockIdx.x, item = index / a->num_splits;
    x->index = index;
    x->split = index - item * a->num_splits;
    x->n = item / a->kv_heads;
    x->kv_head = item - x->n * a->kv_heads;
    x->word = a->words ? a->words + item : NULL;
    x->arrived = 0;
    if (threadIdx.x == 0) {
        if (x->word)
            x->arrived = *(volatile const unsigned long long *)x->word;
        decode_open(a, p, x->n, sh, row);
    }
    __syncthreads();
    if (x->split == 0 && sh->seq.len_q < sh->seq.rows && sh->rows >= 0)
        decode_write_dead(p, &sh->seq, x->kv_head);
    if (sh->rows <= 0)
        return false;
    x->live = decode_live_splits(a, &sh->range);
    return x->split == 0 || x->split < x->live;
}

/* By all threads, when O and the sums of the warps are in `merge`: to O and LSE, or to the split's part; the last
 * split to get here adds all parts. */
template <int BYTES>
__device__ __forceinline__ void decode_leave(const struct decode_sm80_args *a, const struct problem *p,
                                             const struct decode_shared *sh, const struct decode_item &x,
                                             const struct decode_lane &t, const float *merge, int block, int pitch,
                                             int rows)
{
    const bool parts = x.live > 1;
    decode_hand_out<BYTES>(a, p, sh, t, x.kv_head, parts ? (int64_t)x.index * a->part_rows : -1, merge, block, pitch,
                           rows);
    if (x.word && parts && arrive_last(x.word, x.live))
        for (int r = t.warp; r < rows; r += t.warps)
            decode_join_row(a, p, &sh->seq, x.kv_head, r, (int64_t)(x.index - x.split) * a->part_rows + r, x.live);
}

/* What the warps of a block share of an item. */
struct decode_work {
    const struct decode_sm80_args *a;
    const struct problem *p;
    struct decode_shared *sh;
    struct decode_lane t;
    struct decode_source k, v;
    int first, step, mine;      /* the key group's units: the first, the distance to the next, how many */
    int most;                   /* units of the group that has most: mine, or one more */
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
    view.full_begin = c.sh->max_begin;
    view.full_end = c.sh->min_end - DECODE_UNIT;

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
    if (c.mine < c.most && c.t.tiles > 1) {          /* all warps pass as many barriers: racecheck counts them */
        decode_group_sync(c.t);
        decode_group_sync(c.t);
    }
    __syncthreads();                                 /* the ring is free */
    decode_hand_in<T, BYTES, NV>(p, c.sh, c.t, &w, merge, pitch, rows);
}

/* T: type of q; BYTES of an element of k and v; NV: blocks of 8 columns of O. */
template <class T, int BYTES, int NV>
__global__ void __launch_bounds__(32 * DECODE_MAX_WARPS, 2)
decode_kernel(const __grid_constant__ struct decode_sm80_args args, const __grid_constant__ struct problem_param packed)
{
    extern __shared__ __align__(128) char memory[];
    __shared__ struct decode_shared sh;
    static_assert(sizeof sh + DECODE_BLOCK_BYTES <= DECODE_STATIC_BYTES, "the launcher counts on it");
    const struct problem *const p = problem_of(&packed);
    wait_for_predecessor();
    const struct decode_sm80_args *const a = &args;
    char *const q = memory + a->q_offset;
    struct decode_item x;
    if (a->parts_o && !a->words)
        launch_dependents();
    if (!decode_enter(a, p, &sh, (struct decode_row *)(memory + a->row_offset), &x))
        return;

    const struct seq *const s = &sh.seq;
    const int rows = sh.rows, kv_head = x.kv_head;
    struct decode_work c = { a, p, &sh, decode_lane_of(rows) };
    const struct decode_lane &t = c.t;
    c.slot_bytes = DECODE_UNIT * (a->k_pitch + a->v_pitch);
    c.depth = a->stages * t.tiles;
    c.ring = t.group * (c.depth * c.slot_bytes);
    const struct decode_range part = decode_share(&sh.range, x.split, x.live);
    c.first = part.first + t.group;
    c.step = t.groups;
    c.mine = part.units > t.group ? (part.units - t.group + t.groups - 1) >> t.groups_log2 : 0;
    c.most = (part.units + t.groups - 1) >> t.groups_log2;
    c.kv_head = kv_head;
    c.memory = memory;
    c.k = decode_source_of<BYTES>(a, p, &p->k, s, kv_head, (int)p->d, a->k_copies, a->k_lanes, a->k_pitch, t.rank,
                                  t.threads);
    c.v = decode_source_of<BYTES>(a, p, &p->v, s, kv_head, (int)p->dv, a->v_copies, a->v_lanes, a->v_pitch, t.rank,
                                  t.threads);
#pragma unroll 1
    for (int u = 0; u < c.depth; u++) {
        if (u < c.mine)
            decode_start<BYTES>(c, u, decode_find<BYTES>(c, u), c.ring + u * c.slot_bytes);
        if (u == 0)
            decode_load_q<T, BYTES>(a, p, s, kv_head, rows, t.tiles, q);
        cp_async_commit();
    }
    if (threadIdx.x == 0 && x.word && x.live > 1)
        arrive_prepare(x.word, x.arrived, a->tag);
    if (score_has_terms(p) || part.first * DECODE_UNIT < sh.max_begin ||
        (part.first + part.units) * DECODE_UNIT > sh.min_end)
        decode_setup(p, &sh, kv_head, rows);
    decode_wait(c.depth - 1);                        /* Q */
    __syncthreads();

    const int pitch = (((int)p->dv + DECODE_STEP - 1) & -DECODE_STEP) + 8;
    float *const merge = (float *)memory;
    decode_walk<T, BYTES, NV>(c, q, merge, pitch, rows);
    __syncthreads();
    decode_leave<BYTES>(a, p, &sh, x, t, merge, 16, pitch, rows);
}

#endif
