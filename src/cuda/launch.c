/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Launches. A kernel is known by its host symbol; the runtime finds its function in the current context, and a thread
 * remembers what it found by the context's number, which no later context gets again. So a launch after the first is
 * one call of the driver, without the runtime's search. The numbers are in docs/notes/cuda_launch.md.
 */
#include "cuda/launch.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#include "cuda/driver.h"

enum { MAX_DEVICES = 64 };

/* What calls ask of a device again and again. */
static const enum cudaDeviceAttr kept[] = {
    cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor, cudaDevAttrMultiProcessorCount,
    cudaDevAttrMaxSharedMemoryPerBlockOptin, cudaDevAttrMaxSharedMemoryPerMultiprocessor, cudaDevAttrMemoryPoolsSupported,
};
enum { KEPT = sizeof kept / sizeof kept[0] };
static _Atomic(int) facts[MAX_DEVICES][KEPT];    /* value + 1; 0: not asked yet */

int32_t qattn__cuda_attribute(int *value, enum cudaDeviceAttr attribute, int32_t device_id)
{
    int k = 0;
    while (k < KEPT && kept[k] != attribute)
        k++;
    _Atomic(int) *const fact = k < KEPT && device_id < MAX_DEVICES ? &facts[device_id][k] : NULL;
    const int known = fact ? atomic_load_explicit(fact, memory_order_relaxed) : 0;
    *value = known - 1;
    if (known == 0) {
        QATTN_CUDA_TRY(cudaDeviceGetAttribute(value, attribute, device_id));
        if (fact)
            atomic_store_explicit(fact, *value + 1, memory_order_relaxed);
    }
    return QATTN_OK;
}

/* ---------------------------------------------------------------- kernels */

/* A kernel as one context has it. */
struct function {
    unsigned long long context;     /* its number; 0: this entry is free */
    const void *kernel;
    CUfunction handle;
    int shared_bytes;               /* of dynamic shared memory: it may have at least these */
};

/* What every kernel may have without being asked: 48 KB less what it declares itself. The first bound that is set. */
enum { PLAIN_SHARED_BYTES = 36 << 10, LEAST_BOUND = 49 << 10 };

/* Sets of entries that share a hash; within a set the oldest goes first. A thread's own, so that no lock is needed. */
enum { SETS = 16, WAYS = 4 };
static _Thread_local struct { struct function entry[WAYS]; unsigned oldest; } found[SETS];

static struct function *remembered(unsigned long long context, const void *kernel, unsigned *set)
{
    *set = (unsigned)((((uint64_t)(uintptr_t)kernel >> 4) + context) * UINT64_C(0x9E3779B97F4A7C15) >> 32) % SETS;
    for (int way = 0; way < WAYS; way++) {
        struct function *const f = &found[*set].entry[way];
        if (f->context == context && f->kernel == kernel)
            return f;
    }
    return NULL;
}

/* Guards the loading of kernels and their bounds of shared memory, not launches. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The first use in a context loads the kernel into it: asking for an attribute does, finding it need not. One thread at
 * a time, and before the launch, which may be captured. */
static int32_t load_function(const void *kernel, CUfunction *handle)
{
    cudaFunction_t function = NULL;
    int registers;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    const cudaError_t err = cudaGetFuncBySymbol(&function, kernel);
    *handle = (CUfunction)function;
    if (err == cudaSuccess)
        result = qattn__driver.get_attribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, *handle);
    pthread_mutex_unlock(&lock);
    if (err != cudaSuccess)
        return qattn__cuda_fail((int)err, "cudaGetFuncBySymbol");
    return result == CUDA_SUCCESS ? QATTN_OK : qattn__driver_fail(result, "cuFuncGetAttribute");
}

static int32_t current_function(const void *kernel, struct function **function)
{
    unsigned long long context = 0;
    unsigned set;
    QATTN_DRIVER_TRY(get_id, "cuCtxGetId", (NULL, &context));
    *function = remembered(context, kernel, &set);
    if (*function)
        return QATTN_OK;
    CUfunction handle;
    QATTN_TRY(load_function(kernel, &handle));
    *function = &found[set].entry[found[set].oldest++ % WAYS];
    **function = (struct function){ context, kernel, handle, PLAIN_SHARED_BYTES };
    return QATTN_OK;
}

/* The bound is the context's and only ever grows: a launch of another thread may rely on it. */
static int32_t raise_shared_bytes(struct function *f, int bytes)
{
    const CUfunction_attribute attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    const int wanted = bytes > LEAST_BOUND ? bytes : LEAST_BOUND;
    int bound = 0;
    pthread_mutex_lock(&lock);
    CUresult result = qattn__driver.get_attribute(&bound, attribute, f->handle);
    if (result == CUDA_SUCCESS && bound < wanted) {
        bound = wanted;
        result = qattn__driver.set_attribute(f->handle, attribute, bound);
    }
    if (result == CUDA_SUCCESS)
        f->shared_bytes = bound;
    pthread_mutex_unlock(&lock);
    return result == CUDA_SUCCESS ? QATTN_OK : qattn__driver_fail(result, "cuFuncSetAttribute");
}

/* The function of a kernel, ready for a launch with so much shared memory. */
static int32_t find_ready(const void *kernel, size_t shared_bytes, const char *name, CUfunction *handle)
{
    struct function *function;
    QATTN_REQUIRE(shared_bytes <= INT_MAX, QATTN_ERR_INTERNAL, "%s asks for %zu bytes of shared memory", name,
                  shared_bytes);
    QATTN_TRY(current_function(kernel, &function));
    if ((int)shared_bytes > function->shared_bytes)
        QATTN_TRY(raise_shared_bytes(function, (int)shared_bytes));
    *handle = function->handle;
    return QATTN_OK;
}

static unsigned grid_of(int64_t blocks) { return blocks < INT_MAX ? (unsigned)blocks : INT_MAX; }

int32_t qattn__cuda_launch(const void *kernel, int64_t blocks, int threads, size_t shared_bytes, void **params,
                           qattn_stream stream, const char *name)
{
    CUfunction handle = NULL;
    if (blocks <= 0)
        return QATTN_OK;
    QATTN_TRY(find_ready(kernel, shared_bytes, name, &handle));
    QATTN_DRIVER_TRY(launch, name, (handle, grid_of(blocks), 1, 1, (unsigned)threads, 1, 1, (unsigned)shared_bytes,
                                    stream, params, NULL));
    return QATTN_OK;
}

int32_t qattn__cuda_launch_early(const void *kernel, int64_t blocks, int threads, size_t shared_bytes, void **params,
                                 qattn_stream stream, const char *name)
{
    CUfunction handle = NULL;
    CUlaunchAttribute early = { .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                .value = { .programmaticStreamSerializationAllowed = 1 } };
    const CUlaunchConfig config = {
        .gridDimX = grid_of(blocks), .gridDimY = 1, .gridDimZ = 1,
        .blockDimX = (unsigned)threads, .blockDimY = 1, .blockDimZ = 1,
        .sharedMemBytes = (unsigned)shared_bytes, .hStream = stream, .attrs = &early, .numAttrs = 1,
    };
    if (blocks <= 0)
        return QATTN_OK;
    QATTN_TRY(find_ready(kernel, shared_bytes, name, &handle));
    QATTN_DRIVER_TRY(launch_ex, name, (&config, handle, params, NULL));
    return QATTN_OK;
}
