/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "core/tensor.h"

#include <inttypes.h>
#include <string.h>

#include "core/status.h"

int32_t qattn__dtype_size(int32_t dtype)
{
    switch (dtype) {
    case QATTN_DTYPE_F32: return 4;
    case QATTN_DTYPE_F16: case QATTN_DTYPE_BF16: return 2;
    case QATTN_DTYPE_E4M3FN: case QATTN_DTYPE_E5M2: case QATTN_DTYPE_I8: case QATTN_DTYPE_U8:
    case QATTN_DTYPE_BOOL: return 1;
    default: return 0;
    }
}

const char *qattn__dtype_name(int32_t dtype)
{
    switch (dtype) {
    case QATTN_DTYPE_F32: return "f32";
    case QATTN_DTYPE_F16: return "f16";
    case QATTN_DTYPE_BF16: return "bf16";
    case QATTN_DTYPE_E4M3FN: return "e4m3fn";
    case QATTN_DTYPE_E5M2: return "e5m2";
    case QATTN_DTYPE_I8: return "i8";
    case QATTN_DTYPE_U8: return "u8";
    case QATTN_DTYPE_BOOL: return "bool";
    default: return "?";
    }
}

int32_t qattn__tensor_absent(const qattn_tensor *t, const char *name, bool *absent)
{
    static const qattn_tensor zero;
    *absent = t->dtype == QATTN_DTYPE_NONE;
    QATTN_REQUIRE(!*absent || memcmp(t, &zero, sizeof zero) == 0, QATTN_ERR_BAD_DTYPE,
                  "%s.dtype is 0 (absent) but other fields are set: set dtype, or clear all 96 bytes", name);
    return QATTN_OK;
}

static int32_t check_type_and_device(const qattn_tensor *t, const char *name)
{
    QATTN_REQUIRE(qattn__dtype_size(t->dtype) > 0, QATTN_ERR_BAD_DTYPE,
                  "%s.dtype is 0x%06" PRIX32 ": must be one of QATTN_DTYPE_*", name, (uint32_t)t->dtype);
    QATTN_REQUIRE(t->device_type == QATTN_DEVICE_CPU || t->device_type == QATTN_DEVICE_CUDA, QATTN_ERR_BAD_DEVICE,
                  "%s.device_type is %" PRId32 ": must be QATTN_DEVICE_CPU (1) or QATTN_DEVICE_CUDA (2)", name,
                  t->device_type);
    QATTN_REQUIRE(t->device_id >= 0 && (t->device_type == QATTN_DEVICE_CUDA || t->device_id == 0),
                  QATTN_ERR_BAD_DEVICE, "%s.device_id is %" PRId32 ": must be 0 on CPU, at least 0 on CUDA", name,
                  t->device_id);
    QATTN_REQUIRE(t->reserved0 == 0 && t->reserved1 == 0, QATTN_ERR_RESERVED,
                  "%s.reserved0 is %" PRId32 ", reserved1 is %" PRIu64 ": both must be 0", name, t->reserved0,
                  t->reserved1);
    return QATTN_OK;
}

/* No axis is negative, and neither the number of elements nor the byte offset of any of them leaves int64. */
static int32_t check_extent(const qattn_tensor *t, const char *name, bool empty, int64_t itemsize)
{
    int64_t count = 1, reach = 0;
    for (int i = 0; i < 4 && !empty; i++) {
        QATTN_REQUIRE(!__builtin_mul_overflow(count, t->shape[i], &count), QATTN_ERR_BAD_SHAPE,
                      "%s.shape[%d] is %" PRId64 ": the number of elements must fit in 63 bits", name, i, t->shape[i]);
        if (t->shape[i] == 1)
            continue;
        int64_t span;
        bool over = t->stride[i] == INT64_MIN ||
                    __builtin_mul_overflow(t->shape[i] - 1, t->stride[i] < 0 ? -t->stride[i] : t->stride[i], &span) ||
                    __builtin_mul_overflow(span, itemsize, &span) || __builtin_add_overflow(reach, span, &reach);
        QATTN_REQUIRE(!over, QATTN_ERR_BAD_STRIDE,
                      "%s.stride[%d] is %" PRId64 ": (shape - 1) * stride must fit in 63 bits of bytes", name, i,
                      t->stride[i]);
    }
    return QATTN_OK;
}

