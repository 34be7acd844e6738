/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Wrong calls. Each line of a table is one change to a call that works; it must be refused with that status and a
 * message that holds that text (argument, value), no output byte may change, and the *_workspace twin must say the same
 * unless only the call itself can know. At the end calls that look odd and are right.
 */
#include <check.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "badargs.h"
#include "suites.h"
#include "support.h"

float bad_in[8][ROOM], bad_out[4][ROOM];
_Alignas(256) char bad_workspace[1 << 20];
static float out_copy[4][ROOM];
static int32_t ints[4][64];

qattn_tensor bad_tensor(void *data, int64_t b, int64_t h, int64_t s, int64_t d)
{
    qattn_tensor t;
    const int32_t status =
        qattn_tensor_init(&t, data, QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BHSD, b, h, s, d);
    ck_assert_int_eq(status, QATTN_OK);
    return t;
}

void poison_outputs(void)
{
    memset(bad_out, 0xA5, sizeof bad_out);
    memcpy(out_copy, bad_out, sizeof bad_out);
}

void check_refusal(const char *name, int32_t got, int32_t want, const char *text)
{
    char said[512] = "";
    ck_assert_msg(got == want, "%s: status %d (%s), want %d (%s)", name, got, qattn_status_name(got), want,
                  qattn_status_name(want));
    ck_assert_msg(qattn_last_error(said, sizeof said) == want, "%s: qattn_last_error returns another status", name);
    ck_assert_msg(strstr(said, text) != NULL, "%s: message \"%s\" lacks \"%s\"", name, said, text);
    ck_assert_msg(memcmp(bad_out, out_copy, sizeof bad_out) == 0, "%s: a refused call wrote to an output", name);
    count_run("wrong calls", 1);
}

void check_twin(const char *name, int32_t got, int32_t call, enum twin twin)
{
    ck_assert_msg(got == (twin == SAME ? call : QATTN_OK), "%s: the *_workspace twin says %d", name, got);
}

/* ---------------------------------------------------------------- attention */

struct attn_call {
    qattn_tensor t[4];                       /* q k v o */
    const qattn_tensor *q, *k, *v, *o;
    qattn_attn_params p;
    unsigned char bytes[4200];               /* a larger params struct */
    const void *params;
    qattn_stream stream;
    bool gqa;
};

static void attn_reset(struct attn_call *c, bool gqa)
{
    memset(c, 0, sizeof *c);
    c->t[0] = bad_tensor(bad_in[0], B, HQ, SQ, D);
    c->t[1] = bad_tensor(bad_in[1], B, HKV, SK, D);
    c->t[2] = bad_tensor(bad_in[2], B, HKV, SK, DV);
    c->t[3] = bad_tensor(bad_out[0], B, HQ, SQ, DV);
    c->q = &c->t[0];
    c->k = &c->t[1];
    c->v = &c->t[2];
    c->o = &c->t[3];
    c->p = (qattn_attn_params)QATTN_ATTN_PARAMS_INIT;
    c->p.lse = bad_tensor(bad_out[1], B, HQ, SQ, 1);
    c->params = &c->p;
    c->gqa = gqa;
    for (int i = 0; i < 64; i++)
        ints[0][i] = ints[1][i] = ints[2][i] = 1;
    poison_outputs();
}

static int32_t attn_run(const struct attn_call *c)
{
    return c->gqa ? qattn_gqa_forward(c->q, c->k, c->v, c->o, c->params, c->stream)
                  : qattn_flash_forward(c->q, c->k, c->v, c->o, c->params, c->stream);
}

static int32_t attn_twin(const struct attn_call *c, size_t *bytes)
{
    return c->gqa ? qattn_gqa_forward_workspace(c->q, c->k, c->v, c->o, c->params, bytes)
                  : qattn_flash_forward_workspace(c->q, c->k, c->v, c->o, c->params, bytes);
}

static void all_types(struct attn_call *c, int32_t q, int32_t k, int32_t v, int32_t o)
{
    c->t[0].dtype = q;
    c->t[1].dtype = k;
    c->t[2].dtype = v;
    c->t[3].dtype = o;
}

/* Packs q; k follows if asked. */
static void pack(struct attn_call *c, bool k)
{
    c->t[0] = bad_tensor(bad_in[0], 1, HQ, SQ, D);
    c->t[3] = bad_tensor(bad_out[0], 1, HQ, SQ, DV);
    c->p.lse = bad_tensor(bad_out[1], 1, HQ, SQ, 1);
    c->p.cu_seqlens_q = ints[0];
    c->p.num_seqs = B;
    if (k) {
        c->t[1] = bad_tensor(bad_in[1], 1, HKV, SK, D);
        c->t[2] = bad_tensor(bad_in[2], 1, HKV, SK, DV);
        c->p.cu_seqlens_k = ints[1];
    }
}

