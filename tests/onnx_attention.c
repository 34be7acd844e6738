/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * ONNX's Attention by this library. How the operator maps:
 *
 *   is_causal, windows    TOP_LEFT without a cache; with past_key OFFSET, q_offset = its length;
 *                         with nonpad_kv_seqlen bottom right of each sequence, the lengths being
 *                         seqused_k
 *   past_key, past_value  concatenated before K and V by the caller (here)
 *   attn_mask             bool: keep; float: bias; broadcast from the right; where its last axis is
 *                         shorter than the keys, keep hides the rest
 *   3D inputs             [B,S,H,D] views of the same memory
 *   qk_matmul_output      scores of gqa_forward, the mode being scores_stage
 */
#include "onnx_attention.h"

#include <check.h>
#include <math.h>
#include <string.h>

#include "core/params.h"
#include "row_run.h"
#include "support.h"

/* The limits of tests/data/README.md for a value stored in `dtype`. */
static double limit(int32_t dtype, double ref)
{
    switch (dtype) {
    case QATTN_DTYPE_F16: return row_ulp(dtype, ref) + 1.3e-4;
    case QATTN_DTYPE_BF16: return row_ulp(dtype, ref) + 1e-3;
    default: return 2e-6 * (1 + fabs(ref));
    }
}

bool onnx_matches(int32_t dtype, double got, double want)
{
    return isinf(want) ? got == want : fabs(got - want) <= limit(dtype, want);
}

/* box [B,H,S,D] against a ref tensor whose flat order is that of box's axes order (BHSD or BSHD),
 * packed. */
static void compare(const struct box *box, const struct qv_tensor *ref, bool bshd, const char *what)
{
    const int64_t *const n = box->t.shape;
    int64_t bad = 0, flat = 0;
    if (n[0] * n[1] * n[2] * n[3] != ref->count) {
        note_failure("%s has %lld elements, ref %lld", what, (long long)(n[0] * n[1] * n[2] * n[3]),
                     (long long)ref->count);
        return;
    }
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t x = 0; x < n[bshd ? 2 : 1]; x++)
            for (int64_t y = 0; y < n[bshd ? 1 : 2]; y++)
                for (int64_t d = 0; d < n[3]; d++, flat++) {
                    const double got = box_get(box, b, bshd ? y : x, bshd ? x : y, d);
                    const double want = qv_get(ref, flat);
                    if (!onnx_matches(box->t.dtype, got, want) && bad++ == 0)
                        note_failure("%s element %lld is %.9g, ref %.9g", what, (long long)flat,
                                     got, want);
                }
}

/* Everything one Attention case is made of. Inputs stay in the file's memory where the operator
 * allows. */
struct attention {
    qattn_tensor q, k, v;
    qattn_attn_params params;
    struct box present_k, present_v; /* past and new keys in a row */
    struct box bias, keep;
    int32_t seqused_k[16];
    int64_t o_shape[4], lse_shape[4], scores_shape[4];
    bool bshd; /* 3D tensors */
    const struct qv_tensor *ref_o, *ref_lse, *ref_scores;
};

void onnx_tensor(qattn_tensor *out, const struct qv_tensor *t, int64_t heads)
{
    union {
        const void *in;
        void *out;
    } data = { t->data };
    if (t->rank == 4)
        ck_assert_int_eq(qattn_tensor_init(out, data.out, qv_dtype(t), QATTN_DEVICE_CPU, 0,
                                           QATTN_LAYOUT_BHSD, t->dim[0], t->dim[1], t->dim[2],
                                           t->dim[3]),
                         QATTN_OK);
    else
        ck_assert_int_eq(qattn_tensor_init(out, data.out, qv_dtype(t), QATTN_DEVICE_CPU, 0,
                                           QATTN_LAYOUT_BSHD, t->dim[0], heads, t->dim[1],
                                           t->dim[2] / heads),
                         QATTN_OK);
}

/* Puts past [B,H,P,D] and the new rows of *t into one box and points *t at it; checks it against
 * ref. */
