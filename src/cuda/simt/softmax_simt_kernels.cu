/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * y = softmax of the rows of x, in place if y is x, with every mask of attention fused: no mask
 * tensor is needed for the causal one. A warp takes a row; where there are few rows, or
 * BATCH_INVARIANT fixes the way, a block of 256 threads takes 8 rows in turn.
 *
 * A row is walked in spans of 64 scores a lane (16 in short rows, and in blocks), four side by
 * side, which stay in registers: maximum, then sum of e^(s - max), both by shuffles; several spans
 * are joined online (Milakov and Gimelshein 2018). A row of one span (2048 keys of a warp, 4096 of
 * a block) is read once and written once; a longer one is read again to be written. Keys 4 q .. 4 q
 * + 3 of a span always belong to thread q mod T, so a row's bits depend on its scores, T and the
 * span alone. Where a row is aligned, the four are one load and one store.
 *
 * For gqa_forward on tensor cores y holds e^(s - max) in V's 16-bit type, over the first half of the row of x, and what
 * completes a row of O goes to `factors`.
 *
 * Cost: bytes of x read (twice if long) and of y written; the exponentials hide behind them.
 */
#include "cuda/common/ptx.cuh"
#include "cuda/common/score.cuh"
#include "cuda/simt/softmax_simt.h"
#include "cuda/simt/flash_close.cuh"

template <class T> struct softmax_row {
    const struct problem *p;
    const struct softmax_simt_args *a;
    const T *x;                  /* element [n, h, i, 0] */
    char *y, *scores;            /* the same of the outputs; scores NULL: not asked for */
    struct score_row terms;
    int64_t n, h, i, begin, end; /* keys the row sees by position */
    int64_t len_k;               /* keys that have a product; 0 for a row past len_q */
    int64_t from, to;            /* keys of y that are written */
    bool dead;                   /* past len_q */
    bool x_fours, y_fours;       /* four keys are one load, one store */
};

/* Over all threads of a row; `shared`: one float a warp, not touched by the last reduction. *flag
 * becomes true for all if it was for one. */
template <bool wide, bool max> __device__ __forceinline__ float softmax_reduce(float x, float *shared, bool *flag)
{
    x = max ? lanes_max<32>(x) : lanes_sum<32>(x);
    if (!wide) {
        *flag = __any_sync(0xFFFFFFFFu, *flag);
        return x;
    }
    if ((threadIdx.x & 31) == 0)
        shared[threadIdx.x >> 5] = x;
    *flag = __syncthreads_or(*flag);
    x = shared[0];
#pragma unroll
    for (int w = 1; w < SOFTMAX_THREADS / 32; w++)
        x = max ? fmaxf(x, shared[w]) : __fadd_rn(x, shared[w]);
    return x;
}

__device__ __forceinline__ void load_four(const float *at, float *out)
{
    const float4 four = *(const float4 *)at;
    out[0] = four.x;
    out[1] = four.y;
    out[2] = four.z;
    out[3] = four.w;
}

template <class T> __device__ __forceinline__ void load_four(const T *at, float *out)
{
    const uint2 bits = *(const uint2 *)at;
    const T *const four = (const T *)&bits;
#pragma unroll
    for (int e = 0; e < 4; e++)
        out[e] = widen(four[e], 0);
}

template <int32_t dtype> __device__ __forceinline__ void store_four(char *at, const float *in)
{
    if (dtype == QATTN_DTYPE_F32)
        *(float4 *)at = make_float4(in[0], in[1], in[2], in[3]);
    else if (dtype == QATTN_DTYPE_F16)
        *(uint2 *)at = make_uint2(pack_16<__half>(in[0], in[1]), pack_16<__half>(in[2], in[3]));
    else
        *(uint2 *)at = make_uint2(pack_16<__nv_bfloat16>(in[0], in[1]), pack_16<__nv_bfloat16>(in[2], in[3]));
}

/* Key of slot x of a lane, from the start of the span. */
template <int lanes> __device__ __forceinline__ int softmax_key(int x, int lane)
{
    return (x / 4 * lanes + lane) * 4 + x % 4;
}

