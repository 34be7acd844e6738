/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "cuda/sm80/sm80.h"

#include <stdio.h>

#include "cuda/launch.h"
#include "cuda/sm80/flash_sm80.h"
#include "cuda/sm80/gemm_sm80.h"
#include "cuda/sm80/gqa_sm80.h"
#include "cuda/sm80/tf32_sm80.h"

/* The functions of one kind of problem. */
struct part {
    bool    (*supports)(const struct problem *p, char *why, size_t cap);
    size_t  (*workspace)(const struct problem *p);
    int32_t (*load)(const struct problem *p);
    int32_t (*run)(const struct problem *p, qattn_stream stream);
};

#define PART(name) \
    { qattn__sm80_##name##_supports, qattn__sm80_##name##_workspace, qattn__sm80_##name##_load, qattn__sm80_##name }

static const struct part flash = PART(flash), tf32 = PART(tf32), matmul = PART(matmul), gqa = PART(gqa);

static const struct part *part_of(const struct problem *p)
{
    switch (p->op) {
    case OP_MATMUL:
    case OP_MATMUL_NT:     return &matmul;
    case OP_GQA_FORWARD:   return &gqa;
    case OP_FLASH_FORWARD: return p->q.dtype == QATTN_DTYPE_F32 ? &tf32 : &flash;
    default:               return NULL;
    }
}

bool qattn__sm80_supports(const struct problem *p, char *why, size_t cap)
{
    const struct part *const part = part_of(p);
    int major = 0;
    if (p->device_type != QATTN_DEVICE_CUDA)
        snprintf(why, cap, "runs on CUDA devices only");
    else if (!part)
        snprintf(why, cap, "has no work for tensor cores");
    else if (qattn__cuda_attribute(&major, cudaDevAttrComputeCapabilityMajor, p->device_id) != QATTN_OK)
        snprintf(why, cap, "the device does not tell its compute capability");
    else if (major < 8)
        snprintf(why, cap, "needs compute capability 8.0, and the device has %d.x", major);
    else
        return part->supports(p, why, cap);
    return false;
}

size_t qattn__sm80_workspace(const struct problem *p) { return part_of(p)->workspace(p); }

int32_t qattn__sm80_run(const struct problem *p, qattn_stream stream)
{
    struct cuda_scope scope;
    QATTN_TRY(qattn__cuda_enter(&scope, p->device_id, stream));
    return qattn__cuda_leave(&scope, part_of(p)->run(p, stream));
}

int32_t qattn__sm80_prepare(const struct problem *p)
{
    struct cuda_scope scope;
    QATTN_TRY(qattn__cuda_enter(&scope, p->device_id, NULL));
    return qattn__cuda_leave(&scope, part_of(p)->load(p));
}
