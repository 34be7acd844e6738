/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The layout and the values of include/qattn.h, as literal numbers: CONSTANT(name, value), SIZE(struct, bytes),
 * FIELD(struct, field, offset, bytes). Written by `make abi-update`; a change here is a change of the ABI. */
#ifndef QATTN_TESTS_ABI_GOLDEN_H
#define QATTN_TESTS_ABI_GOLDEN_H

#define ABI_GOLDEN(CONSTANT, SIZE, FIELD) \
    CONSTANT(QATTN_ABI_VERSION, 0) \
    CONSTANT(QATTN_DTYPE_NONE, 0x000000) \
    CONSTANT(QATTN_DTYPE_F32, 0x022001) \
    CONSTANT(QATTN_DTYPE_F16, 0x021001) \
    CONSTANT(QATTN_DTYPE_BF16, 0x041001) \
    CONSTANT(QATTN_DTYPE_E4M3FN, 0x0a0801) \
    CONSTANT(QATTN_DTYPE_E5M2, 0x0c0801) \
    CONSTANT(QATTN_DTYPE_I8, 0x000801) \
    CONSTANT(QATTN_DTYPE_U8, 0x010801) \
    CONSTANT(QATTN_DTYPE_BOOL, 0x060801) \
    CONSTANT(QATTN_DEVICE_CPU, 1) \
    CONSTANT(QATTN_DEVICE_CUDA, 2) \
    CONSTANT(QATTN_FLAG_SCALE_AS_GIVEN, 1) \
    CONSTANT(QATTN_FLAG_BATCH_INVARIANT, 2) \
    CONSTANT(QATTN_FLAG_LSE_BASE2, 4) \
    CONSTANT(QATTN_FLAG_NO_FALLBACK, 8) \
    CONSTANT(QATTN_MASK_CAUSAL, 1) \
    CONSTANT(QATTN_MASK_WINDOW, 2) \
    CONSTANT(QATTN_MASK_TOP_LEFT, 4) \
    CONSTANT(QATTN_MASK_OFFSET, 8) \
    CONSTANT(QATTN_PRECISION_IEEE, 0) \
    CONSTANT(QATTN_PRECISION_3XTF32, 1) \
    CONSTANT(QATTN_PRECISION_TF32, 2) \
    CONSTANT(QATTN_LAYOUT_BHSD, 1) \
    CONSTANT(QATTN_LAYOUT_BSHD, 2) \
    CONSTANT(QATTN_LAYOUT_SBHD, 3) \
    CONSTANT(QATTN_LAYOUT_THD, 4) \
    CONSTANT(QATTN_OK, 0) \
    CONSTANT(QATTN_ERR_NULL_POINTER, 1001) \
    CONSTANT(QATTN_ERR_STRUCT_SIZE, 1002) \
    CONSTANT(QATTN_ERR_PARAMS_TOO_NEW, 1003) \
    CONSTANT(QATTN_ERR_RESERVED, 1004) \
    CONSTANT(QATTN_ERR_UNKNOWN_BITS, 1005) \
    CONSTANT(QATTN_ERR_BAD_DTYPE, 1006) \
    CONSTANT(QATTN_ERR_BAD_DEVICE, 1007) \
    CONSTANT(QATTN_ERR_BAD_SHAPE, 1008) \
    CONSTANT(QATTN_ERR_BAD_STRIDE, 1009) \
    CONSTANT(QATTN_ERR_ALIAS, 1010) \
    CONSTANT(QATTN_ERR_BAD_VALUE, 1011) \
    CONSTANT(QATTN_ERR_ALIGNMENT, 1012) \
    CONSTANT(QATTN_ERR_DEVICE_MISMATCH, 1013) \
    CONSTANT(QATTN_ERR_COMBINATION, 1014) \
    CONSTANT(QATTN_ERR_STREAM, 1015) \
    CONSTANT(QATTN_ERR_UNKNOWN_NAME, 1016) \
    CONSTANT(QATTN_ERR_UNSUPPORTED_DTYPE, 2001) \
    CONSTANT(QATTN_ERR_UNSUPPORTED_SHAPE, 2002) \
    CONSTANT(QATTN_ERR_UNSUPPORTED, 2003) \
    CONSTANT(QATTN_ERR_NOT_BUILT, 2004) \
    CONSTANT(QATTN_ERR_NO_IMPLEMENTATION, 2005) \
    CONSTANT(QATTN_ERR_NO_DRIVER, 3001) \
    CONSTANT(QATTN_ERR_DRIVER_TOO_OLD, 3002) \
    CONSTANT(QATTN_ERR_NO_DEVICE, 3003) \
    CONSTANT(QATTN_ERR_DEVICE_BUSY, 3004) \
    CONSTANT(QATTN_ERR_NO_KERNEL_IMAGE, 3005) \
    CONSTANT(QATTN_ERR_FORKED, 3006) \
    CONSTANT(QATTN_ERR_CAPTURE_INVALID, 3007) \
    CONSTANT(QATTN_ERR_CUDA, 3008) \
    CONSTANT(QATTN_ERR_WORKSPACE, 4001) \
    CONSTANT(QATTN_ERR_OUT_OF_MEMORY, 4002) \
    CONSTANT(QATTN_ERR_INTERNAL, 5001) \
    SIZE(qattn_tensor, 96) \
    FIELD(qattn_tensor, data, 0, 8) \
    FIELD(qattn_tensor, shape, 8, 32) \
    FIELD(qattn_tensor, stride, 40, 32) \
    FIELD(qattn_tensor, dtype, 72, 4) \
    FIELD(qattn_tensor, device_type, 76, 4) \
    FIELD(qattn_tensor, device_id, 80, 4) \
    FIELD(qattn_tensor, reserved0, 84, 4) \
    FIELD(qattn_tensor, reserved1, 88, 8) \
    SIZE(qattn_attn_params, 872) \
    FIELD(qattn_attn_params, struct_size, 0, 8) \
    FIELD(qattn_attn_params, flags, 8, 8) \
    FIELD(qattn_attn_params, workspace, 16, 8) \
    FIELD(qattn_attn_params, workspace_bytes, 24, 8) \
    FIELD(qattn_attn_params, scale, 32, 4) \
    FIELD(qattn_attn_params, softcap, 36, 4) \
    FIELD(qattn_attn_params, mask, 40, 4) \
    FIELD(qattn_attn_params, precision, 44, 4) \
    FIELD(qattn_attn_params, num_splits, 48, 4) \
    FIELD(qattn_attn_params, num_threads, 52, 4) \
    FIELD(qattn_attn_params, scores_stage, 56, 4) \
    FIELD(qattn_attn_params, reserved0, 60, 4) \
    FIELD(qattn_attn_params, window_left, 64, 8) \
    FIELD(qattn_attn_params, window_right, 72, 8) \
    FIELD(qattn_attn_params, q_offset, 80, 8) \
    FIELD(qattn_attn_params, q_offsets, 88, 8) \
    FIELD(qattn_attn_params, cu_seqlens_q, 96, 8) \
    FIELD(qattn_attn_params, cu_seqlens_k, 104, 8) \
    FIELD(qattn_attn_params, seqused_q, 112, 8) \
    FIELD(qattn_attn_params, seqused_k, 120, 8) \
    FIELD(qattn_attn_params, num_seqs, 128, 8) \
    FIELD(qattn_attn_params, max_seqlen_q, 136, 8) \
    FIELD(qattn_attn_params, max_seqlen_k, 144, 8) \
    FIELD(qattn_attn_params, page_table, 152, 8) \
    FIELD(qattn_attn_params, page_table_stride, 160, 8) \
    FIELD(qattn_attn_params, max_pages, 168, 8) \
    FIELD(qattn_attn_params, sinks, 176, 8) \
    FIELD(qattn_attn_params, alibi_slopes, 184, 8) \
    FIELD(qattn_attn_params, alibi_batch_stride, 192, 8) \
    FIELD(qattn_attn_params, lse, 200, 96) \
    FIELD(qattn_attn_params, bias, 296, 96) \
    FIELD(qattn_attn_params, keep, 392, 96) \
    FIELD(qattn_attn_params, scores, 488, 96) \
    FIELD(qattn_attn_params, q_descale, 584, 96) \
    FIELD(qattn_attn_params, k_descale, 680, 96) \
    FIELD(qattn_attn_params, v_descale, 776, 96) \
    SIZE(qattn_matmul_params, 48) \
    FIELD(qattn_matmul_params, struct_size, 0, 8) \
    FIELD(qattn_matmul_params, flags, 8, 8) \
    FIELD(qattn_matmul_params, workspace, 16, 8) \
    FIELD(qattn_matmul_params, workspace_bytes, 24, 8) \
    FIELD(qattn_matmul_params, alpha, 32, 4) \
    FIELD(qattn_matmul_params, beta, 36, 4) \
    FIELD(qattn_matmul_params, precision, 40, 4) \
    FIELD(qattn_matmul_params, num_threads, 44, 4) \
    SIZE(qattn_softmax_params, 408) \
    FIELD(qattn_softmax_params, struct_size, 0, 8) \
    FIELD(qattn_softmax_params, flags, 8, 8) \
    FIELD(qattn_softmax_params, workspace, 16, 8) \
    FIELD(qattn_softmax_params, workspace_bytes, 24, 8) \
    FIELD(qattn_softmax_params, scale, 32, 4) \
    FIELD(qattn_softmax_params, softcap, 36, 4) \
    FIELD(qattn_softmax_params, mask, 40, 4) \
    FIELD(qattn_softmax_params, num_threads, 44, 4) \
    FIELD(qattn_softmax_params, window_left, 48, 8) \
    FIELD(qattn_softmax_params, window_right, 56, 8) \
    FIELD(qattn_softmax_params, q_offset, 64, 8) \
    FIELD(qattn_softmax_params, q_offsets, 72, 8) \
    FIELD(qattn_softmax_params, seqused_q, 80, 8) \
    FIELD(qattn_softmax_params, seqused_k, 88, 8) \
    FIELD(qattn_softmax_params, sinks, 96, 8) \
    FIELD(qattn_softmax_params, alibi_slopes, 104, 8) \
    FIELD(qattn_softmax_params, alibi_batch_stride, 112, 8) \
    FIELD(qattn_softmax_params, lse, 120, 96) \
    FIELD(qattn_softmax_params, bias, 216, 96) \
    FIELD(qattn_softmax_params, keep, 312, 96) \
    SIZE(qattn_merge_params, 40) \
    FIELD(qattn_merge_params, struct_size, 0, 8) \
    FIELD(qattn_merge_params, flags, 8, 8) \
    FIELD(qattn_merge_params, workspace, 16, 8) \
    FIELD(qattn_merge_params, workspace_bytes, 24, 8) \
    FIELD(qattn_merge_params, num_threads, 32, 4) \
    FIELD(qattn_merge_params, reserved0, 36, 4)

#endif
