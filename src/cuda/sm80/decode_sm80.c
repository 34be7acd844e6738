/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Launcher of decode_sm80.cuh and decode_direct.cuh: splits, shared memory, workspace, and how the splits' parts come
 * together. */
#include "cuda/sm80/decode_sm80.h"

#include <limits.h>
#include <stdio.h>

#include "cuda/common/arrive.h"
#include "cuda/launch.h"
#include "cuda/sizes.h"
#include "cuda/sm80/decode_splits.h"

enum {
    STAGES = 3,                     /* units under way for each warp */
    JOIN_ROWS = 16,                 /* whose parts one block adds at once */
    MAX_WIDTH = 256, NARROW = 128,  /* of O: the kernel's two instances over 16 bits */
    MAX_KEYS = INT_MAX - 1024
};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---------------------------------------------------------------- shared memory */

/* 16-byte pieces of a row of `width` elements in shared memory: whole steps. */
static int32_t pieces_of(int64_t width, int32_t itemsize)
{
    return (int32_t)blocks_of(width, DECODE_STEP) * (DECODE_STEP / 16) * itemsize;
}

/* Bytes from row to row of Q: an odd number of pieces. Of K and V: whole lines of 128 bytes. */
static int32_t q_pitch_of(int64_t width) { return 16 * (pieces_of(width, 2) | 1); }
static int32_t pitch_of(int64_t width, int32_t itemsize) { return (pieces_of(width, itemsize) + 7) / 8 * 128; }

static int32_t lanes_of(int64_t width, int32_t itemsize)
{
    const int32_t pieces = pieces_of(width, itemsize);
    int32_t lanes = 0;
    while (1 << lanes < pieces)
        lanes++;
    return lanes;
}

static size_t shared_bytes(const struct problem *p, struct decode_sm80_args *a, int32_t row_tiles)
{
    const size_t ring = (size_t)(DECODE_WARPS * a->stages * DECODE_UNIT) * (size_t)(a->k_pitch + a->v_pitch);
    const size_t merge = DECODE_WARPS * 16 * (size_t)(blocks_of(p->dv, DECODE_STEP) * DECODE_STEP + 8) * sizeof(float);
    a->q_offset = (int32_t)(ring > merge ? ring : merge);
    a->row_offset = a->q_offset + row_tiles * 16 * a->q_pitch;
    return (size_t)a->row_offset + (size_t)(row_tiles * 16 * DECODE_ROW_BYTES);
}

/* Rows kept of a sequence, and shared memory: as many stages as leave room for two blocks a multiprocessor (`whole`),
 * or for one (`limit`); false: not even one stage. */
static bool size_shared(const struct problem *p, struct decode_plan *plan, size_t limit, size_t whole)
{
    struct decode_sm80_args *const a = &plan->args;
    int64_t rows;
    a->part_rows = FLASH_SM80_DECODE_ROWS;
    if (!__builtin_mul_overflow(p->cap_q, p->group, &rows) && rows < a->part_rows)
        a->part_rows = (int32_t)rows;
    a->q_pitch = q_pitch_of(p->d);
    a->k_pitch = pitch_of(p->d, p->k.itemsize);
    a->v_pitch = pitch_of(p->dv, p->k.itemsize);
    for (int blocks = 2; blocks > 0; blocks--)
        for (a->stages = STAGES; a->stages > 0; a->stages--) {
            plan->shared_bytes = shared_bytes(p, a, 1 << decode_tiles_log2(a->part_rows));
            const size_t each = plan->shared_bytes + DECODE_STATIC_BYTES;
            if (each <= limit && each * (size_t)blocks <= whole)
                return true;
        }
    return false;
}

/* ---------------------------------------------------------------- what the kernel takes */

static bool is_half(int32_t dtype) { return dtype == QATTN_DTYPE_F16 || dtype == QATTN_DTYPE_BF16; }

/* A descale that varies along D cannot be taken out of a product over D. */
static bool along_d(const struct descale *ds) { return ds->kind != DESCALE_NONE && ds->t.shape[3] > 1; }

/* Sequences times KV heads, times rows or splits, fit 31 bits; so do a unit and two chunks of each split after it. */
static bool few_items(const struct problem *p)
{
    const int64_t most = p->num_splits > FLASH_SM80_DECODE_ROWS ? p->num_splits : FLASH_SM80_DECODE_ROWS;
    int64_t items;
    return !__builtin_mul_overflow(p->n, p->hq / p->group, &items) && items <= INT_MAX / most &&
           p->num_splits <= INT_MAX / (4 * DIRECT_WARPS);
}

