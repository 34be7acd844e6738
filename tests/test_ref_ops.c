/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The reference's scores output and the operations matmul, softmax and merge, against numbers worked out by hand; the
 * last test asks the same of the public functions. */
#include <string.h>

#include "core/convert.h"
#include "core/params.h"
#include "ref/ref.h"
#include "suites.h"
#include "test_ref.h"

#define LN2 0.693147180559945309
#define LN3 1.098612288668109691

static qattn_tensor f32_tensor(const float *data, int64_t b, int64_t h, int64_t s, int64_t d)
{
    return ref_tensor(data, QATTN_DTYPE_F32, b, h, s, d);
}

static void expect(const float *got, const double *want, int count)
{
    for (int n = 0; n < count; n++)
        if (!(isnan(want[n]) && isnan(got[n])))
            CHECK_NEAR(got[n], want[n]);
}

/* ---------------------------------------------------------------- scores of gqa_forward */

/* 2 rows (the second past seqused_q when asked), 3 keys of products 1, 2, 4 (scale 1/2), cap 1, bias, causal. */
static void run_scores(int32_t stage, const int32_t *used_q, const int32_t *used_k, float *scores)
{
    const float q[2] = { 1, 1 }, k[3] = { 1, 2, 4 }, v[3] = { 0, 0, 0 }, bias[3] = { 0, -1, 0 };
    float o[2];
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    params.scale = 0.5f;
    params.softcap = 1;
    params.mask = QATTN_MASK_CAUSAL;
    params.bias = f32_tensor(bias, 1, 1, 1, 3);
    params.scores = f32_tensor(scores, 1, 1, 2, 3);
    params.scores_stage = stage;
    params.seqused_q = used_q;
    params.seqused_k = used_k;
    const qattn_tensor tq = f32_tensor(q, 1, 1, 2, 1), tk = f32_tensor(k, 1, 1, 3, 1);
    const qattn_tensor tv = f32_tensor(v, 1, 1, 3, 1), to = f32_tensor(o, 1, 1, 2, 1);
    for (int n = 0; n < 6; n++)
        scores[n] = 99;
    ref_attend(OP_GQA_FORWARD, &tq, &tk, &tv, &to, &params);
}

START_TEST(scores_of_every_stage)
{
    const double a = tanh(0.5), b = tanh(1), c = tanh(2);
    const double two = exp(a) + exp(b - 1), three = two + exp(c);
    const double want[4][6] = {
        { 0.5, 1, 2, 0.5, 1, 2 },
        { a, b, c, a, b, c },
        { a, b - 1, -INFINITY, a, b - 1, c },
        { exp(a) / two, exp(b - 1) / two, 0, exp(a) / three, exp(b - 1) / three, exp(c) / three },
    };
    float scores[6];
    for (int32_t stage = 0; stage < 4; stage++) {
        run_scores(stage, NULL, NULL, scores);
        expect(scores, want[stage], 6);
    }
}
END_TEST

START_TEST(scores_with_lengths)
{
    const int32_t one[1] = { 1 }, two[1] = { 2 };
    const double a = tanh(0.5), b = tanh(1), sum = exp(a) + exp(b - 1);
    const double want[4][6] = {
        { 0.5, 1, 0, 0, 0, 0 },
        { a, b, 0, 0, 0, 0 },
        { a, b - 1, -INFINITY, -INFINITY, -INFINITY, -INFINITY },
        { exp(a) / sum, exp(b - 1) / sum, 0, 0, 0, 0 },
    };
    float scores[6];
    for (int32_t stage = 0; stage < 4; stage++) {
        run_scores(stage, one, two, scores);
        expect(scores, want[stage], 6);
    }
}
END_TEST

