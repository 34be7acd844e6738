/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "core/params_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/config.h"
#include "core/status.h"
#include "core/tensor.h"
#include "cpu/cpuinfo.h"
#include "cpu/pool.h"

enum { MAX_STRUCT_SIZE = 4096 };

const char *qattn__op_name(enum op op)
{
    static const char *const names[OP_COUNT] = {
        "matmul", "matmul_nt", "softmax", "gqa_forward", "flash_forward", "merge",
    };
    return names[op];
}

int32_t qattn__params_read(void *local, size_t known, const void *given)
{
    if (!given) {
        memset(local, 0, known);
        return QATTN_OK;
    }
    size_t size;
    memcpy(&size, given, sizeof size);
    QATTN_REQUIRE(size >= known && size <= MAX_STRUCT_SIZE && size % 8 == 0, QATTN_ERR_STRUCT_SIZE,
                  "params.struct_size is %zu: must be at least %zu, at most %d and a multiple of 8; start from "
                  "the QATTN_*_PARAMS_INIT macro", size, known, MAX_STRUCT_SIZE);
    const unsigned char *bytes = given;
    for (size_t i = known; i < size; i++)
        QATTN_REQUIRE(bytes[i] == 0, QATTN_ERR_PARAMS_TOO_NEW,
                      "params byte %zu is not 0: this library (version %d) knows the first %zu bytes; upgrade it "
                      "or leave newer fields 0", i, QATTN_VERSION, known);
    memcpy(local, given, known);
    return QATTN_OK;
}

int32_t qattn__params_common(struct problem *p, const struct common_options *c)
{
    QATTN_REQUIRE((c->flags & ~c->allowed_flags) == 0, QATTN_ERR_UNKNOWN_BITS,
                  "params.flags is 0x%" PRIx64 ": bits 0x%" PRIx64 " are unknown or mean nothing to %s", c->flags,
                  c->flags & ~c->allowed_flags, qattn__op_name(p->op));
    QATTN_REQUIRE((uintptr_t)c->workspace % 256 == 0, QATTN_ERR_ALIGNMENT,
                  "params.workspace is %p: must be a multiple of 256", c->workspace);
    QATTN_REQUIRE(c->num_threads >= 0, QATTN_ERR_BAD_VALUE,
                  "params.num_threads is %" PRId32 ": must be at least 0 (0: as many as the machine offers)",
                  c->num_threads);
    QATTN_REQUIRE(c->precision >= QATTN_PRECISION_IEEE && c->precision <= QATTN_PRECISION_TF32,
                  QATTN_ERR_BAD_VALUE, "params.precision is %" PRId32 ": must be one of QATTN_PRECISION_* (0 to 2)",
                  c->precision);
    p->flags = c->flags;
    p->workspace = c->workspace;
    p->workspace_bytes = c->workspace ? c->workspace_bytes : 0;
    p->precision = c->precision;
    p->num_threads = c->num_threads ? c->num_threads : qattn__config()->num_threads;
    if (p->num_threads == 0)
        p->num_threads = qattn__cpu_count();
    if (p->num_threads > QATTN__POOL_MAX_THREADS)
        p->num_threads = QATTN__POOL_MAX_THREADS;
    return QATTN_OK;
}

int32_t qattn__params_finite(float x, const char *name)
{
    QATTN_REQUIRE(isfinite(x), QATTN_ERR_BAD_VALUE, "params.%s is %g: must be finite", name, (double)x);
    return QATTN_OK;
}

int32_t qattn__params_array(const void *array, const char *name)
{
    QATTN_REQUIRE((uintptr_t)array % 4 == 0, QATTN_ERR_ALIGNMENT, "params.%s is %p: must be a multiple of 4", name,
                  array);
    return QATTN_OK;
}

int32_t qattn__params_aliases(const struct named_view *outputs, int num_outputs, const struct named_view *inputs,
                              int num_inputs)
{
    for (int i = 0; i < num_outputs; i++) {
        const struct named_view *const out = &outputs[i];
        if (!out->view->data)
            continue;
        for (int j = 0; j < num_inputs; j++)
            if (inputs[j].view->data == out->view->data)
                QATTN_TRY(qattn__tensor_no_alias(out->view, out->name, inputs[j].view, inputs[j].name));
        for (int j = 0; j < i; j++)
            if (outputs[j].view->data == out->view->data)
                QATTN_TRY(qattn__tensor_no_alias(out->view, out->name, outputs[j].view, outputs[j].name));
    }
    return QATTN_OK;
}

void qattn__problem_clear(struct problem *p, enum op op, const qattn_tensor *first, bool shapes_only)
{
    memset(p, 0, offsetof(struct problem, parts));
    p->op = op;
    p->device_type = first->device_type;
    p->device_id = first->device_id;
    p->shapes_only = shapes_only;
}

