/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The common decode: up to 8 rows a sequence and KV head, K and V of 16 bits and W columns each, whole rows at
 * multiples of 16 bytes, no pages or pages of whole units. K and V go straight from memory to the registers of the
 * products: no shared memory on the way, no barrier.
 *
 *     S^T [16 keys][8 rows] = K Q^T,  P = e^(scale S - m),  O^T [W][8 rows] += V^T P^T     mma.sync m16n8k16, fp32 sums
 *
 * What one block does: one split of one sequence and KV head; each warp takes one unit of 16 keys of each of the
 * split's chunks (decode_range.h), with a softmax of its own, brought together at the end (decode_leave). The last
 * split to finish adds the splits' parts (arrive.cuh, decode_join.cuh).
 *
 * Fragments: the sum over D does not ask for an order, so a lane's 16 bytes of a row of K, 8 elements, are its part of
 * two steps of the first product; Q is read in the same order. Nor is the order of the columns of O fixed: a lane's 16
 * bytes of rows 2c, 2c + 1, 2c + 8, 2c + 9 of V are, paired key by key (prmt), its part of four tiles of the second.
 * With lane = 4 g + c:
 *
 *     K   keys g, g + 8      columns 32 t + 8 c ..      t < W / 32
 *     Q   row g              the same
 *     V   keys 2c, 2c + 1, 2c + 8, 2c + 9   columns 64 u + 8 g ..    u < W / 64
 *     O^T rows 2c, 2c + 1    columns 64 u + 8 g + 2 j, 2 j + 1       tile 4 u + j
 *
 * The start of a block is a chain of loads: where sequences are not alike, lengths, then a page table, then K. Q is
 * asked for among them, what the last split needs to arrive behind them.
 *
 * While a unit is at work the next one is on its way: K from the first product on, V from the second. Two blocks of 4
 * warps a multiprocessor, or one of 8 where the grid has no more blocks than that: 64 KB. Shared memory: what rows see
 * at the start, O of the warps at the end.
 *
 * Measured limit: the read rate of the card (docs/notes/cuda_decode.md).
 */
#ifndef QATTN_CUDA_DECODE_DIRECT_CUH
#define QATTN_CUDA_DECODE_DIRECT_CUH

#include "cuda/sm80/decode_sm80.cuh"

/* A lane's view of K and V. Offsets are bytes. */
struct direct_source {
    const char *k, *v;          /* the lane's first 16 bytes of a unit of the sequence that starts at key 0 (or row 0 of
                                   page 0) */
    int64_t k_row, v_row;       /* from row to row */
    const int32_t *pages;       /* of the sequence; NULL: none */
    uint64_t policy;            /* of what is read once */
};

template <int W> struct direct_unit {
    uint32_t k[W / 32][2][4];   /* [t][keys g, g + 8] */
    uint32_t v[W / 64][4][4];   /* [u][keys 2c, 2c + 1, 2c + 8, 2c + 9] */
};

template <int W> struct direct_state {
    uint32_t q[W / 32][4];
    float o[W / 16][4];
    float m[2], l[2];           /* of rows 2c, 2c + 1; l: of the lane's keys */
};

/* Eight elements, `step` bytes apart. */
static __device__ __noinline__ uint4 direct_gather_q(const char *from, int64_t step)
{
    uint32_t x[8];
#pragma unroll
    for (int e = 0; e < 8; e++)
        x[e] = *(const uint16_t *)(from + e * step);
    return make_uint4(x[0] | x[1] << 16, x[2] | x[3] << 16, x[4] | x[5] << 16, x[6] | x[7] << 16);
}

template <class T, int W>
__device__ __forceinline__ void direct_load_q(const struct decode_sm80_args *a, const struct problem *p,
                                              const struct seq *s, int kv_head, int rows, int lane,
                                              struct direct_state<W> *w)
{
    const int r = lane >> 2, group = (int)a->by_group.by, i = (int)divide((unsigned)r, a->by_group);
    const char *const from = decode_row_of(&a->q, s->q_batch, (int64_t)kv_head * group + r - i * group, s->q_row + i);
#pragma unroll
    for (int x = 0; x < W / 8; x++)
        w->q[x >> 2][x & 3] = 0;
    if (r < rows && a->q_vector) {
#pragma unroll
        for (int t = 0; t < W / 32; t++)
            load_16(w->q[t], from + 64 * t + 16 * (lane & 3));
    } else if (r < rows) {
#pragma unroll
        for (int t = 0; t < W / 32; t++) {
            const uint4 x = direct_gather_q(from + (64 * t + 16 * (lane & 3)) * p->q.stride[3], 2 * p->q.stride[3]);
            w->q[t][0] = x.x;
            w->q[t][1] = x.y;
            w->q[t][2] = x.z;
            w->q[t][3] = x.w;
        }
    }
}

