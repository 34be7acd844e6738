/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Scenarios of test_cuda_fresh: contexts. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_fresh.h"

struct fresh_driver driver;

static void *driver_function(const char *name, unsigned version)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found;
    MUST(cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found));
    EXPECT(function);
    return function;
}

void find_driver(void)
{
    *(void **)&driver.get_current = driver_function("cuCtxGetCurrent", 12000);
    *(void **)&driver.set_current = driver_function("cuCtxSetCurrent", 12000);
    *(void **)&driver.create = driver_function("cuCtxCreate", 13000);
    *(void **)&driver.destroy = driver_function("cuCtxDestroy", 12000);
    *(void **)&driver.primary_state = driver_function("cuDevicePrimaryCtxGetState", 12000);
}

bool primary_active(int device)
{
    unsigned flags;
    int active = 0;
    MUST(driver.primary_state(device, &flags, &active));
    return active;
}

CUcontext current(void)
{
    CUcontext context;
    MUST(driver.get_current(&context));
    return context;
}

/* Questions create no context. */
void fresh_questions(void)
{
    char text[512];
    size_t bytes;
    qattn_tensor t[4];
    static float memory[4][16];
    find_driver();
    tensors(t, memory[0], memory[1], memory[2], memory[3], QATTN_DEVICE_CUDA, 0);
    MUST(qattn_flash_forward_workspace(&t[0], &t[1], &t[2], &t[3], NULL, &bytes));
    MUST(qattn_flash_forward_explain(&t[0], &t[1], &t[2], &t[3], NULL, text, sizeof text));
    printf("%s\n", text);
    EXPECT(strncmp(text, "cuda.", 5) == 0);
    EXPECT(bytes <= SPACE);
    EXPECT(!primary_active(0) && !current());
    MUST(qattn_flash_forward_prepare(&t[0], &t[1], &t[2], &t[3], NULL));
    EXPECT(!current());
}

/* K as queries of itself: a tile with more shared memory than a kernel has by default, which each context must allow.
 */
static void expect_wide(struct call *c, cudaStream_t stream, CUcontext home, CUcontext elsewhere)
{
    static float want[KV_FLOATS], got[KV_FLOATS];
    qattn_tensor t[4], wide = c->t[1], out = c->t[1];
    void *memory;
    MUST(driver.set_current(home));
    MUST(cudaMalloc(&memory, sizeof got));
    out.data = memory;
    MUST(driver.set_current(elsewhere));
    MUST(qattn_flash_forward(&wide, &c->t[1], &c->t[2], &out, NULL, stream));
    EXPECT(current() == elsewhere);
    MUST(driver.set_current(home));
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaMemcpy(got, memory, sizeof got, cudaMemcpyDeviceToHost));
    MUST(cudaFree(memory));
    tensors(t, c->host_q, c->host_k, c->host_v, c->host_o, QATTN_DEVICE_CPU, 0);
    out = wide = t[1];
    out.data = want;
    MUST(qattn_flash_forward(&wide, &t[1], &t[2], &out, NULL, NULL));
    for (int i = 0; i < KV_FLOATS; i++)
        EXPECT(fabsf(got[i] - want[i]) <= 1e-5f);
}

