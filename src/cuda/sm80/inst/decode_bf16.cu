/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "cuda/sm80/decode_direct.cuh"

const void *qattn__decode_bf16(bool bytes, bool wide)
{
    if (bytes)
        return (const void *)decode_kernel<__nv_bfloat16, 1, 32>;
    return wide ? (const void *)decode_kernel<__nv_bfloat16, 2, 32> : (const void *)decode_kernel<__nv_bfloat16, 2, 16>;
}

const void *qattn__decode_direct_bf16(bool narrow)
{
    return narrow ? (const void *)decode_direct_kernel<__nv_bfloat16, 64>
                  : (const void *)decode_direct_kernel<__nv_bfloat16, 128>;
}
