/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * What the core asks of CUDA; needs none of CUDA's headers. Nothing runs when the library is loaded: the driver is
 * looked for at the first CUDA tensor. Only qattn__cuda_run_pooled enters a context.
 *
 * cuda_error.c knows CUDA's error numbers and is in every build, so that each mapping is tested on machines without
 * CUDA; device.c, pointers.c and workspace.c talk to the runtime and are in CUDA=1 builds only.
 */
#ifndef QATTN_CUDA_DEVICE_H
#define QATTN_CUDA_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "qattn.h"

/* The QATTN_* status of a cudaError_t. Pure. Code 35 ("insufficient driver") means both "none" and "too old";
 * only the driver's version tells them apart: see qattn__cuda_driver_status. */
int32_t qattn__cuda_map_error(int code);

/* Status of code 35, given what cudaDriverGetVersion and cudaRuntimeGetVersion answered. Pure. */
int32_t qattn__cuda_driver_status(int driver_version, int runtime_version);

/* After this error the process's context is lost: every later CUDA call in it fails too. Pure. */
bool qattn__cuda_error_sticky(int code);

#if QATTN_CUDA

/* Devices of a process that the library remembers something of. */
enum { MAX_DEVICES = 64 };

/* QATTN_OK if this process may use CUDA device `device_id`, else 3xxx with the reason in the thread's text. */
int32_t qattn__cuda_status(int32_t device_id);

/* Clears the runtime's last error and returns the mapped status of `code` (a cudaError_t, not cudaSuccess);
 * the text names `what` (the call that failed), code, name and the next step. */
int32_t qattn__cuda_fail(int code, const char *what);

/* pointers.c: QATTN_OK if the device can reach every byte the problem names, else 1xxx naming the argument. */
struct problem;
int32_t qattn__cuda_check_pointers(const struct problem *p);

/* workspace.c: runs the row in `bytes` of memory from the library's own pool, given back in stream order: for calls
 * without a workspace. */
struct impl;
int32_t qattn__cuda_run_pooled(const struct impl *row, struct problem *p, qattn_stream stream, size_t bytes);

#endif

#endif
