/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The reference on 8-bit tensors with their scales, on every set of types, and through any strides. */
#include <string.h>

#include "core/convert.h"
#include "core/params.h"
#include "ref/ref.h"
#include "suites.h"
#include "test_ref.h"

#define LN2 0.693147180559945309

static qattn_tensor f32_tensor(const float *data, int64_t b, int64_t h, int64_t s, int64_t d)
{
    return ref_tensor(data, QATTN_DTYPE_F32, b, h, s, d);
}

/* ---------------------------------------------------------------- 8-bit tensors */

enum { NSEQ = 2, HQ = 4, HKV = 2, SQ = 2, SK = 3, WIDTH = 2 };

/* Scale tensors of every allowed kind; the value of element n is a power of two, so descaled inputs are exact. */
struct scale_kind { int64_t shape[4]; };

static float scale_at(const struct scale_kind *kind, const int64_t at[4])
{
    int64_t index = 0;
    for (int axis = 0; axis < 4; axis++)
        index = index * kind->shape[axis] + (kind->shape[axis] == 1 ? 0 : at[axis]);
    return (float)ldexp(1.0, (int)(index * 5 % 7) - 3);
}

static qattn_tensor scale_tensor(const struct scale_kind *kind, float *memory)
{
    const int64_t *const e = kind->shape;
    for (int64_t n = 0; n < e[0] * e[1] * e[2] * e[3]; n++)
        memory[n] = (float)ldexp(1.0, (int)(n * 5 % 7) - 3);
    return f32_tensor(memory, e[0], e[1], e[2], e[3]);
}

/* Descales `stored` [b][heads][s][WIDTH] by hand; heads_per_scale > 1: q scaled by KV head. */
static void descale(const int8_t *stored, int64_t heads, int64_t s, const struct scale_kind *kind, float *real)
{
    const int64_t heads_per_scale = kind->shape[1] > 1 ? heads / kind->shape[1] : 1;
    for (int64_t n = 0; n < NSEQ * heads * s * WIDTH; n++) {
        const int64_t at[4] = { n / (heads * s * WIDTH), n / (s * WIDTH) % heads / heads_per_scale, n / WIDTH % s,
                                n % WIDTH };
        real[n] = (float)stored[n] * scale_at(kind, at);
    }
}

/* I8 tensors with scales give the bits of f32 tensors that hold the real values. */
static void check_descale(const struct scale_kind *kq, const struct scale_kind *kk, const struct scale_kind *kv)
{
    int8_t q[NSEQ * HQ * SQ * WIDTH], k[NSEQ * HKV * SK * WIDTH], v[NSEQ * HKV * SK * WIDTH];
    float rq[sizeof q], rk[sizeof k], rv[sizeof v], o8[sizeof q], o32[sizeof q], memory[3][64];
    for (int n = 0; n < (int)sizeof q; n++)
        q[n] = (int8_t)(n * 37 % 11 - 5);
    for (int n = 0; n < (int)sizeof k; n++) {
        k[n] = (int8_t)(n * 23 % 13 - 6);
        v[n] = (int8_t)(n * 29 % 17 - 8);
    }
    descale(q, HQ, SQ, kq, rq);
    descale(k, HKV, SK, kk, rk);
    descale(v, HKV, SK, kv, rv);
    const qattn_tensor tq = ref_tensor(q, QATTN_DTYPE_I8, NSEQ, HQ, SQ, WIDTH);
    const qattn_tensor tk = ref_tensor(k, QATTN_DTYPE_I8, NSEQ, HKV, SK, WIDTH);
    const qattn_tensor tv = ref_tensor(v, QATTN_DTYPE_I8, NSEQ, HKV, SK, WIDTH);
    const qattn_tensor fq = f32_tensor(rq, NSEQ, HQ, SQ, WIDTH), fk = f32_tensor(rk, NSEQ, HKV, SK, WIDTH);
    const qattn_tensor fv = f32_tensor(rv, NSEQ, HKV, SK, WIDTH), to8 = f32_tensor(o8, NSEQ, HQ, SQ, WIDTH);
    const qattn_tensor to32 = f32_tensor(o32, NSEQ, HQ, SQ, WIDTH);
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    ref_attend(OP_FLASH_FORWARD, &fq, &fk, &fv, &to32, &params);
    params.q_descale = scale_tensor(kq, memory[0]);
    params.k_descale = scale_tensor(kk, memory[1]);
    params.v_descale = scale_tensor(kv, memory[2]);
    ref_attend(OP_FLASH_FORWARD, &tq, &tk, &tv, &to8, &params);
    ck_assert_mem_eq(o8, o32, sizeof o8);
}

