/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Wrong calls of matmul, softmax and merge; see test_badargs.c. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "badargs.h"

enum { M = 3, N = 4, K = 5, PARTS = 3 };

/* ---------------------------------------------------------------- matmul */

struct gemm_call {
    qattn_tensor a, b, c;
    const qattn_tensor *pa, *pb, *pc;
    qattn_matmul_params p;
    qattn_stream stream;
};

static void gemm_reset(struct gemm_call *g, bool nt)
{
    memset(g, 0, sizeof *g);
    g->a = bad_tensor(bad_in[0], B, HQ, M, K);
    g->b = nt ? bad_tensor(bad_in[1], B, HKV, N, K) : bad_tensor(bad_in[1], B, HKV, K, N);
    g->c = bad_tensor(bad_out[0], B, HQ, M, N);
    g->pa = &g->a;
    g->pb = &g->b;
    g->pc = &g->c;
    g->p = (qattn_matmul_params)QATTN_MATMUL_PARAMS_INIT;
    poison_outputs();
}

#define GEMM_CALLS(X) \
    X(a_null, NULL_POINTER, "a is NULL", SAME, g->pa = NULL) \
    X(b_null, NULL_POINTER, "b is NULL", SAME, g->pb = NULL) \
    X(c_null, NULL_POINTER, "c is NULL", SAME, g->pc = NULL) \
    X(b_data, NULL_POINTER, "b.data is NULL", CALL_ONLY, g->b.data = NULL) \
    X(size, STRUCT_SIZE, "struct_size is 40", SAME, g->p.struct_size = 40) \
    X(flags, UNKNOWN_BITS, "params.flags is 0x4", SAME, g->p.flags = QATTN_FLAG_LSE_BASE2) \
    X(alpha, BAD_VALUE, "params.alpha is inf", SAME, g->p.alpha = INFINITY) \
    X(beta, BAD_VALUE, "params.beta is nan", SAME, g->p.beta = NAN) \
    X(precision, BAD_VALUE, "params.precision is -1", SAME, g->p.precision = -1) \
    X(threads, BAD_VALUE, "params.num_threads is -3", SAME, g->p.num_threads = -3) \
    X(batch, BAD_SHAPE, "b.shape[0] is 1", SAME, g->b.shape[0] = 1) \
    X(heads, BAD_SHAPE, "b.shape[1] is 3", SAME, (g->b.shape[1] = 3)) \
    X(no_heads, BAD_SHAPE, "b.shape[1] is 0", SAME, g->b.shape[1] = 0) \
    X(depth, BAD_SHAPE, "must be 6", SAME, g->a.shape[3] = 6) \
    X(c_batch, BAD_SHAPE, "c.shape[0] is 1", SAME, g->c.shape[0] = 1) \
    X(c_heads, BAD_SHAPE, "c.shape[1] is 2", SAME, g->c.shape[1] = 2) \
    X(c_rows, BAD_SHAPE, "c.shape[2] is 2", SAME, g->c.shape[2] = 2) \
    X(c_columns, BAD_SHAPE, "c.shape[3] is 3", SAME, g->c.shape[3] = 3) \
    X(c_stride, BAD_STRIDE, "c.stride[2] is 3", SAME, g->c.stride[2] = 3) \
    X(alias_a, ALIAS, "c.data and a.data", SAME, g->c.data = bad_in[0]) \
    X(alias_b, ALIAS, "c.data and b.data", SAME, g->c.data = bad_in[1]) \
    X(types, UNSUPPORTED_DTYPE, "f32, f16, f32", SAME, g->b.dtype = QATTN_DTYPE_F16) \
    X(types_8bit, UNSUPPORTED_DTYPE, "i8, i8, f32", SAME, g->a.dtype = g->b.dtype = QATTN_DTYPE_I8) \
    X(types_c, UNSUPPORTED_DTYPE, "f32, f32, bf16", SAME, g->c.dtype = QATTN_DTYPE_BF16) \
    X(device, DEVICE_MISMATCH, "b is on device 2:3", SAME, (g->b.device_type = 2, g->b.device_id = 3)) \
    X(stream, STREAM, "stream is", CALL_ONLY, g->stream = (qattn_stream)(void *)bad_workspace) \
    X(workspace_unaligned, ALIGNMENT, "params.workspace is", SAME, g->p.workspace = bad_workspace + 64)

