/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Attention by three kernels, with the scores in memory:
 *
 *     S = Q K^T          gemm_simt_kernels.cu    [n][Hq][Sq][Sk] f32 in the workspace, without tiles that no row sees
 *     P = e^(S - max)    softmax_simt_kernels.cu in place: scale, softcap, bias, masks; writes the caller's
 *                                                scores, LSE, and a factor for each row
 *     O = P V, factors   gemm_simt_kernels.cu    over the keys that some row of a tile sees
 *
 * Query head h reads K and V of head h / group. With 8-bit k and v all three become f32 copies first. Scores asked for
 * before the masks (stages 0 and 1) need every product, so nothing is left out then.
 *
 * Cost for f32: 4 Hq Sq Sk D / fp32 peak, plus 16 bytes a score (written, read, written, read);
 * half of both when causal.
 */
#include "cuda/launch.h"
#include "cuda/sizes.h"
#include "cuda/simt/gemm_simt.h"
#include "cuda/simt/simt.h"
#include "cuda/simt/softmax_simt.h"
#include "cuda/simt/widen_simt.h"

struct gqa_call {
    const struct problem *p;
    int64_t pitch;              /* floats from one row of S to the next: whole float4s */
    struct view q, k, v;        /* the caller's, or f32 copies */
    struct view s, factors;
    size_t bytes;               /* SIZE_MAX: more than can be */
};

/* Places a packed f32 tensor in the workspace; pitch: elements from row to row. */
static struct view take(struct gqa_call *c, const int64_t shape[4], int64_t pitch)
{
    struct view t = { .dtype = QATTN_DTYPE_F32, .itemsize = sizeof(float) };
    size_t bytes = sizeof(float);
    int64_t stride = 1;
    bool fits = c->bytes != SIZE_MAX;
    for (int axis = 3; axis >= 0; axis--) {
        t.shape[axis] = shape[axis];
        t.stride[axis] = stride;
        const int64_t extent = axis == 3 ? pitch : shape[axis];
        fits = fits && !__builtin_mul_overflow(bytes, (size_t)extent, &bytes) && bytes < SIZE_MAX / 8;
        stride = fits ? stride * extent : 0;
    }
    t.data = c->p->workspace && fits ? c->p->workspace + c->bytes : NULL;
    c->bytes = fits ? c->bytes + ((bytes + 255) & ~(size_t)255) : SIZE_MAX;
    return t;
}

static bool is_8bit(const struct view *t) { return t->itemsize == 1; }

static struct gqa_call plan_call(const struct problem *p)
{
    struct gqa_call c = { .p = p, .q = p->q, .k = p->k, .v = p->v };
    c.pitch = p->cap_k <= INT64_MAX - 3 ? (p->cap_k + 3) / 4 * 4 : INT64_MAX;
    const int64_t s[4] = { p->n, p->hq, p->cap_q, p->cap_k }, q[4] = { p->n, p->hq, p->cap_q, p->d };
    const int64_t f[4] = { p->n, p->hq, p->cap_q, 1 };
    const int64_t k[4] = { p->n, p->hkv, p->cap_k, p->d }, v[4] = { p->n, p->hkv, p->cap_k, p->dv };
    c.s = take(&c, s, c.pitch);
    c.factors = take(&c, f, 1);
    if (is_8bit(&p->k)) {
        c.q = take(&c, q, p->d);
        c.k = take(&c, k, p->d);
        c.v = take(&c, v, p->dv);
    }
    return c;
}

size_t qattn__simt_gqa_workspace(const struct problem *p)
{
    return plan_call(p).bytes;
}

static int32_t widen_tensor(const struct gqa_call *c, const struct view *out, enum widen_which which,
                            qattn_stream stream)
{
    struct widen_simt_args args = {
        .out = (float *)(void *)out->data, .heads = out->shape[1], .rows = out->shape[2], .width = out->shape[3],
        .elements = out->shape[0] * out->shape[1] * out->shape[2] * out->shape[3], .which = which,
    };
    void *params[] = { &args, problem_as_param(c->p) };
    return qattn__cuda_launch(qattn__widen_simt(), blocks_of(args.elements, WIDEN_THREADS), WIDEN_THREADS, 0, params,
                              stream, "widen_simt_kernel");
}

static int32_t widen_inputs(const struct gqa_call *c, qattn_stream stream)
{
    if (is_8bit(&c->p->k)) {
        QATTN_TRY(widen_tensor(c, &c->q, WIDEN_Q, stream));
        QATTN_TRY(widen_tensor(c, &c->k, WIDEN_K, stream));
        QATTN_TRY(widen_tensor(c, &c->v, WIDEN_V, stream));
    }
    return QATTN_OK;
}

int32_t qattn__simt_gqa(const struct problem *p, qattn_stream stream)
{
    const struct gqa_call c = plan_call(p);
    const bool all_scores = p->scores.dtype && p->scores_stage < 2;
    QATTN_TRY(widen_inputs(&c, stream));

    struct gemm_args scores = qattn__attention_args(p, &c.q, &c.k, 2, &c.s, all_scores ? RANGE_ALL : RANGE_SCORES);
    QATTN_TRY(qattn__simt_gemm(&scores, p, stream));

    struct softmax_simt_args softmax = { .x = c.s, .y = c.s, .keys = p->cap_k, .marked = 1, .scores = p->scores,
                                         .factors = (float *)(void *)c.factors.data };
    QATTN_TRY(qattn__simt_softmax_rows(&softmax, p, stream));

    struct gemm_args values = qattn__attention_args(p, &c.s, &c.v, 3, &p->o, RANGE_VALUES);
    values.factors = softmax.factors;
    return qattn__simt_gemm(&values, p, stream);
}
