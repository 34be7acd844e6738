/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The ABI in literal numbers. Compiles only where header and tests/abi_golden.h agree, as C11 and as C++11;
 * then asks the shared library the same through qattn_query, which is how bindings learn them.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "abi_golden.h"
#include "qattn.h"

#ifdef __cplusplus
#define STATIC_ASSERT(cond, text) static_assert(cond, text)
#else
#define STATIC_ASSERT(cond, text) _Static_assert(cond, text)
#endif

#define ASSERT_CONSTANT(name, value) STATIC_ASSERT(name == value, #name " changed");
#define ASSERT_SIZE(type, bytes) STATIC_ASSERT(sizeof(type) == bytes, #type " changed its size");
#define ASSERT_FIELD(type, field, offset, bytes) \
    STATIC_ASSERT(offsetof(type, field) == offset && sizeof(((type *)0)->field) == bytes, #type "." #field " moved");
ABI_GOLDEN(ASSERT_CONSTANT, ASSERT_SIZE, ASSERT_FIELD)

STATIC_ASSERT(sizeof(qattn_stream) == 8, "qattn_stream is a pointer");
STATIC_ASSERT(QATTN_VERSION == 10000 * QATTN_VERSION_MAJOR + 100 * QATTN_VERSION_MINOR + QATTN_VERSION_PATCH,
              "QATTN_VERSION is not made of its parts");

#define QUERY_CONSTANT(name, value) { #name, value },
#define QUERY_SIZE(type, bytes) { "sizeof(" #type ")", bytes },
#define QUERY_FIELD(type, field, offset, bytes) { "offsetof(" #type "," #field ")", offset },
static const struct { const char *name; int64_t value; } names[] = {
    ABI_GOLDEN(QUERY_CONSTANT, QUERY_SIZE, QUERY_FIELD)
};

static int passed, failed;

static void expect(int ok, const char *what)
{
    if (ok) {
        passed++;
    } else {
        failed++;
        printf("failed: %s\n", what);
    }
}

int main(void)
{
    char text[512];
    int64_t value;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        value = INT64_MIN;
        const int32_t status = qattn_query(names[i].name, &value);
        if (status != QATTN_OK || value != names[i].value)
            printf("qattn_query(%s): status %d, value %" PRId64 ", expected %" PRId64 "\n", names[i].name, (int)status,
                   value, names[i].value);
        expect(status == QATTN_OK && value == names[i].value, names[i].name);
    }

    static const char *const unknown[] = { "", "QATTN_", "QATTN_MASK_CAUSA", "QATTN_MASK_CAUSAL ", "qattn_mask_causal",
                                           "sizeof(qattn_nothing)", "offsetof(qattn_tensor,nothing)",
                                           "offsetof(qattn_attn_params, lse)" };
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        value = 12345;
        expect(qattn_query(unknown[i], &value) == QATTN_ERR_UNKNOWN_NAME && value == 12345, unknown[i]);
    }
    expect(qattn_query(NULL, &value) == QATTN_ERR_NULL_POINTER, "qattn_query(NULL, value)");
    expect(qattn_query("QATTN_OK", NULL) == QATTN_ERR_NULL_POINTER, "qattn_query(name, NULL)");
    expect(qattn_last_error(text, sizeof text) == QATTN_ERR_NULL_POINTER && text[0] != '\0', "qattn_last_error");

    expect(qattn_version() == QATTN_VERSION, "qattn_version");
    expect(qattn_abi_version() == QATTN_ABI_VERSION, "qattn_abi_version");
    memset(text, 'x', sizeof text);
    expect(qattn_build_info(text, sizeof text) == QATTN_OK && memchr(text, 0, sizeof text) && text[0] != '\0',
           "qattn_build_info");
    printf("%s\n", text);
    memset(text, 'x', sizeof text);
    (void)qattn_build_info(text, 4);
    expect(memchr(text, 0, 4) && text[4] == 'x', "qattn_build_info keeps inside 4 bytes");

    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
