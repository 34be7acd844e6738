/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "fake_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake fake;

void fake_begin(void)
{
    fake = (struct fake){
        .fails = FAKE_NOTHING, .driver_version = 13000, .has_pools = 1, .devices = FAKE_DEVICES, .depth = 1,
        .ptx_version = 90
    };
    fake.stack[0] = fake_context(0, 0);
    fake.primary_active[0] = true;
    for (int i = 0; i < FAKE_CONTEXTS; i++) {
        fake.id[i] = (unsigned long long)(100 + i);
        fake.dynamic_shared[i] = 48 << 10;
        fake.multiprocessors[i] = 132;
    }
}

const char *fake_name(enum fake_function function)
{
#define NAME(name) #name,
    static const char *const names[] = { FAKE_FUNCTIONS(NAME) "nothing" };
#undef NAME
    return names[function];
}

/* Counts the call; returns from the caller with the error it is to give. */
#define ENTER(name, type) \
    do { \
        fake.calls[FAKE_##name]++; \
        if (fake.fails == FAKE_##name) \
            return (type)fake.code; \
    } while (0)

/* What is no work of a stream may spoil a capture of others. */
#define ENTER_UNSAFE(name, type) \
    do { \
        ENTER(name, type); \
        if (fake.others_capture && fake.capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED) { \
            fake.spoiled = true; \
            return (type)900; \
        } \
    } while (0)

static int device_of(CUcontext context) { return (int)(((uintptr_t)context - 1) % 2); }
static CUcontext current(void) { return fake.depth > 0 ? fake.stack[fake.depth - 1] : NULL; }

/* ---------------------------------------------------------------- driver */

static CUresult stream_get_ctx(CUstream stream, CUcontext *context)
{
    ENTER(cuStreamGetCtx, CUresult);
    *context = (CUcontext)((uintptr_t)stream - 0x1000);
    return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *context)
{
    ENTER(cuCtxGetCurrent, CUresult);
    *context = current();
    return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *device)
{
    ENTER(cuCtxGetDevice, CUresult);
    if (!current())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (fake.destroyed[(uintptr_t)current()])
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *device = device_of(current());
    return CUDA_SUCCESS;
}

static CUresult get_id(CUcontext context, unsigned long long *id)
{
    ENTER(cuCtxGetId, CUresult);
    const CUcontext of = context ? context : current();
    if (fake.destroyed[(uintptr_t)of])
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *id = fake.id[(uintptr_t)of];
    return CUDA_SUCCESS;
}

static CUresult push(CUcontext context)
{
    ENTER(cuCtxPushCurrent, CUresult);
    fake.stack[fake.depth++] = context;
    return CUDA_SUCCESS;
}

/* An error that is told is one of earlier work: the context is popped nevertheless. */
static CUresult pop(CUcontext *context)
{
    *context = current();
    fake.depth--;
    ENTER(cuCtxPopCurrent, CUresult);
    return CUDA_SUCCESS;
}

static CUresult retain_primary(CUcontext *context, CUdevice device)
{
    ENTER_UNSAFE(cuDevicePrimaryCtxRetain, CUresult);
    *context = fake_context(0, device);
    fake.primary_active[device] = true;
    return CUDA_SUCCESS;
}

static CUresult primary_state(CUdevice device, unsigned *flags, int *active)
{
    ENTER(cuDevicePrimaryCtxGetState, CUresult);
    *flags = 0;
    *active = fake.primary_active[device];
    return CUDA_SUCCESS;
}

/* A function's handle is its context: all kernels of one share a bound. */
static CUresult get_attribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    ENTER_UNSAFE(cuFuncGetAttribute, CUresult);
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? fake.dynamic_shared[(uintptr_t)function]
             : attribute == CU_FUNC_ATTRIBUTE_PTX_VERSION                 ? fake.ptx_version
                                                                          : FAKE_STATIC_SHARED;
    return CUDA_SUCCESS;
}

static CUresult set_attribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    ENTER(cuFuncSetAttribute, CUresult);
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value > FAKE_SHARED_LIMIT - FAKE_STATIC_SHARED)
        return CUDA_ERROR_INVALID_VALUE;
    fake.dynamic_shared[(uintptr_t)function] = value;
    return CUDA_SUCCESS;
}

