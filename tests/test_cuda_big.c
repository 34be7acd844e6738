/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Large numbers on CUDA rows: more sequences, heads and rows than an axis of a grid has blocks; under QATTN_TEST_BIG=1
 * tensors of more than 4 GiB. Values against the fp64 oracle.
 */
#include <check.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn_run.h"
#include "core/params.h"
#include "cuda_tensors.h"
#include "far_memory.h"
#include "row_run.h"
#include "suites.h"
#include "support.h"

#if QATTN_CUDA

#include <cuda_runtime_api.h>

/* ---------------------------------------------------------------- many sequences, heads, rows */

START_TEST(many)
{
    static const struct { int64_t b, hq, hkv, sq, sk; int32_t dtype;
    } shapes[] = {
        { 70000, 1, 1, 1, 3, QATTN_DTYPE_F32 },     { 70000, 2, 1, 3, 2, QATTN_DTYPE_BF16 },
        { 1, 70000, 70000, 1, 3, QATTN_DTYPE_F16 }, { 1, 140000, 70000, 2, 3, QATTN_DTYPE_F32 },
        { 1, 1, 1, 2100000, 4, QATTN_DTYPE_BF16 },  { 1, 1, 1, 1100000, 4, QATTN_DTYPE_F32 },
        { 1, 1, 1, 1, 2100000, QATTN_DTYPE_BF16 },  { 300, 300, 1, 1, 2, QATTN_DTYPE_BF16 },
    };
    static struct problem host_problem, p;
    const enum op op = _i % 2 ? OP_GQA_FORWARD : OP_FLASH_FORWARD;
    const int64_t b = shapes[_i / 2].b, hq = shapes[_i / 2].hq, hkv = shapes[_i / 2].hkv, sq = shapes[_i / 2].sq,
                  sk = shapes[_i / 2].sk;
    const int32_t dtype = shapes[_i / 2].dtype;
    if (!shard_has(_i))
        return;
    qattn_tensor host[TENSORS] = { host_new(dtype, b, hq, sq, 8, 1), host_new(dtype, b, hkv, sk, 8, 2),
                                   host_new(dtype, b, hkv, sk, 8, 3), host_new(dtype, b, hq, sq, 8, 0),
                                   host_new(QATTN_DTYPE_F32, b, hq, sq, 1, 0) };
    qattn_tensor device[TENSORS] = { 0 };
    set_attention(&host_problem, op, host);
    struct oracle oracle =
        oracle_make(&host_problem, oracle_step(&host_problem, 4e6) * 7 / 8 + 1, hq / 500 + 1, b / 500 + 1);
    for (int i = 0; i < BIAS; i++)
        device[i] = device_copy(&host[i]);
    set_attention(&p, op, device);
    EACH_CUDA_ROW(row) {
        case_begin("%s %s %s b%d h%d/%d sq%d sk%d", row->id, qattn__op_name(op), format_name(dtype), (int)b, (int)hq,
                   (int)hkv, (int)sq, (int)sk);
        if (!supported(row, &p, "large grids"))
            continue;
        run_on_cuda(row, &p, "large grids");
        read_back(&device[O], &host[O]);
        read_back(&device[LSE], &host[LSE]);
        oracle_agrees(&oracle, &host_problem, -1, "large grids");
    }
    oracle_free(&oracle);
    for (int i = 0; i < BIAS; i++) {
        CUDA_MUST(cudaFree(device[i].data));
        free(host[i].data);
    }
    ck_assert_int_eq(failures(), 0);
}
END_TEST

