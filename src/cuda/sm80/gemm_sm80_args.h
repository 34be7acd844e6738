/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* What the launcher and the kernels of the product on tensor cores agree on. */
#ifndef QATTN_CUDA_GEMM_SM80_ARGS_H
#define QATTN_CUDA_GEMM_SM80_ARGS_H

#include "cuda/simt/gemm_simt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How elements are multiplied. */
enum gemm_kind { GEMM_F16, GEMM_BF16, GEMM_TF32, GEMM_3XTF32 };

enum { GEMM_SM80_ROWS = 128, GEMM_SM80_COLUMNS = GEMM_COLUMNS, GEMM_SM80_THREADS = 128, GEMM_SM80_STAGES = 3,
       GEMM_SM80_SHARED = GEMM_SM80_STAGES * 2 * GEMM_SM80_ROWS * 128 };

/* Kernels (struct gemm_args, struct problem_param) of a kind: B's k lie side by side
 * (b_along_k) or its n; hiding: for RANGE_VALUES, with b_along_k false. NULL: no such kernel. */
const void *qattn__gemm_sm80_f16(bool b_along_k, bool hiding);
const void *qattn__gemm_sm80_bf16(bool b_along_k, bool hiding);
const void *qattn__gemm_sm80_tf32(bool b_along_k, bool three);

#ifdef __cplusplus
}
#endif

#endif