#define GEMM_FUNCTION(name, status, text, twin, change) static void gemm_##name(struct gemm_call *g) { change; }
#define GEMM_ROW(name, status, text, twin, change) { #name, QATTN_ERR_##status, text, twin, gemm_##name },
GEMM_CALLS(GEMM_FUNCTION)
static const struct {
    const char *name;
    int32_t status;
    const char *text;
    enum twin twin;
    void (*spoil)(struct gemm_call *);
} gemm_calls[] = { GEMM_CALLS(GEMM_ROW) };

START_TEST(matmul)
{
    const bool nt = _i;
    for (size_t i = 0; i < sizeof gemm_calls / sizeof *gemm_calls; i++) {
        struct gemm_call g;
        size_t bytes = 1;
        gemm_reset(&g, nt);
        gemm_calls[i].spoil(&g);
        const int32_t status = nt ? qattn_matmul_nt(g.pa, g.pb, g.pc, &g.p, g.stream)
                                  : qattn_matmul(g.pa, g.pb, g.pc, &g.p, g.stream);
        check_refusal(gemm_calls[i].name, status, gemm_calls[i].status, gemm_calls[i].text);
        const int32_t twin = nt ? qattn_matmul_nt_workspace(g.pa, g.pb, g.pc, &g.p, &bytes)
                                : qattn_matmul_workspace(g.pa, g.pb, g.pc, &g.p, &bytes);
        check_twin(gemm_calls[i].name, twin, status, gemm_calls[i].twin);
    }
}
END_TEST

/* ---------------------------------------------------------------- softmax */

struct softmax_call { qattn_tensor x, y; const qattn_tensor *px, *py; qattn_softmax_params p; qattn_stream stream; };

#define SOFTMAX_CALLS(X) \
    X(x_null, NULL_POINTER, "x is NULL", SAME, s->px = NULL) \
    X(y_null, NULL_POINTER, "y is NULL", SAME, s->py = NULL) \
    X(x_data, NULL_POINTER, "x.data is NULL", CALL_ONLY, s->x.data = NULL) \
    X(size, STRUCT_SIZE, "struct_size is 400", SAME, s->p.struct_size = 400) \
    X(flags, UNKNOWN_BITS, "params.flags is 0x100", SAME, s->p.flags = 256) \
    X(mask, UNKNOWN_BITS, "bits 0x20 are", SAME, s->p.mask = 32) \
    X(rows, BAD_SHAPE, "y.shape[2] is 4", SAME, s->y.shape[2] = 4) \
    X(keys, BAD_SHAPE, "y.shape[3] is 6", SAME, s->y.shape[3] = 6) \
    X(y_stride, BAD_STRIDE, "y.stride[3] is 0", SAME, s->y.stride[3] = 0) \
    X(in_place_stride, ALIAS, "y.data and x.data", SAME, \
      (s->y.data = bad_in[0], s->y.stride[2] = SK + 1, s->y.stride[1] = 64, s->y.stride[0] = 640)) \
    X(in_place_type, ALIAS, "y.data and x.data", SAME, (s->y.data = bad_in[0], s->x.dtype = QATTN_DTYPE_F16)) \
    X(lse_is_x, ALIAS, "params.lse.data and x.data", SAME, s->p.lse.data = bad_in[0]) \
    X(lse_is_y, ALIAS, "params.lse.data and y.data", SAME, s->p.lse.data = bad_out[0]) \
    X(types, UNSUPPORTED_DTYPE, "x, y are f32, f16", SAME, s->y.dtype = QATTN_DTYPE_F16) \
    X(types_8bit, UNSUPPORTED_DTYPE, "x, y are e5m2, f32", SAME, s->x.dtype = QATTN_DTYPE_E5M2) \
    X(scale, BAD_VALUE, "params.scale is -inf", SAME, s->p.scale = -INFINITY) \
    X(softcap, BAD_VALUE, "params.softcap is -0.5", SAME, s->p.softcap = -0.5f) \
    X(threads, BAD_VALUE, "params.num_threads is -1", SAME, s->p.num_threads = -1) \
    X(window, BAD_VALUE, "params.window_left is -3", SAME, (s->p.mask = QATTN_MASK_WINDOW, s->p.window_left = -3)) \
    X(corners, COMBINATION, "params.mask is", SAME, s->p.mask = QATTN_MASK_TOP_LEFT | QATTN_MASK_OFFSET) \
    X(offset, COMBINATION, "params.q_offset is -1", SAME, s->p.q_offset = -1) \
    X(bias, BAD_SHAPE, "params.bias.shape[2] is 2", SAME, s->p.bias = bad_tensor(bad_in[3], 1, 1, 2, SK)) \
    X(lse_shape, BAD_SHAPE, "params.lse.shape[1] is 3", SAME, s->p.lse = bad_tensor(bad_out[1], B, 3, SQ, 1)) \
    X(device, DEVICE_MISMATCH, "y is on device 2:0", SAME, s->y.device_type = 2) \
    X(stream, STREAM, "stream is", CALL_ONLY, s->stream = (qattn_stream)(void *)bad_workspace)

