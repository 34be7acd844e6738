/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The CPU backend's inner border. Each kernel file (flash.c, gqa.c, gemm.c, softmax.c, merge.c) is compiled once
 * per instruction set and gives, for every operation, a pair
 *
 *     size_t  qattn__cpu_<op>_workspace_<isa>(p)   bytes run uses: from shapes, capacities, dtypes, flags, num_threads
 *     int32_t qattn__cpu_<op>_<isa>(p)             computes, in p->workspace (256-byte aligned, contents undefined)
 *
 * cpu.c switches on p->op and makes the rows cpu.avx512, cpu.avx2 and cpu.generic of core/impls.c from them.
 */
#ifndef QATTN_CPU_CPU_H
#define QATTN_CPU_CPU_H

#include "core/problem.h"

#define QATTN__CPU_OP(op, isa) \
    size_t qattn__cpu_##op##_workspace_##isa(const struct problem *p); \
    int32_t qattn__cpu_##op##_##isa(const struct problem *p);

/* The row of the table: what core/impls.c names. */
#define QATTN__CPU_ROW(isa) \
    bool qattn__cpu_supports_##isa(const struct problem *p, char *why, size_t cap); \
    size_t qattn__cpu_workspace_##isa(const struct problem *p); \
    int32_t qattn__cpu_run_##isa(const struct problem *p, qattn_stream stream);

#define QATTN__CPU_ISA(isa) \
    QATTN__CPU_OP(flash, isa) \
    QATTN__CPU_OP(gqa, isa) \
    QATTN__CPU_OP(matmul, isa)      /* OP_MATMUL and OP_MATMUL_NT */ \
    QATTN__CPU_OP(softmax, isa) \
    QATTN__CPU_OP(merge, isa) \
    QATTN__CPU_ROW(isa)

QATTN__CPU_ISA(avx512)              /* declared on every machine, defined on x86-64 only */
QATTN__CPU_ISA(avx2)
QATTN__CPU_ISA(generic)

/* Starts the threads p asks for: the same for every row. */
int32_t qattn__cpu_prepare(const struct problem *p);

#endif