bool qattn__sm80_decode_supports(const struct problem *p, char *why, size_t cap)
{
    struct decode_plan plan = { 0 };
    int limit = 0;
    if (!is_half(p->q.dtype))
        snprintf(why, cap, "needs f16 or bf16 q");
    else if (p->d > MAX_WIDTH || p->dv > MAX_WIDTH)
        snprintf(why, cap, "takes D and Dv up to %d", MAX_WIDTH);
    else if (p->cap_k > MAX_KEYS || !few_items(p))
        snprintf(why, cap, "counts keys and blocks in 31 bits");
    else if (along_d(&p->k_descale))
        snprintf(why, cap, "k_descale varies along D");
    else if (along_d(&p->v_descale) && p->v_descale.kind != DESCALE_SEQUENCE)
        snprintf(why, cap, "v_descale varies along D and along keys");
    else if (qattn__cuda_attribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, p->device_id) != QATTN_OK ||
             !size_shared(p, &plan, (size_t)limit, (size_t)limit))
        snprintf(why, cap, "needs %zu bytes of shared memory a block, and the device has %d", plan.shared_bytes, limit);
    else
        return true;
    return false;
}

static struct decode_tensor tensor_of(const struct view *x)
{
    int64_t bytes[3];
    for (int axis = 0; axis < 3; axis++)         /* wraps where no row lies */
        bytes[axis] = (int64_t)((uint64_t)x->stride[axis] * (uint64_t)x->itemsize);
    return (struct decode_tensor){ x->data, bytes[0], bytes[1], bytes[2] };
}

/* V is the beginning of K's rows, as in MLA. */
static bool v_within_k(const struct problem *p)
{
    if (p->v.data != p->k.data || p->dv > p->d || p->v.dtype != p->k.dtype)
        return false;
    for (int axis = 0; axis < 3; axis++)
        if (p->v.stride[axis] != p->k.stride[axis])
            return false;
    return p->v.stride[3] == p->k.stride[3] || p->dv <= 1;
}

/* ---------------------------------------------------------------- plan */

/* Splits and warps for a device with `places` places for warps. The length is the capacity, the true ones are in device
 * memory. */
static struct decode_choice choose(const struct problem *p, int64_t items, int64_t places, int32_t part_rows,
                                   uint32_t most_warps)
{
    const int64_t units = blocks_of(p->cap_k, DECODE_UNIT);
    const struct decode_demand demand = { (uint32_t)items, (uint32_t)units, (uint32_t)decode_tiles_log2(part_rows),
                                          (uint32_t)places, most_warps };
    const struct decode_choice none = { 1, DECODE_WARPS };
    if (p->num_splits > 0)
        return (struct decode_choice){ (uint32_t)p->num_splits,
                                       items * p->num_splits <= places / most_warps ? most_warps : DECODE_WARPS };
    return items > 0 && items <= 8 * places / DECODE_WARPS && units > 0 ? qattn__decode_choose(&demand) : none;
}

/* The workspace is sized for the whole device: a context with fewer multiprocessors has no more splits. `blocks` of
 * DECODE_WARPS find place on a multiprocessor. */
static int32_t plan_splits(const struct problem *p, struct decode_sm80_args *a, int64_t items, int64_t blocks,
                           uint32_t most_warps)
{
    int all = 0, own = 0;
    QATTN_TRY(qattn__cuda_attribute(&all, cudaDevAttrMultiProcessorCount, p->device_id));
    QATTN_TRY(qattn__cuda_multiprocessors(&own, p->device_id));
    struct decode_choice x = choose(p, items, DECODE_WARPS * blocks * all, a->part_rows, most_warps);
    if (own < all) {
        const struct decode_choice less = choose(p, items, DECODE_WARPS * blocks * own, a->part_rows, most_warps);
        x.warps = less.warps;
        x.splits = less.splits < x.splits ? less.splits : x.splits;
    }
    a->cut.num_splits = (int32_t)x.splits;
    a->cut.warps_log2 = __builtin_ctz(x.warps);
    a->cut.exact = p->num_splits > 0;
    return QATTN_OK;
}

