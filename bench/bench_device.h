/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* CUDA device 0 for the bench: memory, and times of calls. In a build without CUDA nothing here is usable. */
#ifndef QATTN_BENCH_DEVICE_H
#define QATTN_BENCH_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "qattn.h"

/* There is a device this build can use; if not, *why says why. */
bool bench_device_usable(const char **why);
/* "NVIDIA H200, compute capability 9.0". */
const char *bench_device_name(void);
/* The stream all of this uses. */
qattn_stream bench_device_stream(void);

/* NULL: out of memory. */
void *bench_device_alloc(size_t bytes);
void bench_device_free(void *memory);
void bench_device_upload(void *device, const void *host, size_t bytes);
void bench_device_download(void *host, const void *device, size_t bytes);

/* Something that queues work on the stream: a call of the library. */
struct bench_work_item {
    int32_t (*call)(const void *context, qattn_stream stream);
    const void *context;
};

/* Waits for the stream. False: the device reports an error, told in why[cap]. */
bool bench_device_wait(char *why, size_t cap);

/* Replays of a CUDA graph of several calls; times[] receives seconds of one call, one number a replay. As many
 * replays as fit into ms, at least 5 and at most `max`; `repeat` > 0: exactly so many. cold: every call is preceded
 * by a write over twice the L2 cache, whose own time is taken by a graph of its own and subtracted. Returns the
 * number of replays, 0 on failure, told in why[cap]. */
int bench_device_time(struct bench_work_item item, double ms, int repeat, bool cold, double *times, int max, char *why,
                      size_t cap);

/* Median seconds the host spends in one call. */
double bench_device_host_time(struct bench_work_item item);

/* What the device can do at most, measured (roofline_device.cu): flop/s of registers alone, and bytes/s of reading a
 * buffer of about `bytes` again and again. */
enum bench_unit { UNIT_FMA32, UNIT_MMA16, UNIT_MMA_TF32, UNIT_COUNT };
double bench_device_flops(enum bench_unit unit);
double bench_device_read(double bytes);
/* One line: those that were measured. */
void bench_device_print_limits(void);

#endif