static CUresult launch(const CUlaunchConfig *c, CUfunction function, void **params, void **extra)
{
    ENTER(cuLaunchKernelEx, CUresult);
    fake.early = c->numAttrs > 0;
    fake.too_much_shared |= (int)c->sharedMemBytes > fake.dynamic_shared[(uintptr_t)function];
    if ((uintptr_t)function != (uintptr_t)current())
        return CUDA_ERROR_INVALID_HANDLE;
    if (fake.first_blocks == 0)
        fake.first_blocks = c->gridDimX;
    const bool sizes = c->gridDimX && c->gridDimY && c->gridDimZ && c->blockDimX && c->blockDimY && c->blockDimZ;
    return sizes && params && !extra ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult pointer_attributes(unsigned count, CUpointer_attribute *wanted, void **values, CUdeviceptr pointer)
{
    ENTER(cuPointerGetAttributes, CUresult);
    const bool host = fake.host_memory && pointer == (CUdeviceptr)(uintptr_t)fake.host_memory;
    const bool other = fake.other_device && pointer == (CUdeviceptr)(uintptr_t)fake.other_device;
    for (unsigned i = 0; i < count; i++) {
        if (wanted[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
            *(CUmemorytype *)values[i] = host ? (CUmemorytype)0 : CU_MEMORYTYPE_DEVICE;
        else if (wanted[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            *(int *)values[i] = host ? -2 : other;
        else if (wanted[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
            *(CUdeviceptr *)values[i] = host ? 0 : pointer;
    }
    return CUDA_SUCCESS;
}

static CUresult exchange_capture_mode(CUstreamCaptureMode *mode)
{
    ENTER(cuThreadExchangeStreamCaptureMode, CUresult);
    const CUstreamCaptureMode old = fake.capture_mode;
    fake.capture_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}

static CUresult get_resource(CUcontext context, CUdevResource *resource, CUdevResourceType type)
{
    ENTER(cuCtxGetDevResource, CUresult);
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;     /* NULL is not the current one here, as it is for cuCtxGetId */
    resource->type = type;
    resource->sm.smCount = fake.multiprocessors[(uintptr_t)context];
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- runtime */

#define WRAP(type, name, parameters) type __wrap_##name parameters; type __wrap_##name parameters

WRAP(cudaError_t, cudaGetDriverEntryPointByVersion, (const char *name, void **function, unsigned version,
     unsigned long long flags, enum cudaDriverEntryPointQueryResult *found))
{
    static const struct { const char *name; void (*function)(void); } known[] = {
#define KNOWN(name, function) { #name, (void (*)(void))function },
        KNOWN(cuStreamGetCtx, stream_get_ctx) KNOWN(cuCtxGetCurrent, get_current) KNOWN(cuCtxGetDevice, get_device)
        KNOWN(cuCtxGetId, get_id) KNOWN(cuCtxPushCurrent, push) KNOWN(cuCtxPopCurrent, pop)
        KNOWN(cuDevicePrimaryCtxRetain, retain_primary) KNOWN(cuDevicePrimaryCtxGetState, primary_state)
        KNOWN(cuFuncGetAttribute, get_attribute) KNOWN(cuFuncSetAttribute, set_attribute)
        KNOWN(cuLaunchKernelEx, launch) KNOWN(cuPointerGetAttributes, pointer_attributes)
        KNOWN(cuThreadExchangeStreamCaptureMode, exchange_capture_mode) KNOWN(cuCtxGetDevResource, get_resource)
#undef KNOWN
    };
    (void)flags;
    ENTER(cudaGetDriverEntryPointByVersion, cudaError_t);
    *function = NULL;
    *found = fake.old_lookup ? cudaDriverEntryPointVersionNotSufficent : cudaDriverEntryPointSymbolNotFound;
    for (size_t i = 0; i < sizeof known / sizeof *known && !fake.old_lookup; i++) {
        if (strcmp(known[i].name, name) == 0 && !(version > 12000 && fake.no_resources)) {
            memcpy(function, &known[i].function, sizeof *function);
            *found = cudaDriverEntryPointSuccess;
        }
    }
    return cudaSuccess;
}

WRAP(cudaError_t, cudaGetDeviceCount, (int *count))
{
    ENTER(cudaGetDeviceCount, cudaError_t);
    *count = fake.devices;
    return cudaSuccess;
}

WRAP(cudaError_t, cudaDriverGetVersion, (int *version))
{
    *version = fake.driver_version;
    return cudaSuccess;
}

WRAP(cudaError_t, cudaGetLastError, (void))
{
    return cudaSuccess;
}

WRAP(cudaError_t, cudaDeviceGetAttribute, (int *value, enum cudaDeviceAttr attribute, int device))
{
    ENTER(cudaDeviceGetAttribute, cudaError_t);
    (void)device;
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:      *value = 9; break;
    case cudaDevAttrMultiProcessorCount:         *value = 132; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = FAKE_SHARED_LIMIT; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = FAKE_SHARED_WHOLE; break;
    case cudaDevAttrComputeMode:                 *value = fake.compute_mode; break;
    case cudaDevAttrMemoryPoolsSupported:        *value = fake.has_pools; break;
    default:                                     *value = 0;
    }
    return cudaSuccess;
}

WRAP(cudaError_t, cudaGetFuncBySymbol, (cudaFunction_t *function, const void *symbol))
{
    ENTER_UNSAFE(cudaGetFuncBySymbol, cudaError_t);
    (void)symbol;
    *function = (cudaFunction_t)(uintptr_t)current();
    return cudaSuccess;
}

WRAP(cudaError_t, cudaFuncGetAttributes, (struct cudaFuncAttributes *attributes, const void *symbol))
{
    ENTER(cudaFuncGetAttributes, cudaError_t);
    (void)symbol;
    memset(attributes, 0, sizeof *attributes);
    return cudaSuccess;
}

WRAP(cudaError_t, cudaStreamIsCapturing, (cudaStream_t stream, enum cudaStreamCaptureStatus *status))
{
    ENTER(cudaStreamIsCapturing, cudaError_t);
    (void)stream;
    *status = fake.capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

WRAP(cudaError_t, cudaMemPoolCreate, (cudaMemPool_t *pool, const struct cudaMemPoolProps *props))
{
    ENTER_UNSAFE(cudaMemPoolCreate, cudaError_t);
    *pool = (cudaMemPool_t)(uintptr_t)(0x100 + props->location.id);
    return cudaSuccess;
}

WRAP(cudaError_t, cudaMemPoolSetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value))
{
    ENTER_UNSAFE(cudaMemPoolSetAttribute, cudaError_t);
    const bool threshold = attribute == cudaMemPoolAttrReleaseThreshold && *(uint64_t *)value == 64 << 20;
    const bool no_waits = attribute == cudaMemPoolReuseAllowInternalDependencies && *(int *)value == 0;
    return pool && (threshold || no_waits) ? cudaSuccess : cudaErrorInvalidValue;
}

WRAP(cudaError_t, cudaMemPoolDestroy, (cudaMemPool_t pool))
{
    return pool ? cudaSuccess : cudaErrorInvalidValue;
}

WRAP(cudaError_t, cudaMallocFromPoolAsync, (void **memory, size_t bytes, cudaMemPool_t pool, cudaStream_t stream))
{
    ENTER_UNSAFE(cudaMallocFromPoolAsync, cudaError_t);
    (void)bytes, (void)stream;
    *memory = (void *)(uintptr_t)0x7000000;
    fake.allocated++;
    return pool ? cudaSuccess : cudaErrorInvalidValue;
}

WRAP(cudaError_t, cudaFreeAsync, (void *memory, cudaStream_t stream))
{
    fake.allocated--;
    ENTER_UNSAFE(cudaFreeAsync, cudaError_t);
    (void)stream;
    return memory ? cudaSuccess : cudaErrorInvalidValue;
}

/* The library has no business with these. */
WRAP(cudaError_t, cudaSetDevice, (int device))
{
    printf("cudaSetDevice(%d) was called\n", device);
    abort();
}

WRAP(cudaError_t, cudaDeviceSynchronize, (void))
{
    printf("cudaDeviceSynchronize was called\n");
    abort();
}

WRAP(cudaError_t, cudaStreamSynchronize, (cudaStream_t stream))
{
    printf("cudaStreamSynchronize(%p) was called\n", (void *)stream);
    abort();
}

WRAP(cudaError_t, cudaMalloc, (void **memory, size_t bytes))
{
    printf("cudaMalloc(%p, %zu) was called\n", (void *)memory, bytes);
    abort();
}
