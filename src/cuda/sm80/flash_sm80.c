/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Launcher of flash_sm80.cuh: which width, how many splits, where parts of splits lie in the workspace. */
#include "cuda/sm80/flash_sm80.h"

#include <stdio.h>

#include "core/seq.h"
#include "cuda/launch.h"
#include "cuda/sizes.h"
#include "cuda/sm80/decode_sm80.h"
#include "cuda/sm80/flash_sm80_kernel.h"
#include "cuda/simt/flash_simt.h"

enum {
    MAX_SPLITS = 64,
    SPLIT_KEYS = 256,  /* of one split, at least */
    SPLIT_SHARE = 3,   /* see choose_splits */
    SHORT_KEYS = 512,  /* see make_plan */
    MAX_KEYS = 1 << 30
};

/* K and V of neighbouring items, a good part of the second-level cache of the smallest device worth the care. */
static const int64_t section_bytes = 24 << 20;
static const float log2_e = 1.4426950408889634f;

struct plan {
    struct flash_sm80_kernel kernel;
    enum flash_sm80_stage stage;
    int32_t num_splits, work; /* as in the kernel's arguments */
    size_t shared_bytes;
    int64_t blocks; /* of the grid */
    size_t bytes;   /* workspace; SIZE_MAX: more than can be */
};

/* Which kernels a call takes: sequences of few rows are the decode kernel's, where it takes the call at all. */
struct share {
    bool decode, prefill;
};

static bool descale_of_heads(const struct descale *d)
{
    return d->kind == DESCALE_NONE || (d->kind == DESCALE_SEQUENCE && d->t.shape[3] == 1);
}

/* ---------------------------------------------------------------- which instance, and its shared memory */

static bool has_terms(const struct problem *p)
{
    return p->softcap != 0.0f || p->k_descale.kind != DESCALE_NONE || p->bias.dtype || p->keep.dtype ||
           p->alibi_slopes || !(p->scale > 1e-30f && p->scale < 1e30f);
}

static struct flash_sm80_kernel kernel_with_terms(const struct problem *p)
{
    return p->q.dtype == QATTN_DTYPE_F16 ? qattn__flash_sm80_f16_128_terms() : qattn__flash_sm80_bf16_128_terms();
}

static struct flash_sm80_kernel kernel_of_width(const struct problem *p, bool plain)
{
    const int64_t width = p->d > p->dv ? p->d : p->dv;
    const bool f16 = p->q.dtype == QATTN_DTYPE_F16;
    if (width <= 64)
        return f16 ? qattn__flash_sm80_f16_64(plain) : qattn__flash_sm80_bf16_64(plain);
    if (width <= 128)
        return f16 ? qattn__flash_sm80_f16_128(plain) : qattn__flash_sm80_bf16_128(plain);
    return f16 ? qattn__flash_sm80_f16_256(plain) : qattn__flash_sm80_bf16_256(plain);
}

/* Rows can be copied: contiguous, and not broadcast along the keys. */
static bool can_copy(const struct view *t)
{
    return !t->dtype || (rows_of_16_bytes(t) && t->itemsize <= 2 && t->stride[3] == 1);
}

static enum flash_sm80_stage stage_of(const struct problem *p)
{
    if (!p->bias.dtype && !p->keep.dtype)
        return FLASH_SM80_NO_STAGE;
    return can_copy(&p->bias) && can_copy(&p->keep) ? FLASH_SM80_COPIED : FLASH_SM80_GATHERED;
}

static size_t stage_bytes(const struct problem *p, const struct flash_sm80_kernel *kernel, enum flash_sm80_stage stage)
{
    const size_t scores = (size_t)kernel->rows * (size_t)kernel->keys;
    switch (stage) {
    case FLASH_SM80_COPIED: return scores * ((p->bias.dtype ? 2 : 0) + (p->keep.dtype ? 1 : 0));
    case FLASH_SM80_GATHERED: return scores * 4;
    default: return 0;
    }
}

static size_t shared_bytes(const struct problem *p, const struct flash_sm80_kernel *kernel, enum flash_sm80_stage stage)
{
    return kernel->shared_bytes + (p->page_table ? (size_t)F80_PLACES_BYTES(kernel->keys) : 0) +
           (p->alibi_slopes ? (size_t)F80_ALIBI_BYTES(kernel->rows) : 0) + stage_bytes(p, kernel, stage);
}