/* Axes of more than one element, sorted by |stride|: each stride must exceed what the smaller ones span. */
static int32_t check_output_strides(const qattn_tensor *t, const char *name)
{
    int axes[4], n = 0;
    int64_t step[4];
    for (int i = 0; i < 4; i++) {
        if (t->shape[i] <= 1)
            continue;
        step[i] = t->stride[i] < 0 ? -t->stride[i] : t->stride[i];
        int at = n++;
        for (; at > 0 && step[axes[at - 1]] > step[i]; at--)
            axes[at] = axes[at - 1];
        axes[at] = i;
    }
    int64_t extent = 0;
    for (int i = 0; i < n; i++) {
        const int axis = axes[i];
        QATTN_REQUIRE(step[axis] > extent, QATTN_ERR_BAD_STRIDE,
                      "%s.stride[%d] is %" PRId64 ": this output may overlap itself; the stride must exceed %" PRId64
                      ", the extent of the faster axes", name, axis, t->stride[axis], extent);
        extent += (t->shape[axis] - 1) * step[axis];
    }
    return QATTN_OK;
}

int32_t qattn__tensor_view(struct view *out, const qattn_tensor *t, const char *name, enum tensor_role role,
                           bool shapes_only)
{
    QATTN_REQUIRE(t, QATTN_ERR_NULL_POINTER, "%s is NULL: a tensor is required", name);
    QATTN_REQUIRE(t->dtype != QATTN_DTYPE_NONE, QATTN_ERR_BAD_DTYPE,
                  "%s.dtype is 0 (absent): this tensor is required; qattn_tensor_init fills one", name);
    QATTN_TRY(check_type_and_device(t, name));
    const int32_t itemsize = qattn__dtype_size(t->dtype);
    bool empty = false;
    for (int i = 0; i < 4; i++) {
        QATTN_REQUIRE(t->shape[i] >= 0, QATTN_ERR_BAD_SHAPE, "%s.shape[%d] is %" PRId64 ": must be at least 0", name,
                      i, t->shape[i]);
        empty = empty || t->shape[i] == 0;
    }
    QATTN_TRY(check_extent(t, name, empty, itemsize));
    if (role == TENSOR_OUTPUT && !empty)
        QATTN_TRY(check_output_strides(t, name));
    QATTN_REQUIRE(t->data || empty || shapes_only, QATTN_ERR_NULL_POINTER,
                  "%s.data is NULL: allowed only where an axis is 0", name);
    QATTN_REQUIRE(((uintptr_t)t->data & (uintptr_t)(itemsize - 1)) == 0, QATTN_ERR_ALIGNMENT,    /* a power of two */
                  "%s.data is %p: must be a multiple of the element size, %" PRId32, name, t->data, itemsize);

    *out = (struct view) { .data = t->data, .dtype = t->dtype, .itemsize = itemsize };
    for (int i = 0; i < 4; i++) {
        out->shape[i] = t->shape[i];
        out->stride[i] = t->shape[i] > 1 && !empty ? t->stride[i] : 0;
    }
    return QATTN_OK;
}

int32_t qattn__tensor_same_device(const qattn_tensor *t, const char *name, const qattn_tensor *first,
                                  const char *first_name)
{
    QATTN_REQUIRE(t->device_type == first->device_type && t->device_id == first->device_id,
                  QATTN_ERR_DEVICE_MISMATCH, "%s is on device %" PRId32 ":%" PRId32 ", %s on %" PRId32 ":%" PRId32
                  ": all tensors of a call must share one device", name, t->device_type, t->device_id, first_name,
                  first->device_type, first->device_id);
    return QATTN_OK;
}

