/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * From public arguments to struct problem: every check of an operation's tensors and params is behind these four
 * functions. On failure the status and text are recorded and *p must not be used. `shapes_only` (the *_workspace,
 * *_explain and *_prepare twins): data pointers may be NULL and are never read.
 */
#ifndef QATTN_CORE_PARAMS_H
#define QATTN_CORE_PARAMS_H

#include "core/problem.h"

int32_t qattn__problem_matmul(struct problem *p, enum op op, const qattn_tensor *a, const qattn_tensor *b,
                              const qattn_tensor *c, const qattn_matmul_params *params, bool shapes_only);
int32_t qattn__problem_softmax(struct problem *p, const qattn_tensor *x, const qattn_tensor *y,
                               const qattn_softmax_params *params, bool causal, bool shapes_only);
int32_t qattn__problem_attention(struct problem *p, enum op op, const qattn_tensor *q, const qattn_tensor *k,
                                 const qattn_tensor *v, const qattn_tensor *o, const qattn_attn_params *params,
                                 bool shapes_only);
int32_t qattn__problem_merge(struct problem *p, int64_t n, const qattn_tensor *o_parts,
                             const qattn_tensor *lse_parts, const qattn_tensor *o, const qattn_tensor *lse,
                             const qattn_merge_params *params, bool shapes_only);

#endif
