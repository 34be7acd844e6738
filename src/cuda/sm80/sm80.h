/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The row cuda.sm80: tensor cores through mma.sync, for compute capability 8.0 and more. */
#ifndef QATTN_CUDA_SM80_H
#define QATTN_CUDA_SM80_H

#include "core/impls.h"

bool qattn__sm80_supports(const struct problem *p, char *why, size_t cap);
size_t qattn__sm80_workspace(const struct problem *p);
int32_t qattn__sm80_prepare(const struct problem *p);
int32_t qattn__sm80_run(const struct problem *p, qattn_stream stream);

#endif
