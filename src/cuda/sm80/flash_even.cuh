/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The pass over the keys of an item for EVEN calls (struct f80): the loop of f80_pass with nothing in it but what
 * these calls need. Two warps a scheduler do not hide each other's stalls, so the time of a tile is near twice the
 * length of one warp's way through it: few branches, all alike for a warp (they come from votes, so the compiler keeps
 * no divergence), addresses made anew each tile before the barrier, no register kept for what is used once a tile.
 *
 * Each tile: the copies of the next one start; S = Q K^T, the rows' maxima taken as the last columns are done, or
 * after terms and masks; O and l are rescaled if a maximum of the warp's rows grew; e^(s - m), which ptxas mixes with
 * the products P V. With single buffers (256 columns) the tile's V is copied during Q K^T, the next K after it.
 *
 * Its arithmetic is that of f80_pass in the same order, bit for bit: an item that holds NaN or infinity is done again
 * there, and finite elements keep their bits.
 */
#ifndef QATTN_CUDA_FLASH_EVEN_CUH
#define QATTN_CUDA_FLASH_EVEN_CUH

#include "cuda/sm80/flash_memory.cuh"

/* Addresses for ldmatrix of the 16 rows and 16 columns at the start of a tile, of Q or V and of K; f80_fragment: of
 * the block number (row, column). Tiles start at multiples of 128 bytes, so columns flip bits that are the lane's. */
template <class C> __device__ __forceinline__ uint32_t f80_fragment_rows(uint32_t tile)
{
    const struct f80_lane x = f80_lane_rows<C>(tile);
    return x.base + x.flip;
}
template <class C> __device__ __forceinline__ uint32_t f80_fragment_keys(uint32_t tile)
{
    const struct f80_lane x = f80_lane_keys<C>(tile);
    return x.base + x.flip;
}
template <class C> __device__ __forceinline__ uint32_t f80_fragment(uint32_t first, int row, int column)
{
    return (first ^ (uint32_t)((column & 3) << 5)) + (column >> 2) * 128 + row * 16 * C::ROW_BYTES;
}

/* Where the thread's copies of a key tile go and come from; keys past `left` become zeros. */
struct f80_copies {
    uint32_t to;
    int left;
    const char *k, *v;
};

/* Key tile t. What of one past the last exists is copied too; nobody reads it. */
template <class C>
__device__ __forceinline__ struct f80_copies f80_copies_of(const struct flash_sm80_args *a, const struct f80_item *item,
                                                           int t, uint32_t tiles)
{
    const unsigned chunk = f80_thread() % C::CHUNKS, r = f80_thread() / C::CHUNKS;
    const int64_t key = (int64_t)t * C::BN + r;
    struct f80_copies x = { tiles + (t & (C::BUFFERS - 1)) * C::TILE_BYTES + f80_swizzle<C>(r, chunk),
                            item->sight.len_k - (int)key,
                            item->k_from + key * a->k_row_bytes + 16 * chunk,
                            item->v_from + key * a->v_row_bytes + 16 * chunk };
    return x;
}

/* Starts them, of K or of V: side by side, since each group of such copies costs a wait for the reads before it. */
template <class C>
__device__ __forceinline__ void f80_copy(uint32_t to, const char *from, int64_t row_bytes, int left)
{
#pragma unroll
    for (int r = 0; r < C::BN; r += C::PASS_ROWS) {
        cp_async_16_zfill(f80_below<C>(to, r), from, r < left ? 16 : 0);
        from += C::PASS_ROWS * row_bytes;
    }
}
template <class C>
__device__ __forceinline__ void f80_copy_k(const struct flash_sm80_args *a, const struct f80_copies &x)
{
    f80_copy<C>(x.to, x.k, a->k_row_bytes, x.left);
    if (C::BUFFERS == 1)
        cp_async_commit();
}
template <class C>
__device__ __forceinline__ void f80_copy_v(const struct flash_sm80_args *a, const struct f80_copies &x)
{
    f80_copy<C>(x.to + C::BUFFERS * C::TILE_BYTES, x.v, a->v_row_bytes, x.left);
    cp_async_commit();
}

/* At 128 columns O and S take 192 registers. */
template <class C> __device__ __forceinline__ constexpr bool f80_copies_late(void)
{
    return C::W != 128;
}

