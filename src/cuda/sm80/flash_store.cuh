/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The end of an item of flash_sm80.cuh: its rows are closed and written, with LSE or as a split's part. */
#ifndef QATTN_CUDA_FLASH_STORE_CUH
#define QATTN_CUDA_FLASH_STORE_CUH

#include "cuda/simt/flash_close.cuh"
#include "cuda/sm80/flash_item.cuh"
#include "cuda/sm80/flash_load.cuh"

/* The number of a row in the arrays of parts. */
__device__ __forceinline__ int64_t f80_part_of(const struct flash_sm80_args *a, const struct problem *p,
                                               const struct f80_item *item, const struct f80_row &row)
{
    return item->split * a->part_rows + (item->q_batch * p->q.shape[2] + item->q_row + row.i) * p->hq + row.h;
}

/* Closes the thread's rows: factors of O, LSE or the split's maximum and sum. Lane c of the four of a row does row x
 * = c. */
template <class C>
__device__ __forceinline__ void f80_close(const struct flash_sm80_args *a, const struct problem *p,
                                          const struct f80_item *item, int first_row, const float (&m)[2 * C::MB],
                                          const float (&l)[2 * C::MB], float (&factors)[2 * C::MB])
{
    const int lane = threadIdx.x & 31, c = lane & (2 * C::MB - 1);
    float max = 0.0f, sum = 0.0f;
#pragma unroll
    for (int x = 0; x < 2 * C::MB; x++) {
        const float all = lanes_sum<4>(l[x]);
        max = c == x ? m[x] : max;
        sum = c == x ? all : sum;
    }
    const float lowered = C::BF16 ? 1.0f : 0x1p-10f; /* f80_lift */
    max *= a->unit;
    sum *= lowered;
    if (max == minus_infinity() && sum > 0.0f) /* all scores became -inf as they were scaled: hidden */
        sum = 0.0f;
    const bool empty = sum == 0.0f; /* then a descale may be anything */
    const int r = first_row + 8 * c + (lane >> 2);
    const struct f80_row row = f80_row_of(item->rows, r);
    const bool there = r < item->rows_written && (lane & 3) < 2 * C::MB, dead = r >= item->queries;
    float factor = 0.0f, lse;
    if (a->parts_o) {
        const int64_t part = f80_part_of(a, p, item, row);
        if (there) {
            a->parts_ml[2 * part] = dead ? minus_infinity() : max;
            a->parts_ml[2 * part + 1] = dead ? 0.0f : sum;
        }
        factor = lowered * item->v_descale;
    } else {
        flash_close(p, row.h, dead, max, sum, &factor, &lse);
        factor *= lowered * item->v_descale;
        if (there && p->lse.dtype)
            *(float *)view_at(&p->lse, item->q_batch, row.h, item->q_row + row.i, 0) = lse;
    }
#pragma unroll
    for (int x = 0; x < 2 * C::MB; x++)
        factors[x] = __shfl_sync(0xFFFFFFFFu, dead || empty ? 0.0f : factor, (lane & ~3) + x);
}

/* Where row r of the tile begins in O, or in the split's part of it. */
__device__ __forceinline__ char *f80_row_out(const struct flash_sm80_args *a, const struct problem *p,
                                             const struct f80_item *item, int r)
{
    const struct f80_row row = f80_row_of(item->rows, r);
    return a->parts_o ? (char *)(a->parts_o + f80_part_of(a, p, item, row) * p->dv)
                      : view_at(&p->o, item->q_batch, row.h, item->q_row + row.i, 0);
}

/* To parts of splits, or O in f32: two neighbours at a time. */
template <class C>
__device__ __forceinline__ void f80_store_pairs(const struct flash_sm80_args *a, const struct problem *p,
                                                const struct f80_item *item, int first_row,
                                                const float (&o)[C::MB][C::W / 8][4],
                                                const float (&factors)[2 * C::MB])
{
    const int column = 2 * (threadIdx.x & 3);
#pragma unroll C::UNROLL
    for (int x = 0; x < 2 * C::MB; x++) {
        const int r = first_row + 8 * x + ((threadIdx.x & 31) >> 2);
        if (r >= item->rows_written)
            continue;
        const bool dead = r >= item->queries;
        float *const out = (float *)f80_row_out(a, p, item, r) + column;
#pragma unroll C::UNROLL
        for (int nb = 0; nb < C::W / 8; nb++)
            if (C::EVEN || 8 * nb + column < p->dv)
                *(float2 *)(out + 8 * nb) =
                    make_float2(flash_result(dead, o[x >> 1][nb][2 * (x & 1)], factors[x]),
                                flash_result(dead, o[x >> 1][nb][2 * (x & 1) + 1], factors[x]));
    }
}

