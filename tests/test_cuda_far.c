/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Strides of gigabytes over small data on CUDA rows, both ways, with elements on both sides of byte and element 2^31
 * and 2^32. Pages without elements are not mapped, so a wrong address is a fault. Values against the fp64 oracle.
 */
#include <check.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "attn_run.h"
#include "cuda_tensors.h"
#include "far_memory.h"
#include "row_run.h"
#include "suites.h"
#include "support.h"

#if QATTN_CUDA

#include <cuda_runtime_api.h>

static const char *const axis_names[4] = { "B", "H", "S", "D" };
/* Elements: around the edges of 32 bits of bytes and elements, with a row across the edge, and far beyond. */
static const int64_t far_strides[] = {
    (INT64_C(1) << 29) - 8, (INT64_C(1) << 30) - 8, (INT64_C(1) << 31) - 8, (INT64_C(1) << 32) - 8, INT64_C(1) << 36,
    -(INT64_C(1) << 31) + 8, -(INT64_C(1) << 33),
};
enum { FAR_STRIDES = sizeof far_strides / sizeof *far_strides };

/* Packed strides, except that `axis` has `far`. */
static struct far_tensor far_like(const qattn_tensor *host, int axis, int64_t far)
{
    int64_t stride[4], packed = 1;
    for (int i = 3; i >= 0; i--) {
        stride[i] = i == axis ? far : packed;
        packed *= i == axis ? 1 : host->shape[i];
    }
    return far_new(host->dtype, host->shape, stride);
}

/* ---------------------------------------------------------------- attention */

static const char *const tensor_names[TENSORS] = { "q", "k", "v", "o", "lse", "bias" };

struct attention {
    enum op op;
    qattn_tensor host[TENSORS], device[TENSORS];
    struct problem problem;
    struct oracle oracle;
};

static struct attention *attention_new(enum op op, int32_t dtype)
{
    struct attention *const a = calloc(1, sizeof *a);
    a->op = op;
    a->host[Q] = host_new(dtype, 2, 4, 3, 8, 1);
    a->host[K] = host_new(dtype, 2, 2, 19, 8, 2);
    a->host[V] = host_new(dtype, 2, 2, 19, 8, 3);
    a->host[O] = host_new(dtype, 2, 4, 3, 8, 0);
    a->host[LSE] = host_new(QATTN_DTYPE_F32, 2, 4, 3, 1, 0);
    a->host[BIAS] = host_new(QATTN_DTYPE_F32, 2, 4, 3, 19, 4);
    set_attention(&a->problem, op, a->host);
    a->oracle = oracle_make(&a->problem, 1, 1, 1);
    for (int i = 0; i < TENSORS; i++)
        a->device[i] = device_copy(&a->host[i]);
    return a;
}

static void attention_free(struct attention *a)
{
    oracle_free(&a->oracle);
    for (int i = 0; i < TENSORS; i++) {
        free(a->host[i].data);
        CUDA_MUST(cudaFree(a->device[i].data));
    }
    free(a);
}

/* Tensor `which` is far along `axis`, the others are packed. */
static void check_far_attention(struct attention *a, const struct impl *row, int which, int axis, int64_t far)
{
    static struct problem p;
    qattn_tensor device[TENSORS];
    struct far_tensor t = far_like(&a->host[which], axis, far);
    memcpy(device, a->device, sizeof device);
    device[which] = t.t;
    set_attention(&p, a->op, device);
    case_begin("%s %s %s, %s along %s by %" PRId64, row->id, qattn__op_name(a->op), format_name(a->host[Q].dtype),
               tensor_names[which], axis_names[axis], far);
    if (supported(row, &p, "far strides")) {
        clear_host(&a->host[O]);
        clear_host(&a->host[LSE]);
        CUDA_MUST(cudaMemset(a->device[O].data, 0xFF, bytes_of(&a->host[O])));
        CUDA_MUST(cudaMemset(a->device[LSE].data, 0xFF, bytes_of(&a->host[LSE])));
        far_upload(&t, a->host[which].data);
        run_on_cuda(row, &p, "far strides");
        for (int i = O; i <= LSE; i++)
            if (i != which)
                read_back(&device[i], &a->host[i]);
        if (which == O || which == LSE) {
            far_download(&t, a->host[which].data);
            if (!far_intact(&t))
                note_failure("bytes between the elements of %s were written", tensor_names[which]);
        }
        oracle_agrees(&a->oracle, &a->problem, -1, "far strides");
    }
    far_free(&t);
}

