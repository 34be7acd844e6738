/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#ifndef QATTN_BENCH_MEASURE_H
#define QATTN_BENCH_MEASURE_H

#include "bench_data.h"
#include "core/impls.h"

struct bench_settings {
    int    repeat;            /* exactly so many timed calls; 0: as many as fit into ms */
    double ms;                /* time to spend on one line */
    bool   cold;              /* evict the tensors from the caches before each call (CUDA: flush L2) */
};

enum bench_verdict { BENCH_OK, BENCH_UNSUPPORTED, BENCH_FAILED, BENCH_WRONG };

struct bench_result {
    enum bench_verdict verdict;
    char   why[512];          /* unless BENCH_OK */
    int    calls;             /* timed */
    double median, min, p95;  /* seconds of one call; CUDA: of one call in a graph of several */
    double host;              /* CUDA: seconds the host spends in one call */
    double max_err;           /* against fp64, on sampled rows */
    size_t workspace_bytes;
};

/* Checks one row of the table on a case, then times it. impl NULL: the public function instead, with its checks,
 * dispatch and, on CPU, allocation. */
struct bench_result bench_measure(const struct impl *impl, struct bench_data *d,
                                  const struct bench_case *c, const struct bench_settings *settings);

#endif
