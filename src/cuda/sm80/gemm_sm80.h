/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The two products on tensor cores: f16 and bf16; f32 when precision asks for 3xTF32 or TF32. */
#ifndef QATTN_CUDA_GEMM_SM80_H
#define QATTN_CUDA_GEMM_SM80_H

#include "core/impls.h"
#include "cuda/sm80/gemm_sm80_args.h"

bool qattn__sm80_matmul_supports(const struct problem *p, char *why, size_t cap);
size_t qattn__sm80_matmul_workspace(const struct problem *p);
int32_t qattn__sm80_matmul_load(const struct problem *p);   /* of gqa_forward too */
int32_t qattn__sm80_matmul(const struct problem *p, qattn_stream stream);

/* A product; tiles, work, cut and how operands are read are filled in. */
int32_t qattn__sm80_gemm(struct gemm_args *args, const struct problem *p, qattn_stream stream);

#endif
