/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The half of gpu.h that talks to the device; a build without CUDA has the stubs at the end. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if QATTN_CUDA

#include <cuda_runtime_api.h>
#include <unistd.h>

enum { GUARD = 512, ALIGN = 256 };

/* The regions of one run as one block of memory, on host and device; sparse ones have memory of their own. */
struct image {
    unsigned char *host, *device;
    size_t capacity, used;
    size_t at[GPU_MAX_REGIONS];                 /* offsets of the regions in the block */
    unsigned char *sparse[GPU_MAX_REGIONS];     /* NULL: in the block */
    unsigned char *workspace;                   /* guard, bytes, guard */
    size_t workspace_capacity;
};
static struct image image;
static cudaStream_t stream;
static char name[160];

bool gpu_usable(const char **why)
{
    int count = 0;
    struct cudaDeviceProp props;
    const cudaError_t err = cudaGetDeviceCount(&count);
    *why = err != cudaSuccess ? cudaGetErrorString(err) : "no CUDA device";
    if (err != cudaSuccess || count == 0)
        return false;
    if (!stream) {
        if (cudaGetDeviceProperties(&props, 0) != cudaSuccess ||
            cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) {
            *why = "the device cannot be used";
            return false;
        }
        snprintf(name, sizeof name, "%.100s, compute capability %d.%d", props.name, props.major, props.minor);
    }
    return true;
}

const char *gpu_name(void) { return name; }

/* After an error nothing on the device can be trusted: say so and end. */
static void must(cudaError_t err, const char *what)
{
    if (err == cudaSuccess)
        return;
    note_failure("%s: %s", what, cudaGetErrorString(err));
    exit(EXIT_FAILURE);
}

/* Other processes of the same run may hold much of the device for a while. */
static void *device_memory(size_t bytes)
{
    enum { TRIES = 60 };
    void *memory = NULL;
    for (int i = 0; i < TRIES; i++) {
        const cudaError_t err = cudaMalloc(&memory, bytes);
        if (err == cudaSuccess)
            return memory;
        if (err != cudaErrorMemoryAllocation || i == TRIES - 1)
            must(err, "cudaMalloc");
        cudaGetLastError();
        sleep(1);
    }
    return NULL;
}

static void reserve(size_t bytes)
{
    if (bytes <= image.capacity)
        return;
    free(image.host);
    must(cudaFree(image.device), "cudaFree");
    image.capacity = bytes + bytes / 2;
    image.host = aligned_alloc(ALIGN, (image.capacity + ALIGN - 1) / ALIGN * ALIGN);
    image.device = device_memory(image.capacity);
}

static bool is_sparse(const struct gpu_region *r) { return r->bytes > (size_t)GPU_SPARSE; }

/* Offsets: guards between the regions, addresses the same modulo 256. */
static void place(const struct gpu_regions *regions)
{
    size_t used = GUARD;
    for (int i = 0; i < regions->count; i++) {
        if (is_sparse(&regions->at[i]))
            continue;
        used += ((uintptr_t)regions->at[i].host - used) % ALIGN;
        image.at[i] = used;
        used += regions->at[i].bytes + GUARD;
    }
    image.used = used;
    reserve(image.used);
}

static void place_sparse(const struct gpu_regions *regions)
{
    for (int i = 0; i < regions->count; i++) {
        const struct gpu_region *const r = &regions->at[i];
        image.sparse[i] = NULL;
        if (!is_sparse(r))
            continue;
        const size_t bytes = r->bytes + ALIGN + GUARD;
        unsigned char *const memory = device_memory(bytes);
        must(cudaMemsetAsync(memory, 0xFF, bytes, stream), "cudaMemset");
        image.sparse[i] = memory + (uintptr_t)r->host % ALIGN;
    }
}

static void free_sparse(const struct gpu_regions *regions)
{
    for (int i = 0; i < regions->count; i++)
        if (image.sparse[i])
            must(cudaFree(image.sparse[i] - (uintptr_t)regions->at[i].host % ALIGN), "cudaFree");
}

