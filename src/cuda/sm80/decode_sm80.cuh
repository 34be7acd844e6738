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
 * Who does what: rows are cut in M = 1, 2 or 4 tiles of 16; M warps, one a tile, are a key group. The groups share the
 * units of the split in turn, each with a ring of its own: they never wait for each other until the end. A lone warp
 * (M = 1: up to 16 rows, the common decode) waits for nobody at all. At the end the groups' m, l and O are brought
 * together in shared memory, in order, and go to O and LSE or, with splits, to the workspace; a second kernel adds the
 * splits in order.
 *
 * Shared memory: ring  [groups][depth][16 rows of K, 16 rows of V]: pitches an odd number of 16-byte pieces, so that
 *                      ldmatrix and the stores of cp.async meet no bank twice; later O of the groups in fp32
 *                q     [16 M][D] in 16 bits, zeros beyond the rows and beyond D
 *                rows  [16 M], what each row sees, for units at an edge
 * A unit of D 128 is 8 KB; 4 warps with 3 units each, 2 blocks a multiprocessor: 196 KB on their way.
 *
 * Measured limit (docs/notes/cuda_decode.md): 4.1 TB/s, where plain reading reaches 4.55; about 475 instructions a warp
 * and unit. A call of one unit a warp takes 10 us in a graph, the second kernel included.
 *
 * 8-bit k, v: copied as bytes, widened on the way to the registers (decode_bytes.cuh). One 32-bit word of a K row is
 * four elements 4c .. 4c + 3 of a step of 16, where a B fragment wants 2c, 2c + 1, 2c + 8, 2c + 9: Q is stored in that
 * order instead. Of V, ldmatrix transposes pairs of bytes, so one block of 8 columns of O holds the even, the next the
 * odd ones of 16.
 *
 * Masks cost a comparison per score in units at an edge only. A unit with a hidden pair and a non-finite V (design
 * rule 4): the product takes 0 for such elements, and a second one, of marks, finds the rows that see them.
 */
#ifndef QATTN_CUDA_DECODE_SM80_CUH
#define QATTN_CUDA_DECODE_SM80_CUH

#include "cuda/simt/flash_close.cuh"
#include "cuda/sm80/decode_range.cuh"
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
            if (b > 0 && (b & 7) == 0 && p->dv <= 8 * b)
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

