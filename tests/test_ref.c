/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The reference against numbers worked out by hand and closed forms. Scores are mostly logarithms of small whole
 * numbers, so that probabilities are fractions one can add up on paper.
 */
#include <string.h>

#include "core/params.h"
#include "core/tensor.h"
#include "ref/ref.h"
#include "suites.h"
#include "test_ref.h"

#define LN2 0.693147180559945309
#define LN3 1.098612288668109691

/* ---------------------------------------------------------------- helpers of all three files */

qattn_tensor ref_tensor(const void *data, int32_t dtype, int64_t b, int64_t h, int64_t s, int64_t d)
{
    qattn_tensor t;
    union { const void *in; void *out; } address = { data };
    ck_assert_int_eq(qattn__tensor_init(&t, address.out, dtype, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BHSD, b, h, s, d),
                     QATTN_OK);
    return t;
}

void ref_run(struct problem *p)
{
    enum { FENCE = 256 };
    static _Alignas(256) unsigned char memory[48 << 10];
    char why[128];
    const size_t bytes = qattn__ref_workspace(p);
    ck_assert_uint_le(bytes + FENCE, sizeof memory);
    memset(memory, 0xFF, bytes + FENCE);
    p->workspace = bytes ? (char *)memory : NULL;
    p->workspace_bytes = bytes;
    ck_assert(qattn__ref_supports(p, why, sizeof why));
    ck_assert_int_eq(qattn__ref_run(p, NULL), QATTN_OK);
    for (size_t i = bytes; i < bytes + FENCE; i++)
        if (memory[i] != 0xFF)
            ck_abort_msg("workspace byte %zu of %zu was written", i, bytes);
}

void ref_attend(enum op op, const qattn_tensor *q, const qattn_tensor *k, const qattn_tensor *v,
                const qattn_tensor *o, const qattn_attn_params *params)
{
    struct problem p;
    char text[512];
    const int32_t status = qattn__problem_attention(&p, op, q, k, v, o, params, false);
    qattn_last_error(text, sizeof text);
    ck_assert_msg(status == QATTN_OK, "%s", text);
    ref_run(&p);
}

void ref_attend_f32(struct ref_shape shape, const float *q, const float *k, const float *v, float *o, float *lse,
                    const qattn_attn_params *params)
{
    qattn_attn_params with_lse = QATTN_ATTN_PARAMS_INIT;
    if (params)
        with_lse = *params;
    const qattn_tensor tq = ref_tensor(q, QATTN_DTYPE_F32, 1, shape.hq, shape.sq, shape.d);
    const qattn_tensor tk = ref_tensor(k, QATTN_DTYPE_F32, 1, shape.hkv, shape.sk, shape.d);
    const qattn_tensor tv = ref_tensor(v, QATTN_DTYPE_F32, 1, shape.hkv, shape.sk, shape.dv);
    const qattn_tensor to = ref_tensor(o, QATTN_DTYPE_F32, 1, shape.hq, shape.sq, shape.dv);
    with_lse.lse = ref_tensor(lse, QATTN_DTYPE_F32, 1, shape.hq, shape.sq, 1);
    for (int64_t n = 0; n < shape.hq * shape.sq * shape.dv; n++)
        o[n] = NAN;
    for (int64_t n = 0; n < shape.hq * shape.sq; n++)
        lse[n] = NAN;
    ref_attend(OP_FLASH_FORWARD, &tq, &tk, &tv, &to, &with_lse);
}

/* ---------------------------------------------------------------- softmax and the weighted sum */

/* Scores log 1, log 2, log 3: weights 1/6, 2/6, 3/6; values 6, 12, 18 give 1 + 4 + 9. The default scale, 1/2 for
 * D = 4, is undone by doubled keys. */
START_TEST(three_keys_by_hand)
{
    const float q[4] = { 1, 0, 0, 1 }, v[6] = { 6, 0, 12, 6, 18, -6 };
    const float k[12] = { 0, 9, 9, 0,   (float)(2 * LN2), 9, 9, 0,   (float)LN3, 9, 9, (float)LN3 };
    float o[2], lse[1];
    ref_attend_f32((struct ref_shape){ 1, 1, 1, 3, 4, 2 }, q, k, v, o, lse, NULL);
    CHECK_NEAR(o[0], 14);
    CHECK_NEAR(o[1], 2 - 3);
    CHECK_NEAR(lse[0], LN2 + LN3);
}
END_TEST

