/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "cuda/sm80/gemm_sm80.cuh"

const void *qattn__gemm_sm80_bf16(bool b_along_k, bool hiding)
{
    if (hiding)
        return b_along_k ? NULL : (const void *)gemm_sm80_kernel<GEMM_BF16, false, true>;
    return b_along_k ? (const void *)gemm_sm80_kernel<GEMM_BF16, true, false>
                     : (const void *)gemm_sm80_kernel<GEMM_BF16, false, false>;
}