START_TEST(descales_of_every_kind)
{
    static const struct scale_kind all_q[] = {
        { { 1, 1, 1, 1 } }, { { NSEQ, 1, 1, 1 } }, { { 1, HQ, 1, 1 } }, { { NSEQ, HKV, 1, 1 } },
        { { 1, HKV, 1, WIDTH } },
        { { NSEQ, HQ, 1, WIDTH } }, { { NSEQ, HQ, SQ, 1 } }, { { NSEQ, 1, SQ, WIDTH } }, { { NSEQ, HKV, SQ, 1 } },
    };
    static const struct scale_kind all_kv[] = {
        { { 1, 1, 1, 1 } }, { { NSEQ, 1, 1, 1 } }, { { 1, HKV, 1, 1 } }, { { NSEQ, HKV, 1, WIDTH } },
        { { NSEQ, HKV, SK, 1 } }, { { NSEQ, 1, SK, WIDTH } }, { { 1, HKV, SK, 1 } },
    };
    for (unsigned i = 0; i < sizeof all_q / sizeof all_q[0]; i++)
        check_descale(&all_q[i], &all_kv[0], &all_kv[1]);
    for (unsigned i = 0; i < 7; i++)
        for (unsigned j = 0; j < 7; j++)
            check_descale(&all_q[3], &all_kv[i], &all_kv[j]);
}
END_TEST

/* Pages of 2 keys with a scale per row of the pool, packed q: row scales follow the stored row. Values are one-hot in
 * the score: D = 1, scores log w. */
START_TEST(descales_by_page_and_packed_row)
{
    const int8_t q[3] = { 1, 2, 4 }, v[6] = { 3, 0, 1, 2, 0, 0 }, zero[6] = { 0 };
    const float k_scale[6] = { 9, 9, 9, 9, 9, 9 }, v_scale[6] = { 2, NAN, 16, 0.5f, NAN, NAN };
    const float q_scale[3] = { 4, 2, 1 }, q_scale_for_log = (float)(LN2 / 4);
    const int32_t starts[3] = { 1, 2, 3 }, lengths[2] = { 3, 1 }, table[4] = { 1, 0, 0, 2 };
    float o[3] = { 99, 99, 99 }, lse[3] = { 99, 99, 99 };
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    params.cu_seqlens_q = starts;
    params.num_seqs = 2;
    params.seqused_k = lengths;
    params.page_table = table;
    params.max_pages = 2;
    params.q_descale = f32_tensor(q_scale, 1, 1, 3, 1);
    params.k_descale = f32_tensor(k_scale, 3, 1, 2, 1);
    params.v_descale = f32_tensor(v_scale, 3, 1, 2, 1);
    params.lse = f32_tensor(lse, 1, 1, 3, 1);
    const qattn_tensor tq = ref_tensor(q, QATTN_DTYPE_I8, 1, 1, 3, 1), to = f32_tensor(o, 1, 1, 3, 1);
    const qattn_tensor tk = ref_tensor(zero, QATTN_DTYPE_I8, 3, 1, 2, 1);
    const qattn_tensor tv = ref_tensor(v, QATTN_DTYPE_I8, 3, 1, 2, 1);
    ref_attend(OP_FLASH_FORWARD, &tq, &tk, &tv, &to, &params);
    ck_assert(o[0] == 99 && lse[0] == 99);
    CHECK_NEAR(o[1], (1 * 16 + 2 * 0.5 + 3 * 2) / 3);      /* keys: page 1 rows 0, 1, page 0 row 0 */
    CHECK_NEAR(o[2], 3 * 2);

    /* The packed row's own q scale: row 1 is 2 * 2 = 4, row 2 is 4 * 1; k = 1 scaled to log 2 / 4. */
    const int8_t ones[6] = { 1, 0, 1, 0, 0, 0 };
    float log_scale[6];
    for (int n = 0; n < 6; n++)
        log_scale[n] = q_scale_for_log;
    params.k_descale = f32_tensor(log_scale, 3, 1, 2, 1);
    const qattn_tensor tones = ref_tensor(ones, QATTN_DTYPE_I8, 3, 1, 2, 1);
    ref_attend(OP_FLASH_FORWARD, &tq, &tones, &tv, &to, &params);
    CHECK_NEAR(o[1], (2 * 16 + 1 * 1 + 2 * 6) / 5.0);      /* weights 2, 1, 2 */
    CHECK_NEAR(lse[1], log(5));
    CHECK_NEAR(lse[2], LN2);
}
END_TEST

/* Every type set: q.k = 1 and 2 after scale log 2, values -1.5 and 3: weights 1/3, 2/3 give 1.5; for the types with
 * few bits every number here is exact. */
