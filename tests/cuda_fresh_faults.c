/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Scenarios of test_cuda_fresh: faults, QATTN_CHECK_POINTERS=1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_fresh.h"

void fresh_forked(void)
{
    struct call *const c = call_new(0);
    MUST(forward(c, NULL));
    MUST(cudaDeviceSynchronize());
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0)
        _exit(forward(c, NULL) == QATTN_ERR_FORKED ? EXIT_SUCCESS : EXIT_FAILURE);
    int status = -1;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
    MUST(forward(c, NULL));
    expect_right(c, SK);
}

/* A kernel reads where nothing is: the context is lost, and every call from then on says so. */
void fresh_context_lost(void)
{
    char text[512];
    struct call *const c = call_new(0);
    const qattn_tensor good = c->t[1];
    MUST(forward(c, NULL));
    c->t[1].data = (void *)(uintptr_t)0x100;
    MUST(forward(c, NULL));                     /* the launch is fine; the fault comes later */
    EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    c->t[1] = good;
    for (int i = 0; i < 3; i++) {
        EXPECT(forward(c, i ? cudaStreamPerThread : NULL) == QATTN_ERR_CUDA);
        qattn_last_error(text, sizeof text);
        EXPECT(strstr(text, "700") && strstr(text, "cudaErrorIllegalAddress") && strstr(text, "lost") &&
               strstr(text, "earlier work"));
    }
    printf("%s\n", text);
    c->params.workspace = NULL;
    EXPECT(forward(c, NULL) == QATTN_ERR_CUDA);
}

/* More memory than the device has: refused, and fine again once there is some. */
void fresh_no_memory(void)
{
    enum { MOST = 64 };
    struct call *const c = call_new(0);
    size_t available, total;
    void *rest[MOST] = { NULL };
    int blocks = 0;
    cudaStream_t stream;
    MUST(cudaStreamCreate(&stream));
    c->params.workspace = NULL;
    c->params.num_splits = 0;
    const int64_t rows = INT64_C(1) << 26;      /* gqa's scores: 2^26 rows x 3000 keys x 8 heads x 4 bytes */
    for (int i = 0; i < 4; i += 3) {
        c->t[i].shape[2] = rows;
        c->t[i].stride[1] = rows * D;
        c->t[i].stride[0] = HQ * rows * D;
    }
    EXPECT(qattn_gqa_forward(&c->t[0], &c->t[1], &c->t[2], &c->t[3], &c->params, stream) == QATTN_ERR_WORKSPACE);
    tensors(c->t, c->q, c->k, c->v, c->o, QATTN_DEVICE_CUDA, 0);
    c->params.num_splits = 5;
    MUST(forward(c, stream));
    expect_right(c, SK);
    MUST(cudaMemGetInfo(&available, &total));
    for (size_t size = available; size >= 1 << 20 && blocks < MOST; size /= 2)
        if (cudaMalloc(&rest[blocks], size) == cudaSuccess)
            blocks++;
    (void)cudaGetLastError();
    const int32_t status = forward(c, stream);
    printf("with %d blocks taken: %s\n", blocks, qattn_status_name(status));
    EXPECT(status == QATTN_ERR_WORKSPACE || status == QATTN_OK);      /* the pool may have kept some */
    while (blocks > 0)
        MUST(cudaFree(rest[--blocks]));
    upload(c, 80, 33);
    MUST(forward(c, stream));
    expect_right(c, 33);
}

/* ---------------------------------------------------------------- QATTN_CHECK_POINTERS=1 */

static void expect_named(struct call *c, const char *name)
{
    char text[512];
    const int32_t status = forward(c, NULL);
    qattn_last_error(text, sizeof text);
    if (status != QATTN_ERR_DEVICE_MISMATCH || !strstr(text, name))
        printf("expected 1xxx for %s, got %d: %s\n", name, (int)status, text);
    EXPECT(status == QATTN_ERR_DEVICE_MISMATCH && strstr(text, name));
}

void fresh_check_pointers(void)
{
    static const char *const names[] = { "q.data", "k.data", "v.data", "o.data" };
    setenv("QATTN_CHECK_POINTERS", "1", 1);
    struct call *const c = call_new(0);
    void *freed, *pinned, *managed;
    MUST(forward(c, NULL));
    expect_right(c, SK);
    for (int i = 0; i < 4; i++) {
        void *const good = c->t[i].data;
        c->t[i].data = c->host_k;
        expect_named(c, names[i]);
        c->t[i].data = good;
        c->t[i].stride[1] = INT64_C(1) << 44;   /* the last head lies beyond all memory */
        expect_named(c, names[i]);
        c->t[i].stride[1] = -(INT64_C(1) << 44);
        expect_named(c, names[i]);
        c->t[i].data = NULL;
        EXPECT(forward(c, NULL) == QATTN_ERR_NULL_POINTER);
        tensors(c->t, c->q, c->k, c->v, c->o, QATTN_DEVICE_CUDA, 0);
    }
    const int32_t used = 3;
    c->params.seqused_k = &used;
    expect_named(c, "params.seqused_k");
    c->params.seqused_k = c->used;
    c->params.sinks = c->host_q;
    expect_named(c, "params.sinks");
    c->params.sinks = NULL;
    float *const aligned = aligned_alloc(256, SPACE);
    void *const workspace = c->params.workspace;
    c->params.workspace = aligned;
    expect_named(c, "params.workspace");
    c->params.workspace = workspace;
    MUST(qattn_tensor_init(&c->params.lse, c->host_q, QATTN_DTYPE_F32, QATTN_DEVICE_CUDA, 0, QATTN_LAYOUT_BHSD, 1, HQ,
                           1, 1));
    expect_named(c, "params.lse");
    c->params.lse = (qattn_tensor){ 0 };
    MUST(cudaMalloc(&freed, 32 << 20));
    MUST(cudaFree(freed));
    c->t[0].data = freed;
    expect_named(c, "q.data");
    MUST(cudaMallocHost(&pinned, sizeof c->host_q));
    MUST(cudaMallocManaged(&managed, sizeof c->host_q, cudaMemAttachGlobal));
    memcpy(pinned, c->host_q, sizeof c->host_q);
    memcpy(managed, c->host_q, sizeof c->host_q);
    for (int i = 0; i < 2; i++) {
        c->t[0].data = i ? managed : pinned;
        MUST(forward(c, NULL));
        expect_right(c, SK);
    }
    int devices = 0;
    MUST(cudaGetDeviceCount(&devices));
    if (devices > 1) {
        MUST(cudaSetDevice(1));
        MUST(cudaMalloc((void **)&c->t[0].data, sizeof c->host_q));
        MUST(cudaSetDevice(0));
        expect_named(c, "q.data");
    } else {
        printf("memory of another device: not tried, one device\n");
    }
}
