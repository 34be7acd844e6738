/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Memory of the cases: fenced, sparse spans and strided tensors in them. */
#include "case_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support.h"

enum { POISON_BYTE = 0xFF };
/* Spans up to this are filled with poison and checked; larger ones stay sparse. */
static const size_t fill_limit = (size_t)64 << 20;

bool span_make(struct span *span, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t body = (bytes + page - 1) / page * page;
    *span = (struct span){ .map_bytes = body + 2 * page,
                           .bytes = bytes,
                           .filled = bytes <= fill_limit };
    span->map = mmap(NULL, span->map_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (span->map == MAP_FAILED) {
        span->map = NULL;
        return false;
    }
    if (bytes > (size_t)1 << 30)
        madvise(span->map, span->map_bytes, MADV_NOHUGEPAGE); /* sparse ones must stay sparse */
    mprotect(span->map, page, PROT_NONE);
    mprotect(span->map + page + body, page, PROT_NONE);
    span->data = span->map + page + body - bytes;
    if (span->filled)
        memset(span->map + page, POISON_BYTE, body);
    return true;
}

void span_free(struct span *span)
{
    if (span->map)
        munmap(span->map, span->map_bytes);
    *span = (struct span){ 0 };
}

/* Elements from the first to the last, strides >= 0. */
int64_t tensor_extent(const int64_t shape[4], const int64_t stride[4])
{
    int64_t last = 0;
    for (int i = 0; i < 4; i++) {
        if (shape[i] == 0)
            return 0;
        last += (shape[i] - 1) * stride[i];
    }
    return last + 1;
}

double memory_available(void)
{
    char line[128];
    double kib = 0;
    FILE *const f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %lf kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib * 1024;
}

char *tensor_at(const qattn_tensor *t, int64_t b, int64_t h, int64_t s, int64_t d)
{
    return (char *)t->data +
           (b * t->stride[0] + h * t->stride[1] + s * t->stride[2] + d * t->stride[3]) *
               format_size(t->dtype);
}

double tensor_get(const qattn_tensor *t, int64_t b, int64_t h, int64_t s, int64_t d)
{
    return format_decode(t->dtype, tensor_at(t, b, h, s, d));
}

bool tensor_same_bits(const qattn_tensor *a, const qattn_tensor *b)
{
    const size_t item = (size_t)format_size(a->dtype);
    for (int64_t n = 0; n < a->shape[0]; n++)
        for (int64_t h = 0; h < a->shape[1]; h++)
            for (int64_t s = 0; s < a->shape[2]; s++) {
                if (a->stride[3] == 1 && b->stride[3] == 1) {
                    if (memcmp(tensor_at(a, n, h, s, 0), tensor_at(b, n, h, s, 0),
                               item * (size_t)a->shape[3]) != 0)
                        return false;
                    continue;
                }
                for (int64_t d = 0; d < a->shape[3]; d++)
                    if (memcmp(tensor_at(a, n, h, s, d), tensor_at(b, n, h, s, d), item) != 0)
                        return false;
            }
    return true;
}

void tensor_pack(const int64_t shape[4], int64_t stride[4])
{
    stride[3] = 1;
    for (int i = 2; i >= 0; i--)
        stride[i] = stride[i + 1] * shape[i + 1];
}

/* Every byte of the mapping that belongs to no element still holds the poison. */
bool span_intact(const struct span *span, const qattn_tensor *t)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), body = span->map_bytes - 2 * page;
    const char *const base = span->map + page;
    if (!span->filled)
        return true;
    char *const copy = malloc(body);
    memcpy(copy, base, body);
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t s = 0; s < t->shape[2]; s++)
                for (int64_t d = 0; d < t->shape[3]; d++)
                    memset(copy + (tensor_at(t, b, h, s, d) - base), POISON_BYTE,
                           (size_t)format_size(t->dtype));
    bool same = true;
    for (size_t i = 0; same && i < body; i++)
        same = (unsigned char)copy[i] == POISON_BYTE;
    free(copy);
    return same;
}
