/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The two products on tensor cores: f16 and bf16; f32 when precision asks for 3xTF32 or TF32. */
#ifndef QATTN_CUDA_GEMM_SM80_H
#define QATTN_CUDA_GEMM_SM80_H

#include "core/impls.h"
#include "cuda/sm80/gemm_sm80_args.h"

bool qattn__sm80_gemm_supports(const struct problem *p, char *why, size_t cap);
size_t qattn__sm80_gemm_workspace(const struct problem *p);
int32_t qattn__sm80_gemm_load(const struct problem *p);
int32_t qattn__sm80_gemm(const struct problem *p, qattn_stream stream);

/* A product of gqa_forward: everything but work, tiles, vectors and pairs is filled in. */
int32_t qattn__sm80_gemm_part(struct gemm_args *args, const struct problem *p, qattn_stream stream);

#endif
