/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "core/dispatch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/config.h"
#include "core/fpenv.h"
#include "core/impls.h"
#include "core/status.h"
#include "cuda/device.h"

enum { REASON_SIZE = 192, REFUSAL_SIZE = 448, EXPLAIN_SIZE = 2048 };

/* Lines of text in a fixed buffer; what does not fit is cut. */
struct text { char *buf; size_t cap, used; };

static void append(struct text *t, const char *a, const char *b, const char *c, const char *d)
{
    if (t->used < t->cap) {
        const int n = snprintf(t->buf + t->used, t->cap - t->used, "%s%s%s%s", a, b, c, d);
        t->used += n > 0 ? (size_t)n : 0;
    }
}

/* The environment allows the row, and it can run the problem here. If not, the clause why[cap] says so. */
static bool row_may_run(const struct impl *row, const struct problem *p, char *why, size_t cap)
{
    const struct config *config = qattn__config();
    const int32_t cap_arch = row->device_type == QATTN_DEVICE_CPU ? config->max_cpu_arch : config->max_cuda_arch;
    if (config->impl[0] && strcmp(config->impl, row->id) != 0)
        snprintf(why, cap, "QATTN_IMPL allows %s alone", config->impl);
    else if (row->arch > cap_arch)
        snprintf(why, cap, "above QATTN_MAX_ARCH");
    else if (row->fallback && (p->flags & QATTN_FLAG_NO_FALLBACK))
        snprintf(why, cap, "a fallback, which QATTN_FLAG_NO_FALLBACK refuses");
    else
        return row->supports(p, why, cap);
    return false;
}

/* A CUDA problem of a build or machine that cannot have CUDA: say that, not that no row fits. */
static int32_t check_device(const struct problem *p)
{
    if (p->device_type == QATTN_DEVICE_CPU)
        return QATTN_OK;
#if QATTN_CUDA
    return qattn__cuda_status(p->device_id);
#else
    return qattn__fail(QATTN_ERR_NOT_BUILT, "tensors are on CUDA device %" PRId32
                       ": this build has the CPU part alone; use one made with CUDA=1", p->device_id);
#endif
}

/* No row may run p: the status, with every row's reason as far as the text has room. */
static int32_t refuse(const struct problem *p)
{
    char why[REASON_SIZE], buf[REFUSAL_SIZE] = "";
    struct text reasons = { buf, sizeof buf, 0 };
    for (int i = 0; i < qattn__impl_count; i++) {
        const struct impl *row = &qattn__impls[i];
        if (row->device_type == p->device_type && !row_may_run(row, p, why, sizeof why))
            append(&reasons, buf[0] ? "; " : "", row->id, ": ", why);
    }
    return qattn__fail(QATTN_ERR_NO_IMPLEMENTATION, "no implementation may run this %s: %s", qattn__op_name(p->op),
                       buf[0] ? buf : "this build has none for that device type");
}

/* The first row that may run p; the reasons of those before it go to *reasons, which may be NULL. */
static int32_t choose(const struct problem *p, const struct impl **chosen, struct text *reasons)
{
    const struct config *config = qattn__config();
    QATTN_REQUIRE(!config->error[0], QATTN_ERR_BAD_VALUE, "%s", config->error);
    QATTN_TRY(check_device(p));
    char why[REASON_SIZE];
    for (int i = 0; i < qattn__impl_count; i++) {
        const struct impl *row = &qattn__impls[i];
        if (row->device_type != p->device_type)
            continue;
        if (row_may_run(row, p, why, sizeof why)) {
            *chosen = row;
            return QATTN_OK;
        }
        if (reasons)
            append(reasons, "\n", row->id, ": ", why);
    }
    return refuse(p);
}

static void log_choice(const struct problem *p, const struct impl *row, const char *reasons)
{
    fprintf(stderr, "qattn: %s runs on %s%s\n", qattn__op_name(p->op), row->id, reasons);
}

static bool nothing_in(const struct view *t)
{
    return t->dtype == QATTN_DTYPE_NONE || view_empty(t);
}

/* Every output is absent or has an axis of 0. Rows of the table never see such a problem, so their counts of
 * sequences, heads and rows are bounded by the elements of a real output. */
static bool writes_nothing(const struct problem *p)
{
    switch (p->op) {
    case OP_MATMUL:
    case OP_MATMUL_NT: return nothing_in(&p->c);
    case OP_SOFTMAX:   return nothing_in(&p->y) && nothing_in(&p->lse);
    default:           return nothing_in(&p->o) && nothing_in(&p->lse) && nothing_in(&p->scores);
    }
}

