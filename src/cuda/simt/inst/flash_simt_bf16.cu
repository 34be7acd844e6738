/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "cuda/simt/flash_simt.cuh"

const void *qattn__flash_simt_bf16(enum flash_simt_shape shape)
{
    switch (shape) {
    case FS_128X128: return (const void *)flash_simt_kernel<__nv_bfloat16, 8, 2>;
    case FS_64X256:  return (const void *)flash_simt_kernel<__nv_bfloat16, 4, 4>;
    case FS_16X128:  return (const void *)flash_simt_kernel<__nv_bfloat16, 1, 2>;
    default:         return NULL;
    }
}
