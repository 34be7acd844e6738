/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "cuda/sm80/flash_sm80.cuh"

struct flash_sm80_kernel qattn__flash_sm80_f16_128_terms(void)
{
    return f80_kernel<f80<__half, false, F80_TILE_128_TERMS, true>>();
}
