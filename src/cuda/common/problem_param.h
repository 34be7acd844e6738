/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * struct problem as a kernel parameter, without the parts that only merge reads: below 2 KB, where the whole is 12.
 * Kernels read sequences through core/seq.h, the host's own code.
 */
#ifndef QATTN_CUDA_PROBLEM_PARAM_H
#define QATTN_CUDA_PROBLEM_PARAM_H

#include <stddef.h>
#include <string.h>

#include "core/problem.h"

struct problem_param { unsigned char bytes[offsetof(struct problem, parts)] __attribute__((aligned(16))); };

static inline void problem_pack(struct problem_param *packed, const struct problem *p)
{
    memcpy(packed->bytes, p, sizeof packed->bytes);
}

/* Of the result, only the fields before `parts` exist. */
QATTN_HD static inline const struct problem *problem_of(const struct problem_param *packed)
{
    return (const struct problem *)(const void *)packed->bytes;
}

#endif
