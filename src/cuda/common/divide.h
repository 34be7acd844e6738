/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Division of 0 <= x < 2^31 by a number that the launcher knows: two instructions and a shift (Granlund and Montgomery
 * 1994, section 4). */
#ifndef QATTN_CUDA_DIVIDE_H
#define QATTN_CUDA_DIVIDE_H

#include <stdint.h>

/* x / by = ((x mult >> 32) + x) >> shift. */
struct divisor { uint32_t by, mult, shift; };

/* d is 2^31 - 1 at most; below 1 it counts as 1. */
static inline struct divisor divisor_of(int64_t d)
{
    const uint64_t by = d < 1 ? 1 : (uint64_t)d;
    struct divisor x = { (uint32_t)by, 0, 0 };
    while (((uint64_t)1 << x.shift) < by)
        x.shift++;
    x.mult = (uint32_t)((((uint64_t)1 << 32) * (((uint64_t)1 << x.shift) - by)) / by + 1);
    return x;
}

#ifdef __CUDACC__
__device__ __forceinline__ unsigned divide(unsigned x, const struct divisor &d)
{
    return (__umulhi(x, d.mult) + x) >> d.shift;
}
#endif

#endif