/* Calls for the plain kernel or, at 128 columns, the one with terms (struct f80). Their bits may be others:
 * BATCH_INVARIANT keeps to one kernel. */
static bool even_shapes(const struct problem *p, bool terms)
{
    const bool width = p->d == p->dv && (p->d == 64 || p->d == 128 || p->d == 256);
    return width && p->k.itemsize == 2 && !p->page_table && !(p->flags & QATTN_FLAG_BATCH_INVARIANT) &&
           (!terms || (p->d == 128 && !(p->bias.dtype && p->keep.dtype)));
}

static struct flash_sm80_kernel even_kernel(const struct problem *p, bool terms)
{
    return terms ? kernel_with_terms(p) : kernel_of_width(p, true);
}

static struct flash_sm80_kernel kernel_of(const struct problem *p, size_t shared_limit)
{
    const bool terms = has_terms(p);
    if (even_shapes(p, terms) && rows_of_16_bytes(&p->q) && rows_of_16_bytes(&p->k) && rows_of_16_bytes(&p->v)) {
        const struct flash_sm80_kernel kernel = even_kernel(p, terms);
        /* strides of bias and keep change no bits: room for the larger stage or none */
        const bool stage = p->bias.dtype || p->keep.dtype;
        const size_t bytes = shared_bytes(p, &kernel, stage ? FLASH_SM80_GATHERED : FLASH_SM80_NO_STAGE);
        if (bytes + F80_STATIC_BYTES <= shared_limit)
            return kernel;
    }
    return kernel_of_width(p, false);
}

/* ---------------------------------------------------------------- which calls */

/* Tiles of rows: of every sequence, or of a whole packed batch. SIZE_MAX: more than can be counted. */
static size_t count_tiles(const struct problem *p, const struct flash_sm80_kernel *kernel)
{
    int64_t rows, packed_rows;
    if (__builtin_mul_overflow(p->cap_q, p->group, &rows))
        return SIZE_MAX;
    const size_t each = times((size_t)blocks_of(rows, kernel->rows), (size_t)p->n);
    if (!p->cu_seqlens_q || __builtin_mul_overflow(p->q.shape[2], p->group, &packed_rows))
        return each;
    const size_t packed = (size_t)blocks_of(packed_rows, kernel->rows) + (size_t)p->n;
    return packed < each ? packed : each;
}

static size_t count_items(const struct problem *p, const struct flash_sm80_kernel *kernel)
{
    return times(times(count_tiles(p, kernel), (size_t)(p->hq / p->group)),
                 p->num_splits > 0 ? (size_t)p->num_splits : 1);
}

/* Rows that the second kernel of a split call looks at: of a packed batch most may not exist. */
static size_t combine_rows(const struct problem *p)
{
    return times(times((size_t)p->n, (size_t)p->cap_q), (size_t)p->hq);
}

static const char *reason_against(const struct problem *p, size_t shared_limit)
{
    if (p->q.dtype != QATTN_DTYPE_F16 && p->q.dtype != QATTN_DTYPE_BF16)
        return "needs q in f16 or bf16";
    if (p->d > 256 || p->dv > 256)
        return "D and Dv may be at most 256";
    if (!descale_of_heads(&p->k_descale) || !descale_of_heads(&p->v_descale))
        return "takes one descale for each KV head of a sequence, none for rows, pages or elements";
    if (p->cap_k > MAX_KEYS || p->group > MAX_KEYS || p->n > MAX_KEYS)
        return "keys of a sequence, sequences and heads of a group may be at most 2^30";
    const struct flash_sm80_kernel kernel = kernel_of(p, shared_limit);
    if (count_items(p, &kernel) > (size_t)MAX_KEYS)
        return "tiles of rows may be at most 2^30";
    if (p->num_splits > 1 && combine_rows(p) > SIZE_MAX / 4)
        return "with splits, sequences, max_seqlen_q and heads multiplied may be at most 2^62";
    if (shared_bytes(p, &kernel, FLASH_SM80_GATHERED) + F80_STATIC_BYTES > shared_limit &&
        shared_bytes(p, &kernel, stage_of(p)) + F80_STATIC_BYTES > shared_limit)
        return "needs more shared memory a block than the device has";
    return NULL;
}