/* Both attention functions are one formula: same bits, f16 scores included. */
START_TEST(gqa_equals_flash)
{
    uint16_t q[2 * 2 * 3], k[4 * 3], v[4 * 2], scores[2 * 2 * 4];
    float flash[8], gqa[8];
    for (int n = 0; n < 12; n++) {
        q[n] = qattn__f64_to_f16(sin(n));
        k[n] = qattn__f64_to_f16(cos(3 * n));
        v[n % 8] = qattn__f64_to_f16(sin(7 * n));
    }
    const qattn_tensor tq = ref_tensor(q, QATTN_DTYPE_F16, 1, 2, 2, 3), tk = ref_tensor(k, QATTN_DTYPE_F16, 1, 1, 4, 3);
    const qattn_tensor tv = ref_tensor(v, QATTN_DTYPE_F16, 1, 1, 4, 2);
    const qattn_tensor tf = f32_tensor(flash, 1, 2, 2, 2), tg = f32_tensor(gqa, 1, 2, 2, 2);
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    params.mask = QATTN_MASK_CAUSAL;
    ref_attend(OP_FLASH_FORWARD, &tq, &tk, &tv, &tf, &params);
    params.scores = ref_tensor(scores, QATTN_DTYPE_F16, 1, 2, 2, 4);
    params.scores_stage = 3;
    ref_attend(OP_GQA_FORWARD, &tq, &tk, &tv, &tg, &params);
    ck_assert_mem_eq(flash, gqa, sizeof flash);
    for (int n = 0; n < 8; n++) {                          /* O = P V, by hand from the rounded P */
        double sum = 0, p_sum = 0;
        for (int j = 0; j < 4; j++) {
            const double p_j = (double)qattn__f16_to_f32(scores[n / 2 * 4 + j]);
            sum += p_j * (double)qattn__f16_to_f32(v[2 * j + n % 2]);
            p_sum += p_j;
        }
        ck_assert(fabs(sum - (double)gqa[n]) < 2e-3 && fabs(p_sum - 1) < 2e-3);
    }
    ck_assert(scores[3] == 0 && scores[7] != 0);
}
END_TEST

/* ---------------------------------------------------------------- matmul */

static void multiply(enum op op, const qattn_tensor *a, const qattn_tensor *b, const qattn_tensor *c,
                     const qattn_matmul_params *params)
{
    struct problem p;
    ck_assert_int_eq(qattn__problem_matmul(&p, op, a, b, c, params, false), QATTN_OK);
    ref_run(&p);
}

START_TEST(matmul_by_hand)
{
    const float a[6] = { 1, 2, 3, 4, 5, 6 }, b[6] = { 1, 0, 2, -1, 0, 3 };
    float c[4] = { NAN, NAN, NAN, NAN };
    qattn_matmul_params params = QATTN_MATMUL_PARAMS_INIT;
    const qattn_tensor ta = f32_tensor(a, 1, 1, 2, 3), tc = f32_tensor(c, 1, 1, 2, 2);
    qattn_tensor tb = f32_tensor(b, 1, 1, 3, 2);
    multiply(OP_MATMUL, &ta, &tb, &tc, NULL);              /* b = 1 0; 2 -1; 0 3 */
    expect(c, (const double[]){ 5, 7, 14, 13 }, 4);
    params.alpha = 2;
    params.beta = -1;
    multiply(OP_MATMUL, &ta, &tb, &tc, &params);
    expect(c, (const double[]){ 5, 7, 14, 13 }, 4);        /* 2 c - c */
    tb = f32_tensor(b, 1, 1, 2, 3);
    multiply(OP_MATMUL_NT, &ta, &tb, &tc, NULL);           /* b = 1 0 2; -1 0 3 */
    expect(c, (const double[]){ 7, 8, 16, 14 }, 4);
    params.alpha = 0;
    params.beta = 0.5f;
    params.flags = QATTN_FLAG_SCALE_AS_GIVEN;
    multiply(OP_MATMUL_NT, &ta, &tb, &tc, &params);
    expect(c, (const double[]){ 3.5, 4, 8, 7 }, 4);
}
END_TEST

