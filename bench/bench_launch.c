/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Host time of calls on CUDA tensors: what a thread spends in the library until the call returns. Problems are small,
 * and the device is waited for between batches of calls, so that no call waits for room in the stream.
 *
 * usage: bench_launch [calls]    medians of so many calls, 4000 if not given
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "qattn.h"

#if QATTN_CUDA

#include <cuda_runtime_api.h>

enum { H = 16, HKV = 8, S = 64, LONG = 2048, D = 128, BATCH = 50, ARENA = 256 << 20 };

static char *arena;
static size_t used;
static cudaStream_t stream;

static void must(int status, const char *what)
{
    char text[256];
    if (status == 0)
        return;
    qattn_last_error(text, sizeof text);
    fprintf(stderr, "bench_launch: %s: status %d: %s\n", what, status, text);
    exit(EXIT_FAILURE);
}

static void *memory(size_t bytes)
{
    void *const at = arena + used;
    used += (bytes + 255) / 256 * 256;
    if (used > ARENA) {
        fprintf(stderr, "bench_launch: %zu bytes of device memory are too few\n", (size_t)ARENA);
        exit(EXIT_FAILURE);
    }
    return at;
}

static qattn_tensor tensor(int32_t dtype, int64_t h, int64_t s, int64_t d)
{
    qattn_tensor t;
    void *const data = memory((size_t)(h * s * d) * 4);
    must(qattn_tensor_init(&t, data, dtype, QATTN_DEVICE_CUDA, 0, QATTN_LAYOUT_BHSD, 1, h, s, d), "qattn_tensor_init");
    return t;
}

/* One call of an operation; `id` says which row runs it. */
struct call {
    const char *name;
    qattn_tensor t[4], lse[2];
    int output;                 /* which of t is written */
    qattn_attn_params attn;
    qattn_matmul_params matmul;
    int32_t (*run)(struct call *c);
    char id[256];
};

static int32_t run_matmul(struct call *c) { return qattn_matmul(&c->t[0], &c->t[1], &c->t[2], &c->matmul, stream); }
static int32_t run_matmul_nt(struct call *c)
{
    return qattn_matmul_nt(&c->t[0], &c->t[1], &c->t[2], &c->matmul, stream);
}
static int32_t run_softmax(struct call *c) { return qattn_softmax(&c->t[0], &c->t[1], NULL, stream); }
static int32_t run_softmax_causal(struct call *c) { return qattn_softmax_causal(&c->t[0], &c->t[1], NULL, stream); }
static int32_t run_merge(struct call *c) { return qattn_merge(2, c->t, c->lse, &c->t[2], NULL, NULL, stream); }
static int32_t run_gqa(struct call *c)
{
    return qattn_gqa_forward(&c->t[0], &c->t[1], &c->t[2], &c->t[3], &c->attn, stream);
}
static int32_t run_flash(struct call *c)
{
    return qattn_flash_forward(&c->t[0], &c->t[1], &c->t[2], &c->t[3], &c->attn, stream);
}

static struct call product(const char *name, int32_t dtype, bool nt)
{
    struct call c = {
        .name = name, .matmul = QATTN_MATMUL_PARAMS_INIT, .output = 2, .run = nt ? run_matmul_nt : run_matmul
    };
    c.t[0] = tensor(dtype, H, S, D);
    c.t[1] = nt ? tensor(dtype, HKV, S, D) : tensor(dtype, HKV, D, S);
    c.t[2] = tensor(dtype, H, S, S);
    must(nt ? qattn_matmul_nt_explain(&c.t[0], &c.t[1], &c.t[2], NULL, c.id, sizeof c.id)
            : qattn_matmul_explain(&c.t[0], &c.t[1], &c.t[2], NULL, c.id, sizeof c.id), name);
    return c;
}

static struct call rows(const char *name, bool causal)
{
    struct call c = { .name = name, .output = 1, .run = causal ? run_softmax_causal : run_softmax };
    c.t[0] = tensor(QATTN_DTYPE_F32, H, S, S);
    c.t[1] = tensor(QATTN_DTYPE_F32, H, S, S);
    must(qattn_softmax_explain(&c.t[0], &c.t[1], NULL, c.id, sizeof c.id), name);
    return c;
}

