/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "cuda/sm80/gemm_sm80.cuh"

#define KERNEL(kind) \
    (b_along_k ? (const void *)gemm_sm80_kernel<kind, true, false> : (const void *)gemm_sm80_kernel<kind, false, false>)

const void *qattn__gemm_sm80_tf32(bool b_along_k, bool three)
{
    return three ? KERNEL(GEMM_3XTF32) : KERNEL(GEMM_TF32);
}
