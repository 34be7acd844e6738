/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "cuda_tensors.h"

#if QATTN_CUDA

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "core/params.h"
#include "ref/ref.h"
#include "support.h"
#include "tolerance.h"

static qattn_tensor host_tensor(void *data, int32_t dtype, const int64_t shape[4])
{
    qattn_tensor t;
    ck_assert_int_eq(qattn_tensor_init(&t, data, dtype, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BHSD, shape[0], shape[1],
                                       shape[2], shape[3]),
                     QATTN_OK);
    return t;
}

int64_t elements_of(const qattn_tensor *t) { return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]; }

qattn_tensor host_new(int32_t dtype, int64_t b, int64_t h, int64_t s, int64_t d, uint64_t seed)
{
    const int64_t shape[4] = { b, h, s, d }, n = b * h * s * d;
    const size_t itemsize = (size_t)format_size(dtype);
    unsigned char *const data = malloc((size_t)n * itemsize + 1);
    struct rng r = { seed, 0 };
    memset(data, 0xFF, (size_t)n * itemsize + 1);
    for (int64_t i = 0; i < n && seed; i++)
        format_encode(dtype, data + (size_t)i * itemsize, rng_normal(&r));
    return host_tensor(data, dtype, shape);
}

qattn_tensor device_copy(const qattn_tensor *host)
{
    qattn_tensor t = *host;
    const size_t bytes = (size_t)elements_of(host) * (size_t)format_size(host->dtype);
    t.device_type = QATTN_DEVICE_CUDA;
    CUDA_MUST(cudaMalloc(&t.data, bytes + 1));
    CUDA_MUST(cudaMemcpy(t.data, host->data, bytes, cudaMemcpyHostToDevice));
    return t;
}

size_t bytes_of(const qattn_tensor *t) { return (size_t)elements_of(t) * (size_t)format_size(t->dtype); }

void clear_host(qattn_tensor *host) { memset(host->data, 0xFF, bytes_of(host)); }

void read_back(const qattn_tensor *device, qattn_tensor *host)
{
    CUDA_MUST(cudaMemcpy(host->data, device->data, (size_t)elements_of(host) * (size_t)format_size(host->dtype),
                         cudaMemcpyDeviceToHost));
}

bool supported(const struct impl *row, const struct problem *p, const char *kind)
{
    char why[192] = "", label[64];
    snprintf(label, sizeof label, "%s %s", row->id, kind);
    if (row->supports(p, why, sizeof why))
        return true;
    count_skipped(label, why, 1);
    return false;
}

void run_on_cuda(const struct impl *row, struct problem *p, const char *kind)
{
    char label[64];
    void *workspace = NULL;
    const size_t bytes = row->workspace(p);
    if (bytes)
        CUDA_MUST(cudaMalloc(&workspace, bytes));
    p->workspace = workspace;
    p->workspace_bytes = bytes;
    ck_assert_int_eq(row->run(p, NULL), QATTN_OK);
    ck_assert_msg(cudaDeviceSynchronize() == cudaSuccess, "%s: %s", kind, cudaGetErrorString(cudaGetLastError()));
    if (bytes)
        CUDA_MUST(cudaFree(workspace));
    snprintf(label, sizeof label, "%s %s", row->id, kind);
    count_run(label, 1);
}

void set_attention(struct problem *p, enum op op, const qattn_tensor t[TENSORS])
{
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    params.mask = QATTN_MASK_CAUSAL;
    params.lse = t[LSE];
    params.bias = t[BIAS];
    ck_assert_int_eq(qattn__problem_attention(p, op, &t[Q], &t[K], &t[V], &t[O], &params, false), QATTN_OK);
}

/* ---------------------------------------------------------------- products and softmax */

void set_simple(struct problem *p, enum op op, const qattn_tensor *t)
{
    ck_assert_int_eq(op == OP_SOFTMAX ? qattn__problem_softmax(p, &t[0], &t[1], NULL, true, false)
                                      : qattn__problem_matmul(p, op, &t[0], &t[1], &t[2], NULL, false), QATTN_OK);
}

static void judge_product(const struct simple *s)
{
    const struct problem *const p = &s->problem;
    const struct view *const c = &p->c;
    for (int64_t b = 0; b < c->shape[0]; b++)
        for (int64_t h = 0; h < c->shape[1]; h++)
            for (int64_t m = 0; m < c->shape[2]; m++)
                for (int64_t n = 0; n < c->shape[3]; n++) {
                    double c_abs;
                    const double want = qattn__ref_matmul_element(p, b, h, m, n, &c_abs);
                    const double got = format_decode(c->dtype, view_at(c, b, h, m, n));
                    if (!(fabs(got - want) <= tolerance_matmul(c->dtype, p->a.shape[3], want, c_abs, 0))) {
                        note_failure("c[%d,%d,%d,%d] is %g, want %g", (int)b, (int)h, (int)m, (int)n, got, want);
                        return;
                    }
                }
}

static void judge_rows(const struct simple *s)
{
    static double want[NORMAL_MAX_ROW];
    const struct problem *const p = &s->problem;
    for (int64_t n = 0; n < p->n; n++) {
        const struct seq seq = seq_get(p, n);
        for (int64_t h = 0; h < p->hq; h++)
            for (int64_t i = 0; i < p->cap_q; i++) {
                qattn__ref_softmax_row(p, &seq, h, i, want);
                for (int64_t j = 0; j < p->cap_k; j++) {
                    const double got = format_decode(p->y.dtype, view_at(&p->y, n, h, i, j));
                    if (!(fabs(got - want[j]) <= tolerance_probability(p->y.dtype, tolerance_score(0, 8), want[j]))) {
                        note_failure("y[%d,%d,%d,%d] is %g, want %g", (int)n, (int)h, (int)i, (int)j, got, want[j]);
                        return;
                    }
                }
            }
    }
}

void judge_simple(const struct simple *s)
{
    if (s->op == OP_SOFTMAX)
        judge_rows(s);
    else
        judge_product(s);
}

#endif
