/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * C = alpha A B + beta C per (batch, head), any strides: the tiled product of the three-kernel text.
 *
 * A block of 256 threads computes one tile of C, 128 x 128 (or 16 x 128 where A has few rows), in
 * fp32. It walks over K in steps of 16: A [128][16] and B^T [128][16] are brought to shared memory,
 * both as [16][128 + 4], and each thread adds 8 x 8 products per k, for 16 floats read
 * (tile_simt.cuh). While one step is multiplied, the next is on its way through registers into the
 * other half of shared memory: one barrier a step. Shared memory: 33 KB, two blocks a
 * multiprocessor.
 *
 * matmul and matmul_nt are one kernel: they differ in which stride of B walks with k, and a transposed view costs
 * nothing. The lanes of a warp run along k or along rows, whichever lies closer in memory. Batch, head and tile are
 * folded into one index of 64 bits; query heads of a group read the same B.
 *
 * Cost: 2 M N K multiply-adds a head; A is read N / 128 times and B M / 128 times, from L2 as a rule.
 *
 * For attention (gqa_forward) two ranges are cut: RANGE_SCORES leaves out tiles of S that no row
 * sees (their memory is not written), RANGE_VALUES sums over the keys that some row of the tile
 * sees. There a hidden key's P is -0, and a step of V with NaN or infinity in it is multiplied
 * without the hidden pairs.
 *
 * f32 with many rows takes gemm_f32_simt.cu: the same tile and sums.
 *
 * Long sums: one chain over n keys may lose n / 3 roundings, all in one direction. P V in f32 is
 * therefore summed here in chains of 32 keys, which are added with what each rounding took (8 bits
 * of it). gemm_f32_simt.cu has no registers for that: there P V is one chain, so the launcher sends
 * only up to GEMM_CHAIN_KEYS keys there, and none under BATCH_INVARIANT.
 *
 * Bits: sums run over k in ascending order from a multiple of 16, whatever the tile; chains end at multiples of 32.
 */
#include "cuda/common/ptx.cuh"
#include "cuda/simt/gemm_simt.h"
#include "cuda/simt/gemm_work.cuh"
#include "cuda/simt/tile_simt.cuh"

template <int RM>
__device__ __forceinline__ void gemm_write(const struct gemm_args *a, const struct gemm_work &w, int ty, int tx,
                                           float (*sum)[8])
{
    char *const c = a->c + (w.batch * a->c_batch + w.head * a->c_head) * a->c_itemsize;
#pragma unroll
    for (int r = 0; r < RM; r++) {
        const int64_t m = w.m0 + tile_row_of<RM>(ty, r);
        if (m >= a->m)
            continue;
        const float scale = gemm_scale(a, w, m);
        gemm_put_four(a, c, m, w.n0 + tx * 4, sum[r], scale);
        gemm_put_four(a, c, m, w.n0 + tx * 4 + 64, sum[r] + 4, scale);
    }
}

/* A chain ends: it joins sum, `low` keeps what rounding took (pack_low). A chain of zeros changes nothing. */
template <int RM> __device__ __forceinline__ void gemm_end_chain(float (*chain)[8], float (*sum)[8], uint32_t (*low)[4])
{
#pragma unroll
    for (int r = 0; r < RM; r++)
#pragma unroll
        for (int c = 0; c < 8; c += 2) {
            uint32_t *const pair = &low[r][c / 2];
            float rest[2] = { __uint_as_float(*pair << 16), __uint_as_float(*pair & 0xFFFF0000u) };
            sum_scaled(&sum[r][c], &rest[0], 1.0f, chain[r][c]);
            sum_scaled(&sum[r][c + 1], &rest[1], 1.0f, chain[r][c + 1]);
            *pair = pack_low(rest[0], rest[1]);
            chain[r][c] = chain[r][c + 1] = 0.0f;
        }
}

/* The step to come, on its way from memory to shared memory: where the thread reads it, elements of k left, that step
 * included, and what it has read. */
template <class TA, class TB, int RM> struct gemm_step {
    static constexpr int rows = 16 * RM, a_pitch = rows + 4, b_pitch = GEMM_COLUMNS + 4;
    static constexpr int a_floats = TILE_K * a_pitch, b_floats = TILE_K * b_pitch;
    struct tile_lane a_lane, b_lane;
    const TA *a;
    const TB *b;
    int64_t a_rows, b_rows, left;
    float a_staged[tile_share<rows>::loads], b_staged[tile_share<GEMM_COLUMNS>::loads];
};

/* The item's first step, which starts at k `start`; its sums end at k `end`. */
template <class TA, class TB, int RM>
__device__ __forceinline__ void gemm_first_step(const struct gemm_args *a, const struct gemm_work &w, int64_t start,
                                                int64_t end, gemm_step<TA, TB, RM> *x)
{
    x->a = (const TA *)a->a.data + w.batch * a->a.batch + w.head * a->a.head + (w.m0 + x->a_lane.row) * a->a.row +
           (start + x->a_lane.k) * a->a.k;
    x->b = (const TB *)a->b.data + w.batch * a->b.batch + w.head / a->b_head_div * a->b.head +
           (w.n0 + x->b_lane.row) * a->b.row + (start + x->b_lane.k) * a->b.k;
    x->a_rows = a->m - w.m0;
    x->b_rows = a->n - w.n0;
    x->left = end - start;
}

