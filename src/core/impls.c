/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "core/impls.h"

#include "core/status.h"
#include "cpu/cpu.h"
#if QATTN_CUDA
#include "cuda/simt/simt.h"
#include "cuda/sm80/sm80.h"
#endif
#include "ref/ref.h"

#define CPU_ROW(isa, least, generic) \
    { .id = "cpu." #isa, .device_type = QATTN_DEVICE_CPU, .arch = least, .fallback = generic, \
      .supports = qattn__cpu_supports_##isa, .workspace = qattn__cpu_workspace_##isa, .prepare = qattn__cpu_prepare, \
      .run = qattn__cpu_run_##isa }

const struct impl qattn__impls[] = {
#if QATTN_CUDA
    { .id = "cuda.sm80", .device_type = QATTN_DEVICE_CUDA, .arch = 80, .checks_workspace = true,
      .supports = qattn__sm80_supports, .workspace = qattn__sm80_workspace, .prepare = qattn__sm80_prepare,
      .run = qattn__sm80_run },
    { .id = "cuda.simt", .device_type = QATTN_DEVICE_CUDA, .fallback = true,
      .supports = qattn__simt_supports, .workspace = qattn__simt_workspace, .prepare = qattn__simt_prepare,
      .run = qattn__simt_run },
#endif
#if defined(__x86_64__)
    CPU_ROW(avx512, CPU_ARCH_AVX512, false),
    CPU_ROW(avx2, CPU_ARCH_AVX2, false),
#endif
    CPU_ROW(generic, CPU_ARCH_GENERIC, true),
    { .id = "ref", .device_type = QATTN_DEVICE_CPU, .fallback = true,
      .supports = qattn__ref_supports, .workspace = qattn__ref_workspace, .run = qattn__ref_run },
};

const int qattn__impl_count = sizeof qattn__impls / sizeof qattn__impls[0];

int32_t qattn__workspace_exists(const struct problem *p, size_t need)
{
    QATTN_REQUIRE(need <= SIZE_MAX / 2, QATTN_ERR_WORKSPACE,
                  "a workspace for this qattn_%s is more than memory can hold; use smaller shapes",
                  qattn__op_name(p->op));
    return QATTN_OK;
}

int32_t qattn__check_workspace(const struct problem *p, size_t need)
{
    QATTN_TRY(qattn__workspace_exists(p, need));
    QATTN_REQUIRE(p->workspace_bytes >= need, QATTN_ERR_WORKSPACE,
                  "params.workspace_bytes is %zu: must be at least %zu for this call; qattn_%s_workspace tells",
                  p->workspace_bytes, need, qattn__op_name(p->op));
    return QATTN_OK;
}

const char *qattn__gqa_refusal(const struct problem *p)
{
    if (p->cu_seqlens_q || p->cu_seqlens_k)
        return "the three-kernel path takes padded batches only, and this one is packed";
    return p->page_table ? "the three-kernel path takes padded batches only, and k and v are paged" : NULL;
}
