/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Fenced tensors of support.h: each in pages of its own between two inaccessible ones. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct layout layout_packed(int32_t layout)
{
    static const int orders[4][4] = { { 0, 1, 2, 3 }, { 0, 1, 2, 3 }, { 0, 2, 1, 3 }, { 2, 0, 1, 3 } };
    struct layout l = { .step = 1 };
    memcpy(l.order, orders[layout], sizeof l.order);
    return l;
}

struct layout layout_random(struct rng *r)
{
    struct layout l = { .order = { 0, 1, 2, 3 }, .step = rng_below(r, 4) ? 1 : 1 + rng_below(r, 3) };
    /* D stays the fastest axis in half of the layouts: that is what callers have */
    const int64_t movable = rng_below(r, 2) ? 3 : 4;
    for (int64_t i = movable - 1; i > 0; i--) {
        const int64_t j = rng_below(r, i + 1);
        const int keep = l.order[i];
        l.order[i] = l.order[j];
        l.order[j] = keep;
    }
    for (int axis = 0; axis < 4; axis++) {
        l.pad[axis] = rng_below(r, 2) ? 0 : rng_below(r, 9);
        l.flip[axis] = rng_below(r, 5) == 0;
    }
    l.fence_low = rng_below(r, 2);
    return l;
}

struct layout layout_rows(struct rng *r, int64_t align)
{
    struct layout l = layout_random(r);
    l.step = 1;
    l.align = align;
    l.flip[3] = false;
    for (int k = 0; k < 3; k++)
        if (l.order[k] == 3) {
            l.order[k] = l.order[3];
            l.order[3] = 3;
        }
    return l;
}

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* Maps `bytes` rounded up to pages between two inaccessible pages; *mem is the first usable byte. */
static unsigned char *map_fenced(size_t bytes, unsigned char **mem, size_t *mem_bytes, size_t *map_bytes)
{
    const size_t page = page_bytes();
    *mem_bytes = bytes == 0 ? page : (bytes + page - 1) / page * page;
    *map_bytes = *mem_bytes + 2 * page;
    unsigned char *map = mmap(NULL, *map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + page, *mem_bytes, PROT_READ | PROT_WRITE)) {
        perror("tests: mmap");
        abort();
    }
    *mem = map + page;
    return map;
}

void box_poison(struct box *box, enum poison poison)
{
    memset(box->mem, 0xFF, box->bytes);
    if (poison == POISON_INPUT)
        for (size_t i = 1; i < box->bytes; i += 2)
            box->mem[i] = 0x7F;
}

struct box box_new(int32_t dtype, const int64_t shape[4], const struct layout *layout, enum poison poison)
{
    struct box box = { .t = { .dtype = dtype, .device_type = QATTN_DEVICE_CPU } };
    const int64_t size = format_size(dtype);
    int64_t stride = layout->step, span = 1, base = 0;    /* elements */
    bool empty = false;
    for (int k = 3; k >= 0; k--) {
        const int axis = layout->order[k];
        const int64_t extent = shape[axis] > 0 ? shape[axis] : 1;
        empty |= shape[axis] == 0;
        box.t.shape[axis] = shape[axis];
        if (layout->broadcast[axis])
            continue;
        box.t.stride[axis] = layout->flip[axis] ? -stride : stride;
        if (layout->flip[axis])
            base += (extent - 1) * stride;
        span += (extent - 1) * stride;
        stride = stride * extent + layout->pad[axis];
        if (layout->align > size)
            stride += (layout->align / size - stride % (layout->align / size)) % (layout->align / size);
    }
    const size_t body = empty ? 0 : (size_t)(span * size);
    box.map = map_fenced(body, &box.mem, &box.bytes, &box.map_bytes);
    /* the poison's two-byte pattern keeps its phase for 2-byte types; f32 stays 4-byte aligned */
    unsigned char *first = layout->fence_low ? box.mem : box.mem + box.bytes - body;
    if (layout->align)
        first -= (uintptr_t)first % (size_t)layout->align;
    box.t.data = first + base * size;
    box_poison(&box, poison);
    return box;
}

void box_free(struct box *box)
{
    if (box->map)
        munmap(box->map, box->map_bytes);
    free(box->shadow);
    *box = (struct box){ 0 };
}

void *box_at(const struct box *box, int64_t b, int64_t h, int64_t s, int64_t d)
{
    const qattn_tensor *t = &box->t;
    const int64_t at = b * t->stride[0] + h * t->stride[1] + s * t->stride[2] + d * t->stride[3];
    return (char *)t->data + at * format_size(t->dtype);
}

double box_get(const struct box *box, int64_t b, int64_t h, int64_t s, int64_t d)
{
    return format_decode(box->t.dtype, box_at(box, b, h, s, d));
}

void box_set(struct box *box, int64_t b, int64_t h, int64_t s, int64_t d, double x)
{
    format_encode(box->t.dtype, box_at(box, b, h, s, d), x);
}

void box_set_row(struct box *box, int64_t b, int64_t h, int64_t s, int64_t n, const void *encoded)
{
    const size_t size = (size_t)format_size(box->t.dtype);
    const int64_t step = box->t.stride[3] * (int64_t)size;
    char *to = box_at(box, b, h, s, 0);
    if (step == (int64_t)size && n > 0) {
        memcpy(to, encoded, (size_t)n * size);
        return;
    }
    for (int64_t d = 0; d < n; d++)
        memcpy(to + d * step, (const char *)encoded + (size_t)d * size, size);
}

void box_snapshot(struct box *box)
{
    if (!box->shadow)
        box->shadow = malloc(box->bytes);
    memcpy(box->shadow, box->mem, box->bytes);
}

void box_expect_written(struct box *box, int64_t b, int64_t h, int64_t s, int64_t d)
{
    const unsigned char *at = box_at(box, b, h, s, d);
    memcpy(box->shadow + (at - box->mem), at, (size_t)format_size(box->t.dtype));
}

bool box_intact(const struct box *box) { return memcmp(box->mem, box->shadow, box->bytes) == 0; }

bool box_same_bytes(const struct box *a, const struct box *b)
{
    return a->bytes == b->bytes && memcmp(a->mem, b->mem, a->bytes) == 0;
}

struct scratch scratch_new(size_t bytes, int fill)
{
    struct scratch s = { .bytes = bytes, .fill = fill };
    size_t mem_bytes;
    if (bytes == 0)
        return s;
    s.map = map_fenced(bytes, &s.data, &mem_bytes, &s.map_bytes);
    memset(s.data, fill, mem_bytes);
    return s;
}

struct scratch scratch_array(size_t bytes)
{
    struct scratch s = { .bytes = bytes };
    size_t mem_bytes;
    s.map = map_fenced(bytes, &s.data, &mem_bytes, &s.map_bytes);
    s.data += mem_bytes - bytes;
    return s;
}

bool scratch_intact(const struct scratch *s)
{
    const size_t usable = s->map_bytes - (s->map ? 2 * page_bytes() : 0);
    for (size_t i = s->bytes; i < usable; i++)
        if (s->data[i] != (unsigned char)s->fill)
            return false;
    return true;
}

void scratch_free(struct scratch *s)
{
    if (s->map)
        munmap(s->map, s->map_bytes);
    *s = (struct scratch){ 0 };
}
