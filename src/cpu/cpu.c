/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The rows cpu.avx512, cpu.avx2 and cpu.generic: one table of kernels per instruction set, indexed by operation. */
#include "cpu/cpu.h"

#include <stdio.h>

#include "core/impls.h"
#include "core/status.h"
#include "cpu/cpuinfo.h"
#include "cpu/pool.h"

struct kernel {
    size_t  (*workspace)(const struct problem *p);
    int32_t (*run)(const struct problem *p);
};

#define KERNEL(op, isa) { qattn__cpu_##op##_workspace_##isa, qattn__cpu_##op##_##isa }

static bool refuse(char *why, size_t cap, const char *reason)
{
    snprintf(why, cap, "%s", reason);
    return false;
}

/* What every instruction set runs. Types and widths were checked when the problem was made. */
static bool supports_problem(const struct problem *p, char *why, size_t cap)
{
    const char *const reason = p->op == OP_GQA_FORWARD ? qattn__gqa_refusal(p) : NULL;
    return reason ? refuse(why, cap, reason) : true;
}

int32_t qattn__cpu_prepare(const struct problem *p)
{
    if (p->num_threads > 1)
        qattn__pool_start(p->num_threads);
    return QATTN_OK;
}

#define ROW(isa, usable, reason) \
    static const struct kernel kernels_##isa[OP_COUNT] = { \
        [OP_MATMUL] = KERNEL(matmul, isa), \
        [OP_MATMUL_NT] = KERNEL(matmul, isa), \
        [OP_SOFTMAX] = KERNEL(softmax, isa), \
        [OP_GQA_FORWARD] = KERNEL(gqa, isa), \
        [OP_FLASH_FORWARD] = KERNEL(flash, isa), \
        [OP_MERGE] = KERNEL(merge, isa), \
    }; \
    bool qattn__cpu_supports_##isa(const struct problem *p, char *why, size_t cap) \
    { \
        return (usable) ? supports_problem(p, why, cap) : refuse(why, cap, reason); \
    } \
    size_t qattn__cpu_workspace_##isa(const struct problem *p) \
    { \
        return kernels_##isa[p->op].workspace(p); \
    } \
    int32_t qattn__cpu_run_##isa(const struct problem *p, qattn_stream stream) \
    { \
        (void)stream; \
        return kernels_##isa[p->op].run(p); \
    }

#if defined(__x86_64__)
ROW(avx512, qattn__cpu_features().avx512, "needs AVX-512 F, BW, DQ and VL, which this CPU or its system lacks")
ROW(avx2, qattn__cpu_features().avx2, "needs AVX2, FMA and F16C, which this CPU or its system lacks")
#endif
ROW(generic, true, "")
