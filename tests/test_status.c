/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Status codes and their texts, the thread's message, build info, qattn_query. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "core/status.h"
#include "suites.h"

#define STATUS_ENTRY(name, sentence) { QATTN_##name, "QATTN_" #name, sentence },
static const struct { int32_t code; const char *name, *sentence; } all[] = { QATTN_STATUS_LIST(STATUS_ENTRY) };
enum { COUNT = sizeof all / sizeof *all };

/* Codes as the header prints them: literal numbers, since values are never reused. */
static const struct { const char *name; int32_t code; } published[] = {
    { "QATTN_OK", 0 }, { "QATTN_ERR_NULL_POINTER", 1001 }, { "QATTN_ERR_STRUCT_SIZE", 1002 },
    { "QATTN_ERR_PARAMS_TOO_NEW", 1003 }, { "QATTN_ERR_RESERVED", 1004 }, { "QATTN_ERR_UNKNOWN_BITS", 1005 },
    { "QATTN_ERR_BAD_DTYPE", 1006 }, { "QATTN_ERR_BAD_DEVICE", 1007 }, { "QATTN_ERR_BAD_SHAPE", 1008 },
    { "QATTN_ERR_BAD_STRIDE", 1009 }, { "QATTN_ERR_ALIAS", 1010 }, { "QATTN_ERR_BAD_VALUE", 1011 },
    { "QATTN_ERR_ALIGNMENT", 1012 }, { "QATTN_ERR_DEVICE_MISMATCH", 1013 }, { "QATTN_ERR_COMBINATION", 1014 },
    { "QATTN_ERR_STREAM", 1015 }, { "QATTN_ERR_UNKNOWN_NAME", 1016 }, { "QATTN_ERR_UNSUPPORTED_DTYPE", 2001 },
    { "QATTN_ERR_UNSUPPORTED_SHAPE", 2002 }, { "QATTN_ERR_UNSUPPORTED", 2003 }, { "QATTN_ERR_NOT_BUILT", 2004 },
    { "QATTN_ERR_NO_IMPLEMENTATION", 2005 }, { "QATTN_ERR_NO_DRIVER", 3001 }, { "QATTN_ERR_DRIVER_TOO_OLD", 3002 },
    { "QATTN_ERR_NO_DEVICE", 3003 }, { "QATTN_ERR_DEVICE_BUSY", 3004 }, { "QATTN_ERR_NO_KERNEL_IMAGE", 3005 },
    { "QATTN_ERR_FORKED", 3006 }, { "QATTN_ERR_CAPTURE_INVALID", 3007 }, { "QATTN_ERR_CUDA", 3008 },
    { "QATTN_ERR_WORKSPACE", 4001 }, { "QATTN_ERR_OUT_OF_MEMORY", 4002 }, { "QATTN_ERR_INTERNAL", 5001 },
};

START_TEST(names)
{
    ck_assert_int_eq(COUNT, sizeof published / sizeof *published);
    for (int i = 0; i < COUNT; i++) {
        ck_assert_str_eq(qattn_status_name(published[i].code), published[i].name);
        ck_assert_str_eq(qattn_status_name(all[i].code), all[i].name);
        ck_assert_str_eq(qattn_status_string(all[i].code), all[i].sentence);
        ck_assert_uint_gt(strlen(all[i].sentence), 6);
        for (int k = 0; k < i; k++) {
            ck_assert_int_ne(all[k].code, all[i].code);
            ck_assert_str_ne(all[k].sentence, all[i].sentence);
        }
    }
}
END_TEST

START_TEST(unknown_codes)
{
    static const int32_t codes[] = { -1, 1, 999, 1000, 1017, 2000, 2006, 3009, 4003, 6000, INT32_MAX, INT32_MIN };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        ck_assert_str_eq(qattn_status_name(codes[i]), "QATTN_ERR_UNKNOWN");
        ck_assert_uint_gt(strlen(qattn_status_string(codes[i])), 6);
    }
}
END_TEST

