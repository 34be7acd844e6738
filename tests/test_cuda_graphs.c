/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * A captured call is replayed with new contents of everything that lies in device memory: q, k, v, lengths, starts of
 * packed sequences, page tables. Each replay is judged in fp64, here, by the text of the contract. The capture itself
 * is made over lengths of 0, so nothing of what the replays find was there before.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suites.h"
#include "support.h"

#if QATTN_CUDA

#include <cuda_runtime_api.h>

#include "gpu.h"
#include "tolerance.h"

#define MUST(call) ck_assert_msg((call) == cudaSuccess, "%s: %s", #call, cudaGetErrorString(cudaGetLastError()))

enum { N = 6, HQ = 8, HKV = 2, D = 128, KEYS = 192, TOTAL_K = 700, PAGE = 16, COLUMNS = KEYS / PAGE, POOL = 90 };
enum { REPLAYS = 3 };

/* Rows of q: one for each sequence (decode), padded to `rows`, or packed into `total`. */
static const struct kind {
    const char *name;
    int64_t rows, total;
    bool paged, packed_k, causal, gqa;
} kinds[] = {
    { "decode, padded keys", 1, 0, false, false, false, false },
    { "decode, paged", 1, 0, true, false, false, false },
    { "prefill, padded", 70, 0, false, false, true, false },
    { "prefill, paged", 70, 0, true, false, true, false },
    { "packed, keys packed", 90, 200, false, true, true, false },
    { "packed, paged, decode and prefill rows", 90, 200, true, false, true, false },
    { "three kernels, padded", 70, 0, false, false, true, true },
};
enum { KINDS = sizeof kinds / sizeof *kinds };
static const int32_t types[] = { QATTN_DTYPE_BF16, QATTN_DTYPE_F16, QATTN_DTYPE_F32 };

/* An array on the host and on the device; of tensors, also the numbers it stands for. */
struct both { void *host, *device; size_t bytes; float *values; };

static struct both both_new(size_t bytes)
{
    struct both b = { calloc(1, bytes), NULL, bytes, NULL };
    MUST(cudaMalloc(&b.device, bytes));
    MUST(cudaMemset(b.device, 0, bytes));
    return b;
}

static void both_free(struct both *b)
{
    free(b->host);
    free(b->values);
    MUST(cudaFree(b->device));
}

static void send(const struct both *b) { MUST(cudaMemcpy(b->device, b->host, b->bytes, cudaMemcpyHostToDevice)); }

struct call {
    const struct kind *kind;
    int32_t dtype;
    int64_t batch, rows;                       /* of q */
    struct both q, k, v, o, start_q, start_k, used_q, used_k, table, workspace;
    qattn_tensor t[4];
    qattn_attn_params params;
};

static int32_t *ints(const struct both *b) { return b->host; }

static void tensor(qattn_tensor *t, void *data, int32_t dtype, int64_t b, int64_t h, int64_t s)
{
    ck_assert_int_eq(qattn_tensor_init(t, data, dtype, QATTN_DEVICE_CUDA, 0, QATTN_LAYOUT_BHSD, b, h, s, D), QATTN_OK);
}

static void call_init(struct call *c, const struct kind *kind, int32_t dtype)
{
    const int64_t item = format_size(dtype), blocks = kind->paged ? POOL : kind->packed_k ? 1 : N;
    const int64_t keys = kind->paged ? PAGE : kind->packed_k ? TOTAL_K : KEYS;
    size_t bytes = 0;
    *c = (struct call){ .kind = kind, .dtype = dtype, .batch = kind->total ? 1 : N,
                        .rows = kind->total ? kind->total : kind->rows, .params = QATTN_ATTN_PARAMS_INIT };
    c->q = both_new((size_t)(c->batch * HQ * c->rows * D * item));
    c->k = both_new((size_t)(blocks * HKV * keys * D * item));
    c->v = both_new(c->k.bytes);
    c->o = both_new((size_t)(c->batch * HQ * c->rows * D) * sizeof(float));
    c->start_q = both_new((N + 1) * sizeof(int32_t));
    c->start_k = both_new((N + 1) * sizeof(int32_t));
    c->used_q = both_new(N * sizeof(int32_t));
    c->used_k = both_new(N * sizeof(int32_t));
    c->table = both_new(N * COLUMNS * sizeof(int32_t));
    tensor(&c->t[0], c->q.device, dtype, c->batch, HQ, c->rows);
    tensor(&c->t[1], c->k.device, dtype, blocks, HKV, keys);
    tensor(&c->t[2], c->v.device, dtype, blocks, HKV, keys);
    tensor(&c->t[3], c->o.device, QATTN_DTYPE_F32, c->batch, HQ, c->rows);
    qattn_attn_params *const p = &c->params;
    p->mask = kind->causal ? QATTN_MASK_CAUSAL : 0;
    p->seqused_k = c->used_k.device;
    p->seqused_q = kind->rows > 1 ? c->used_q.device : NULL;
    if (kind->total) {
        p->cu_seqlens_q = c->start_q.device;
        p->num_seqs = N;
        p->max_seqlen_q = kind->rows;
    }
    if (kind->packed_k) {
        p->cu_seqlens_k = c->start_k.device;
        p->max_seqlen_k = KEYS;
    }
    if (kind->paged) {
        p->page_table = c->table.device;
        p->page_table_stride = p->max_pages = COLUMNS;
    }
    ck_assert_int_eq(kind->gqa ? qattn_gqa_forward_workspace(&c->t[0], &c->t[1], &c->t[2], &c->t[3], p, &bytes)
                               : qattn_flash_forward_workspace(&c->t[0], &c->t[1], &c->t[2], &c->t[3], p, &bytes),
                     QATTN_OK);
    c->workspace = both_new(bytes + 256);
    p->workspace = c->workspace.device;
    p->workspace_bytes = bytes;
}

