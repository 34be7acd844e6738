/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * A CUDA of the tests' own: the linker puts these functions in the place of the runtime's (--wrap), and the driver's
 * are handed out by the lookup. Two devices of compute capability 9.0, contexts and streams as numbers, kernels that do
 * nothing. Any function can be told to fail; what was called is counted. Needs neither driver nor device.
 */
#ifndef QATTN_TESTS_FAKE_CUDA_H
#define QATTN_TESTS_FAKE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

/* Functions that can fail and are counted: X(enumerator, name in texts) */
#define FAKE_FUNCTIONS(X) \
    X(cudaGetDeviceCount) X(cudaDeviceGetAttribute) X(cudaGetDriverEntryPointByVersion) X(cudaGetFuncBySymbol) \
    X(cudaFuncGetAttributes) X(cudaStreamIsCapturing) X(cudaMemPoolCreate) X(cudaMemPoolSetAttribute) \
    X(cudaMallocFromPoolAsync) X(cudaFreeAsync) X(cuStreamGetCtx) X(cuCtxGetCurrent) X(cuCtxGetDevice) X(cuCtxGetId) \
    X(cuCtxPushCurrent) X(cuCtxPopCurrent) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxGetState) \
    X(cuFuncGetAttribute) X(cuFuncSetAttribute) X(cuLaunchKernelEx) X(cuPointerGetAttributes) \
    X(cuThreadExchangeStreamCaptureMode) X(cuCtxGetDevResource)

#define FAKE_ENUM(name) FAKE_##name,
enum fake_function { FAKE_FUNCTIONS(FAKE_ENUM) FAKE_COUNT, FAKE_NOTHING = FAKE_COUNT };
#undef FAKE_ENUM

/* Context n of device d is the handle 1 + 2 n + d; contexts 0 are the primary ones. A stream is 0x1000 + its context.
 */
enum { FAKE_DEVICES = 2, FAKE_CONTEXTS = 16, FAKE_SHARED_LIMIT = 232448, FAKE_SHARED_WHOLE = 233472,
       FAKE_STATIC_SHARED = 1024 };
static inline CUcontext fake_context(int n, int device) { return (CUcontext)(uintptr_t)(1 + 2 * n + device); }
static inline cudaStream_t fake_stream(CUcontext context) { return (cudaStream_t)((uintptr_t)context + 0x1000); }

struct fake {
    enum fake_function fails;      /* with `code`; FAKE_NOTHING: none */
    int code;
    int driver_version;            /* 0: no driver */
    int compute_mode, has_pools, devices;
    bool old_lookup;               /* the driver lacks every function asked for */
    bool no_resources;             /* the driver is older than CUDA 12.4 */
    bool capturing;
    bool others_capture;           /* in a mode that forbids what is no work of a stream: such a call fails ... */
    bool spoiled;                  /* ... and ends that capture */
    CUstreamCaptureMode capture_mode;         /* the thread's */
    const void *host_memory;       /* an address that is no device memory; NULL: all is */
    const void *other_device;      /* an address on device 1; NULL: all is on device 0 */
    bool primary_active[FAKE_DEVICES];
    CUcontext stack[8];            /* the thread's contexts, the current one last */
    int depth;                     /* how many; 0: none is current */
    unsigned long long id[FAKE_CONTEXTS];     /* numbers of contexts, by handle */
    bool destroyed[FAKE_CONTEXTS];
    unsigned multiprocessors[FAKE_CONTEXTS];
    unsigned first_blocks;         /* of the first launch since this was 0 */
    int calls[FAKE_COUNT];
    int allocated;                 /* not freed */
    int dynamic_shared[FAKE_CONTEXTS];        /* the bound of each context's kernels */
    bool too_much_shared;          /* a launch asked for more than that */
    bool early;                    /* the last launch had an attribute */
    int ptx_version;               /* of the kernels */
};
extern struct fake fake;

/* One primary context, current; nothing fails; nothing was called. */
void fake_begin(void);
const char *fake_name(enum fake_function function);

#endif