/* With exactly n splits a mixed call goes to one kernel: the parts of both would need one merge. */
static struct share share_of(const struct problem *p)
{
    char why[256];
    const bool mixed = p->cu_seqlens_q || p->seqused_q, few = decode_sm80_takes(p->cap_q, p->group);
    struct share share = { false, true };
    if (p->flags & QATTN_FLAG_BATCH_INVARIANT || !decode_sm80_takes(1, p->group) ||
        (!few && (!mixed || p->num_splits > 1)) || !qattn__sm80_decode_supports(p, why, sizeof why))
        return share;
    share.decode = true;
    share.prefill = !few;
    return share;
}

bool qattn__sm80_flash_supports(const struct problem *p, char *why, size_t cap)
{
    int shared_limit = 0;
    const char *reason = "the device does not tell its shared memory";
    if (qattn__cuda_attribute(&shared_limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, p->device_id) == QATTN_OK)
        reason = share_of(p).prefill ? reason_against(p, (size_t)shared_limit) : NULL;
    if (reason)
        snprintf(why, cap, "%s", reason);
    return !reason;
}

/* ---------------------------------------------------------------- the plan */

/* Few items leave the device idle: the keys are then cut so that every multiprocessor has its share, none shorter than
 * SPLIT_KEYS. A grid that fills one in SPLIT_SHARE of the places is left whole: parts cost f32 traffic and a second
 * kernel. Strides and alignment change nothing here: the workspace is a matter of shapes. */
static int64_t choose_splits(const struct problem *p, int64_t items, int64_t slots, bool beside_decode)
{
    if (p->num_splits > 0)
        return p->num_splits;
    if ((p->flags & QATTN_FLAG_BATCH_INVARIANT) || beside_decode || items <= 0 || items * SPLIT_SHARE >= slots ||
        combine_rows(p) > SIZE_MAX / 4)
        return 1;
    const int64_t wanted = slots / items, most = p->cap_k / SPLIT_KEYS;
    const int64_t splits = wanted < most ? wanted : most;
    return splits < 1 ? 1 : splits < MAX_SPLITS ? splits : MAX_SPLITS;
}

/* The order of items of a padded batch (f80_padded_work). */
static void order_items(const struct problem *p, struct flash_sm80_args *a)
{
    const int64_t heads = p->hq / p->group, pairs = p->n * heads;
    const double bytes = (double)p->cap_k * (double)(p->d + p->dv) * p->k.itemsize + 1.0,
                 fit = (double)section_bytes / bytes;
    const int64_t section = fit < 1.0 ? 1 : fit < (double)pairs ? (int64_t)fit : pairs;
    /* the last tiles have many more keys than the first */
    const bool triangle = p->causal && p->cap_k / 2 <= p->cap_q;
    const int64_t rest = pairs % section, low = triangle ? a->tiles / 3 : 0;
    const int64_t items = section * (a->tiles - low), head = pairs * (a->tiles - low);
    a->pairs = (int32_t)pairs;
    a->section = (int32_t)section;
    a->low = (int32_t)low;
    a->head = (int32_t)(head < MAX_KEYS ? head : MAX_KEYS);
    a->by_section = divisor_of(items < MAX_KEYS ? items : MAX_KEYS);
    a->by_count = divisor_of(section);
    a->by_last_count = divisor_of(rest > 0 ? rest : section);
    a->by_pairs = divisor_of(pairs);
    a->by_heads = divisor_of(heads);
}

/* What one of the kernel's scores is worth. ALiBi joins them in that unit, where the unit is not so far from 1 that
 * slope * distance would overflow or underflow. */
static void set_unit(const struct problem *p, struct flash_sm80_args *a)
{
    const float unit = p->softcap != 0.0f ? p->softcap : p->scale;
    const bool near = unit >= 0x1p-10f && unit <= 0x1p10f;
    const bool linear = p->alibi_slopes && p->causal && p->softcap == 0.0f && near;
    a->scaled = p->bias.dtype || (p->alibi_slopes && !linear) || !(unit > 1e-30f && unit < 1e30f) ||
                (p->softcap == 0.0f && p->k_descale.kind != DESCALE_NONE);
    a->unit = a->scaled ? 1.0f : unit;
    a->to_log2 = a->unit * log2_e;
}