/* Two keys: the weight of the second is the logistic function of the difference of the scores. */
START_TEST(two_keys_are_logistic)
{
    const float scores[] = { -100, -3, -0.5f, 0, 0.25f, 7, 88, 300, 3e38f };
    for (unsigned n = 0; n < sizeof scores / sizeof scores[0]; n++) {
        const float q[1] = { 1 }, k[2] = { 0, scores[n] }, v[2] = { 0, 1 };
        const double x = (double)scores[n];
        float o[1], lse[1];
        ref_attend_f32((struct ref_shape){ 1, 1, 1, 2, 1, 1 }, q, k, v, o, lse, NULL);
        CHECK_NEAR(o[0], 1 / (1 + exp(-x)));
        CHECK_NEAR(lse[0], x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)));
    }
}
END_TEST

/* n equal scores s: the mean of V, LSE = s + log n. A single key: its value, exactly. */
START_TEST(equal_scores_give_the_mean)
{
    const float q[2] = { 3, -1 };
    float k[2 * 7], v[3 * 7], o[3], lse[1];
    for (int j = 0; j < 7; j++) {
        k[2 * j] = 2;
        k[2 * j + 1] = 0.5f;
        v[3 * j] = (float)j;
        v[3 * j + 1] = (float)(j * j);
        v[3 * j + 2] = -0.1f;
    }
    const double s = (3 * 2 - 0.5) * sqrt(0.5);
    ref_attend_f32((struct ref_shape){ 1, 1, 1, 7, 2, 3 }, q, k, v, o, lse, NULL);
    CHECK_NEAR(o[0], 3);
    CHECK_NEAR(o[1], 91.0 / 7);
    ck_assert(o[2] == -0.1f);
    CHECK_NEAR(lse[0], s + log(7));

    ref_attend_f32((struct ref_shape){ 1, 1, 1, 1, 2, 3 }, q, k, v + 6, o, lse, NULL);
    ck_assert(o[0] == 2 && o[1] == 4 && o[2] == -0.1f);
    CHECK_NEAR(lse[0], s);
}
END_TEST

START_TEST(scale_default_given_and_zero)
{
    const float q[4] = { 2, 0, 0, 0 }, k[8] = { 0, 0, 0, 0, 1, 0, 0, 0 }, v[2] = { 0, 1 };
    const struct ref_shape shape = { 1, 1, 1, 2, 4, 1 };
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    float o[1], lse[1];
    ref_attend_f32(shape, q, k, v, o, lse, NULL);          /* 1/sqrt(4): score 1 */
    CHECK_NEAR(o[0], 1 / (1 + exp(-1)));
    params.scale = -0.25f;
    ref_attend_f32(shape, q, k, v, o, lse, &params);
    CHECK_NEAR(o[0], 1 / (1 + exp(0.5)));
    params.scale = 0;
    params.flags = QATTN_FLAG_SCALE_AS_GIVEN;
    ref_attend_f32(shape, q, k, v, o, lse, &params);
    CHECK_NEAR(o[0], 0.5);
}
END_TEST

START_TEST(lse_base_2)
{
    const float q[1] = { 1 }, k[3] = { 0, (float)LN2, 0 }, v[3] = { 1, 1, 1 };
    const float sink[1] = { (float)(2 * LN2) };
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    float o[1], lse[1];
    params.flags = QATTN_FLAG_LSE_BASE2;
    ref_attend_f32((struct ref_shape){ 1, 1, 1, 3, 1, 1 }, q, k, v, o, lse, &params);
    CHECK_NEAR(lse[0], 2);                                 /* log2(1 + 2 + 1) */
    params.sinks = sink;                                   /* a sink is a natural logit whatever the base: + 4 */
    ref_attend_f32((struct ref_shape){ 1, 1, 1, 3, 1, 1 }, q, k, v, o, lse, &params);
    CHECK_NEAR(lse[0], 3);
    ref_attend_f32((struct ref_shape){ 1, 1, 1, 0, 1, 1 }, q, k, v, o, lse, &params);
    CHECK_NEAR(lse[0], 2);
}
END_TEST

