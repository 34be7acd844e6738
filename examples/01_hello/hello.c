/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Attention straight on the output of a fused QKV projection: q, k and v are slices of the same rows, and no
 * element of them is copied or moved.
 *
 *     cc hello.c $(pkg-config --cflags --libs qattn) -lm && ./a.out
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <qattn.h>

enum { B = 2, S = 70, HQ = 6, HKV = 2, D = 32, ROW = (HQ + 2 * HKV) * D };

static float qkv[B][S][ROW];       /* a row: HQ query heads, HKV key heads, HKV value heads, each of D floats */
static float out[B][S][HQ][D];     /* the next projection wants [B][S][HQ*D]: the result is written like that */

/* `heads` heads of every row, from element `first` of the row on: axes B, H, S, D with the strides of qkv. */
static qattn_tensor slice_heads(int heads, int first)
{
    qattn_tensor t = {
        .data = &qkv[0][0][first],
        .shape = { B, heads, S, D },
        .stride = { S * ROW, D, ROW, 1 },
        .dtype = QATTN_DTYPE_F32,
        .device_type = QATTN_DEVICE_CPU,
    };
    return t;
}

/* fmax drops a NaN; a check must not. */
static double larger(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}

/* The same by the formula, one element at a time: causal, scale 1/sqrt(D). Returns the largest difference. */
static double compare_with_naive(void)
{
    static double p[S];
    double worst = 0;
    for (int b = 0; b < B; b++)
        for (int h = 0; h < HQ; h++)
            for (int i = 0; i < S; i++) {
                const int kv = h / (HQ / HKV);
                const float *q = &qkv[b][i][h * D];
                double sum = 0;
                for (int j = 0; j <= i; j++) {
                    const float *k = &qkv[b][j][(HQ + kv) * D];
                    double s = 0;
                    for (int d = 0; d < D; d++)
                        s += (double)q[d] * k[d];
                    p[j] = exp(s / sqrt(D));
                    sum += p[j];
                }
                for (int d = 0; d < D; d++) {
                    double o = 0;
                    for (int j = 0; j <= i; j++)
                        o += p[j] / sum * qkv[b][j][(HQ + HKV + kv) * D + d];
                    worst = larger(worst, fabs(o - out[b][i][h][d]));
                }
            }
    return worst;
}

int main(void)
{
    char text[512];
    unsigned seed = 1;
    for (float *x = &qkv[0][0][0]; x < &qkv[0][0][0] + B * S * ROW; x++) {
        seed = seed * 1664525u + 1013904223u;
        *x = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }

    const qattn_tensor q = slice_heads(HQ, 0);
    const qattn_tensor k = slice_heads(HKV, HQ * D);
    const qattn_tensor v = slice_heads(HKV, (HQ + HKV) * D);
    qattn_tensor o;
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    params.mask = QATTN_MASK_CAUSAL;

    if (qattn_tensor_init(&o, out, QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BSHD, B, HQ, S, D) != QATTN_OK
        || qattn_flash_forward(&q, &k, &v, &o, &params, NULL) != QATTN_OK) {
        qattn_last_error(text, sizeof text);
        fprintf(stderr, "%s\n", text);
        return EXIT_FAILURE;
    }
    const double worst = compare_with_naive();
    qattn_flash_forward_explain(&q, &k, &v, &o, &params, text, sizeof text);
    printf("implementation: %s\n", text);
    printf("hello: largest difference from the naive loop %.1e\n", worst);
    return worst < 1e-5 ? EXIT_SUCCESS : EXIT_FAILURE;
}
