/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The border: every exported function of libqattn, and nothing else is exported.
 *
 * An operation is three steps: core/params.c checks the arguments and fills a struct problem, core/dispatch.c
 * picks the first row of core/impls.c that can run it, the row runs. The twins stop after the second step.
 */

#include "qattn.h"

#include "core/build_info.h"
#include "core/dispatch.h"
#include "core/params.h"
#include "core/query.h"
#include "core/status.h"
#include "core/tensor.h"

/* ---------------------------------------------------------------- tensors and messages */

int32_t qattn_tensor_init(qattn_tensor *out, void *data, int32_t dtype, int32_t device_type, int32_t device_id,
                          int32_t layout, int64_t b, int64_t h, int64_t s, int64_t d)
{
    return qattn__tensor_init(out, data, dtype, device_type, device_id, layout, b, h, s, d);
}

int32_t qattn_tensor_from_dlpack(qattn_tensor *out, const void *dltensor, int32_t layout)
{
    return qattn__tensor_from_dlpack(out, dltensor, layout);
}

int32_t qattn_version(void)
{
    return QATTN_VERSION;
}

int32_t qattn_abi_version(void)
{
    return QATTN_ABI_VERSION;
}

int32_t qattn_build_info(char *buf, size_t cap)
{
    QATTN_REQUIRE(buf || cap == 0, QATTN_ERR_NULL_POINTER, "buf is NULL: a buffer of cap bytes is required");
    qattn__copy_text(buf, cap, qattn__build_info());
    return QATTN_OK;
}

int32_t qattn_query(const char *name, int64_t *value)
{
    return qattn__query(name, value);
}

const char *qattn_status_name(int32_t status)
{
    return qattn__status_name(status);
}

const char *qattn_status_string(int32_t status)
{
    return qattn__status_string(status);
}

int32_t qattn_last_error(char *buf, size_t cap)
{
    return qattn__last_error(buf, cap);
}

/* A refused *_explain says why in buf too, which is thus always NUL-terminated. */
static int32_t explain_refusal(int32_t status, char *buf, size_t cap)
{
    if (buf)
        qattn_last_error(buf, cap);
    return status;
}

/* ---------------------------------------------------------------- matmul */

int32_t qattn_matmul(const qattn_tensor *a, const qattn_tensor *b, const qattn_tensor *c,
                     const qattn_matmul_params *params, qattn_stream stream)
{
    struct problem p;
    QATTN_TRY(qattn__problem_matmul(&p, OP_MATMUL, a, b, c, params, false));
    return qattn__dispatch(&p, stream);
}

int32_t qattn_matmul_workspace(const qattn_tensor *a, const qattn_tensor *b, const qattn_tensor *c,
                               const qattn_matmul_params *params, size_t *bytes)
{
    struct problem p;
    QATTN_TRY(qattn__problem_matmul(&p, OP_MATMUL, a, b, c, params, true));
    return qattn__workspace(&p, bytes);
}

int32_t qattn_matmul_explain(const qattn_tensor *a, const qattn_tensor *b, const qattn_tensor *c,
                             const qattn_matmul_params *params, char *buf, size_t cap)
{
    struct problem p;
    const int32_t status = qattn__problem_matmul(&p, OP_MATMUL, a, b, c, params, true);
    return status == QATTN_OK ? qattn__explain(&p, buf, cap) : explain_refusal(status, buf, cap);
}

int32_t qattn_matmul_prepare(const qattn_tensor *a, const qattn_tensor *b, const qattn_tensor *c,
                             const qattn_matmul_params *params)
{
    struct problem p;
    QATTN_TRY(qattn__problem_matmul(&p, OP_MATMUL, a, b, c, params, true));
    return qattn__prepare(&p);
}

/* ---------------------------------------------------------------- matmul_nt */

int32_t qattn_matmul_nt(const qattn_tensor *a, const qattn_tensor *b, const qattn_tensor *c,
                        const qattn_matmul_params *params, qattn_stream stream)
{
    struct problem p;
    QATTN_TRY(qattn__problem_matmul(&p, OP_MATMUL_NT, a, b, c, params, false));
    return qattn__dispatch(&p, stream);
}

int32_t qattn_matmul_nt_workspace(const qattn_tensor *a, const qattn_tensor *b, const qattn_tensor *c,
                                  const qattn_matmul_params *params, size_t *bytes)
{
    struct problem p;
    QATTN_TRY(qattn__problem_matmul(&p, OP_MATMUL_NT, a, b, c, params, true));
    return qattn__workspace(&p, bytes);
}

