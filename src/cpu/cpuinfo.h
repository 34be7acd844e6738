/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* What this machine offers, asked once: instruction sets (of CPU *and* operating system) and CPUs. */
#ifndef QATTN_CPU_CPUINFO_H
#define QATTN_CPU_CPUINFO_H

#include <stdbool.h>

/* Feature bits alone decide: model numbers are masked or wrong under many hypervisors. */
struct cpu_features {
    bool avx2;              /* AVX2, FMA, F16C, and the OS saves ymm registers */
    bool avx512;            /* AVX-512 F, BW, DQ, VL besides all of avx2, and the OS saves zmm and mask registers */
};

struct cpu_features qattn__cpu_features(void);

/* CPUs this process may use: those of the affinity mask, at most the cgroup's CPU quota rounded up; >= 1. */
int qattn__cpu_count(void);

#endif
