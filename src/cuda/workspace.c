/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Workspaces of the library's own, for calls without one: a memory pool for each device, in stream order. */
#include "cuda/launch.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

/* Freed memory up to this much stays with the pool, so that calls in a row do not go to the operating system. */
static const uint64_t pool_keeps = 64u << 20;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(cudaMemPool_t) pools[MAX_DEVICES];

/* Memory freed in one stream goes to another only once the first is past it: never does the driver make the other wait
 * for that. */
static cudaError_t set_up_pool(cudaMemPool_t pool)
{
    uint64_t threshold = pool_keeps;
    int dependencies = 0;
    const cudaError_t err = cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold);
    return err != cudaSuccess ? err
                              : cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &dependencies);
}

static cudaError_t make_pool(int32_t device_id, cudaMemPool_t *pool)
{
    const struct cudaMemPoolProps props = {
        .allocType = cudaMemAllocationTypePinned,
        .location = { .type = cudaMemLocationTypeDevice, .id = device_id },
    };
    cudaError_t err = cudaMemPoolCreate(pool, &props);
    if (err != cudaSuccess)
        return err;
    err = set_up_pool(*pool);
    if (err != cudaSuccess)
        (void)cudaMemPoolDestroy(*pool);
    return err;
}

/* The pool of the device, made at first use and kept. */
static cudaError_t find_pool(int32_t device_id, cudaMemPool_t *pool)
{
    *pool = atomic_load(&pools[device_id]);
    if (*pool)
        return cudaSuccess;
    cudaError_t err = cudaSuccess;
    pthread_mutex_lock(&lock);
    *pool = atomic_load(&pools[device_id]);
    if (!*pool && (err = make_pool(device_id, pool)) == cudaSuccess)
        atomic_store(&pools[device_id], *pool);
    pthread_mutex_unlock(&lock);
    return err;
}

static int32_t check_no_capture(const struct problem *p, qattn_stream stream, size_t bytes)
{
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    QATTN_CUDA_TRY(cudaStreamIsCapturing(stream, &capture));
    QATTN_REQUIRE(capture == cudaStreamCaptureStatusNone, QATTN_ERR_WORKSPACE,
                  "params.workspace is NULL while stream %p is being captured: "
                  "pass %zu bytes that outlive the graph; qattn_%s_workspace tells how many",
                  (void *)stream, bytes, qattn__op_name(p->op));
    return QATTN_OK;
}

static cudaError_t take_from_pool(int32_t device_id, qattn_stream stream, size_t bytes, void **memory)
{
    cudaMemPool_t pool = NULL;
    const CUstreamCaptureMode mode = qattn__cuda_ignore_captures();
    cudaError_t err = find_pool(device_id, &pool);
    if (err == cudaSuccess)
        err = cudaMallocFromPoolAsync(memory, bytes, pool, stream);
    qattn__cuda_heed_captures(mode);
    return err;
}

static cudaError_t give_back(qattn_stream stream, void *memory)
{
    const CUstreamCaptureMode mode = qattn__cuda_ignore_captures();
    const cudaError_t err = cudaFreeAsync(memory, stream);
    qattn__cuda_heed_captures(mode);
    return err;
}

static int32_t allocate(const struct problem *p, qattn_stream stream, size_t bytes, void **memory)
{
    int has_pools = 0;
    QATTN_TRY(qattn__workspace_exists(p, bytes));
    QATTN_TRY(check_no_capture(p, stream, bytes));
    QATTN_TRY(qattn__cuda_attribute(&has_pools, cudaDevAttrMemoryPoolsSupported, p->device_id));
    QATTN_REQUIRE(has_pools && p->device_id < MAX_DEVICES, QATTN_ERR_WORKSPACE,
                  "params.workspace is NULL and CUDA device %" PRId32 " has no memory pools: pass %zu bytes",
                  p->device_id, bytes);
    const cudaError_t err = take_from_pool(p->device_id, stream, bytes, memory);
    if (err == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return qattn__fail(QATTN_ERR_WORKSPACE,
                           "params.workspace is NULL and CUDA device %" PRId32 " has no %zu bytes left "
                           "for it: pass a workspace, or smaller shapes",
                           p->device_id, bytes);
    }
    return err == cudaSuccess ? QATTN_OK : qattn__cuda_fail((int)err, "cudaMallocFromPoolAsync");
}

static int32_t run_in(const struct impl *row, struct problem *p, qattn_stream stream, size_t bytes)
{
    void *memory = NULL;
    QATTN_TRY(allocate(p, stream, bytes, &memory));
    p->workspace = memory;
    p->workspace_bytes = bytes;
    const int32_t status = row->run(p, stream);
    p->workspace = NULL;
    const cudaError_t err = give_back(stream, memory);
    return status == QATTN_OK && err != cudaSuccess ? qattn__cuda_fail((int)err, "cudaFreeAsync") : status;
}

int32_t qattn__cuda_run_pooled(const struct impl *row, struct problem *p, qattn_stream stream, size_t bytes)
{
    struct cuda_scope scope;
    QATTN_TRY(qattn__cuda_enter(&scope, p->device_id, stream));
    return qattn__cuda_leave(&scope, run_in(row, p, stream, bytes));
}