/* K = 0: beta C, and 0 without reading C when beta is 0. No rows, no columns: nothing to do. */
START_TEST(matmul_of_nothing)
{
    float c[4] = { 1, 2, 3, NAN };
    qattn_matmul_params params = QATTN_MATMUL_PARAMS_INIT;
    const qattn_tensor tc = f32_tensor(c, 1, 1, 2, 2);
    const qattn_tensor ta = f32_tensor(NULL, 1, 1, 2, 0), tb = f32_tensor(NULL, 1, 1, 0, 2);
    params.beta = 2;
    multiply(OP_MATMUL, &ta, &tb, &tc, &params);
    expect(c, (const double[]){ 2, 4, 6, NAN }, 4);
    multiply(OP_MATMUL, &ta, &tb, &tc, NULL);
    expect(c, (const double[]){ 0, 0, 0, 0 }, 4);
    const qattn_tensor none = f32_tensor(NULL, 1, 1, 0, 2), square = f32_tensor(c, 1, 1, 2, 2);
    multiply(OP_MATMUL, &none, &square, &none, NULL);
}
END_TEST

/* Heads 0, 1 read b's head 0, heads 2, 3 its head 1; rows of a run backwards, b is broadcast over the batch. */
START_TEST(matmul_heads_and_strides)
{
    const float a[16] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 }, b[2] = { 10, 1000 };
    float c[16];
    qattn_tensor ta = f32_tensor(a + 15, 2, 4, 2, 1), tb = f32_tensor(b, 2, 2, 1, 1);
    const qattn_tensor tc = f32_tensor(c, 2, 4, 2, 1);
    for (int axis = 0; axis < 3; axis++)
        ta.stride[axis] = -ta.stride[axis];
    tb.stride[0] = 0;
    multiply(OP_MATMUL, &ta, &tb, &tc, NULL);
    for (int n = 0; n < 16; n++)
        ck_assert(c[n] == (float)((16 - n) * (n / 2 % 4 < 2 ? 10 : 1000)));
}
END_TEST

/* ---------------------------------------------------------------- softmax */

static void soften(const qattn_tensor *x, const qattn_tensor *y, const qattn_softmax_params *params, bool causal)
{
    struct problem p;
    ck_assert_int_eq(qattn__problem_softmax(&p, x, y, params, causal, false), QATTN_OK);
    ref_run(&p);
}

START_TEST(softmax_by_hand)
{
    float x[6] = { 0, (float)LN2, (float)LN3, (float)LN3, (float)LN2, 0 }, y[6], lse[2];
    qattn_softmax_params params = QATTN_SOFTMAX_PARAMS_INIT;
    const qattn_tensor tx = f32_tensor(x, 1, 1, 2, 3), ty = f32_tensor(y, 1, 1, 2, 3);
    params.lse = f32_tensor(lse, 1, 1, 2, 1);
    soften(&tx, &ty, &params, false);
    expect(y, (const double[]){ 1 / 6., 2 / 6., 3 / 6., 3 / 6., 2 / 6., 1 / 6. }, 6);
    expect(lse, (const double[]){ LN2 + LN3, LN2 + LN3 }, 2);
    params.scale = 2;                                      /* weights 1, 4, 9 */
    soften(&tx, &ty, &params, false);
    expect(y, (const double[]){ 1 / 14., 4 / 14., 9 / 14., 9 / 14., 4 / 14., 1 / 14. }, 6);
    params.scale = 0;
    x[2] = x[4] = NAN;                                     /* hidden: the causal rows see 2 and 3 keys */
    soften(&tx, &ty, &params, true);
    expect(y, (const double[]){ 1 / 3., 2 / 3., 0 }, 3);
    ck_assert(isnan(y[3]) && isnan(y[4]) && isnan(y[5]) && isnan(lse[1]));
    soften(&tx, &tx, NULL, true);                          /* in place */
    expect(x, (const double[]){ 1 / 3., 2 / 3., 0 }, 3);
}
END_TEST

