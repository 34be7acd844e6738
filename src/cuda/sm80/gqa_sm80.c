/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Attention by three kernels, both products on tensor cores, with the scores in memory:
 *
 *     S = Q K^T          gemm_sm80.cuh           [n][Hq][Sq][Sk] f32 in the workspace, without tiles that no row sees
 *     P = e^(S - max)    softmax_simt_kernels.cu scale, softcap, bias, masks; rounded once to V's type, over the
 *                                                first half of the row of S; writes the caller's scores, LSE, a
 *                                                factor a row
 *     O = P V, factors   gemm_sm80.cuh           over the keys that some row of a tile sees
 *
 * Query head h reads K and V of head h / group. Scores asked for before the masks (stages 0 and 1)
 * need every product, so nothing is left out then.
 *
 * Cost: 4 Hq Sq Sk D at the rate of mma.sync, plus 12 bytes a score (4 written, 4 read, 2 written,
 * 2 read), which is more; half of both when causal.
 */
#include "cuda/sm80/gqa_sm80.h"

#include <stdio.h>

#include "cuda/launch.h"
#include "cuda/simt/softmax_simt.h"
#include "cuda/sm80/gemm_sm80.h"

bool qattn__sm80_gqa_supports(const struct problem *p, char *why, size_t cap)
{
    const char *reason = qattn__gqa_refusal(p);
    if (!reason && p->q.dtype == QATTN_DTYPE_F32)
        reason = "its sums on tensor cores are too short for f32";
    else if (!reason && (p->k.itemsize != 2 || p->q.itemsize != 2))
        reason = "its products take f16 and bf16, not 8-bit types";
    if (reason)
        snprintf(why, cap, "%s", reason);
    return !reason;
}

struct gqa_sm80_plan {
    int64_t pitch;              /* floats from one row of S to the next: whole 16-byte pieces of P */
    size_t scores, factors;     /* bytes; scores SIZE_MAX: more than can be */
};

static bool multiply(size_t *bytes, int64_t by)
{
    return !__builtin_mul_overflow(*bytes, (size_t)by, bytes) && *bytes < SIZE_MAX / 8;
}

static struct gqa_sm80_plan plan_call(const struct problem *p)
{
    struct gqa_sm80_plan plan = { .factors = sizeof(float) };
    bool fits = p->cap_k <= INT64_MAX - 7;
    plan.pitch = fits ? (p->cap_k + 7) / 8 * 8 : 0;
    fits = fits && multiply(&plan.factors, p->n) && multiply(&plan.factors, p->hq) && multiply(&plan.factors, p->cap_q);
    plan.scores = plan.factors;
    fits = fits && multiply(&plan.scores, plan.pitch);
    plan.scores = fits ? (plan.scores + 255) & ~(size_t)255 : SIZE_MAX;
    return plan;
}

static size_t workspace_of(const struct gqa_sm80_plan *plan)
{
    return plan->scores == SIZE_MAX ? SIZE_MAX : plan->scores + plan->factors;
}

size_t qattn__sm80_gqa_workspace(const struct problem *p)
{
    const struct gqa_sm80_plan plan = plan_call(p);
    return workspace_of(&plan);
}

int32_t qattn__sm80_gqa_load(const struct problem *p)
{
    QATTN_TRY(qattn__sm80_matmul_load(p));
    for (int width = 0; width < SOFTMAX_WIDTHS; width++) {
        const void *const kernel = qattn__softmax_simt(QATTN_DTYPE_F32, (enum softmax_width)width);
        QATTN_TRY(qattn__cuda_load(kernel));
    }
    return QATTN_OK;
}

/* [n][hq][cap_q][cap_k] over the scores; of the narrower P, rows start where those of S do. */
static struct view scores_view(const struct problem *p, const struct gqa_sm80_plan *plan, int32_t dtype)
{
    const int32_t itemsize = dtype == QATTN_DTYPE_F32 ? 4 : 2;
    const int64_t row = plan->pitch * (4 / itemsize);
    return (struct view){ .data = p->workspace, .shape = { p->n, p->hq, p->cap_q, p->cap_k },
                          .stride = { p->hq * p->cap_q * row, p->cap_q * row, row, 1 }, .dtype = dtype,
                          .itemsize = itemsize };
}

int32_t qattn__sm80_gqa(const struct problem *p, qattn_stream stream)
{
    const struct gqa_sm80_plan plan = plan_call(p);
    const bool all_scores = p->scores.dtype && p->scores_stage < 2;
    QATTN_TRY(qattn__check_workspace(p, workspace_of(&plan)));
    const struct view s = scores_view(p, &plan, QATTN_DTYPE_F32), probabilities = scores_view(p, &plan, p->v.dtype);
    float *const factors = (float *)(void *)(p->workspace + plan.scores);

    struct gemm_args scores = qattn__attention_args(p, &p->q, &p->k, 2, &s, all_scores ? RANGE_ALL : RANGE_SCORES);
    QATTN_TRY(qattn__sm80_gemm(&scores, p, stream));

    struct softmax_simt_args softmax = { .x = s, .y = probabilities, .keys = p->cap_k, .marked = 1, .scores = p->scores,
                                         .factors = factors };
    QATTN_TRY(qattn__simt_softmax_rows(&softmax, p, stream));

    struct gemm_args values = qattn__attention_args(p, &probabilities, &p->v, 3, &p->o, RANGE_VALUES);
    values.factors = factors;
    return qattn__sm80_gemm(&values, p, stream);
}