__device__ __forceinline__ const int32_t *direct_pages_of(const struct problem *p, int n)
{
    return p->page_table ? p->page_table + n * p->page_table_stride : NULL;
}

__device__ __forceinline__ struct direct_source direct_source_of(const struct decode_sm80_args *a,
                                                                 const struct seq *s, const int32_t *pages, int kv_head,
                                                                 int lane)
{
    const int64_t batch = pages ? 0 : s->k_batch, row = pages ? 0 : s->k_row;
    struct direct_source x;
    x.k_row = a->k.row;
    x.v_row = a->v.row;
    x.k = decode_row_of(&a->k, batch, kv_head, row) + 16 * (lane & 3);
    x.v = decode_row_of(&a->v, batch, kv_head, row) + 16 * (lane >> 2);
    x.pages = pages;
    x.policy = policy_evict_first();
    return x;
}

/* Where the unit begins: page, as the table has it, and row in it; without pages page 0. Who loads the unit cuts the
 * page into the pool (direct_page): here that would be a wait for the table. */
struct direct_place { int page, row; };

__device__ __forceinline__ struct direct_place direct_find(const struct decode_sm80_args *a, const int32_t *pages,
                                                           int unit)
{
    struct direct_place at = { 0, unit * DECODE_UNIT };
    if (pages) {
        const int column = a->page_shift >= 0 ? at.row >> a->page_shift : at.row / a->page_size;
        at.row -= column * a->page_size;
        at.page = pages[column];
    }
    return at;
}

__device__ __forceinline__ int64_t direct_page(const struct decode_sm80_args *a, const struct direct_place &at)
{
    return min(max(at.page, 0), a->last_page);
}

/* Rows of the unit that exist: `left`. Those beyond are the last one again, and hidden. */
__device__ __forceinline__ int64_t direct_row(int row, int left) { return row < left ? row : left - 1; }

template <int W>
__device__ __forceinline__ void direct_load_k(const struct decode_sm80_args *a, const struct direct_source *x,
                                              const struct direct_place &at, int left, int lane,
                                              struct direct_unit<W> *y)
{
    const char *const from = x->k + direct_page(a, at) * a->k.batch + at.row * x->k_row;
    const char *const row0 = from + direct_row(lane >> 2, left) * x->k_row;
    const char *const row8 = from + direct_row((lane >> 2) + 8, left) * x->k_row;
#pragma unroll
    for (int t = 0; t < W / 32; t++) {
        load_once_16(y->k[t][0], row0 + 64 * t, x->policy);
        load_once_16(y->k[t][1], row8 + 64 * t, x->policy);
    }
}

template <int W>
__device__ __forceinline__ void direct_load_v(const struct decode_sm80_args *a, const struct direct_source *x,
                                              const struct direct_place &at, int left, int lane,
                                              struct direct_unit<W> *y)
{
    const char *const from = x->v + direct_page(a, at) * a->v.batch + at.row * x->v_row;
#pragma unroll
    for (int z = 0; z < 4; z++) {
        const char *const row = from + direct_row(2 * (lane & 3) + (z & 1) + 4 * (z & 2), left) * x->v_row;
#pragma unroll
        for (int u = 0; u < W / 64; u++)
            load_once_16(y->v[u][z], row + 128 * u, x->policy);
    }
}

