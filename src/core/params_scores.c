/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Options of a score, shared by softmax and attention: scale, softcap, masks, positions, bias, keep, LSE. */

#include "core/params_internal.h"

#include <inttypes.h>

#include "core/status.h"
#include "core/tensor.h"

#define ALL_MASKS (QATTN_MASK_CAUSAL | QATTN_MASK_WINDOW | QATTN_MASK_TOP_LEFT | QATTN_MASK_OFFSET)

static int32_t read_window(struct problem *p, const struct score_options *s)
{
    if (!(s->mask & QATTN_MASK_WINDOW))
        return QATTN_OK;
    QATTN_REQUIRE(s->window_left >= -1, QATTN_ERR_BAD_VALUE,
                  "params.window_left is %" PRId64 ": must be at least 0, or -1 for unlimited", s->window_left);
    QATTN_REQUIRE(s->window_right >= -1, QATTN_ERR_BAD_VALUE,
                  "params.window_right is %" PRId64 ": must be at least 0, or -1 for unlimited", s->window_right);
    p->window = true;
    p->window_left = s->window_left;
    p->window_right = s->window_right;
    return QATTN_OK;
}

static int32_t read_position(struct problem *p, const struct score_options *s)
{
    QATTN_REQUIRE((s->mask & ~ALL_MASKS) == 0, QATTN_ERR_UNKNOWN_BITS,
                  "params.mask is 0x%" PRIx32 ": bits 0x%" PRIx32 " are not QATTN_MASK_*", s->mask,
                  s->mask & ~ALL_MASKS);
    const bool top_left = s->mask & QATTN_MASK_TOP_LEFT, offset = s->mask & QATTN_MASK_OFFSET;
    QATTN_REQUIRE(!(top_left && offset), QATTN_ERR_COMBINATION,
                  "params.mask is 0x%" PRIx32 ": TOP_LEFT and OFFSET exclude each other", s->mask);
    QATTN_REQUIRE(offset || s->q_offset == 0, QATTN_ERR_COMBINATION,
                  "params.q_offset is %" PRId64 " without QATTN_MASK_OFFSET: set the bit, or leave it 0", s->q_offset);
    QATTN_REQUIRE(offset || !s->q_offsets, QATTN_ERR_COMBINATION,
                  "params.q_offsets is %p without QATTN_MASK_OFFSET: set the bit, or leave it NULL",
                  (const void *)s->q_offsets);
    QATTN_TRY(qattn__params_array(s->q_offsets, "q_offsets"));
    p->causal = s->mask & QATTN_MASK_CAUSAL;
    p->position = offset ? POSITION_OFFSET : top_left ? POSITION_TOP_LEFT : POSITION_BOTTOM_RIGHT;
    p->q_offset = s->q_offset;
    p->q_offsets = s->q_offsets;
    return read_window(p, s);
}

static int32_t read_numbers(struct problem *p, const struct score_options *s)
{
    QATTN_TRY(qattn__params_finite(s->scale, "scale"));
    QATTN_TRY(qattn__params_finite(s->softcap, "softcap"));
    QATTN_REQUIRE(s->softcap >= 0.0f, QATTN_ERR_BAD_VALUE, "params.softcap is %g: must be at least 0 (0: off)",
                  (double)s->softcap);
    QATTN_REQUIRE(s->alibi_batch_stride >= 0, QATTN_ERR_BAD_VALUE,
                  "params.alibi_batch_stride is %" PRId64 ": must be at least 0 (0: one row for all)",
                  s->alibi_batch_stride);
    p->scale = s->scale == 0.0f && !(p->flags & QATTN_FLAG_SCALE_AS_GIVEN) ? s->default_scale : s->scale;
    p->softcap = s->softcap;
    QATTN_TRY(qattn__params_array(s->seqused_q, "seqused_q"));
    QATTN_TRY(qattn__params_array(s->seqused_k, "seqused_k"));
    QATTN_TRY(qattn__params_array(s->sinks, "sinks"));
    QATTN_TRY(qattn__params_array(s->alibi_slopes, "alibi_slopes"));
    p->seqused_q = s->seqused_q;
    p->seqused_k = s->seqused_k;
    p->sinks = s->sinks;
    p->alibi_slopes = s->alibi_slopes;
    p->alibi_batch_stride = s->alibi_batch_stride;
    return QATTN_OK;
}

/* bias or keep: each axis is the score's or 1. */
static int32_t read_mask_tensor(struct view *out, const qattn_tensor *t, const char *name,
                                const struct score_options *s)
{
    static const char *const axes[4] = { "sequences", "query heads", "query rows", "keys" };
    bool absent;
    QATTN_TRY(qattn__tensor_absent(t, name, &absent));
    if (absent)
        return QATTN_OK;
    QATTN_TRY(qattn__tensor_view(out, t, name, TENSOR_INPUT, s->shapes_only));
    QATTN_TRY(qattn__tensor_same_device(t, name, s->first, s->first_name));
    for (int i = 0; i < 4; i++)
        QATTN_REQUIRE(t->shape[i] == s->shape[i] || t->shape[i] == 1, QATTN_ERR_BAD_SHAPE,
                      "%s.shape[%d] is %" PRId64 ": must be %" PRId64 " (%s) or 1", name, i, t->shape[i], s->shape[i],
                      axes[i]);
    return QATTN_OK;
}

static int32_t read_lse(struct problem *p, const struct score_options *s)
{
    bool absent;
    QATTN_TRY(qattn__tensor_absent(s->lse, "params.lse", &absent));
    if (absent)
        return QATTN_OK;
    QATTN_TRY(qattn__tensor_view(&p->lse, s->lse, "params.lse", TENSOR_OUTPUT, s->shapes_only));
    QATTN_TRY(qattn__tensor_same_device(s->lse, "params.lse", s->first, s->first_name));
    QATTN_REQUIRE(p->lse.dtype == QATTN_DTYPE_F32, QATTN_ERR_UNSUPPORTED_DTYPE, "params.lse is %s: must be f32",
                  qattn__dtype_name(p->lse.dtype));
    for (int i = 0; i < 4; i++)
        QATTN_TRY(qattn__tensor_extent(&p->lse, "params.lse", i, i < 3 ? s->lse_shape[i] : 1, "[B,Hq,Sq,1]"));
    return QATTN_OK;
}

int32_t qattn__params_scores(struct problem *p, const struct score_options *s)
{
    QATTN_TRY(read_position(p, s));
    QATTN_TRY(read_numbers(p, s));
    QATTN_TRY(read_lse(p, s));
    QATTN_TRY(read_mask_tensor(&p->bias, s->bias, "params.bias", s));
    QATTN_TRY(read_mask_tensor(&p->keep, s->keep, "params.keep", s));
    const int32_t tb = p->bias.dtype, tk = p->keep.dtype;
    QATTN_REQUIRE(!tb || qattn__is_float_type(tb), QATTN_ERR_UNSUPPORTED_DTYPE,
                  "params.bias is %s: must be f32, f16 or bf16", qattn__dtype_name(tb));
    QATTN_REQUIRE(!tk || tk == QATTN_DTYPE_BOOL || tk == QATTN_DTYPE_U8, QATTN_ERR_UNSUPPORTED_DTYPE,
                  "params.keep is %s: must be bool or u8", qattn__dtype_name(tk));
    return QATTN_OK;
}
