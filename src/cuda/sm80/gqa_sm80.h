/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The three kernels with both products on tensor cores: f16 and bf16. */
#ifndef QATTN_CUDA_GQA_SM80_H
#define QATTN_CUDA_GQA_SM80_H

#include "core/impls.h"

bool qattn__sm80_gqa_supports(const struct problem *p, char *why, size_t cap);
size_t qattn__sm80_gqa_workspace(const struct problem *p);
int32_t qattn__sm80_gqa_load(const struct problem *p);
int32_t qattn__sm80_gqa(const struct problem *p, qattn_stream stream);

#endif
