/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* What the launcher and the kernels of f32 attention on tensor cores agree on. */
#ifndef QATTN_CUDA_TF32_ARGS_H
#define QATTN_CUDA_TF32_ARGS_H

#include "cuda/simt/flash_simt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tile shapes: query rows (heads of a group counted apart) and columns of O. */
enum tf32_shape { TF32_128X128, TF32_128X256, TF32_64X128, TF32_SHAPES };
enum { TF32_KEYS_128 = 64, TF32_KEYS_256 = 32, TF32_PAD = 4 };    /* keys of a tile by columns; floats after each row */

/* Shared memory that the kernels declare themselves, at most, by warps of a block. */
enum { TF32_STATIC_4 = 7 << 10, TF32_STATIC_8 = 11 << 10 };

struct tf32_args {
    struct flash_simt_args item;    /* items and parts of splits; slices is 1 */
    int32_t q_fours, k_fours, v_fours, o_fours;   /* neighbours along D, and every four of them 16-byte aligned */
};

/* Kernels (struct tf32_args, struct problem_param): 3xTF32, TF32. */
const void *qattn__tf32_sm80_3x(enum tf32_shape shape);
const void *qattn__tf32_sm80_1x(enum tf32_shape shape);

#ifdef __cplusplus
}
#endif

#endif