/* What makes the product of key j, scaled, its final score: rare, and long. */
template <class T> __device__ __noinline__ float softmax_final(const struct softmax_row<T> *row, int64_t j, float s)
{
    const struct problem *const p = row->p;
    if (p->softcap != 0.0f)
        s = score_cap(s, p->softcap);
    return score_terms(p, &row->terms, j, s);
}

/* held[x] = final score of the key of slot x, -inf where the row does not see it; true: one that it sees by position is
 * -inf. All loads come first: a branch between them would wait for each in turn. */
template <class T, int lanes, int slots>
__device__ __forceinline__ bool softmax_scores(const struct softmax_row<T> *row, int64_t j0, int lane, float *held)
{
    const struct problem *const p = row->p;
    const int begin = (int)clamp64(row->begin - j0, 0, lanes * slots);
    const int end = (int)clamp64(row->end - j0, 0, lanes * slots);
    const T *const x0 = row->x + j0 * row->a->x.stride[3];
    if (row->x_fours && begin == 0 && end == lanes * slots) {
#pragma unroll
        for (int x = 0; x < slots; x += 4)
            load_four(x0 + lane * 4 + x * lanes, held + x);
    } else if (row->x_fours) {
#pragma unroll
        for (int x = 0; x < slots; x += 4) {
            const int j = softmax_key<lanes>(x, lane);
            held[x] = held[x + 1] = held[x + 2] = held[x + 3] = 0.0f;
            if (begin < j + 4 && j < end)
                load_four(x0 + lane * 4 + x * lanes, held + x);
        }
    } else {
        const int64_t step = row->a->x.stride[3];
#pragma unroll
        for (int x = 0; x < slots; x++) {
            const int j = softmax_key<lanes>(x, lane);
            held[x] = begin <= j && j < end ? widen(x0[j * step], 0) : 0.0f;
        }
    }
#pragma unroll
    for (int x = 0; x < slots; x++)
        held[x] = __fmul_rn(p->scale, held[x]);
    if (p->softcap != 0.0f || score_has_terms(p)) {
#pragma unroll
        for (int x = 0; x < slots; x++) {
            const int j = softmax_key<lanes>(x, lane);
            if (begin <= j && j < end)
                held[x] = softmax_final(row, j0 + j, held[x]);
        }
    }
    bool hidden = false;
    if (begin == 0 && end == lanes * slots) {
#pragma unroll
        for (int x = 0; x < slots; x++)
            hidden |= held[x] == minus_infinity();
        return hidden;
    }
#pragma unroll
    for (int x = 0; x < slots; x++) {
        const int j = softmax_key<lanes>(x, lane);
        const bool seen = begin <= j && j < end;
        hidden |= seen && held[x] == minus_infinity();
        held[x] = seen ? held[x] : minus_infinity();
    }
    return hidden;
}

/* Element j of a row of t that starts at `row`. */
__device__ __forceinline__ void softmax_put(char *row, const struct view *t, int64_t j, float value)
{
    store_any(row + j * (t->stride[3] * t->itemsize), t->dtype, value);
}

/* Stages 0 and 1, which know no mask, and stage 2, before x is overwritten. */
template <class T> __device__ void softmax_put_scores(const struct softmax_row<T> *row, int lane, int lanes)
{
    const struct problem *const p = row->p;
    const struct view *const out = &row->a->scores;
    for (int64_t j = lane; j < out->shape[3]; j += lanes) {
        float value = p->scores_stage == 2 ? minus_infinity() : 0.0f;
        if (p->scores_stage == 2) {
            if (row->begin <= j && j < row->end)
                value = score_terms(p, &row->terms, j, score_capped(p, widen(row->x[j * row->a->x.stride[3]], 0)));
        } else if (j < row->len_k) {
            const float product = widen(row->x[j * row->a->x.stride[3]], 0);
            value = p->scores_stage == 0 ? __fmul_rn(p->scale, product) : score_capped(p, product);
        }
        softmax_put(row->scores, out, j, value);
    }
}

/* What e^(s - max) is multiplied with, given `factors`: f16 has 11 bits only down to 2^-14, and
 * smaller probabilities count. */
__device__ __forceinline__ float softmax_unit(const struct softmax_simt_args *a)
{
    return a->y.dtype == QATTN_DTYPE_F16 ? 32768.0f : 1.0f;
}