static size_t rounded(size_t bytes) { return bytes > SIZE_MAX / 8 ? SIZE_MAX / 8 : (bytes + 15) / 16 * 16; }

static void size_parts(const struct problem *p, struct decode_plan *plan)
{
    const size_t items = (size_t)plan->items;
    struct decode_sm80_args *const a = &plan->args;
    a->part_pitch = (int32_t)(p->dv + 3) / 4 * 4;
    if (a->cut.num_splits == 1)
        return;
    plan->few =
        a->cut.num_splits < ARRIVE_MOST && (a->part_rows <= JOIN_ROWS || !decode_sm80_takes(p->cap_q, p->group));
    const size_t rows = times(times(items, (size_t)a->cut.num_splits), (size_t)a->part_rows);
    plan->parts_bytes = rounded(times(rows, (size_t)a->part_pitch * sizeof(float)));
    plan->ml_bytes = rounded(times(rows, 2 * sizeof(float)));
    const size_t words = plan->few ? rounded(times(items, sizeof *a->words)) : 0;
    plan->bytes = plan->parts_bytes + plan->ml_bytes + words;
    if (plan->bytes > SIZE_MAX / 8)
        plan->bytes = SIZE_MAX;
}

/* Where nothing depends on the sequence, or only how many keys it has, all of which its rows see, blocks need not look
 * it up. */
static void set_alike(const struct problem *p, struct decode_sm80_args *a)
{
    const int64_t rows = p->q.shape[2] < p->cap_q ? p->q.shape[2] : p->cap_q;
    const bool sees_all = !p->window && (!p->causal || (rows == 1 && p->position == POSITION_BOTTOM_RIGHT));
    if (p->cu_seqlens_q || p->cu_seqlens_k || p->seqused_q || p->q_offsets || (p->seqused_k && !sees_all))
        return;
    a->seq = (struct seq){ .rows = rows, .len_q = rows, .len_k = p->cap_k };
    a->seq.offset = seq_offset(p, 0, a->seq.len_q, a->seq.len_k);
    a->range = decode_range_of(p, &a->seq, a->longest, &a->cut);
    a->alike = a->range.rows <= 0 ? DECODE_UNLIKE : p->seqused_k ? DECODE_ALIKE_BUT_KEYS : DECODE_ALIKE;
}

/* The shapes of decode_direct.cuh. Which kernel runs is a matter of strides too; how many splits there are is not. */
static bool direct_shapes(const struct problem *p, const struct decode_sm80_args *a)
{
    return p->k.itemsize == 2 && p->d == p->dv && (p->d == 64 || p->d == 128) && a->part_rows <= DIRECT_ROWS &&
           a->whole;
}

static const void *general_kernel(const struct problem *p)
{
    const bool bytes = p->k.itemsize == 1, wide = p->dv > NARROW;
    return p->q.dtype == QATTN_DTYPE_F16 ? qattn__decode_f16(bytes, wide) : qattn__decode_bf16(bytes, wide);
}

static const void *direct_kernel(const struct problem *p)
{
    return p->q.dtype == QATTN_DTYPE_F16 ? qattn__decode_direct_f16(p->d == 64) : qattn__decode_direct_bf16(p->d == 64);
}

/* What the workspace is a matter of: splits and rows. The direct kernel has DIRECT_WARPS a multiprocessor, the general
 * one two blocks where shared memory lets them. */
int32_t qattn__sm80_decode_plan(const struct problem *p, struct decode_plan *plan)
{
    int limit = 0, whole = 0;
    *plan = (struct decode_plan){ .items = p->n * (p->hq / p->group) };
    struct decode_sm80_args *const a = &plan->args;
    QATTN_TRY(qattn__cuda_attribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, p->device_id));
    QATTN_TRY(qattn__cuda_attribute(&whole, cudaDevAttrMaxSharedMemoryPerMultiprocessor, p->device_id));
    QATTN_REQUIRE(size_shared(p, plan, (size_t)limit, (size_t)whole), QATTN_ERR_INTERNAL,
                  "decode needs %zu bytes of shared memory", plan->shared_bytes);
    const int64_t room = whole / (int64_t)(plan->shared_bytes + DECODE_STATIC_BYTES);
    a->whole = !p->page_table || p->page_size % DECODE_UNIT == 0;
    const bool fits = direct_shapes(p, a);
    QATTN_TRY(plan_splits(p, a, plan->items, fits ? DIRECT_WARPS / DECODE_WARPS : room < 2 ? 1 : 2,
                          fits ? DIRECT_WARPS : DECODE_WARPS));
    size_parts(p, plan);
    return QATTN_OK;
}

