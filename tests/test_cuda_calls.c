/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * What a call on CUDA tensors does to its surroundings: contexts, streams, captures, workspaces, memory. Values are
 * judged against the CPU row; the grids of check_impls.c judge them in full.
 */
#include <check.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "suites.h"
#include "support.h"

#if QATTN_CUDA

#include <cuda.h>
#include <cuda_runtime_api.h>

#define MUST(call) ck_assert_msg((call) == cudaSuccess, "%s: %s", #call, cudaGetErrorString(cudaGetLastError()))
#define QMUST(call) \
    do { \
        char text_[256]; \
        const int32_t status_ = (call); \
        qattn_last_error(text_, sizeof text_); \
        ck_assert_msg(status_ == QATTN_OK, "%s: %d: %s", #call, status_, text_); \
    } while (0)

/* Decode: one row, many keys, so that keys are split and a workspace is needed. */
enum { HQ = 8, HKV = 2, SK = 3000, D = 64, Q_FLOATS = HQ * D, KV_FLOATS = HKV * SK * D };

struct call {
    float *q, *k, *v, *o;          /* on the device */
    int32_t *used;                 /* seqused_k [1] */
    void *workspace;
    qattn_tensor tq, tk, tv, to;
    qattn_attn_params params;
    float host_q[Q_FLOATS], host_o[Q_FLOATS], *host_k, *host_v;
};

static void fill(float *x, int64_t n, uint64_t seed)
{
    struct rng r = { seed, 0 };
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)rng_normal(&r);
}

static void tensors(qattn_tensor *t, void *q, void *k, void *v, void *o, int32_t device)
{
    QMUST(qattn_tensor_init(&t[0], q, QATTN_DTYPE_F32, device, 0, QATTN_LAYOUT_BHSD, 1, HQ, 1, D));
    QMUST(qattn_tensor_init(&t[1], k, QATTN_DTYPE_F32, device, 0, QATTN_LAYOUT_BHSD, 1, HKV, SK, D));
    QMUST(qattn_tensor_init(&t[2], v, QATTN_DTYPE_F32, device, 0, QATTN_LAYOUT_BHSD, 1, HKV, SK, D));
    QMUST(qattn_tensor_init(&t[3], o, QATTN_DTYPE_F32, device, 0, QATTN_LAYOUT_BHSD, 1, HQ, 1, D));
}

static void upload(struct call *c, uint64_t seed, int32_t used)
{
    fill(c->host_q, Q_FLOATS, seed);
    fill(c->host_k, KV_FLOATS, seed + 1);
    fill(c->host_v, KV_FLOATS, seed + 2);
    MUST(cudaMemcpy(c->q, c->host_q, sizeof c->host_q, cudaMemcpyHostToDevice));
    MUST(cudaMemcpy(c->k, c->host_k, KV_FLOATS * sizeof(float), cudaMemcpyHostToDevice));
    MUST(cudaMemcpy(c->v, c->host_v, KV_FLOATS * sizeof(float), cudaMemcpyHostToDevice));
    MUST(cudaMemcpy(c->used, &used, sizeof used, cudaMemcpyHostToDevice));
    MUST(cudaMemset(c->o, 0xFF, sizeof c->host_o));
    MUST(cudaDeviceSynchronize());
}

static struct call *call_new(void)
{
    struct call *c = calloc(1, sizeof *c);
    size_t bytes = 0;
    qattn_tensor t[4];
    c->host_k = malloc(KV_FLOATS * sizeof(float));
    c->host_v = malloc(KV_FLOATS * sizeof(float));
    MUST(cudaMalloc((void **)&c->q, sizeof c->host_q));
    MUST(cudaMalloc((void **)&c->k, KV_FLOATS * sizeof(float)));
    MUST(cudaMalloc((void **)&c->v, KV_FLOATS * sizeof(float)));
    MUST(cudaMalloc((void **)&c->o, sizeof c->host_o));
    MUST(cudaMalloc((void **)&c->used, sizeof(int32_t)));
    tensors(t, c->q, c->k, c->v, c->o, QATTN_DEVICE_CUDA);
    c->tq = t[0], c->tk = t[1], c->tv = t[2], c->to = t[3];
    c->params = (qattn_attn_params)QATTN_ATTN_PARAMS_INIT;
    c->params.seqused_k = c->used;
    QMUST(qattn_flash_forward_workspace(&c->tq, &c->tk, &c->tv, &c->to, &c->params, &bytes));
    ck_assert_msg(bytes > 0, "the case needs no workspace, so it tests nothing");
    MUST(cudaMalloc(&c->workspace, bytes));
    c->params.workspace = c->workspace;
    c->params.workspace_bytes = bytes;
    return c;
}

static void call_free(struct call *c)
{
    MUST(cudaFree(c->q));
    MUST(cudaFree(c->k));
    MUST(cudaFree(c->v));
    MUST(cudaFree(c->o));
    MUST(cudaFree(c->used));
    MUST(cudaFree(c->workspace));
    free(c->host_k);
    free(c->host_v);
    free(c);
}