/* Pages of SK rows. */
static void page(struct attn_call *c)
{
    c->p.page_table = ints[0];
    c->p.max_pages = 2;
    c->p.seqused_k = ints[1];
}

static void scale8(qattn_tensor *t, struct attn_call *c, int64_t b, int64_t h, int64_t s, int64_t d)
{
    all_types(c, QATTN_DTYPE_E4M3FN, QATTN_DTYPE_E4M3FN, QATTN_DTYPE_E4M3FN, QATTN_DTYPE_F32);
    *t = bad_tensor(bad_in[4], b, h, s, d);
}

#define ODD(pointer, bytes) ((void *)((char *)(pointer) + (bytes)))

/* X(name, status, text in the message, twin, what is wrong) */
#define ATTN_CALLS(X) \
    X(q_null, NULL_POINTER, "q is NULL", SAME, c->q = NULL) \
    X(k_null, NULL_POINTER, "k is NULL", SAME, c->k = NULL) \
    X(v_null, NULL_POINTER, "v is NULL", SAME, c->v = NULL) \
    X(o_null, NULL_POINTER, "o is NULL", SAME, c->o = NULL) \
    X(q_data_null, NULL_POINTER, "q.data is NULL", CALL_ONLY, c->t[0].data = NULL) \
    X(v_data_null, NULL_POINTER, "v.data is NULL", CALL_ONLY, c->t[2].data = NULL) \
    X(o_data_null, NULL_POINTER, "o.data is NULL", CALL_ONLY, c->t[3].data = NULL) \
    X(lse_data_null, NULL_POINTER, "params.lse.data is NULL", CALL_ONLY, c->p.lse.data = NULL) \
    X(size_0, STRUCT_SIZE, "struct_size is 0", SAME, c->p.struct_size = 0) \
    X(size_small, STRUCT_SIZE, "struct_size is 864", SAME, c->p.struct_size = 864) \
    X(size_odd, STRUCT_SIZE, "struct_size is 876", SAME, c->p.struct_size = 876) \
    X(size_large, STRUCT_SIZE, "struct_size is 4104", SAME, c->p.struct_size = 4104) \
    X(size_newer, PARAMS_TOO_NEW, "byte 1000", SAME, grow_params(c, 1008, 1000)) \
    X(reserved, RESERVED, "params.reserved0 is 7", SAME, c->p.reserved0 = 7) \
    X(flags, UNKNOWN_BITS, "params.flags is 0x10", SAME, c->p.flags = 16) \
    X(flags_high, UNKNOWN_BITS, "params.flags is 0x8000000000000000", SAME, c->p.flags = UINT64_C(1) << 63) \
    X(mask, UNKNOWN_BITS, "params.mask is 0x10", SAME, c->p.mask = 16) \
    X(mask_high, UNKNOWN_BITS, "params.mask is 0x80000001", SAME, c->p.mask = 0x80000001u) \
    X(q_dtype, BAD_DTYPE, "q.dtype is 0x123456", SAME, c->t[0].dtype = 0x123456) \
    X(q_dtype_lanes, BAD_DTYPE, "q.dtype is 0x022004", SAME, c->t[0].dtype = 0x022004) \
    X(q_absent, BAD_DTYPE, "q.dtype is 0", SAME, c->t[0] = (qattn_tensor){ 0 }) \
    X(o_absent, BAD_DTYPE, "o.dtype is 0", SAME, c->t[3] = (qattn_tensor){ 0 }) \
    X(lse_half_absent, BAD_DTYPE, "params.lse.dtype is 0", SAME, c->p.lse.dtype = 0) \
    X(bias_half_absent, BAD_DTYPE, "params.bias.dtype is 0", SAME, c->p.bias.reserved1 = 1) \
    X(keep_dtype, BAD_DTYPE, "params.keep.dtype is 0x000001", SAME, \
      (c->p.keep = bad_tensor(bad_in[3], 1, 1, 1, 1), c->p.keep.dtype = 1)) \
    X(device_0, BAD_DEVICE, "q.device_type is 0", SAME, c->t[0].device_type = 0) \
    X(device_9, BAD_DEVICE, "k.device_type is 9", SAME, c->t[1].device_type = 9) \
    X(device_id, BAD_DEVICE, "v.device_id is 1", SAME, c->t[2].device_id = 1) \
    X(device_id_negative, BAD_DEVICE, "o.device_id is -1", SAME, (c->t[3].device_type = 2, c->t[3].device_id = -1)) \
    X(tensor_reserved0, RESERVED, "q.reserved0 is 1", SAME, c->t[0].reserved0 = 1) \
    X(tensor_reserved1, RESERVED, "reserved1 is 5", SAME, c->t[3].reserved1 = 5) \
    X(shape_negative, BAD_SHAPE, "q.shape[2] is -1", SAME, c->t[0].shape[2] = -1) \
    X(shape_overflow, BAD_SHAPE, "k.shape[2] is 9223372036854775807", SAME, c->t[1].shape[2] = INT64_MAX) \
    X(stride_overflow, BAD_STRIDE, "k.stride[2] is 9223372036854775807", SAME, c->t[1].stride[2] = INT64_MAX) \
    X(stride_int64_min, BAD_STRIDE, "q.stride[0] is -9223372036854775808", SAME, c->t[0].stride[0] = INT64_MIN) \
    X(k_batch, BAD_SHAPE, "k.shape[0] is 1", SAME, c->t[1].shape[0] = c->t[2].shape[0] = 1) \
    X(v_batch, BAD_SHAPE, "v.shape[0] is 1", SAME, c->t[2].shape[0] = 1) \
    X(v_heads, BAD_SHAPE, "v.shape[1] is 1", SAME, c->t[2].shape[1] = 1) \
    X(v_rows, BAD_SHAPE, "v.shape[2] is 6", SAME, c->t[2].shape[2] = 6) \
    X(o_batch, BAD_SHAPE, "o.shape[0] is 1", SAME, c->t[3].shape[0] = 1) \
    X(o_heads, BAD_SHAPE, "o.shape[1] is 3", SAME, c->t[3].shape[1] = 3) \
    X(o_rows, BAD_SHAPE, "o.shape[2] is 4", SAME, c->t[3].shape[2] = 4) \
    X(k_width, BAD_SHAPE, "k.shape[3] is 7", SAME, c->t[1].shape[3] = 7) \
    X(o_width, BAD_SHAPE, "o.shape[3] is 5", SAME, c->t[3].shape[3] = 5) \
    X(groups, BAD_SHAPE, "k.shape[1] is 2", SAME, c->t[0].shape[1] = c->t[3].shape[1] = 3) \
    X(no_kv_heads, BAD_SHAPE, "k.shape[1] is 0", SAME, c->t[1].shape[1] = c->t[2].shape[1] = 0) \
    X(o_stride_0, BAD_STRIDE, "o.stride[2] is 0", SAME, c->t[3].stride[2] = 0) \
    X(o_overlap, BAD_STRIDE, "o.stride[2] is 5", SAME, c->t[3].stride[2] = 5) \
    X(o_overlap_negative, BAD_STRIDE, "o.stride[2] is -5", SAME, c->t[3].stride[2] = -5) \
    X(lse_stride_0, BAD_STRIDE, "params.lse.stride[1] is 0", SAME, c->p.lse.stride[1] = 0) \
    X(o_is_q, ALIAS, "o.data and q.data", SAME, c->t[3].data = bad_in[0]) \
    X(o_is_v, ALIAS, "o.data and v.data", SAME, c->t[3].data = bad_in[2]) \
    X(lse_is_o, ALIAS, "params.lse.data and o.data", SAME, c->p.lse.data = bad_out[0]) \
    X(lse_is_k, ALIAS, "params.lse.data and k.data", SAME, c->p.lse.data = bad_in[1]) \
    X(bias_is_o, ALIAS, "o.data and params.bias.data", SAME, c->p.bias = bad_tensor(bad_out[0], B, HQ, SQ, SK)) \
    X(q_unaligned, ALIGNMENT, "multiple of the element size", SAME, c->t[0].data = ODD(bad_in[0], 2)) \
    X(o_unaligned, ALIGNMENT, "o.data is", SAME, c->t[3].data = ODD(bad_out[0], 1)) \
    X(workspace_unaligned, ALIGNMENT, "params.workspace is", SAME, \
      (c->p.workspace = bad_workspace + 8, c->p.workspace_bytes = 65536)) \
    X(workspace_small, WORKSPACE, "params.workspace_bytes is 1", CALL_ONLY, \
      (c->p.workspace = bad_workspace, c->p.workspace_bytes = 1)) \
    X(sinks_unaligned, ALIGNMENT, "params.sinks is", SAME, c->p.sinks = ODD(bad_in[5], 1)) \
    X(slopes_unaligned, ALIGNMENT, "params.alibi_slopes is", SAME, c->p.alibi_slopes = ODD(bad_in[5], 2)) \
    X(used_q_unaligned, ALIGNMENT, "params.seqused_q is", SAME, c->p.seqused_q = ODD(ints[0], 2)) \
    X(used_k_unaligned, ALIGNMENT, "params.seqused_k is", SAME, c->p.seqused_k = ODD(ints[0], 3)) \
    X(device_mix, DEVICE_MISMATCH, "k is on device 2:0", SAME, c->t[1].device_type = 2) \
    X(device_mix_o, DEVICE_MISMATCH, "o is on device 2:1", SAME, (c->t[3].device_type = 2, c->t[3].device_id = 1)) \
    X(device_mix_lse, DEVICE_MISMATCH, "params.lse is on device 2:0", SAME, c->p.lse.device_type = 2) \
    X(device_mix_bias, DEVICE_MISMATCH, "params.bias is on", SAME, \
      (c->p.bias = bad_tensor(bad_in[3], 1, 1, 1, 1), c->p.bias.device_type = 2)) \
    X(stream, STREAM, "stream is", CALL_ONLY, c->stream = (qattn_stream)(void *)bad_workspace) \
    X(scale_nan, BAD_VALUE, "params.scale is nan", SAME, c->p.scale = NAN) \
    X(scale_inf, BAD_VALUE, "params.scale is inf", SAME, c->p.scale = INFINITY) \
    X(softcap_negative, BAD_VALUE, "params.softcap is -1", SAME, c->p.softcap = -1) \
    X(softcap_nan, BAD_VALUE, "params.softcap is", SAME, c->p.softcap = -NAN) \
    X(softcap_inf, BAD_VALUE, "params.softcap is inf", SAME, c->p.softcap = INFINITY) \
    X(threads, BAD_VALUE, "params.num_threads is -1", SAME, c->p.num_threads = -1) \
    X(splits, BAD_VALUE, "params.num_splits is -2", SAME, c->p.num_splits = -2) \
    X(stage_4, BAD_VALUE, "params.scores_stage is 4", SAME, c->p.scores_stage = 4) \
    X(stage_negative, BAD_VALUE, "params.scores_stage is -1", SAME, c->p.scores_stage = -1) \
    X(precision, BAD_VALUE, "params.precision is 3", SAME, c->p.precision = 3) \
    X(window_left, BAD_VALUE, "params.window_left is -2", SAME, \
      (c->p.mask = QATTN_MASK_WINDOW, c->p.window_left = -2)) \
    X(window_right, BAD_VALUE, "params.window_right is -9", SAME, \
      (c->p.mask = QATTN_MASK_WINDOW, c->p.window_right = -9)) \
    X(max_q, BAD_VALUE, "max_seqlen_q", SAME, c->p.max_seqlen_q = -1) \
    X(max_k, BAD_VALUE, "max_seqlen_k", SAME, c->p.max_seqlen_k = -1) \
    X(num_seqs_negative, BAD_VALUE, "num_seqs", SAME, c->p.num_seqs = -1) \
    X(alibi_stride, BAD_VALUE, "params.alibi_batch_stride is -4", SAME, \
      (c->p.alibi_slopes = bad_in[5], c->p.alibi_batch_stride = -4)) \
    X(corners, COMBINATION, "TOP_LEFT and OFFSET", SAME, c->p.mask = QATTN_MASK_TOP_LEFT | QATTN_MASK_OFFSET) \
    X(offset_alone, COMBINATION, "params.q_offset is 3", SAME, c->p.q_offset = 3) \
    X(offsets_alone, COMBINATION, "params.q_offsets is", SAME, c->p.q_offsets = ints[0]) \
    X(offsets_unaligned, ALIGNMENT, "params.q_offsets is", SAME, \
      (c->p.mask = QATTN_MASK_OFFSET, c->p.q_offsets = ODD(ints[0], 1))) \
    X(num_seqs_none, BAD_SHAPE, "params.num_seqs", SAME, (pack(c, false), c->p.num_seqs = 0)) \
    X(num_seqs_alone, COMBINATION, "params.num_seqs is 3", SAME, c->p.num_seqs = 3) \
    X(pages_alone, COMBINATION, "params.max_pages", SAME, c->p.max_pages = 2) \
    X(page_stride_alone, COMBINATION, "page_table_stride", SAME, c->p.page_table_stride = 2) \
    X(pages_no_lengths, COMBINATION, "params.seqused_k is NULL", SAME, (page(c), c->p.seqused_k = NULL)) \
    X(pages_negative, BAD_VALUE, "params.max_pages is -1", SAME, (page(c), c->p.max_pages = -1)) \
    X(pages_stride, BAD_VALUE, "params.page_table_stride is -1", SAME, (page(c), c->p.page_table_stride = -1)) \
    X(pages_overflow, BAD_VALUE, "params.max_pages is 9223372036854775807", SAME, \
      (page(c), c->p.max_pages = INT64_MAX)) \
    X(pages_unaligned, ALIGNMENT, "params.page_table is", SAME, (page(c), c->p.page_table = ODD(ints[0], 1))) \
    X(pages_empty, BAD_SHAPE, "k.shape[2] is 0", SAME, (page(c), c->t[1].shape[2] = c->t[2].shape[2] = 0)) \
    X(pages_packed, COMBINATION, "params.page_table is", SAME, (pack(c, true), page(c))) \
    X(packed_batch, BAD_SHAPE, "q.shape[0] is 2", SAME, (c->p.cu_seqlens_q = ints[0], c->p.num_seqs = B)) \
    X(packed_k_batch, BAD_SHAPE, "k.shape[0] is 2", SAME, (pack(c, false), c->p.cu_seqlens_k = ints[1])) \
    X(padded_k_batch, BAD_SHAPE, "k.shape[0] is 2", SAME, (pack(c, false), c->p.num_seqs = 3)) \
    X(cu_q_unaligned, ALIGNMENT, "params.cu_seqlens_q is", SAME, \
      (pack(c, true), c->p.cu_seqlens_q = ODD(ints[0], 2))) \
    X(cu_k_unaligned, ALIGNMENT, "params.cu_seqlens_k is", SAME, \
      (pack(c, true), c->p.cu_seqlens_k = ODD(ints[0], 1))) \
    X(bias_packed, UNSUPPORTED, "params.bias is set", SAME, \
      (pack(c, true), c->p.bias = bad_tensor(bad_in[3], 1, 1, 1, 1))) \
    X(keep_packed, UNSUPPORTED, "params.keep is set", SAME, \
      (pack(c, true), c->p.keep = bad_tensor(bad_in[3], 1, 1, 1, 1), c->p.keep.dtype = QATTN_DTYPE_BOOL)) \
    X(splits_invariant, COMBINATION, "BATCH_INVARIANT", SAME, \
      (c->gqa = false, c->p.num_splits = 2, c->p.flags = QATTN_FLAG_BATCH_INVARIANT)) \
    X(splits_gqa, UNSUPPORTED, "params.num_splits is 2", SAME, (c->gqa = true, c->p.num_splits = 2)) \
    X(scores_flash, UNSUPPORTED, "params.scores is set", SAME, \
      (c->gqa = false, c->p.scores = bad_tensor(bad_out[2], B, HQ, SQ, SK))) \
    X(scores_packed, UNSUPPORTED, "params.scores is set", SAME, \
      (c->gqa = true, pack(c, true), c->p.scores = bad_tensor(bad_out[2], 1, HQ, SQ, SK))) \
    X(scores_shape, BAD_SHAPE, "params.scores.shape[3] is 6", SAME, \
      (c->gqa = true, c->p.scores = bad_tensor(bad_out[2], B, HQ, SQ, SK - 1))) \
    X(scores_dtype, UNSUPPORTED_DTYPE, "params.scores is bf16", SAME, \
      (c->gqa = true, c->p.scores = bad_tensor(bad_out[2], B, HQ, SQ, SK), c->p.scores.dtype = QATTN_DTYPE_BF16)) \
    X(scores_is_o, ALIAS, "params.scores.data and o.data", SAME, \
      (c->gqa = true, c->p.scores = bad_tensor(bad_out[0], B, HQ, SQ, SK))) \
    X(lse_shape, BAD_SHAPE, "params.lse.shape[2] is 4", SAME, c->p.lse = bad_tensor(bad_out[1], B, HQ, SQ - 1, 1)) \
    X(lse_width, BAD_SHAPE, "params.lse.shape[3] is 2", SAME, c->p.lse = bad_tensor(bad_out[1], B, HQ, SQ, 2)) \
    X(lse_dtype, UNSUPPORTED_DTYPE, "params.lse is f16", SAME, c->p.lse.dtype = QATTN_DTYPE_F16) \
    X(bias_shape, BAD_SHAPE, "params.bias.shape[3] is 6", SAME, c->p.bias = bad_tensor(bad_in[3], B, HQ, SQ, SK - 1)) \
    X(bias_heads, BAD_SHAPE, "params.bias.shape[1] is 2", SAME, c->p.bias = bad_tensor(bad_in[3], B, HKV, SQ, SK)) \
    X(bias_dtype, UNSUPPORTED_DTYPE, "params.bias is i8", SAME, \
      (c->p.bias = bad_tensor(bad_in[3], B, HQ, SQ, SK), c->p.bias.dtype = QATTN_DTYPE_I8)) \
    X(bias_paged, BAD_SHAPE, "params.bias.shape[3] is 7", SAME, \
      (page(c), c->p.bias = bad_tensor(bad_in[3], B, HQ, SQ, SK))) \
    X(keep_shape, BAD_SHAPE, "params.keep.shape[0] is 3", SAME, \
      (c->p.keep = bad_tensor(bad_in[3], 3, 1, 1, 1), c->p.keep.dtype = QATTN_DTYPE_BOOL)) \
    X(keep_type, UNSUPPORTED_DTYPE, "params.keep is f32", SAME, c->p.keep = bad_tensor(bad_in[3], 1, 1, SQ, SK)) \
    X(types_mixed, UNSUPPORTED_DTYPE, "f32, f16, f16", SAME, \
      all_types(c, QATTN_DTYPE_F32, QATTN_DTYPE_F16, QATTN_DTYPE_F16, QATTN_DTYPE_F32)) \
    X(types_kv, UNSUPPORTED_DTYPE, "bf16, bf16, f16", SAME, \
      all_types(c, QATTN_DTYPE_BF16, QATTN_DTYPE_BF16, QATTN_DTYPE_F16, QATTN_DTYPE_BF16)) \
    X(types_f32_8bit, UNSUPPORTED_DTYPE, "f32, i8, i8", SAME, \
      all_types(c, QATTN_DTYPE_F32, QATTN_DTYPE_I8, QATTN_DTYPE_I8, QATTN_DTYPE_F32)) \
    X(types_8bit_mixed, UNSUPPORTED_DTYPE, "e4m3fn, e5m2, e5m2", SAME, \
      all_types(c, QATTN_DTYPE_E4M3FN, QATTN_DTYPE_E5M2, QATTN_DTYPE_E5M2, QATTN_DTYPE_F32)) \
    X(types_u8, UNSUPPORTED_DTYPE, "u8, u8, u8", SAME, \
      all_types(c, QATTN_DTYPE_U8, QATTN_DTYPE_U8, QATTN_DTYPE_U8, QATTN_DTYPE_F32)) \
    X(types_o, UNSUPPORTED_DTYPE, "o is bf16 with q f16", SAME, \
      all_types(c, QATTN_DTYPE_F16, QATTN_DTYPE_F16, QATTN_DTYPE_F16, QATTN_DTYPE_BF16)) \
    X(types_o_8bit, UNSUPPORTED_DTYPE, "o is e5m2 with q e5m2", SAME, \
      all_types(c, QATTN_DTYPE_E5M2, QATTN_DTYPE_E5M2, QATTN_DTYPE_E5M2, QATTN_DTYPE_E5M2)) \
    X(width_q, UNSUPPORTED_SHAPE, "q.shape[3] (D) is 1025", SAME, c->t[0].shape[3] = c->t[1].shape[3] = 1025) \
    X(width_v, UNSUPPORTED_SHAPE, "v.shape[3] (Dv) is 1025", SAME, \
      (c->t[2].shape[3] = 1025, c->t[3] = bad_tensor(bad_out[0], B, HQ, SQ, 1025))) \
    X(descale_16bit, COMBINATION, "params.q_descale is set but q is f32", SAME, \
      c->p.q_descale = bad_tensor(bad_in[4], 1, 1, 1, 1)) \
    X(descale_k_f32, COMBINATION, "params.k_descale is set but k is f32", SAME, \
      c->p.k_descale = bad_tensor(bad_in[4], 1, 1, 1, 1)) \
    X(descale_dtype, UNSUPPORTED_DTYPE, "params.v_descale is f16", SAME, \
      (scale8(&c->p.v_descale, c, 1, 1, 1, 1), c->p.v_descale.dtype = QATTN_DTYPE_F16)) \
    X(descale_batch, BAD_SHAPE, "params.k_descale.shape is [3,1,1,1]", SAME, scale8(&c->p.k_descale, c, 3, 1, 1, 1)) \
    X(descale_heads, BAD_SHAPE, "params.k_descale.shape[1] is 4", SAME, scale8(&c->p.k_descale, c, B, HQ, 1, 1)) \
    X(descale_q_heads, BAD_SHAPE, "params.q_descale.shape[1] is 3", SAME, scale8(&c->p.q_descale, c, B, 3, 1, 1)) \
    X(descale_width, BAD_SHAPE, "params.v_descale.shape[3] is 8", SAME, scale8(&c->p.v_descale, c, B, HKV, 1, D)) \
    X(descale_rows, BAD_SHAPE, "params.v_descale.shape is [2,2,6,1]", SAME, \
      scale8(&c->p.v_descale, c, B, HKV, 6, 1)) \
    X(descale_page_width, BAD_SHAPE, "params.k_descale.shape[3] is 8", SAME, \
      (page(c), scale8(&c->p.k_descale, c, B, HKV, SK, D))) \
    X(no_fallback_ok, OK, "", SAME, c->p.num_threads = 1)

