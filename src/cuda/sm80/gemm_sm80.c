/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Launcher of gemm_sm80.cuh: matmul and matmul_nt, and the products of gqa_forward. */
#include "cuda/sm80/gemm_sm80.h"

#include <stdio.h>

#include "cuda/launch.h"
#include "cuda/sizes.h"

bool qattn__sm80_matmul_supports(const struct problem *p, char *why, size_t cap)
{
    if (p->a.dtype == QATTN_DTYPE_F32 && p->precision == QATTN_PRECISION_IEEE)
        snprintf(why, cap, "has no IEEE f32; precision QATTN_PRECISION_3XTF32 or _TF32 allows what it has");
    else
        return true;
    return false;
}

size_t qattn__sm80_matmul_workspace(const struct problem *p)
{
    (void)p;
    return 0;
}

static bool has_rows(const struct gemm_args *a)
{
    const int64_t piece = 16 / a->c_itemsize;
    return a->c_column == 1 && a->beta == 0.0f && a->c_row % piece == 0 && a->c_head % piece == 0 &&
           a->c_batch % piece == 0 && (uintptr_t)a->c % 16 == 0;
}

static const void *kernel_of(int32_t dtype, int32_t precision, bool b_along_k, bool hiding)
{
    switch (dtype) {
    case QATTN_DTYPE_F16:  return qattn__gemm_sm80_f16(b_along_k, hiding);
    case QATTN_DTYPE_BF16: return qattn__gemm_sm80_bf16(b_along_k, hiding);
    default:               return qattn__gemm_sm80_tf32(b_along_k, precision != QATTN_PRECISION_TF32);
    }
}

int32_t qattn__sm80_gemm(struct gemm_args *a, const struct problem *p, qattn_stream stream)
{
    const bool hiding = a->range == RANGE_VALUES, b_along_k = !hiding && qattn__gemm_runs_along_k(&a->b, a->n, a->k);
    a->a.vectors = qattn__gemm_has_vectors(&a->a, true, a->k);
    a->b.vectors = qattn__gemm_has_vectors(&a->b, b_along_k, b_along_k ? a->k : a->n);
    a->c_vectors = has_rows(a);
    a->cut = a->range != RANGE_ALL && qattn__gemm_hides(p);
    QATTN_TRY(qattn__gemm_count(a, GEMM_SM80_ROWS, GEMM_SM80_COLUMNS));
    void *params[] = { a, problem_as_param(p) };
    return qattn__cuda_launch(kernel_of(a->a.dtype, p->precision, b_along_k, hiding), a->work, GEMM_SM80_THREADS,
                              GEMM_SM80_SHARED, params, stream, "gemm_sm80_kernel");
}

int32_t qattn__sm80_matmul(const struct problem *p, qattn_stream stream)
{
    struct gemm_args args = qattn__matmul_args(p);
    return qattn__sm80_gemm(&args, p, stream);
}

int32_t qattn__sm80_matmul_load(const struct problem *p)
{
    const int32_t dtype = p->op == OP_GQA_FORWARD ? p->q.dtype : p->a.dtype;
    for (int along = 0; along < 2; along++)
        QATTN_TRY(qattn__cuda_load(kernel_of(dtype, p->precision, along, false)));
    if (p->op == OP_GQA_FORWARD)
        QATTN_TRY(qattn__cuda_load(kernel_of(dtype, p->precision, false, true)));
    return QATTN_OK;
}