/* All options of a score, at B = 2, H = 2: equal scores, so that probabilities are 1 / count. */
START_TEST(softmax_masks_lengths_sinks)
{
    enum { N = 2 * 2 * 2 * 3 };
    const int32_t used_q[2] = { 2, 1 }, used_k[2] = { 2, 3 };
    const float sinks[2] = { -INFINITY, 0 };
    const uint8_t keep[3] = { 1, 0, 1 };
    uint16_t x[N] = { 0 }, y[N];
    float lse[8];
    qattn_softmax_params params = QATTN_SOFTMAX_PARAMS_INIT;
    const qattn_tensor tx = ref_tensor(x, QATTN_DTYPE_BF16, 2, 2, 2, 3);
    const qattn_tensor ty = ref_tensor(y, QATTN_DTYPE_BF16, 2, 2, 2, 3);
    params.lse = f32_tensor(lse, 2, 2, 2, 1);
    params.seqused_q = used_q;
    params.seqused_k = used_k;
    params.sinks = sinks;
    params.keep = ref_tensor(keep, QATTN_DTYPE_BOOL, 1, 1, 1, 3);
    soften(&tx, &ty, &params, false);
    /* batch 0: key 0 alone; batch 1: keys 0 and 2, and row 1 is past its length. Head 1 has a sink of weight 1. */
    const double want_y[N] = { 1, 0, 0, 1, 0, 0, 0.5, 0, 0, 0.5, 0, 0,
                               0.5, 0, 0.5, 0, 0, 0, 1 / 3., 0, 1 / 3., 0, 0, 0 };
    for (int n = 0; n < N; n++)
        ck_assert(fabs((double)qattn__bf16_to_f32(y[n]) - want_y[n]) <= 0x1p-8 * want_y[n]);
    expect(lse, (const double[]){ 0, 0, LN2, LN2, LN2, -INFINITY, LN3, -INFINITY }, 8);
}
END_TEST

/* Window, top left, ALiBi of slope log 2: row 1 of 4 equal scores sees keys 0..2 at distances 1, 0, 1. */
START_TEST(softmax_window_and_alibi)
{
    const float x[12] = { 0 }, slope[1] = { (float)LN2 };
    float y[12];
    qattn_softmax_params params = QATTN_SOFTMAX_PARAMS_INIT;
    const qattn_tensor tx = f32_tensor(x, 1, 1, 3, 4), ty = f32_tensor(y, 1, 1, 3, 4);
    params.mask = QATTN_MASK_WINDOW | QATTN_MASK_TOP_LEFT;
    params.window_left = 1;
    params.window_right = 1;
    params.alibi_slopes = slope;
    soften(&tx, &ty, &params, false);
    expect(y, (const double[]){ 2 / 3., 1 / 3., 0, 0, 0.25, 0.5, 0.25, 0, 0, 0.25, 0.5, 0.25 }, 12);
}
END_TEST

START_TEST(softmax_of_nothing)
{
    float lse[2] = { NAN, NAN };
    qattn_softmax_params params = QATTN_SOFTMAX_PARAMS_INIT;
    const qattn_tensor no_keys = f32_tensor(NULL, 1, 1, 2, 0), no_rows = f32_tensor(NULL, 1, 1, 0, 3);
    params.lse = f32_tensor(lse, 1, 1, 2, 1);
    soften(&no_keys, &no_keys, &params, false);
    expect(lse, (const double[]){ -INFINITY, -INFINITY }, 2);
    soften(&no_rows, &no_rows, NULL, false);
}
END_TEST

/* ---------------------------------------------------------------- merge */

static void merge(int64_t n, const qattn_tensor *o_parts, const qattn_tensor *lse_parts, const qattn_tensor *o,
                  const qattn_tensor *lse, const qattn_merge_params *params)
{
    struct problem p;
    ck_assert_int_eq(qattn__problem_merge(&p, n, o_parts, lse_parts, o, lse, params, false), QATTN_OK);
    ref_run(&p);
}