/* Writes e^(s - max), -0 if the key is hidden, to y, as a probability or as it is, and to the
 * scores if they are wanted at stage 3. */
template <class T>
__device__ __forceinline__ void softmax_put_p(const struct softmax_row<T> *row, int64_t j, float e, float factor)
{
    const struct softmax_simt_args *const a = row->a;
    const float p = __fmul_rn(e, factor), plain = __fadd_rn(p, 0.0f);      /* -0 becomes 0 */
    if (row->scores && row->p->scores_stage == 3)
        softmax_put(row->scores, &a->scores, j, plain);
    softmax_put(row->y, &a->y, j, a->factors ? __fmul_rn(e, softmax_unit(a)) : a->marked ? p : plain);
}

/* held: scores -> e^(score - max), and -0 for hidden keys; returns their sum. */
template <int slots> __device__ __forceinline__ float softmax_exponentials(float *held, float max)
{
    const float from = max == minus_infinity() ? 0.0f : max;
    float sum = 0.0f;
#pragma unroll
    for (int x = 0; x < slots; x++) {
        const float e = exp2_approx(__fmul_rn(__fsub_rn(held[x], from), LOG2_E));
        held[x] = held[x] == minus_infinity() ? hidden_p() : e;
        sum = __fadd_rn(sum, held[x]);
    }
    return sum;
}

/* Keys of y to write: all, or if `marked` what the rows of the 128-row tile see, in whole steps of the products. */
template <class T> __device__ __forceinline__ void softmax_set_written(struct softmax_row<T> *row, const struct seq *s)
{
    const int64_t keys = row->a->keys, first = row->i / SOFTMAX_TILE * SOFTMAX_TILE;
    const int64_t last = (first + SOFTMAX_TILE < s->len_q ? first + SOFTMAX_TILE : s->len_q) - 1;
    int64_t unused;
    row->from = 0;
    row->to = keys;
    if (!row->a->marked)
        return;
    row->to = 0;
    if (first < s->len_q) {
        seq_visible(row->p, s, first, &row->from, &unused);
        seq_visible(row->p, s, last, &unused, &row->to);
    }
    row->from = row->from / SOFTMAX_STEP * SOFTMAX_STEP;
    row->to = (row->to + SOFTMAX_STEP - 1) / SOFTMAX_STEP * SOFTMAX_STEP < keys
                  ? (row->to + SOFTMAX_STEP - 1) / SOFTMAX_STEP * SOFTMAX_STEP : keys;
}

/* Row `index` of the call. By eights, all heads of the first eight rows first: the products before
 * and after go the other way (gemm_work.cuh), so each finds in the L2 cache what was written last.
 * Else the last rows of a head first. */
template <class T>
__device__ void softmax_set_row(const struct softmax_simt_args *a, const struct problem *p, int64_t index,
                                struct softmax_row<T> *row)
{
    row->p = p;
    row->a = a;
    if (p->cap_q % SOFTMAX_ROWS == 0) {
        row->i = split_index(&index, SOFTMAX_ROWS);
        row->h = split_index(&index, p->hq);
        row->n = split_index(&index, p->n);
        row->i += index * SOFTMAX_ROWS;
    } else {
        row->i = p->cap_q - 1 - split_index(&index, p->cap_q);
        row->h = split_index(&index, p->hq);
        row->n = index;
    }
    const struct seq s = seq_get(p, row->n);
    seq_visible(p, &s, row->i, &row->begin, &row->end);
    row->dead = row->i >= s.len_q;
    row->len_k = row->dead ? 0 : s.len_k;
    row->terms = score_row_of(p, &s, row->h, row->i);
    row->x = (const T *)view_at(&a->x, row->n, row->h, row->i, 0);
    row->y = view_at(&a->y, row->n, row->h, row->i, 0);
    row->scores = a->scores.dtype ? view_at(&a->scores, row->n, row->h, row->i, 0) : NULL;
    row->x_fours = a->x.stride[3] == 1 && a->x.shape[3] % 4 == 0 && (uintptr_t)row->x % (4 * sizeof(T)) == 0;
    row->y_fours = a->y.stride[3] == 1 && (uintptr_t)row->y % (uintptr_t)(4 * a->y.itemsize) == 0 &&
                   !(row->scores && p->scores_stage == 3);
    softmax_set_written(row, &s);
}

