/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Scenarios of test_cuda_fresh: two devices. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_fresh.h"

static void need_two(void)
{
    int devices = 0;
    find_driver();
    MUST(cudaGetDeviceCount(&devices));
    if (devices < 2) {
        printf("one device\n");
        exit(SKIPPED);
    }
}

struct stranger { struct call *c; int32_t status; };

static void *forward_anywhere(void *arg)
{
    struct stranger *const r = arg;
    r->status = forward(r->c, NULL);
    return current() ? (void *)r : NULL;
}

/* Two devices: each call on its own, nothing on the other, wrong streams refused. */
void fresh_two_devices(void)
{
    void *left_current = NULL;
    cudaStream_t streams[2];
    struct call *calls[2];
    need_two();
    calls[0] = call_new(0);
    MUST(forward(calls[0], NULL));
    expect_right(calls[0], SK);
    EXPECT(primary_active(0) && !primary_active(1));
    MUST(cudaStreamCreate(&streams[0]));
    MUST(cudaSetDevice(1));
    calls[1] = call_new(1);
    MUST(cudaStreamCreate(&streams[1]));
    for (int i = 0; i < 16; i++) {
        const int here = i & 1, there = i >> 1 & 1;      /* current device; device of the call */
        MUST(cudaSetDevice(there));
        upload(calls[there], (uint64_t)i, 300 + i);
        MUST(cudaSetDevice(here));
        const CUcontext before = current();
        MUST(forward(calls[there], i & 4 ? streams[there] : NULL));
        EXPECT(current() == before);
        EXPECT(forward(calls[there], streams[!there]) == QATTN_ERR_DEVICE_MISMATCH);
        EXPECT(current() == before);
        MUST(cudaSetDevice(there));
        expect_right(calls[there], 300 + i);
        if (i == 7)
            calls[0]->params.workspace = calls[1]->params.workspace = NULL;
    }
    qattn_tensor strange = calls[0]->t[1];
    strange.device_id = 1;
    EXPECT(qattn_flash_forward(&calls[0]->t[0], &strange, &calls[0]->t[2], &calls[0]->t[3], NULL, NULL) ==
           QATTN_ERR_DEVICE_MISMATCH);
    for (int i = 0; i < 2; i++) {
        struct stranger r = { calls[i], -1 };
        pthread_t thread;
        MUST(cudaSetDevice(i));
        upload(calls[i], 90, 9);
        MUST(pthread_create(&thread, NULL, forward_anywhere, &r));
        MUST(pthread_join(thread, &left_current));
        MUST(r.status);
        EXPECT(!left_current);
        expect_right(calls[i], 9);
    }
}

/* All of it on device 1 while device 0 is current: preparation, a capture, its replay. Device 0 gets nothing, not even
 * a context where the thread has none. */
void fresh_two_devices_apart(void)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    qattn_tensor t[4];
    static float memory[4][16];
    setenv("QATTN_CHECK_POINTERS", "1", 1);
    need_two();
    tensors(t, memory[0], memory[1], memory[2], memory[3], QATTN_DEVICE_CUDA, 1);
    MUST(qattn_flash_forward_prepare(&t[0], &t[1], &t[2], &t[3], NULL));
    EXPECT(!primary_active(0) && primary_active(1) && !current());
    MUST(cudaSetDevice(1));
    struct call *const c = call_new(1);
    MUST(qattn_flash_forward_prepare(&c->t[0], &c->t[1], &c->t[2], &c->t[3], &c->params));
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    EXPECT(!primary_active(0));
    MUST(cudaSetDevice(0));
    MUST(cudaFree(NULL));
    const CUcontext before = current();
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    MUST(forward(c, stream));
    MUST(cudaStreamEndCapture(stream, &graph));
    EXPECT(current() == before);
    MUST(cudaSetDevice(1));
    replay(c, graph, stream);
    /* a workspace of device 0 is found where pointers are checked */
    MUST(cudaSetDevice(0));
    MUST(cudaMalloc(&c->params.workspace, SPACE));
    const int32_t status = forward(c, stream);
    char text[512];
    qattn_last_error(text, sizeof text);
    EXPECT(status == QATTN_ERR_DEVICE_MISMATCH && strstr(text, "params.workspace"));
}

enum { THREADS = 16, CALLS = 50 };
struct worker { struct call *c; cudaStream_t stream; int32_t status; };

static void *work(void *arg)
{
    struct worker *const w = arg;
    for (int i = 0; i < CALLS && w->status == QATTN_OK; i++)
        w->status = forward(w->c, w->stream);
    return NULL;
}

/* Threads of which every other calls on device 1, half of each kind without a workspace: the same bits on both. */
void fresh_two_devices_threads(void)
{
    pthread_t threads[THREADS];
    struct worker workers[THREADS];
    need_two();
    for (int i = 0; i < THREADS; i++) {
        MUST(cudaSetDevice(i % 2));
        workers[i] = (struct worker){ call_new(i % 2), NULL, QATTN_OK };
        MUST(cudaStreamCreateWithFlags(&workers[i].stream, cudaStreamNonBlocking));
        if (i / 2 % 2)
            workers[i].c->params.workspace = NULL;
    }
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, work, &workers[i]));
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_join(threads[i], NULL));
    for (int i = 0; i < THREADS; i++) {
        MUST(cudaSetDevice(i % 2));
        MUST(workers[i].status);
        expect_right(workers[i].c, SK);
        EXPECT(memcmp(workers[i].c->host_o, workers[0].c->host_o, sizeof workers[i].c->host_o) == 0);
    }
}
