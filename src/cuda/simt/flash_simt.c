/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Launcher of flash_simt.cuh and flash_f32_simt.cu: which kernel and tile shape, how many splits, where parts of splits
 * lie in the workspace. */
#include "cuda/simt/flash_simt.h"

#include "cuda/launch.h"
#include "cuda/sizes.h"
#include "cuda/simt/simt.h"

enum { FEW_ROWS = 32, MAX_SPLITS = 64, RING_LINES = 2 * FS_BK, ROW_PAD = 4 };
/* A warp puts one row together; blocks stride over the rows, of which most of a packed batch may not exist. */
enum { COMBINE_WARPS = 8, COMBINE_BLOCKS = 1 << 20 };

static const size_t static_bytes[FS_SHAPES] = { FS_STATIC_128, FS_STATIC_64, FS_STATIC_16, FS_STATIC_128 };
static const int64_t tile_rows[FS_SHAPES] = { 128, 64, 16, 128 }, tile_width[FS_SHAPES] = { 128, 256, 128, 64 };

struct plan {
    bool f32;                   /* flash_f32_simt.cu; else `shape` of flash_simt.cuh */
    enum flash_simt_shape shape;
    struct flash_simt_args args;
    size_t shared_bytes;
    int64_t blocks_max;         /* of the grid: spans in the workspace belong to blocks */
    size_t span_bytes;          /* workspace of the sums of spans, the first of it; 0: in shared memory, or none */
    size_t bytes;               /* workspace; SIZE_MAX: more than can be */
};

bool qattn__flash_in_fours(const struct view *t)
{
    return t->stride[3] == 1 && t->stride[0] % 4 == 0 && t->stride[1] % 4 == 0 && t->stride[2] % 4 == 0 &&
           (uintptr_t)t->data % 16 == 0;
}

static size_t span_bytes(enum flash_simt_shape shape)
{
    return (size_t)(tile_rows[shape] * tile_width[shape]) * sizeof(float);
}

/* More keys than one span has. */
static bool has_spans(const struct problem *p) { return p->cap_k > (int64_t)FS_BN * FS_SPAN; }

/* Without the sums of spans. */
static size_t shared_bytes(const struct problem *p, enum flash_simt_shape shape, bool q_resident)
{
    const int64_t pitch = tile_rows[shape] + ROW_PAD, width = tile_width[shape] > FS_BN ? tile_width[shape] : FS_BN;
    const int64_t q_lines = q_resident ? blocks_of(p->d > 0 ? p->d : 1, FS_BK) * FS_BK : 2 * FS_BK;
    return (size_t)(RING_LINES * (width + ROW_PAD) + (FS_BN + q_lines) * pitch) * sizeof(float);
}

/* Of flash_f32_simt.cu: ring, P, row sums and Q. */
static size_t f32_shared_bytes(const struct problem *p)
{
    const int64_t d = blocks_of(p->d > 0 ? p->d : 1, FS_BK) * FS_BK;
    return (size_t)(FF_STAGES * FS_BK * FF_WIDTH + FF_ROWS * FS_BN + 16 * FF_THREADS + d * (FF_ROWS + ROW_PAD)) *
           sizeof(float);
}

/* Bits do not depend on the shape (flash_simt.cuh), so BATCH_INVARIANT leaves the choice free. */
static enum flash_simt_shape choose_shape(const struct problem *p, size_t shared_limit)
{
    if (group_rows_within(p, FEW_ROWS))
        return FS_16X128;
    if (p->dv <= tile_width[FS_128X64] && p->k.dtype == QATTN_DTYPE_F32 &&
        shared_bytes(p, FS_128X64, false) + static_bytes[FS_128X64] <= shared_limit)
        return FS_128X64;
    if (p->dv <= tile_width[FS_128X128] &&
        shared_bytes(p, FS_128X128, false) + static_bytes[FS_128X128] <= shared_limit)
        return FS_128X128;
    return FS_64X256;
}

/* Few items leave the device idle: the keys are then cut so that there are two items for each multiprocessor, none
 * shorter than two key tiles. */
static int64_t choose_splits(const struct problem *p, int64_t items, int multiprocessors, int64_t tile_keys)
{
    if (p->num_splits > 0)
        return p->num_splits;
    if ((p->flags & QATTN_FLAG_BATCH_INVARIANT) || items <= 0 || items >= multiprocessors)
        return 1;
    const int64_t wanted = 2 * (int64_t)multiprocessors / items, most = blocks_of(p->cap_k, tile_keys) / 2;
    const int64_t splits = wanted < most ? wanted : most;
    return splits < 1 ? 1 : splits < MAX_SPLITS ? splits : MAX_SPLITS;
}