/* The four keys from j0 + j of which those in from .. to - 1 are written one by one. */
template <class T>
__device__ __noinline__ void softmax_put_some(const struct softmax_row<T> *row, int64_t j0, int j, int from, int to,
                                              float4 four, float factor)
{
    if (from <= j && j < to)
        softmax_put_p(row, j0 + j, four.x, factor);
    if (from <= j + 1 && j + 1 < to)
        softmax_put_p(row, j0 + j + 1, four.y, factor);
    if (from <= j + 2 && j + 2 < to)
        softmax_put_p(row, j0 + j + 2, four.z, factor);
    if (from <= j + 3 && j + 3 < to)
        softmax_put_p(row, j0 + j + 3, four.w, factor);
}

/* y[j] = held * factor for the span at j0; with `factors` y[j] = held. */
template <class T, int lanes, int slots, int32_t dtype>
__device__ __forceinline__ void softmax_put_span(const struct softmax_row<T> *row, int64_t j0, int lane,
                                                 const float *held, float factor)
{
    const struct softmax_simt_args *const a = row->a;
    constexpr int span = lanes * slots, size = dtype == QATTN_DTYPE_F32 ? 4 : 2;
    const int from = (int)clamp64(row->from - j0, 0, span), to = (int)clamp64(row->to - j0, 0, span);
    const bool fours = row->y_fours;
    const float times = a->factors ? softmax_unit(a) : factor;
    const float zero = a->marked ? -0.0f : 0.0f;     /* what leaves -0 as it is, or makes it 0 */
    char *const y = row->y + j0 * (a->y.stride[3] * size);
#pragma unroll
    for (int x = 0; x < slots; x += 4) {
        const int j = softmax_key<lanes>(x, lane);
        if (fours && from <= j && j + 4 <= to) {
            float four[4];
#pragma unroll
            for (int e = 0; e < 4; e++)
                four[e] = __fadd_rn(__fmul_rn(held[x + e], times), zero);
            store_four<dtype>(y + (lane * 4 + x * lanes) * size, four);
            continue;
        }
        if (from < j + 4 && j < to)
            softmax_put_some(row, j0, j, from, to, make_float4(held[x], held[x + 1], held[x + 2], held[x + 3]), factor);
    }
}

/* Threads of the row wait for each other: y may lie over the x of another thread. */
template <bool wide> __device__ __forceinline__ void softmax_wait(const struct softmax_simt_args *a)
{
    if (!a->factors)
        return;
    if (wide)
        __syncthreads();
    else
        __syncwarp();
}

