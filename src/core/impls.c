/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "core/impls.h"

#include "cpu/cpu.h"
#if QATTN_CUDA
#include "cuda/simt/simt.h"
#include "cuda/sm80/sm80.h"
#endif
#include "ref/ref.h"

#define CPU_ROW(isa, arch, fallback) \
    { "cpu." #isa, QATTN_DEVICE_CPU, arch, fallback, false, qattn__cpu_supports_##isa, qattn__cpu_workspace_##isa, \
      qattn__cpu_prepare, qattn__cpu_run_##isa }

const struct impl qattn__impls[] = {
#if QATTN_CUDA
    { "cuda.sm80", QATTN_DEVICE_CUDA, 80, false, true, qattn__sm80_supports, qattn__sm80_workspace,
      qattn__sm80_prepare, qattn__sm80_run },
    { "cuda.simt", QATTN_DEVICE_CUDA, 0, true, false, qattn__simt_supports, qattn__simt_workspace,
      qattn__simt_prepare, qattn__simt_run },
#endif
#if defined(__x86_64__)
    CPU_ROW(avx512, CPU_ARCH_AVX512, false),
    CPU_ROW(avx2, CPU_ARCH_AVX2, false),
#endif
    CPU_ROW(generic, CPU_ARCH_GENERIC, true),
    { "ref", QATTN_DEVICE_CPU, 0, true, false, qattn__ref_supports, qattn__ref_workspace, NULL, qattn__ref_run },
};

const int qattn__impl_count = sizeof qattn__impls / sizeof qattn__impls[0];
