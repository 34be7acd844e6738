/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Attention in one pass on tensor cores: Q in f16 or bf16, sums in fp32, up to 256 columns.
 *
 * What one block does: an item, that is one tile of BM query rows of one KV head against the keys some row of it
 * sees, BN at a time, with the online softmax of the FlashAttention papers:
 *
 *     S [BM][BN]  = Q K^T                  mma.sync m16n8k16
 *     P           = e^(scale S - m)        after softcap, bias, ALiBi and masks; m is the running row maximum
 *     O [BM][W]   = O e^(m_old - m) + P V  P rounded once to 16 bits, still in the registers S came in
 *
 * The rows of a tile are (i, g): query row i of all heads of the group in turn, so K and V are read once for a group.
 *
 * Who does what: each warp owns 16 MB rows, with their S, P, O, maxima and sums in registers; nothing passes between
 * warps. With MB 2 every fragment of K and V serves two products: shared memory gives 128 bytes a cycle, and
 * fragments of one block of rows alone would ask for more than that. All threads copy K and V of the next tile
 * (cp.async) while this one is at work; one barrier a tile. A block of the even instances does one item
 * (flash_even.cuh); of the others several, and knows the next one and starts its copies before it ends one.
 *
 * At 256 columns plain calls have tiles of 64 rows and K and V one buffer each, so that two blocks share a
 * multiprocessor and one hides where the other's items begin and end: two barriers a tile.
 *
 * Shared memory, W 128, tiles of 64 keys: Q 32 KB (at the end O, on its way out); K and V 2 x 16 KB each: 96 KB, two
 * blocks a multiprocessor, as have plain calls at 256, 32 KB for each of the three. (General instances, tiles of 32
 * keys: 64 KB at 128, 128 KB at 256.) 16-byte chunks of a row are swizzled (f80_swizzle), so no reader meets a bank
 * conflict. 8-bit K and V lie in the second buffers until they are widened into the first ones. Behind the tiles:
 * places of paged keys, ALiBi slopes, bias and keep.
 *
 * Tiles are none, part or all visible, for each warp by itself: hidden ones are passed over, and only a tile that is
 * part visible compares positions (f80_hide).
 *
 * Three instances at width 128: plain (scale and positions alone), terms (otherwise as plain: flash_terms.cuh), both of
 * them even, and a general one for all the rest; plain and general at the others.
 *
 * Non-finite V (docs/numerics.md): O of the whole item is tested once, at its end. Only where it holds NaN or infinity
 * the item is done again, testing every tile of V (f80_expel): masks cost nothing for it. A plain item is written
 * before its block votes on that, and then once more.
 *
 * Bits: a row's result is a function of its own query, keys and positions. Key tiles start at multiples of BN; a
 * tile that a row does not see multiplies its O by 1 and adds 0.
 *
 * Read in this order: flash_tile.cuh (struct f80: the sizes W, MB, BM, BN; the two products and the softmax of a tile),
 * flash_even.cuh (its loop over key tiles; the general one is f80_pass below), flash_rows.cuh and flash_item.cuh (which
 * rows and keys an item has; which item a block does: f80_padded_work and f80_packed_work below), flash_load.cuh and
 * flash_memory.cuh (copies), flash_terms.cuh (scores beyond a scale), flash_store.cuh (the end of an item).
 *
 * Limit (H200): mma.sync reaches about 2750 operations a cycle and multiprocessor, and this kernel with two warps a
 * scheduler about 60 % of that: see docs/notes/cuda_sm80.md.
 */
#ifndef QATTN_CUDA_FLASH_SM80_CUH
#define QATTN_CUDA_FLASH_SM80_CUH

#include "cuda/sm80/flash_even.cuh"
#include "cuda/sm80/flash_memory.cuh"
#include "cuda/sm80/flash_store.cuh"