template <class T, int W>
__device__ __forceinline__ void direct_multiply_k(const struct direct_unit<W> *y, const struct direct_state<W> *w,
                                                  float *s)
{
    float odd[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    s[0] = s[1] = s[2] = s[3] = 0.0f;
#pragma unroll
    for (int t = 0; t < W / 32; t++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t k[4] = { y->k[t][0][2 * half], y->k[t][1][2 * half], y->k[t][0][2 * half + 1],
                                    y->k[t][1][2 * half + 1] };
            mma_16816<T>(half ? odd : s, k, &w->q[t][2 * half]);
        }
#pragma unroll
    for (int e = 0; e < 4; e++)
        s[e] += odd[e];
}

/* From products to final scores: -inf where hidden. Rows beyond the sequence's see what its last row sees. */
__device__ __forceinline__ void direct_scores(const struct problem *p, bool terms, const struct decode_row *row,
                                              const struct decode_range &range, int j0, int lane, float *s)
{
#pragma unroll
    for (int e = 0; e < 4; e++)
        s[e] *= p->scale;
    if (p->softcap != 0.0f) {
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[e] = score_cap(s[e], p->softcap);
    }
    if (!terms && j0 >= range.max_begin && j0 + DECODE_UNIT <= range.min_end)
        return;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const struct decode_row *const r = &row[2 * (lane & 3) + (e & 1)];
        const int j = j0 + (lane >> 2) + 8 * (e >> 1);
        if (j < r->begin || j >= r->end)
            s[e] = minus_infinity();
        else if (terms)
            s[e] = score_terms(p, &r->score, j, s[e]);
    }
}

/* Over the lanes of equal c, which hold one row; every lane gets the result, with the same bits. */
__device__ __forceinline__ float direct_max(float x)
{
#pragma unroll
    for (int step = 4; step < 32; step *= 2)
        x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
    return x;
}

