/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The launch side, shared by all CUDA rows: the stream's context, workspaces, launches. Host C; needs CUDA's headers.
 *
 * A row's run() is: qattn__cuda_enter, launches, qattn__cuda_leave. Between the two the stream's context is current, so
 * runtime calls concern it; afterwards the thread's current context is what it was.
 */
#ifndef QATTN_CUDA_LAUNCH_H
#define QATTN_CUDA_LAUNCH_H

#include <stddef.h>

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

struct cuda_scope { bool pushed; };

/* Makes the stream's context current; for the default streams the current context if it is one of device_id, else the
 * device's primary context. A stream of another device: ERR_DEVICE_MISMATCH. After a failure nothing is pushed. */
int32_t qattn__cuda_enter(struct cuda_scope *scope, int32_t device_id, qattn_stream stream);
/* Undoes it and returns `status`. */
int32_t qattn__cuda_leave(struct cuda_scope *scope, int32_t status);

/* Launches kernel(params...) with `blocks` blocks, at most 2^31 - 1: kernels walk their work with a stride of the grid.
 * No blocks: nothing to do. `name` is for the error text. */
int32_t qattn__cuda_launch(const void *kernel, int64_t blocks, int threads, size_t shared_bytes, void **params,
                           qattn_stream stream, const char *name);

/* The same, but the kernel may start while the one before it in the stream still runs. It must be of code that waits
 * for that one (griddepcontrol.wait, compute capability 9.0) before it reads what that one writes. */
int32_t qattn__cuda_launch_early(const void *kernel, int64_t blocks, int threads, size_t shared_bytes, void **params,
                                 qattn_stream stream, const char *name);

/* Facts of a device; no context is made. */
int32_t qattn__cuda_attribute(int *value, enum cudaDeviceAttr attribute, int32_t device_id);

#endif