/* ---------------------------------------------------------------- matmul */

static int32_t check_matmul_shapes(struct problem *p)
{
    const bool nt = p->op == OP_MATMUL_NT;
    const struct view *a = &p->a, *b = &p->b, *c = &p->c;
    QATTN_TRY(qattn__tensor_extent(b, "b", 0, a->shape[0], "the batch of a"));
    QATTN_TRY(qattn__tensor_extent(b, "b", nt ? 3 : 2, a->shape[3], "K of a"));
    QATTN_TRY(qattn__tensor_extent(c, "c", 0, a->shape[0], "the batch of a"));
    QATTN_TRY(qattn__tensor_extent(c, "c", 1, a->shape[1], "the heads of a"));
    QATTN_TRY(qattn__tensor_extent(c, "c", 2, a->shape[2], "M of a"));
    QATTN_TRY(qattn__tensor_extent(c, "c", 3, b->shape[nt ? 2 : 3], "N of b"));
    const int64_t h = a->shape[1], hb = b->shape[1];
    QATTN_REQUIRE(h == 0 || (hb > 0 && h % hb == 0), QATTN_ERR_BAD_SHAPE,
                  "b.shape[1] is %" PRId64 ": must divide a.shape[1] (%" PRId64 ") into whole groups", hb, h);
    p->b_head_div = h > 0 ? h / hb : 1;
    return QATTN_OK;
}

int32_t qattn__problem_matmul(struct problem *p, enum op op, const qattn_tensor *a, const qattn_tensor *b,
                              const qattn_tensor *c, const qattn_matmul_params *params, bool shapes_only)
{
    qattn_matmul_params local;
    QATTN_REQUIRE(a, QATTN_ERR_NULL_POINTER, "a is NULL: a tensor is required");
    qattn__problem_clear(p, op, a, shapes_only);
    QATTN_TRY(qattn__params_read(&local, sizeof local, params));
    QATTN_TRY(qattn__tensor_view(&p->a, a, "a", TENSOR_INPUT, shapes_only));
    QATTN_TRY(qattn__tensor_view(&p->b, b, "b", TENSOR_INPUT, shapes_only));
    QATTN_TRY(qattn__tensor_view(&p->c, c, "c", TENSOR_OUTPUT, shapes_only));
    QATTN_TRY(qattn__tensor_same_device(b, "b", a, "a"));
    QATTN_TRY(qattn__tensor_same_device(c, "c", a, "a"));
    QATTN_TRY(check_matmul_shapes(p));
    const struct common_options common = {
        local.flags, QATTN__ALL_FLAGS & ~QATTN_FLAG_LSE_BASE2, local.workspace, local.workspace_bytes,
        local.num_threads, local.precision,
    };
    QATTN_TRY(qattn__params_common(p, &common));
    QATTN_TRY(qattn__params_finite(local.alpha, "alpha"));
    QATTN_TRY(qattn__params_finite(local.beta, "beta"));
    p->alpha = local.alpha == 0.0f && !(local.flags & QATTN_FLAG_SCALE_AS_GIVEN) ? 1.0f : local.alpha;
    p->beta = local.beta;
    const struct named_view out = { &p->c, "c" }, in[] = { { &p->a, "a" }, { &p->b, "b" } };
    QATTN_TRY(qattn__params_aliases(&out, 1, in, 2));
    const int32_t ta = p->a.dtype, tb = p->b.dtype, tc = p->c.dtype;
    QATTN_REQUIRE(qattn__is_float_type(ta) && tb == ta && (tc == ta || tc == QATTN_DTYPE_F32),
                  QATTN_ERR_UNSUPPORTED_DTYPE,
                  "a, b, c are %s, %s, %s: a and b must be one type of f32, f16, bf16, and c that type or f32",
                  qattn__dtype_name(ta), qattn__dtype_name(tb), qattn__dtype_name(tc));
    return QATTN_OK;
}

/* ---------------------------------------------------------------- softmax */

static int32_t check_softmax_types(const struct problem *p)
{
    const int32_t tx = p->x.dtype, ty = p->y.dtype;
    QATTN_REQUIRE(qattn__is_float_type(tx) && (ty == tx || ty == QATTN_DTYPE_F32), QATTN_ERR_UNSUPPORTED_DTYPE,
                  "x, y are %s, %s: x must be f32, f16 or bf16, and y that type or f32", qattn__dtype_name(tx),
                  qattn__dtype_name(ty));
    return QATTN_OK;
}