/* Width, blocks of 16 rows of a warp, warps, keys of a tile, pieces of Q in registers, blocks a multiprocessor. */
#define F80_TILE_64        64, 2, 4, 64, 0, 2
#define F80_TILE_128       128, 2, 4, 32, 0, 2
#define F80_TILE_256       256, 1, 8, 32, 0, 1
#define F80_TILE_128_TERMS 128, 2, 4, 64, 0, 2 /* as PLAIN */
#define F80_TILE_64_PLAIN  64, 2, 4, 64, 4, 2
#define F80_TILE_128_PLAIN 128, 2, 4, 64, 0, 2
#define F80_TILE_256_PLAIN 256, 1, 4, 64, 8, 2, true, 1 /* single buffers */

/* The descale of a whole sequence and KV head: the launcher admits no other kind. */
__device__ __forceinline__ float f80_descale(const struct problem *p, const struct seq *s, int kv_head,
                                             const struct descale *descale)
{
    return descale->kind == DESCALE_NONE ? 1.0f : seq_kv_descale(p, s, descale, kv_head / descale->head_div, 0, 0);
}

struct f80_work {
    int n, kv_head, tile, split;
};

/* Padded batches: items of `section` pairs (n, KV head) lie side by side; among them tiles go last to first, so that
 * under a causal mask the longest start first. The tiles below `low` come after those of all sections: short items, so
 * that all multiprocessors end together. */
__device__ __forceinline__ void f80_padded_work(const struct flash_sm80_args *a, unsigned x, struct f80_work *w)
{
    unsigned pair, row;
    w->split = 0;
    if (a->num_splits > 1) {
        w->split = (int)(x % (unsigned)a->num_splits);
        x /= (unsigned)a->num_splits;
    }
    if (x >= (unsigned)a->head) {
        x -= (unsigned)a->head;
        row = divide(x, a->by_pairs);
        pair = x - row * a->by_pairs.by;
        w->tile = a->low - 1 - (int)row;
    } else {
        const unsigned section = divide(x, a->by_section), first = section * (unsigned)a->section;
        const struct divisor &count =
            (unsigned)a->pairs - first < (unsigned)a->section ? a->by_last_count : a->by_count;
        x -= section * a->by_section.by;
        row = divide(x, count);
        pair = first + x - row * count.by;
        w->tile = a->tiles - 1 - (int)row;
    }
    w->n = (int)divide(pair, a->by_heads);
    w->kv_head = (int)(pair - (unsigned)w->n * a->by_heads.by);
}

/* Tiles of a packed batch's sequence that are this kernel's. */
template <int BM>
__device__ __forceinline__ int64_t f80_tiles_of(const struct flash_sm80_args *a, const struct problem *p, int64_t n)
{
    const struct seq s = seq_get(p, n);
    return s.len_q < a->least_rows ? 0 : (s.rows * p->group + BM - 1) / BM;
}

/* Packed batches: the tiles of all sequences in a row, of each the last first; of up to 32 sequences the longest
 * first. Work for a whole warp; false: no such item. */
