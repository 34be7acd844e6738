/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * QATTN_CHECK_POINTERS=1: asks the driver where the first and the last byte of every argument lie. Refused is what a
 * kernel could not reach: host memory the driver does not know, memory that was freed, another device. Managed memory
 * and pinned host memory pass.
 */
#include "cuda/device.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/problem.h"
#include "core/status.h"
#include "cuda/driver.h"

struct location { CUmemorytype type; int device; unsigned managed; CUdeviceptr pointer; };

static int32_t locate(struct location *at, const void *pointer)
{
    CUpointer_attribute wanted[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                     CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_POINTER };
    void *values[] = { &at->type, &at->device, &at->managed, &at->pointer };
    *at = (struct location){ 0 };
    QATTN_DRIVER_TRY(pointer_attributes, "cuPointerGetAttributes",
                     (sizeof wanted / sizeof *wanted, wanted, values, (CUdeviceptr)(uintptr_t)pointer));
    return QATTN_OK;
}

static int32_t check_byte(const struct problem *p, const char *name, const char *which, const void *pointer)
{
    struct location at;
    QATTN_TRY(locate(&at, pointer));
    if (at.managed)
        return QATTN_OK;
    if (at.type == CU_MEMORYTYPE_HOST) {
        QATTN_REQUIRE(at.pointer == (CUdeviceptr)(uintptr_t)pointer, QATTN_ERR_DEVICE_MISMATCH,
                      "%s: its %s byte, %p, is pinned host memory that devices see at another address: pass that one",
                      name, which, pointer);
        return QATTN_OK;
    }
    QATTN_REQUIRE(at.type == CU_MEMORYTYPE_DEVICE, QATTN_ERR_DEVICE_MISMATCH,
                  "%s: its %s byte, %p, is no memory the CUDA driver knows (host memory, freed, or beyond the end), "
                  "and the call is on CUDA device %" PRId32,
                  name, which, pointer, p->device_id);
    QATTN_REQUIRE(at.device == p->device_id, QATTN_ERR_DEVICE_MISMATCH,
                  "%s: its %s byte, %p, lies on CUDA device %d, and the call is on device %" PRId32,
                  name, which, pointer, at.device, p->device_id);
    return QATTN_OK;
}

/* The `bytes` bytes from `first` on; 0: only the first one's place is known. */
static int32_t check_range(const struct problem *p, const char *name, const char *first, int64_t bytes)
{
    QATTN_TRY(check_byte(p, name, "first", first));
    return bytes > 1 ? check_byte(p, name, "last", first + (bytes - 1)) : QATTN_OK;
}

/* Byte offsets of any element fit in 63 bits: core/tensor.c sees to it. */
static int32_t check_view(const struct problem *p, const struct view *t, const char *name)
{
    int64_t below = 0, above = 0;
    if (!t->dtype || view_empty(t))
        return QATTN_OK;
    for (int i = 0; i < 4; i++) {
        const int64_t reach = (t->shape[i] - 1) * t->stride[i] * t->itemsize;
        if (t->stride[i] < 0)
            below += reach;
        else if (t->stride[i] > 0)
            above += reach;
    }
    return check_range(p, name, t->data + below, above - below + t->itemsize);
}

/* An array of rows * stride + more elements of 4 bytes. */
static int32_t check_array(const struct problem *p, const void *array, const char *name, int64_t rows, int64_t stride,
                           int64_t more)
{
    int64_t bytes;
    if (!array)
        return QATTN_OK;
    if (__builtin_mul_overflow(rows, stride, &bytes) || __builtin_add_overflow(bytes, more, &bytes) ||
        __builtin_mul_overflow(bytes, 4, &bytes))
        bytes = 0;
    return bytes < 0 ? QATTN_OK : check_range(p, name, array, bytes);
}

static int32_t check_arrays(const struct problem *p)
{
    if (p->n <= 0)
        return QATTN_OK;
    QATTN_TRY(check_array(p, p->q_offsets, "params.q_offsets", p->n, 1, 0));
    QATTN_TRY(check_array(p, p->cu_seqlens_q, "params.cu_seqlens_q", p->n, 1, 1));
    QATTN_TRY(check_array(p, p->cu_seqlens_k, "params.cu_seqlens_k", p->n, 1, 1));
    QATTN_TRY(check_array(p, p->seqused_q, "params.seqused_q", p->n, 1, 0));
    QATTN_TRY(check_array(p, p->seqused_k, "params.seqused_k", p->n, 1, 0));
    if (p->max_pages > 0)
        QATTN_TRY(check_array(p, p->page_table, "params.page_table", p->n - 1, p->page_table_stride, p->max_pages));
    if (p->hq <= 0)
        return QATTN_OK;
    QATTN_TRY(check_array(p, p->sinks, "params.sinks", p->hq, 1, 0));
    return check_array(p, p->alibi_slopes, "params.alibi_slopes", p->n - 1, p->alibi_batch_stride, p->hq);
}

static int32_t check_parts(const struct problem *p)
{
    char name[48];
    for (int64_t i = 0; i < p->num_parts; i++) {
        snprintf(name, sizeof name, "o_parts[%" PRId64 "].data", i);
        QATTN_TRY(check_view(p, &p->parts[i].o, name));
        snprintf(name, sizeof name, "lse_parts[%" PRId64 "].data", i);
        QATTN_TRY(check_view(p, &p->parts[i].lse, name));
    }
    return QATTN_OK;
}

int32_t qattn__cuda_check_pointers(const struct problem *p)
{
    const char *const lse = p->op == OP_MERGE ? "lse.data" : "params.lse.data";
    const struct { const struct view *view; const char *name; } views[] = {
        { &p->a, "a.data" }, { &p->b, "b.data" }, { &p->c, "c.data" }, { &p->x, "x.data" }, { &p->y, "y.data" },
        { &p->q, "q.data" }, { &p->k, "k.data" }, { &p->v, "v.data" }, { &p->o, "o.data" }, { &p->lse, lse },
        { &p->bias, "params.bias.data" }, { &p->keep, "params.keep.data" }, { &p->scores, "params.scores.data" },
        { &p->q_descale.t, "params.q_descale.data" }, { &p->k_descale.t, "params.k_descale.data" },
        { &p->v_descale.t, "params.v_descale.data" },
    };
    QATTN_TRY(qattn__cuda_load_driver());
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        QATTN_TRY(check_view(p, views[i].view, views[i].name));
    QATTN_TRY(check_arrays(p));
    QATTN_TRY(check_parts(p));
    return p->workspace ? check_range(p, "params.workspace", p->workspace, (int64_t)p->workspace_bytes) : QATTN_OK;
}