/* O in 16 bits to the warp's own rows of Q, which have served. */
template <class C>
__device__ __forceinline__ void f80_stage_o(const struct f80_item *item, int first_row,
                                            const float (&o)[C::MB][C::W / 8][4], const float (&factors)[2 * C::MB],
                                            char *staging)
{
    typedef typename C::type T;
    const int lane = threadIdx.x & 31;
#pragma unroll C::UNROLL
    for (int x = 0; x < 2 * C::MB; x++) {
        const int r = first_row + 8 * x + (lane >> 2);
        const bool dead = r >= item->queries;    /* its O may be NaN: such rows see what the last query sees */
#pragma unroll C::UNROLL
        for (int nb = 0; nb < C::W / 8; nb++)
            *(uint32_t *)(staging + f80_swizzle<C>(r, nb) + 4 * (lane & 3)) =
                dead ? 0 : pack_16<T>(__fmaf_rn(o[x >> 1][nb][2 * (x & 1)], factors[x], 0.0f),
                                      __fmaf_rn(o[x >> 1][nb][2 * (x & 1) + 1], factors[x], 0.0f));
    }
}

/* From there to O, 16 bytes at a time. */
template <class C>
__device__ __forceinline__ void f80_store_rows(const struct problem *p, const struct f80_item *item, int first_row,
                                               const char *staging)
{
    typedef f80_walk<C> walk;
    const int lane = threadIdx.x & 31, chunk = lane % C::CHUNKS, r0 = lane / C::CHUNKS;
    const int left = C::EVEN || chunk * 8 < p->dv ? item->rows_written - first_row - r0 : 0;
    const int64_t i_stride = 2 * p->o.stride[2], h_stride = 2 * p->o.stride[1];
    char *out = p->o.data + 2 * (item->q_batch * p->o.stride[0] + item->q_row * p->o.stride[2] + 8 * chunk);
    staging += first_row * C::ROW_BYTES;
    if (item->rows.group.by == 1) {
        out += (item->rows.i0 + first_row + r0) * i_stride + item->rows.h0 * h_stride;
#pragma unroll
        for (int i = 0; i < walk::PASSES; i++) {
            if (i * walk::STEP < left)
                *(uint4 *)out = *(const uint4 *)(staging + f80_walk_at<C>(chunk, r0, i));
            out += walk::STEP * i_stride;
        }
        return;
    }
#pragma unroll 1
    for (int i = 0; i < walk::PASSES; i++) {
        const struct f80_row row = f80_row_of(item->rows, first_row + r0 + i * walk::STEP);
        if (i * walk::STEP < left)
            *(uint4 *)(out + row.i * i_stride + row.h * h_stride) =
                *(const uint4 *)(staging + f80_walk_at<C>(chunk, r0, i));
    }
}

/* Half of O's columns in f32 to the warp's own rows of Q. */
template <class C>
__device__ __forceinline__ void f80_stage_half(const struct f80_item *item, int first_row, int half,
                                               const float (&o)[C::MB][C::W / 8][4], const float (&factors)[2 * C::MB],
                                               char *staging)
{
    const int lane = threadIdx.x & 31, c = lane & 3;
#pragma unroll C::UNROLL
    for (int x = 0; x < 2 * C::MB; x++) {
        const int r = first_row + 8 * x + (lane >> 2);
        const bool dead = r >= item->queries;
#pragma unroll C::UNROLL
        for (int nb = 0; nb < C::W / 16; nb++) {
            const float *const two = &o[x >> 1][half * (C::W / 16) + nb][2 * (x & 1)];
            *(float2 *)(staging + f80_swizzle<C>(r, 2 * nb + (c >> 1)) + 8 * (c & 1)) =
                make_float2(flash_result(dead, two[0], factors[x]), flash_result(dead, two[1], factors[x]));
        }
    }
}