template <int BM>
__device__ __forceinline__ bool f80_packed_work(const struct flash_sm80_args *a, const struct problem *p,
                                                unsigned index, struct f80_work *w)
{
    const int lane = threadIdx.x & 31, share = (int)((p->n + 31) / 32), first = lane * share;
    const int lanes = p->n < 32 ? (int)p->n : 32;
    w->split = 0;
    if (a->num_splits > 1) {
        w->split = (int)(index % (unsigned)a->num_splits);
        index /= (unsigned)a->num_splits;
    }
    const unsigned slot = divide(index, a->by_heads);
    w->kv_head = (int)(index - slot * a->by_heads.by);
    int64_t sum = 0;
    for (int n = first; n < first + share && n < p->n; n++)
        sum += f80_tiles_of<BM>(a, p, n);
    /* lengths that overlap may add up to more, and `start` may wrap: some rows are then not written */
    const unsigned own = (unsigned)(sum < INT32_MAX ? sum : INT32_MAX);
    unsigned start = 0;
#pragma unroll 4
    for (int other = 0; other < lanes; other++) {
        const unsigned theirs = __shfl_sync(0xFFFFFFFFu, own, other);
        const bool before = share > 1 ? other < lane : theirs > own || (theirs == own && other < lane);
        start += before ? theirs : 0;
    }
    const bool mine = slot >= start && slot - start < own;
    const unsigned vote = __ballot_sync(0xFFFFFFFFu, mine);
    if (vote == 0)
        return false;
    int n = first, tile = 0;
    if (mine) {
        int64_t left = slot - start, tiles = own; /* with a share of 1 the lane has one sequence */
        while (share > 1 && left >= (tiles = f80_tiles_of<BM>(a, p, n))) {
            left -= tiles;
            n++;
        }
        tile = (int)(tiles - 1 - left);
    }
    w->n = __shfl_sync(0xFFFFFFFFu, n, __ffs(vote) - 1);
    w->tile = __shfl_sync(0xFFFFFFFFu, tile, __ffs(vote) - 1);
    return true;
}

/* Item `index`: work for a whole warp; false: no such item. */
template <int BM>
__device__ __forceinline__ bool f80_find(const struct flash_sm80_args *a, const struct problem *p, int64_t index,
                                         struct f80_work *w)
{
    if (index >= a->work)
        return false;
    if (p->cu_seqlens_q)
        return f80_packed_work<BM>(a, p, (unsigned)index, w);
    f80_padded_work(a, (unsigned)index, w);
    return true;
}

/* Describes an item of a call whose numbers are all small (a->near): the general way takes 1100 cycles more, with
 * nothing to do for the block but wait (docs/notes/cuda_sm80.md). GROUPED: heads of a group may be rows of the tile,
 * and rows may be dead. */
template <class C, bool GROUPED>
__device__ __forceinline__ void f80_describe_near(const struct flash_sm80_args *a, const struct problem *p,
                                                  const struct f80_work &w, const struct f80_sequence &s,
                                                  struct f80_item *item)
{
    const unsigned row0 = (unsigned)w.tile * C::BM, group = GROUPED ? a->by_group.by : 1;
    const int i0 = (int)(GROUPED ? divide(row0, a->by_group) : row0), rest = (int)(row0 - (unsigned)i0 * group);
    const int last = s.len_q - 1 - i0, last_row = (int)(GROUPED ? divide(rest + C::BM - 1, a->by_group) : C::BM - 1);
    const int len_k = !GROUPED || last >= 0 ? s.len_k : 0;
    const int begin = min(max(s.begin0 + i0, 0), len_k), end = min(max(s.end0 + i0 + min(last_row, last), 0), len_k);
    const bool sees = end > begin && (!GROUPED || s.len_q >= a->least_rows);
    item->rows.i0 = i0;
    item->rows.h0 = (int64_t)w.kv_head * group;
    item->rows.rest = (unsigned)rest;
    item->rows.group = a->by_group;
    item->sight.begin0 = s.begin0 + i0;
    item->sight.end0 = s.end0 + i0;
    item->sight.len_k = len_k;
    item->sight.last = last;
    item->first = sees ? begin / C::BN : 0;
    item->last = sees ? (end + C::BN - 1) / C::BN : 0;
    item->queries = min((last + 1) * (int)group - rest, C::BM);
    item->rows_written = item->queries;
    if (GROUPED) {
        item->queries = max(item->queries, 0);
        item->rows_written =
            s.len_q < a->least_rows ? 0 : min(max((s.rows - i0) * (int)group - rest, 0), C::BM);
    }
    item->k_from = view_at(&p->k, s.k_batch, w.kv_head, s.k_row, 0);
    item->v_from = view_at(&p->v, s.k_batch, w.kv_head, s.k_row, 0);
    item->q_from = view_at(&p->q, s.q_batch, 0, s.q_row, 0);
    item->q_batch = s.q_batch;
    item->q_row = s.q_row;
    item->scale = p->scale;
    item->v_descale = 1.0f;
}

