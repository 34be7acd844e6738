/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Floating point as IEEE 754 starts out: nearest, subnormals kept, no traps. A caller may have set its thread otherwise
 * (flush to zero, another rounding); then bits would depend on which thread ran which task. */
#ifndef QATTN_CORE_FPENV_H
#define QATTN_CORE_FPENV_H

#if defined(__x86_64__)
#include <xmmintrin.h>

typedef unsigned fp_state;

static inline fp_state fp_enter_default(void)
{
    const fp_state saved = _mm_getcsr();
    _mm_setcsr(0x1F80);             /* every exception masked, no flag set, round to nearest */
    return saved;
}

static inline void fp_leave(fp_state saved) { _mm_setcsr(saved); }

#else
#include <fenv.h>

typedef fenv_t fp_state;

static inline fp_state fp_enter_default(void)
{
    fp_state saved;
    fegetenv(&saved);
    fesetenv(FE_DFL_ENV);
    return saved;
}

static inline void fp_leave(fp_state saved) { fesetenv(&saved); }
#endif

#endif