int32_t qattn__problem_softmax(struct problem *p, const qattn_tensor *x, const qattn_tensor *y,
                               const qattn_softmax_params *params, bool causal, bool shapes_only)
{
    qattn_softmax_params local;
    QATTN_REQUIRE(x, QATTN_ERR_NULL_POINTER, "x is NULL: a tensor is required");
    qattn__problem_clear(p, OP_SOFTMAX, x, shapes_only);
    QATTN_TRY(qattn__params_read(&local, sizeof local, params));
    QATTN_TRY(qattn__tensor_view(&p->x, x, "x", TENSOR_INPUT, shapes_only));
    QATTN_TRY(qattn__tensor_view(&p->y, y, "y", TENSOR_OUTPUT, shapes_only));
    QATTN_TRY(qattn__tensor_same_device(y, "y", x, "x"));
    for (int i = 0; i < 4; i++)
        QATTN_TRY(qattn__tensor_extent(&p->y, "y", i, x->shape[i], "the shape of x"));
    const struct common_options common = {
        local.flags, QATTN__ALL_FLAGS, local.workspace, local.workspace_bytes, local.num_threads, QATTN_PRECISION_IEEE,
    };
    QATTN_TRY(qattn__params_common(p, &common));
    p->n = x->shape[0];
    p->hq = p->hkv = x->shape[1];
    p->group = 1;
    p->cap_q = x->shape[2];
    p->cap_k = x->shape[3];
    const struct score_options scores = {
        .scale = local.scale, .default_scale = 1.0f, .softcap = local.softcap,
        .mask = local.mask | (causal ? QATTN_MASK_CAUSAL : 0u),
        .window_left = local.window_left, .window_right = local.window_right, .q_offset = local.q_offset,
        .alibi_batch_stride = local.alibi_batch_stride, .q_offsets = local.q_offsets,
        .seqused_q = local.seqused_q, .seqused_k = local.seqused_k, .sinks = local.sinks,
        .alibi_slopes = local.alibi_slopes, .lse = &local.lse, .bias = &local.bias, .keep = &local.keep,
        .shape = { x->shape[0], x->shape[1], x->shape[2], x->shape[3] },
        .lse_shape = { x->shape[0], x->shape[1], x->shape[2] },
        .first = x, .first_name = "x", .shapes_only = shapes_only,
    };
    QATTN_TRY(qattn__params_scores(p, &scores));
    const bool in_place = qattn__view_same(&p->x, &p->y);
    const struct named_view out[] = { { &p->y, "y" }, { &p->lse, "params.lse" } };
    const struct named_view in[] = { { &p->bias, "params.bias" }, { &p->keep, "params.keep" }, { &p->x, "x" } };
    QATTN_TRY(qattn__params_aliases(out, 2, in, in_place ? 2 : 3));
    QATTN_TRY(qattn__tensor_no_alias(&p->lse, "params.lse", &p->x, "x"));
    return check_softmax_types(p);
}

/* ---------------------------------------------------------------- merge */

/* "o_parts[3]", "lse_parts[3]": what messages call the tensors of a part. */
struct part_names { char o[16], lse[16]; };

static void append_index(char *name, int i)
{
    char *end = name + strlen(name);
    if (i >= 10)
        *end++ = (char)('0' + i / 10);
    *end++ = (char)('0' + i % 10);
    *end++ = ']';
    *end = '\0';
}

/* By hand, as every part of every call passes here: i is below QATTN__MAX_PARTS = 64, two digits. */
static struct part_names name_part(int i)
{
    struct part_names names = { "o_parts[", "lse_parts[" };
    append_index(names.o, i);
    append_index(names.lse, i);
    return names;
}

static int32_t read_part(struct problem *p, int i, const qattn_tensor *o_part, const qattn_tensor *lse_part,
                         const qattn_tensor *o)
{
    const struct part_names names = name_part(i);
    QATTN_TRY(qattn__tensor_view(&p->parts[i].o, o_part, names.o, TENSOR_INPUT, p->shapes_only));
    QATTN_TRY(qattn__tensor_view(&p->parts[i].lse, lse_part, names.lse, TENSOR_INPUT, p->shapes_only));
    QATTN_TRY(qattn__tensor_same_device(o_part, names.o, o, "o"));
    QATTN_TRY(qattn__tensor_same_device(lse_part, names.lse, o, "o"));
    for (int axis = 0; axis < 4; axis++)
        QATTN_TRY(qattn__tensor_extent(&p->parts[i].o, names.o, axis, p->o.shape[axis], "the shape of o"));
    for (int axis = 0; axis < 4; axis++)
        QATTN_TRY(qattn__tensor_extent(&p->parts[i].lse, names.lse, axis, axis < 3 ? p->o.shape[axis] : 1,
                                       "[B,H,S,1] of o"));
    QATTN_REQUIRE(p->parts[i].lse.dtype == QATTN_DTYPE_F32, QATTN_ERR_UNSUPPORTED_DTYPE,
                  "lse_parts[%d] is %s: must be f32", i, qattn__dtype_name(p->parts[i].lse.dtype));
    const int32_t first = p->parts[0].o.dtype, part = p->parts[i].o.dtype, out = p->o.dtype;
    QATTN_REQUIRE(qattn__is_float_type(first) && part == first && (out == first || out == QATTN_DTYPE_F32),
                  QATTN_ERR_UNSUPPORTED_DTYPE, "o_parts[0], o_parts[%d], o are %s, %s, %s: parts must be one type of "
                  "f32, f16, bf16, and o that type or f32", i, qattn__dtype_name(first), qattn__dtype_name(part),
                  qattn__dtype_name(out));
    return QATTN_OK;
}