/* Describes item `index`: work for the first warp. */
template <class C>
__device__ __forceinline__ void f80_describe(const struct flash_sm80_args *a, const struct problem *p, int64_t index,
                                             struct f80_item *item)
{
    struct f80_work w = { 0, 0, 0, 0 };
    const bool found = f80_find<C::BM>(a, p, index, &w);
    if ((threadIdx.x & 31) != 0)
        return;
    item->found = found;
    if (!found)
        return;
    const struct seq s = seq_get(p, w.n);
    const struct f80_rows rows = f80_rows_of(a, w.tile, w.kv_head, C::BM);
    const bool ours = s.len_q >= a->least_rows;
    struct f80_sight sight = f80_sight_of(p, &s, rows.i0);
    int begin, end, ignored, first = 0, last = 0;
    f80_see(sight, rows, 0, &begin, &ignored);
    f80_see(sight, rows, C::BM - 1, &ignored, &end);
    if (ours && end > begin) {
        first = begin / C::BN;
        last = (end + C::BN - 1) / C::BN;
    }
    if (a->num_splits > 1) {
        const int64_t share = (last - first + a->num_splits - 1) / a->num_splits, from = first + w.split * share;
        last = from + share < last ? (int)(from + share) : last;
        first = from < last ? (int)from : last;
    }
    const float k_descale = f80_descale(p, &s, w.kv_head, &p->k_descale);
    const int64_t far = INT64_MAX - (INT64_C(1) << 34);
    const bool paged = p->page_table != NULL;
    item->rows = rows;
    item->sight = sight;
    item->k_from = view_at(&p->k, paged ? 0 : s.k_batch, w.kv_head, paged ? 0 : s.k_row, 0);
    item->v_from = view_at(&p->v, paged ? 0 : s.k_batch, w.kv_head, paged ? 0 : s.k_row, 0);
    item->q_from = view_at(&p->q, s.q_batch, 0, s.q_row, 0);
    item->q_batch = s.q_batch;
    item->q_row = s.q_row;
    item->distance = rows.i0 + clamp64(s.offset, -far, far); /* no sum of it wraps */
    item->scale = p->scale * k_descale;
    item->by_cap = item->scale; /* NaN and infinity remain */
    if (is_finite(item->scale))
        item->by_cap = p->softcap == 0.0f ? 0.0f : fminf(fmaxf(item->scale / p->softcap, -FLT_MAX), FLT_MAX);
    item->v_descale = f80_descale(p, &s, w.kv_head, &p->v_descale);
    item->n = w.n;
    item->split = w.split;
    item->rows_written =
        ours ? (int)clamp64(clamp64(s.rows - rows.i0, 0, C::BM) * rows.group.by - rows.rest, 0, C::BM) : 0;
    item->queries = (int)clamp64(clamp64(s.len_q - rows.i0, 0, C::BM) * rows.group.by - rows.rest, 0, C::BM);
    item->first = first;
    item->last = last;
}

/* One pass over the keys of an item, whose Q and first key tile are on their way to shared memory. CAREFUL: V may hold
 * NaN or infinity that some row must not see, or bias may hide a score that is. */