/* s = Q K^T; top: the thread's share of its rows' maxima with what it was. With all of Q in registers 16 keys are
 * done after 16 keys, and maxima lie among products; else columns after columns, so Q is read once. Copies, of the
 * next tile or of this tile's V, start among the products, where registers allow that. */
template <class C>
__device__ __forceinline__ void f80_scores(const struct flash_sm80_args *a, const struct f80_copies &copies,
                                           float (&s)[C::MB][C::BN / 8][4], const uint32_t (*q_kept)[C::MB][4],
                                           uint32_t q, uint32_t k, float (&top)[2 * C::MB])
{
    typedef typename C::type T;
    constexpr int blocks = C::BN / 16, pieces = C::W / 16, steps = blocks * pieces;
    constexpr bool keys_outside = C::QREG == pieces;
#pragma unroll
    for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
        for (int nb = 0; nb < C::BN / 8; nb++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[mb][nb][e] = 0.0f;
    uint32_t q_now[2][C::MB][4], b[2][4];
#pragma unroll
    for (int mb = 0; mb < C::MB; mb++)
        if (C::QREG == 0)
            ldmatrix_x4(q_now[0][mb], f80_fragment<C>(q, mb, 0));
    ldmatrix_x4(b[0], f80_fragment<C>(k, 0, 0));
#pragma unroll
    for (int step = 0; step < steps; step++) {
        const int n2 = keys_outside ? step / pieces : step % blocks, ks = keys_outside ? step % pieces : step / blocks;
        const int next = step + 1;
        if (next < steps)
            ldmatrix_x4(b[next & 1], keys_outside ? f80_fragment<C>(k, next / pieces, next % pieces)
                                                  : f80_fragment<C>(k, next % blocks, next / blocks));
        if (n2 == 0 && ks + 1 < pieces && ks + 1 >= C::QREG)
#pragma unroll
            for (int mb = 0; mb < C::MB; mb++)
                ldmatrix_x4(q_now[ks + 1 & 1][mb], f80_fragment<C>(q, mb, ks + 1));
#pragma unroll
        for (int mb = 0; mb < C::MB; mb++) {
            const uint32_t *const left = ks < C::QREG ? q_kept[ks][mb] : q_now[ks & 1][mb];
            mma_16816<T>(s[mb][2 * n2], left, b[step & 1]);
            mma_16816<T>(s[mb][2 * n2 + 1], left, b[step & 1] + 2);
        }
        if (f80_copies_late<C>() && C::BUFFERS == 2 && step == 0)
            f80_copy_k<C>(a, copies);
        if (f80_copies_late<C>() && step == (C::BUFFERS == 2 ? steps / 2 : 0))
            f80_copy_v<C>(a, copies);
        if (C::PLAIN && ks == pieces - 1 && n2 > 0)
            f80_top_block<C>(s, n2 - 1, top);
    }
    if (C::PLAIN)
        f80_top_block<C>(s, blocks - 1, top);
}

/* Key tiles that some row of the warp sees, first and end; that all of them see whole. */
template <class C> __device__ __forceinline__ int4 f80_tiles_seen(const struct f80_item *item)
{
    const int4 seen = f80_keys_seen<C>(item);
    const bool none = seen.x >= seen.y;
    return make_int4(seen.x / C::BN, none ? 0 : (seen.y + C::BN - 1) / C::BN, (seen.z + C::BN - 1) / C::BN,
                     seen.w / C::BN);
}

/* Key tile t for a warp that sees some of it; part: not all of it. */
template <class C>
__device__ __forceinline__ void f80_even_tile(const struct flash_sm80_args *a, const struct problem *p,
                                              const struct f80_item *item, int t, bool part,
                                              const struct f80_copies &copies, const uint32_t (*q_kept)[C::MB][4],
                                              uint32_t q, uint32_t k, uint32_t v_tile, char *memory,
                                              float (&o)[C::MB][C::W / 8][4], float (&m)[2 * C::MB],
                                              float (&l)[2 * C::MB])
{
    const int first_row = (f80_thread() >> 5) * 16 * C::MB;
    float s[C::MB][C::BN / 8][4], top[2 * C::MB], shift[2 * C::MB], from[2 * C::MB];
#pragma unroll
    for (int x = 0; x < 2 * C::MB; x++) {
        top[x] = m[x];
        shift[x] = 0.0f;
    }
    f80_scores<C>(a, copies, s, q_kept, q, k, top);
    if (!C::PLAIN) {
        cp_async_wait<1>(); /* bias and keep are there */
        __syncwarp();
        f80_terms<C>(a, p, f80_stage_of<C>(a, p, memory), f80_alibi<C>(p, memory), item->distance - t * C::BN,
                     item->scale, item->by_cap, first_row, s, shift);
    }
    if (part)
        f80_hide<C>(item->sight, item->rows, t * C::BN, first_row, s);
    if (!C::PLAIN || part)
        f80_tops<C>(s, m, top);
    if (C::BUFFERS == 1) { /* V is there, and nobody reads K any more */
        cp_async_wait<0>();
        __syncthreads();
        f80_copy_k<C>(a, f80_copies_of<C>(a, item, t + 1, v_tile - C::TILE_BYTES));
    }
    f80_settle<C>(a->to_log2, a->huge, top, shift, m, from, l, o, s);
    uint32_t pr[C::MB][C::BN / 16][4];
    f80_exponentials<C>(s, a->to_log2, from, l);
    f80_pack<C>(s, pr);
    f80_multiply_v<C>(o, pr, v_tile);
}

/* Starts the copies of an item's first tile and of Q. */
template <class C>
__device__ __forceinline__ void f80_even_begin(const struct flash_sm80_args *a, const struct problem *p,
                                                const struct f80_item *item, char *memory)
{
    const struct f80_copies copies =
        f80_copies_of<C>(a, item, item->first, shared_address(memory) + C::Q_BYTES);
    f80_copy_k<C>(a, copies);
    if (C::BUFFERS == 2)
        f80_copy_v<C>(a, copies);
    f80_load_q<C>(a, p, item->q_from, item->rows, item->queries, memory);
    cp_async_commit();
    if (!C::PLAIN)
        f80_fill_alibi<C>(a, p, item, memory);
}

/* O, maxima and sums of the warp's rows, after f80_even_begin. */
template <class C>
__device__ __forceinline__ void f80_even_pass(const struct flash_sm80_args *a, const struct problem *p,
                                              const struct f80_item *item, int4 *tiles_seen, char *memory,
                                              float (&o)[C::MB][C::W / 8][4], float (&m)[2 * C::MB],
                                              float (&l)[2 * C::MB])
{
    const uint32_t q_rows = shared_address(memory), tiles = q_rows + C::Q_BYTES;
    const int4 mine = f80_tiles_seen<C>(item);
    if ((f80_thread() & 31) == 0)
        tiles_seen[f80_thread() >> 5] = mine;
    f80_clear<C>(o, m, l);
    uint32_t q_kept[C::QREG > 0 ? C::QREG : 1][C::MB][4];
    if (C::QREG > 0) {
        cp_async_wait<0>();
        __syncwarp();
        f80_keep_q<C>(q_kept, q_rows + (f80_thread() >> 5) * 16 * C::MB * C::ROW_BYTES);
    }
    __syncwarp();
#pragma unroll 1
    for (int t = item->first; t < item->last; t++) {
        const int4 seen = tiles_seen[f80_thread() >> 5];
        const bool idle = C::BUFFERS == 2 && __any_sync(0xFFFFFFFFu, t < seen.x || t >= seen.y);
        const bool part = __any_sync(0xFFFFFFFFu, t < seen.z || t >= seen.w);
        const uint32_t here = tiles + (t & (C::BUFFERS - 1)) * C::TILE_BYTES;
        const uint32_t q = f80_fragment_rows<C>(q_rows + (f80_thread() >> 5) * 16 * C::MB * C::ROW_BYTES);
        const uint32_t k = f80_fragment_keys<C>(here);
        cp_async_wait<0>();
        __syncthreads();
        if (!C::PLAIN && a->stage != FLASH_SM80_NO_STAGE && !idle)
            f80_fill_stage<C>(a, p, item, (f80_thread() >> 5) * 16 * C::MB, t * C::BN, memory);
        const struct f80_copies copies = f80_copies_of<C>(a, item, C::BUFFERS == 2 ? t + 1 : t, tiles);
        if (!f80_copies_late<C>() || idle) {
            if (C::BUFFERS == 2)
                f80_copy_k<C>(a, copies);
            f80_copy_v<C>(a, copies);
        }
        if (!idle)
            f80_even_tile<C>(a, p, item, t, part, copies, q_kept, q, k, here + C::BUFFERS * C::TILE_BYTES, memory, o, m,
                             l);
    }
    cp_async_wait<0>();
}

#endif