/* ---------------------------------------------------------------- what is done to a score */

/* c tanh(s / c): s = c artanh(1/2) is halved to c/2; 1e30 saturates at c. Bias comes after the cap. */
START_TEST(softcap_closed_form)
{
    const float q[1] = { 1 }, k[3] = { 0, (float)(4 * 0.549306144334054846), 1e30f }, v[3] = { 0, 1, 0 };
    const float bias[3] = { 0, 30, 0 };
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    float o[1], lse[1];
    params.softcap = 4;
    ref_attend_f32((struct ref_shape){ 1, 1, 1, 3, 1, 1 }, q, k, v, o, lse, &params);
    CHECK_NEAR(lse[0], log(1 + exp(2) + exp(4)));
    CHECK_NEAR(o[0], exp(2) / (1 + exp(2) + exp(4)));
    params.bias = ref_tensor(bias, QATTN_DTYPE_F32, 1, 1, 1, 3);
    ref_attend_f32((struct ref_shape){ 1, 1, 1, 3, 1, 1 }, q, k, v, o, lse, &params);
    CHECK_NEAR(lse[0], log(1 + exp(32) + exp(4)));
}
END_TEST

/* Slope log 2: a key at distance n weighs 2^-n. Four keys, the only row at position 3 (bottom right), 0 (top left),
 * 2 (offset) and -2. */
START_TEST(alibi_closed_form)
{
    static const struct { uint32_t mask; int64_t offset; double sum, numerator; } cases[] = {
        { 0, 0, 1.875, 0.25 + 2 * 0.5 + 3 },
        { QATTN_MASK_TOP_LEFT, 0, 1.875, 0.5 + 2 * 0.25 + 3 * 0.125 },
        { QATTN_MASK_OFFSET, 2, 0.25 + 0.5 + 1 + 0.5, 0.5 + 2 + 3 * 0.5 },
        { QATTN_MASK_OFFSET, -2, 0.25 + 0.125 + 0.0625 + 0.03125, 0.125 + 2 * 0.0625 + 3 * 0.03125 },
    };
    const float q[1] = { 0 }, k[4] = { 0 }, v[4] = { 0, 1, 2, 3 }, slope[1] = { (float)LN2 };
    for (unsigned n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
        float o[1], lse[1];
        params.mask = cases[n].mask;
        params.q_offset = cases[n].offset;
        params.alibi_slopes = slope;
        ref_attend_f32((struct ref_shape){ 1, 1, 1, 4, 1, 1 }, q, k, v, o, lse, &params);
        CHECK_NEAR(lse[0], log(cases[n].sum));
        CHECK_NEAR(o[0], cases[n].numerator / cases[n].sum);
    }
}
END_TEST

/* [N,Hq] slopes with a batch stride of 3: key 0 at distance 1 weighs exp(-slope), key 1 weighs 1. */
START_TEST(alibi_per_head_and_sequence)
{
    const float q[4] = { 0 }, k[4] = { 0 }, v[4] = { 1, 0, 1, 0 };
    const float slopes[5] = { (float)LN2, (float)LN3, 99, 0, (float)(2 * LN2) };
    const double want[4] = { 1.0 / 3, 1.0 / 4, 1.0 / 2, 1.0 / 5 };
    float o[4];
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    params.alibi_slopes = slopes;
    params.alibi_batch_stride = 3;
    const qattn_tensor tq = ref_tensor(q, QATTN_DTYPE_F32, 2, 2, 1, 1), to = ref_tensor(o, QATTN_DTYPE_F32, 2, 2, 1, 1);
    const qattn_tensor tk = ref_tensor(k, QATTN_DTYPE_F32, 2, 1, 2, 1), tv = ref_tensor(v, QATTN_DTYPE_F32, 2, 1, 2, 1);
    ref_attend(OP_FLASH_FORWARD, &tq, &tk, &tv, &to, &params);
    for (int n = 0; n < 4; n++)
        CHECK_NEAR(o[n], want[n]);
}
END_TEST