START_TEST(many_simple)
{
    static struct problem p;
    static struct simple s;
    static const struct { enum op op; int64_t b, h, m, n, k; } shapes[] = {
        { OP_MATMUL_NT, 70000, 1, 2, 3, 4 }, { OP_MATMUL, 1, 70000, 2, 3, 4 }, { OP_MATMUL_NT, 1, 1, 1100000, 2, 4 },
        { OP_MATMUL, 1, 1, 2, 1100000, 4 }, { OP_SOFTMAX, 70000, 1, 2, 5, 0 }, { OP_SOFTMAX, 1, 70000, 2, 5, 0 },
        { OP_SOFTMAX, 1, 1, 700000, 5, 0 },
    };
    s = (struct simple){ .op = shapes[_i].op, .tensors = shapes[_i].op == OP_SOFTMAX ? 2 : 3 };
    const int64_t b = shapes[_i].b, h = shapes[_i].h, m = shapes[_i].m, n = shapes[_i].n, k = shapes[_i].k;
    const int32_t dtype = _i % 2 ? QATTN_DTYPE_BF16 : QATTN_DTYPE_F32;
    if (!shard_has(16 + _i))
        return;
    qattn_tensor device[3];
    if (s.op == OP_SOFTMAX) {
        s.host[0] = host_new(dtype, b, h, m, n, 5);
        s.host[1] = host_new(dtype, b, h, m, n, 0);
    } else {
        s.host[0] = host_new(dtype, b, h, m, k, 6);
        s.host[1] = s.op == OP_MATMUL ? host_new(dtype, b, h, k, n, 7) : host_new(dtype, b, h, n, k, 7);
        s.host[2] = host_new(dtype, b, h, m, n, 0);
    }
    for (int i = 0; i < s.tensors; i++)
        device[i] = device_copy(&s.host[i]);
    set_simple(&s.problem, s.op, s.host);
    set_simple(&p, s.op, device);
    EACH_CUDA_ROW(row) {
        case_begin("%s %s b%d h%d m%d n%d", row->id, qattn__op_name(s.op), (int)b, (int)h, (int)m, (int)n);
        if (!supported(row, &p, "large grids"))
            continue;
        run_on_cuda(row, &p, "large grids");
        read_back(&device[s.tensors - 1], &s.host[s.tensors - 1]);
        judge_simple(&s);
    }
    for (int i = 0; i < s.tensors; i++) {
        CUDA_MUST(cudaFree(device[i].data));
        free(s.host[i].data);
    }
    ck_assert_int_eq(failures(), 0);
}
END_TEST

/* ---------------------------------------------------------------- more than 4 GiB */

enum { PERIOD = 8 << 20 };

/* `rows` rows of d elements that repeat those of `period`, a host tensor of PERIOD bytes. */
static struct far_repeat repeated(const qattn_tensor *period, int64_t rows)
{
    const int64_t shape[4] = { 1, 1, rows, period->shape[3] };
    return far_repeat_new(period->dtype, shape, period->data, PERIOD);
}

static qattn_tensor one_period(int32_t dtype, int64_t d, uint64_t seed)
{
    return host_new(dtype, 1, 1, PERIOD / (d * format_size(dtype)), d, seed);
}

/* One after the other, in one shard: several at once would not find the memory. */
static bool big_wanted(size_t bytes)
{
    size_t available = 0, total;
    if (!shard_has(0))
        return false;
    if (!env_number("QATTN_TEST_BIG", 0)) {
        count_skipped("more than 4 GiB", "QATTN_TEST_BIG=1 is not set", 1);
        return false;
    }
    CUDA_MUST(cudaMemGetInfo(&available, &total));
    if (available < bytes + (1 << 30) || !far_begin()) {
        count_skipped("more than 4 GiB", "the device has too little memory left", 1);
        return false;
    }
    return true;
}

/* Keys that repeat weigh alike: O is that of one period, LSE that plus the logarithm of their number. */
START_TEST(big_keys)
{
    static struct problem host_problem, p;
    const int32_t dtype = _i ? QATTN_DTYPE_BF16 : QATTN_DTYPE_F32;
    const int64_t d = 64, period = PERIOD / (d * format_size(dtype)), repeats = 1025;
    if (!big_wanted(1u << 30))
        return;
    qattn_tensor host[TENSORS] = { host_new(dtype, 1, 2, 1, d, 1), one_period(dtype, d, 2), one_period(dtype, d, 3),
                                   host_new(dtype, 1, 2, 1, d, 0), host_new(QATTN_DTYPE_F32, 1, 2, 1, 1, 0) };
    qattn_tensor device[TENSORS] = { 0 };
    set_attention(&host_problem, OP_FLASH_FORWARD, host);
    struct oracle oracle = oracle_make(&host_problem, 1, 1, 1);
    struct far_repeat k = repeated(&host[K], period * repeats), v = repeated(&host[V], period * repeats);
    for (int i = 0; i < BIAS; i++)
        device[i] = i == K ? k.t : i == V ? v.t : device_copy(&host[i]);
    set_attention(&p, OP_FLASH_FORWARD, device);
    EACH_CUDA_ROW(row) {
        case_begin("%s %s, keys of %" PRId64 " bytes", row->id, format_name(dtype),
                   period * repeats * d * format_size(dtype));
        if (!supported(row, &p, "more than 4 GiB"))
            continue;
        run_on_cuda(row, &p, "more than 4 GiB");
        read_back(&device[O], &host[O]);
        read_back(&device[LSE], &host[LSE]);
        for (int h = 0; h < 2; h++)
            ((float *)host[LSE].data)[h] -= (float)log((double)repeats);
        oracle_agrees(&oracle, &host_problem, -1, "more than 4 GiB");
    }
    oracle_free(&oracle);
    for (int i = 0; i < BIAS; i++) {
        if (i != K && i != V)
            CUDA_MUST(cudaFree(device[i].data));
        free(host[i].data);
    }
    far_repeat_free(&k);
    far_repeat_free(&v);
    ck_assert_int_eq(failures(), 0);
}
END_TEST