static int32_t forward(struct call *c, cudaStream_t stream)
{
    return qattn_flash_forward(&c->tq, &c->tk, &c->tv, &c->to, &c->params, stream);
}

/* O on the device is what the CPU computes from the same numbers. */
static void expect_right(struct call *c, int32_t used)
{
    float want[Q_FLOATS];
    qattn_tensor t[4];
    tensors(t, c->host_q, c->host_k, c->host_v, want, QATTN_DEVICE_CPU);
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    params.seqused_k = &used;
    QMUST(qattn_flash_forward(&t[0], &t[1], &t[2], &t[3], &params, NULL));
    MUST(cudaMemcpy(c->host_o, c->o, sizeof c->host_o, cudaMemcpyDeviceToHost));
    for (int i = 0; i < Q_FLOATS; i++)
        ck_assert_msg(fabsf(c->host_o[i] - want[i]) <= 1e-5f, "o[%d] is %g, want %g", i, (double)c->host_o[i],
                      (double)want[i]);
}

START_TEST(workspaces)
{
    struct call *const c = call_new();
    cudaStream_t stream;
    MUST(cudaStreamCreate(&stream));
    upload(c, 1, SK);
    QMUST(forward(c, stream));
    MUST(cudaStreamSynchronize(stream));
    expect_right(c, SK);

    MUST(cudaMemset(c->o, 0xFF, sizeof c->host_o));
    const size_t bytes = c->params.workspace_bytes;
    c->params.workspace_bytes = bytes - 1;
    ck_assert_int_eq(forward(c, stream), QATTN_ERR_WORKSPACE);
    c->params.workspace = NULL;                    /* from the library's own pool */
    for (int i = 0; i < 3; i++)
        QMUST(forward(c, stream));
    MUST(cudaStreamSynchronize(stream));
    expect_right(c, SK);
    QMUST(forward(c, NULL));                       /* the default stream likewise */
    MUST(cudaDeviceSynchronize());
    expect_right(c, SK);
    MUST(cudaStreamDestroy(stream));
    call_free(c);
}
END_TEST

START_TEST(graphs)
{
    struct call *const c = call_new();
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    upload(c, 5, SK);
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    QMUST(forward(c, stream));
    const void *const workspace = c->params.workspace;
    c->params.workspace = NULL;
    const int32_t refused = forward(c, stream);    /* would allocate: refused, and the capture goes on */
    c->params.workspace = c->workspace;
    ck_assert_ptr_eq(workspace, c->workspace);
    MUST(cudaStreamEndCapture(stream, &graph));
    ck_assert_int_eq(refused, QATTN_ERR_WORKSPACE);
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    static const int32_t used[] = { SK, 1, 700, 0, SK - 1 };
    for (size_t i = 0; i < sizeof used / sizeof *used; i++) {
        upload(c, 10 + i, used[i]);                /* new numbers, new length */
        MUST(cudaGraphLaunch(exec, stream));
        MUST(cudaStreamSynchronize(stream));
        expect_right(c, used[i]);
    }
    MUST(cudaGraphExecDestroy(exec));
    MUST(cudaGraphDestroy(graph));
    MUST(cudaStreamDestroy(stream));
    call_free(c);
}
END_TEST

/* ---------------------------------------------------------------- contexts */

static CUresult (*get_current)(CUcontext *);
static CUresult (*set_current)(CUcontext);
static CUresult (*context_create)(CUcontext *, CUctxCreateParams *, unsigned, CUdevice);
static CUresult (*context_destroy)(CUcontext);

static void *driver_function(const char *name, unsigned version)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found;
    MUST(cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found));
    ck_assert_ptr_nonnull(function);
    return function;
}

static void find_driver(void)
{
    *(void **)&get_current = driver_function("cuCtxGetCurrent", 12000);
    *(void **)&set_current = driver_function("cuCtxSetCurrent", 12000);
    *(void **)&context_create = driver_function("cuCtxCreate", 13000);
    *(void **)&context_destroy = driver_function("cuCtxDestroy", 12000);
}

struct thread_result { struct call *c; int32_t status; CUcontext before, after; };

/* A thread that never touched CUDA: no context is current, before and after. */
static void *call_without_context(void *arg)
{
    struct thread_result *const r = arg;
    get_current(&r->before);
    r->status = forward(r->c, NULL);
    get_current(&r->after);
    return NULL;
}

START_TEST(contexts)
{
    struct call *const c = call_new();
    struct thread_result result = { .c = c };
    pthread_t thread;
    find_driver();
    upload(c, 20, SK);
    ck_assert_int_eq(pthread_create(&thread, NULL, call_without_context, &result), 0);
    pthread_join(thread, NULL);
    ck_assert_int_eq(result.status, QATTN_OK);
    ck_assert_ptr_null(result.before);
    ck_assert_ptr_null(result.after);
    MUST(cudaDeviceSynchronize());
    expect_right(c, SK);
    call_free(c);
}
END_TEST

