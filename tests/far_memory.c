/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "far_memory.h"

#if QATTN_CUDA

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "support.h"

static struct {
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*release)(CUdeviceptr, size_t);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
    CUresult (*destroy)(CUmemGenericAllocationHandle);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
} driver;

#define MUST(call) \
    do { \
        const int error_ = (int)(call); \
        ck_assert_msg(error_ == 0, "%s: error %d", #call, error_); \
    } while (0)

static bool find(const char *name, void *function)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *address = NULL;
    const cudaError_t err = cudaGetDriverEntryPointByVersion(name, &address, 12000, cudaEnableDefault, &found);
    memcpy(function, &address, sizeof address);
    return err == cudaSuccess && found == cudaDriverEntryPointSuccess && address;
}

bool far_begin(void)
{
    int managed = 0;
    return cudaFree(NULL) == cudaSuccess && find("cuMemAddressReserve", &driver.reserve) &&
           find("cuMemAddressFree", &driver.release) && find("cuMemCreate", &driver.create) &&
           find("cuMemRelease", &driver.destroy) && find("cuMemMap", &driver.map) &&
           find("cuMemUnmap", &driver.unmap) && find("cuMemSetAccess", &driver.set_access) &&
           cudaDeviceGetAttribute(&managed, cudaDevAttrMemoryPoolsSupported, 0) == cudaSuccess && managed;
}

static uint64_t create_memory(size_t bytes)
{
    const CUmemAllocationProp props = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                        .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
    CUmemGenericAllocationHandle handle;
    MUST(driver.create(&handle, bytes, &props, 0));
    return handle;
}

static void map_memory(uint64_t address, size_t bytes, uint64_t handle)
{
    MUST(driver.map(address, bytes, 0, handle, 0));
}

static void allow_access(uint64_t address, size_t bytes)
{
    const CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
                                     .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    MUST(driver.set_access(address, bytes, &access, 1));
}

/* ---------------------------------------------------------------- tensors of given strides */

/* Bytes from the lowest byte to element [b,h,s,d]. */
static int64_t offset_of(const struct far_tensor *far, int64_t b, int64_t h, int64_t s, int64_t d)
{
    const qattn_tensor *const t = &far->t;
    return (b * t->stride[0] + h * t->stride[1] + s * t->stride[2] + d * t->stride[3]) * format_size(t->dtype) -
           far->lowest;
}

static struct far_page *page_at(struct far_tensor *far, int64_t offset)
{
    for (int i = 0; i < far->pages; i++)
        if (far->page[i].index == offset / FAR_PAGE_BYTES)
            return &far->page[i];
    return NULL;
}

static unsigned char *host_at(struct far_tensor *far, int64_t offset)
{
    return page_at(far, offset)->host + offset % FAR_PAGE_BYTES;
}

/* Pages of the device that no tensor has at the moment: making them takes longer than mapping them. */
static uint64_t spare[FAR_PAGES];
static int spares;

static void add_element(struct far_tensor *far, int64_t offset)
{
    struct far_page *page = page_at(far, offset);
    if (!page) {
        ck_assert_msg(far->pages < FAR_PAGES, "a far tensor of more than %d pages", (int)FAR_PAGES);
        page = &far->page[far->pages++];
        *page = (struct far_page){ .index = offset / FAR_PAGE_BYTES,
                                   .low = FAR_PAGE_BYTES,
                                   .host = malloc(FAR_PAGE_BYTES),
                                   .handle = spares > 0 ? spare[--spares] : create_memory(FAR_PAGE_BYTES) };
        memset(page->host, 0xFF, FAR_PAGE_BYTES);
        map_memory(far->base + (uint64_t)page->index * FAR_PAGE_BYTES, FAR_PAGE_BYTES, page->handle);
        allow_access(far->base + (uint64_t)page->index * FAR_PAGE_BYTES, FAR_PAGE_BYTES);
    }
    const int64_t at = offset % FAR_PAGE_BYTES, end = at + format_size(far->t.dtype);
    page->low = at < page->low ? at : page->low;
    page->high = end > page->high ? end : page->high;
}

#define EACH_ELEMENT(t, b, h, s, d) \
    for (int64_t b = 0; b < (t)->shape[0]; b++) \
        for (int64_t h = 0; h < (t)->shape[1]; h++) \
            for (int64_t s = 0; s < (t)->shape[2]; s++) \
                for (int64_t d = 0; d < (t)->shape[3]; d++)

