/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Launcher of decode_sm80.cuh: splits, shared memory, workspace, and how the splits' parts come together. */
#include "cuda/sm80/decode_sm80.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "cuda/common/arrive.h"
#include "cuda/launch.h"
#include "cuda/sizes.h"

enum {
    WARPS = 4, STAGES = 3,          /* of a block; units under way for each warp */
    MAX_SPLITS = 256,               /* that are chosen here */
    JOIN_ROWS = 16,                 /* whose parts one block adds at once */
    MAX_WIDTH = 256, NARROW = 128,  /* of O: the kernel's two instances over 16 bits */
    MAX_KEYS = INT_MAX - 1024
};

struct plan {
    struct decode_sm80_args args;
    const void *kernel;
    size_t shared_bytes;
    bool direct;                /* of direct_shapes */
    bool few;                   /* the last split to finish adds the parts, no second kernel */
    size_t parts_bytes, ml_bytes;   /* workspace of the splits' O, of their maxima and sums */
    size_t bytes;               /* workspace; SIZE_MAX: more than can be */
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
    const size_t ring = (size_t)(WARPS * a->stages * DECODE_UNIT) * (size_t)(a->k_pitch + a->v_pitch);
    const size_t merge = WARPS * 16 * (size_t)(blocks_of(p->dv, DECODE_STEP) * DECODE_STEP + 8) * sizeof(float);
    a->q_offset = (int32_t)(ring > merge ? ring : merge);
    a->row_offset = a->q_offset + row_tiles * 16 * a->q_pitch;
    return (size_t)a->row_offset + (size_t)(row_tiles * 16 * DECODE_ROW_BYTES);
}

/* Rows kept of a sequence, and shared memory: as many stages as leave room for two blocks a multiprocessor (`whole`),
 * or for one (`limit`); false: not even one stage. */
static bool size_shared(const struct problem *p, struct plan *plan, size_t limit, size_t whole)
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
            plan->shared_bytes = shared_bytes(p, a, a->part_rows <= 16 ? 1 : a->part_rows <= 32 ? 2 : 4);
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

/* Sequences times KV heads, times rows or splits, fit 31 bits. */
static bool few_items(const struct problem *p)
{
    const int64_t most = p->num_splits > FLASH_SM80_DECODE_ROWS ? p->num_splits : FLASH_SM80_DECODE_ROWS;
    int64_t items;
    return !__builtin_mul_overflow(p->n, p->hq / p->group, &items) && items <= INT_MAX / most;
}