START_TEST(messages)
{
    char text[600], long_text[2000];
    ck_assert_int_eq(qattn_last_error(text, sizeof text), QATTN_OK);
    ck_assert_str_eq(text, "");
    ck_assert_int_eq(qattn__fail(QATTN_ERR_BAD_VALUE, "x is %d: %s", 3, "rule"), QATTN_ERR_BAD_VALUE);
    ck_assert_int_eq(qattn_last_error(text, sizeof text), QATTN_ERR_BAD_VALUE);
    ck_assert_str_eq(text, "x is 3: rule");
    memset(long_text, 'y', sizeof long_text);
    long_text[sizeof long_text - 1] = '\0';
    qattn__fail(QATTN_ERR_INTERNAL, "%s", long_text);             /* longer than the buffer: cut, terminated */
    memset(text, 1, sizeof text);
    ck_assert_int_eq(qattn_last_error(text, sizeof text), QATTN_ERR_INTERNAL);
    ck_assert_uint_lt(strlen(text), 513);
    ck_assert_uint_gt(strlen(text), 100);
}
END_TEST

START_TEST(build_info)
{
    char text[256], one[4] = "abc";
    ck_assert_int_eq(qattn_build_info(text, sizeof text), QATTN_OK);
    ck_assert_ptr_nonnull(strstr(text, "0.1.0"));
    ck_assert_ptr_null(strchr(text, '\n'));
    ck_assert_int_eq(qattn_build_info(one, 1), QATTN_OK);
    ck_assert_int_eq(one[0], '\0');
    ck_assert_int_eq(one[1], 'b');
    ck_assert_int_eq(qattn_build_info(NULL, 0), QATTN_OK);
    ck_assert_int_eq(qattn_build_info(NULL, 4), QATTN_ERR_NULL_POINTER);
    ck_assert_int_eq(qattn_version(), QATTN_VERSION);
    ck_assert_int_eq(qattn_abi_version(), QATTN_ABI_VERSION);
}
END_TEST

START_TEST(query)
{
    static const struct { const char *name; int64_t value; } known[] = {
        { "QATTN_MASK_CAUSAL", 1 }, { "QATTN_DTYPE_BF16", 0x041001 }, { "QATTN_ERR_WORKSPACE", 4001 },
        { "sizeof(qattn_tensor)", 96 }, { "sizeof(qattn_attn_params)", 872 }, { "sizeof(qattn_matmul_params)", 48 },
        { "sizeof(qattn_softmax_params)", 408 }, { "sizeof(qattn_merge_params)", 40 },
        { "offsetof(qattn_attn_params,lse)", 200 }, { "offsetof(qattn_attn_params,page_table)", 152 },
        { "offsetof(qattn_tensor,dtype)", 72 }, { "offsetof(qattn_softmax_params,bias)", 216 },
    };
    static const char *const unknown[] = { "",
                                           "QATTN_",
                                           "sizeof(int)",
                                           "offsetof(qattn_attn_params,none)",
                                           "offsetof(qattn_attn_params, lse)x",
                                           "qattn_mask_causal",
                                           "QATTN_MASK_CAUSAL " };
    int64_t value = -7;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        ck_assert_int_eq(qattn_query(known[i].name, &value), QATTN_OK);
        ck_assert_msg(value == known[i].value, "%s is %lld", known[i].name, (long long)value);
    }
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        value = -7;
        ck_assert_msg(qattn_query(unknown[i], &value) == QATTN_ERR_UNKNOWN_NAME, "\"%s\"", unknown[i]);
        ck_assert_int_eq(value, -7);
    }
    ck_assert_int_eq(qattn_query(NULL, &value), QATTN_ERR_NULL_POINTER);
    ck_assert_int_eq(qattn_query("QATTN_OK", NULL), QATTN_ERR_NULL_POINTER);
}
END_TEST

Suite *suite_status(void)
{
    Suite *s = suite_create("status");
    TCase *t = tcase_create("status");
    tcase_add_test(t, names);
    tcase_add_test(t, unknown_codes);
    tcase_add_test(t, messages);
    tcase_add_test(t, build_info);
    tcase_add_test(t, query);
    suite_add_tcase(s, t);
    return s;
}