template <class T, bool wide, int slots>
__device__ __forceinline__ void softmax_one_row(const struct softmax_row<T> *row, float (*shared)[SOFTMAX_THREADS / 32])
{
    constexpr int lanes = wide ? SOFTMAX_THREADS : 32, span = lanes * slots;
    const struct problem *const p = row->p;
    const int lane = wide ? threadIdx.x : threadIdx.x & 31;
    const int64_t first = row->begin / span, last = row->end > row->begin ? (row->end + span - 1) / span : first;
    float held[slots], max = minus_infinity(), sum = 0.0f;
    bool hidden = false;

    if (row->scores && p->scores_stage < 3) {
        softmax_put_scores(row, lane, lanes);
        softmax_wait<wide>(row->a);
    }
    for (int64_t t = first; t < last; t++) {
        float top = max;
        hidden |= softmax_scores<T, lanes, slots>(row, t * span, lane, held);
#pragma unroll
        for (int x = 0; x < slots; x++)
            top = fmaxf(top, held[x]);
        top = softmax_reduce<wide, true>(top, shared[0], &hidden);
        float part = softmax_exponentials<slots>(held, top);
        part = softmax_reduce<wide, false>(part, shared[1], &hidden);
        sum = __fadd_rn(__fmul_rn(sum, exp_below(max, top)), part);
        max = top;
    }

    float factor, lse;
    flash_close(p, row->h, row->dead, max, sum, &factor, &lse);
    if (p->lse.dtype && lane == 0)
        *(float *)view_at(&p->lse, row->n, row->h, row->i, 0) = lse;
    if (row->a->factors && lane == 0)
        row->a->factors[(row->n * p->hq + row->h) * p->cap_q + row->i] =
            copysignf(__fdiv_rn(factor, softmax_unit(row->a)), hidden ? -1.0f : 1.0f);

    for (int64_t t = first; t < last; t++) {
        if (last - first > 1) {
            softmax_scores<T, lanes, slots>(row, t * span, lane, held);
            softmax_exponentials<slots>(held, max);
            softmax_wait<wide>(row->a);
        }
        if (row->a->y.dtype == QATTN_DTYPE_F32)
            softmax_put_span<T, lanes, slots, QATTN_DTYPE_F32>(row, t * span, lane, held, factor);
        else if (row->a->y.dtype == QATTN_DTYPE_F16)
            softmax_put_span<T, lanes, slots, QATTN_DTYPE_F16>(row, t * span, lane, held, factor);
        else
            softmax_put_span<T, lanes, slots, QATTN_DTYPE_BF16>(row, t * span, lane, held, factor);
    }
    if (last - first > 1)
        softmax_wait<wide>(row->a);
    /* what lies outside the spans that were scored is hidden */
    for (int64_t j = row->from + lane; j < row->to && j < first * span; j += lanes)
        softmax_put_p(row, j, hidden_p(), 1.0f);
    for (int64_t j = (row->from > last * span ? row->from : last * span) + lane; j < row->to; j += lanes)
        softmax_put_p(row, j, hidden_p(), 1.0f);
    if (row->a->marked && row->scores && p->scores_stage == 3)    /* the rest of the caller's row */
        for (int64_t j = lane; j < row->a->scores.shape[3]; j += lanes)
            if (j < row->from || j >= row->to)
                softmax_put(row->scores, &row->a->scores, j, 0.0f);
}

/* A block takes 8 rows: 8 lanes find out about one each, then all warps work on the rows in turn
 * (wide); or each warp on its own. */
template <class T, bool wide, int slots>
static __global__ void __launch_bounds__(SOFTMAX_THREADS, 2)
softmax_simt_kernel(const __grid_constant__ struct softmax_simt_args args,
                    const __grid_constant__ struct problem_param packed)
{
    __shared__ float shared[2][SOFTMAX_THREADS / 32];
    __shared__ struct softmax_row<T> rows[SOFTMAX_ROWS];
    const struct problem *const p = problem_of(&packed);
    wait_for_predecessor();
    const int warp = threadIdx.x >> 5, tid = threadIdx.x;
    for (int64_t x = blockIdx.x * (int64_t)SOFTMAX_ROWS; x < args.rows; x += gridDim.x * (int64_t)SOFTMAX_ROWS) {
        if (wide) {
            __syncthreads();                         /* the last rows' readers are done */
            if (tid < SOFTMAX_ROWS && x + tid < args.rows)
                softmax_set_row(&args, p, x + tid, &rows[tid]);
            __syncthreads();
            for (int r = 0; r < SOFTMAX_ROWS && x + r < args.rows; r++)
                softmax_one_row<T, wide, slots>(&rows[r], shared);
        } else if (x + warp < args.rows) {
            __syncwarp();
            if ((tid & 31) == 0)
                softmax_set_row(&args, p, x + warp, &rows[warp]);
            __syncwarp();
            softmax_one_row<T, wide, slots>(&rows[warp], shared);
        }
    }
}

template <class T> static const void *kernel_of(enum softmax_width width)
{
    switch (width) {
    case SOFTMAX_SHORT: return (const void *)softmax_simt_kernel<T, false, SOFTMAX_SLOTS>;
    case SOFTMAX_LONG:  return (const void *)softmax_simt_kernel<T, false, SOFTMAX_SLOTS * 4>;
    default:            return (const void *)softmax_simt_kernel<T, true, SOFTMAX_SLOTS>;
    }
}

const void *qattn__softmax_simt(int32_t dtype, enum softmax_width width)
{
    switch (dtype) {
    case QATTN_DTYPE_F32: return kernel_of<float>(width);
    case QATTN_DTYPE_F16: return kernel_of<__half>(width);
    default:              return kernel_of<__nv_bfloat16>(width);
    }
}
