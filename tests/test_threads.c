/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Many threads whose first calls race. A stand-alone program on the public header alone, so that it also runs
 * against a library built with the thread sanitizer. Every thread makes all operations, with thread counts of its own,
 * and must get the bits that one thread alone gets later; those bits are held against sums in double.
 */
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qattn.h"

enum {
    THREADS = 8, ROUNDS = 3,
    B = 2, HQ = 4, HKV = 2, SQ = 37, SK = 150, D = 24, DV = 40,
    NUM_Q = B * HQ * SQ * D, NUM_K = B * HKV * SK * D, NUM_V = B * HKV * SK * DV,
    NUM_O = B * HQ * SQ * DV, NUM_LSE = B * HQ * SQ, NUM_S = B * HQ * SQ * SK
};

struct results {
    float flash[NUM_O], gqa[NUM_O], merged[NUM_O], lse[NUM_LSE];
    float product[NUM_S], softmax[NUM_S];       /* Q K^T [B,HQ,SQ,SK] and its softmax */
    float back[NUM_O];                          /* softmax(Q K^T) V */
};

static float q[NUM_Q], k[NUM_K], v[NUM_V];
static struct results alone, together[THREADS];
static pthread_barrier_t start;
static _Atomic int failed;

static void fill(float *x, int count, uint32_t seed)
{
    for (int i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) * 0x1p-23f - 1.0f;
    }
}

static qattn_tensor tensor(float *data, int64_t h, int64_t s, int64_t d)
{
    qattn_tensor t;
    qattn_tensor_init(&t, data, QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BHSD, B, h, s, d);
    return t;
}

static void expect_ok(const char *what, int32_t status)
{
    if (status != QATTN_OK) {
        char text[512];
        qattn_last_error(text, sizeof text);
        printf("%s: %s: %s\n", what, qattn_status_name(status), text);
        failed = 1;
    }
}

/* Every operation once. */
static void compute(struct results *r, int32_t num_threads)
{
    const qattn_tensor tq = tensor(q, HQ, SQ, D), tk = tensor(k, HKV, SK, D), tv = tensor(v, HKV, SK, DV);
    const qattn_tensor scores = tensor(r->product, HQ, SQ, SK), y = tensor(r->softmax, HQ, SQ, SK);
    const qattn_tensor back = tensor(r->back, HQ, SQ, DV), merged = tensor(r->merged, HQ, SQ, DV);
    const qattn_tensor flash = tensor(r->flash, HQ, SQ, DV), gqa = tensor(r->gqa, HQ, SQ, DV);
    const qattn_tensor lse = tensor(r->lse, HQ, SQ, 1);

    qattn_attn_params attn = QATTN_ATTN_PARAMS_INIT;
    attn.mask = QATTN_MASK_CAUSAL;
    attn.num_threads = num_threads;
    attn.lse = lse;
    expect_ok("flash_forward", qattn_flash_forward(&tq, &tk, &tv, &flash, &attn, NULL));
    attn.lse = (qattn_tensor){ 0 };
    expect_ok("gqa_forward", qattn_gqa_forward(&tq, &tk, &tv, &gqa, &attn, NULL));

    qattn_matmul_params matmul = QATTN_MATMUL_PARAMS_INIT;
    matmul.num_threads = num_threads;
    expect_ok("matmul_nt", qattn_matmul_nt(&tq, &tk, &scores, &matmul, NULL));
    qattn_softmax_params softmax = QATTN_SOFTMAX_PARAMS_INIT;
    softmax.num_threads = num_threads;
    softmax.scale = 1.0f / sqrtf((float)D);
    expect_ok("softmax_causal", qattn_softmax_causal(&scores, &y, &softmax, NULL));
    expect_ok("matmul", qattn_matmul(&y, &tv, &back, &matmul, NULL));

    qattn_merge_params merge = QATTN_MERGE_PARAMS_INIT;
    merge.num_threads = num_threads;
    const qattn_tensor o_parts[2] = { flash, gqa }, lse_parts[2] = { lse, lse };
    expect_ok("merge", qattn_merge(2, o_parts, lse_parts, &merged, NULL, &merge, NULL));
}

static void *race(void *arg)
{
    const int index = (int)(intptr_t)arg;
    for (int round = 0; round < ROUNDS; round++) {
        memset(&together[index], 0xff, sizeof together[index]);
        pthread_barrier_wait(&start);           /* the library's first calls happen here, all at once */
        compute(&together[index], (index + round) % 5);
    }
    return NULL;
}

/* Row i of query head h of batch b in double: o[DV], and its LSE. */
static double exact_row(int b, int h, int i, double *o)
{
    const int kv = b * HKV + h / (HQ / HKV), visible = i + SK - SQ + 1;     /* bottom-right causal */
    const float *query = q + ((b * HQ + h) * SQ + i) * D;
    static double score[SK];
    double max = -INFINITY, sum = 0.0;
    for (int j = 0; j < visible; j++) {
        double dot = 0.0;
        for (int d = 0; d < D; d++)
            dot += (double)query[d] * (double)k[(kv * SK + j) * D + d];
        score[j] = dot / sqrt((double)D);
        max = fmax(max, score[j]);
    }
    for (int d = 0; d < DV; d++)
        o[d] = 0.0;
    for (int j = 0; j < visible; j++) {
        const double weight = exp(score[j] - max);
        sum += weight;
        for (int d = 0; d < DV; d++)
            o[d] += weight * (double)v[(kv * SK + j) * DV + d];
    }
    for (int d = 0; d < DV; d++)
        o[d] /= sum;
    return max + log(sum);
}

/* |v| <= 1 and |score| < 5: 1e-5 is some ten times the worst rounding of these sums. */
static bool far(float x, double exact)
{
    return !(fabs((double)x - exact) <= 1e-5);
}

static int check_values(void)
{
    int wrong = 0;
    for (int row = 0; row < NUM_LSE; row++) {
        double o[DV];
        const double lse = exact_row(row / (HQ * SQ), row / SQ % HQ, row % SQ, o);
        wrong += far(alone.lse[row], lse);
        for (int d = 0; d < DV; d++)
            wrong += far(alone.flash[row * DV + d], o[d]) || far(alone.gqa[row * DV + d], o[d]) ||
                     far(alone.back[row * DV + d], o[d]) || far(alone.merged[row * DV + d], o[d]);
    }
    return wrong;
}

int main(void)
{
    fill(q, NUM_Q, 1);
    fill(k, NUM_K, 2);
    fill(v, NUM_V, 3);
    pthread_t threads[THREADS];
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, race, (void *)(intptr_t)i) != 0)
            return puts("test_threads: no threads to be had"), 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);

    compute(&alone, 1);
    int different = 0;
    for (int i = 0; i < THREADS; i++)
        different += memcmp(&together[i], &alone, sizeof alone) != 0;
    const int wrong = check_values();
    printf("test_threads: %d threads, %d rounds: %d differ from one thread alone, %d values off\n",
           THREADS, ROUNDS, different, wrong);
    return failed || different || wrong;
}
