/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Launcher of softmax_simt_kernels.cu. */
#include "cuda/simt/softmax_simt.h"

#include "cuda/launch.h"
#include "cuda/sizes.h"
#include "cuda/simt/simt.h"

enum { SHORT_KEYS = 32 * SOFTMAX_SLOTS, FEW_ROWS = 1024 };

/* Which threads add what decides a row's bits: under BATCH_INVARIANT always the same, whatever the
 * shape. A warp a row has the fewest instructions; few long rows need more threads. */
static enum softmax_width choose_width(const struct problem *p, int64_t rows)
{
    if (p->flags & QATTN_FLAG_BATCH_INVARIANT)
        return SOFTMAX_WIDE;
    if (p->cap_k <= SHORT_KEYS)
        return SOFTMAX_SHORT;
    return rows < FEW_ROWS ? SOFTMAX_WIDE : SOFTMAX_LONG;
}

int32_t qattn__simt_softmax_rows(struct softmax_simt_args *args, const struct problem *p, qattn_stream stream)
{
    QATTN_REQUIRE(!__builtin_mul_overflow(p->n, p->hq, &args->rows) &&
                  !__builtin_mul_overflow(args->rows, p->cap_q, &args->rows), QATTN_ERR_UNSUPPORTED_SHAPE,
                  "the product of batches, heads and rows is above 2^63");
    void *params[] = { args, problem_as_param(p) };
    const int64_t blocks = blocks_of(args->rows, SOFTMAX_ROWS);
    const void *const kernel = qattn__softmax_simt(args->x.dtype, choose_width(p, args->rows));
    return qattn__cuda_launch(kernel, blocks, SOFTMAX_THREADS, 0, params, stream, "softmax_simt_kernel");
}

int32_t qattn__simt_softmax(const struct problem *p, qattn_stream stream)
{
    struct softmax_simt_args args = { .x = p->x, .y = p->y, .keys = p->y.shape[3] };
    return qattn__simt_softmax_rows(&args, p, stream);
}
