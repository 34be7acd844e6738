/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The probe's functions run only where qattn__cpu_features allows; the rest of the test program is plain x86-64. */
#if defined(__x86_64__)

#include <immintrin.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define QATTN_ISA_AVX512
#define PROBE_ID "cpu.avx512"

#if defined(__clang__)
#define PROBE_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")))
#pragma clang attribute push(PROBE_TARGET, apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")
#endif

#include "simd_probe_template.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif

#else
typedef int nothing_here;       /* ISO C wants a declaration */
#endif
