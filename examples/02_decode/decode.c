/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Text generation with grouped queries and a KV cache that grows: a prompt in chunks, then one token a call.
 *
 *   chunks   every sequence is equally long: MASK_OFFSET and q_offset say where the chunk's first row stands
 *   tokens   the sequences differ in length: seqused_k says how much of each slot is valid
 *
 * The cache is one allocation of CAPACITY rows a sequence; its shape and strides never change. Rows not yet
 * written hold NaN here, to show that nothing reads them.
 *
 *     cc decode.c $(pkg-config --cflags --libs qattn) -lm && ./a.out
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <qattn.h>

enum { B = 3, CAPACITY = 96, HQ = 8, HKV = 2, D = 64, CHUNK = 16, PROMPT = 40, STEPS = 24 };

static float cache_k[B][CAPACITY][HKV][D], cache_v[B][CAPACITY][HKV][D];
static float q_rows[B][CHUNK][HQ][D], o_rows[B][CHUNK][HQ][D];

static float next_random(void)
{
    static unsigned seed = 2;
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / 8388608.0f - 1.0f;
}

static void fill_random(float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = next_random();
}

/* The model's part: keys and values of `rows` new tokens, at row `at` of sequence b. */
static void append_tokens(int b, int at, int rows)
{
    fill_random(&cache_k[b][at][0][0], rows * HKV * D);
    fill_random(&cache_v[b][at][0][0], rows * HKV * D);
}

/* fmax drops a NaN; a check must not. */
static double larger(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}

/* Row i of sequence b over its first `keys` cached keys, by the formula; the largest difference from o_rows. */
static double compare_row(int b, int i, int keys)
{
    static double p[CAPACITY];
    double worst = 0;
    for (int h = 0; h < HQ; h++) {
        const int kv = h / (HQ / HKV);
        double sum = 0;
        for (int j = 0; j < keys; j++) {
            double s = 0;
            for (int d = 0; d < D; d++)
                s += (double)q_rows[b][i][h][d] * cache_k[b][j][kv][d];
            p[j] = exp(s / sqrt(D));
            sum += p[j];
        }
        for (int d = 0; d < D; d++) {
            double o = 0;
            for (int j = 0; j < keys; j++)
                o += p[j] / sum * cache_v[b][j][kv][d];
            worst = larger(worst, fabs(o - o_rows[b][i][h][d]));
        }
    }
    return worst;
}

static void require(int32_t status)
{
    char text[512];
    if (status == QATTN_OK)
        return;
    qattn_last_error(text, sizeof text);
    fprintf(stderr, "%s: %s\n", qattn_status_name(status), text);
    exit(EXIT_FAILURE);
}

static qattn_tensor view_rows(void *data, int heads, int64_t rows, int capacity)
{
    qattn_tensor t;
    require(qattn_tensor_init(&t, data, QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BSHD, B, heads, capacity,
                              D));
    t.shape[2] = rows;                         /* fewer rows of the same memory: strides stay */
    return t;
}

int main(void)
{
    double worst = 0;
    const qattn_tensor k = view_rows(cache_k, HKV, CAPACITY, CAPACITY);
    const qattn_tensor v = view_rows(cache_v, HKV, CAPACITY, CAPACITY);
    memset(cache_k, 0xff, sizeof cache_k);     /* NaN */
    memset(cache_v, 0xff, sizeof cache_v);

    /* The prompt, CHUNK tokens a call; causality hides what lies behind the chunk's last row. */
    for (int done = 0; done < PROMPT; done += CHUNK) {
        const int rows = PROMPT - done < CHUNK ? PROMPT - done : CHUNK;
        qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
        const qattn_tensor q = view_rows(q_rows, HQ, rows, CHUNK);
        const qattn_tensor o = view_rows(o_rows, HQ, rows, CHUNK);
        params.mask = QATTN_MASK_CAUSAL | QATTN_MASK_OFFSET;
        params.q_offset = done;
        for (int b = 0; b < B; b++) {
            append_tokens(b, done, rows);
            fill_random(&q_rows[b][0][0][0], rows * HQ * D);
        }
        require(qattn_flash_forward(&q, &k, &v, &o, &params, NULL));
        for (int b = 0; b < B; b++)
            for (int i = 0; i < rows; i++)
                worst = larger(worst, compare_row(b, i, done + i + 1));
    }

    /* Generation: sequence b keeps PROMPT - 7b tokens of its prompt, so that the lengths differ. */
    int32_t lengths[B];
    for (int b = 0; b < B; b++) {
        lengths[b] = PROMPT - 7 * b;
        memset(cache_k[b][lengths[b]], 0xff, (size_t)(CAPACITY - lengths[b]) * sizeof cache_k[b][0]);
        memset(cache_v[b][lengths[b]], 0xff, (size_t)(CAPACITY - lengths[b]) * sizeof cache_v[b][0]);
    }
    const qattn_tensor q = view_rows(q_rows, HQ, 1, CHUNK);
    const qattn_tensor o = view_rows(o_rows, HQ, 1, CHUNK);
    for (int step = 0; step < STEPS; step++) {
        qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
        params.seqused_k = lengths;
        for (int b = 0; b < B; b++) {
            append_tokens(b, lengths[b]++, 1);
            fill_random(&q_rows[b][0][0][0], HQ * D);
        }
        require(qattn_flash_forward(&q, &k, &v, &o, &params, NULL));
        for (int b = 0; b < B; b++)
            worst = larger(worst, compare_row(b, 0, lengths[b]));
    }
    printf("decode: %d prompt rows and %d tokens of %d sequences, largest difference from the naive loop %.1e\n",
           PROMPT, STEPS, B, worst);
    return worst < 1e-5 ? EXIT_SUCCESS : EXIT_FAILURE;
}