int32_t qattn__tensor_no_alias(const struct view *out, const char *out_name, const struct view *other,
                               const char *other_name)
{
    QATTN_REQUIRE(!out->data || out->data != other->data || view_empty(out) || view_empty(other), QATTN_ERR_ALIAS,
                  "%s.data and %s.data are both %p: an output needs memory of its own", out_name, other_name,
                  (void *)out->data);
    return QATTN_OK;
}

int32_t qattn__tensor_extent(const struct view *t, const char *name, int axis, int64_t want, const char *rule)
{
    QATTN_REQUIRE(t->shape[axis] == want, QATTN_ERR_BAD_SHAPE, "%s.shape[%d] is %" PRId64 ": must be %" PRId64 ", %s",
                  name, axis, t->shape[axis], want, rule);
    return QATTN_OK;
}

bool qattn__view_same(const struct view *a, const struct view *b)
{
    return a->data == b->data && a->dtype == b->dtype && memcmp(a->shape, b->shape, sizeof a->shape) == 0 &&
           memcmp(a->stride, b->stride, sizeof a->stride) == 0;
}

/* Memory order of each layout, slowest first, as axes of B, H, S, D. THD is BSHD with B = 1. */
static const int *layout_order(int32_t layout)
{
    static const int orders[][4] = { { 0, 1, 2, 3 }, { 0, 2, 1, 3 }, { 2, 0, 1, 3 }, { 0, 2, 1, 3 } };
    return layout >= QATTN_LAYOUT_BHSD && layout <= QATTN_LAYOUT_THD ? orders[layout - QATTN_LAYOUT_BHSD] : NULL;
}

static int32_t check_layout(int32_t layout)
{
    QATTN_REQUIRE(layout_order(layout), QATTN_ERR_BAD_VALUE,
                  "layout is %" PRId32 ": must be QATTN_LAYOUT_BHSD, _BSHD, _SBHD or _THD (1 to 4)", layout);
    return QATTN_OK;
}

int32_t qattn__tensor_init(qattn_tensor *out, void *data, int32_t dtype, int32_t device_type, int32_t device_id,
                           int32_t layout, int64_t b, int64_t h, int64_t s, int64_t d)
{
    QATTN_REQUIRE(out, QATTN_ERR_NULL_POINTER, "out is NULL: a qattn_tensor to fill is required");
    QATTN_TRY(check_layout(layout));
    QATTN_REQUIRE(layout != QATTN_LAYOUT_THD || b == 1, QATTN_ERR_BAD_SHAPE,
                  "b is %" PRId64 ": must be 1 with QATTN_LAYOUT_THD; s is the total number of tokens", b);
    qattn_tensor t = { .data = data, .shape = { b, h, s, d }, .dtype = dtype, .device_type = device_type,
                       .device_id = device_id };
    const int *order = layout_order(layout);
    int64_t stride = 1;
    for (int i = 3; i >= 0; i--) {
        const int64_t extent = t.shape[order[i]];
        t.stride[order[i]] = stride;
        QATTN_REQUIRE(extent >= 0, QATTN_ERR_BAD_SHAPE, "%c is %" PRId64 ": must be at least 0", "bhsd"[order[i]],
                      extent);
        QATTN_REQUIRE(!__builtin_mul_overflow(stride, extent > 0 ? extent : 1, &stride), QATTN_ERR_BAD_SHAPE,
                      "%c is %" PRId64 ": the number of elements must fit in 63 bits", "bhsd"[order[i]], extent);
    }
    struct view ignored;
    QATTN_TRY(qattn__tensor_view(&ignored, &t, "out", TENSOR_INPUT, true));
    *out = t;
    return QATTN_OK;
}