static unsigned char *raw_workspace(size_t bytes)
{
    must(cudaFree(image.workspace), "cudaFree");
    image.workspace = device_memory(bytes);
    if (env_number("QATTN_TEST_RAW", 0) == 2)
        must(cudaMemset(image.workspace, 0xFF, bytes), "cudaMemset");
    return image.workspace;
}

static void place_workspace(size_t bytes, int fill)
{
    const size_t all = bytes + 2 * GUARD;
    if (all > image.workspace_capacity) {
        must(cudaFree(image.workspace), "cudaFree");
        image.workspace_capacity = all + (all < (size_t)GPU_SPARSE ? all / 2 : 0);
        image.workspace = device_memory(image.workspace_capacity);
    }
    must(cudaMemsetAsync(image.workspace, ~fill & 0xFF, all, stream), "cudaMemset");
    must(cudaMemsetAsync(image.workspace + GUARD, fill, bytes, stream), "cudaMemset");
}

static void check_workspace(size_t bytes, int fill)
{
    unsigned char guards[2 * GUARD];
    must(cudaMemcpyAsync(guards, image.workspace, GUARD, cudaMemcpyDeviceToHost, stream), "copy of the guards");
    must(cudaMemcpyAsync(guards + GUARD, image.workspace + GUARD + bytes, GUARD, cudaMemcpyDeviceToHost, stream),
         "copy of the guards");
    must(cudaStreamSynchronize(stream), "copy of the guards");
    for (int i = 0; i < 2 * GUARD; i++)
        if (guards[i] != (~fill & 0xFF)) {
            note_failure("bytes %s the workspace were written on the device", i < GUARD ? "before" : "after");
            return;
        }
}

static void fill_image(const struct gpu_regions *regions)
{
    memset(image.host, 0xFF, image.used);
    for (int i = 0; i < regions->count; i++)
        if (!image.sparse[i])
            memcpy(image.host + image.at[i], regions->at[i].host, regions->at[i].bytes);
}

static bool guard_intact(size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (image.host[i] != 0xFF)
            return false;
    return true;
}

static void read_image(const struct gpu_regions *regions)
{
    size_t end = 0;
    for (int i = 0; i < regions->count; i++) {
        const struct gpu_region *const r = &regions->at[i];
        if (image.sparse[i])
            continue;
        if (!guard_intact(end, image.at[i]))
            note_failure("bytes before region %d were written on the device", i);
        if (r->use == GPU_MEMORY)
            memcpy(r->host, image.host + image.at[i], r->bytes);
        else if (memcmp(r->host, image.host + image.at[i], r->bytes) != 0)
            note_failure("an input (region %d) was changed on the device", i);
        end = image.at[i] + r->bytes;
    }
    if (!guard_intact(end, image.used))
        note_failure("bytes after the last region were written on the device");
}

/* ---------------------------------------------------------------- views in sparse regions */

/* Axes by stride, smallest first, those of stride 0 and size 1 left out; *base is the lowest element. Neighbours
 * less than a page apart are one run with what lies between them. */
struct runs { char *base; size_t bytes; int axes; int64_t count[4], step[4]; };

static struct runs runs_of(const struct view *v)
{
    enum { NEAR = 4096 };
    struct runs r = { .base = v->data, .bytes = (size_t)v->itemsize };
    for (int axis = 0; axis < 4; axis++) {
        int64_t step = v->stride[axis] * v->itemsize;
        if (v->shape[axis] < 2 || step == 0)
            continue;
        if (step < 0) {
            r.base += (v->shape[axis] - 1) * step;
            step = -step;
        }
        int at = r.axes++;
        for (; at > 0 && r.step[at - 1] > step; at--) {
            r.step[at] = r.step[at - 1];
            r.count[at] = r.count[at - 1];
        }
        r.step[at] = step;
        r.count[at] = v->shape[axis];
    }
    while (r.axes && r.step[0] <= (int64_t)r.bytes + NEAR) {
        r.bytes += (size_t)((r.count[0] - 1) * r.step[0]);
        r.axes--;
        memmove(r.step, r.step + 1, 3 * sizeof *r.step);
        memmove(r.count, r.count + 1, 3 * sizeof *r.count);
    }
    return r;
}