static struct call attention(const char *name, int32_t dtype, int64_t rows_q, int64_t keys, bool gqa)
{
    struct call c = { .name = name, .attn = QATTN_ATTN_PARAMS_INIT, .output = 3, .run = gqa ? run_gqa : run_flash };
    size_t bytes = 0;
    c.t[0] = tensor(dtype, H, rows_q, D);
    c.t[1] = tensor(dtype, HKV, keys, D);
    c.t[2] = tensor(dtype, HKV, keys, D);
    c.t[3] = tensor(dtype, H, rows_q, D);
    c.attn.mask = QATTN_MASK_CAUSAL;
    const qattn_tensor *const t = c.t;
    must(gqa ? qattn_gqa_forward_workspace(t, t + 1, t + 2, t + 3, &c.attn, &bytes)
             : qattn_flash_forward_workspace(t, t + 1, t + 2, t + 3, &c.attn, &bytes), name);
    must(gqa ? qattn_gqa_forward_explain(t, t + 1, t + 2, t + 3, &c.attn, c.id, sizeof c.id)
             : qattn_flash_forward_explain(t, t + 1, t + 2, t + 3, &c.attn, c.id, sizeof c.id), name);
    c.attn.workspace = bytes ? memory(bytes) : NULL;
    c.attn.workspace_bytes = bytes;
    return c;
}

static struct call merging(const char *name)
{
    struct call c = { .name = name, .output = 2, .run = run_merge };
    for (int i = 0; i < 3; i++)
        c.t[i] = tensor(QATTN_DTYPE_F32, H, S, D);
    for (int i = 0; i < 2; i++)
        c.lse[i] = tensor(QATTN_DTYPE_F32, H, S, 1);
    must(qattn_merge_explain(2, c.t, c.lse, &c.t[2], NULL, NULL, c.id, sizeof c.id), name);
    return c;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median and 90th percentile of the time of `calls` calls that answer `expected`. */
static void measure(struct call *c, int32_t expected, int calls, double *median, double *high)
{
    double *const us = malloc((size_t)calls * sizeof *us);
    for (int i = 0; i < calls; i++) {
        const double start = now();
        const int32_t status = c->run(c);
        us[i] = now() - start;
        if (status != expected)
            must(status ? status : -1, c->name);
        if (i % BATCH == BATCH - 1)
            must((int)cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    }
    must((int)cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    qsort(us, (size_t)calls, sizeof *us, compare);
    *median = us[calls / 2];
    *high = us[(int64_t)calls * 9 / 10];
    free(us);
}

static void bench(struct call *c, int calls)
{
    double median, high, refused, refused_high;
    const double start = now();
    must(c->run(c), c->name);
    const double first = now() - start;
    measure(c, QATTN_OK, calls, &median, &high);
    c->t[c->output].dtype = QATTN_DTYPE_BOOL;      /* what the checks look at last */
    measure(c, QATTN_ERR_UNSUPPORTED_DTYPE, calls, &refused, &refused_high);
    c->id[strcspn(c->id, "\n")] = '\0';
    printf("%-34s %-12s first %9.1f  call %6.2f (90 %%: %6.2f)  refusal %5.2f (%5.2f)\n", c->name, c->id, first, median,
           high, refused, refused_high);
}

int main(int argc, char **argv)
{
    const int calls = argc > 1 ? atoi(argv[1]) : 4000;
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("skipped: no CUDA device\n0 passed, 0 failed, 1 skipped\n");
        return EXIT_SUCCESS;
    }
    must((int)cudaMalloc((void **)&arena, ARENA), "cudaMalloc");
    must((int)cudaMemset(arena, 0, ARENA), "cudaMemset");
    must((int)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    struct call all[] = {
        product("matmul_nt f32", QATTN_DTYPE_F32, true), product("matmul f32", QATTN_DTYPE_F32, false),
        product("matmul_nt bf16", QATTN_DTYPE_BF16, true), product("matmul bf16", QATTN_DTYPE_BF16, false),
        rows("softmax f32", false), rows("softmax_causal f32", true), merging("merge of 2, f32"),
        attention("flash_forward bf16, one kernel", QATTN_DTYPE_BF16, S, S, false),
        attention("flash_forward f32, one kernel", QATTN_DTYPE_F32, S, S, false),
        attention("flash_forward bf16, split", QATTN_DTYPE_BF16, 1, LONG, false),
        attention("flash_forward f32, split", QATTN_DTYPE_F32, 1, LONG, false),
        attention("gqa_forward bf16", QATTN_DTYPE_BF16, S, S, true),
        attention("gqa_forward f32", QATTN_DTYPE_F32, S, S, true),
    };
    printf("host time, microseconds, medians of %d calls with a workspace\n", calls);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        bench(&all[i], calls > 0 ? calls : 1);
    return EXIT_SUCCESS;
}

#else

int main(void)
{
    printf("skipped: this build has no CUDA part\n0 passed, 0 failed, 1 skipped\n");
    return EXIT_SUCCESS;
}

#endif