/* Rows of an output that hold what the rows of one period hold, bit for bit: the first, some, and the last period. */
static void judge_repeats(const qattn_tensor *device, const qattn_tensor *period, const char *what)
{
    const int64_t rows = device->shape[2], piece = period->shape[2], d = device->shape[3];
    const size_t row_bytes = (size_t)(d * format_size(device->dtype)), bytes = (size_t)piece * row_bytes;
    char *const got = malloc(bytes);
    for (int64_t i = 0; i < rows / piece;
         i += i < rows / piece - 1 && i + 37 >= rows / piece ? rows / piece - 1 - i : 37) {
        CUDA_MUST(cudaMemcpy(got, (char *)device->data + (size_t)i * bytes, bytes, cudaMemcpyDeviceToHost));
        if (memcmp(got, period->data, bytes) != 0) {
            note_failure("%s: rows from %" PRId64 " on differ from the first ones", what, i * piece);
            break;
        }
    }
    free(got);
}

/* An output of more than 2^31 elements: row r of q is row r mod the period. The first period is judged by the oracle,
 * the others by its bits. */
START_TEST(big_outputs)
{
    static struct problem host_problem, p;
    const int32_t dtype = QATTN_DTYPE_BF16;
    const int64_t d = 64, period = PERIOD / (d * format_size(dtype)), rows = period * 513;
    if (!big_wanted((size_t)(rows * (d * format_size(dtype) + 4))))
        return;
    qattn_tensor host[TENSORS] = { one_period(dtype, d, 1), host_new(dtype, 1, 1, 40, d, 2),
                                   host_new(dtype, 1, 1, 40, d, 3), host_new(dtype, 1, 1, period, d, 0),
                                   host_new(QATTN_DTYPE_F32, 1, 1, period, 1, 0) };
    qattn_tensor device[TENSORS] = { 0 };
    struct far_repeat q = repeated(&host[Q], rows);
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT, host_params = QATTN_ATTN_PARAMS_INIT;
    host_params.lse = host[LSE];
    ck_assert_int_eq(qattn__problem_attention(&host_problem, OP_FLASH_FORWARD, &host[Q], &host[K], &host[V], &host[O],
                                              &host_params, false),
                     QATTN_OK);
    struct oracle oracle = oracle_make(&host_problem, 97, 1, 1);
    device[Q] = q.t;
    device[K] = device_copy(&host[K]);
    device[V] = device_copy(&host[V]);
    for (int i = O; i <= LSE; i++) {
        device[i] = q.t;
        device[i].dtype = host[i].dtype;
        device[i].shape[3] = host[i].shape[3];
        device[i].stride[2] = host[i].shape[3];
        CUDA_MUST(cudaMalloc(&device[i].data, (size_t)(rows * host[i].shape[3] * format_size(host[i].dtype))));
    }
    params.lse = device[LSE];
    ck_assert_int_eq(
        qattn__problem_attention(&p, OP_FLASH_FORWARD, &device[Q], &device[K], &device[V], &device[O], &params, false),
        QATTN_OK);
    EACH_CUDA_ROW(row) {
        case_begin("%s, an output of %" PRId64 " elements", row->id, rows * d);
        CUDA_MUST(cudaMemset(device[O].data, 0xFF, (size_t)(rows * d * format_size(dtype))));
        if (!supported(row, &p, "more than 4 GiB"))
            continue;
        run_on_cuda(row, &p, "more than 4 GiB");
        read_back(&device[O], &host[O]);
        read_back(&device[LSE], &host[LSE]);
        oracle_agrees(&oracle, &host_problem, -1, "more than 4 GiB");
        judge_repeats(&device[O], &host[O], "o");
        judge_repeats(&device[LSE], &host[LSE], "lse");
    }
    oracle_free(&oracle);
    for (int i = K; i <= LSE; i++)
        CUDA_MUST(cudaFree(device[i].data));
    for (int i = 0; i <= LSE; i++)
        free(host[i].data);
    far_repeat_free(&q);
    ck_assert_int_eq(failures(), 0);
}
END_TEST