/* Moves params into a larger struct with one byte of a future field set. */
static void grow_params(struct attn_call *c, size_t size, size_t byte)
{
    memcpy(c->bytes, &c->p, sizeof c->p);
    memcpy(c->bytes, &size, sizeof size);
    c->bytes[byte] = 1;
    c->params = c->bytes;
}

#define ATTN_FUNCTION(name, status, text, twin, change) static void attn_##name(struct attn_call *c) { change; }
#define QATTN_ERR_OK QATTN_OK
#define ATTN_ROW(name, status, text, twin, change) { #name, QATTN_ERR_##status, text, twin, attn_##name },
ATTN_CALLS(ATTN_FUNCTION)
static const struct {
    const char *name;
    int32_t status;
    const char *text;
    enum twin twin;
    void (*spoil)(struct attn_call *);
} attn_calls[] = { ATTN_CALLS(ATTN_ROW) };

static void check_attention(bool gqa)
{
    for (size_t i = 0; i < sizeof attn_calls / sizeof *attn_calls; i++) {
        struct attn_call c;
        size_t bytes = 12345;
        attn_reset(&c, gqa);
        attn_calls[i].spoil(&c);
        if (attn_calls[i].status == QATTN_OK) {              /* the unspoilt call: what the others differ from */
            ck_assert_int_eq(attn_run(&c), QATTN_OK);
            continue;
        }
        check_refusal(attn_calls[i].name, attn_run(&c), attn_calls[i].status, attn_calls[i].text);
        const int32_t twin = attn_twin(&c, &bytes);
        if (attn_calls[i].twin == SAME) {
            check_refusal(attn_calls[i].name, twin, attn_calls[i].status, attn_calls[i].text);
            ck_assert_msg(bytes == 12345, "%s: the refused twin wrote bytes", attn_calls[i].name);
        } else {
            ck_assert_msg(twin == QATTN_OK, "%s: the twin refused what only the call can know", attn_calls[i].name);
        }
    }
}

