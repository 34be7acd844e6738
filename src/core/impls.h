/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The one ordered table of implementations: fastest first, reference last. Dispatch, tests, benches, *_explain
 * and the README's support matrix walk it; a kernel that is not in it does not exist. */
#ifndef QATTN_CORE_IMPLS_H
#define QATTN_CORE_IMPLS_H

#include "core/problem.h"

struct impl {
    const char *id;              /* "cuda.sm90.fwd", "cpu.avx512", "ref": shown to users, accepted by QATTN_IMPL */
    int32_t     device_type;     /* QATTN_DEVICE_* */
    int32_t     arch;            /* what QATTN_MAX_ARCH caps: CPU_ARCH_*, or a compute capability; 0: never capped */
    bool        fallback;        /* generic or reference: refused under NO_FALLBACK */
    bool        checks_workspace;   /* run() refuses too small a workspace itself: it plans a call anyway */

    /* Can this row run `p` on this machine? If not, writes the reason (a clause: "needs AVX-512F, which this CPU
     * lacks") to why[cap]. Touches no data. */
    bool   (*supports)(const struct problem *p, char *why, size_t cap);
    /* Upper bound of the bytes run() uses, from shapes, capacities, dtypes, flags and num_threads alone. */
    size_t (*workspace)(const struct problem *p);
    /* Loads kernels, starts threads. NULL: nothing to do. */
    int32_t (*prepare)(const struct problem *p);
    /* Computes. p->workspace holds at least workspace(p) bytes, unless the row checks that. */
    int32_t (*run)(const struct problem *p, qattn_stream stream);
};

enum { CPU_ARCH_GENERIC = 1, CPU_ARCH_AVX2 = 2, CPU_ARCH_AVX512 = 3, CPU_ARCH_AMX = 4 };

extern const struct impl qattn__impls[];
extern const int qattn__impl_count;

/* What rows share. A workspace of `need` bytes can exist; p was given that many (0 needed and none given is fine);
 * why the three kernels of gqa_forward do not take p, NULL if they do. */
int32_t qattn__workspace_exists(const struct problem *p, size_t need);
int32_t qattn__check_workspace(const struct problem *p, size_t need);
const char *qattn__gqa_refusal(const struct problem *p);

#endif