/* DLTensor as DLPack 0.x and 1.x lay it out. */
struct dltensor {
    void *data;
    struct { int32_t device_type, device_id; } device;
    int32_t ndim;
    struct { uint8_t code, bits; uint16_t lanes; } dtype;
    const int64_t *shape, *strides;
    uint64_t byte_offset;
};

static int32_t map_dlpack_device(const struct dltensor *dl, int32_t *device_type, int32_t *device_id)
{
    switch (dl->device.device_type) {
    case 1: case 3:  *device_type = QATTN_DEVICE_CPU; *device_id = 0; return QATTN_OK;
    case 2: case 13: *device_type = QATTN_DEVICE_CUDA; *device_id = dl->device.device_id; return QATTN_OK;
    default:
        return qattn__fail(QATTN_ERR_BAD_DEVICE, "dltensor->device.device_type is %" PRId32
                           ": must be 1 (CPU), 3 (pinned), 2 (CUDA) or 13 (managed)", dl->device.device_type);
    }
}

int32_t qattn__tensor_from_dlpack(qattn_tensor *out, const void *dltensor, int32_t layout)
{
    const struct dltensor *dl = dltensor;
    QATTN_REQUIRE(out, QATTN_ERR_NULL_POINTER, "out is NULL: a qattn_tensor to fill is required");
    QATTN_REQUIRE(dl, QATTN_ERR_NULL_POINTER, "dltensor is NULL: pass &managed->dl_tensor");
    QATTN_TRY(check_layout(layout));
    const int32_t want = layout == QATTN_LAYOUT_THD ? 3 : 4;
    QATTN_REQUIRE(dl->ndim == want, QATTN_ERR_BAD_SHAPE, "dltensor->ndim is %" PRId32 ": must be %" PRId32
                  " with this layout", dl->ndim, want);
    QATTN_REQUIRE(dl->shape, QATTN_ERR_NULL_POINTER, "dltensor->shape is NULL: an array of ndim sizes is required");
    QATTN_REQUIRE(dl->dtype.lanes == 1, QATTN_ERR_UNSUPPORTED_DTYPE,
                  "dltensor->dtype.lanes is %u: must be 1", (unsigned)dl->dtype.lanes);
    const int32_t dtype = dl->dtype.code << 16 | dl->dtype.bits << 8 | dl->dtype.lanes;
    QATTN_REQUIRE(qattn__dtype_size(dtype) > 0, QATTN_ERR_UNSUPPORTED_DTYPE,
                  "dltensor->dtype is code %u, %u bits: no QATTN_DTYPE_* has it", (unsigned)dl->dtype.code,
                  (unsigned)dl->dtype.bits);

    qattn_tensor t = { .dtype = dtype, .shape = { 1, 1, 1, 1 } };
    QATTN_TRY(map_dlpack_device(dl, &t.device_type, &t.device_id));
    t.data = dl->data ? (char *)dl->data + dl->byte_offset : NULL;
    const int *order = layout_order(layout) + (4 - want);
    int64_t packed = 1;
    for (int i = want - 1; i >= 0; i--) {
        QATTN_REQUIRE(dl->shape[i] >= 0, QATTN_ERR_BAD_SHAPE, "dltensor->shape[%d] is %" PRId64
                      ": must be at least 0", i, dl->shape[i]);
        t.shape[order[i]] = dl->shape[i];
        t.stride[order[i]] = dl->strides ? dl->strides[i] : packed;
        QATTN_REQUIRE(!__builtin_mul_overflow(packed, dl->shape[i] > 0 ? dl->shape[i] : 1, &packed),
                      QATTN_ERR_BAD_SHAPE, "dltensor->shape[%d] is %" PRId64
                      ": the number of elements must fit in 63 bits", i, dl->shape[i]);
    }
    struct view ignored;
    QATTN_TRY(qattn__tensor_view(&ignored, &t, "dltensor", TENSOR_INPUT, true));
    *out = t;
    return QATTN_OK;
}