static struct box make_present(qattn_tensor *t, const struct qv_tensor *past,
                               const struct qv_tensor *ref)
{
    const struct layout layout = layout_packed(QATTN_LAYOUT_BHSD);
    const int64_t before = past->dim[2];
    const int64_t shape[4] = { t->shape[0], t->shape[1], before + t->shape[2], t->shape[3] };
    struct box box = box_new(t->dtype, shape, &layout, POISON_INPUT);
    const int64_t item = format_size(t->dtype);
    for (int64_t b = 0; b < shape[0]; b++)
        for (int64_t h = 0; h < shape[1]; h++)
            for (int64_t s = 0; s < shape[2]; s++)
                for (int64_t d = 0; d < shape[3]; d++) {
                    const int64_t old = ((b * shape[1] + h) * before + s) * shape[3] + d;
                    const int64_t new = b * t->stride[0] + h * t->stride[1] +
                                        (s - before) * t->stride[2] + d * t->stride[3];
                    const void *const from = s < before ? (const char *)past->data + old * item
                                                        : (const char *)t->data + new *item;
                    memcpy(box_at(&box, b, h, s, d), from, (size_t)item);
                }
    compare(&box, ref, false, "present");
    *t = box.t;
    return box;
}

/* attn_mask, right-aligned against [B,Hq,Sq,Sk]; keys past a shorter last axis are hidden. */
static void make_mask(struct attention *a, const struct qv_tensor *mask, int64_t seqlen_k)
{
    const struct layout layout = layout_packed(QATTN_LAYOUT_BHSD);
    const bool is_bool = qv_dtype(mask) == QATTN_DTYPE_BOOL;
    int64_t shape[4] = { 1, 1, 1, 1 };
    for (int i = 0; i < mask->rank; i++)
        shape[4 - mask->rank + i] = mask->dim[i];
    const int64_t given = shape[3];
    const bool is_short = given > 1 && given < seqlen_k;
    if (is_short)
        shape[3] = seqlen_k;
    struct box *const box = is_bool ? &a->keep : &a->bias;
    *box = box_new(qv_dtype(mask), shape, &layout, POISON_INPUT);
    for (int64_t i = 0; i < shape[0] * shape[1] * shape[2]; i++)
        for (int64_t j = 0; j < shape[3]; j++)
            box_set(box, i / (shape[1] * shape[2]), i / shape[2] % shape[1], i % shape[2], j,
                    j < given ? qv_get(mask, i * given + j) : 0);
    if (is_bool) {
        a->params.keep = box->t;
        return;
    }
    a->params.bias = box->t;
    if (is_short) {
        const int64_t row[4] = { 1, 1, 1, seqlen_k };
        a->keep = box_new(QATTN_DTYPE_BOOL, row, &layout, POISON_INPUT);
        for (int64_t j = 0; j < seqlen_k; j++)
            box_set(&a->keep, 0, 0, 0, j, j < given);
        a->params.keep = a->keep.t;
    }
}

/* Which keys a row sees by its position. */
static void make_position(struct attention *a, const struct qv *file)
{
    int64_t causal = 0, left = -1, right = -1;
    const struct qv_tensor *const past = qv_tensor(file, "in", "past_key");
    const struct qv_tensor *const lengths = qv_tensor(file, "in", "nonpad_kv_seqlen");
    qv_int(file, "is_causal", &causal);
    qv_int(file, "left_window_size", &left);
    qv_int(file, "right_window_size", &right);
    if (causal)
        a->params.mask |= QATTN_MASK_CAUSAL;
    if (left != -1 || right != -1) {
        a->params.mask |= QATTN_MASK_WINDOW;
        a->params.window_left = left;
        a->params.window_right = right;
    }
    if (lengths) {
        ck_assert_int_le(lengths->count, 16);
        for (int64_t b = 0; b < lengths->count; b++)
            a->seqused_k[b] = (int32_t)qv_get(lengths, b);
        a->params.seqused_k = a->seqused_k;
    } else if (past) {
        a->params.mask |= QATTN_MASK_OFFSET;
        a->params.q_offset = past->dim[2];
    } else {
        a->params.mask |= QATTN_MASK_TOP_LEFT;
    }
}

