/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Legal shapes that no memory holds: broadcast axes near 2^60 and empty tensors with huge other axes. A call computes
 * or is refused for want of memory; a size in between must never wrap. */
#include <check.h>
#include <limits.h>
#include <string.h>

#include "gpu.h"
#include "qattn.h"
#include "suites.h"

enum { USED = 5 };

static qattn_tensor tensor(float *data, int64_t b, int64_t h, int64_t s, int64_t d)
{
    /* all strides 0: legal for an input; an output needs every axis 1 or 0 */
    return (qattn_tensor){ .data = data, .shape = { b, h, s, d }, .dtype = QATTN_DTYPE_F32,
                           .device_type = gpu_device_type() };
}

static const int64_t huge_keys[] = {
    (int64_t)1 << 41, 768489256772972115, INT64_MAX / 4 - 1, INT64_MAX - 1, INT64_MAX,
};
enum { NUM_KEYS = sizeof huge_keys / sizeof huge_keys[0] };

/* What one call reads and writes, in the memory of the rows under test. */
struct memory { float one, seven, o, lse; int32_t used; };

/* One query of value 1, huge_keys[i] equal keys of which USED count, each value 7: O = 7, LSE = 1 + log(5). */
static int32_t attend(int64_t keys, int gqa, struct memory *m)
{
    const qattn_tensor q = tensor(&m->one, 1, 1, 1, 1), k = tensor(&m->one, 1, 1, keys, 1),
                       v = tensor(&m->seven, 1, 1, keys, 1);
    const qattn_tensor out = tensor(&m->o, 1, 1, 1, 1);
    qattn_attn_params p = QATTN_ATTN_PARAMS_INIT;
    p.seqused_k = &m->used;
    p.lse = tensor(&m->lse, 1, 1, 1, 1);
    size_t bytes = 0;
    const int32_t status = gqa ? qattn_gqa_forward_workspace(&q, &k, &v, &out, &p, &bytes)
                               : qattn_flash_forward_workspace(&q, &k, &v, &out, &p, &bytes);
    ck_assert_int_eq(status, QATTN_OK);
    if (gqa)
        ck_assert_uint_ge(bytes, (size_t)keys);     /* scores of every key: at least 4 bytes each, if countable */
    return gqa ? qattn_gqa_forward(&q, &k, &v, &out, &p, NULL) : qattn_flash_forward(&q, &k, &v, &out, &p, NULL);
}

START_TEST(broadcast_keys)
{
    static const struct memory before = { .one = 1.0f, .seven = 7.0f, .o = -1.0f, .lse = -1.0f, .used = USED };
    if (!shard_has(_i))
        return;
    for (int gqa = 0; gqa < 2; gqa++) {
        struct memory *const m = gpu_new(&before, sizeof before), after;
        const int32_t status = attend(huge_keys[_i], gqa, m);
        gpu_get(&after, m, sizeof after);
        gpu_free(m);
        if (status == QATTN_OK) {
            ck_assert_float_eq_tol(after.o, 7.0f, 1e-5f);
            ck_assert_float_eq_tol(after.lse, 2.6094379f, 1e-5f);
        } else {
            ck_assert_int_eq(status, gpu_wanted() ? QATTN_ERR_WORKSPACE : QATTN_ERR_OUT_OF_MEMORY);
            ck_assert(after.o == -1.0f && after.lse == -1.0f);
        }
        ck_assert_msg(gqa || status == QATTN_OK, "flash holds no scores: %d", status);
        count_run("huge shapes", 1);
    }
}
END_TEST

/* Nothing to write: success at once, however large the other axes. */
START_TEST(empty_outputs)
{
    const int64_t big = (int64_t)1 << 40;
    static const float zero[1];
    float *const one = gpu_new(zero, sizeof zero);
    const qattn_tensor q = tensor(NULL, big, big, 0, 64), k = tensor(one, big, 1, 3, 64);
    qattn_tensor lse = tensor(NULL, big, big, 0, 1);
    qattn_attn_params p = QATTN_ATTN_PARAMS_INIT;
    size_t bytes = 1;
    p.lse = lse;
    ck_assert_int_eq(qattn_flash_forward_workspace(&q, &k, &k, &q, &p, &bytes), QATTN_OK);
    ck_assert_uint_eq(bytes, 0);
    ck_assert_int_eq(qattn_flash_forward(&q, &k, &k, &q, &p, NULL), QATTN_OK);
    ck_assert_int_eq(qattn_gqa_forward(&q, &k, &k, &q, &p, NULL), QATTN_OK);
    ck_assert_int_eq(qattn_softmax(&q, &q, NULL, NULL), QATTN_OK);
    const qattn_tensor b = tensor(NULL, big, big, 64, 0), c = tensor(NULL, big, big, 0, 0);
    ck_assert_int_eq(qattn_matmul(&q, &b, &c, NULL, NULL), QATTN_OK);
    ck_assert_int_eq(qattn_merge(1, &q, &lse, &q, NULL, NULL, NULL), QATTN_OK);
    gpu_free(one);
    count_run("huge shapes", 1);
}
END_TEST

/* Sizes of huge packed batches saturate instead of wrapping to something small. */
START_TEST(huge_batches)
{
    const int64_t counts[] = { (int64_t)1 << 33, (int64_t)1 << 60, INT64_MAX };
    const qattn_tensor q = tensor(NULL, 1, 4, 100, 64), k = tensor(NULL, 1, 2, 100, 64);
    static const int32_t dummy[2];
    for (int i = 0; i < 3; i++) {
        qattn_attn_params p = QATTN_ATTN_PARAMS_INIT;
        p.cu_seqlens_q = p.cu_seqlens_k = dummy;
        p.num_seqs = counts[i];
        qattn_tensor o = q;
        for (int axis = 3, stride = 1; axis >= 0; axis--) {
            o.stride[axis] = stride;
            stride *= (int)o.shape[axis];
        }
        size_t bytes = 0;
        ck_assert_int_eq(qattn_flash_forward_workspace(&q, &k, &k, &o, &p, &bytes), QATTN_OK);
        ck_assert_uint_ge(bytes, gpu_wanted() ? 0 : (size_t)counts[i]);     /* the CPU plans every sequence */
        count_run("huge shapes", 1);
    }
}
END_TEST

Suite *suite_huge(void)
{
    Suite *s = suite_create("huge");
    TCase *t = tcase_create("huge");
    tcase_set_timeout(t, 30);
    tcase_add_loop_test(t, broadcast_keys, 0, NUM_KEYS);
    tcase_add_test(t, empty_outputs);
    tcase_add_test(t, huge_batches);
    suite_add_tcase(s, t);
    return s;
}