/* Where all numbers are small, blocks describe their items in few steps, and where nothing depends on the sequence
 * they need not read its lengths. */
static void set_near(const struct problem *p, struct flash_sm80_args *a)
{
    const int64_t small = FLASH_SM80_SMALL;
    const bool offset_small =
        p->position != POSITION_OFFSET || (!p->q_offsets && p->q_offset > -small && p->q_offset < small);
    a->near = a->num_splits == 1 && p->cap_q < small / p->group && p->cap_k < small &&
              (!p->window || (offset_small && p->window_left < small && p->window_right < small));
    a->alike = a->near && p->group == 1 && !p->cu_seqlens_q && !p->cu_seqlens_k && !p->seqused_q && !p->seqused_k &&
               !p->q_offsets;
    if (a->alike) {
        const struct seq s = seq_get(p, 0);
        a->sequence = f80_sequence_of(p, &s);
    }
}

/* Which kernel, how many splits and blocks, how much memory: all that a question for the workspace needs. Fills in the
 * whole plan. */
static int32_t make_plan(const struct problem *p, bool beside_decode, struct plan *plan)
{
    int multiprocessors = 0, shared_limit = 0, shared_all = 0;
    QATTN_TRY(qattn__cuda_multiprocessors(&multiprocessors, p->device_id));
    QATTN_TRY(qattn__cuda_attribute(&shared_limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, p->device_id));
    QATTN_TRY(qattn__cuda_attribute(&shared_all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, p->device_id));
    plan->kernel = kernel_of(p, (size_t)shared_limit);
    plan->stage = stage_of(p);
    plan->shared_bytes = shared_bytes(p, &plan->kernel, plan->stage);
    const int64_t items = (int64_t)count_items(p, &plan->kernel);
    const int64_t fit = shared_all / (int64_t)(plan->shared_bytes + plan->kernel.static_bytes + SYSTEM_SHARED_BYTES);
    const int64_t slots = multiprocessors * (fit < plan->kernel.blocks ? fit : plan->kernel.blocks);
    const struct flash_sm80_kernel any = kernel_of_width(p, false); /* whose tiles may be larger */
    plan->num_splits =
        (int32_t)choose_splits(p, (int64_t)count_items(p, &any), (int64_t)multiprocessors * any.blocks, beside_decode);
    plan->work = (int32_t)(p->num_splits > 0 ? items : items * plan->num_splits);
    /* Short items of one length: a block takes several and starts the copies of the next early. Else each goes in
     * turn to the first multiprocessor that has room, the longest first. */
    const bool even =
        !p->causal && !p->window && !p->cu_seqlens_q && !p->cu_seqlens_k && !p->seqused_q && !p->seqused_k;
    const bool keep_blocks = !plan->kernel.one_item && even && (plan->kernel.blocks == 1 || p->cap_k <= SHORT_KEYS);
    plan->blocks = keep_blocks && plan->work > slots ? slots : plan->work;
    struct flash_simt_args parts = { .num_splits = plan->num_splits };
    plan->bytes = plan->work > 0 ? qattn__flash_parts(p, &parts, NULL) : 0;
    return QATTN_OK;
}

/* The fastest way out that O's type and strides allow, or, with splits, its parts: the workspace begins with them, at a
 * multiple of 256 bytes. */
static enum flash_sm80_out way_out(const struct problem *p, int32_t num_splits)
{
    const bool split = num_splits > 1, vectors = !split && rows_of_16_bytes(&p->o);
    if (!split && p->o.dtype == p->q.dtype)
        return vectors && p->dv % 8 == 0 ? FLASH_SM80_OUT_ROWS : FLASH_SM80_OUT_ANY_ROWS;
    if (p->dv % 2 == 0 && (split || (vectors && p->o.dtype == QATTN_DTYPE_F32)))
        return FLASH_SM80_OUT_PAIRS;
    return FLASH_SM80_OUT_EACH;
}

