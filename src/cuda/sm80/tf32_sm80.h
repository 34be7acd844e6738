/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Attention in one pass on tensor cores for f32 tensors, when precision asks for 3xTF32 or TF32. */
#ifndef QATTN_CUDA_TF32_SM80_H
#define QATTN_CUDA_TF32_SM80_H

#include "core/impls.h"

bool qattn__sm80_tf32_supports(const struct problem *p, char *why, size_t cap);
size_t qattn__sm80_tf32_workspace(const struct problem *p);
int32_t qattn__sm80_tf32_load(const struct problem *p);
int32_t qattn__sm80_tf32(const struct problem *p, qattn_stream stream);

#endif