bool qattn__sm80_decode_supports(const struct problem *p, char *why, size_t cap)
{
    struct plan plan = { 0 };
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

/* Rows of 16-byte pieces, as asynchronous copies want them. */
static bool aligned(const struct problem *p, const struct view *x)
{
    return !p->shapes_only && rows_of_16_bytes(x);
}

/* V is the beginning of K's rows, as in MLA. */
static bool v_within_k(const struct problem *p)
{
    if (p->shapes_only || p->v.data != p->k.data || p->dv > p->d || p->v.dtype != p->k.dtype)
        return false;
    for (int axis = 0; axis < 3; axis++)
        if (p->v.stride[axis] != p->k.stride[axis])
            return false;
    return p->v.stride[3] == p->k.stride[3] || p->dv <= 1;
}

/* ---------------------------------------------------------------- plan */

/* Cost of a call, in the time of a unit on a busy multiprocessor: every block pays for its start, its units and its
 * end; splits pay for bringing their parts together. */
static int64_t cost_of(int64_t items, int64_t slots, int64_t units, int64_t splits)
{
    const int64_t waves = blocks_of(items * splits, slots);
    return waves * (blocks_of(units, splits) + 6) + (splits > 1 ? 8 + splits / 8 : 0);
}

/* Whole waves of blocks, or no split; the length is the capacity, the true ones are in device memory. */
static int64_t choose_splits(const struct problem *p, int64_t items, int64_t slots)
{
    const int64_t units = blocks_of(p->cap_k, DECODE_UNIT), most = smaller(blocks_of(units, WARPS), MAX_SPLITS);
    int64_t best = 1, last = 1;
    if (p->num_splits > 0)
        return p->num_splits;
    if (items <= 0 || items > 8 * slots)
        return 1;
    int64_t best_cost = cost_of(items, slots, units, 1);
    for (int64_t waves = 1; waves <= 8 && last < most; waves++) {
        const int64_t wanted = waves * slots / items, splits = wanted < most ? wanted : most;
        if (splits == last)
            continue;
        last = splits;
        const int64_t cost = splits > 1 ? cost_of(items, slots, units, splits) : best_cost;
        best = cost < best_cost ? splits : best;
        best_cost = smaller(cost, best_cost);
    }
    return best;
}

/* The workspace is sized for the whole device: a context with fewer multiprocessors has no more splits. */
static int32_t plan_splits(const struct problem *p, struct decode_sm80_args *a, int64_t items, int64_t blocks)
{
    int all = 0, own = 0;
    QATTN_TRY(qattn__cuda_attribute(&all, cudaDevAttrMultiProcessorCount, p->device_id));
    QATTN_TRY(qattn__cuda_multiprocessors(&own, p->device_id));
    a->num_splits = (int32_t)choose_splits(p, items, blocks * all);
    if (own < all)
        a->num_splits = (int32_t)smaller(a->num_splits, choose_splits(p, items, blocks * own));
    return QATTN_OK;
}

static size_t rounded(size_t bytes) { return bytes > SIZE_MAX / 8 ? SIZE_MAX / 8 : (bytes + 15) / 16 * 16; }

static void size_parts(const struct problem *p, struct plan *plan, size_t items)
{
    struct decode_sm80_args *const a = &plan->args;
    a->part_pitch = (int32_t)(p->dv + 3) / 4 * 4;
    if (a->num_splits == 1)
        return;
    plan->few = a->num_splits < ARRIVE_MOST && (a->part_rows <= JOIN_ROWS || !decode_sm80_takes(p->cap_q, p->group));
    const size_t rows = times(times(items, (size_t)a->num_splits), (size_t)a->part_rows);
    plan->parts_bytes = rounded(times(rows, (size_t)a->part_pitch * sizeof(float)));
    plan->ml_bytes = rounded(times(rows, 2 * sizeof(float)));
    const size_t words = plan->few ? rounded(times(items, sizeof *a->words)) : 0;
    plan->bytes = plan->parts_bytes + plan->ml_bytes + words;
    if (plan->bytes > SIZE_MAX / 8)
        plan->bytes = SIZE_MAX;
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

/* Blocks of 128 threads: two a multiprocessor, where shared memory lets them. */
static int32_t make_plan(const struct problem *p, struct plan *plan)
{
    int limit = 0, whole = 0;
    *plan = (struct plan){ 0 };
    struct decode_sm80_args *const a = &plan->args;
    QATTN_TRY(qattn__cuda_attribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, p->device_id));
    QATTN_TRY(qattn__cuda_attribute(&whole, cudaDevAttrMaxSharedMemoryPerMultiprocessor, p->device_id));
    a->kv_heads = (int32_t)(p->hq / p->group);
    a->longest = (int32_t)(FLASH_SM80_DECODE_ROWS / p->group);
    a->k_copies = aligned(p, &p->k);
    a->v_copies = aligned(p, &p->v);
    a->whole = !p->page_table || p->page_size % DECODE_UNIT == 0;
    a->page_size = (int32_t)smaller(p->page_size, INT_MAX);
    a->page_shift =
        a->page_size > 0 && (a->page_size & (a->page_size - 1)) == 0 ? __builtin_ctz((unsigned)a->page_size) : -1;
    a->q_copies = aligned(p, &p->q);
    a->q_lanes = lanes_of(p->d, 2);
    a->k_lanes = lanes_of(p->d, p->k.itemsize);
    a->v_lanes = lanes_of(p->dv, p->k.itemsize);
    QATTN_REQUIRE(size_shared(p, plan, (size_t)limit, (size_t)whole), QATTN_ERR_INTERNAL,
                  "decode needs %zu bytes of shared memory", plan->shared_bytes);
    const int64_t room = whole / (int64_t)(plan->shared_bytes + DECODE_STATIC_BYTES), items = p->n * a->kv_heads;
    plan->direct = direct_shapes(p, a);
    const int64_t blocks = plan->direct ? DIRECT_BLOCKS : room < 2 ? 1 : 2;
    a->least_units = p->num_splits > 0 ? 1 : WARPS;
    QATTN_TRY(plan_splits(p, a, items, blocks));
    a->work = (int32_t)(items * a->num_splits);
    size_parts(p, plan, (size_t)items);
    a->v_in_k = v_within_k(p);                   /* after the sizes, which addresses must not change */
    a->v_pitch = a->v_in_k ? 0 : a->v_pitch;
    plan->kernel = general_kernel(p);
    if (plan->direct && a->k_copies && a->v_copies) {
        plan->kernel = direct_kernel(p);
        plan->shared_bytes = 0;
    }
    return QATTN_OK;
}

size_t qattn__sm80_decode_workspace(const struct problem *p)
{
    struct plan plan;
    return make_plan(p, &plan) == QATTN_OK ? plan.bytes : SIZE_MAX;
}

/* ---------------------------------------------------------------- launches */

static int32_t launch_combine(const struct decode_sm80_args *a, void **params, qattn_stream stream)
{
    const int64_t blocks = (int64_t)(a->work / a->num_splits) * blocks_of(a->part_rows, DECODE_COMBINE_THREADS / 32);
    return qattn__cuda_launch(qattn__decode_combine(), blocks, DECODE_COMBINE_THREADS, 0, params, stream,
                              "decode_combine");
}

/* splitmix64's mixing of a count that starts at a time of day, cut to 39 bits: what lies in a workspace by chance, or
 * is left of a launch that died, is taken for this launch's once in 2^39. */
uint64_t qattn__cuda_tag(void)
{
    static _Atomic(uint64_t) count;
    uint64_t x = atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
    if (x == 0) {
        struct timespec now = { 0 };
        (void)clock_gettime(CLOCK_REALTIME, &now);
        x = (uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec;
        atomic_fetch_add_explicit(&count, x, memory_order_relaxed);
    }
    x *= UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return (x ^ x >> 31) >> ARRIVE_BITS | 1;
}

int32_t qattn__sm80_decode_load(const struct problem *p)
{
    struct plan plan;
    QATTN_TRY(make_plan(p, &plan));
    QATTN_TRY(qattn__cuda_load(general_kernel(p)));
    if (plan.direct) /* which one runs is a matter of alignment */
        QATTN_TRY(qattn__cuda_load(direct_kernel(p)));
    QATTN_TRY(qattn__cuda_load(qattn__decode_combine()));
    return QATTN_OK;
}

int32_t qattn__sm80_decode(const struct problem *p, char *workspace, qattn_stream stream)
{
    struct plan plan;
    QATTN_TRY(make_plan(p, &plan));
    if (plan.args.num_splits > 1) {
        plan.args.parts_o = (float *)(void *)workspace;
        plan.args.parts_ml = (float *)(void *)(workspace + plan.parts_bytes);
    }
    if (plan.few) {
        plan.args.words = (unsigned long long *)(void *)(workspace + plan.parts_bytes + plan.ml_bytes);
        plan.args.tag = qattn__cuda_tag();
    }
    void *params[] = { &plan.args, problem_as_param(p) };
    QATTN_TRY(
        qattn__cuda_launch(plan.kernel, plan.args.work, 32 * WARPS, plan.shared_bytes, params, stream, "decode_sm80"));
    return plan.args.num_splits > 1 && !plan.few ? launch_combine(&plan.args, params, stream) : QATTN_OK;
}