int32_t qattn_matmul_nt_explain(const qattn_tensor *a, const qattn_tensor *b, const qattn_tensor *c,
                                const qattn_matmul_params *params, char *buf, size_t cap)
{
    struct problem p;
    const int32_t status = qattn__problem_matmul(&p, OP_MATMUL_NT, a, b, c, params, true);
    return status == QATTN_OK ? qattn__explain(&p, buf, cap) : explain_refusal(status, buf, cap);
}

int32_t qattn_matmul_nt_prepare(const qattn_tensor *a, const qattn_tensor *b, const qattn_tensor *c,
                                const qattn_matmul_params *params)
{
    struct problem p;
    QATTN_TRY(qattn__problem_matmul(&p, OP_MATMUL_NT, a, b, c, params, true));
    return qattn__prepare(&p);
}

/* ---------------------------------------------------------------- softmax */

int32_t qattn_softmax(const qattn_tensor *x, const qattn_tensor *y,
                      const qattn_softmax_params *params, qattn_stream stream)
{
    struct problem p;
    QATTN_TRY(qattn__problem_softmax(&p, x, y, params, false, false));
    return qattn__dispatch(&p, stream);
}

int32_t qattn_softmax_workspace(const qattn_tensor *x, const qattn_tensor *y,
                                const qattn_softmax_params *params, size_t *bytes)
{
    struct problem p;
    QATTN_TRY(qattn__problem_softmax(&p, x, y, params, false, true));
    return qattn__workspace(&p, bytes);
}

int32_t qattn_softmax_explain(const qattn_tensor *x, const qattn_tensor *y,
                              const qattn_softmax_params *params, char *buf, size_t cap)
{
    struct problem p;
    const int32_t status = qattn__problem_softmax(&p, x, y, params, false, true);
    return status == QATTN_OK ? qattn__explain(&p, buf, cap) : explain_refusal(status, buf, cap);
}

int32_t qattn_softmax_prepare(const qattn_tensor *x, const qattn_tensor *y, const qattn_softmax_params *params)
{
    struct problem p;
    QATTN_TRY(qattn__problem_softmax(&p, x, y, params, false, true));
    return qattn__prepare(&p);
}

/* ---------------------------------------------------------------- softmax_causal */

int32_t qattn_softmax_causal(const qattn_tensor *x, const qattn_tensor *y,
                             const qattn_softmax_params *params, qattn_stream stream)
{
    struct problem p;
    QATTN_TRY(qattn__problem_softmax(&p, x, y, params, true, false));
    return qattn__dispatch(&p, stream);
}

int32_t qattn_softmax_causal_workspace(const qattn_tensor *x, const qattn_tensor *y,
                                       const qattn_softmax_params *params, size_t *bytes)
{
    struct problem p;
    QATTN_TRY(qattn__problem_softmax(&p, x, y, params, true, true));
    return qattn__workspace(&p, bytes);
}

int32_t qattn_softmax_causal_explain(const qattn_tensor *x, const qattn_tensor *y,
                                     const qattn_softmax_params *params, char *buf, size_t cap)
{
    struct problem p;
    const int32_t status = qattn__problem_softmax(&p, x, y, params, true, true);
    return status == QATTN_OK ? qattn__explain(&p, buf, cap) : explain_refusal(status, buf, cap);
}

int32_t qattn_softmax_causal_prepare(const qattn_tensor *x, const qattn_tensor *y, const qattn_softmax_params *params)
{
    struct problem p;
    QATTN_TRY(qattn__problem_softmax(&p, x, y, params, true, true));
    return qattn__prepare(&p);
}

/* ---------------------------------------------------------------- gqa_forward */

int32_t qattn_gqa_forward(const qattn_tensor *q, const qattn_tensor *k, const qattn_tensor *v, const qattn_tensor *o,
                          const qattn_attn_params *params, qattn_stream stream)
{
    struct problem p;
    QATTN_TRY(qattn__problem_attention(&p, OP_GQA_FORWARD, q, k, v, o, params, false));
    return qattn__dispatch(&p, stream);
}

int32_t qattn_gqa_forward_workspace(const qattn_tensor *q, const qattn_tensor *k, const qattn_tensor *v,
                                    const qattn_tensor *o,
                                    const qattn_attn_params *params, size_t *bytes)
{
    struct problem p;
    QATTN_TRY(qattn__problem_attention(&p, OP_GQA_FORWARD, q, k, v, o, params, true));
    return qattn__workspace(&p, bytes);
}