/* All else that the kernel is told; addresses matter here. */
static void fill_args(const struct problem *p, struct decode_sm80_args *a, bool direct)
{
    a->q = tensor_of(&p->q);
    a->k = tensor_of(&p->k);
    a->v = tensor_of(&p->v);
    a->o = tensor_of(&p->o);
    a->q_vector = rows_of_16_bytes(&p->q);
    a->k_vector = rows_of_16_bytes(&p->k);
    a->v_vector = rows_of_16_bytes(&p->v);
    a->o_vector = rows_of_16_bytes(&p->o) && p->dv % 4 == 0;
    a->q_lanes = lanes_of(p->d, 2);
    a->k_lanes = lanes_of(p->d, p->k.itemsize);
    a->v_lanes = lanes_of(p->dv, p->k.itemsize);
    a->v_in_k = v_within_k(p);
    a->v_pitch = a->v_in_k ? 0 : a->v_pitch;
    a->page_size = (int32_t)smaller(p->page_size, INT_MAX);
    a->page_shift =
        a->page_size > 0 && (a->page_size & (a->page_size - 1)) == 0 ? __builtin_ctz((unsigned)a->page_size) : -1;
    a->last_page = p->page_table ? (int32_t)smaller(p->num_pages - 1, INT_MAX) : 0; /* tables have 32 bits */
    a->terms = p->bias.dtype || p->keep.dtype || p->alibi_slopes;
    a->cap_k = (int32_t)p->cap_k;
    a->longest = (int32_t)(FLASH_SM80_DECODE_ROWS / p->group);
    a->by_heads = divisor_of(p->hq / p->group);
    a->by_group = divisor_of(p->group);
    a->by_splits = divisor_of(a->cut.num_splits);
    if (!direct)
        a->cut.warps_log2 = __builtin_ctz(DECODE_WARPS);
    set_alike(p, a);
}

/* ---------------------------------------------------------------- launches */

static int32_t launch_combine(const struct decode_plan *plan, void **params, qattn_stream stream)
{
    const int64_t blocks = plan->items * blocks_of(plan->args.part_rows, DECODE_COMBINE_THREADS / 32);
    return qattn__cuda_launch(qattn__decode_combine(), blocks, DECODE_COMBINE_THREADS, 0, params, stream,
                              "decode_combine");
}

int32_t qattn__sm80_decode_load(const struct problem *p)
{
    struct decode_plan plan;
    QATTN_TRY(qattn__sm80_decode_plan(p, &plan));
    QATTN_TRY(qattn__cuda_load(general_kernel(p)));
    if (direct_shapes(p, &plan.args)) /* which one runs is a matter of alignment */
        QATTN_TRY(qattn__cuda_load(direct_kernel(p)));
    QATTN_TRY(qattn__cuda_load(qattn__decode_combine()));
    return QATTN_OK;
}

int32_t qattn__sm80_decode(const struct problem *p, struct decode_plan *plan, qattn_stream stream)
{
    struct decode_sm80_args *const a = &plan->args;
    const bool direct = direct_shapes(p, a) && rows_of_16_bytes(&p->k) && rows_of_16_bytes(&p->v);
    fill_args(p, a, direct);
    if (a->cut.num_splits > 1) {
        a->parts_o = (float *)(void *)p->workspace;
        a->parts_ml = (float *)(void *)(p->workspace + plan->parts_bytes);
    }
    if (plan->few) {
        a->words = (unsigned long long *)(void *)(p->workspace + plan->parts_bytes + plan->ml_bytes);
        a->tag = qattn__cuda_tag();
    }
    void *params[] = { a, problem_as_param(p) };
    QATTN_TRY(qattn__cuda_launch(direct ? direct_kernel(p) : general_kernel(p), plan->items * a->cut.num_splits,
                                 32 << a->cut.warps_log2, direct ? 0 : plan->shared_bytes, params, stream,
                                 "decode_sm80"));
    return a->cut.num_splits > 1 && !plan->few ? launch_combine(plan, params, stream) : QATTN_OK;
}