/* Brings the key groups together, a warp a row, and writes O and LSE or the split's part. */
template <int BYTES>
__device__ __forceinline__ void decode_hand_out(const struct decode_sm80_args *a, const struct problem *p,
                                                const struct decode_shared *sh, const struct decode_lane &t,
                                                int kv_head, int64_t part, const float *merge, int pitch, int rows)
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
        if (!a->parts_o)
            flash_close(p, h, false, max, sum, &factor, &lse);
        char *const out = view_at(&p->o, s->q_batch, h, s->q_row + i, 0);
        for (int d = t.lane; d < p->dv; d += 32) {
            float o = 0.0f;
#pragma unroll
            for (int k = 0; k < DECODE_MAX_WARPS; k++)
                if (k < t.groups)
                    o += merge[((k * t.tiles + tile) * 16 + x) * pitch + d] * weight[k];
            if (BYTES == 1 && p->v_descale.kind == DESCALE_SEQUENCE && sum != 0.0f)
                o *= seq_kv_descale(p, s, &p->v_descale, kv_head / p->v_descale.head_div, 0, d);
            if (a->parts_o)
                a->parts_o[(part + r) * p->dv + d] = o;
            else
                store_any(out + d * p->o.stride[3] * p->o.itemsize, p->o.dtype, flash_result(false, o, factor));
        }
        if (t.lane == 0 && a->parts_o) {
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

/* T: type of q; BYTES of an element of k and v; NV: blocks of 8 columns of O. */
template <class T, int BYTES, int NV>
__global__ void __launch_bounds__(32 * DECODE_MAX_WARPS, NV == 16 && BYTES == 2 ? 3 : 2)
decode_kernel(const __grid_constant__ struct decode_sm80_args args, const __grid_constant__ struct problem_param packed)
{
    extern __shared__ __align__(16) char memory[];
    __shared__ struct decode_shared sh;
    const struct problem *const p = problem_of(&packed);
    const struct decode_sm80_args *const a = &args;
    const int slot_bytes = DECODE_UNIT * (a->k_pitch + a->v_pitch);
    char *const q = memory + a->q_offset;
    const int index = blockIdx.x, item = index / a->num_splits, split = index - item * a->num_splits;
    const int n = item / a->kv_heads, kv_head = item - n * a->kv_heads;
    if (a->parts_o)
        launch_dependents();
    if (threadIdx.x == 0)
        decode_open(a, p, n, &sh, (struct decode_row *)(memory + a->row_offset));
    __syncthreads();
    const struct seq *const s = &sh.seq;
    const int rows = sh.rows;
    if (split == 0 && s->len_q < s->rows && rows >= 0)
        decode_write_dead(p, s, kv_head);
    if (rows <= 0)
        return;
    const struct decode_range part = decode_share(a, &sh.range, split);
    if (part.units == 0 && a->parts_o)
        return;

    const struct decode_lane t = decode_lane_of(rows);
    const int depth = a->stages * t.tiles < DECODE_MAX_DEPTH ? a->stages * t.tiles : DECODE_MAX_DEPTH;
    const int ring = t.group * (a->stages * t.tiles * slot_bytes);
    const int mine = part.units > t.group ? (part.units - t.group + t.groups - 1) >> t.groups_log2 : 0;
    const int len_k = (int)s->len_k, first = part.first + t.group;
    const struct decode_source k = decode_source_of<BYTES>(a, p, &p->k, s, kv_head, (int)p->d, a->k_lanes, a->k_pitch,
                                                           t.rank, t.threads);
    const struct decode_source v = decode_source_of<BYTES>(a, p, &p->v, s, kv_head, (int)p->dv, a->v_lanes, a->v_pitch,
                                                           t.rank, t.threads);
#pragma unroll 1
    for (int x = 0; x < depth; x++) {
        const int unit = first + x * t.groups;
        if (x < mine)
            decode_issue<BYTES>(a, p, t, k, v, decode_locate<BYTES>(a, p, s, k, v, unit, t.lane),
                                len_k - unit * DECODE_UNIT, memory + ring + x * slot_bytes);
        if (x == 0)
            decode_load_q<T, BYTES>(a, p, s, kv_head, rows, t.tiles, q);
        cp_async_commit();
    }
    if (score_has_terms(p) || part.first * DECODE_UNIT < sh.max_begin ||
        (part.first + part.units) * DECODE_UNIT > sh.min_end)
        decode_setup(p, &sh, kv_head, rows);
    float k_scale = 1.0f;
    if (BYTES == 1 && p->k_descale.kind == DESCALE_SEQUENCE)
        k_scale = seq_kv_descale(p, s, &p->k_descale, kv_head / p->k_descale.head_div, 0, 0);
    decode_state<NV> w;
#pragma unroll
    for (int b = 0; b < NV; b++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            w.o[b][e] = 0.0f;
    w.m[0] = w.m[1] = minus_infinity();
    w.l[0] = w.l[1] = 0.0f;
    w.unit[0] = w.unit[1] = BYTES == 1 && has_key_descale(&p->v_descale) ? 1.17549435e-38f : 1.0f;
    struct decode_view view = decode_view_of<BYTES>(a, t, shared_address(q), shared_address(memory));
    view.full_begin = sh.max_begin;
    view.full_end = sh.min_end - DECODE_UNIT;
    decode_wait(depth - 1);                          /* Q */
    __syncthreads();

    int slot = ring;                                     /* offset of the slot at work */
#pragma unroll 1
    for (int x = 0; x < mine; x++) {
        const int unit = first + x * t.groups, ahead = unit + depth * t.groups;
        struct decode_place next = { NULL, NULL };
        if (x + depth < mine)                        /* a page table's entries come while this unit is worked on */
            next = decode_locate<BYTES>(a, p, s, k, v, ahead, t.lane);
        decode_wait(depth - 1);
        decode_group_sync(t);
        if (BYTES == 1 && p->k.dtype == QATTN_DTYPE_I8)
            decode_unit<T, BYTES, BYTES == 1, NV>(a, p, &sh, t, view, kv_head, unit * DECODE_UNIT, k_scale, slot,
                                                  memory, &w);
        else
            decode_unit<T, BYTES, false, NV>(a, p, &sh, t, view, kv_head, unit * DECODE_UNIT, k_scale, slot, memory,
                                             &w);
        decode_group_sync(t);
        if (x + depth < mine)
            decode_issue<BYTES>(a, p, t, k, v, next, len_k - ahead * DECODE_UNIT, memory + slot);
        cp_async_commit();
        slot = slot + slot_bytes < ring + depth * slot_bytes ? slot + slot_bytes : ring;
    }

    const int pitch = (((int)p->dv + DECODE_STEP - 1) & -DECODE_STEP) + 8;
    float *const merge = (float *)memory;
    cp_async_wait<0>();
    __syncthreads();                                 /* the ring is free */
    decode_hand_in<T, BYTES, NV>(p, &sh, t, &w, merge, pitch, rows);
    __syncthreads();
    decode_hand_out<BYTES>(a, p, &sh, t, kv_head, (int64_t)index * a->part_rows, merge, pitch, rows);
}

#endif