/* QATTN_CHECK_POINTERS=1: may the device read and write what the problem names? The CPU part has nothing to ask. */
static int32_t check_pointers(const struct problem *p)
{
#if QATTN_CUDA
    if (p->device_type == QATTN_DEVICE_CUDA && qattn__config()->check_pointers)
        return qattn__cuda_check_pointers(p);
#endif
    (void)p;
    return QATTN_OK;
}

/* CPU rows compute on the calling thread too, whose floating point may have been set otherwise. */
static int32_t run_in(const struct impl *row, const struct problem *p, qattn_stream stream)
{
    if (p->device_type != QATTN_DEVICE_CPU)
        return row->run(p, stream);
    const fp_state saved = fp_enter_default();
    const int32_t status = row->run(p, stream);
    fp_leave(saved);
    return status;
}

static int32_t run_row(const struct impl *row, struct problem *p, qattn_stream stream)
{
    if (p->workspace) {
        if (!row->checks_workspace)
            QATTN_TRY(qattn__check_workspace(p, row->workspace(p)));
        return run_in(row, p, stream);
    }
    const size_t need = row->workspace(p);
    if (need == 0)
        return run_in(row, p, stream);
#if QATTN_CUDA
    if (p->device_type == QATTN_DEVICE_CUDA)
        return qattn__cuda_run_pooled(row, p, stream, need);
#endif
    const size_t size = (need + 255) / 256 * 256;
    void *heap = size >= need ? aligned_alloc(256, size) : NULL;
    QATTN_REQUIRE(heap, QATTN_ERR_OUT_OF_MEMORY, "no memory for a workspace of %zu bytes: pass one, or smaller shapes",
                  need);
    p->workspace = heap;
    p->workspace_bytes = size;
    const int32_t status = run_in(row, p, stream);
    free(heap);
    p->workspace = NULL;
    return status;
}

int32_t qattn__dispatch(struct problem *p, qattn_stream stream)
{
    const struct impl *row = NULL;
    QATTN_REQUIRE(!stream || p->device_type == QATTN_DEVICE_CUDA, QATTN_ERR_STREAM,
                  "stream is %p: must be NULL when the tensors are on the CPU", (void *)stream);
    if (!qattn__config()->log) {
        QATTN_TRY(choose(p, &row, NULL));
    } else {
        char buf[EXPLAIN_SIZE] = "";
        struct text reasons = { buf, sizeof buf, 0 };
        QATTN_TRY(choose(p, &row, &reasons));
        log_choice(p, row, buf);
    }
    if (writes_nothing(p))
        return QATTN_OK;
    QATTN_TRY(check_pointers(p));
    return run_row(row, p, stream);
}

int32_t qattn__workspace(const struct problem *p, size_t *bytes)
{
    const struct impl *row = NULL;
    char why[REASON_SIZE];
    size_t most = 0;
    QATTN_REQUIRE(bytes, QATTN_ERR_NULL_POINTER, "bytes is NULL: where the answer goes is required");
    QATTN_TRY(choose(p, &row, NULL));
    for (int i = 0; i < qattn__impl_count; i++) {
        row = &qattn__impls[i];
        if (row->device_type != p->device_type || !row_may_run(row, p, why, sizeof why))
            continue;
        const size_t need = writes_nothing(p) ? 0 : row->workspace(p);
        most = need > most ? need : most;
    }
    *bytes = most;
    return QATTN_OK;
}

int32_t qattn__explain(const struct problem *p, char *buf, size_t cap)
{
    const struct impl *row = NULL;
    char reasons_buf[EXPLAIN_SIZE] = "", out_buf[EXPLAIN_SIZE + 64];
    struct text reasons = { reasons_buf, sizeof reasons_buf, 0 }, out = { out_buf, sizeof out_buf, 0 };
    QATTN_REQUIRE(buf || cap == 0, QATTN_ERR_NULL_POINTER, "buf is NULL: a buffer of cap bytes is required");
    const int32_t status = choose(p, &row, &reasons);
    append(&out, row ? row->id : "none", reasons_buf, "", "");
    qattn__copy_text(buf, cap, out_buf);
    return status;
}

int32_t qattn__prepare(const struct problem *p)
{
    const struct impl *row = NULL;
    QATTN_TRY(choose(p, &row, NULL));
    return row->prepare ? row->prepare(p) : QATTN_OK;
}