template <class TA, class TB, int RM>
__device__ __forceinline__ void gemm_fetch(const struct gemm_args *a, gemm_step<TA, TB, RM> *x)
{
    tile_fetch<TA, 16 * RM>(x->a_lane, x->a, a->a.row, a->a.k, a->a.dtype, x->a_rows, x->left, x->a_staged);
    tile_fetch<TB, GEMM_COLUMNS>(x->b_lane, x->b, a->b.row, a->b.k, a->b.dtype, x->b_rows, x->left, x->b_staged);
}

/* Tells whether an element of B is not finite. */
template <class TA, class TB, int RM>
__device__ __forceinline__ bool gemm_store(const gemm_step<TA, TB, RM> &x, float *a_tile, float *b_tile)
{
    tile_store<16 * RM>(x.a_lane, a_tile, x.a_pitch, x.a_staged);
    return tile_store<GEMM_COLUMNS>(x.b_lane, b_tile, x.b_pitch, x.b_staged);
}

/* hiding: P V, where a step with a value that is not finite needs the second loop. */
template <class TA, class TB, int RM, bool hiding>
static __global__ void __launch_bounds__(GEMM_THREADS, hiding && sizeof(TB) == 4 && RM == 8 ? 1 : 2)
gemm_simt_kernel(const __grid_constant__ struct gemm_args args, const __grid_constant__ struct problem_param packed)
{
    typedef gemm_step<TA, TB, RM> step;
    constexpr bool chains = hiding && sizeof(TB) == 4;
    __shared__ __align__(16) float a_shared[2 * step::a_floats];
    __shared__ __align__(16) float b_shared[2 * step::b_floats];
    const struct gemm_args *const a = &args;
    wait_for_predecessor();
    int tx, ty;
    tile_deal(&ty, &tx);
    step x;
    x.a_lane = tile_lane_of<step::rows>(a->a.along_k);
    x.b_lane = tile_lane_of<GEMM_COLUMNS>(a->b.along_k);

    for (int64_t index = blockIdx.x; index < a->work; index += gridDim.x) {
        const struct gemm_work w = gemm_work_of(a, index, step::rows);
        struct gemm_keys keys;
        if (!gemm_keys_of_item(a, problem_of(&packed), w, step::rows, &keys))
            continue;
        float sum[RM][8], chain[RM][8];
        uint32_t low[RM][4];
#pragma unroll
        for (int r = 0; r < RM; r++)
#pragma unroll
            for (int c = 0; c < 8; c++) {
                sum[r][c] = chain[r][c] = 0.0f;
                low[r][c / 2] = 0;
            }

        const int64_t start = keys.begin / TILE_K * TILE_K;
        int half = 0, odd = (int)(start / TILE_K & 1);   /* of shared memory, at work; odd: the step ends a chain */
        gemm_first_step(a, w, start, keys.end, &x);
        __syncthreads();                             /* the last item's readers are done */
        gemm_fetch(a, &x);
        bool bad = gemm_store(x, a_shared, b_shared);
        bad = hiding ? __syncthreads_or(bad) : (__syncthreads(), false);
#pragma unroll 1
        while (x.left > 0) {
            const bool more = x.left > TILE_K;
            x.left -= TILE_K;
            if (more) {
                x.a += TILE_K * a->a.k;
                x.b += TILE_K * a->b.k;
                gemm_fetch(a, &x);
            }
            const float *const a_tile = a_shared + half * step::a_floats;
            const float *const b_tile = b_shared + half * step::b_floats;
            if (hiding && bad)
                tile_multiply_hiding<RM, 2>(a_tile, step::a_pitch, b_tile, step::b_pitch, ty, tx, chains ? chain : sum);
            else
                tile_multiply<RM, 2>(a_tile, step::a_pitch, b_tile, step::b_pitch, ty, tx, chains ? chain : sum);
            if (chains && (odd || !more))
                gemm_end_chain<RM>(chain, sum, low);
            odd ^= 1;
            half ^= 1;
            bad = more && gemm_store(x, a_shared + half * step::a_floats, b_shared + half * step::b_floats);
            bad = hiding ? __syncthreads_or(bad) : (__syncthreads(), false);
        }
        gemm_write<RM>(a, w, ty, tx, sum);
    }
}

#define KERNEL(TA, TB, may_hide) \
    (few ? (const void *)gemm_simt_kernel<TA, TB, 1, may_hide> : (const void *)gemm_simt_kernel<TA, TB, 8, may_hide>)

const void *qattn__gemm_simt(int32_t a_dtype, int32_t b_dtype, bool few, bool hiding)
{
    if (a_dtype == b_dtype && !hiding) {
        switch (a_dtype) {
        case QATTN_DTYPE_F32: return few ? (const void *)gemm_simt_kernel<float, float, 1, false> : NULL;
        case QATTN_DTYPE_F16: return KERNEL(__half, __half, false);
        default:              return KERNEL(__nv_bfloat16, __nv_bfloat16, false);
        }
    }
    if (a_dtype != QATTN_DTYPE_F32 || !hiding)
        return NULL;
    switch (b_dtype) {
    case QATTN_DTYPE_F32: return KERNEL(float, float, true);
    case QATTN_DTYPE_F16: return KERNEL(float, __half, true);
    default:              return KERNEL(float, __nv_bfloat16, true);
    }
}
