/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Attention in one pass on tensor cores, 16-bit q: which kernels a call takes, its splits and workspace. */
#ifndef QATTN_CUDA_FLASH_SM80_H
#define QATTN_CUDA_FLASH_SM80_H

#include "core/impls.h"

/* A sequence of at most so many rows (len_q * group) is the decode kernel's, any other the prefill kernel's. */
enum { FLASH_SM80_DECODE_ROWS = 64 };

bool qattn__sm80_flash_supports(const struct problem *p, char *why, size_t cap);
size_t qattn__sm80_flash_workspace(const struct problem *p);
int32_t qattn__sm80_flash_load(const struct problem *p);
int32_t qattn__sm80_flash(const struct problem *p, qattn_stream stream);

#endif
