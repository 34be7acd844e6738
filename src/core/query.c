/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* qattn_query: what the header says at compile time, for bindings that cannot include it. A new constant or field
 * is one line here, a new status one line in status.h; tests compare the list with the header. */

#include "core/query.h"

#include <stddef.h>
#include <string.h>

#include "core/status.h"

#define CONSTANT(name) { #name, (int64_t)(name) }
#define SIZE(type) { "sizeof(" #type ")", (int64_t)sizeof(type) }
#define FIELD(type, field) { "offsetof(" #type "," #field ")", (int64_t)offsetof(type, field) }

static const struct { const char *name; int64_t value; } table[] = {
    CONSTANT(QATTN_VERSION_MAJOR),
    CONSTANT(QATTN_VERSION_MINOR),
    CONSTANT(QATTN_VERSION_PATCH),
    CONSTANT(QATTN_VERSION),
    CONSTANT(QATTN_ABI_VERSION),
    CONSTANT(QATTN_DTYPE_NONE),
    CONSTANT(QATTN_DTYPE_F32),
    CONSTANT(QATTN_DTYPE_F16),
    CONSTANT(QATTN_DTYPE_BF16),
    CONSTANT(QATTN_DTYPE_E4M3FN),
    CONSTANT(QATTN_DTYPE_E5M2),
    CONSTANT(QATTN_DTYPE_I8),
    CONSTANT(QATTN_DTYPE_U8),
    CONSTANT(QATTN_DTYPE_BOOL),
    CONSTANT(QATTN_DEVICE_CPU),
    CONSTANT(QATTN_DEVICE_CUDA),
    CONSTANT(QATTN_FLAG_SCALE_AS_GIVEN),
    CONSTANT(QATTN_FLAG_BATCH_INVARIANT),
    CONSTANT(QATTN_FLAG_LSE_BASE2),
    CONSTANT(QATTN_FLAG_NO_FALLBACK),
    CONSTANT(QATTN_MASK_CAUSAL),
    CONSTANT(QATTN_MASK_WINDOW),
    CONSTANT(QATTN_MASK_TOP_LEFT),
    CONSTANT(QATTN_MASK_OFFSET),
    CONSTANT(QATTN_PRECISION_IEEE),
    CONSTANT(QATTN_PRECISION_3XTF32),
    CONSTANT(QATTN_PRECISION_TF32),
    CONSTANT(QATTN_LAYOUT_BHSD),
    CONSTANT(QATTN_LAYOUT_BSHD),
    CONSTANT(QATTN_LAYOUT_SBHD),
    CONSTANT(QATTN_LAYOUT_THD),
#define X(name, sentence) CONSTANT(QATTN_##name),
    QATTN_STATUS_LIST(X)
#undef X
    SIZE(qattn_tensor),
    FIELD(qattn_tensor, data),
    FIELD(qattn_tensor, shape),
    FIELD(qattn_tensor, stride),
    FIELD(qattn_tensor, dtype),
    FIELD(qattn_tensor, device_type),
    FIELD(qattn_tensor, device_id),
    FIELD(qattn_tensor, reserved0),
    FIELD(qattn_tensor, reserved1),
    SIZE(qattn_attn_params),
    FIELD(qattn_attn_params, struct_size),
    FIELD(qattn_attn_params, flags),
    FIELD(qattn_attn_params, workspace),
    FIELD(qattn_attn_params, workspace_bytes),
    FIELD(qattn_attn_params, scale),
    FIELD(qattn_attn_params, softcap),
    FIELD(qattn_attn_params, mask),
    FIELD(qattn_attn_params, precision),
    FIELD(qattn_attn_params, num_splits),
    FIELD(qattn_attn_params, num_threads),
    FIELD(qattn_attn_params, scores_stage),
    FIELD(qattn_attn_params, reserved0),
    FIELD(qattn_attn_params, window_left),
    FIELD(qattn_attn_params, window_right),
    FIELD(qattn_attn_params, q_offset),
    FIELD(qattn_attn_params, q_offsets),
    FIELD(qattn_attn_params, cu_seqlens_q),
    FIELD(qattn_attn_params, cu_seqlens_k),
    FIELD(qattn_attn_params, seqused_q),
    FIELD(qattn_attn_params, seqused_k),
    FIELD(qattn_attn_params, num_seqs),
    FIELD(qattn_attn_params, max_seqlen_q),
    FIELD(qattn_attn_params, max_seqlen_k),
    FIELD(qattn_attn_params, page_table),
    FIELD(qattn_attn_params, page_table_stride),
    FIELD(qattn_attn_params, max_pages),
    FIELD(qattn_attn_params, sinks),
    FIELD(qattn_attn_params, alibi_slopes),
    FIELD(qattn_attn_params, alibi_batch_stride),
    FIELD(qattn_attn_params, lse),
    FIELD(qattn_attn_params, bias),
    FIELD(qattn_attn_params, keep),
    FIELD(qattn_attn_params, scores),
    FIELD(qattn_attn_params, q_descale),
    FIELD(qattn_attn_params, k_descale),
    FIELD(qattn_attn_params, v_descale),
    SIZE(qattn_matmul_params),
    FIELD(qattn_matmul_params, struct_size),
    FIELD(qattn_matmul_params, flags),
    FIELD(qattn_matmul_params, workspace),
    FIELD(qattn_matmul_params, workspace_bytes),
    FIELD(qattn_matmul_params, alpha),
    FIELD(qattn_matmul_params, beta),
    FIELD(qattn_matmul_params, precision),
    FIELD(qattn_matmul_params, num_threads),
    SIZE(qattn_softmax_params),
    FIELD(qattn_softmax_params, struct_size),
    FIELD(qattn_softmax_params, flags),
    FIELD(qattn_softmax_params, workspace),
    FIELD(qattn_softmax_params, workspace_bytes),
    FIELD(qattn_softmax_params, scale),
    FIELD(qattn_softmax_params, softcap),
    FIELD(qattn_softmax_params, mask),
    FIELD(qattn_softmax_params, num_threads),
    FIELD(qattn_softmax_params, window_left),
    FIELD(qattn_softmax_params, window_right),
    FIELD(qattn_softmax_params, q_offset),
    FIELD(qattn_softmax_params, q_offsets),
    FIELD(qattn_softmax_params, seqused_q),
    FIELD(qattn_softmax_params, seqused_k),
    FIELD(qattn_softmax_params, sinks),
    FIELD(qattn_softmax_params, alibi_slopes),
    FIELD(qattn_softmax_params, alibi_batch_stride),
    FIELD(qattn_softmax_params, lse),
    FIELD(qattn_softmax_params, bias),
    FIELD(qattn_softmax_params, keep),
    SIZE(qattn_merge_params),
    FIELD(qattn_merge_params, struct_size),
    FIELD(qattn_merge_params, flags),
    FIELD(qattn_merge_params, workspace),
    FIELD(qattn_merge_params, workspace_bytes),
    FIELD(qattn_merge_params, num_threads),
    FIELD(qattn_merge_params, reserved0),
};

int32_t qattn__query(const char *name, int64_t *value)
{
    QATTN_REQUIRE(name && value, QATTN_ERR_NULL_POINTER, "%s is NULL: required", name ? "value" : "name");
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(name, table[i].name) == 0) {
            *value = table[i].value;
            return QATTN_OK;
        }
    }
    return qattn__fail(QATTN_ERR_UNKNOWN_NAME, "name is \"%.128s\": no constant, sizeof(type) or "
                       "offsetof(type,field) of qattn.h", name);
}