/* The sink is a logit without a value; each head has its own. With no key it is the whole LSE. */
START_TEST(sink_closed_form)
{
    const float q[2] = { 1, 1 }, k[2] = { (float)LN2, (float)LN3 }, v[2] = { 10, 20 };
    const float sinks[2] = { (float)LN3, -INFINITY };
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    float o[2], lse[2];
    params.sinks = sinks;
    ref_attend_f32((struct ref_shape){ 2, 1, 1, 2, 1, 1 }, q, k, v, o, lse, &params);
    CHECK_NEAR(o[0], (2 * 10 + 3 * 20) / 8.0);             /* weights 2, 3; sink 3 */
    CHECK_NEAR(lse[0], 3 * LN2);
    CHECK_NEAR(o[1], (2 * 10 + 3 * 20) / 5.0);
    CHECK_NEAR(lse[1], log(5));
    ref_attend_f32((struct ref_shape){ 2, 1, 1, 0, 1, 1 }, q, k, v, o, lse, &params);
    ck_assert(o[0] == 0 && lse[0] == sinks[0] && o[1] == 0 && lse[1] == -INFINITY);
}
END_TEST

/* A sink far above or below every score neither overflows nor is lost. */
START_TEST(sink_out_of_range)
{
    const float q[1] = { 1 }, k[1] = { -2000 }, v[1] = { 5 };
    float sink[1] = { 1000 }, o[1], lse[1];
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    params.sinks = sink;
    ref_attend_f32((struct ref_shape){ 1, 1, 1, 1, 1, 1 }, q, k, v, o, lse, &params);
    ck_assert(o[0] == 0 && lse[0] == 1000);
    sink[0] = -5000;
    ref_attend_f32((struct ref_shape){ 1, 1, 1, 1, 1, 1 }, q, k, v, o, lse, &params);
    ck_assert(o[0] == 5 && lse[0] == -2000);
}
END_TEST

/* Bias log w weighs a key by w. Every axis full or 1; f32, f16 and bf16; -inf hides. */
START_TEST(bias_by_axis_and_type)
{
    static const struct { int32_t dtype; uint32_t code[3]; } types[] = {    /* 1, 0, -inf */
        { QATTN_DTYPE_F32,  { 0x3F800000, 0, 0xFF800000 } },
        { QATTN_DTYPE_F16,  { 0x3C00, 0, 0xFC00 } },
        { QATTN_DTYPE_BF16, { 0x3F80, 0, 0xFF80 } },
    };
    const float q[16] = { 0 }, k[12] = { 0 }, v[12] = { 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0 };
    const qattn_tensor tq = ref_tensor(q, QATTN_DTYPE_F32, 2, 4, 2, 1);
    const qattn_tensor tk = ref_tensor(k, QATTN_DTYPE_F32, 2, 2, 3, 1), tv = ref_tensor(v, QATTN_DTYPE_F32, 2, 2, 3, 1);
    for (unsigned type = 0; type < 3; type++) {
        for (int full = 0; full < 8; full++) {             /* which of the axes B, H, Sq are full */
            const int64_t b = full & 1 ? 2 : 1, h = full & 2 ? 4 : 1, s = full & 4 ? 2 : 1;
            float o[16];
            union { uint32_t f32[48]; uint16_t half[48]; } bias;
            /* bias of key 0 is (b + h + i) % 2, key 1 has 0, key 2 -inf */
            for (int64_t n = 0; n < b * h * s; n++) {
                const int64_t odd = (n / (h * s) + n / s % h + n % s) % 2;
                const uint32_t row[3] = { types[type].code[odd ? 0 : 1], types[type].code[1], types[type].code[2] };
                for (int j = 0; j < 3; j++) {
                    if (types[type].dtype == QATTN_DTYPE_F32)
                        bias.f32[3 * n + j] = row[j];
                    else
                        bias.half[3 * n + j] = (uint16_t)row[j];
                }
            }
            qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
            params.bias = ref_tensor(&bias, types[type].dtype, b, h, s, 3);
            const qattn_tensor to = ref_tensor(o, QATTN_DTYPE_F32, 2, 4, 2, 1);
            ref_attend(OP_FLASH_FORWARD, &tq, &tk, &tv, &to, &params);
            for (int n = 0; n < 16; n++) {
                const int odd = ((full & 1 ? n / 8 : 0) + (full & 2 ? n / 2 % 4 : 0) + (full & 4 ? n % 2 : 0)) % 2;
                CHECK_NEAR(o[n], odd ? exp(1) / (exp(1) + 1) : 0.5);
            }
        }
    }
}
END_TEST