/* Rows: weights 1 and 2; a part that saw nothing and holds NaN; neither saw anything; an LSE of NaN, of +inf. */
START_TEST(merge_by_hand)
{
    float o0[5] = { 1, 5, NAN, 1, 1 }, l0[5] = { 0, -3, -INFINITY, NAN, 0 };
    const float o1[5] = { 4, NAN, NAN, 1, 1 }, l1[5] = { (float)LN2, -INFINITY, -INFINITY, 0, INFINITY };
    float o[5], lse[5];
    const qattn_tensor o_parts[2] = { f32_tensor(o0, 1, 1, 5, 1), f32_tensor(o1, 1, 1, 5, 1) };
    const qattn_tensor lse_parts[2] = { f32_tensor(l0, 1, 1, 5, 1), f32_tensor(l1, 1, 1, 5, 1) };
    const qattn_tensor to = f32_tensor(o, 1, 1, 5, 1), tl = f32_tensor(lse, 1, 1, 5, 1);
    const double want_o[5] = { 3, 5, 0, NAN, NAN }, want_lse[5] = { LN3, -3, -INFINITY, NAN, NAN };
    merge(2, o_parts, lse_parts, &to, &tl, NULL);
    expect(o, want_o, 5);
    expect(lse, want_lse, 5);
    merge(2, o_parts, lse_parts, &to, NULL, NULL);
    expect(o, want_o, 5);
    merge(2, o_parts, lse_parts, &o_parts[0], &lse_parts[0], NULL);        /* into part 0 */
    expect(o0, want_o, 5);
    expect(l0, want_lse, 5);
    merge(1, &to, &tl, &o_parts[0], &lse_parts[0], NULL);
    expect(o0, want_o, 5);
}
END_TEST

/* LSEs 3 and 5 in base 2 weigh 1 and 4; f16 parts far apart in range. */
START_TEST(merge_base_2)
{
    const uint16_t o0 = qattn__f64_to_f16(10), o1 = qattn__f64_to_f16(-5);
    const float l0 = -1000, l1 = -998;
    float o = NAN, lse = NAN;
    qattn_merge_params params = QATTN_MERGE_PARAMS_INIT;
    const qattn_tensor o_parts[2] = {
        ref_tensor(&o0, QATTN_DTYPE_F16, 1, 1, 1, 1), ref_tensor(&o1, QATTN_DTYPE_F16, 1, 1, 1, 1),
    };
    const qattn_tensor lse_parts[2] = { f32_tensor(&l0, 1, 1, 1, 1), f32_tensor(&l1, 1, 1, 1, 1) };
    const qattn_tensor to = f32_tensor(&o, 1, 1, 1, 1), tl = f32_tensor(&lse, 1, 1, 1, 1);
    params.flags = QATTN_FLAG_LSE_BASE2;
    merge(2, o_parts, lse_parts, &to, &tl, &params);
    CHECK_NEAR(o, (10 - 4 * 5) / 5.0);
    CHECK_NEAR(lse, -1000 + log2(5));
}
END_TEST

/* Attention over 7 keys is the merge of attention over the first 3 and the last 4; the sink sits in one part. */
START_TEST(merge_of_two_halves_is_the_whole)
{
    enum { H = 2, S = 3, D = 4, KEYS = 7 };
    float q[H * S * D], k[KEYS * D], v[KEYS * D], whole[H * S * D], part[2][H * S * D], lse[3][H * S];
    const float sinks[H] = { 0.5f, -1 };
    for (int n = 0; n < H * S * D; n++)
        q[n] = (float)sin(3 * n);
    for (int n = 0; n < KEYS * D; n++) {
        k[n] = (float)cos(5 * n);
        v[n] = (float)sin(11 * n);
    }
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    ref_attend_f32((struct ref_shape){ H, 1, S, 4, D, D }, q, k + 3 * D, v + 3 * D, part[1], lse[1], &params);
    params.sinks = sinks;
    ref_attend_f32((struct ref_shape){ H, 1, S, KEYS, D, D }, q, k, v, whole, lse[2], &params);
    ref_attend_f32((struct ref_shape){ H, 1, S, 3, D, D }, q, k, v, part[0], lse[0], &params);
    const qattn_tensor o_parts[2] = { f32_tensor(part[0], 1, H, S, D), f32_tensor(part[1], 1, H, S, D) };
    const qattn_tensor lse_parts[2] = { f32_tensor(lse[0], 1, H, S, 1), f32_tensor(lse[1], 1, H, S, 1) };
    merge(2, o_parts, lse_parts, &o_parts[0], &lse_parts[0], NULL);
    for (int n = 0; n < H * S * D; n++)
        CHECK_NEAR(part[0][n], whole[n]);
    for (int n = 0; n < H * S; n++)
        CHECK_NEAR(lse[0][n], lse[2][n]);
}
END_TEST