/* One plane of runs: the innermost axis in one copy where the pitch allows. */
static void copy_plane(char *to, const char *from, const struct runs *r, enum cudaMemcpyKind kind)
{
    const int64_t count = r->axes > 0 ? r->count[0] : 1, step = r->axes > 0 ? r->step[0] : (int64_t)r->bytes;
    const int64_t most_pitch = (int64_t)1 << 31;
    if (count > 1 && step < most_pitch && (int64_t)r->bytes <= step) {
        must(cudaMemcpy2DAsync(to, (size_t)step, from, (size_t)step, r->bytes, (size_t)count, kind,
                               stream),
             "copy of a view");
        return;
    }
    for (int64_t i = 0; i < count; i++)
        must(cudaMemcpyAsync(to + i * step, from + i * step, r->bytes, kind, stream), "copy of a view");
}

static void copy_view(const struct gpu_regions *regions, const struct view *v, bool to_device)
{
    if (!v->dtype || !v->data || view_empty(v))
        return;
    const struct runs r = runs_of(v);
    for (int i = 0; i < regions->count; i++) {
        char *const host = regions->at[i].host;
        if (!image.sparse[i] || r.base < host || r.base >= host + regions->at[i].bytes)
            continue;
        char *const device = (char *)image.sparse[i] + (r.base - host);
        const int64_t n1 = r.axes > 1 ? r.count[1] : 1, n2 = r.axes > 2 ? r.count[2] : 1,
                      n3 = r.axes > 3 ? r.count[3] : 1;
        for (int64_t x = 0; x < n1 * n2 * n3; x++) {
            const int64_t at = (r.axes > 1 ? x % n1 * r.step[1] : 0) + (r.axes > 2 ? x / n1 % n2 * r.step[2] : 0) +
                               (r.axes > 3 ? x / n1 / n2 * r.step[3] : 0);
            if (to_device)
                copy_plane(device + at, r.base + at, &r, cudaMemcpyHostToDevice);
            else
                copy_plane(r.base + at, device + at, &r, cudaMemcpyDeviceToHost);
        }
        return;
    }
}

static void copy_sparse(const struct gpu_regions *regions, const struct problem *p, bool to_device)
{
    const struct view *const inputs[] = { &p->a, &p->b, &p->x, &p->q, &p->k, &p->v, &p->bias, &p->keep, &p->q_descale.t,
                                          &p->k_descale.t, &p->v_descale.t };
    const struct view *const outputs[] = { &p->c, &p->y, &p->o, &p->lse, &p->scores };
    const bool reads_c = p->beta != 0 || (p->x.data && p->y.data == p->x.data);
    bool any = false;
    for (int i = 0; i < regions->count; i++)
        any |= image.sparse[i] != NULL;
    if (!any)
        return;
    for (size_t i = 0; to_device && i < sizeof inputs / sizeof *inputs; i++)
        copy_view(regions, inputs[i], true);
    for (size_t i = 0; (!to_device || reads_c) && i < sizeof outputs / sizeof *outputs; i++)
        copy_view(regions, outputs[i], to_device);
    must(cudaStreamSynchronize(stream), "copies of views");
}

/* ---------------------------------------------------------------- a run */

/* The device's address of what `pointer` points to; one past a region's end belongs to it where no other begins. */
static void *translate(const struct gpu_regions *regions, const void *pointer)
{
    const uintptr_t at = (uintptr_t)pointer;
    void *end = NULL;
    if (!pointer)
        return NULL;
    for (int i = 0; i < regions->count; i++) {
        const uintptr_t start = (uintptr_t)regions->at[i].host, bytes = regions->at[i].bytes;
        unsigned char *const device = image.sparse[i] ? image.sparse[i] : image.device + image.at[i];
        if (start <= at && at < start + bytes)
            return device + (at - start);
        if (at == start + bytes)
            end = device + bytes;
    }
    if (!end)
        note_failure("a pointer of the problem lies in no region");
    return end;
}

/* An empty view or array has no element to point at; what it gets instead must never be read. */
static void translate_view(const struct gpu_regions *r, struct view *v)
{
    v->data = v->dtype && view_empty(v) ? (char *)(uintptr_t)256 : translate(r, v->data);
}

