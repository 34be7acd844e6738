/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "cuda/sm80/decode_direct.cuh"

const void *qattn__decode_f16(bool bytes, bool wide)
{
    if (bytes)
        return (const void *)decode_kernel<__half, 1, 32>;
    return wide ? (const void *)decode_kernel<__half, 2, 32> : (const void *)decode_kernel<__half, 2, 16>;
}

const void *qattn__decode_direct_f16(bool narrow)
{
    return narrow ? (const void *)decode_direct_kernel<__half, 64>
                  : (const void *)decode_direct_kernel<__half, 128>;
}