struct far_tensor far_new(int32_t dtype, const int64_t shape[4], const int64_t stride[4])
{
    struct far_tensor far = { .t = { .dtype = dtype, .device_type = QATTN_DEVICE_CUDA } };
    const int64_t itemsize = format_size(dtype);
    int64_t extent = itemsize;
    for (int i = 0; i < 4; i++) {
        const int64_t reach = (shape[i] - 1) * stride[i] * itemsize;
        far.t.shape[i] = shape[i];
        far.t.stride[i] = stride[i];
        far.lowest += reach < 0 ? reach : 0;
        extent += reach < 0 ? -reach : reach;
    }
    far.reserved = (uint64_t)(extent / FAR_PAGE_BYTES + 1) * FAR_PAGE_BYTES;
    CUdeviceptr base;
    MUST(driver.reserve(&base, far.reserved, FAR_PAGE_BYTES, 0, 0));
    far.base = base;
    far.t.data = (void *)(uintptr_t)(far.base + (uint64_t)-far.lowest);
    return far;
}

void far_free(struct far_tensor *far)
{
    for (int i = 0; i < far->pages; i++) {
        MUST(driver.unmap(far->base + (uint64_t)far->page[i].index * FAR_PAGE_BYTES, FAR_PAGE_BYTES));
        if (spares < FAR_PAGES)
            spare[spares++] = far->page[i].handle;
        else
            MUST(driver.destroy(far->page[i].handle));
        free(far->page[i].host);
    }
    MUST(driver.release(far->base, far->reserved));
}

static void *device_page(const struct far_tensor *far, int i)
{
    return (void *)(uintptr_t)(far->base + (uint64_t)far->page[i].index * FAR_PAGE_BYTES);
}

void far_upload(struct far_tensor *far, const void *packed)
{
    const unsigned char *from = packed;
    const size_t itemsize = (size_t)format_size(far->t.dtype);
    EACH_ELEMENT(&far->t, b, h, s, d)
        add_element(far, offset_of(far, b, h, s, d));
    EACH_ELEMENT(&far->t, b, h, s, d) {
        memcpy(host_at(far, offset_of(far, b, h, s, d)), from, itemsize);
        from += itemsize;
    }
    for (int i = 0; i < far->pages; i++) {
        const struct far_page *const page = &far->page[i];
        MUST(cudaMemset(device_page(far, i), 0xFF, FAR_PAGE_BYTES));
        MUST(cudaMemcpy((char *)device_page(far, i) + page->low, page->host + page->low,
                        (size_t)(page->high - page->low), cudaMemcpyHostToDevice));
    }
}

void far_download(struct far_tensor *far, void *packed)
{
    unsigned char *to = packed;
    const size_t itemsize = (size_t)format_size(far->t.dtype);
    for (int i = 0; i < far->pages; i++)
        MUST(cudaMemcpy(far->page[i].host, device_page(far, i), FAR_PAGE_BYTES, cudaMemcpyDeviceToHost));
    EACH_ELEMENT(&far->t, b, h, s, d) {
        unsigned char *const at = host_at(far, offset_of(far, b, h, s, d));
        memcpy(to, at, itemsize);
        memset(at, 0xFF, itemsize);
        to += itemsize;
    }
}

bool far_intact(const struct far_tensor *far)
{
    for (int i = 0; i < far->pages; i++)
        for (size_t j = 0; j < FAR_PAGE_BYTES; j++)
            if (far->page[i].host[j] != 0xFF)
                return false;
    return true;
}

/* ---------------------------------------------------------------- repeated memory */

struct far_repeat far_repeat_new(int32_t dtype, const int64_t shape[4], const void *bytes, size_t period)
{
    struct far_repeat far = { .t = { .dtype = dtype, .device_type = QATTN_DEVICE_CUDA } };
    int64_t stride = 1;
    for (int i = 3; i >= 0; i--) {
        far.t.shape[i] = shape[i];
        far.t.stride[i] = stride;
        stride *= shape[i];
    }
    far.pieces = (stride * format_size(dtype) + (int64_t)period - 1) / (int64_t)period;
    far.reserved = (uint64_t)far.pieces * period;
    far.handle = create_memory(period);
    CUdeviceptr base;
    MUST(driver.reserve(&base, far.reserved, FAR_PAGE_BYTES, 0, 0));
    far.base = base;
    for (int64_t i = 0; i < far.pieces; i++)
        map_memory(far.base + (uint64_t)i * period, period, far.handle);
    allow_access(far.base, far.reserved);
    far.t.data = (void *)(uintptr_t)far.base;
    MUST(cudaMemcpy(far.t.data, bytes, period, cudaMemcpyHostToDevice));
    return far;
}

void far_repeat_free(struct far_repeat *far)
{
    MUST(driver.unmap(far->base, far->reserved));
    MUST(driver.destroy(far->handle));
    MUST(driver.release(far->base, far->reserved));
}

#else

/* Builds without CUDA have no such memory. */
bool far_begin(void) { return false; }

#endif
