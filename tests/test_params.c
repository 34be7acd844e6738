/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The size-first rule of the params structs, and what params become in struct problem. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/params.h"
#include "suites.h"

enum { B = 2, H = 4, S = 5, D = 16, ROOM = 4096 };
static float memory[6][B * H * S * D];
static struct problem problem;

static qattn_tensor make(int place, int64_t d)
{
    qattn_tensor t;
    ck_assert_int_eq(qattn_tensor_init(&t, memory[place], QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0,
                                       QATTN_LAYOUT_BHSD, B, H, S, d),
                     0);
    return t;
}

/* Each operation with the given params bytes. */
static int32_t call_matmul(const void *params)
{
    const qattn_tensor a = make(0, S), b = make(1, S), c = make(2, S);
    return qattn_matmul(&a, &b, &c, params, NULL);
}

static int32_t call_softmax(const void *params)
{
    const qattn_tensor x = make(0, S), y = make(1, S);
    return qattn_softmax(&x, &y, params, NULL);
}

static int32_t call_attention(const void *params)
{
    const qattn_tensor q = make(0, D), k = make(1, D), v = make(2, D), o = make(3, D);
    return qattn_flash_forward(&q, &k, &v, &o, params, NULL);
}

static int32_t call_merge(const void *params)
{
    const qattn_tensor parts = make(0, D), lse = make(1, 1), o = make(2, D);
    return qattn_merge(1, &parts, &lse, &o, NULL, params, NULL);
}

static const struct { const char *name; size_t known; int32_t (*call)(const void *params); } structs[] = {
    { "attn", sizeof(qattn_attn_params), call_attention }, { "matmul", sizeof(qattn_matmul_params), call_matmul },
    { "softmax", sizeof(qattn_softmax_params), call_softmax }, { "merge", sizeof(qattn_merge_params), call_merge },
};

/* A struct of `given` bytes, all zero but its size. */
static int32_t call_sized(int which, size_t given, size_t set_byte)
{
    static union { size_t size; unsigned char bytes[ROOM + 64]; } params, before;
    memset(&params, 0, sizeof params);
    params.size = given;
    if (set_byte)
        params.bytes[set_byte] = 1;
    before = params;
    const int32_t status = structs[which].call(&params);
    ck_assert_msg(memcmp(&params, &before, sizeof params) == 0, "%s: params were written to", structs[which].name);
    return status;
}

START_TEST(struct_sizes)
{
    const size_t known = structs[_i].known;
    ck_assert_int_eq(structs[_i].call(NULL), QATTN_OK);
    ck_assert_int_eq(call_sized(_i, known, 0), QATTN_OK);
    for (size_t given = 0; given < known; given++)
        ck_assert_msg(call_sized(_i, given, 0) == QATTN_ERR_STRUCT_SIZE, "size %zu", given);
    for (size_t given = known; given <= ROOM; given += 4)
        ck_assert_msg(call_sized(_i, given, 0) == (given % 8 ? QATTN_ERR_STRUCT_SIZE : QATTN_OK), "size %zu", given);
    ck_assert_int_eq(call_sized(_i, ROOM + 8, 0), QATTN_ERR_STRUCT_SIZE);
    ck_assert_int_eq(call_sized(_i, SIZE_MAX, 0), QATTN_ERR_STRUCT_SIZE);
    ck_assert_int_eq(call_sized(_i, SIZE_MAX - 7, 0), QATTN_ERR_STRUCT_SIZE);
}
END_TEST

/* A byte set beyond what the library knows is a feature it lacks; beyond what the caller gave it is nobody's. */
START_TEST(surplus_bytes)
{
    const size_t known = structs[_i].known;
    for (size_t at = known; at < known + 64; at++) {
        ck_assert_int_eq(call_sized(_i, known + 64, at), QATTN_ERR_PARAMS_TOO_NEW);
        ck_assert_int_eq(call_sized(_i, known, at), QATTN_OK);
    }
    ck_assert_int_eq(call_sized(_i, ROOM, ROOM - 1), QATTN_ERR_PARAMS_TOO_NEW);
}
END_TEST

static int32_t attention(const qattn_attn_params *params)
{
    const qattn_tensor q = make(0, D), k = make(1, D), v = make(2, D), o = make(3, D);
    return qattn__problem_attention(&problem, OP_FLASH_FORWARD, &q, &k, &v, &o, params, false);
}

START_TEST(attention_defaults)
{
    ck_assert_int_eq(attention(NULL), QATTN_OK);
    ck_assert(problem.scale == 0.25f);                       /* 1/sqrt(16) */
    ck_assert(problem.softcap == 0.0f);
    ck_assert(!problem.causal && !problem.window);
    ck_assert_int_eq(problem.position, POSITION_BOTTOM_RIGHT);
    ck_assert_int_eq(problem.n, B);
    ck_assert_int_eq(problem.group, 1);
    ck_assert_int_eq(problem.cap_q, S);
    ck_assert_int_eq(problem.cap_k, S);
    ck_assert_int_ge(problem.num_threads, 1);
    ck_assert_int_eq(problem.lse.dtype, 0);
    ck_assert_ptr_null(problem.lse.data);
    ck_assert_ptr_null(problem.workspace);
}
END_TEST

