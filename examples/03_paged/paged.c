/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The main call of a serving engine: one step over many requests, decode and prefill rows mixed. The queries of
 * all sequences are packed one after the other; keys and values lie in pages of a pool, in any order.
 *
 *     q, o     [T][HQ][D]                        rows cu_seqlens_q[n] .. cu_seqlens_q[n+1]-1 belong to sequence n
 *     k, v     [NUM_PAGES][PAGE_SIZE][HKV][D]    key j of sequence n: page page_table[n][j / PAGE_SIZE],
 *                                                row j % PAGE_SIZE
 *     seqused_k[n]                               keys of sequence n, its new tokens included
 *
 *     cc paged.c $(pkg-config --cflags --libs qattn) -lm && ./a.out
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <qattn.h>

enum { N = 5, HQ = 8, HKV = 4, D = 48, PAGE_SIZE = 16, NUM_PAGES = 24, MAX_PAGES = 6, T = 41 };

/* Two sequences decode one token, one prefills from nothing, one continues a prompt, one has no rows this step. */
static const int32_t cu_seqlens_q[N + 1] = { 0, 1, 22, 23, 41, 41 };
static const int32_t seqused_k[N] = { 57, 21, 1, 66, 30 };

static float pool_k[NUM_PAGES][PAGE_SIZE][HKV][D], pool_v[NUM_PAGES][PAGE_SIZE][HKV][D];
static float q_rows[T][HQ][D], o_rows[T][HQ][D], lse_rows[HQ][T];
static int32_t page_table[N][MAX_PAGES];

static float next_random(void)
{
    static unsigned seed = 3;
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / 8388608.0f - 1.0f;
}

/* Pages are handed out in a scattered order (7 and NUM_PAGES have no common factor); what no key uses stays NaN. */
static void fill_pool(void)
{
    int taken = 0;
    memset(pool_k, 0xff, sizeof pool_k);
    memset(pool_v, 0xff, sizeof pool_v);
    for (int n = 0; n < N; n++)
        for (int j = 0; j < seqused_k[n]; j++) {
            if (j % PAGE_SIZE == 0)
                page_table[n][j / PAGE_SIZE] = 7 * taken++ % NUM_PAGES;
            const int32_t page = page_table[n][j / PAGE_SIZE];
            for (int x = 0; x < HKV * D; x++) {
                pool_k[page][j % PAGE_SIZE][x / D][x % D] = next_random();
                pool_v[page][j % PAGE_SIZE][x / D][x % D] = next_random();
            }
        }
    for (int x = 0; x < T * HQ * D; x++)
        q_rows[x / (HQ * D)][x / D % HQ][x % D] = next_random();
}

/* fmax drops a NaN; a check must not. */
static double larger(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}

/* Packed row `row` of sequence n, which sees `keys` keys, by the formula: largest difference in O and LSE. */
static double compare_row(int n, int row, int keys)
{
    static double p[MAX_PAGES * PAGE_SIZE];
    double worst = 0;
    for (int h = 0; h < HQ; h++) {
        const int kv = h / (HQ / HKV);
        double sum = 0;
        for (int j = 0; j < keys; j++) {
            const float *k = pool_k[page_table[n][j / PAGE_SIZE]][j % PAGE_SIZE][kv];
            double s = 0;
            for (int d = 0; d < D; d++)
                s += (double)q_rows[row][h][d] * k[d];
            p[j] = exp(s / sqrt(D));
            sum += p[j];
        }
        worst = larger(worst, fabs(log(sum) - lse_rows[h][row]));
        for (int d = 0; d < D; d++) {
            double o = 0;
            for (int j = 0; j < keys; j++)
                o += p[j] / sum * pool_v[page_table[n][j / PAGE_SIZE]][j % PAGE_SIZE][kv][d];
            worst = larger(worst, fabs(o - o_rows[row][h][d]));
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

int main(void)
{
    const int32_t f32 = QATTN_DTYPE_F32, cpu = QATTN_DEVICE_CPU;
    qattn_tensor q, k, v, o;
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    double worst = 0;

    fill_pool();
    require(qattn_tensor_init(&q, q_rows, f32, cpu, 0, QATTN_LAYOUT_THD, 1, HQ, T, D));
    require(qattn_tensor_init(&o, o_rows, f32, cpu, 0, QATTN_LAYOUT_THD, 1, HQ, T, D));
    require(qattn_tensor_init(&k, pool_k, f32, cpu, 0, QATTN_LAYOUT_BSHD, NUM_PAGES, HKV, PAGE_SIZE, D));
    require(qattn_tensor_init(&v, pool_v, f32, cpu, 0, QATTN_LAYOUT_BSHD, NUM_PAGES, HKV, PAGE_SIZE, D));
    require(qattn_tensor_init(&params.lse, lse_rows, f32, cpu, 0, QATTN_LAYOUT_BHSD, 1, HQ, T, 1));
    params.mask = QATTN_MASK_CAUSAL;           /* bottom right: a sequence's last row sees its last key */
    params.cu_seqlens_q = cu_seqlens_q;
    params.num_seqs = N;
    params.seqused_k = seqused_k;
    params.page_table = &page_table[0][0];
    params.max_pages = MAX_PAGES;

    /* Scratch of the caller's own: sized once by capacity, whatever the lengths of later steps. */
    size_t bytes = 0;
    require(qattn_flash_forward_workspace(&q, &k, &v, &o, &params, &bytes));
    bytes = (bytes + 255) / 256 * 256;
    params.workspace_bytes = bytes;
    params.workspace = bytes ? aligned_alloc(256, bytes) : NULL;
    if (bytes && !params.workspace)
        return EXIT_FAILURE;
    require(qattn_flash_forward(&q, &k, &v, &o, &params, NULL));
    free(params.workspace);

    for (int n = 0; n < N; n++) {
        const int rows = cu_seqlens_q[n + 1] - cu_seqlens_q[n];
        for (int i = 0; i < rows; i++)
            worst = larger(worst, compare_row(n, cu_seqlens_q[n] + i, seqused_k[n] - rows + i + 1));
    }
    printf("paged: %d rows of %d sequences over %d pages, largest difference from the naive loop %.1e\n",
           T, N, NUM_PAGES, worst);
    return worst < 1e-5 ? EXIT_SUCCESS : EXIT_FAILURE;
}
