/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The launch side, shared by all CUDA rows: the stream's context (context.c) and launches (launch.c). Workspaces of the
 * library's own are workspace.c's, below the rows: device.h has them. Host C; needs CUDA's headers.
 *
 * A row's run() is: qattn__cuda_enter, launches, qattn__cuda_leave. Between the two the stream's context is current, so
 * runtime calls concern it; afterwards the thread's current context is what it was.
 */
#ifndef QATTN_CUDA_LAUNCH_H
#define QATTN_CUDA_LAUNCH_H

#include <stddef.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "core/impls.h"
#include "core/status.h"
#include "cuda/device.h"

/* A CUDA runtime call that must succeed. */
#define QATTN_CUDA_TRY(call) \
    do { \
        const cudaError_t cuda_error_ = (call); \
        if (cuda_error_ != cudaSuccess) \
            return qattn__cuda_fail((int)cuda_error_, #call); \
    } while (0)

/* A context as the library needs it. */
struct cuda_context {
    unsigned long long id;      /* no other context of the process gets it, ever; 0: none */
    int32_t device_id;
    int multiprocessors;        /* its own: a green context has some of the device's */
};
struct cuda_scope { bool pushed; struct cuda_context outer; };

/* Makes the stream's context current; for the default streams the current context if it is one of device_id, else the
 * device's primary context. A stream of another device: ERR_DEVICE_MISMATCH. After a failure nothing is pushed. */
int32_t qattn__cuda_enter(struct cuda_scope *scope, int32_t device_id, qattn_stream stream);
/* Undoes it and returns `status`. */
int32_t qattn__cuda_leave(struct cuda_scope *scope, int32_t status);
/* What this thread entered last and has not left; id 0: nothing. */
const struct cuda_context *qattn__cuda_entered(void);

/* Loading a kernel and making a pool are no part of what any stream does, but a capture under way, of this thread or
 * another, would count them as its violation. Between the two calls it does not. */
CUstreamCaptureMode qattn__cuda_ignore_captures(void);
void qattn__cuda_heed_captures(CUstreamCaptureMode mode);

/* Does all that the kernel's first launch in the current context would do beforehand. */
int32_t qattn__cuda_load(const void *kernel);

/* Launches kernel(params...) with `blocks` blocks, at most 2^31 - 1: kernels that may have more work walk it with a
 * stride of the grid. No blocks: nothing to do. `name` is for the error text. Every kernel begins with
 * wait_for_predecessor (ptx.cuh). */
int32_t qattn__cuda_launch(const void *kernel, int64_t blocks, int threads, size_t shared_bytes, void **params,
                           qattn_stream stream, const char *name);

/* A launch's own number for arrive.cuh, of 64 - ARRIVE_BITS bits, odd. Results do not depend on it. */
uint64_t qattn__cuda_tag(void);

/* Facts of a device; no context is made. */
int32_t qattn__cuda_attribute(int *value, enum cudaDeviceAttr attribute, int32_t device_id);

/* How many multiprocessors a call's blocks may use: the context's while one is entered, else the device's, which are no
 * fewer. A workspace is sized by the device's (no context is known then), so what a plan needs must not grow when they
 * are fewer. */
int32_t qattn__cuda_multiprocessors(int *value, int32_t device_id);

#endif
