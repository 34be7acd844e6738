/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* What the tests of far and of large CUDA tensors share: packed tensors on the host and on the device, a CUDA row on a
 * problem of the device, the oracle's judgement of products and softmax. */
#ifndef QATTN_TESTS_CUDA_TENSORS_H
#define QATTN_TESTS_CUDA_TENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/impls.h"
#include "core/problem.h"
#include "qattn.h"

#define CUDA_MUST(call) \
    ck_assert_msg((call) == cudaSuccess, "%s: %s", #call, cudaGetErrorString(cudaGetLastError()))

/* Elements of a tensor. */
int64_t elements_of(const qattn_tensor *t);
/* A packed host tensor of seeded numbers, or of NaN (seed 0) for an output; free(t.data). */
qattn_tensor host_new(int32_t dtype, int64_t b, int64_t h, int64_t s, int64_t d, uint64_t seed);
/* The same in device memory; cudaFree(t.data). */
qattn_tensor device_copy(const qattn_tensor *host);
void read_back(const qattn_tensor *device, qattn_tensor *host);

size_t bytes_of(const qattn_tensor *t);
/* NaN everywhere. */
void clear_host(qattn_tensor *host);

/* If not, that is counted as skipped for "<row> <kind>". */
bool supported(const struct impl *row, const struct problem *p, const char *kind);
/* The row on a problem of the device, with a workspace, until it is done. */
void run_on_cuda(const struct impl *row, struct problem *p, const char *kind);

#define EACH_CUDA_ROW(row) \
    for (const struct impl *row = qattn__impls; row < qattn__impls + qattn__impl_count; row++) \
        if (attn_row_wanted(row))

/* Causal attention of these tensors. */
enum { Q, K, V, O, LSE, BIAS, TENSORS };
void set_attention(struct problem *p, enum op op, const qattn_tensor t[TENSORS]);

/* matmul or matmul_nt of three tensors, softmax_causal of two; the last one is the output. */
struct simple { enum op op; qattn_tensor host[3]; int tensors; struct problem problem; };
void set_simple(struct problem *p, enum op op, const qattn_tensor *t);
/* Notes a failure for the first element of the host's output that is out of the oracle's bounds. */
void judge_simple(const struct simple *s);

#endif
