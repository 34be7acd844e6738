/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Shared memory of a block of flash_sm80.cuh: what lies behind the tiles, and how it and they are filled. */
#ifndef QATTN_CUDA_FLASH_MEMORY_CUH
#define QATTN_CUDA_FLASH_MEMORY_CUH

#include "cuda/sm80/flash_item.cuh"
#include "cuda/sm80/flash_load.cuh"
#include "cuda/sm80/flash_terms.cuh"

/* What lies behind the tiles in shared memory. Paged: byte offsets of keys, [k, v][even tiles, odd tiles][BN]. */
template <class C> __device__ __forceinline__ int64_t *f80_places(char *memory)
{
    return (int64_t *)(memory + C::SHARED);
}

/* ALiBi: [BM] slope (in the unit of the kernel's scores), query row of the tile. */
template <class C> __device__ __forceinline__ float2 *f80_alibi(const struct problem *p, char *memory)
{
    return (float2 *)(memory + C::SHARED + (p->page_table ? F80_PLACES_BYTES(C::BN) : 0));
}

/* The warp's stage of bias and keep. */
template <class C>
__device__ __forceinline__ char *f80_stage_of(const struct flash_sm80_args *a, const struct problem *p, char *memory)
{
    const int bytes = a->stage == FLASH_SM80_GATHERED
                          ? f80_stage<C>::GATHERED
                          : (p->bias.dtype ? f80_stage<C>::BIAS : 0) + (p->keep.dtype ? f80_stage<C>::KEEP : 0);
    return (char *)f80_alibi<C>(p, memory) + (p->alibi_slopes ? F80_ALIBI_BYTES(C::BM) : 0) +
           (f80_thread() >> 5) * bytes;
}

/* Starts the copies of key tile t, into the buffers of even or odd ones. 8-bit tiles wait in the second buffers for
 * being widened into the first. */
template <class C>
__device__ __forceinline__ void f80_load_kv(const struct flash_sm80_args *a, const struct problem *p,
                                            const struct f80_item *item, int t, char *memory)
{
    const bool bytes = !C::EVEN && p->k.itemsize == 1, paged = !C::EVEN && p->page_table;
    char *const k_to = memory + C::Q_BYTES + (bytes ? 1 : t & (C::BUFFERS - 1)) * C::TILE_BYTES;
    char *const v_to = k_to + C::BUFFERS * C::TILE_BYTES;
    const int64_t *const k_at = paged ? f80_places<C>(memory) + (t & 1) * C::BN : NULL;
    const int64_t *const v_at = paged ? k_at + 2 * C::BN : NULL;
    const int left = item->sight.len_k - t * C::BN;
    const int64_t first = paged ? 0 : (int64_t)t * C::BN;
    const char *const k_from = item->k_from + first * a->k_row_bytes;
    const char *const v_from = item->v_from + first * a->v_row_bytes;
    if (!C::EVEN && !a->kv_vector) {
        const int64_t k_step = p->k.stride[3] * p->k.itemsize, v_step = p->v.stride[3] * p->v.itemsize;
        f80_gather_tile<C>(k_to, k_from, a->k_row_bytes, k_step, k_at, left, p->d, bytes);
        f80_gather_tile<C>(v_to, v_from, a->v_row_bytes, v_step, v_at, left, p->dv, bytes);
    } else if (bytes) {
        f80_load_tile<C, 1>(shared_address(k_to), k_from, a->k_row_bytes, k_at, left, p->d);
        f80_load_tile<C, 1>(shared_address(v_to), v_from, a->v_row_bytes, v_at, left, p->dv);
    } else {
        f80_load_tile<C, 2>(shared_address(k_to), k_from, a->k_row_bytes, k_at, left, 2 * p->d);
        f80_load_tile<C, 2>(shared_address(v_to), v_from, a->v_row_bytes, v_at, left, 2 * p->dv);
    }
    cp_async_commit();
}

/* Slopes and positions of the item's rows. */
template <class C>
__device__ __forceinline__ void f80_fill_alibi(const struct flash_sm80_args *a, const struct problem *p,
                                               const struct f80_item *item, char *memory)
{
    if (p->alibi_slopes)
        for (int r = threadIdx.x; r < C::BM; r += C::THREADS) {
            const struct f80_row row = f80_row_of(item->rows, r);
            const float slope = p->alibi_slopes[item->n * p->alibi_batch_stride + row.h];
            const float by_unit = is_finite(slope) ? fminf(fmaxf(slope / a->unit, -FLT_MAX), FLT_MAX) : slope;
            f80_alibi<C>(p, memory)[r] = make_float2(by_unit, (float)(row.i - item->rows.i0));
        }
}

/* Starts the copies of an item's first key tile and what belongs to it. All threads; ends with work under way. */
template <class C>
__device__ __forceinline__ void f80_begin(const struct flash_sm80_args *a, const struct problem *p,
                                          const struct f80_item *item, char *memory)
{
    if (item->first >= item->last)
        return;
    if (!C::EVEN && p->page_table) {
        f80_place_keys<C::BN>(p, item->n, item->sight.len_k, item->first * C::BN,
                              f80_places<C>(memory) + (item->first & 1) * C::BN);
        f80_place_keys<C::BN>(p, item->n, item->sight.len_k, (item->first + 1) * C::BN,
                              f80_places<C>(memory) + (item->first + 1 & 1) * C::BN);
        __syncthreads();
    }
    f80_load_kv<C>(a, p, item, item->first, memory);
    f80_fill_alibi<C>(a, p, item, memory);
}

/* Bias and keep of the warp's rows, keys j0 .. j0 + BN - 1, to the warp's stage. Copies are a group of their own. */
template <class C>
__device__ __forceinline__ void f80_fill_stage(const struct flash_sm80_args *a, const struct problem *p,
                                               const struct f80_item *item, int first_row, int j0, char *memory)
{
    char *const stage = f80_stage_of<C>(a, p, memory);
    if (a->stage == FLASH_SM80_GATHERED)
        f80_gather_stage<C>(p, item->n, item->rows, first_row, j0, item->sight, (float *)stage);
    else
        f80_copy_stage<C>(p, item->n, item->rows, first_row, j0, shared_address(stage));
}

#endif