static const void *translate_array(const struct gpu_regions *r, const void *array, int64_t count)
{
    return array && count == 0 ? (const void *)(uintptr_t)256 : translate(r, array);
}

static void translate_problem(const struct gpu_regions *r, struct problem *p)
{
    struct view *const views[] = { &p->a, &p->b, &p->c, &p->x, &p->y, &p->q, &p->k, &p->v, &p->o, &p->lse, &p->bias,
                                   &p->keep, &p->scores, &p->q_descale.t, &p->k_descale.t, &p->v_descale.t };
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        translate_view(r, views[i]);
    for (int64_t i = 0; i < p->num_parts; i++) {
        translate_view(r, &p->parts[i].o);
        translate_view(r, &p->parts[i].lse);
    }
    p->q_offsets = translate_array(r, p->q_offsets, p->n);
    p->cu_seqlens_q = translate(r, p->cu_seqlens_q);
    p->cu_seqlens_k = translate(r, p->cu_seqlens_k);
    p->seqused_q = translate_array(r, p->seqused_q, p->n);
    p->seqused_k = translate_array(r, p->seqused_k, p->n);
    p->page_table = translate_array(r, p->page_table, p->n * p->max_pages);
    p->sinks = translate_array(r, p->sinks, p->hq);
    p->alibi_slopes = translate_array(r, p->alibi_slopes, p->hq);
}

bool gpu_run_on_device(const struct impl *row, struct problem *p, const struct gpu_regions *regions, int fill,
                       int32_t *status)
{
    const size_t bytes = row->workspace(p);
    static struct problem host;
    host = *p;
    place(regions);
    place_sparse(regions);
    if (!gpu_raw())
        place_workspace(bytes, fill);
    fill_image(regions);
    translate_problem(regions, p);
    p->workspace = !bytes ? NULL : (char *)(gpu_raw() ? raw_workspace(bytes) : image.workspace + GUARD);
    p->workspace_bytes = bytes;
    must(cudaMemcpyAsync(image.device, image.host, image.used, cudaMemcpyHostToDevice, stream), "copy to the device");
    copy_sparse(regions, &host, true);
    *status = row->run(p, stream);
    must(cudaStreamSynchronize(stream), "the kernels");
    must(cudaMemcpyAsync(image.host, image.device, image.used, cudaMemcpyDeviceToHost, stream), "copy from the device");
    must(cudaStreamSynchronize(stream), "copy from the device");
    read_image(regions);
    copy_sparse(regions, &host, false);
    if (!gpu_raw())
        check_workspace(bytes, fill);
    free_sparse(regions);
    return true;
}

void *gpu_new(const void *host, size_t bytes)
{
    void *const memory = gpu_wanted() ? device_memory(bytes) : malloc(bytes);
    if (gpu_wanted())
        must(cudaMemcpy(memory, host, bytes, cudaMemcpyHostToDevice), "copy to the device");
    else
        memcpy(memory, host, bytes);
    return memory;
}

void gpu_get(void *host, const void *memory, size_t bytes)
{
    must(gpu_wanted() ? cudaDeviceSynchronize() : cudaSuccess, "the kernels");
    if (gpu_wanted())
        must(cudaMemcpy(host, memory, bytes, cudaMemcpyDeviceToHost), "copy from the device");
    else
        memcpy(host, memory, bytes);
}

void gpu_free(void *memory)
{
    if (gpu_wanted())
        must(cudaFree(memory), "cudaFree");
    else
        free(memory);
}

#else

void *gpu_new(const void *host, size_t bytes) { return memcpy(malloc(bytes), host, bytes); }
void gpu_get(void *host, const void *memory, size_t bytes) { memcpy(host, memory, bytes); }
void gpu_free(void *memory) { free(memory); }

bool gpu_usable(const char **why)
{
    *why = "this build has the CPU part alone";
    return false;
}

const char *gpu_name(void) { return "none"; }

bool gpu_run_on_device(const struct impl *row, struct problem *p, const struct gpu_regions *regions, int fill,
                       int32_t *status)
{
    (void)row, (void)p, (void)regions, (void)fill, (void)status;
    abort();
}

#endif
