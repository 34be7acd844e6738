/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Counts and bytes of a workspace, for numbers >= 0: what leaves int64 stays at INT64_MAX, which no allocation
 * and no caller's workspace ever reaches. */
#ifndef QATTN_CORE_SIZE_H
#define QATTN_CORE_SIZE_H

#include <stdint.h>

static inline int64_t sat_mul(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

static inline int64_t sat_add(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

#endif
