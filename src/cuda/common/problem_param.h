/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * struct problem as a kernel parameter, without the parts that only merge reads: below 2 KB, where the whole is 12.
 * Kernels read sequences through core/seq.h, the host's own code.
 */
#ifndef QATTN_CUDA_PROBLEM_PARAM_H
#define QATTN_CUDA_PROBLEM_PARAM_H

#include <stddef.h>

#include "core/problem.h"

/* As long as struct problem or shorter: launches read it there. */
struct problem_param { unsigned char bytes[offsetof(struct problem, parts)] __attribute__((aligned(16))); };

/* What a launch is to copy. */
static inline void *problem_as_param(const struct problem *p)
{
    return (void *)(uintptr_t)p;
}

/* Of the result, only the fields before `parts` exist. */
QATTN_HD static inline const struct problem *problem_of(const struct problem_param *packed)
{
    return (const struct problem *)(const void *)packed->bytes;
}

#endif
