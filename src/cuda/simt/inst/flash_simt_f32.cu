/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "cuda/simt/flash_simt.cuh"

const void *qattn__flash_simt_f32(enum flash_simt_shape shape)
{
    switch (shape) {
    case FS_128X128: return (const void *)flash_simt_kernel<float, 8, 2>;
    case FS_64X256:  return (const void *)flash_simt_kernel<float, 4, 4>;
    case FS_128X64:  return (const void *)flash_simt_kernel<float, 8, 1>;
    default:         return (const void *)flash_simt_kernel<float, 1, 2>;
    }
}
