/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Launcher of tf32_sm80.cuh: which problems, which tile shape, which copies. */
#include "cuda/sm80/tf32_sm80.h"

#include <stdio.h>

#include "cuda/launch.h"
#include "cuda/sizes.h"
#include "cuda/sm80/tf32_args.h"

enum { MAX_D = 256, FEW_ROWS = 64 };

static const int64_t tile_keys[TF32_SHAPES] = { TF32_KEYS_128, TF32_KEYS_256, TF32_KEYS_128 };
static const int64_t tile_rows[TF32_SHAPES] = { 128, 128, 64 }, tile_width[TF32_SHAPES] = { 128, 256, 128 };
static const size_t static_bytes[TF32_SHAPES] = { TF32_STATIC_8, TF32_STATIC_8, TF32_STATIC_4 };

static size_t shared_bytes(const struct problem *p, enum tf32_shape shape)
{
    const int64_t pitch = (p->d + 7) / 8 * 8 + TF32_PAD;
    return (size_t)((tile_rows[shape] + tile_keys[shape]) * pitch + tile_keys[shape] * (tile_width[shape] + TF32_PAD)) *
           sizeof(float);
}

/* Bits do not depend on the rows of a tile (tf32_sm80.cuh), so BATCH_INVARIANT leaves that choice free. */
static enum tf32_shape choose_shape(const struct problem *p, size_t shared_limit)
{
    if (p->dv > tile_width[TF32_128X128])
        return TF32_128X256;
    const bool fits = shared_bytes(p, TF32_128X128) + static_bytes[TF32_128X128] <= shared_limit;
    return group_rows_within(p, FEW_ROWS) || !fits ? TF32_64X128 : TF32_128X128;
}

bool qattn__sm80_tf32_supports(const struct problem *p, char *why, size_t cap)
{
    int limit = 0;
    if (p->precision == QATTN_PRECISION_IEEE) {
        snprintf(why, cap, "multiplies f32 through TF32 only, and precision asks for IEEE");
        return false;
    }
    if (p->d > MAX_D || p->dv > MAX_D) {
        snprintf(why, cap, "takes D and Dv up to %d for f32", (int)MAX_D);
        return false;
    }
    if (qattn__cuda_attribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, p->device_id) != QATTN_OK) {
        snprintf(why, cap, "the device does not tell its shared memory");
        return false;
    }
    const enum tf32_shape shape = choose_shape(p, (size_t)limit);
    const size_t bytes = shared_bytes(p, shape) + static_bytes[shape];
    if (bytes > (size_t)limit)
        snprintf(why, cap,
                 "needs %zu bytes of shared memory for this D and Dv in f32, and a block of the device has %d",
                 bytes, limit);
    return bytes <= (size_t)limit;
}

static int32_t make_plan(const struct problem *p, enum tf32_shape *shape, struct tf32_args *args)
{
    int limit = 0;
    QATTN_TRY(qattn__cuda_attribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, p->device_id));
    *shape = choose_shape(p, (size_t)limit);
    *args = (struct tf32_args){ .q_fours = qattn__flash_in_fours(&p->q), .k_fours = qattn__flash_in_fours(&p->k),
                                .v_fours = qattn__flash_in_fours(&p->v), .o_fours = qattn__flash_in_fours(&p->o) };
    return qattn__flash_items(p, tile_rows[*shape], tile_width[*shape], tile_keys[*shape], &args->item);
}

size_t qattn__sm80_tf32_workspace(const struct problem *p)
{
    enum tf32_shape shape;
    struct tf32_args args;
    return make_plan(p, &shape, &args) == QATTN_OK ? qattn__flash_parts(p, &args.item, NULL) : SIZE_MAX;
}

static const void *kernel_of(const struct problem *p, enum tf32_shape shape)
{
    return p->precision == QATTN_PRECISION_TF32 ? qattn__tf32_sm80_1x(shape) : qattn__tf32_sm80_3x(shape);
}

int32_t qattn__sm80_tf32_load(const struct problem *p)
{
    for (int shape = 0; shape < TF32_SHAPES; shape++)
        QATTN_TRY(qattn__cuda_load(kernel_of(p, (enum tf32_shape)shape)));
    QATTN_TRY(qattn__cuda_load(qattn__flash_simt_combine()));
    return QATTN_OK;
}

int32_t qattn__sm80_tf32(const struct problem *p, qattn_stream stream)
{
    enum tf32_shape shape;
    struct tf32_args args;
    QATTN_TRY(make_plan(p, &shape, &args));
    QATTN_TRY(qattn__check_workspace(p, qattn__flash_parts(p, &args.item, NULL)));
    (void)qattn__flash_parts(p, &args.item, p->workspace);
    void *params[] = { &args, problem_as_param(p) }, *combine[] = { &args.item, problem_as_param(p) };
    QATTN_TRY(qattn__cuda_launch(kernel_of(p, shape), args.item.work, 2 * (int)tile_rows[shape],
                                 shared_bytes(p, shape), params, stream, "tf32_sm80_kernel"));
    return qattn__flash_combine(p, &args.item, combine, stream);
}
