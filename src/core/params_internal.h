/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Shared by the params*.c files: the size-first rule, fields every operation has, and the options of a score. */
#ifndef QATTN_CORE_PARAMS_INTERNAL_H
#define QATTN_CORE_PARAMS_INTERNAL_H

#include "core/params.h"

#define QATTN__ALL_FLAGS (QATTN_FLAG_SCALE_AS_GIVEN | QATTN_FLAG_BATCH_INVARIANT | QATTN_FLAG_LSE_BASE2 | \
                          QATTN_FLAG_NO_FALLBACK)

static inline bool qattn__is_float_type(int32_t dtype)
{
    return dtype == QATTN_DTYPE_F32 || dtype == QATTN_DTYPE_F16 || dtype == QATTN_DTYPE_BF16;
}

/* An empty problem on the device of `first`. The parts keep what they held: only merge reads them, and fills them
 * itself. */
void qattn__problem_clear(struct problem *p, enum op op, const qattn_tensor *first, bool shapes_only);

/* Copies *given, a struct that opens with its struct_size, into the zeroed local of `known` bytes. NULL: defaults.
 * `known` is also the first shipped size: no struct has grown yet. */
int32_t qattn__params_read(void *local, size_t known, const void *given);

/* The fields all params structs share, into *p. */
struct common_options {
    uint64_t flags, allowed_flags;
    void *workspace;
    size_t workspace_bytes;
    int32_t num_threads, precision;
};
int32_t qattn__params_common(struct problem *p, const struct common_options *c);

/* What softmax and attention share: how a score is made and which are visible. */
struct score_options {
    float scale, default_scale, softcap;
    uint32_t mask;
    int64_t window_left, window_right, q_offset, alibi_batch_stride;
    const int32_t *q_offsets, *seqused_q, *seqused_k;
    const float *sinks, *alibi_slopes;
    const qattn_tensor *lse, *bias, *keep;
    int64_t shape[4];            /* of bias and keep: N, Hq, Sq, Sk */
    int64_t lse_shape[3];        /* B, Hq, Sq of o or y */
    const qattn_tensor *first;   /* the tensor whose device all share */
    const char *first_name;
    bool shapes_only;
};
int32_t qattn__params_scores(struct problem *p, const struct score_options *s);

int32_t qattn__params_finite(float x, const char *name);

/* A pointer to int32 or float: aligned to 4, or NULL. */
int32_t qattn__params_array(const void *array, const char *name);

/* A view and the name messages give it; absent views are skipped. */
struct named_view { const struct view *view; const char *name; };

/* No output shares its address with an input or another output. */
int32_t qattn__params_aliases(const struct named_view *outputs, int num_outputs, const struct named_view *inputs,
                              int num_inputs);

#endif