/* The kernel's arguments; there is work. `parts`: of splits, laid out and brought together as cuda.simt does. */
static void set_args(const struct problem *p, bool beside_decode, const struct plan *plan,
                     const struct flash_simt_args *parts, struct flash_sm80_args *a)
{
    *a = (struct flash_sm80_args){
        .part_rows = parts->part_rows, .parts_o = parts->parts_o, .parts_ml = parts->parts_ml,
        .k_row_bytes = p->k.stride[2] * p->k.itemsize, .v_row_bytes = p->v.stride[2] * p->v.itemsize,
        .least_rows = beside_decode ? FLASH_SM80_DECODE_ROWS / p->group + 1 : 0, .work = plan->work,
        .tiles = (int32_t)blocks_of(p->cap_q * p->group, plan->kernel.rows), .num_splits = plan->num_splits,
        .by_group = divisor_of(p->group), .terms = has_terms(p), .stage = plan->stage,
        .q_vector = rows_of_16_bytes(&p->q), .kv_vector = rows_of_16_bytes(&p->k) && rows_of_16_bytes(&p->v),
        .out = way_out(p, plan->num_splits),
        .huge = p->o.dtype == QATTN_DTYPE_F32 ? -1.0f : 65536.0f,
    };
    order_items(p, a);
    set_unit(p, a);
    if (plan->kernel.one_item && !a->terms)
        set_near(p, a);
}

/* The plans of the kernels that a call takes. Beside decode, prefill is never split and needs no workspace. */
struct call_plan {
    struct share share;
    struct plan prefill;
    struct decode_plan decode;
    size_t bytes; /* workspace; SIZE_MAX: more than can be */
};

static int32_t plan_call(const struct problem *p, struct call_plan *call)
{
    call->share = share_of(p);
    if (call->share.prefill)
        QATTN_TRY(make_plan(p, call->share.decode, &call->prefill));
    if (call->share.decode)
        QATTN_TRY(qattn__sm80_decode_plan(p, &call->decode));
    call->bytes = call->share.decode ? call->decode.bytes : call->prefill.bytes;
    return QATTN_OK;
}

size_t qattn__sm80_flash_workspace(const struct problem *p)
{
    struct call_plan call;
    return plan_call(p, &call) == QATTN_OK ? call.bytes : SIZE_MAX;
}

/* Which kernel runs is a matter of strides and alignment too. */
int32_t qattn__sm80_flash_load(const struct problem *p)
{
    const struct share share = share_of(p);
    if (share.decode)
        QATTN_TRY(qattn__sm80_decode_load(p));
    if (!share.prefill)
        return QATTN_OK;
    QATTN_TRY(qattn__cuda_load(kernel_of_width(p, false).kernel));
    if (even_shapes(p, has_terms(p)))
        QATTN_TRY(qattn__cuda_load(even_kernel(p, has_terms(p)).kernel));
    QATTN_TRY(qattn__cuda_load(qattn__flash_simt_combine()));
    return QATTN_OK;
}

static int32_t prefill(const struct problem *p, bool beside_decode, const struct plan *plan, qattn_stream stream)
{
    struct flash_sm80_args args;
    struct flash_simt_args parts = { .num_splits = plan->num_splits };
    if (plan->work == 0)
        return QATTN_OK;
    (void)qattn__flash_parts(p, &parts, p->workspace);
    set_args(p, beside_decode, plan, &parts, &args);
    void *params[] = { &args, problem_as_param(p) }, *combine[] = { &parts, problem_as_param(p) };
    QATTN_TRY(qattn__cuda_launch(plan->kernel.kernel, plan->blocks, plan->kernel.threads, plan->shared_bytes, params,
                                 stream, "flash_sm80_kernel"));
    return qattn__flash_combine(p, &parts, combine, stream);
}

int32_t qattn__sm80_flash(const struct problem *p, qattn_stream stream)
{
    struct call_plan call;
    QATTN_TRY(plan_call(p, &call));
    QATTN_TRY(qattn__check_workspace(p, call.bytes));
    if (call.share.prefill)
        QATTN_TRY(prefill(p, call.share.decode, &call.prefill, stream));
    return call.share.decode ? qattn__sm80_decode(p, &call.decode, stream) : QATTN_OK;
}
