/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "cuda_fresh.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void fresh_fail(const char *what, const char *file, int line)
{
    char text[512];
    const int32_t status = qattn_last_error(text, sizeof text);
    printf("%s:%d: %s (last failure of the library: %d: %s)\n", file, line, what, (int)status, text);
    fflush(stdout);
    _Exit(EXIT_FAILURE);        /* CUDA's own handlers may wait for what went wrong */
}

static uint64_t random_bits(uint64_t *state)
{
    *state += 0x9E3779B97F4A7C15u;
    uint64_t z = (*state ^ *state >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static void fill(float *x, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)(int64_t)(random_bits(&seed) >> 32) / 2147483648.0f - 1.0f;
}

void tensors(qattn_tensor *t, float *q, float *k, float *v, float *o, int32_t type, int32_t device)
{
    const int32_t f32 = QATTN_DTYPE_F32, layout = QATTN_LAYOUT_BHSD;
    MUST(qattn_tensor_init(&t[0], q, f32, type, device, layout, 1, HQ, 1, D));
    MUST(qattn_tensor_init(&t[1], k, f32, type, device, layout, 1, HKV, SK, D));
    MUST(qattn_tensor_init(&t[2], v, f32, type, device, layout, 1, HKV, SK, D));
    MUST(qattn_tensor_init(&t[3], o, f32, type, device, layout, 1, HQ, 1, D));
}

void upload(struct call *c, uint64_t seed, int32_t used)
{
    fill(c->host_q, Q_FLOATS, seed);
    fill(c->host_k, KV_FLOATS, seed + 1);
    fill(c->host_v, KV_FLOATS, seed + 2);
    MUST(cudaMemcpy(c->q, c->host_q, sizeof c->host_q, cudaMemcpyHostToDevice));
    MUST(cudaMemcpy(c->k, c->host_k, KV_FLOATS * sizeof(float), cudaMemcpyHostToDevice));
    MUST(cudaMemcpy(c->v, c->host_v, KV_FLOATS * sizeof(float), cudaMemcpyHostToDevice));
    MUST(cudaMemcpy(c->used, &used, sizeof used, cudaMemcpyHostToDevice));
    MUST(cudaMemset(c->o, 0xFF, sizeof c->host_o));
    MUST(cudaDeviceSynchronize());
}

struct call *call_new(int32_t device)
{
    struct call *c = calloc(1, sizeof *c);
    EXPECT(c && (c->host_k = malloc(KV_FLOATS * sizeof(float))) && (c->host_v = malloc(KV_FLOATS * sizeof(float))));
    MUST(cudaMalloc((void **)&c->q, sizeof c->host_q));
    MUST(cudaMalloc((void **)&c->k, KV_FLOATS * sizeof(float)));
    MUST(cudaMalloc((void **)&c->v, KV_FLOATS * sizeof(float)));
    MUST(cudaMalloc((void **)&c->o, sizeof c->host_o));
    MUST(cudaMalloc((void **)&c->used, sizeof(int32_t)));
    tensors(c->t, c->q, c->k, c->v, c->o, QATTN_DEVICE_CUDA, device);
    c->params = (qattn_attn_params)QATTN_ATTN_PARAMS_INIT;
    c->params.seqused_k = c->used;
    c->params.num_splits = 5;
    MUST(cudaMalloc(&c->params.workspace, SPACE));
    c->params.workspace_bytes = SPACE;
    upload(c, 1, SK);
    return c;
}

int32_t forward(struct call *c, cudaStream_t stream)
{
    return qattn_flash_forward(&c->t[0], &c->t[1], &c->t[2], &c->t[3], &c->params, stream);
}

void expect_right(struct call *c, int32_t used)
{
    static float want[Q_FLOATS];
    qattn_tensor t[4];
    tensors(t, c->host_q, c->host_k, c->host_v, want, QATTN_DEVICE_CPU, 0);
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    params.seqused_k = &used;
    MUST(qattn_flash_forward(&t[0], &t[1], &t[2], &t[3], &params, NULL));
    MUST(cudaDeviceSynchronize());
    MUST(cudaMemcpy(c->host_o, c->o, sizeof c->host_o, cudaMemcpyDeviceToHost));
    for (int i = 0; i < Q_FLOATS; i++)
        EXPECT(fabsf(c->host_o[i] - want[i]) <= 1e-5f);
}
