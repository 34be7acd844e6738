/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The table row `ref`: last resort on CPU, runs every problem that passed the checks. */
#include "ref/ref.h"

#include <stdio.h>

#include "core/status.h"

bool qattn__ref_supports(const struct problem *p, char *why, size_t cap)
{
    if (p->device_type == QATTN_DEVICE_CPU)
        return true;
    snprintf(why, cap, "runs on the CPU only");
    return false;
}

/* `count` doubles after `head` bytes; SIZE_MAX where that overflows, so that taking the memory fails. */
static size_t bytes_of(size_t head, size_t count)
{
    return count > (SIZE_MAX - head) / sizeof(double) ? SIZE_MAX : head + count * sizeof(double);
}

size_t qattn__ref_workspace(const struct problem *p)
{
    switch (p->op) {
    case OP_SOFTMAX:       return bytes_of(0, (size_t)p->x.shape[3]);
    case OP_MERGE:         return bytes_of(0, (size_t)p->o.shape[3]);
    case OP_GQA_FORWARD:
    case OP_FLASH_FORWARD: return bytes_of(sizeof(struct ref_row), qattn__ref_scratch(p));
    default:               return 0;
    }
}

int32_t qattn__ref_run(const struct problem *p, qattn_stream stream)
{
    (void)stream;
    switch (p->op) {
    case OP_MATMUL:
    case OP_MATMUL_NT:     qattn__ref_matmul(p); return QATTN_OK;
    case OP_SOFTMAX:       qattn__ref_softmax(p); return QATTN_OK;
    case OP_GQA_FORWARD:
    case OP_FLASH_FORWARD: qattn__ref_attention(p); return QATTN_OK;
    case OP_MERGE:         qattn__ref_merge(p); return QATTN_OK;
    default:               return qattn__fail(QATTN_ERR_INTERNAL, "op is %d: unknown to ref", (int)p->op);
    }
}