#define SOFTMAX_FUNCTION(name, status, text, twin, change) \
    static void softmax_##name(struct softmax_call *s) { change; }
#define SOFTMAX_ROW(name, status, text, twin, change) { #name, QATTN_ERR_##status, text, twin, softmax_##name },
SOFTMAX_CALLS(SOFTMAX_FUNCTION)
static const struct {
    const char *name;
    int32_t status;
    const char *text;
    enum twin twin;
    void (*spoil)(struct softmax_call *);
} softmax_calls[] = { SOFTMAX_CALLS(SOFTMAX_ROW) };

START_TEST(softmax)
{
    for (size_t i = 0; i < sizeof softmax_calls / sizeof *softmax_calls; i++) {
        struct softmax_call s = { .x = bad_tensor(bad_in[0], B, HQ, SQ, SK), .y = bad_tensor(bad_out[0], B, HQ, SQ, SK),
                                  .p = QATTN_SOFTMAX_PARAMS_INIT };
        size_t bytes = 1;
        s.px = &s.x;
        s.py = &s.y;
        s.p.lse = bad_tensor(bad_out[1], B, HQ, SQ, 1);
        poison_outputs();
        softmax_calls[i].spoil(&s);
        const int32_t status = _i ? qattn_softmax_causal(s.px, s.py, &s.p, s.stream)
                                  : qattn_softmax(s.px, s.py, &s.p, s.stream);
        check_refusal(softmax_calls[i].name, status, softmax_calls[i].status, softmax_calls[i].text);
        const int32_t twin = _i ? qattn_softmax_causal_workspace(s.px, s.py, &s.p, &bytes)
                                : qattn_softmax_workspace(s.px, s.py, &s.p, &bytes);
        check_twin(softmax_calls[i].name, twin, status, softmax_calls[i].twin);
    }
}
END_TEST

/* ---------------------------------------------------------------- merge */

struct merge_call {
    int64_t n;
    qattn_tensor o_parts[PARTS], lse_parts[PARTS], o, lse;
    const qattn_tensor *po_parts, *plse_parts, *po, *plse;
    qattn_merge_params p;
    qattn_stream stream;
};

