/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Work happens in the context of the stream: that one is pushed around the launches, and popped again. cudaSetDevice is
 * never called: it would change what the caller sees, and may create a context elsewhere.
 */
#include "cuda/launch.h"

#include <pthread.h>
#include <stdatomic.h>

#include "cuda/driver.h"

enum { MAX_DEVICES = 64, VERSION_WANTED = 12000 };

struct driver qattn__driver;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(bool) driver_ready;
/* Primary contexts this process holds on to, once retained, until it ends or resets the device. */
static _Atomic(CUcontext) primary[MAX_DEVICES];

/* The legacy default stream is meant by NULL, however the program was compiled. */
static int32_t find_function(const char *name, void **function)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    *function = NULL;
    QATTN_CUDA_TRY(cudaGetDriverEntryPointByVersion(name, function, VERSION_WANTED, cudaEnableLegacyStream, &found));
    QATTN_REQUIRE(found == cudaDriverEntryPointSuccess && *function, QATTN_ERR_DRIVER_TOO_OLD,
                  "the CUDA driver has no %s of version %d; update the driver", name, VERSION_WANTED);
    return QATTN_OK;
}

static int32_t find_functions(void)
{
#define FIND(field, name, types) QATTN_TRY(find_function(#name, (void **)&qattn__driver.field));
    DRIVER_FUNCTIONS(FIND)
#undef FIND
    return QATTN_OK;
}

int32_t qattn__cuda_load_driver(void)
{
    if (atomic_load_explicit(&driver_ready, memory_order_acquire))
        return QATTN_OK;
    pthread_mutex_lock(&lock);
    const int32_t status = atomic_load(&driver_ready) ? QATTN_OK : find_functions();
    if (status == QATTN_OK)
        atomic_store_explicit(&driver_ready, true, memory_order_release);
    pthread_mutex_unlock(&lock);
    return status;
}

int32_t qattn__driver_fail(CUresult result, const char *what)
{
    return qattn__cuda_fail((int)result, what);
}

/* The device's primary context, and true, if it was retained before and not reset since. */
static bool find_primary(int32_t device_id, CUcontext *context)
{
    unsigned flags;
    int active = 0;
    *context = atomic_load(&primary[device_id]);
    return *context && qattn__driver.primary_state(device_id, &flags, &active) == CUDA_SUCCESS && active;
}

static int32_t primary_context(int32_t device_id, CUcontext *context)
{
    QATTN_REQUIRE(device_id < MAX_DEVICES, QATTN_ERR_NO_DEVICE, "device_id is %d: at most %d devices are served",
                  (int)device_id, (int)MAX_DEVICES);
    if (find_primary(device_id, context))
        return QATTN_OK;
    pthread_mutex_lock(&lock);
    CUresult result = CUDA_SUCCESS;
    if (!find_primary(device_id, context) &&
        (result = qattn__driver.retain_primary(context, device_id)) == CUDA_SUCCESS)
        atomic_store(&primary[device_id], *context);
    pthread_mutex_unlock(&lock);
    return result == CUDA_SUCCESS ? QATTN_OK : qattn__driver_fail(result, "cuDevicePrimaryCtxRetain");
}

/* The handles that mean a default stream of the current context rather than a stream. */
static bool is_default_stream(qattn_stream stream)
{
    return !stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

/* The context that belongs to the stream, and its device. A context that is current tells its device at once; another
 * one must be made current first. */
static int32_t enter_context(struct cuda_scope *scope, int32_t device_id, qattn_stream stream, CUdevice *device)
{
    CUcontext current = NULL, wanted = NULL;
    const bool by_default = is_default_stream(stream);
    QATTN_DRIVER_TRY(get_current, "cuCtxGetCurrent", (&current));
    if (current)
        QATTN_DRIVER_TRY(get_device, "cuCtxGetDevice", (device));
    if (!by_default)
        QATTN_DRIVER_TRY(stream_get_ctx, "cuStreamGetCtx", (stream, &wanted));
    else if (!current || *device != device_id)
        QATTN_TRY(primary_context(device_id, &wanted));
    else
        return QATTN_OK;
    if (wanted == current)
        return QATTN_OK;
    QATTN_DRIVER_TRY(push, "cuCtxPushCurrent", (wanted));
    scope->pushed = true;
    QATTN_DRIVER_TRY(get_device, "cuCtxGetDevice", (device));
    return QATTN_OK;
}

int32_t qattn__cuda_enter(struct cuda_scope *scope, int32_t device_id, qattn_stream stream)
{
    CUdevice device = -1;
    scope->pushed = false;
    QATTN_TRY(qattn__cuda_load_driver());
    const int32_t status = enter_context(scope, device_id, stream, &device);
    if (status != QATTN_OK)
        return qattn__cuda_leave(scope, status);
    if (device != device_id)
        return qattn__cuda_leave(scope, qattn__fail(QATTN_ERR_DEVICE_MISMATCH,
                                                    "stream %p belongs to CUDA device %d, the "
                                                    "tensors to device %d: both must be on one",
                                                    (void *)stream, (int)device, (int)device_id));
    return QATTN_OK;
}

int32_t qattn__cuda_leave(struct cuda_scope *scope, int32_t status)
{
    CUcontext popped;
    if (!scope->pushed)
        return status;
    scope->pushed = false;
    const CUresult result = qattn__driver.pop(&popped);
    return status == QATTN_OK && result != CUDA_SUCCESS ? qattn__driver_fail(result, "cuCtxPopCurrent") : status;
}