/* Contexts of the caller's own, before any other: no primary context appears, and the current one stays. */
void fresh_own_contexts(void)
{
    CUcontext contexts[2];
    struct call *calls[2];
    cudaStream_t streams[2];
    find_driver();
    for (int i = 0; i < 2; i++) {
        MUST(driver.create(&contexts[i], NULL, 0, 0));
        calls[i] = call_new(0);
        MUST(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    }
    for (int i = 0; i < 8; i++) {
        const int here = i & 1, there = i >> 1 & 1;      /* current context; context of the stream */
        MUST(driver.set_current(contexts[there]));
        upload(calls[there], (uint64_t)i, 200 + i);
        MUST(driver.set_current(contexts[here]));
        if (i == 4)
            calls[0]->params.workspace = calls[1]->params.workspace = NULL;
        MUST(forward(calls[there], streams[there]));
        EXPECT(current() == contexts[here]);
        MUST(driver.set_current(contexts[there]));
        MUST(cudaStreamSynchronize(streams[there]));
        expect_right(calls[there], 200 + i);
    }
    for (int i = 0; i < 2; i++)
        expect_wide(calls[i], streams[i], contexts[i], contexts[!i]);
    EXPECT(!primary_active(0));
    /* a context that takes a destroyed one's place is a new one */
    MUST(driver.destroy(contexts[1]));
    MUST(driver.create(&contexts[1], NULL, 0, 0));
    struct call *const c = call_new(0);
    MUST(forward(c, NULL));
    EXPECT(current() == contexts[1]);
    expect_right(c, SK);
}

static void *destroy(void *context)
{
    return driver.destroy(context) == CUDA_SUCCESS ? context : NULL;
}

/* Another thread destroys the context that is current here. Streams of other contexts do not mind, with a workspace and
 * without; default streams are those of the primary context then. */
void fresh_stale_context(void)
{
    CUcontext own, stale;
    struct call *calls[2];
    cudaStream_t stream;
    pthread_t thread;
    void *destroyed = NULL;
    find_driver();
    calls[0] = call_new(0);                     /* of the primary context */
    MUST(driver.create(&own, NULL, 0, 0));
    calls[1] = call_new(0);
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(driver.create(&stale, NULL, 0, 0));
    MUST(pthread_create(&thread, NULL, destroy, stale));
    MUST(pthread_join(thread, &destroyed));
    EXPECT(destroyed);
    CUcontext seen = NULL;
    printf("cuCtxGetCurrent: %d\n", (int)driver.get_current(&seen));
    void *const workspace = calls[1]->params.workspace;
    for (int i = 0; i < 4; i++) {
        calls[1]->params.workspace = i % 2 ? NULL : workspace;
        MUST(forward(calls[1], stream));
        MUST(forward(calls[0], i < 2 ? NULL : cudaStreamLegacy));
    }
    MUST(driver.set_current(own));
    MUST(cudaStreamSynchronize(stream));
    expect_right(calls[1], SK);
    MUST(driver.set_current(NULL));
    MUST(cudaSetDevice(0));
    expect_right(calls[0], SK);
}

/* Blocks of the largest launch of a call on the stream, from a graph of it. The driver tells: this program's runtime
 * does not know the library's kernels. */
static unsigned blocks_on(struct call *c, CUstream stream)
{
    CUresult (*get_params)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS *) = NULL;
    cudaGraph_t graph;
    cudaGraphNode_t nodes[8];
    size_t count = 8;
    unsigned most = 0;
    *(void **)&get_params = driver_function("cuGraphKernelNodeGetParams", 12000);
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    MUST(forward(c, stream));
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphGetNodes(graph, nodes, &count));
    for (size_t i = 0; i < count; i++) {
        enum cudaGraphNodeType type;
        CUDA_KERNEL_NODE_PARAMS node;
        MUST(cudaGraphNodeGetType(nodes[i], &type));
        if (type != cudaGraphNodeTypeKernel)
            continue;
        MUST(get_params(nodes[i], &node));
        most = node.gridDimX > most ? node.gridDimX : most;
    }
    MUST(cudaGraphDestroy(graph));
    return most;
}

/* A stream of a green context of at least 8 multiprocessors: the calls' work is planned for those and fits the
 * workspace that was asked for before. */
void fresh_green_context(void)
{
    CUresult (*get)(CUdevice, CUdevResource *, CUdevResourceType) = NULL;
    CUresult (*split)(CUdevResource *, unsigned *, const CUdevResource *, CUdevResource *, unsigned, unsigned) = NULL;
    CUresult (*describe)(CUdevResourceDesc *, CUdevResource *, unsigned) = NULL;
    CUresult (*create)(CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned) = NULL;
    CUresult (*create_stream)(CUstream *, CUgreenCtx, unsigned, int) = NULL;
    CUdevResource all, some, rest;
    CUdevResourceDesc description;
    CUgreenCtx green;
    CUstream stream;
    unsigned groups = 1;
    int version = 0;
    size_t bytes = 0;
    MUST(cudaDriverGetVersion(&version));
    if (version < 12050) {
        printf("the driver has no green contexts\n");
        exit(SKIPPED);
    }
    find_driver();
    *(void **)&get = driver_function("cuDeviceGetDevResource", 12040);
    *(void **)&split = driver_function("cuDevSmResourceSplitByCount", 12040);
    *(void **)&describe = driver_function("cuDevResourceGenerateDesc", 12040);
    *(void **)&create = driver_function("cuGreenCtxCreate", 12040);
    *(void **)&create_stream = driver_function("cuGreenCtxStreamCreate", 12050);
    struct call *const c = call_new(0);
    MUST(get(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    MUST(split(&some, &groups, &all, &rest, 0, 8));
    EXPECT(groups == 1);
    MUST(describe(&description, &some, 1));
    MUST(create(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    MUST(create_stream(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    c->params.num_splits = 0;
    MUST(qattn_flash_forward_workspace(&c->t[0], &c->t[1], &c->t[2], &c->t[3], &c->params, &bytes));
    EXPECT(bytes > 0);
    c->params.workspace_bytes = bytes;
    CUstream whole;
    MUST(cudaStreamCreateWithFlags(&whole, cudaStreamNonBlocking));
    EXPECT(blocks_on(c, stream) < blocks_on(c, whole));
    const CUcontext before = current();
    for (int i = 0; i < 4; i++) {
        c->params.workspace_bytes = bytes;
        upload(c, 40 + (uint64_t)i, SK - i);
        if (i == 2)
            c->params.workspace = NULL;
        MUST(forward(c, stream));
        EXPECT(current() == before);
        MUST(cudaStreamSynchronize(stream));
        expect_right(c, SK - i);
    }
    printf("%u of %u multiprocessors\n", some.sm.smCount, all.sm.smCount);
}

/* The caller resets the device: the library starts anew. */
void fresh_reset(void)
{
    find_driver();
    for (int i = 0; i < 3; i++) {
        struct call *const c = call_new(0);
        MUST(forward(c, NULL));
        expect_right(c, SK);
        c->params.workspace = NULL;
        MUST(forward(c, cudaStreamPerThread));
        expect_right(c, SK);
        MUST(cudaDeviceReset());
    }
}
