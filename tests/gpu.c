/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool gpu_wanted(void)
{
    const char *const device = getenv("QATTN_TEST_DEVICE");
    return device && strcmp(device, "cuda") == 0;
}

int32_t gpu_device_type(void) { return gpu_wanted() ? QATTN_DEVICE_CUDA : QATTN_DEVICE_CPU; }

bool gpu_raw(void) { return env_number("QATTN_TEST_RAW", 0) != 0; }

int32_t gpu_precision(const char *row_id, int64_t precision)
{
    const bool heeds = strncmp(row_id, "cuda.", 5) == 0 && strcmp(row_id, "cuda.simt") != 0;
    return heeds ? (int32_t)precision : QATTN_PRECISION_IEEE;
}

int gpu_repeats(int64_t seed)
{
    enum { ONE_IN = 29 };
    return gpu_wanted() && !gpu_raw() && seed % ONE_IN == 0 ? 50 : 2;
}

/* ---------------------------------------------------------------- regions */

static void add(struct gpu_regions *regions, void *host, size_t bytes, enum gpu_use use)
{
    if (!host || bytes == 0)
        return;
    if (regions->count == GPU_MAX_REGIONS)
        abort();
    regions->at[regions->count++] = (struct gpu_region){ host, bytes, use };
}

void gpu_add(struct gpu_regions *regions, void *host, size_t bytes) { add(regions, host, bytes, GPU_MEMORY); }

void gpu_add_box(struct gpu_regions *regions, const struct box *box) { gpu_add(regions, box->mem, box->bytes); }

static void add_view(struct gpu_regions *regions, const struct view *v, enum gpu_use use)
{
    int64_t low = 0, high = 0;               /* elements */
    if (!v->dtype || !v->data || view_empty(v))
        return;
    for (int axis = 0; axis < 4; axis++) {
        const int64_t end = (v->shape[axis] - 1) * v->stride[axis];
        low += end < 0 ? end : 0;
        high += end > 0 ? end : 0;
    }
    add(regions, v->data + low * v->itemsize, (size_t)((high - low + 1) * v->itemsize), use);
}

static void add_array(struct gpu_regions *regions, const void *array, int64_t count, size_t item)
{
    union { const void *in; void *out; } const cast = { array };
    add(regions, cast.out, (size_t)count * item, GPU_INPUT);
}

static int by_address(const void *a, const void *b)
{
    const struct gpu_region *const x = a, *const y = b;
    return (x->host > y->host) - (x->host < y->host);
}

static void join_overlaps(struct gpu_regions *regions)
{
    int kept = 0;
    qsort(regions->at, (size_t)regions->count, sizeof regions->at[0], by_address);
    for (int i = 0; i < regions->count; i++) {
        const struct gpu_region r = regions->at[i];
        struct gpu_region *const last = kept ? &regions->at[kept - 1] : NULL;
        if (!last || (char *)r.host >= (char *)last->host + last->bytes) {
            regions->at[kept++] = r;
            continue;
        }
        const size_t end = (size_t)((char *)r.host - (char *)last->host) + r.bytes;
        last->bytes = end > last->bytes ? end : last->bytes;
        last->use = r.use == GPU_INPUT && last->use == GPU_INPUT ? GPU_INPUT : GPU_MEMORY;
    }
    regions->count = kept;
}

void gpu_add_problem(struct gpu_regions *regions, const struct problem *p)
{
    const struct view *const inputs[] = { &p->a, &p->b, &p->x, &p->q, &p->k, &p->v, &p->bias, &p->keep, &p->q_descale.t,
                                          &p->k_descale.t, &p->v_descale.t };
    const struct view *const outputs[] = { &p->c, &p->y, &p->o, &p->lse, &p->scores };
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        add_view(regions, inputs[i], GPU_INPUT);
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        add_view(regions, outputs[i], GPU_MEMORY);
    for (int64_t i = 0; i < p->num_parts; i++) {
        add_view(regions, &p->parts[i].o, GPU_INPUT);
        add_view(regions, &p->parts[i].lse, GPU_INPUT);
    }
    const int64_t table = p->n > 0 ? (p->n - 1) * p->page_table_stride + p->max_pages : 0;
    const int64_t slopes = p->n > 0 ? (p->n - 1) * p->alibi_batch_stride + p->hq : p->hq;
    add_array(regions, p->q_offsets, p->n, sizeof(int32_t));
    add_array(regions, p->cu_seqlens_q, p->n + 1, sizeof(int32_t));
    add_array(regions, p->cu_seqlens_k, p->n + 1, sizeof(int32_t));
    add_array(regions, p->seqused_q, p->n, sizeof(int32_t));
    add_array(regions, p->seqused_k, p->n, sizeof(int32_t));
    add_array(regions, p->page_table, table, sizeof(int32_t));
    add_array(regions, p->sinks, p->hq, sizeof(float));
    add_array(regions, p->alibi_slopes, slopes, sizeof(float));
    join_overlaps(regions);
}

/* ---------------------------------------------------------------- the host */

static bool run_on_host(const struct impl *row, struct problem *p, int fill, int32_t *status)
{
    struct scratch workspace = scratch_new(row->workspace(p), fill);
    p->workspace = (char *)workspace.data;
    p->workspace_bytes = workspace.bytes;
    *status = row->run(p, NULL);
    if (!scratch_intact(&workspace))
        note_failure("bytes after the workspace were written");
    scratch_free(&workspace);
    return true;
}

bool gpu_run_row(const struct impl *row, struct problem *p, const struct gpu_regions *regions,
                 int fill, int32_t *status, char *reason, size_t cap)
{
    p->device_type = row->device_type;
    p->device_id = 0;
    if (!row->supports(p, reason, cap))
        return false;
    return row->device_type == QATTN_DEVICE_CUDA ? gpu_run_on_device(row, p, regions, fill, status)
                                                 : run_on_host(row, p, fill, status);
}