START_TEST(every_type_set)
{
    static const int32_t sets[][3] = {                     /* q, k and v, o */
        { QATTN_DTYPE_F32, QATTN_DTYPE_F32, QATTN_DTYPE_F32 },
        { QATTN_DTYPE_F16, QATTN_DTYPE_F16, QATTN_DTYPE_F16 }, { QATTN_DTYPE_F16, QATTN_DTYPE_F16, QATTN_DTYPE_F32 },
        { QATTN_DTYPE_BF16, QATTN_DTYPE_BF16, QATTN_DTYPE_BF16 },
        { QATTN_DTYPE_BF16, QATTN_DTYPE_E4M3FN, QATTN_DTYPE_F32 },
        { QATTN_DTYPE_F16, QATTN_DTYPE_E5M2, QATTN_DTYPE_F16 }, { QATTN_DTYPE_F16, QATTN_DTYPE_I8, QATTN_DTYPE_F16 },
        { QATTN_DTYPE_E4M3FN, QATTN_DTYPE_E4M3FN, QATTN_DTYPE_F16 },
        { QATTN_DTYPE_E5M2, QATTN_DTYPE_E5M2, QATTN_DTYPE_BF16 },
        { QATTN_DTYPE_I8, QATTN_DTYPE_I8, QATTN_DTYPE_F32 },
    };
    for (unsigned n = 0; n < sizeof sets / sizeof sets[0]; n++) {
        uint32_t q[1], k[2], v[2], o[1];
        const int32_t size = qattn__dtype_size(sets[n][1]);
        qattn__store(q, sets[n][0], 1);
        for (int j = 0; j < 2; j++) {
            qattn__store((char *)k + j * size, sets[n][1], (float)(1 + j));
            qattn__store((char *)v + j * size, sets[n][1], j ? 3 : -2);
        }
        qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
        params.scale = (float)LN2;
        const qattn_tensor tq = ref_tensor(q, sets[n][0], 1, 1, 1, 1), tk = ref_tensor(k, sets[n][1], 1, 1, 2, 1);
        const qattn_tensor tv = ref_tensor(v, sets[n][1], 1, 1, 2, 1), to = ref_tensor(o, sets[n][2], 1, 1, 1, 1);
        ref_attend(OP_FLASH_FORWARD, &tq, &tk, &tv, &to, &params);
        const double unit = sets[n][2] == QATTN_DTYPE_F32 ? 0 : sets[n][2] == QATTN_DTYPE_F16 ? 0x1p-11 : 0x1p-8;
        const double want = (1 * -2 + 2 * 3) / 3.0;
        ck_assert(fabs((double)qattn__load(o, sets[n][2]) - want) <= (unit + 3e-7) * want);
    }
}
END_TEST

/* ---------------------------------------------------------------- strides */

/* The same values as packed [H][S][D] and as views: reversed rows, D spread out, heads inside. Bits agree. */
START_TEST(views_give_the_same_bits)
{
    enum { H = 2, S = 3, D = 2, N = H * S * D };
    float packed[3][N], spread[3][4 * N], o[N], o_view[4 * N];
    qattn_tensor in[3], view[3];
    for (int t = 0; t < 3; t++) {
        for (int n = 0; n < N; n++)
            packed[t][n] = (float)sin(1 + n + 20 * t);
        in[t] = view[t] = f32_tensor(packed[t], 1, H, S, D);
        /* element [h][s][d] at (S-1-s)*16 + h*1 + d*4 (q), other orders for k and v */
        const int64_t strides[3][3] = { { 1, -16, 4 }, { -2, 5, 16 }, { 4, 8, -1 } };
        const int64_t first[3] = { 32, 2, 1 };
        for (int n = 0; n < N; n++)
            spread[t][first[t] + n / (S * D) * strides[t][0] + n / D % S * strides[t][1] + n % D * strides[t][2]] =
                packed[t][n];
        view[t].data = spread[t] + first[t];
        for (int axis = 1; axis < 4; axis++)
            view[t].stride[axis] = strides[t][axis - 1];
        view[t].stride[0] = INT64_MAX / 2;                 /* ignored: extent 1 */
    }
    const qattn_tensor to = f32_tensor(o, 1, H, S, D);
    qattn_tensor to_view = f32_tensor(o_view + 40, 1, H, S, D);
    to_view.stride[1] = 2;
    to_view.stride[2] = -16;
    to_view.stride[3] = 4;
    ref_attend(OP_FLASH_FORWARD, &in[0], &in[1], &in[2], &to, NULL);
    ref_attend(OP_FLASH_FORWARD, &view[0], &view[1], &view[2], &to_view, NULL);
    for (int n = 0; n < N; n++)
        ck_assert(o[n] == o_view[40 + n / (S * D) * 2 - n / D % S * 16 + n % D * 4]);
}
END_TEST

TCase *tcase_ref_types(void)
{
    TCase *const tc = tcase_create("types");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, descales_of_every_kind);
    tcase_add_test(tc, descales_by_page_and_packed_row);
    tcase_add_test(tc, every_type_set);
    tcase_add_test(tc, views_give_the_same_bits);
    return tc;
}
