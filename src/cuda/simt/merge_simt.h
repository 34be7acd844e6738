/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* What the launcher and the kernel of qattn_merge agree on. */
#ifndef QATTN_CUDA_MERGE_SIMT_H
#define QATTN_CUDA_MERGE_SIMT_H

#include "core/problem.h"

#ifdef __cplusplus
extern "C" {
#endif

struct merge_tensor { char *data; int64_t stride[4]; };

/* 5.3 KB: more than 4, which drivers take since CUDA 12.1. */
struct merge_simt_args {
    int64_t rows;               /* B * H * S */
    int64_t shape[4];           /* of o */
    int32_t num_parts, base2, part_dtype, part_itemsize, o_dtype, o_itemsize;
    struct merge_tensor o, lse; /* lse.data NULL: not asked for */
    struct merge_tensor o_parts[QATTN__MAX_PARTS], lse_parts[QATTN__MAX_PARTS];
};

enum { MERGE_WARPS = 8 };
const void *qattn__merge_simt(void);

#ifdef __cplusplus
}
#endif

#endif