START_TEST(flash) { check_attention(false); }
END_TEST
START_TEST(gqa) { check_attention(true); }
END_TEST

/* ---------------------------------------------------------------- other answers */

/* Every tensor on CUDA: what this build or machine lacks is said, nothing is touched. */
START_TEST(cuda_tensors)
{
    struct attn_call c;
    char text[512];
    for (int three = 0; three < 2; three++) {
        attn_reset(&c, three);
        for (int i = 0; i < 4; i++)
            c.t[i].device_type = QATTN_DEVICE_CUDA;
        c.p.lse.device_type = QATTN_DEVICE_CUDA;
        const int32_t status = attn_run(&c);
        ck_assert_msg(status / 1000 == 2 || status / 1000 == 3, "status %d", status);
        ck_assert_int_eq(qattn_last_error(text, sizeof text), status);
        ck_assert_msg(strlen(text) > 20, "no message");
        ck_assert_int_eq(memcmp(bad_out, out_copy, sizeof bad_out), 0);
    }
}
END_TEST

/* Odd and right. */
START_TEST(accepted)
{
    struct attn_call c;
    attn_reset(&c, false);
    c.params = NULL;
    ck_assert_int_eq(attn_run(&c), QATTN_OK);

    attn_reset(&c, false);                                   /* an empty axis needs no memory */
    c.t[1] = bad_tensor(NULL, B, HKV, 0, D);
    c.t[2] = bad_tensor(NULL, B, HKV, 0, DV);
    ck_assert_int_eq(attn_run(&c), QATTN_OK);
    for (int i = 0; i < B * HQ * SQ; i++) {
        ck_assert(bad_out[0][i] == 0.0f);
        ck_assert(bad_out[1][i] == -INFINITY);
    }
    attn_reset(&c, false);                                   /* strides of axes of size 1 are ignored */
    c.p.lse.shape[1] = 1;
    c.p.lse.stride[1] = c.p.lse.stride[3] = 0;
    for (int i = 0; i < 4; i++) {
        c.t[i].shape[1] = 1;
        c.t[i].stride[1] = i % 2 ? INT64_MIN : INT64_MAX;
    }
    ck_assert_int_eq(attn_run(&c), QATTN_OK);
    attn_reset(&c, false);                                   /* window values without the bit are not read */
    c.p.window_left = -77;
    ck_assert_int_eq(attn_run(&c), QATTN_OK);
    attn_reset(&c, false);                                   /* o exactly filled with gaps, negative */
    c.t[3].data = &bad_out[0][ROOM - 1];
    for (int i = 0; i < 4; i++)
        c.t[3].stride[i] = -2 * c.t[3].stride[i];
    ck_assert_int_eq(attn_run(&c), QATTN_OK);
    attn_reset(&c, false);                                   /* v a narrower view of k (MLA) */
    c.t[2] = c.t[1];
    c.t[2].shape[3] = DV;
    ck_assert_int_eq(attn_run(&c), QATTN_OK);
    attn_reset(&c, true);                                    /* more threads than anyone has */
    c.p.num_threads = INT32_MAX;
    ck_assert_int_eq(attn_run(&c), QATTN_OK);
    attn_reset(&c, false);                                   /* a newer caller that uses nothing new */
    grow_params(&c, 1008, 1000);
    c.bytes[1000] = 0;
    ck_assert_int_eq(attn_run(&c), QATTN_OK);
    attn_reset(&c, false);                                   /* no head, so no KV head either */
    c.t[0].shape[1] = c.t[3].shape[1] = c.p.lse.shape[1] = c.t[1].shape[1] = c.t[2].shape[1] = 0;
    ck_assert_int_eq(attn_run(&c), QATTN_OK);
}
END_TEST

