/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* A case laid into memory: fenced tensors, arrays and params ready for qattn__problem_* or the public call. */
#ifndef QATTN_TESTS_ATTN_BUILD_H
#define QATTN_TESTS_ATTN_BUILD_H

#include "attn_logical.h"
#include "gpu.h"
#include "support.h"

struct attn_build {
    const struct attn_case *c;
    struct sequence *seqs;              /* [b] */
    int64_t *start_q, *start_k;         /* [b] first stored row of a packed sequence */
    int32_t *pages;                     /* [b][max_pages] the page a key block lies in */
    struct box q, k, v, o, lse, bias, keep, scores, q_descale, k_descale, v_descale;   /* softmax: x in q, y in o */
    struct scratch cu_q, cu_k, used_q, used_k, offsets, table, sinks, slopes;
    qattn_attn_params attn;             /* tensors and arrays filled in; no workspace, no threads */
    qattn_softmax_params softmax;
};

/* Outputs start as poison; the inputs' snapshots are taken. c and seqs[b] must outlive the build. */
void attn_build_init(struct attn_build *b, const struct attn_case *c, struct sequence *seqs);
void attn_build_free(struct attn_build *b);

/* Poisons the outputs again and takes their snapshots. */
void attn_build_reset(struct attn_build *b);

/* attn_build_init's last step: arrays and params of placed tensors. */
void attn_build_params(struct attn_build *b);

/* The problem of this call. */
int32_t attn_build_problem(const struct attn_build *b, struct problem *p, int32_t num_threads);

/* Where row i of sequence n lies in q, o, lse, scores. */
void attn_place_q(const struct attn_build *b, int64_t n, int64_t i, int64_t *batch, int64_t *row);

/* All memory that the problem points into. */
void attn_build_regions(const struct attn_build *b, struct gpu_regions *regions);

/* Names the first input, if any, that is not as it was built; NULL: all are. */
const char *attn_build_changed_input(const struct attn_build *b);

#endif
