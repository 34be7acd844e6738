/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "cuda/sm80/tf32_sm80.cuh"

const void *qattn__tf32_sm80_3x(enum tf32_shape shape)
{
    switch (shape) {
    case TF32_128X128: return (const void *)tf32_sm80_kernel<128, 8, true>;
    case TF32_128X256: return (const void *)tf32_sm80_kernel<256, 8, true>;
    default:           return (const void *)tf32_sm80_kernel<128, 4, true>;
    }
}
