/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Arithmetic of the CUDA launchers' plans. */
#ifndef QATTN_CUDA_SIZES_H
#define QATTN_CUDA_SIZES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/problem.h"

/* Shared memory that the system takes of each block. */
enum { SYSTEM_SHARED_BYTES = 1 << 10 };

/* x / block, rounded up; x >= 0. */
static inline int64_t blocks_of(int64_t x, int64_t block) { return x / block + (x % block != 0); }

static inline int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

/* Product of sizes, SIZE_MAX where it does not fit. */
static inline size_t times(size_t a, size_t b)
{
    size_t product;
    return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

/* Rows of a sequence, query rows times heads of a group, are at most so many. */
static inline bool group_rows_within(const struct problem *p, int64_t most)
{
    int64_t rows;
    return !__builtin_mul_overflow(p->cap_q, p->group, &rows) && rows <= most;
}

/* Rows of the view start at multiples of 16 bytes, elements side by side. */
static inline bool rows_of_16_bytes(const struct view *t)
{
    if ((uintptr_t)t->data % 16 != 0 || (t->stride[3] != 1 && t->shape[3] > 1))
        return false;
    for (int axis = 0; axis < 3; axis++)
        if (t->stride[axis] * t->itemsize % 16 != 0)
            return false;
    return true;
}

#endif