__device__ __forceinline__ float direct_sum(float x)
{
#pragma unroll
    for (int step = 4; step < 32; step *= 2)
        x = __fadd_rn(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
    return x;
}

/* Scores to probabilities; m, l and o are brought to a new maximum when some row has one. */
template <class T, int W> __device__ __forceinline__ void direct_softmax(struct direct_state<W> *w, float *s)
{
    const bool above = fmaxf(s[0], s[2]) > w->m[0] || fmaxf(s[1], s[3]) > w->m[1];
    if (__any_sync(0xFFFFFFFFu, above)) {
        float keep[2];
#pragma unroll
        for (int x = 0; x < 2; x++) {
            const float top = fmaxf(w->m[x], direct_max(fmaxf(s[x], s[x + 2])));
            keep[x] = exp_below(w->m[x], top);
            w->l[x] *= keep[x];
            w->m[x] = top;
        }
#pragma unroll
        for (int x = 0; x < W / 4; x++)
            w->o[x >> 2][x & 3] *= keep[x & 1];
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const float from = w->m[e & 1] == minus_infinity() ? 0.0f : w->m[e & 1];
        s[e] = exp2_approx(__fmaf_rn(s[e] - from, LOG2_E, decode_lift(T())));
        w->l[e & 1] += s[e];
    }
}

/* Tile 4 u + j of V^T. */
template <int W>
__device__ __forceinline__ void direct_fragment_v(const struct direct_unit<W> *y, int u, int j, uint32_t *f)
{
    f[0] = __byte_perm(y->v[u][0][j], y->v[u][1][j], 0x5410);
    f[1] = __byte_perm(y->v[u][0][j], y->v[u][1][j], 0x7632);
    f[2] = __byte_perm(y->v[u][2][j], y->v[u][3][j], 0x5410);
    f[3] = __byte_perm(y->v[u][2][j], y->v[u][3][j], 0x7632);
}

/* The B fragment of P^T, or of marks. */
template <class T> __device__ __forceinline__ void direct_fragment(const float *s, uint32_t *f)
{
    f[0] = transpose_8x8(pack_16<T>(s[0], s[1]));
    f[1] = transpose_8x8(pack_16<T>(s[2], s[3]));
}

template <class T, int W>
__device__ __forceinline__ void direct_multiply_v(const struct direct_unit<W> *y, const uint32_t *pf,
                                                  struct direct_state<W> *w)
{
#pragma unroll
    for (int b = 0; b < W / 16; b++) {
        uint32_t f[4];
        direct_fragment_v<W>(y, b >> 2, b & 3, f);
        mma_16816<T>(w->o[b], f, pf);
    }
}

/* The unit hides some pair: does V hold a non-finite element? */
template <class T, int W> __device__ __forceinline__ bool direct_v_is_bad(const struct direct_unit<W> *y)
{
    uint32_t bad = 0;
#pragma unroll
    for (int x = 0; x < W / 4; x++)
        bad |= non_finite_halves<T>(y->v[x >> 4][x >> 2 & 3][x & 3]);
    return __any_sync(0xFFFFFFFFu, bad != 0);
}

/* Then such elements count as 0, and spoil the rows that see them. */
template <class T, int W>
__device__ __forceinline__ void direct_multiply_bad_v(const struct direct_unit<W> *y, const uint32_t *pf,
                                                      const uint32_t *seen, struct direct_state<W> *w)
{
    const uint32_t one = pack_16<T>(1.0f, 1.0f);
#pragma unroll
    for (int b = 0; b < W / 16; b++) {
        uint32_t f[4], marks[4];
        float count[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
        direct_fragment_v<W>(y, b >> 2, b & 3, f);
#pragma unroll
        for (int x = 0; x < 4; x++) {
            const uint32_t bad = non_finite_halves<T>(f[x]);
            marks[x] = bad & one;
            f[x] &= ~bad;
        }
        mma_16816<T>(w->o[b], f, pf);
        mma_16816<T>(count, marks, seen);
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (count[e] > 0.0f)
                w->o[b][e] = __int_as_float(0x7FC00000);
    }
}

/* The warp's m, l and O into shared memory: O at merge [warp][DIRECT_ROWS][pitch]. */
template <class T, int W>
__device__ __forceinline__ void direct_hand_in(struct decode_sums *sums, int warp, int lane,
                                               const struct direct_state<W> *w, float *merge, int pitch, int rows)
{
    const int c = lane & 3, g = lane >> 2;
#pragma unroll
    for (int x = 0; x < 2; x++) {
        const int row = 2 * c + x;
        const float sum = direct_sum(w->l[x]) * decode_lowered(T());
        if (g == 0) {
            sums[warp].m[row] = w->m[x];
            sums[warp].l[row] = sum;
        }
        if (row >= rows)
            continue;
        float *const line = merge + (warp * DIRECT_ROWS + row) * pitch + 8 * g;
#pragma unroll
        for (int b = 0; b < W / 16; b++)
            *(float2 *)(line + 64 * (b >> 2) + 2 * (b & 3)) =
                make_float2(w->o[b][x] * decode_lowered(T()), w->o[b][x + 2] * decode_lowered(T()));
    }
}

/* The units first, first + step, .. of a warp, up to the sequence's last one. `next`: the second one. */
template <class T, int W>
__device__ __forceinline__ void direct_walk(const struct decode_sm80_args *a, const struct problem *p,
                                            const struct decode_range &range, const struct decode_row *row,
                                            const struct direct_source *from, int first, int step, int lane,
                                            struct direct_unit<W> *y, struct direct_place next,
                                            struct direct_state<W> *w)
{
    const int end = range.first + range.units;
#pragma unroll 1
    for (int unit = first; unit < end; unit += step) {
        const bool more = unit + step < end;
        const int j0 = unit * DECODE_UNIT, left = more ? range.len_k - (unit + step) * DECODE_UNIT : 0;
        struct direct_place later = { 0, 0 };
        if (unit + 2 * step < end)
            later = direct_find(a, from->pages, unit + 2 * step);
        float score[4];
        uint32_t pf[2], seen[2];
        direct_multiply_k<T, W>(y, w, score);
        if (more)
            direct_load_k<W>(a, from, next, left, lane, y);
        direct_scores(p, a->terms, row, range, j0, lane, score);
        bool hides = false;
#pragma unroll
        for (int e = 0; e < 4; e++)
            hides |= score[e] == minus_infinity();
        const bool bad = __any_sync(0xFFFFFFFFu, hides) && direct_v_is_bad<T, W>(y);
        if (bad) {
            float one[4];
#pragma unroll
            for (int e = 0; e < 4; e++)
                one[e] = score[e] == minus_infinity() ? 0.0f : 1.0f;
            direct_fragment<T>(one, seen);
        }
        direct_softmax<T, W>(w, score);
        direct_fragment<T>(score, pf);
        if (bad)
            direct_multiply_bad_v<T, W>(y, pf, seen, w);
        else
            direct_multiply_v<T, W>(y, pf, w);
        if (more)
            direct_load_v<W>(a, from, next, left, lane, y);
        next = later;
    }
}

/* The sums of rows that have seen nothing. */
template <int W> __device__ __forceinline__ void direct_clear(struct direct_state<W> *w)
{
#pragma unroll
    for (int e = 0; e < W / 4; e++)
        w->o[e >> 2][e & 3] = 0.0f;
    w->m[0] = w->m[1] = minus_infinity();
    w->l[0] = w->l[1] = 0.0f;
}

/* What a block's threads know, each for itself, where sequences are alike; but for the number of keys. */
struct direct_known {
    struct seq seq;
    struct decode_range range;
};

/* The sequence's number of keys, where that is all in which it differs; it comes while Q is asked for. Of the rules of
 * seq_offset one alone looks at it. */
__device__ __forceinline__ void direct_set_keys(const struct decode_sm80_args *a, const struct problem *p, int used,
                                                struct direct_known *x)
{
    const int len_k = min(max(used, 0), a->cap_k);
    x->seq.len_k = len_k;
    if (p->position == POSITION_BOTTOM_RIGHT)
        x->seq.offset = len_k - x->seq.len_q;
    x->range = decode_range_with(x->range, len_k, &a->cut);
}

/* Any sequence; its dead rows are written. */
__device__ __forceinline__ void direct_look_up(const struct decode_sm80_args *a, const struct problem *p,
                                               const struct decode_item &item, struct direct_known *x)
{
    x->seq = seq_get(p, item.n);
    x->range = decode_range_of(p, &x->seq, a->longest, &a->cut);
    if (decode_has_dead(item, x->seq, x->range)) {
        const struct seq copy = x->seq;          /* of x itself no address may be taken: it would leave its registers */
        decode_write_dead(p, &copy, item.kv_head);
    }
}

template <class T, int W>
__global__ void __launch_bounds__(32 * DIRECT_WARPS, 1)
    decode_direct_kernel(const __grid_constant__ struct decode_sm80_args args,
                         const __grid_constant__ struct problem_param packed)
{
    __shared__ __align__(16) float merge[DIRECT_WARPS * DIRECT_ROWS * (W + 8)];
    __shared__ struct decode_sums sums[DIRECT_WARPS];
    __shared__ struct decode_row row[16];
    static_assert(sizeof merge + sizeof sums + sizeof row <= 48 << 10, "no more is to be had without asking");
    const struct problem *const p = problem_of(&packed);
    wait_for_predecessor();
    launch_dependents();
    const struct decode_sm80_args *const a = &args;
    const struct decode_item x = decode_item_of(a);
    struct direct_known known = { decode_seq_of(a, x.n), a->range };
    const int used = a->alike == DECODE_ALIKE_BUT_KEYS ? p->seqused_k[x.n] : 0;
    if (a->alike == DECODE_UNLIKE)
        direct_look_up(a, p, x, &known);

    /* Q first: loads are served in turn, and those of K and V are more than a multiprocessor has under way */
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int32_t *const pages = direct_pages_of(p, x.n);
    const struct direct_source from = direct_source_of(a, &known.seq, pages, x.kv_head, lane);
    struct direct_state<W> w;
    direct_load_q<T, W>(a, p, &known.seq, x.kv_head, known.range.rows, lane, &w);
    if (a->alike == DECODE_ALIKE_BUT_KEYS)
        direct_set_keys(a, p, used, &known);
    const struct decode_range &range = known.range;
    if (!decode_is_live(x, range))
        return;

    const int step = a->cut.num_splits << range.chunk_log2, end = range.first + range.units;
    const int first = range.first + (x.split << range.chunk_log2) + warp;
    const bool any = first < end && warp >> range.chunk_log2 == 0;
    struct direct_unit<W> y;
    struct direct_place at = { 0, 0 }, next = { 0, 0 };
    if (any) {
        at = direct_find(a, pages, first);
        if (first + step < end)
            next = direct_find(a, pages, first + step);
        direct_load_k<W>(a, &from, at, range.len_k - first * DECODE_UNIT, lane, &y);
    }
    const unsigned long long arrived = decode_arrives(x, range.live) ? __ldcg(x.word) : 0;
    if (any)
        direct_load_v<W>(a, &from, at, range.len_k - first * DECODE_UNIT, lane, &y);
    direct_clear<W>(&w);
    if (decode_needs_rows(a, range, x.split)) {
        decode_setup(a, p, &known.seq, x.kv_head, range.rows, row);
        __syncthreads();
    }
    direct_walk<T, W>(a, p, range, row, &from, any ? first : end, step, lane, &y, next, &w);
    if (decode_arrives(x, range.live))
        arrive_prepare(x.word, arrived, a->tag);
    direct_hand_in<T, W>(sums, warp, lane, &w, merge, W + 8, range.rows);
    __syncthreads();
    const struct decode_lane t = decode_lane_of(1);
    decode_leave<2, DIRECT_WARPS>(a, p, &known.seq, x, range.live, t, sums, merge, DIRECT_ROWS, W + 8, range.rows);
}

#endif