START_TEST(attention_resolved)
{
    qattn_attn_params p = QATTN_ATTN_PARAMS_INIT;
    int32_t lengths[B] = { 3, 4 };
    p.flags = QATTN_FLAG_SCALE_AS_GIVEN;
    p.mask = QATTN_MASK_CAUSAL | QATTN_MASK_WINDOW | QATTN_MASK_OFFSET;
    p.window_left = -1;
    p.window_right = 2;
    p.q_offset = -3;
    p.max_seqlen_q = 3;
    p.max_seqlen_k = 100;
    p.seqused_k = lengths;
    p.num_threads = 7;
    ck_assert_int_eq(attention(&p), QATTN_OK);
    ck_assert(problem.scale == 0.0f);
    ck_assert(problem.causal && problem.window);
    ck_assert_int_eq(problem.window_left, -1);
    ck_assert_int_eq(problem.window_right, 2);
    ck_assert_int_eq(problem.position, POSITION_OFFSET);
    ck_assert_int_eq(problem.q_offset, -3);
    ck_assert_int_eq(problem.cap_q, 3);
    ck_assert_int_eq(problem.cap_k, S);
    ck_assert_ptr_eq(problem.seqused_k, lengths);
    ck_assert_int_eq(problem.num_threads, 7);
    p = (qattn_attn_params)QATTN_ATTN_PARAMS_INIT;
    p.mask = QATTN_MASK_TOP_LEFT;
    p.scale = -2;
    ck_assert_int_eq(attention(&p), QATTN_OK);
    ck_assert(problem.scale == -2.0f);
    ck_assert_int_eq(problem.position, POSITION_TOP_LEFT);
}
END_TEST

START_TEST(pages)
{
    qattn_attn_params p = QATTN_ATTN_PARAMS_INIT;
    int32_t table[B * 4] = { 0 }, lengths[B] = { 0 };
    p.page_table = table;
    p.max_pages = 3;
    p.seqused_k = lengths;
    ck_assert_int_eq(attention(&p), QATTN_OK);
    ck_assert_int_eq(problem.page_size, S);
    ck_assert_int_eq(problem.num_pages, B);
    ck_assert_int_eq(problem.page_table_stride, 3);
    ck_assert_int_eq(problem.cap_k, 3 * S);
    p.page_table_stride = 4;
    p.max_seqlen_k = 2;
    ck_assert_int_eq(attention(&p), QATTN_OK);
    ck_assert_int_eq(problem.page_table_stride, 4);
    ck_assert_int_eq(problem.cap_k, 2);
}
END_TEST

/* Views carry stride 0 on axes of size 1, so that a broadcast axis needs no branch. */
START_TEST(views)
{
    qattn_attn_params p = QATTN_ATTN_PARAMS_INIT;
    p.bias = make(4, D);
    p.bias.shape[0] = p.bias.shape[2] = 1;
    p.bias.shape[3] = S;
    ck_assert_int_eq(attention(&p), QATTN_OK);
    ck_assert_int_eq(problem.bias.stride[0], 0);
    ck_assert_int_eq(problem.bias.stride[2], 0);
    ck_assert_int_eq(problem.bias.stride[1], S * D);
    ck_assert_int_eq(problem.bias.stride[3], 1);
    ck_assert_int_eq(problem.bias.itemsize, 4);
    ck_assert_ptr_eq(problem.bias.data, memory[4]);
}
END_TEST

START_TEST(matmul_and_softmax)
{
    const qattn_tensor a = make(0, S), b = make(1, S), c = make(2, S);
    qattn_matmul_params m = QATTN_MATMUL_PARAMS_INIT;
    qattn_softmax_params s = QATTN_SOFTMAX_PARAMS_INIT;
    ck_assert_int_eq(qattn__problem_matmul(&problem, OP_MATMUL_NT, &a, &b, &c, &m, false), QATTN_OK);
    ck_assert(problem.alpha == 1.0f && problem.beta == 0.0f);
    ck_assert_int_eq(problem.b_head_div, 1);
    m.flags = QATTN_FLAG_SCALE_AS_GIVEN;
    ck_assert_int_eq(qattn__problem_matmul(&problem, OP_MATMUL, &a, &b, &c, &m, false), QATTN_OK);
    ck_assert(problem.alpha == 0.0f);
    ck_assert_int_eq(qattn__problem_softmax(&problem, &a, &c, &s, true, false), QATTN_OK);
    ck_assert(problem.scale == 1.0f && problem.causal);
    ck_assert_int_eq(problem.hq, H);
    ck_assert_int_eq(problem.hkv, H);
    ck_assert_int_eq(problem.n, B);
    ck_assert_int_eq(problem.d, 0);
    ck_assert_int_eq(qattn__problem_softmax(&problem, &a, &a, &s, false, false), QATTN_OK);     /* in place */
    ck_assert(!problem.causal);
}
END_TEST

Suite *suite_params(void)
{
    Suite *s = suite_create("params");
    TCase *t = tcase_create("params");
    enum { STRUCTS = sizeof structs / sizeof *structs };
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, struct_sizes, 0, STRUCTS);
    tcase_add_loop_test(t, surplus_bytes, 0, STRUCTS);
    tcase_add_test(t, attention_defaults);
    tcase_add_test(t, attention_resolved);
    tcase_add_test(t, pages);
    tcase_add_test(t, views);
    tcase_add_test(t, matmul_and_softmax);
    suite_add_tcase(s, t);
    return s;
}