START_TEST(far_attention)
{
    static const struct { enum op op; int32_t dtype;
    } kinds[] = {
        { OP_FLASH_FORWARD, QATTN_DTYPE_F32 },
        { OP_FLASH_FORWARD, QATTN_DTYPE_BF16 },
        { OP_GQA_FORWARD, QATTN_DTYPE_F32 },
        { OP_GQA_FORWARD, QATTN_DTYPE_F16 },
    };
    if (!far_begin()) {
        count_skipped("far strides", "the driver cannot map memory at chosen addresses", 1);
        return;
    }
    struct attention *const a = attention_new(kinds[_i].op, kinds[_i].dtype);
    EACH_CUDA_ROW(row)
        for (int which = 0; which < TENSORS; which++)
            for (int axis = 0; axis < 4; axis++)
                for (int i = 0; i < FAR_STRIDES; i++)
                    if (a->host[which].shape[axis] > 1)
                        check_far_attention(a, row, which, axis, far_strides[i]);
    attention_free(a);
    ck_assert_int_eq(failures(), 0);
}
END_TEST

/* ---------------------------------------------------------------- products and softmax */

static void check_far_simple(struct simple *s, const qattn_tensor *packed, const struct impl *row, int which, int axis,
                             int64_t far)
{
    static struct problem p;
    const int output = s->tensors - 1;
    qattn_tensor device[3] = { packed[0], packed[1], packed[2] };
    struct far_tensor t = far_like(&s->host[which], axis, far);
    device[which] = t.t;
    set_simple(&p, s->op, device);
    case_begin("%s %s %s, tensor %d along %s by %" PRId64, row->id, qattn__op_name(s->op),
               format_name(s->host[0].dtype), which, axis_names[axis], far);
    if (supported(row, &p, "far strides")) {
        clear_host(&s->host[output]);
        CUDA_MUST(cudaMemset(packed[output].data, 0xFF, bytes_of(&s->host[output])));
        far_upload(&t, s->host[which].data);
        run_on_cuda(row, &p, "far strides");
        if (which == output) {
            far_download(&t, s->host[output].data);
            if (!far_intact(&t))
                note_failure("bytes between the elements were written");
        } else {
            read_back(&device[output], &s->host[output]);
        }
        judge_simple(s);
    }
    far_free(&t);
}

START_TEST(far_simple)
{
    static const struct { enum op op; int32_t dtype; } kinds[] = {
        { OP_MATMUL, QATTN_DTYPE_F32 }, { OP_MATMUL, QATTN_DTYPE_BF16 }, { OP_MATMUL_NT, QATTN_DTYPE_F32 },
        { OP_MATMUL_NT, QATTN_DTYPE_F16 }, { OP_SOFTMAX, QATTN_DTYPE_F32 }, { OP_SOFTMAX, QATTN_DTYPE_BF16 },
    };
    const int32_t dtype = kinds[_i].dtype;
    static struct simple s;
    if (!far_begin()) {
        count_skipped("far strides", "the driver cannot map memory at chosen addresses", 1);
        return;
    }
    s = (struct simple){ .op = kinds[_i].op, .tensors = kinds[_i].op == OP_SOFTMAX ? 2 : 3 };
    if (s.op == OP_SOFTMAX) {
        s.host[0] = host_new(dtype, 2, 3, 4, 17, 5);
        s.host[1] = host_new(dtype, 2, 3, 4, 17, 0);
    } else {
        s.host[0] = host_new(dtype, 2, 4, 5, 8, 6);
        s.host[1] = s.op == OP_MATMUL ? host_new(dtype, 2, 2, 8, 16, 7) : host_new(dtype, 2, 2, 16, 8, 7);
        s.host[2] = host_new(dtype, 2, 4, 5, 16, 0);
    }
    set_simple(&s.problem, s.op, s.host);
    qattn_tensor packed[3] = { 0 };
    for (int i = 0; i < s.tensors; i++)
        packed[i] = device_copy(&s.host[i]);
    EACH_CUDA_ROW(row)
        for (int which = 0; which < s.tensors; which++)
            for (int axis = 0; axis < 4; axis++)
                for (int i = 0; i < FAR_STRIDES; i++)
                    check_far_simple(&s, packed, row, which, axis, far_strides[i]);
    for (int i = 0; i < s.tensors; i++) {
        free(s.host[i].data);
        CUDA_MUST(cudaFree(packed[i].data));
    }
    ck_assert_int_eq(failures(), 0);
}
END_TEST

Suite *suite_cuda_far(void)
{
    Suite *s = suite_create("cuda_far");
    TCase *t = tcase_create("far");
    tcase_set_tags(t, "gpu");
    tcase_add_loop_test(t, far_attention, 0, 4);
    tcase_add_loop_test(t, far_simple, 0, 6);
    suite_add_tcase(s, t);
    return s;
}

#else

/* Builds without CUDA: an empty suite, never run (main.c). */
Suite *suite_cuda_far(void) { return suite_create("cuda_far"); }

#endif