/* work without the splits, or false where 63 bits do not count all rows. */
static bool count_items(const struct problem *p, int64_t rows_of_tile, int64_t width_of_tile, struct flash_simt_args *a)
{
    int64_t rows, all, items;
    if (__builtin_mul_overflow(p->cap_q, p->group, &rows) || __builtin_mul_overflow(p->cap_q, p->hq, &all) ||
        __builtin_mul_overflow(all, p->n, &all))
        return false;
    a->n = p->n;
    a->kv_heads = p->hq / p->group;
    a->tiles = blocks_of(rows, rows_of_tile);
    a->slices = p->dv > 0 ? blocks_of(p->dv, width_of_tile) : 1;
    if (__builtin_mul_overflow(a->n, a->kv_heads, &items) || __builtin_mul_overflow(items, a->tiles, &items) ||
        __builtin_mul_overflow(items, a->slices, &items))
        return false;
    a->work = items;
    return true;
}

int32_t qattn__flash_items(const struct problem *p, int64_t rows_of_tile, int64_t width_of_tile, int64_t keys_of_tile,
                           struct flash_simt_args *a)
{
    int multiprocessors = 0;
    QATTN_TRY(qattn__cuda_multiprocessors(&multiprocessors, p->device_id));
    QATTN_REQUIRE(count_items(p, rows_of_tile, width_of_tile, a), QATTN_ERR_UNSUPPORTED_SHAPE,
                  "the product of sequences, heads and rows is above 2^63");
    a->num_splits = choose_splits(p, a->work, multiprocessors, keys_of_tile);
    QATTN_REQUIRE(!__builtin_mul_overflow(a->work, a->num_splits, &a->work), QATTN_ERR_UNSUPPORTED_SHAPE,
                  "the product of sequences, heads, rows and splits is above 2^63");
    return QATTN_OK;
}

size_t qattn__flash_parts(const struct problem *p, struct flash_simt_args *a, char *memory)
{
    if (a->num_splits == 1)
        return 0;
    const size_t rows = times(times((size_t)p->q.shape[0], (size_t)p->q.shape[2]), (size_t)p->hq);
    const size_t all = times(rows, (size_t)a->num_splits), bytes = times(all, (size_t)p->dv * sizeof(float));
    const size_t ml_bytes = times(all, 2 * sizeof(float));
    a->part_rows = (int64_t)rows;
    if (memory) {
        a->parts_o = (float *)(void *)memory;
        a->parts_ml = (float *)(void *)(memory + bytes);
    }
    return ml_bytes > SIZE_MAX / 4 || bytes > SIZE_MAX / 4 ? SIZE_MAX : bytes + ml_bytes;
}

int32_t qattn__flash_combine(const struct problem *p, const struct flash_simt_args *a, void **params,
                             qattn_stream stream)
{
    if (a->num_splits == 1)
        return QATTN_OK;
    const int64_t rows = p->n * p->cap_q * p->hq;    /* callers see to it that they can be counted */
    const int64_t all = blocks_of(rows, COMBINE_WARPS);
    return qattn__cuda_launch(qattn__flash_simt_combine(), all < COMBINE_BLOCKS ? all : COMBINE_BLOCKS,
                              32 * COMBINE_WARPS, 0, params, stream, "flash_simt_combine");
}

/* The shapes of flash_f32_simt.cu; it also asks for rows of k and v on 16 bytes. */
static bool has_f32_shape(const struct problem *p, int shared_limit)
{
    return p->k.dtype == QATTN_DTYPE_F32 && !group_rows_within(p, FEW_ROWS) &&
           !(p->flags & QATTN_FLAG_BATCH_INVARIANT) && !p->page_table &&
           p->d <= FF_WIDTH && p->dv <= FF_WIDTH && p->dv > tile_width[FS_128X64] &&
           f32_shared_bytes(p) + FF_STATIC <= (size_t)shared_limit;
}

/* The plan of flash_f32_simt.cu. */
static int32_t make_f32_plan(const struct problem *p, struct plan *plan)
{
    struct flash_simt_args *const a = &plan->args;
    *plan = (struct plan){ .f32 = true, .shared_bytes = f32_shared_bytes(p), .blocks_max = INT64_MAX };
    a->o_fours = qattn__flash_in_fours(&p->o);
    QATTN_TRY(qattn__flash_items(p, FF_ROWS, FF_WIDTH, FS_BN, a));
    plan->bytes = qattn__flash_parts(p, a, NULL);
    return QATTN_OK;
}