template <class C>
__device__ __forceinline__ void f80_pass(const struct flash_sm80_args *a, const struct problem *p,
                                         const struct f80_item *item, int4 *bounds, char *memory,
                                         float (&o)[C::MB][C::W / 8][4], float (&m)[2 * C::MB], float (&l)[2 * C::MB])
{
    const int4 mine = f80_keys_seen<C>(item);
    if ((threadIdx.x & 31) == 0)
        bounds[threadIdx.x >> 5] = mine;
    f80_clear<C>(o, m, l);

    uint32_t q_kept[C::QREG > 0 ? C::QREG : 1][C::MB][4];
#pragma unroll 1
    for (int t = item->first; t < item->last; t++) {
        if (C::BUFFERS == 1 && t > item->first) {
            __syncthreads();
            f80_load_kv<C>(a, p, item, t, memory);
        }
        cp_async_wait<0>();
        __syncthreads();
        const int warp = f80_thread() >> 5, first_row = warp * 16 * C::MB, j0 = t * C::BN;
        const uint32_t q_warp = shared_address(memory) + first_row * C::ROW_BYTES;
        const int4 seen = bounds[warp];
        const bool more = C::BUFFERS == 2 && t + 1 < item->last, active = j0 < seen.y && j0 + C::BN > seen.x;
        if (C::QREG > 0 && t == item->first)
            f80_keep_q<C>(q_kept, q_warp);
        const int buffer = !C::EVEN && p->k.itemsize == 1 ? 0 : t & (C::BUFFERS - 1);
        char *const k_tile = memory + C::Q_BYTES + buffer * C::TILE_BYTES;
        char *const v_tile = k_tile + C::BUFFERS * C::TILE_BYTES;
        if (!C::EVEN && p->k.itemsize == 1) {
            f80_widen_tile<C>(k_tile, k_tile + C::TILE_BYTES, p->k.dtype);
            f80_widen_tile<C>(v_tile, v_tile + C::TILE_BYTES, p->v.dtype);
            __syncthreads();
        }
        if (!C::PLAIN && a->stage != FLASH_SM80_NO_STAGE && active)
            f80_fill_stage<C>(a, p, item, first_row, j0, memory);
        if (more) {
            f80_load_kv<C>(a, p, item, t + 1, memory);
            if (p->page_table && t + 2 < item->last)
                f80_place_keys<C::BN>(p, item->n, item->sight.len_k, (t + 2) * C::BN,
                                      f80_places<C>(memory) + (t & 1) * C::BN);
        }

        const float to_log2 = a->to_log2;
        float sc[C::MB][C::BN / 8][4], shift[2 * C::MB];
#pragma unroll C::UNROLL
        for (int x = 0; x < 2 * C::MB; x++)
            shift[x] = 0.0f;
        if (active) {
            f80_multiply_k<C>(sc, q_kept, q_warp, shared_address(k_tile));
            if (!C::PLAIN && a->terms) {
                if (more)
                    cp_async_wait<1>(); /* bias and keep are there */
                else
                    cp_async_wait<0>();
                __syncwarp();
                f80_terms<C>(a, p, f80_stage_of<C>(a, p, memory), f80_alibi<C>(p, memory), item->distance - j0,
                             item->scale, item->by_cap, first_row, sc, shift);
            }
            if (j0 < seen.z || j0 + C::BN > seen.w)
                f80_hide<C>(item->sight, item->rows, j0, first_row, sc);
        }
        if (C::CAREFUL)
            f80_expel<C>(sc, shift, active, v_tile, o);
        if (active) {
            float top[2 * C::MB], from[2 * C::MB];
            f80_tops<C>(sc, m, top);
            f80_settle<C>(to_log2, a->huge, top, shift, m, from, l, o, sc);
            f80_exponentials<C>(sc, to_log2, from, l);
            uint32_t pr[C::MB][C::BN / 16][4];
            f80_pack<C>(sc, pr);
            f80_multiply_v<C>(o, pr, shared_address(v_tile));
        }
    }
    cp_async_wait<0>();
}

template <class C> struct f80_sums {
    float o[C::MB][C::W / 8][4], m[2 * C::MB], l[2 * C::MB];
};

