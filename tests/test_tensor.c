/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* qattn_tensor_init, qattn_tensor_from_dlpack, and the overlap rule of outputs. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "core/tensor.h"
#include "suites.h"
#include "support.h"

static float memory[64];

static void check_strides(const qattn_tensor *t, int64_t b, int64_t h, int64_t s, int64_t d)
{
    const int64_t want[4] = { b, h, s, d };
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(t->stride[i], want[i]);
}

static int32_t init(qattn_tensor *t, int32_t layout, int64_t b, int64_t h, int64_t s, int64_t d)
{
    return qattn_tensor_init(t, memory, QATTN_DTYPE_F16, QATTN_DEVICE_CPU, 0, layout, b, h, s, d);
}

START_TEST(layouts)
{
    qattn_tensor t;
    ck_assert_int_eq(init(&t, QATTN_LAYOUT_BHSD, 2, 3, 5, 7), QATTN_OK);
    check_strides(&t, 105, 35, 7, 1);
    ck_assert_int_eq(init(&t, QATTN_LAYOUT_BSHD, 2, 3, 5, 7), QATTN_OK);
    check_strides(&t, 105, 7, 21, 1);
    ck_assert_int_eq(init(&t, QATTN_LAYOUT_SBHD, 2, 3, 5, 7), QATTN_OK);
    check_strides(&t, 21, 7, 42, 1);
    ck_assert_int_eq(init(&t, QATTN_LAYOUT_THD, 1, 3, 5, 7), QATTN_OK);
    check_strides(&t, 105, 7, 21, 1);
    ck_assert_ptr_eq(t.data, memory);
    ck_assert_int_eq(t.dtype, QATTN_DTYPE_F16);
    ck_assert_int_eq(t.device_type, QATTN_DEVICE_CPU);
    ck_assert_int_eq(t.reserved0, 0);
    ck_assert_int_eq(t.reserved1, 0);
    const int64_t want[4] = { 1, 3, 5, 7 };
    ck_assert_int_eq(memcmp(t.shape, want, sizeof want), 0);
}
END_TEST

START_TEST(empty_and_large)
{
    qattn_tensor t;
    ck_assert_int_eq(init(&t, QATTN_LAYOUT_BHSD, 0, 3, 0, 7), QATTN_OK);
    ck_assert_int_eq(init(&t, QATTN_LAYOUT_BHSD, 1, 1, INT64_C(1) << 40, 128), QATTN_OK);
    ck_assert_int_eq(t.stride[1], INT64_C(1) << 47);
    ck_assert_int_eq(qattn_tensor_init(&t, NULL, QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0, 1, 2, 2, 2, 2), QATTN_OK);
    ck_assert_int_eq(qattn_tensor_init(&t, NULL, QATTN_DTYPE_F32, QATTN_DEVICE_CUDA, 3, 1, 2, 2, 2, 2), QATTN_OK);
    ck_assert_int_eq(t.device_id, 3);
}
END_TEST