#define MERGE_CALLS(X) \
    X(n_0, BAD_VALUE, "n is 0", SAME, m->n = 0) \
    X(n_65, BAD_VALUE, "n is 65", SAME, m->n = 65) \
    X(n_negative, BAD_VALUE, "n is -1", SAME, m->n = -1) \
    X(o_parts, NULL_POINTER, "o_parts is NULL", SAME, m->po_parts = NULL) \
    X(lse_parts, NULL_POINTER, "lse_parts is NULL", SAME, m->plse_parts = NULL) \
    X(o, NULL_POINTER, "o is NULL", SAME, m->po = NULL) \
    X(part_data, NULL_POINTER, "data is NULL", CALL_ONLY, m->o_parts[2].data = NULL) \
    X(size, STRUCT_SIZE, "struct_size is 32", SAME, m->p.struct_size = 32) \
    X(reserved, RESERVED, "params.reserved0 is -1", SAME, m->p.reserved0 = -1) \
    X(flags, UNKNOWN_BITS, "params.flags is 0x1", SAME, m->p.flags = QATTN_FLAG_SCALE_AS_GIVEN) \
    X(threads, BAD_VALUE, "params.num_threads is -1", SAME, m->p.num_threads = -1) \
    X(part_shape, BAD_SHAPE, "shape[2] is 4", SAME, m->o_parts[1].shape[2] = 4) \
    X(lse_part_shape, BAD_SHAPE, "shape[1] is 3", SAME, m->lse_parts[2].shape[1] = 3) \
    X(lse_part_width, BAD_SHAPE, "shape[3] is 2", SAME, m->lse_parts[0].shape[3] = 2) \
    X(lse_shape, BAD_SHAPE, "lse.shape[2] is 4", SAME, m->lse.shape[2] = 4) \
    X(o_stride, BAD_STRIDE, "o.stride[1] is 0", SAME, m->o.stride[1] = 0) \
    X(o_is_part_1, ALIAS, "o.data and", SAME, m->o.data = bad_in[1]) \
    X(lse_is_part_1, ALIAS, "lse.data and", SAME, m->lse.data = bad_in[5]) \
    X(o_is_lse, ALIAS, "o.data and lse.data", SAME, m->lse.data = bad_out[0]) \
    X(o_is_lse_part, ALIAS, "o.data and lse_parts", SAME, m->o.data = bad_in[4]) \
    X(types_parts, UNSUPPORTED_DTYPE, "f32, f16, f32", SAME, m->o_parts[1].dtype = QATTN_DTYPE_F16) \
    X(types_o, UNSUPPORTED_DTYPE, "f32, f32, bf16", SAME, m->o.dtype = QATTN_DTYPE_BF16) \
    X(types_lse, UNSUPPORTED_DTYPE, "is f16", SAME, m->lse_parts[0].dtype = QATTN_DTYPE_F16) \
    X(types_lse_out, UNSUPPORTED_DTYPE, "lse is bf16", SAME, m->lse.dtype = QATTN_DTYPE_BF16) \
    X(device, DEVICE_MISMATCH, "is on device 2:0", SAME, m->o_parts[1].device_type = 2) \
    X(stream, STREAM, "stream is", CALL_ONLY, m->stream = (qattn_stream)(void *)bad_workspace)

#define MERGE_FUNCTION(name, status, text, twin, change) static void merge_##name(struct merge_call *m) { change; }
#define MERGE_ROW(name, status, text, twin, change) { #name, QATTN_ERR_##status, text, twin, merge_##name },
MERGE_CALLS(MERGE_FUNCTION)
static const struct {
    const char *name;
    int32_t status;
    const char *text;
    enum twin twin;
    void (*spoil)(struct merge_call *);
} merge_calls[] = { MERGE_CALLS(MERGE_ROW) };

static void merge_reset(struct merge_call *m)
{
    memset(m, 0, sizeof *m);
    m->n = PARTS;
    for (int i = 0; i < PARTS; i++) {
        m->o_parts[i] = bad_tensor(bad_in[i], B, HQ, SQ, DV);
        m->lse_parts[i] = bad_tensor(bad_in[4 + i], B, HQ, SQ, 1);
    }
    m->o = bad_tensor(bad_out[0], B, HQ, SQ, DV);
    m->lse = bad_tensor(bad_out[1], B, HQ, SQ, 1);
    m->po_parts = m->o_parts;
    m->plse_parts = m->lse_parts;
    m->po = &m->o;
    m->plse = &m->lse;
    m->p = (qattn_merge_params)QATTN_MERGE_PARAMS_INIT;
    poison_outputs();
}

START_TEST(merge)
{
    for (size_t i = 0; i < sizeof merge_calls / sizeof *merge_calls; i++) {
        struct merge_call m;
        size_t bytes = 1;
        merge_reset(&m);
        merge_calls[i].spoil(&m);
        const int32_t status = qattn_merge(m.n, m.po_parts, m.plse_parts, m.po, m.plse, &m.p, m.stream);
        check_refusal(merge_calls[i].name, status, merge_calls[i].status, merge_calls[i].text);
        const int32_t twin = qattn_merge_workspace(m.n, m.po_parts, m.plse_parts, m.po, m.plse, &m.p, &bytes);
        check_twin(merge_calls[i].name, twin, status, merge_calls[i].twin);
    }
}
END_TEST

void badargs_add_ops(TCase *t)
{
    tcase_add_loop_test(t, matmul, 0, 2);
    tcase_add_loop_test(t, softmax, 0, 2);
    tcase_add_test(t, merge);
}