static void call_free(struct call *c)
{
    struct both *const all[] = { &c->q,       &c->k,      &c->v,      &c->o,     &c->start_q,
                                 &c->start_k, &c->used_q, &c->used_k, &c->table, &c->workspace };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        both_free(all[i]);
}

static void fill(const struct call *c, struct both *b, struct rng *r)
{
    const int64_t item = format_size(c->dtype), count = (int64_t)b->bytes / item;
    if (!b->values)
        b->values = malloc((size_t)count * sizeof *b->values);
    for (int64_t i = 0; i < count; i++) {
        char *const at = (char *)b->host + i * item;
        format_encode(c->dtype, at, rng_normal(r));
        b->values[i] = (float)format_decode(c->dtype, at);
    }
    send(b);
}

/* Lengths from 0 to the most there may be, one or more rows each; slots of packed sequences are longer than what is
 * used of them, and the pool's pages are dealt anew. */
static void new_contents(struct call *c, struct rng *r)
{
    int32_t pages[POOL], left = POOL;
    for (int i = 0; i < POOL; i++)
        pages[i] = i;
    ints(&c->start_q)[0] = (int32_t)rng_below(r, 3);
    ints(&c->start_k)[0] = (int32_t)rng_below(r, 3);
    for (int n = 0; n < N; n++) {
        const int64_t rows = c->kind->total && rng_below(r, 2) ? 1 : c->kind->rows * (n % 3) / 2;
        const int64_t left_q = c->kind->total - ints(&c->start_q)[n], slot = rows < left_q ? rows : left_q;
        const int64_t slot_k = rng_below(r, TOTAL_K / N);
        ints(&c->start_q)[n + 1] = ints(&c->start_q)[n] + (int32_t)slot;
        ints(&c->start_k)[n + 1] = ints(&c->start_k)[n] + (int32_t)slot_k;
        ints(&c->used_q)[n] = (int32_t)rng_below(r, (c->kind->total ? slot : c->kind->rows) + 1);
        ints(&c->used_k)[n] = (int32_t)rng_below(r, (c->kind->packed_k ? slot_k : KEYS) + 1);
        for (int i = 0; i < COLUMNS; i++) {
            const int64_t pick = rng_below(r, left);
            ints(&c->table)[n * COLUMNS + i] = pages[pick];
            pages[pick] = pages[--left];
        }
    }
    const struct both *const arrays[] = { &c->start_q, &c->start_k, &c->used_q, &c->used_k, &c->table };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        send(arrays[i]);
    fill(c, &c->q, r);
    fill(c, &c->k, r);
    fill(c, &c->v, r);
    MUST(cudaMemset(c->o.device, 0xFF, c->o.bytes));
    MUST(cudaDeviceSynchronize());
}

/* Index of element 0 of key j of sequence n, KV head h. */
static int64_t key_index(const struct call *c, int64_t n, int64_t h, int64_t j)
{
    if (c->kind->paged)
        return ((ints(&c->table)[n * COLUMNS + j / PAGE] * HKV + h) * PAGE + j % PAGE) * D;
    if (c->kind->packed_k)
        return (h * TOTAL_K + ints(&c->start_k)[n] + j) * D;
    return ((n * HKV + h) * KEYS + j) * D;
}