__device__ __forceinline__ void f80_put(char *to, int32_t, uint16_t bits) { *(uint16_t *)to = bits; }
__device__ __forceinline__ void f80_put(char *to, int32_t dtype, float x) { store_any(to, dtype, x); }

/* From there, as elements of type S, to O of any strides (f32: and of any type) or to parts, one by one, columns from
 * `first` on; lanes run along what lies closer in memory. Each lane knows where one row begins. */
template <class C, class S>
__device__ __forceinline__ void f80_store_each(const struct flash_sm80_args *a, const struct problem *p,
                                               const struct f80_item *item, int first_row, int first,
                                               const char *staging)
{
    constexpr int rows = 16 * C::MB, columns = C::ROW_BYTES / (int)sizeof(S), piece = 16 / (int)sizeof(S);
    const int lane = threadIdx.x & 31, own = lane % rows;
    const int32_t dtype = a->parts_o ? QATTN_DTYPE_F32 : p->o.dtype;
    const int64_t step = a->parts_o ? (int64_t)sizeof(float) : p->o.stride[3] * p->o.itemsize;
    const int there = min(item->rows_written - first_row, rows), wide = min((int)p->dv - first, columns);
    int64_t next = llabs(p->o.stride[2]);            /* from row to row */
    if (item->rows.group.by > 1)
        next = min(next, (int64_t)llabs(p->o.stride[1]));
    const int64_t out = (int64_t)f80_row_out(a, p, item, first_row + own) + first * step;
    if (a->parts_o || there <= 1 || (wide > 16 && llabs(p->o.stride[3]) <= next)) {
#pragma unroll 2
        for (int r = 0; r < there; r++) {
            char *const to = (char *)__shfl_sync(0xFFFFFFFFu, out, r);
            const int row = first_row + r;
#pragma unroll
            for (int d = lane; d < columns; d += 32)
                if (d < wide)
                    f80_put(to + d * step, dtype,
                            *(const S *)(staging + f80_swizzle<C>(row, d / piece) + d % piece * (int)sizeof(S)));
        }
    } else if (own < there) {
        const int row = first_row + own;
#pragma unroll 4
        for (int d = lane / rows; d < wide; d += 32 / rows)
            f80_put((char *)out + d * step, dtype,
                    *(const S *)(staging + f80_swizzle<C>(row, d / piece) + d % piece * (int)sizeof(S)));
    }
}

/* Closes the warp's rows and writes them, as a rule through its rows of Q, which have served. */
template <class C>
__device__ __forceinline__ void f80_write(const struct flash_sm80_args *a, const struct problem *p,
                                          const struct f80_item *item, char *memory,
                                          const float (&o)[C::MB][C::W / 8][4], const float (&m)[2 * C::MB],
                                          const float (&l)[2 * C::MB])
{
    const int first_row = (f80_thread() >> 5) * 16 * C::MB;
    float factors[2 * C::MB];
    f80_close<C>(a, p, item, first_row, m, l, factors);
    if (a->out == FLASH_SM80_OUT_PAIRS) {
        f80_store_pairs<C>(a, p, item, first_row, o, factors);
        return;
    }
    __syncwarp(); /* Q is read, and where there was no key it has come */
    if (a->out != FLASH_SM80_OUT_EACH) {
        f80_stage_o<C>(item, first_row, o, factors, memory);
        __syncwarp();
        if (a->out == FLASH_SM80_OUT_ROWS)
            f80_store_rows<C>(p, item, first_row, memory);
        else
            f80_store_each<C, uint16_t>(a, p, item, first_row, 0, memory);
        return;
    }
#pragma unroll C::UNROLL
    for (int half = 0; half < 2; half++) {
        f80_stage_half<C>(item, first_row, half, o, factors, memory);
        __syncwarp();
        f80_store_each<C, float>(a, p, item, first_row, half * (C::W / 2), memory);
        __syncwarp();
    }
}

#endif
