/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Launches. A kernel is known by its host symbol; the runtime finds its function in the current context, and a thread
 * remembers what it found by the context's number, which no later context gets again. So a launch after the first is
 * one call of the driver and no other. Where its code was made from PTX of 9.0 or later (OWN_PTX in the Makefile), a
 * kernel may come up while the one before it in the stream ends: it waits for that one itself (wait_for_predecessor),
 * and the launch costs the host less. The numbers are in docs/notes/cuda_launch.md.
 */
#include "cuda/launch.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "cuda/common/arrive.h"
#include "cuda/driver.h"

/* What calls ask of a device again and again, the most wanted first. */
static const enum cudaDeviceAttr kept[] = {
    cudaDevAttrMaxSharedMemoryPerBlockOptin, cudaDevAttrMaxSharedMemoryPerMultiprocessor,
    cudaDevAttrComputeCapabilityMajor, cudaDevAttrMultiProcessorCount, cudaDevAttrComputeCapabilityMinor,
    cudaDevAttrMemoryPoolsSupported,
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

int32_t qattn__cuda_multiprocessors(int *value, int32_t device_id)
{
    const struct cuda_context *const context = qattn__cuda_entered();
    if (context->id == 0 || context->device_id != device_id)
        return qattn__cuda_attribute(value, cudaDevAttrMultiProcessorCount, device_id);
    *value = context->multiprocessors;
    return QATTN_OK;
}

/* ---------------------------------------------------------------- kernels */

/* A kernel as one context has it. */
struct function {
    unsigned long long context;     /* its number; 0: this entry is free */
    const void *kernel;
    CUfunction handle;
    bool waits;                     /* made from PTX of 9.0 or later: griddepcontrol.wait is an instruction */
};

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

/* Lets a block of the kernel have all the shared memory that the device can give it. A bound that never changes needs
 * no care when contexts' threads set it at once. */
static CUresult allow_shared_bytes(CUfunction handle, int limit)
{
    const CUfunction_attribute attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    int of_kernel = 0, bound = 0;
    CUresult result = qattn__driver.get_attribute(&of_kernel, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, handle);
    if (result == CUDA_SUCCESS)
        result = qattn__driver.get_attribute(&bound, attribute, handle);
    return result != CUDA_SUCCESS || bound >= limit - of_kernel
               ? result
               : qattn__driver.set_attribute(handle, attribute, limit - of_kernel);
}

/* The first use in a context loads the kernel into it: asking for an attribute does, finding it need not. One thread at
 * a time, and before the launch, which may be captured. */
static int32_t load_function(struct function *f, int shared_limit)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    cudaFunction_t function = NULL;
    int ptx_version = 0;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    const CUstreamCaptureMode mode = qattn__cuda_ignore_captures();
    const cudaError_t err = cudaGetFuncBySymbol(&function, f->kernel);
    f->handle = (CUfunction)function;
    if (err == cudaSuccess)
        result = qattn__driver.get_attribute(&ptx_version, CU_FUNC_ATTRIBUTE_PTX_VERSION, f->handle);
    if (err == cudaSuccess && result == CUDA_SUCCESS)
        result = allow_shared_bytes(f->handle, shared_limit);
    qattn__cuda_heed_captures(mode);
    pthread_mutex_unlock(&lock);
    f->waits = ptx_version >= 90 && qattn__driver.get_resource; /* a driver that can capture such launches */
    if (err != cudaSuccess)
        return qattn__cuda_fail((int)err, "cudaGetFuncBySymbol");
    return result == CUDA_SUCCESS ? QATTN_OK : qattn__driver_fail(result, "cuFuncGetAttribute, cuFuncSetAttribute");
}

/* The function of a kernel in the context that was entered, ready to be launched. */
static int32_t find_ready(const void *kernel, struct function **function)
{
    const struct cuda_context *const context = qattn__cuda_entered();
    unsigned set;
    QATTN_REQUIRE(context->id != 0, QATTN_ERR_INTERNAL, "a kernel is launched outside of a context");
    *function = remembered(context->id, kernel, &set);
    if (*function)
        return QATTN_OK;
    struct function loaded = { .context = context->id, .kernel = kernel };
    int shared_limit = 0;
    QATTN_TRY(qattn__cuda_attribute(&shared_limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, context->device_id));
    QATTN_TRY(load_function(&loaded, shared_limit));
    *function = &found[set].entry[found[set].oldest++ % WAYS];
    **function = loaded;
    return QATTN_OK;
}

int32_t qattn__cuda_load(const void *kernel)
{
    struct function *function;
    return find_ready(kernel, &function);
}

/* ---------------------------------------------------------------- launches */

int32_t qattn__cuda_launch(const void *kernel, int64_t blocks, int threads, size_t shared_bytes, void **params,
                           qattn_stream stream, const char *name)
{
    struct function *function;
    CUlaunchAttribute early = { .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                .value = { .programmaticStreamSerializationAllowed = 1 } };
    CUlaunchConfig config = {
        .gridDimX = blocks < INT_MAX ? (unsigned)blocks : INT_MAX, .gridDimY = 1, .gridDimZ = 1,
        .blockDimX = (unsigned)threads, .blockDimY = 1, .blockDimZ = 1,
        .sharedMemBytes = (unsigned)shared_bytes, .hStream = stream, .attrs = &early,
    };
    if (blocks <= 0)
        return QATTN_OK;
    QATTN_TRY(find_ready(kernel, &function));
    config.numAttrs = function->waits;
    QATTN_DRIVER_TRY(launch, name, (&config, function->handle, params, NULL));
    return QATTN_OK;
}

/* splitmix64's mixing of a count that starts at a time of day, cut to 39 bits: what lies in a workspace by chance, or
 * is left of a launch that died, is taken for this launch's once in 2^39. */
uint64_t qattn__cuda_tag(void)
{
    static _Atomic(uint64_t) count;
    uint64_t x = atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
    if (x == 0) {
        struct timespec now = { 0 };
        (void)clock_gettime(CLOCK_REALTIME, &now);
        x = (uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec;
        atomic_fetch_add_explicit(&count, x, memory_order_relaxed);
    }
    x *= UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return (x ^ x >> 31) >> ARRIVE_BITS | 1;
}