static int32_t make_plan(const struct problem *p, struct plan *plan)
{
    int multiprocessors = 0, shared_limit = 0;
    *plan = (struct plan){ 0 };
    QATTN_TRY(qattn__cuda_multiprocessors(&multiprocessors, p->device_id));
    QATTN_TRY(qattn__cuda_attribute(&shared_limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, p->device_id));
    struct flash_simt_args *const a = &plan->args;
    plan->shape = choose_shape(p, (size_t)shared_limit);
    a->q_resident = shared_bytes(p, plan->shape, true) + static_bytes[plan->shape] <= (size_t)shared_limit;
    plan->shared_bytes = shared_bytes(p, plan->shape, a->q_resident);
    plan->blocks_max = INT64_MAX;
    if (has_spans(p)) {
        a->spans_shared =
            plan->shared_bytes + span_bytes(plan->shape) + static_bytes[plan->shape] <= (size_t)shared_limit;
        if (a->spans_shared)
            plan->shared_bytes += span_bytes(plan->shape);
        else
            plan->blocks_max = multiprocessors;
    }
    a->k_along_d = magnitude(p->k.stride[3]) <= magnitude(p->k.stride[2]) || p->k.stride[2] == 0;
    a->v_along_d = magnitude(p->v.stride[3]) <= magnitude(p->v.stride[2]) || p->v.stride[2] == 0;
    QATTN_TRY(qattn__flash_items(p, tile_rows[plan->shape], tile_width[plan->shape], FS_BN, a));
    if (plan->blocks_max != INT64_MAX)
        plan->span_bytes = times(span_bytes(plan->shape), (size_t)plan->blocks_max);
    const size_t parts = qattn__flash_parts(p, a, NULL);
    plan->bytes = parts == SIZE_MAX ? SIZE_MAX : plan->span_bytes + parts;
    return QATTN_OK;
}

/* Whichever kernel runs: that depends on strides and alignment, the workspace must not. */
size_t qattn__simt_flash_workspace(const struct problem *p)
{
    struct plan plan, f32 = { 0 };
    int limit = 0;
    if (make_plan(p, &plan) != QATTN_OK ||
        qattn__cuda_attribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, p->device_id) != QATTN_OK ||
        (has_f32_shape(p, limit) && make_f32_plan(p, &f32) != QATTN_OK))
        return SIZE_MAX;
    return plan.bytes > f32.bytes ? plan.bytes : f32.bytes;
}

const void *qattn__flash_simt(int32_t dtype, enum flash_simt_shape shape)
{
    switch (dtype) {
    case QATTN_DTYPE_F32:  return qattn__flash_simt_f32(shape);
    case QATTN_DTYPE_F16:  return qattn__flash_simt_f16(shape);
    case QATTN_DTYPE_BF16: return qattn__flash_simt_bf16(shape);
    default:               return qattn__flash_simt_byte(shape);
    }
}

int32_t qattn__simt_flash(const struct problem *p, qattn_stream stream)
{
    struct plan plan;
    int limit = 0;
    QATTN_TRY(qattn__cuda_attribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, p->device_id));
    const bool f32 = has_f32_shape(p, limit) && qattn__flash_in_fours(&p->k) && qattn__flash_in_fours(&p->v);
    QATTN_TRY(f32 ? make_f32_plan(p, &plan) : make_plan(p, &plan));
    if (plan.span_bytes)
        plan.args.spans = (float *)(void *)p->workspace;
    (void)qattn__flash_parts(p, &plan.args, p->workspace + plan.span_bytes);
    const int64_t blocks = plan.args.work < plan.blocks_max ? plan.args.work : plan.blocks_max;
    void *params[] = { &plan.args, problem_as_param(p) };
    const void *const kernel = plan.f32 ? qattn__flash_f32_simt() : qattn__flash_simt(p->k.dtype, plan.shape);
    QATTN_TRY(qattn__cuda_launch(kernel, blocks, plan.f32 ? (int)FF_THREADS : (int)FS_THREADS,
                                 plan.shared_bytes, params, stream,
                                 plan.f32 ? "flash_f32_simt_kernel" : "flash_simt_kernel"));
    return qattn__flash_combine(p, &plan.args, params, stream);
}
