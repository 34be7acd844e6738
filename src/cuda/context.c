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

enum { VERSION_WANTED = 12000, VERSION_LATER = 12040 };

struct driver qattn__driver;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(bool) driver_ready;
/* Primary contexts this process holds on to, once retained, until it ends or resets the device. */
static _Atomic(CUcontext) primary[MAX_DEVICES];

/* The legacy default stream is meant by NULL, however the program was compiled. NULL: the driver has no such function
 * of that version. */
static int32_t find_function(const char *name, unsigned version, void **function)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    *function = NULL;
    QATTN_CUDA_TRY(cudaGetDriverEntryPointByVersion(name, function, version, cudaEnableLegacyStream, &found));
    if (found != cudaDriverEntryPointSuccess)
        *function = NULL;
    return QATTN_OK;
}

static int32_t find_needed(const char *name, void **function)
{
    QATTN_TRY(find_function(name, VERSION_WANTED, function));
    QATTN_REQUIRE(*function, QATTN_ERR_DRIVER_TOO_OLD, "the CUDA driver has no %s of version %d; update the driver",
                  name, VERSION_WANTED);
    return QATTN_OK;
}

static int32_t find_functions(void)
{
#define FIND(field, name, types) QATTN_TRY(find_needed(#name, (void **)&qattn__driver.field));
#define FIND_LATER(field, name, types) QATTN_TRY(find_function(#name, VERSION_LATER, (void **)&qattn__driver.field));
    DRIVER_FUNCTIONS(FIND)
    DRIVER_LATER_FUNCTIONS(FIND_LATER)
#undef FIND
#undef FIND_LATER
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

CUstreamCaptureMode qattn__cuda_ignore_captures(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    return qattn__driver.exchange_capture_mode(&mode) == CUDA_SUCCESS ? mode : CU_STREAM_CAPTURE_MODE_GLOBAL;
}

void qattn__cuda_heed_captures(CUstreamCaptureMode mode)
{
    (void)qattn__driver.exchange_capture_mode(&mode);
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
    const CUstreamCaptureMode mode = qattn__cuda_ignore_captures();
    CUresult result = CUDA_SUCCESS;
    if (!find_primary(device_id, context) &&
        (result = qattn__driver.retain_primary(context, device_id)) == CUDA_SUCCESS)
        atomic_store(&primary[device_id], *context);
    qattn__cuda_heed_captures(mode);
    pthread_mutex_unlock(&lock);
    return result == CUDA_SUCCESS ? QATTN_OK : qattn__driver_fail(result, "cuDevicePrimaryCtxRetain");
}

/* The handles that mean a default stream of the current context rather than a stream. */
static bool is_default_stream(qattn_stream stream)
{
    return !stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

/* ---------------------------------------------------------------- the current context */

/* Contexts this thread met last, and the one it is in. */
enum { KNOWN = 4 };
static _Thread_local struct { struct cuda_context context[KNOWN]; unsigned oldest; } known;
static _Thread_local struct cuda_context entered;

const struct cuda_context *qattn__cuda_entered(void) { return &entered; }

static int count_multiprocessors(int of_device)
{
    CUdevResource resource;
    CUcontext current = NULL;
    if (!qattn__driver.get_resource || qattn__driver.get_current(&current) != CUDA_SUCCESS || !current ||
        qattn__driver.get_resource(current, &resource, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS ||
        resource.sm.smCount == 0 || resource.sm.smCount > (unsigned)of_device)
        return of_device;
    return (int)resource.sm.smCount;
}

/* Fills in `context` but for its number. */
static int32_t describe_current(struct cuda_context *context)
{
    CUdevice device = -1;
    int multiprocessors = 0;
    QATTN_DRIVER_TRY(get_device, "cuCtxGetDevice", (&device));
    QATTN_TRY(qattn__cuda_attribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    context->device_id = device;
    context->multiprocessors = count_multiprocessors(multiprocessors);
    return QATTN_OK;
}

/* The context that is current, as `entered`. *destroyed: there is one no more, its maker has destroyed it. */
static int32_t identify_current(bool *destroyed)
{
    struct cuda_context context = { 0 };
    const CUresult result = qattn__driver.get_id(NULL, &context.id);
    *destroyed = result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (result != CUDA_SUCCESS)
        return *destroyed ? QATTN_OK : qattn__driver_fail(result, "cuCtxGetId");
    for (int i = 0; i < KNOWN; i++) {
        if (known.context[i].id == context.id) {
            entered = known.context[i];
            return QATTN_OK;
        }
    }
    QATTN_TRY(describe_current(&context));
    entered = known.context[known.oldest++ % KNOWN] = context;
    return QATTN_OK;
}

/* Enters the current context if it is the one wanted: of a real stream `wanted`, of a default stream (wanted NULL) any
 * of the device. What another thread destroyed while it was current here is none. */
static int32_t enter_current(CUcontext wanted, int32_t device_id, bool *done)
{
    CUcontext current = NULL;
    bool destroyed = false;
    *done = false;
    const CUresult result = qattn__driver.get_current(&current);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_CONTEXT_IS_DESTROYED)
        return qattn__driver_fail(result, "cuCtxGetCurrent");
    if (result != CUDA_SUCCESS || !current || (wanted && wanted != current))
        return QATTN_OK;
    QATTN_TRY(identify_current(&destroyed));
    *done = !destroyed && (wanted || entered.device_id == device_id);
    return QATTN_OK;
}

static int32_t enter_context(struct cuda_scope *scope, int32_t device_id, qattn_stream stream)
{
    CUcontext wanted = NULL;
    bool done, destroyed = false;
    if (!is_default_stream(stream))
        QATTN_DRIVER_TRY(stream_get_ctx, "cuStreamGetCtx", (stream, &wanted));
    QATTN_TRY(enter_current(wanted, device_id, &done));
    if (done)
        return QATTN_OK;
    if (!wanted)
        QATTN_TRY(primary_context(device_id, &wanted));
    QATTN_DRIVER_TRY(push, "cuCtxPushCurrent", (wanted));
    scope->pushed = true;
    QATTN_TRY(identify_current(&destroyed));
    return destroyed ? qattn__driver_fail(CUDA_ERROR_CONTEXT_IS_DESTROYED, "cuCtxGetId") : QATTN_OK;
}

int32_t qattn__cuda_enter(struct cuda_scope *scope, int32_t device_id, qattn_stream stream)
{
    *scope = (struct cuda_scope){ .outer = entered };
    QATTN_TRY(qattn__cuda_load_driver());
    const int32_t status = enter_context(scope, device_id, stream);
    if (status != QATTN_OK)
        return qattn__cuda_leave(scope, status);
    if (entered.device_id != device_id)
        return qattn__cuda_leave(
            scope, qattn__fail(QATTN_ERR_DEVICE_MISMATCH,
                               "stream %p belongs to CUDA device %d, the tensors to device %d: both must be on one",
                               (void *)stream, (int)entered.device_id, (int)device_id));
    return QATTN_OK;
}

int32_t qattn__cuda_leave(struct cuda_scope *scope, int32_t status)
{
    CUcontext popped;
    entered = scope->outer;
    if (!scope->pushed)
        return status;
    scope->pushed = false;
    const CUresult result = qattn__driver.pop(&popped);
    return status == QATTN_OK && result != CUDA_SUCCESS ? qattn__driver_fail(result, "cuCtxPopCurrent") : status;
}
