/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* What this machine can do at most, measured in the same run as the kernels it is compared with: fp32
 * multiply-adds from registers, and bytes read from a buffer. x86-64; elsewhere the compiler's plain vectors. */
#ifndef QATTN_BENCH_ROOFLINE_H
#define QATTN_BENCH_ROOFLINE_H

#include <stddef.h>
#include <stdint.h>

/* Peak fp32 flop/s of `threads` threads with the instructions of a table row's arch (CPU_ARCH_*; AMX counts as
 * AVX-512). 0 where this CPU lacks them. Measured at the first call for an arch and thread count. */
double roofline_flops(int32_t arch, int threads);

/* Bytes/s at which `threads` threads read a buffer of about `bytes`, each its own part, again and again. Measured
 * at the first call for a size (to the next power of two, at most 1 GiB) and thread count. */
double roofline_read(double bytes, int threads);

#endif
