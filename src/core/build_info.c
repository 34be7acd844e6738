/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "core/build_info.h"

#include "qattn.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

#if defined(__x86_64__)
#define CPU_PART "cpu generic avx2 avx512"
#else
#define CPU_PART "cpu generic"
#endif

#if QATTN_CUDA
#define CUDA_PART "cuda " QATTN_CUDA_ARCHS
#else
#define CUDA_PART "no cuda"
#endif

const char *qattn__build_info(void)
{
    return "libqattn " TEXT(QATTN_VERSION_MAJOR) "." TEXT(QATTN_VERSION_MINOR) "." TEXT(QATTN_VERSION_PATCH)
           " (abi " TEXT(QATTN_ABI_VERSION) "), compiler " __VERSION__ ", " CPU_PART ", " CUDA_PART;
}