/* One row of one head: `visible` keys. */
static void judge_row(const struct call *c, int64_t n, int64_t h, int64_t q_index, int64_t visible)
{
    static double p[KEYS];
    const float *const o = (const float *)c->o.host + q_index;
    double want[D] = { 0 }, size[D] = { 0 }, most = -INFINITY, sum = 0, magnitude = 0;
    for (int64_t j = 0; j < visible; j++) {
        const float *const q = c->q.values + q_index, *const k = c->k.values + key_index(c, n, h / (HQ / HKV), j);
        double absolute = 0;
        p[j] = 0;
        for (int d = 0; d < D; d++) {
            const double product = (double)q[d] * k[d] / sqrt(D);
            p[j] += product;
            absolute += fabs(product);
        }
        magnitude = fmax(magnitude, absolute);
        most = fmax(most, p[j]);
    }
    for (int64_t j = 0; j < visible; j++)
        sum += p[j] = exp(p[j] - most);
    for (int64_t j = 0; j < visible; j++) {
        const float *const v = c->v.values + key_index(c, n, h / (HQ / HKV), j);
        for (int d = 0; d < D; d++) {
            want[d] += p[j] / sum * v[d];
            size[d] += p[j] / sum * fabs(v[d]);
        }
    }
    const double e_s = tolerance_score(D, magnitude);
    for (int d = 0; d < D; d++) {
        const double bound = tolerance_output(c->dtype, c->dtype, QATTN_DTYPE_F32, e_s, want[d], size[d]);
        if (!(fabs(o[d] - want[d]) <= bound)) {
            note_failure("o of sequence %lld, head %lld, %lld keys is %g at %d, want %g", (long long)n, (long long)h,
                         (long long)visible, (double)o[d], d, want[d]);
            return;
        }
    }
}

static bool is_untouched(const float *o)
{
    unsigned char bytes[D * sizeof(float)];
    memset(bytes, 0xFF, sizeof bytes);
    return memcmp(o, bytes, sizeof bytes) == 0;
}

/* Every row of q: which sequence's it is decides what must be there. */
static void judge(struct call *c)
{
    MUST(cudaMemcpy(c->o.host, c->o.device, c->o.bytes, cudaMemcpyDeviceToHost));
    for (int64_t row = 0; row < c->batch * c->rows; row++) {
        int64_t n = c->kind->total ? 0 : row / c->rows, first = c->kind->total ? 0 : n * c->rows;
        while (c->kind->total && n < N && row >= ints(&c->start_q)[n + 1])
            n++;
        if (c->kind->total && n < N)
            first = ints(&c->start_q)[n];
        const bool covered = n < N && row >= first;
        const int64_t i = row - first;
        const int64_t slot = !covered ? 0 : c->kind->total ? ints(&c->start_q)[n + 1] - first : c->rows;
        const int64_t rows = !covered ? 0 : c->params.seqused_q ? ints(&c->used_q)[n] : slot;
        const int64_t keys = covered ? ints(&c->used_k)[n] : 0, last = i + keys - rows + 1;
        const int64_t visible = i >= rows ? 0 : !c->kind->causal ? keys : last < 0 ? 0 : last < keys ? last : keys;
        for (int64_t h = 0; h < HQ; h++) {
            const int64_t index =
                c->kind->total ? (h * c->rows + row) * D : ((n * HQ + h) * c->rows + i) * D;
            if (covered)
                judge_row(c, n, h, index, visible);
            else if (!is_untouched((const float *)c->o.host + index))
                note_failure("row %lld, no sequence's, was written", (long long)row);
        }
    }
}

static cudaGraphExec_t capture(struct call *c, cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    const int32_t status =
        c->kind->gqa ? qattn_gqa_forward(&c->t[0], &c->t[1], &c->t[2], &c->t[3], &c->params, stream)
                     : qattn_flash_forward(&c->t[0], &c->t[1], &c->t[2], &c->t[3], &c->params, stream);
    MUST(cudaStreamEndCapture(stream, &graph));
    ck_assert_int_eq(status, QATTN_OK);
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    MUST(cudaGraphDestroy(graph));
    return exec;
}

START_TEST(replays)
{
    const struct kind *const kind = &kinds[_i / 3];
    struct call c;
    struct rng r = { 4000 + (uint64_t)_i, 0 };
    cudaStream_t stream;
    failures_clear();
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    call_init(&c, kind, types[_i % 3]);
    cudaGraphExec_t exec = capture(&c, stream);
    for (int i = 0; i < REPLAYS; i++) {
        case_begin("%s, %s, replay %d", kind->name, format_name(types[_i % 3]), i);
        new_contents(&c, &r);
        MUST(cudaGraphLaunch(exec, stream));
        MUST(cudaStreamSynchronize(stream));
        judge(&c);
        count_run("replays of a graph with new contents", 1);
    }
    MUST(cudaGraphExecDestroy(exec));
    MUST(cudaStreamDestroy(stream));
    call_free(&c);
    ck_assert_int_eq(failures(), 0);
}
END_TEST

Suite *suite_cuda_graphs(void)
{
    Suite *s = suite_create("cuda_graphs");
    TCase *t = tcase_create("replays");
    tcase_set_tags(t, "gpu");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, replays, 0, KINDS * 3);
    suite_add_tcase(s, t);
    return s;
}

#else

/* Builds without CUDA: an empty suite, never run (main.c). */
Suite *suite_cuda_graphs(void) { return suite_create("cuda_graphs"); }

#endif