/* ---------------------------------------------------------------- the public functions */

/* Whatever row the table picks on this machine: the same numbers by hand. */
START_TEST(public_functions_by_hand)
{
    const float q[1] = { 1 }, k[3] = { 0, (float)LN2, (float)LN3 }, v[3] = { 6, 12, 18 };
    float o[1] = { NAN }, c[3], y[3], lse[1] = { (float)LN2 }, part_lse[2] = { 0, (float)LN2 }, parts[2] = { 1, 4 };
    const qattn_tensor tq = f32_tensor(q, 1, 1, 1, 1), tk = f32_tensor(k, 1, 1, 3, 1), tv = f32_tensor(v, 1, 1, 3, 1);
    const qattn_tensor to = f32_tensor(o, 1, 1, 1, 1), tc = f32_tensor(c, 1, 1, 1, 3), ty = f32_tensor(y, 1, 1, 1, 3);
    const qattn_tensor tl = f32_tensor(lse, 1, 1, 1, 1);
    const qattn_tensor o_parts[2] = { f32_tensor(&parts[0], 1, 1, 1, 1), f32_tensor(&parts[1], 1, 1, 1, 1) };
    const qattn_tensor l_parts[2] = { f32_tensor(&part_lse[0], 1, 1, 1, 1), f32_tensor(&part_lse[1], 1, 1, 1, 1) };
    ck_assert_int_eq(qattn_flash_forward(&tq, &tk, &tv, &to, NULL, NULL), QATTN_OK);
    ck_assert(fabsf(o[0] - 14) < 1e-4f);
    o[0] = NAN;
    ck_assert_int_eq(qattn_gqa_forward(&tq, &tk, &tv, &to, NULL, NULL), QATTN_OK);
    ck_assert(fabsf(o[0] - 14) < 1e-4f);
    ck_assert_int_eq(qattn_matmul_nt(&tq, &tk, &tc, NULL, NULL), QATTN_OK);
    ck_assert(c[0] == 0 && c[1] == k[1] && c[2] == k[2]);
    ck_assert_int_eq(qattn_softmax(&tc, &ty, NULL, NULL), QATTN_OK);
    ck_assert(fabsf(y[0] - 1 / 6.f) < 1e-6f && fabsf(y[1] - 2 / 6.f) < 1e-6f && fabsf(y[2] - 0.5f) < 1e-6f);
    o[0] = NAN;
    ck_assert_int_eq(qattn_matmul(&ty, &tv, &to, NULL, NULL), QATTN_OK);
    ck_assert(fabsf(o[0] - 14) < 1e-4f);
    ck_assert_int_eq(qattn_softmax_causal(&tc, &tc, NULL, NULL), QATTN_OK);
    ck_assert(fabsf(c[2] - 0.5f) < 1e-6f);
    ck_assert_int_eq(qattn_merge(2, o_parts, l_parts, &to, &tl, NULL, NULL), QATTN_OK);
    ck_assert(fabsf(o[0] - 3) < 1e-5f && fabsf(lse[0] - (float)LN3) < 1e-6f);
}
END_TEST

TCase *tcase_ref_ops(void)
{
    TCase *const tc = tcase_create("operations");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, scores_of_every_stage);
    tcase_add_test(tc, scores_with_lengths);
    tcase_add_test(tc, gqa_equals_flash);
    tcase_add_test(tc, matmul_by_hand);
    tcase_add_test(tc, matmul_of_nothing);
    tcase_add_test(tc, matmul_heads_and_strides);
    tcase_add_test(tc, softmax_by_hand);
    tcase_add_test(tc, softmax_masks_lengths_sinks);
    tcase_add_test(tc, softmax_window_and_alibi);
    tcase_add_test(tc, softmax_of_nothing);
    tcase_add_test(tc, merge_by_hand);
    tcase_add_test(tc, merge_base_2);
    tcase_add_test(tc, merge_of_two_halves_is_the_whole);
    tcase_add_test(tc, public_functions_by_hand);
    return tc;
}