/* Products and softmax of more than 2^31 elements, in the same way. */
START_TEST(big_simple)
{
    static struct problem p;
    static struct simple s;
    const bool softmax = _i == 1;
    const int32_t dtype = _i == 2 ? QATTN_DTYPE_BF16 : QATTN_DTYPE_F32;
    const int64_t width = 1024, in = softmax ? width : 32, item = format_size(dtype), period = PERIOD / (in * item),
                  rows = period * (softmax ? 1030 : item == 4 ? 33 : 17);
    if (!big_wanted((size_t)(rows * width * item)))
        return;
    s = (struct simple){ .op = softmax ? OP_SOFTMAX : OP_MATMUL_NT, .tensors = softmax ? 2 : 3 };
    const int output = s.tensors - 1;
    qattn_tensor device[3] = { 0 };
    s.host[0] = one_period(dtype, in, 8);
    if (!softmax)
        s.host[1] = host_new(dtype, 1, 1, width, in, 9);
    s.host[output] = host_new(dtype, 1, 1, period, width, 0);
    struct far_repeat a = repeated(&s.host[0], rows);
    device[0] = a.t;
    if (!softmax)
        device[1] = device_copy(&s.host[1]);
    device[output] = a.t;
    device[output].shape[3] = device[output].stride[2] = width;
    device[output].stride[0] = device[output].stride[1] = rows * width;
    CUDA_MUST(cudaMalloc(&device[output].data, (size_t)(rows * width * item)));
    if (softmax) {
        qattn_softmax_params params = QATTN_SOFTMAX_PARAMS_INIT;
        ck_assert_int_eq(qattn__problem_softmax(&s.problem, &s.host[0], &s.host[1], &params, false, false), QATTN_OK);
        ck_assert_int_eq(qattn__problem_softmax(&p, &device[0], &device[1], &params, false, false), QATTN_OK);
    } else {
        set_simple(&s.problem, s.op, s.host);
        set_simple(&p, s.op, device);
    }
    EACH_CUDA_ROW(row) {
        case_begin("%s %s of %" PRId64 " elements", row->id, qattn__op_name(s.op), rows * width);
        CUDA_MUST(cudaMemset(device[output].data, 0xFF, (size_t)(rows * width * item)));
        if (!supported(row, &p, "more than 4 GiB"))
            continue;
        run_on_cuda(row, &p, "more than 4 GiB");
        read_back(&device[output], &s.host[output]);
        struct simple few = s;      /* the oracle on some rows: the bits of the others are compared */
        if (!softmax)
            few.problem.a.shape[2] = few.problem.c.shape[2] = 50;
        judge_simple(&few);
        judge_repeats(&device[output], &s.host[output], "the output");
    }
    CUDA_MUST(cudaFree(device[output].data));
    if (!softmax)
        CUDA_MUST(cudaFree(device[1].data));
    for (int i = 0; i < s.tensors; i++)
        free(s.host[i].data);
    far_repeat_free(&a);
    ck_assert_int_eq(failures(), 0);
}
END_TEST

Suite *suite_cuda_big(void)
{
    Suite *s = suite_create("cuda_big");
    TCase *t = tcase_create("big");
    tcase_set_tags(t, "gpu");
    tcase_add_loop_test(t, many, 0, 16);
    tcase_add_loop_test(t, many_simple, 0, 7);
    tcase_add_loop_test(t, big_keys, 0, 2);
    tcase_add_test(t, big_outputs);
    tcase_add_loop_test(t, big_simple, 0, 3);
    suite_add_tcase(s, t);
    return s;
}

#else

/* Builds without CUDA: an empty suite, never run (main.c). */
Suite *suite_cuda_big(void) { return suite_create("cuda_big"); }

#endif