/* The same again for an item whose O holds NaN or infinity, out of the way of the registers of the first pass. */
template <class C>
__device__ __noinline__ void f80_pass_again(const struct flash_sm80_args *a, const struct problem *p,
                                            const struct f80_item *item, int4 *bounds, char *memory,
                                            struct f80_sums<C> *sums)
{
    f80_begin<C>(a, p, item, memory);
    f80_pass<f80_careful<C>>(a, p, item, bounds, memory, sums->o, sums->m, sums->l);
    __syncthreads();
}

/* The sums of an item that holds NaN or infinity become those of a second pass. */
template <class C>
__device__ __forceinline__ void f80_mend(const struct flash_sm80_args *a, const struct problem *p,
                                         const struct f80_item *item, int4 *bounds, char *memory,
                                         float (&o)[C::MB][C::W / 8][4], float (&m)[2 * C::MB], float (&l)[2 * C::MB])
{
    struct f80_sums<C> sums;
    f80_pass_again<C>(a, p, item, bounds, memory, &sums);
#pragma unroll
    for (int x = 0; x < 2 * C::MB; x++) {
        m[x] = sums.m[x];
        l[x] = sums.l[x];
#pragma unroll
        for (int nb = 0; nb < C::W / 8; nb++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                o[x >> 1][nb][2 * (x & 1) + e] = sums.o[x >> 1][nb][2 * (x & 1) + e];
    }
}

/* The item is done and written again. O may have gone through the rows of Q. */
template <class C>
__device__ __noinline__ void f80_write_again(const struct flash_sm80_args *a, const struct problem *p,
                                             const struct f80_item *item, int4 *bounds, char *memory)
{
    struct f80_sums<C> sums;
    f80_load_q<C>(a, p, item->q_from, item->rows, item->queries, memory);
    cp_async_commit();
    f80_pass_again<C>(a, p, item, bounds, memory, &sums);
    f80_write<f80_careful<C>>(a, p, item, memory, sums.o, sums.m, sums.l);
}

/* Some element of O is NaN or infinite. */
template <class C> __device__ __forceinline__ bool f80_is_bad(const float (&o)[C::MB][C::W / 8][4])
{
    float probe[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
#pragma unroll
    for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
        for (int nb = 0; nb < C::W / 8; nb++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                probe[e] = __fmaf_rn(o[mb][nb][e], 0.0f, probe[e]);
    return !((probe[0] + probe[1]) + (probe[2] + probe[3]) == 0.0f);
}

/* Items of a block: with the rounds of the grid, every second one backwards, so that long and short ones even out. */
__device__ __forceinline__ int64_t f80_index(int round)
{
    return (int64_t)round * gridDim.x + (round & 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

/* By all threads, each for itself: describes an item whose numbers are small and starts its copies. */
template <class C, bool GROUPED>
__device__ __forceinline__ void f80_start_near(const struct flash_sm80_args *a, const struct problem *p,
                                               const struct f80_work &w, const struct f80_sequence &s,
                                               struct f80_shared *sh, char *memory)
{
    struct f80_item item = { 0 };
    f80_describe_near<C, GROUPED>(a, p, w, s, &item);
    f80_even_begin<C>(a, p, &item, memory);
    if (threadIdx.x == 0)
        sh->item[0] = item;
    __syncthreads();
}

/* EVEN: a block does one item. Common plain calls come first, each kind with code of its own: at its start a block only
 * waits for instructions. */
template <class C>
__device__ __forceinline__ void f80_even_item(const struct flash_sm80_args *a, const struct problem *p,
                                              struct f80_shared *sh, char *memory)
{
    struct f80_work w;
    if (C::PLAIN && a->alike) {
        struct f80_sequence s = a->sequence;
        f80_padded_work(a, blockIdx.x, &w);
        s.q_batch = s.k_batch = w.n;
        f80_start_near<C, false>(a, p, w, s, sh, memory);
    } else if (C::PLAIN && a->near) {
        if (!f80_find<C::BM>(a, p, blockIdx.x, &w))
            return;
        const struct seq s = seq_get(p, w.n);
        f80_start_near<C, true>(a, p, w, f80_sequence_of(p, &s), sh, memory);
    } else {
        if (threadIdx.x < 32)
            f80_describe<C>(a, p, blockIdx.x, &sh->item[0]);
        __syncthreads();
        if (!sh->item[0].found)
            return;
        f80_even_begin<C>(a, p, &sh->item[0], memory);
    }
    float o[C::MB][C::W / 8][4], m[2 * C::MB], l[2 * C::MB];
    f80_even_pass<C>(a, p, &sh->item[0], sh->bounds, memory, o, m, l);
    const bool bad = f80_is_bad<C>(o);
    if (!C::PLAIN && __syncthreads_or(bad))
        f80_mend<C>(a, p, &sh->item[0], sh->bounds, memory, o, m, l);
    f80_write<C>(a, p, &sh->item[0], memory, o, m, l);
    if (C::PLAIN && __syncthreads_or(bad))
        f80_write_again<C>(a, p, &sh->item[0], sh->bounds, memory);
}

/* The others: a block does several. While one is at work, the next is described and its copies start. */
template <class C>
__device__ __forceinline__ void f80_items(const struct flash_sm80_args *a, const struct problem *p,
                                          struct f80_shared *sh, char *memory)
{
    if (threadIdx.x == 0)
        sh->round = 0;
    if (threadIdx.x < 32)
        f80_describe<C>(a, p, f80_index(0), &sh->item[0]);
    __syncthreads();
    if (!sh->item[0].found)
        return;
    f80_begin<C>(a, p, &sh->item[0], memory);
    f80_load_q<C>(a, p, sh->item[0].q_from, sh->item[0].rows, sh->item[0].queries, memory);
    cp_async_commit();
#pragma unroll 1
    for (;;) {
        const int soon = (sh->round + 1) % 3;
        const struct f80_item *const item = &sh->item[sh->round % 3], *const next = &sh->item[soon];
        if (threadIdx.x < 32) /* while the first copies are under way */
            f80_describe<C>(a, p, f80_index(sh->round + 1), &sh->item[soon]);
        float o[C::MB][C::W / 8][4], m[2 * C::MB], l[2 * C::MB];
        f80_pass<C>(a, p, item, sh->bounds, memory, o, m, l);
        if (__syncthreads_or(f80_is_bad<C>(o)))
            f80_mend<C>(a, p, item, sh->bounds, memory, o, m, l);
        const bool more = next->found;
        if (more)
            f80_begin<C>(a, p, next, memory);
        f80_write<C>(a, p, item, memory, o, m, l);
        if (!more)
            return;
        __syncwarp();
        f80_load_q<C>(a, p, next->q_from, next->rows, next->queries, memory);
        cp_async_commit();
        __syncthreads();
        if (threadIdx.x == 0)
            sh->round++;
        __syncthreads();
    }
}

template <class C>
__global__ void __launch_bounds__(C::THREADS, C::CTAS)
    flash_sm80_kernel(const __grid_constant__ struct flash_sm80_args args,
                      const __grid_constant__ struct problem_param packed)
{
    extern __shared__ __align__(128) char memory[];
    __shared__ struct f80_shared sh;
    wait_for_predecessor();
    if (C::EVEN)
        f80_even_item<C>(&args, problem_of(&packed), &sh, memory);
    else
        f80_items<C>(&args, problem_of(&packed), &sh, memory);
}

template <class C> static struct flash_sm80_kernel f80_kernel(void)
{
    struct flash_sm80_kernel k;
    k.kernel = (const void *)flash_sm80_kernel<C>;
    k.rows = C::BM;
    k.keys = C::BN;
    k.one_item = C::EVEN;
    k.threads = C::THREADS;
    k.blocks = C::CTAS;
    k.shared_bytes = C::SHARED;
    k.static_bytes = sizeof(struct f80_shared);
    return k;
}

#endif