int32_t qattn_gqa_forward_explain(const qattn_tensor *q, const qattn_tensor *k, const qattn_tensor *v,
                                  const qattn_tensor *o,
                                  const qattn_attn_params *params, char *buf, size_t cap)
{
    struct problem p;
    const int32_t status = qattn__problem_attention(&p, OP_GQA_FORWARD, q, k, v, o, params, true);
    return status == QATTN_OK ? qattn__explain(&p, buf, cap) : explain_refusal(status, buf, cap);
}

int32_t qattn_gqa_forward_prepare(const qattn_tensor *q, const qattn_tensor *k, const qattn_tensor *v,
                                  const qattn_tensor *o,
                                  const qattn_attn_params *params)
{
    struct problem p;
    QATTN_TRY(qattn__problem_attention(&p, OP_GQA_FORWARD, q, k, v, o, params, true));
    return qattn__prepare(&p);
}

/* ---------------------------------------------------------------- flash_forward */

int32_t qattn_flash_forward(const qattn_tensor *q, const qattn_tensor *k, const qattn_tensor *v,
                            const qattn_tensor *o,
                            const qattn_attn_params *params, qattn_stream stream)
{
    struct problem p;
    QATTN_TRY(qattn__problem_attention(&p, OP_FLASH_FORWARD, q, k, v, o, params, false));
    return qattn__dispatch(&p, stream);
}

int32_t qattn_flash_forward_workspace(const qattn_tensor *q, const qattn_tensor *k, const qattn_tensor *v,
                                      const qattn_tensor *o,
                                      const qattn_attn_params *params, size_t *bytes)
{
    struct problem p;
    QATTN_TRY(qattn__problem_attention(&p, OP_FLASH_FORWARD, q, k, v, o, params, true));
    return qattn__workspace(&p, bytes);
}

int32_t qattn_flash_forward_explain(const qattn_tensor *q, const qattn_tensor *k, const qattn_tensor *v,
                                    const qattn_tensor *o,
                                    const qattn_attn_params *params, char *buf, size_t cap)
{
    struct problem p;
    const int32_t status = qattn__problem_attention(&p, OP_FLASH_FORWARD, q, k, v, o, params, true);
    return status == QATTN_OK ? qattn__explain(&p, buf, cap) : explain_refusal(status, buf, cap);
}

int32_t qattn_flash_forward_prepare(const qattn_tensor *q, const qattn_tensor *k, const qattn_tensor *v,
                                    const qattn_tensor *o,
                                    const qattn_attn_params *params)
{
    struct problem p;
    QATTN_TRY(qattn__problem_attention(&p, OP_FLASH_FORWARD, q, k, v, o, params, true));
    return qattn__prepare(&p);
}

/* ---------------------------------------------------------------- merge */

int32_t qattn_merge(int64_t n, const qattn_tensor *o_parts, const qattn_tensor *lse_parts, const qattn_tensor *o,
                    const qattn_tensor *lse, const qattn_merge_params *params, qattn_stream stream)
{
    struct problem p;
    QATTN_TRY(qattn__problem_merge(&p, n, o_parts, lse_parts, o, lse, params, false));
    return qattn__dispatch(&p, stream);
}

int32_t qattn_merge_workspace(int64_t n, const qattn_tensor *o_parts, const qattn_tensor *lse_parts,
                              const qattn_tensor *o,
                              const qattn_tensor *lse, const qattn_merge_params *params, size_t *bytes)
{
    struct problem p;
    QATTN_TRY(qattn__problem_merge(&p, n, o_parts, lse_parts, o, lse, params, true));
    return qattn__workspace(&p, bytes);
}

int32_t qattn_merge_explain(int64_t n, const qattn_tensor *o_parts, const qattn_tensor *lse_parts,
                            const qattn_tensor *o,
                            const qattn_tensor *lse, const qattn_merge_params *params, char *buf, size_t cap)
{
    struct problem p;
    const int32_t status = qattn__problem_merge(&p, n, o_parts, lse_parts, o, lse, params, true);
    return status == QATTN_OK ? qattn__explain(&p, buf, cap) : explain_refusal(status, buf, cap);
}

int32_t qattn_merge_prepare(int64_t n, const qattn_tensor *o_parts, const qattn_tensor *lse_parts,
                            const qattn_tensor *o,
                            const qattn_tensor *lse, const qattn_merge_params *params)
{
    struct problem p;
    QATTN_TRY(qattn__problem_merge(&p, n, o_parts, lse_parts, o, lse, params, true));
    return qattn__prepare(&p);
}
