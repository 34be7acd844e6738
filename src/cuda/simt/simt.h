/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The table row cuda.simt: every problem, on any device of compute capability 8.0 or more, without tensor cores. */
#ifndef QATTN_CUDA_SIMT_H
#define QATTN_CUDA_SIMT_H

#include "core/problem.h"

bool qattn__simt_supports(const struct problem *p, char *why, size_t cap);
size_t qattn__simt_workspace(const struct problem *p);
int32_t qattn__simt_prepare(const struct problem *p);
int32_t qattn__simt_run(const struct problem *p, qattn_stream stream);

/* The operations. The stream's context is current (cuda/launch.h). A workspace of SIZE_MAX cannot be had. */
size_t qattn__simt_flash_workspace(const struct problem *p);
int32_t qattn__simt_flash(const struct problem *p, qattn_stream stream);
size_t qattn__simt_gqa_workspace(const struct problem *p);
int32_t qattn__simt_gqa(const struct problem *p, qattn_stream stream);
int32_t qattn__simt_matmul(const struct problem *p, qattn_stream stream);
int32_t qattn__simt_softmax(const struct problem *p, qattn_stream stream);
int32_t qattn__simt_merge(const struct problem *p, qattn_stream stream);

#endif