START_TEST(refused)
{
    qattn_tensor t, before;
    memset(&t, 0x5A, sizeof t);
    before = t;
#define REFUSE(status, call) \
    do { \
        ck_assert_int_eq(call, status); \
        ck_assert_msg(memcmp(&t, &before, sizeof t) == 0, #call " wrote to out"); \
    } while (0)
    ck_assert_int_eq(init(NULL, 1, 1, 1, 1, 1), QATTN_ERR_NULL_POINTER);
    REFUSE(QATTN_ERR_BAD_VALUE, init(&t, 0, 1, 1, 1, 1));
    REFUSE(QATTN_ERR_BAD_VALUE, init(&t, 5, 1, 1, 1, 1));
    REFUSE(QATTN_ERR_BAD_VALUE, init(&t, -1, 1, 1, 1, 1));
    REFUSE(QATTN_ERR_BAD_SHAPE, init(&t, QATTN_LAYOUT_THD, 2, 1, 1, 1));
    REFUSE(QATTN_ERR_BAD_SHAPE, init(&t, 1, -1, 1, 1, 1));
    REFUSE(QATTN_ERR_BAD_SHAPE, init(&t, 1, 1, 1, 1, -5));
    REFUSE(QATTN_ERR_BAD_SHAPE, init(&t, 1, INT64_C(1) << 32, INT64_C(1) << 31, 1, 1));
    REFUSE(QATTN_ERR_BAD_DTYPE, qattn_tensor_init(&t, memory, 0, 1, 0, 1, 1, 1, 1, 1));
    REFUSE(QATTN_ERR_BAD_DTYPE, qattn_tensor_init(&t, memory, 0x024001, 1, 0, 1, 1, 1, 1, 1));
    REFUSE(QATTN_ERR_BAD_DEVICE, qattn_tensor_init(&t, memory, QATTN_DTYPE_F32, 3, 0, 1, 1, 1, 1, 1));
    REFUSE(QATTN_ERR_BAD_DEVICE, qattn_tensor_init(&t, memory, QATTN_DTYPE_F32, 1, 1, 1, 1, 1, 1, 1));
    REFUSE(QATTN_ERR_BAD_DEVICE, qattn_tensor_init(&t, memory, QATTN_DTYPE_F32, 2, -1, 1, 1, 1, 1, 1));
    REFUSE(QATTN_ERR_ALIGNMENT, qattn_tensor_init(&t, (char *)memory + 2, QATTN_DTYPE_F32, 1, 0, 1, 1, 1, 1, 1));
#undef REFUSE
}
END_TEST

/* ---------------------------------------------------------------- DLPack */

/* DLTensor of dlpack.h 1.x, written out: the test must not share the library's idea of it. */
struct dl_tensor {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};
_Static_assert(sizeof(struct dl_tensor) == 48, "DLTensor has 48 bytes");

static int64_t dl_shape[4] = { 2, 5, 3, 7 };

static struct dl_tensor dl_make(void)
{
    return (struct dl_tensor){ .data = memory,
                               .device_type = 1,
                               .ndim = 4,
                               .code = 2,
                               .bits = 16,
                               .lanes = 1,
                               .shape = dl_shape };
}

START_TEST(dlpack)
{
    qattn_tensor t;
    struct dl_tensor dl = dl_make();
    int64_t strides[4] = { -400, 40, 7, 2 };
    ck_assert_int_eq(qattn_tensor_from_dlpack(&t, &dl, QATTN_LAYOUT_BSHD), QATTN_OK);      /* [2,5,3,7] as B S H D */
    const int64_t want[4] = { 2, 3, 5, 7 };
    ck_assert_int_eq(memcmp(t.shape, want, sizeof want), 0);
    check_strides(&t, 105, 7, 21, 1);
    ck_assert_int_eq(t.dtype, QATTN_DTYPE_F16);
    dl.strides = strides;
    dl.byte_offset = 6;
    dl.device_type = 3;                                       /* pinned host memory */
    dl.device_id = 2;
    ck_assert_int_eq(qattn_tensor_from_dlpack(&t, &dl, QATTN_LAYOUT_BHSD), QATTN_OK);
    check_strides(&t, -400, 40, 7, 2);
    ck_assert_ptr_eq(t.data, (char *)memory + 6);
    ck_assert_int_eq(t.device_type, QATTN_DEVICE_CPU);
    ck_assert_int_eq(t.device_id, 0);
    dl.device_type = 13;                                      /* managed memory */
    ck_assert_int_eq(qattn_tensor_from_dlpack(&t, &dl, QATTN_LAYOUT_SBHD), QATTN_OK);
    check_strides(&t, 40, 7, -400, 2);
    ck_assert_int_eq(t.device_type, QATTN_DEVICE_CUDA);
    ck_assert_int_eq(t.device_id, 2);
    dl = dl_make();
    dl.ndim = 3;
    ck_assert_int_eq(qattn_tensor_from_dlpack(&t, &dl, QATTN_LAYOUT_THD), QATTN_OK);       /* [2,5,3] as T H D */
    check_strides(&t, t.stride[0], 3, 15, 1);
    ck_assert_int_eq(t.shape[0], 1);
    ck_assert_int_eq(t.shape[1], 5);
    ck_assert_int_eq(t.shape[2], 2);
    ck_assert_int_eq(t.shape[3], 3);
}
END_TEST

START_TEST(dlpack_types)
{
    static const struct { uint8_t code, bits; int32_t dtype;
    } types[] = {
        { 2, 32, QATTN_DTYPE_F32 },
        { 2, 16, QATTN_DTYPE_F16 },
        { 4, 16, QATTN_DTYPE_BF16 },
        { 10, 8, QATTN_DTYPE_E4M3FN },
        { 12, 8, QATTN_DTYPE_E5M2 },
        { 0, 8, QATTN_DTYPE_I8 },
        { 1, 8, QATTN_DTYPE_U8 },
        { 6, 8, QATTN_DTYPE_BOOL },
        { 2, 64, 0 },
        { 0, 32, 0 },
        { 5, 64, 0 },
        { 14, 8, 0 },
        { 17, 4, 0 },
        { 3, 64, 0 },
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        qattn_tensor t = { 0 };
        struct dl_tensor dl = dl_make();
        dl.code = types[i].code;
        dl.bits = types[i].bits;
        const int32_t status = qattn_tensor_from_dlpack(&t, &dl, QATTN_LAYOUT_BHSD);
        ck_assert_int_eq(status, types[i].dtype ? QATTN_OK : QATTN_ERR_UNSUPPORTED_DTYPE);
        ck_assert_int_eq(t.dtype, types[i].dtype);
    }
}
END_TEST

START_TEST(dlpack_refused)
{
    qattn_tensor t, before;
    memset(&t, 0x5A, sizeof t);
    before = t;
#define REFUSE(status, change, layout) \
    do { \
        struct dl_tensor dl = dl_make(); \
        change; \
        ck_assert_msg(qattn_tensor_from_dlpack(&t, &dl, layout) == status, #change); \
        ck_assert_msg(memcmp(&t, &before, sizeof t) == 0, #change ": out was written"); \
    } while (0)
    int64_t negative[4] = { 2, -1, 3, 7 }, huge[4] = { INT64_MAX, 2, 2, 2 };
    REFUSE(QATTN_ERR_BAD_SHAPE, dl.ndim = 3, QATTN_LAYOUT_BHSD);
    REFUSE(QATTN_ERR_BAD_SHAPE, dl.ndim = 4, QATTN_LAYOUT_THD);
    REFUSE(QATTN_ERR_BAD_SHAPE, dl.ndim = 0, QATTN_LAYOUT_BHSD);
    REFUSE(QATTN_ERR_BAD_SHAPE, dl.shape = negative, QATTN_LAYOUT_BHSD);
    REFUSE(QATTN_ERR_BAD_SHAPE, dl.shape = huge, QATTN_LAYOUT_BHSD);
    REFUSE(QATTN_ERR_NULL_POINTER, dl.shape = NULL, QATTN_LAYOUT_BHSD);
    REFUSE(QATTN_ERR_UNSUPPORTED_DTYPE, dl.lanes = 2, QATTN_LAYOUT_BHSD);
    REFUSE(QATTN_ERR_UNSUPPORTED_DTYPE, dl.lanes = 0, QATTN_LAYOUT_BHSD);
    REFUSE(QATTN_ERR_BAD_DEVICE, dl.device_type = 8, QATTN_LAYOUT_BHSD);
    REFUSE(QATTN_ERR_BAD_DEVICE, dl.device_type = 0, QATTN_LAYOUT_BHSD);
    REFUSE(QATTN_ERR_BAD_VALUE, dl.ndim = 4, 9);
    REFUSE(QATTN_ERR_ALIGNMENT, dl.byte_offset = 1, QATTN_LAYOUT_BHSD);
#undef REFUSE
    struct dl_tensor dl = dl_make();
    ck_assert_int_eq(qattn_tensor_from_dlpack(NULL, &dl, 1), QATTN_ERR_NULL_POINTER);
    ck_assert_int_eq(qattn_tensor_from_dlpack(&t, NULL, 1), QATTN_ERR_NULL_POINTER);
}
END_TEST

/* ---------------------------------------------------------------- outputs */

/* The rule, against the truth found by listing every element's place. */
START_TEST(overlap_rule)
{
    enum { TRIES = 3000, PLACES = 4096 };
    struct rng r = { 77, 0 };
    int64_t refused_ones = 0;
    for (int k = 0; k < TRIES; k++) {
        qattn_tensor t = { .data = memory, .dtype = QATTN_DTYPE_F32, .device_type = QATTN_DEVICE_CPU };
        struct view ignored;
        for (int i = 0; i < 4; i++) {
            t.shape[i] = 1 + rng_below(&r, 4);
            t.stride[i] = rng_below(&r, 40) - 8;
        }
        const bool accepted = qattn__tensor_view(&ignored, &t, "o", TENSOR_OUTPUT, false) == QATTN_OK;
        bool seen[PLACES] = { false }, overlaps = false;
        for (int64_t x = 0; x < t.shape[0] * t.shape[1] * t.shape[2] * t.shape[3]; x++) {
            int64_t rest = x, at = PLACES / 2;
            for (int i = 3; i >= 0; i--) {
                at += rest % t.shape[i] * t.stride[i];
                rest /= t.shape[i];
            }
            overlaps |= seen[at];
            seen[at] = true;
        }
        ck_assert_msg(!accepted || !overlaps, "an output that overlaps itself was accepted");
        refused_ones += !accepted;
        /* the rule is sufficient, not necessary; but every layout by sorted strides must pass */
        ck_assert_msg(accepted || overlaps || t.shape[0] * t.shape[1] * t.shape[2] * t.shape[3] > 1,
                      "one element refused");
    }
    ck_assert_int_gt(refused_ones, TRIES / 10);
    ck_assert_int_lt(refused_ones, TRIES - TRIES / 20);
}
END_TEST

Suite *suite_tensor(void)
{
    Suite *s = suite_create("tensor");
    TCase *t = tcase_create("tensor");
    tcase_add_test(t, layouts);
    tcase_add_test(t, empty_and_large);
    tcase_add_test(t, refused);
    tcase_add_test(t, dlpack);
    tcase_add_test(t, dlpack_types);
    tcase_add_test(t, dlpack_refused);
    tcase_add_test(t, overlap_rule);
    suite_add_tcase(s, t);
    return s;
}