/* o and lse may be part 0 in place; any other shared address is refused. */
static int32_t check_merge_aliases(const struct problem *p)
{
    QATTN_TRY(qattn__tensor_no_alias(&p->o, "o", &p->lse, "lse"));
    for (int i = 0; i < (int)p->num_parts; i++) {
        const struct view *o = &p->parts[i].o, *lse = &p->parts[i].lse;
        const struct part_names names = name_part(i);
        if (i > 0 || !qattn__view_same(o, &p->o))
            QATTN_TRY(qattn__tensor_no_alias(&p->o, "o", o, names.o));
        if (i > 0 || !qattn__view_same(lse, &p->lse))
            QATTN_TRY(qattn__tensor_no_alias(&p->lse, "lse", lse, names.lse));
        QATTN_TRY(qattn__tensor_no_alias(&p->o, "o", lse, names.lse));
        QATTN_TRY(qattn__tensor_no_alias(&p->lse, "lse", o, names.o));
    }
    return QATTN_OK;
}

static int32_t read_merge_lse(struct problem *p, const qattn_tensor *lse)
{
    bool absent = true;
    if (lse)
        QATTN_TRY(qattn__tensor_absent(lse, "lse", &absent));
    if (absent)
        return QATTN_OK;
    QATTN_TRY(qattn__tensor_view(&p->lse, lse, "lse", TENSOR_OUTPUT, p->shapes_only));
    for (int axis = 0; axis < 4; axis++)
        QATTN_TRY(qattn__tensor_extent(&p->lse, "lse", axis, axis < 3 ? p->o.shape[axis] : 1, "[B,H,S,1] of o"));
    QATTN_REQUIRE(p->lse.dtype == QATTN_DTYPE_F32, QATTN_ERR_UNSUPPORTED_DTYPE, "lse is %s: must be f32",
                  qattn__dtype_name(p->lse.dtype));
    return QATTN_OK;
}

int32_t qattn__problem_merge(struct problem *p, int64_t n, const qattn_tensor *o_parts,
                             const qattn_tensor *lse_parts, const qattn_tensor *o, const qattn_tensor *lse,
                             const qattn_merge_params *params, bool shapes_only)
{
    qattn_merge_params local;
    QATTN_REQUIRE(n >= 1 && n <= QATTN__MAX_PARTS, QATTN_ERR_BAD_VALUE, "n is %" PRId64 ": must be from 1 to %d", n,
                  QATTN__MAX_PARTS);
    QATTN_REQUIRE(o_parts && lse_parts && o, QATTN_ERR_NULL_POINTER, "%s is NULL: required",
                  !o_parts ? "o_parts" : !lse_parts ? "lse_parts" : "o");
    qattn__problem_clear(p, OP_MERGE, o, shapes_only);
    QATTN_TRY(qattn__params_read(&local, sizeof local, params));
    QATTN_REQUIRE(local.reserved0 == 0, QATTN_ERR_RESERVED, "params.reserved0 is %" PRId32 ": must be 0",
                  local.reserved0);
    QATTN_TRY(qattn__tensor_view(&p->o, o, "o", TENSOR_OUTPUT, shapes_only));
    QATTN_TRY(read_merge_lse(p, lse));
    p->num_parts = n;
    for (int i = 0; i < (int)n; i++)
        QATTN_TRY(read_part(p, i, &o_parts[i], &lse_parts[i], o));
    if (p->lse.dtype)
        QATTN_TRY(qattn__tensor_same_device(lse, "lse", o, "o"));
    const struct common_options common = {
        local.flags, QATTN__ALL_FLAGS & ~QATTN_FLAG_SCALE_AS_GIVEN, local.workspace, local.workspace_bytes,
        local.num_threads, QATTN_PRECISION_IEEE,
    };
    QATTN_TRY(qattn__params_common(p, &common));
    return check_merge_aliases(p);
}
