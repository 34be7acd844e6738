/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Launcher of merge_simt_kernels.cu. */
#include "cuda/simt/merge_simt.h"

#include <string.h>

#include "cuda/launch.h"
#include "cuda/sizes.h"
#include "cuda/simt/simt.h"

static struct merge_tensor tensor_of(const struct view *t)
{
    struct merge_tensor out = { .data = t->data };
    memcpy(out.stride, t->stride, sizeof out.stride);
    return out;
}

int32_t qattn__simt_merge(const struct problem *p, qattn_stream stream)
{
    const struct view *const part = &p->parts[0].o;
    struct merge_simt_args args = {
        .num_parts = (int32_t)p->num_parts, .base2 = (p->flags & QATTN_FLAG_LSE_BASE2) != 0, .part_dtype = part->dtype,
        .part_itemsize = part->itemsize, .o_dtype = p->o.dtype, .o_itemsize = p->o.itemsize, .o = tensor_of(&p->o),
    };
    if (p->lse.dtype)
        args.lse = tensor_of(&p->lse);
    memcpy(args.shape, p->o.shape, sizeof args.shape);
    QATTN_REQUIRE(!__builtin_mul_overflow(args.shape[0], args.shape[1], &args.rows) &&
                  !__builtin_mul_overflow(args.rows, args.shape[2], &args.rows), QATTN_ERR_UNSUPPORTED_SHAPE,
                  "the product of batches, heads and rows is above 2^63");
    for (int64_t i = 0; i < p->num_parts; i++) {
        args.o_parts[i] = tensor_of(&p->parts[i].o);
        args.lse_parts[i] = tensor_of(&p->parts[i].lse);
    }
    void *params[] = { &args };
    return qattn__cuda_launch(qattn__merge_simt(), blocks_of(args.rows, MERGE_WARPS), 32 * MERGE_WARPS, 0, params,
                              stream, "merge_simt_kernel");
}