/* ---------------------------------------------------------------- groups */

/* K and V of KV head g of batch b are 100 b + g everywhere: so is O of the group's query heads, and with q = 1 the
 * LSE is that number plus log 2. */
START_TEST(query_heads_read_their_group)
{
    static const int64_t groups[] = { 1, 2, 3, 5, 7 };
    for (unsigned n = 0; n < sizeof groups / sizeof groups[0]; n++) {
        const int64_t hkv = 3, hq = hkv * groups[n];
        qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
        float q[2 * 21], k[2 * 3 * 2], o[2 * 21], lse[2 * 21] = { 0 };
        for (int e = 0; e < 2 * 21; e++)
            q[e] = 1;
        for (int e = 0; e < 12; e++)
            k[e] = (float)(100 * (e / 6) + e / 2 % 3);
        const qattn_tensor tq = ref_tensor(q, QATTN_DTYPE_F32, 2, hq, 1, 1);
        const qattn_tensor to = ref_tensor(o, QATTN_DTYPE_F32, 2, hq, 1, 1);
        const qattn_tensor tk = ref_tensor(k, QATTN_DTYPE_F32, 2, hkv, 2, 1);
        params.lse = ref_tensor(lse, QATTN_DTYPE_F32, 2, hq, 1, 1);
        ref_attend(OP_FLASH_FORWARD, &tq, &tk, &tk, &to, &params);
        for (int64_t e = 0; e < 2 * hq; e++) {
            const double want = (double)(100 * (e / hq) + e % hq / groups[n]);
            ck_assert_msg((double)o[e] == want, "group %d", (int)groups[n]);
            CHECK_NEAR(lse[e], want + LN2);
        }
    }
}
END_TEST

/* ---------------------------------------------------------------- not finite */

/* A visible score of NaN or +inf makes O and LSE NaN; -inf hides the key. */
START_TEST(scores_not_finite)
{
    const float q[1] = { 1 }, v[3] = { 1, NAN, 3 };
    float k[3] = { 0, -INFINITY, 0 }, o[1], lse[1];
    ref_attend_f32((struct ref_shape){ 1, 1, 1, 3, 1, 1 }, q, k, v, o, lse, NULL);
    CHECK_NEAR(o[0], 2);
    CHECK_NEAR(lse[0], LN2);
    const float finite[3] = { 1, 2, 3 };
    k[1] = INFINITY;
    ref_attend_f32((struct ref_shape){ 1, 1, 1, 3, 1, 1 }, q, k, finite, o, lse, NULL);
    ck_assert(isnan(o[0]) && isnan(lse[0]));
    k[1] = NAN;
    for (int64_t sk = 2; sk > 0; sk--) {                   /* with another key, and alone */
        ref_attend_f32((struct ref_shape){ 1, 1, 1, sk, 1, 1 }, q, k + 2 - sk, finite, o, lse, NULL);
        ck_assert(isnan(o[0]) && isnan(lse[0]));
    }
}
END_TEST

/* A bias of -inf hides where q.k is NaN or +inf. */
START_TEST(bias_hides_whatever_the_product)
{
    const float q[1] = { 1 }, k[3] = { NAN, 0, INFINITY }, v[3] = { NAN, 7, INFINITY };
    const float bias[3] = { -INFINITY, 0, -INFINITY };
    float o[1], lse[1];
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    params.bias = ref_tensor(bias, QATTN_DTYPE_F32, 1, 1, 1, 3);
    ref_attend_f32((struct ref_shape){ 1, 1, 1, 3, 1, 1 }, q, k, v, o, lse, &params);
    ck_assert(o[0] == 7 && lse[0] == 0);
}
END_TEST