/* A stream of a second context, while the first one is current. */
START_TEST(second_context)
{
    CUcontext first, second, current;
    cudaStream_t stream;
    find_driver();
    MUST(cudaFree(NULL));
    ck_assert_int_eq(get_current(&first), CUDA_SUCCESS);
    ck_assert_int_eq(context_create(&second, NULL, 0, 0), CUDA_SUCCESS);
    struct call *const c = call_new();             /* memory of the second context */
    upload(c, 30, SK);
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ck_assert_int_eq(set_current(first), CUDA_SUCCESS);
    for (int i = 0; i < 2; i++) {
        if (i == 1)
            c->params.workspace = NULL;
        QMUST(forward(c, stream));
        ck_assert_int_eq(get_current(&current), CUDA_SUCCESS);
        ck_assert_ptr_eq(current, first);
    }
    ck_assert_int_eq(set_current(second), CUDA_SUCCESS);
    MUST(cudaStreamSynchronize(stream));
    expect_right(c, SK);
    MUST(cudaStreamDestroy(stream));
    call_free(c);
    ck_assert_int_eq(set_current(first), CUDA_SUCCESS);
    ck_assert_int_eq(context_destroy(second), CUDA_SUCCESS);
}
END_TEST

/* ---------------------------------------------------------------- errors, memory, cost */

START_TEST(refusals)
{
    struct call *const c = call_new();
    char text[512];
    qattn_tensor other = c->to;
    other.device_id = 1;
    ck_assert_int_eq(qattn_flash_forward(&c->tq, &c->tk, &c->tv, &other, &c->params, NULL), QATTN_ERR_DEVICE_MISMATCH);
    c->params.flags = QATTN_FLAG_NO_FALLBACK;
    ck_assert_int_eq(forward(c, NULL), QATTN_ERR_NO_IMPLEMENTATION);
    c->params.flags = 0;
    QMUST(qattn_flash_forward_explain(&c->tq, &c->tk, &c->tv, &c->to, &c->params, text, sizeof text));
    ck_assert_msg(strncmp(text, "cuda.", 5) == 0, "%s", text);
    QMUST(qattn_flash_forward_prepare(&c->tq, &c->tk, &c->tv, &c->to, &c->params));
    int devices = 0;
    MUST(cudaGetDeviceCount(&devices));
    if (devices > 1) {
        cudaStream_t stream;
        MUST(cudaSetDevice(1));
        MUST(cudaStreamCreate(&stream));
        MUST(cudaSetDevice(0));
        ck_assert_int_eq(forward(c, stream), QATTN_ERR_DEVICE_MISMATCH);
        MUST(cudaStreamDestroy(stream));
        count_run("cuda stream of another device", 1);
    } else {
        count_skipped("cuda stream of another device", "one device", 1);
    }
    call_free(c);
}
END_TEST

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

START_TEST(memory_and_cost)
{
    enum { CALLS = 10000, MOST_US = 50 };    /* loose: any machine; the figures are in docs/notes/cuda_launch.md */
    struct call *const c = call_new();
    cudaStream_t stream;
    size_t before = 0, after = 0, total;
    double *const us = malloc(CALLS * sizeof *us);
    MUST(cudaStreamCreate(&stream));
    upload(c, 40, 128);
    QMUST(forward(c, stream));
    MUST(cudaStreamSynchronize(stream));
    for (int tries = 0; tries == 0 || (after != before && tries < 5); tries++) {    /* others may use the device too */
        MUST(cudaMemGetInfo(&before, &total));
        for (int i = 0; i < CALLS; i++) {
            const double start = now();
            QMUST(forward(c, stream));
            us[i] = now() - start;
            if (i % 50 == 49)
                MUST(cudaStreamSynchronize(stream));
        }
        MUST(cudaStreamSynchronize(stream));
        MUST(cudaMemGetInfo(&after, &total));
    }
    ck_assert_msg(after == before, "free memory went from %zu to %zu", before, after);
    qsort(us, CALLS, sizeof *us, compare);
    printf("host cost of a split call with a workspace (2 launches): median %.2f us\n", us[CALLS / 2]);
    ck_assert_msg(us[CALLS / 2] < MOST_US, "the host's part of a call took %.1f us", us[CALLS / 2]);
    free(us);
    MUST(cudaStreamDestroy(stream));
    call_free(c);
}
END_TEST

Suite *suite_cuda_calls(void)
{
    Suite *s = suite_create("cuda_calls");
    TCase *t = tcase_create("calls");
    tcase_set_tags(t, "gpu");
    tcase_add_test(t, graphs);             /* first: the capture is then the kernel's first use */
    tcase_add_test(t, workspaces);
    tcase_add_test(t, contexts);
    tcase_add_test(t, second_context);
    tcase_add_test(t, refusals);
    tcase_add_test(t, memory_and_cost);
    suite_add_tcase(s, t);
    return s;
}

#else

/* Builds without CUDA: an empty suite, never run (main.c). */
Suite *suite_cuda_calls(void) { return suite_create("cuda_calls"); }

#endif
