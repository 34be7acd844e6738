/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#ifndef QATTN_BENCH_TIME_H
#define QATTN_BENCH_TIME_H

#include <time.h>

/* Seconds since some fixed moment. */
static inline double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