/* A visible value that is not finite spoils its own column alone. */
START_TEST(values_not_finite)
{
    const float q[1] = { 0 }, k[2] = { 0, 0 }, v[6] = { 1, INFINITY, 5, 3, 0, NAN };
    float o[3], lse[1];
    ref_attend_f32((struct ref_shape){ 1, 1, 1, 2, 1, 3 }, q, k, v, o, lse, NULL);
    ck_assert(o[0] == 2 && !isfinite(o[1]) && !isfinite(o[2]));
    CHECK_NEAR(lse[0], LN2);
}
END_TEST

/* ---------------------------------------------------------------- the oracle's other numbers */

/* Scores log 1, log 3 (+ bias): weights 1/4, 3/4 of |v| = 8, 4; magnitude |scale| sum |q k| + |bias| + |alibi|. */
START_TEST(oracle_row)
{
    const float q[2] = { 1, -1 }, k[6] = { 2, 2, 5, (float)(5 - LN3 + 1), 7, 7 }, v[3] = { 8, -4, NAN };
    const float bias[3] = { 0, -1, 0 }, slope[1] = { 0 };
    const uint8_t keep[3] = { 1, 1, 0 };
    float o[1];
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    struct problem p;
    struct ref_row row;
    params.scale = 1;
    params.bias = ref_tensor(bias, QATTN_DTYPE_F32, 1, 1, 1, 3);
    params.keep = ref_tensor(keep, QATTN_DTYPE_BOOL, 1, 1, 1, 3);
    params.alibi_slopes = slope;
    const qattn_tensor tq = ref_tensor(q, QATTN_DTYPE_F32, 1, 1, 1, 2), to = ref_tensor(o, QATTN_DTYPE_F32, 1, 1, 1, 1);
    const qattn_tensor tk = ref_tensor(k, QATTN_DTYPE_F32, 1, 1, 3, 2), tv = ref_tensor(v, QATTN_DTYPE_F32, 1, 1, 3, 1);
    ck_assert_int_eq(qattn__problem_attention(&p, OP_FLASH_FORWARD, &tq, &tk, &tv, &to, &params, false), QATTN_OK);
    const struct seq s = seq_get(&p, 0);
    qattn__ref_attention_row(&p, &s, 0, 0, &row);
    /* scores: 0; 5 - (6 - log 3) - 1 = log 3 - 2 */
    const double w = 3 * exp(-2);
    CHECK_NEAR(row.o[0], (8 - 4 * w) / (1 + w));
    CHECK_NEAR(row.o_abs[0], (8 + 4 * w) / (1 + w));
    CHECK_NEAR(row.lse, log(1 + w));
    CHECK_NEAR(row.score_mag, 5 + (6 - LN3) + 1);
    ck_assert_int_eq(row.visible, 2);
}
END_TEST

Suite *suite_ref(void)
{
    Suite *const suite = suite_create("ref");
    TCase *const tc = tcase_create("values");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, three_keys_by_hand);
    tcase_add_test(tc, two_keys_are_logistic);
    tcase_add_test(tc, equal_scores_give_the_mean);
    tcase_add_test(tc, scale_default_given_and_zero);
    tcase_add_test(tc, lse_base_2);
    tcase_add_test(tc, softcap_closed_form);
    tcase_add_test(tc, alibi_closed_form);
    tcase_add_test(tc, alibi_per_head_and_sequence);
    tcase_add_test(tc, sink_closed_form);
    tcase_add_test(tc, sink_out_of_range);
    tcase_add_test(tc, bias_by_axis_and_type);
    tcase_add_test(tc, query_heads_read_their_group);
    tcase_add_test(tc, scores_not_finite);
    tcase_add_test(tc, bias_hides_whatever_the_product);
    tcase_add_test(tc, values_not_finite);
    tcase_add_test(tc, oracle_row);
    suite_add_tcase(suite, tc);
    suite_add_tcase(suite, tcase_ref_keys());
    suite_add_tcase(suite, tcase_ref_types());
    suite_add_tcase(suite, tcase_ref_ops());
    return suite;
}
