/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Kernels that do one thing as fast as the device can. */
#ifndef QATTN_BENCH_ROOFLINE_DEVICE_H
#define QATTN_BENCH_ROOFLINE_DEVICE_H

#include <stddef.h>

#include "bench_device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Multiply-adds from registers on every SM; the flop of one such call. */
void roofline_device_multiply(enum bench_unit unit, qattn_stream stream);
double roofline_device_flop(enum bench_unit unit);

/* Reads buffer[bytes] `passes` times; `sink` is for the sum, so that nothing is left out. */
void roofline_device_read(const void *buffer, size_t bytes, int passes, void *sink, qattn_stream stream);

#ifdef __cplusplus
}
#endif

#endif
