/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The environment, read once at the first call. The only place that calls getenv; docs/abi.md lists the names. */
#ifndef QATTN_CORE_CONFIG_H
#define QATTN_CORE_CONFIG_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct config {
    char    impl[64];        /* QATTN_IMPL: the one row that may run; "" any */
    int32_t max_cpu_arch;    /* QATTN_MAX_ARCH=generic|avx2|avx512|amx as CPU_ARCH_*; INT32_MAX no cap */
    int32_t max_cuda_arch;   /* QATTN_MAX_ARCH=80|90; INT32_MAX no cap */
    int32_t num_threads;     /* QATTN_NUM_THREADS, >= 1; 0 not set */
    bool    log;             /* QATTN_LOG=1 */
    bool    check_pointers;  /* QATTN_CHECK_POINTERS=1 */
    char    error[256];      /* what is wrong with a variable, "" if nothing: every operation is then refused */
};

const struct config *qattn__config(void);

#endif