static void *fail_elsewhere(void *unused)
{
    char text[256];
    (void)unused;
    ck_assert_int_eq(qattn_last_error(text, sizeof text), QATTN_OK);    /* a new thread has not failed */
    ck_assert_str_eq(text, "");
    ck_assert_int_eq(qattn_softmax(NULL, NULL, NULL, NULL), QATTN_ERR_NULL_POINTER);
    return NULL;
}

/* The message belongs to the thread, and a success leaves it alone. */
START_TEST(last_error)
{
    struct attn_call c;
    char before[512], after[512], tiny[8];
    pthread_t thread;
    attn_reset(&c, false);
    c.p.softcap = -1;
    ck_assert_int_eq(attn_run(&c), QATTN_ERR_BAD_VALUE);
    ck_assert_int_eq(qattn_last_error(before, sizeof before), QATTN_ERR_BAD_VALUE);
    ck_assert_int_eq(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    attn_reset(&c, false);
    ck_assert_int_eq(attn_run(&c), QATTN_OK);
    ck_assert_int_eq(qattn_last_error(after, sizeof after), QATTN_ERR_BAD_VALUE);
    ck_assert_str_eq(before, after);
    memset(tiny, 'x', sizeof tiny);
    ck_assert_int_eq(qattn_last_error(tiny, 5), QATTN_ERR_BAD_VALUE);
    ck_assert_int_eq(tiny[4], '\0');
    ck_assert_int_eq(tiny[5], 'x');
    ck_assert_int_eq(strncmp(tiny, before, 4), 0);
    ck_assert_int_eq(qattn_last_error(NULL, 0), QATTN_ERR_BAD_VALUE);
}
END_TEST

Suite *suite_badargs(void)
{
    Suite *s = suite_create("badargs");
    TCase *t = tcase_create("calls");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, flash);
    tcase_add_test(t, gqa);
    badargs_add_ops(t);
    tcase_add_test(t, cuda_tensors);
    tcase_add_test(t, accepted);
    tcase_add_test(t, last_error);
    suite_add_tcase(s, t);
    return s;
}