static void make_attention(struct attention *a, const struct qv *file)
{
    int64_t q_heads = 0, kv_heads = 0;
    double number;
    const struct qv_tensor *const past = qv_tensor(file, "in", "past_key");
    const struct qv_tensor *const mask = qv_tensor(file, "in", "attn_mask");
    memset(a, 0, sizeof *a);
    a->params = (qattn_attn_params)QATTN_ATTN_PARAMS_INIT;
    qv_int(file, "q_num_heads", &q_heads);
    qv_int(file, "kv_num_heads", &kv_heads);
    a->bshd = qv_tensor(file, "in", "Q")->rank == 3;
    onnx_tensor(&a->q, qv_tensor(file, "in", "Q"), q_heads);
    onnx_tensor(&a->k, qv_tensor(file, "in", "K"), kv_heads);
    onnx_tensor(&a->v, qv_tensor(file, "in", "V"), kv_heads);
    if (past) {
        a->present_k = make_present(&a->k, past, qv_tensor(file, "ref", "present_key"));
        a->present_v = make_present(&a->v, qv_tensor(file, "in", "past_value"),
                                    qv_tensor(file, "ref", "present_value"));
    }
    if (qv_float(file, "scale", &number) == 0)
        a->params.scale = (float)number;
    if (qv_float(file, "softcap", &number) == 0)
        a->params.softcap = (float)number;
    make_position(a, file);
    if (mask)
        make_mask(a, mask, a->k.shape[2]);
    for (int i = 0; i < 4; i++) {
        a->o_shape[i] = i == 3 ? a->v.shape[3] : a->q.shape[i];
        a->lse_shape[i] = i == 3 ? 1 : a->q.shape[i];
        a->scores_shape[i] = i == 3 ? a->k.shape[2] : a->q.shape[i];
    }
    a->ref_o = qv_tensor(file, "ref", "Y");
    a->ref_lse = qv_tensor(file, "ref", "LSE");
    a->ref_scores = qv_tensor(file, "ref", "qk_matmul_output");
}

static void free_attention(struct attention *a)
{
    struct box *const boxes[] = { &a->present_k, &a->present_v, &a->bias, &a->keep };
    for (size_t i = 0; i < sizeof boxes / sizeof boxes[0]; i++)
        if (boxes[i]->map)
            box_free(boxes[i]);
}

/* One op on one row. scores: ask for them (gqa_forward). Returns false where the row does not run
 * it. */
static bool run_attention(struct attention *a, enum op op, int row_index, int64_t stage,
                          const char *name)
{
    const struct layout packed = layout_packed(a->bshd ? QATTN_LAYOUT_BSHD : QATTN_LAYOUT_BHSD);
    const struct layout plain = layout_packed(QATTN_LAYOUT_BHSD);
    const struct impl *rows[ROW_MAX];
    const bool scores = op == OP_GQA_FORWARD && a->ref_scores;
    struct box o = box_new(a->q.dtype, a->o_shape, &packed, POISON_OUTPUT);
    struct box lse = box_new(QATTN_DTYPE_F32, a->lse_shape, &plain, POISON_OUTPUT);
    struct box s = box_new(QATTN_DTYPE_F32, a->scores_shape, &plain, POISON_OUTPUT);
    struct problem p;
    bool ran = false;

    a->params.lse = lse.t;
    a->params.scores = scores ? s.t : (qattn_tensor){ 0 };
    a->params.scores_stage = scores ? (int32_t)stage : 0;
    case_begin("onnx/%s %s", name, qattn__op_name(op));
    const int32_t status =
        qattn__problem_attention(&p, op, &a->q, &a->k, &a->v, &o.t, &a->params, false);
    if (status != QATTN_OK) {
        char why[512];
        qattn_last_error(why, sizeof why);
        note_failure("refused: %d %s", status, why);
    } else if (row_index < rows_for(&p, rows)) {
        case_begin("onnx/%s %s %s", name, qattn__op_name(op), rows[row_index]->id);
        if (row_run(rows[row_index], &p) != QATTN_OK)
            note_failure("run failed");
        compare(&o, a->ref_o, a->bshd, "Y");
        compare(&lse, a->ref_lse, false, "LSE");
        if (scores)
            compare(&s, a->ref_scores, false, "qk_matmul_output");
        ran = true;
    }
    box_free(&o);
    box_free(&lse);
    box_free(&s);
    return ran;
}

void onnx_attention(const struct qv *file)
{
    static struct attention a;
    int64_t stage = 0;
    make_attention(&a, file);
    qv_int(file, "qk_matmul_output_mode", &stage);
    for (int op = OP_GQA_FORWARD; op <= OP_FLASH_FORWARD; op++) {
        int rows = 0;
        while (run_attention(&a, (enum op)op, rows, stage, file->name))
            rows++;
        if (rows == 0)
            note_failure("no row runs %s", qattn__op_name((enum op)op));
        count_run("onnx Attention", rows);
    }
    free_attention(&a);
}
