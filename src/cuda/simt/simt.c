/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "cuda/simt/simt.h"

#include <stdio.h>

#include "cuda/launch.h"
#include "cuda/simt/flash_simt.h"
#include "cuda/simt/gemm_simt.h"
#include "cuda/simt/merge_simt.h"
#include "cuda/simt/softmax_simt.h"
#include "cuda/simt/widen_simt.h"

bool qattn__simt_supports(const struct problem *p, char *why, size_t cap)
{
    int major = 0, minor = 0;
    const char *reason = NULL;
    if (p->device_type != QATTN_DEVICE_CUDA)
        reason = "runs on CUDA devices only";
    else if (p->op == OP_GQA_FORWARD && qattn__gqa_refusal(p))
        reason = qattn__gqa_refusal(p);
    else if (qattn__cuda_attribute(&major, cudaDevAttrComputeCapabilityMajor, p->device_id) != QATTN_OK ||
             qattn__cuda_attribute(&minor, cudaDevAttrComputeCapabilityMinor, p->device_id) != QATTN_OK)
        reason = "the device does not tell its compute capability";
    if (reason)
        snprintf(why, cap, "%s", reason);
    else if (major < 8)
        snprintf(why, cap, "needs compute capability 8.0, and the device has %d.%d", major, minor);
    return !reason && major >= 8;
}

size_t qattn__simt_workspace(const struct problem *p)
{
    switch (p->op) {
    case OP_GQA_FORWARD:   return qattn__simt_gqa_workspace(p);
    case OP_FLASH_FORWARD: return qattn__simt_flash_workspace(p);
    default:               return 0;
    }
}

static int32_t run_op(const struct problem *p, qattn_stream stream)
{
    switch (p->op) {
    case OP_MATMUL:
    case OP_MATMUL_NT:     return qattn__simt_matmul(p, stream);
    case OP_SOFTMAX:       return qattn__simt_softmax(p, stream);
    case OP_GQA_FORWARD:   return qattn__simt_gqa(p, stream);
    case OP_FLASH_FORWARD: return qattn__simt_flash(p, stream);
    case OP_MERGE:         return qattn__simt_merge(p, stream);
    default:               return qattn__fail(QATTN_ERR_INTERNAL, "op is %d: unknown to cuda.simt", (int)p->op);
    }
}

int32_t qattn__simt_run(const struct problem *p, qattn_stream stream)
{
    struct cuda_scope scope;
    QATTN_TRY(qattn__cuda_enter(&scope, p->device_id, stream));
    return qattn__cuda_leave(&scope, run_op(p, stream));
}

/* NULL entries are left out. */
static int32_t load(const void *const *kernels, int count)
{
    for (int i = 0; i < count; i++)
        if (kernels[i])
            QATTN_TRY(qattn__cuda_load(kernels[i]));
    return QATTN_OK;
}

static int32_t load_gemm(int32_t a_dtype, int32_t b_dtype, bool hiding)
{
    const bool f32 = a_dtype == QATTN_DTYPE_F32 && b_dtype == QATTN_DTYPE_F32;
    const void *const kernels[] = { qattn__gemm_simt(a_dtype, b_dtype, false, hiding),
                                    qattn__gemm_simt(a_dtype, b_dtype, true, hiding),
                                    f32 ? qattn__gemm_f32_simt(hiding) : NULL };
    return load(kernels, 3);
}

static int32_t load_softmax(int32_t dtype)
{
    const void *kernels[SOFTMAX_WIDTHS];
    for (int width = 0; width < SOFTMAX_WIDTHS; width++)
        kernels[width] = qattn__softmax_simt(dtype, (enum softmax_width)width);
    return load(kernels, SOFTMAX_WIDTHS);
}

static int32_t load_flash(const struct problem *p)
{
    const void *kernels[FS_SHAPES + 2] = { [FS_SHAPES] = qattn__flash_simt_combine(), qattn__flash_f32_simt() };
    for (int shape = 0; shape < FS_SHAPES; shape++)
        kernels[shape] = qattn__flash_simt(p->k.dtype, (enum flash_simt_shape)shape);
    return load(kernels, p->k.dtype == QATTN_DTYPE_F32 ? FS_SHAPES + 2 : FS_SHAPES + 1);
}

static int32_t load_gqa(const struct problem *p)
{
    const int32_t f32 = QATTN_DTYPE_F32;
    const int32_t q = p->k.itemsize == 1 ? f32 : p->q.dtype, k = p->k.itemsize == 1 ? f32 : p->k.dtype;
    const void *const widen = qattn__widen_simt();
    QATTN_TRY(load_gemm(q, k, false));
    QATTN_TRY(load_gemm(f32, k, true));
    QATTN_TRY(load_softmax(f32));
    return load(&widen, 1);
}

static int32_t load_kernels(const struct problem *p)
{
    const void *const merge = qattn__merge_simt();
    switch (p->op) {
    case OP_MATMUL:
    case OP_MATMUL_NT:     return load_gemm(p->a.dtype, p->b.dtype, false);
    case OP_SOFTMAX:       return load_softmax(p->x.dtype);
    case OP_GQA_FORWARD:   return load_gqa(p);
    case OP_FLASH_FORWARD: return load_flash(p);
    default:               return load(&merge, 1);
    }
}

/* Loads the kernels of the operation, so that a first call need not: a launch of nothing would not do it. */
int32_t qattn__simt_prepare(const struct problem *p)
{
    struct cuda_scope scope;
    QATTN_TRY(qattn__cuda_enter(&scope, p->device_id, NULL));
    return qattn__cuda_leave(&scope, load_kernels(p));
}
