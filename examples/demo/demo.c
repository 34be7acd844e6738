/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * make demo: attention of a real language model, by the public functions alone.
 *
 * The input is what SmolLM2-135M computed for a prompt of 512 tokens and one token more: queries, keys and values of
 * a layer. They are put into memory as the model itself holds them, one fused row a token,
 *
 *     row s = [ q head 0 .. q head Hq-1 | k head 0 .. k head Hkv-1 | v head 0 .. v head Hkv-1 ]      D numbers a head
 *
 * and given to the library as views of that buffer: no copy, no transposition. Results are compared with
 * stored fp64 ones.
 *
 *     demo DATA_FOLDER PICTURE.png
 */
#include <math.h>
#include <qattn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "png.h"
#include "qv.h"

enum { MAX_REPEATS = 200, DECODED = 32 };   /* tokens decoded one at a time, the last ones of the file */

struct layer {
    const char *title;
    struct qv file;
    const struct qv_tensor *want_o, *want_lse;   /* fp64 results [1,Hq,S,D], [1,Hq,S] */
    int64_t heads, kv_heads, d, tokens, prompt;  /* tokens = prompt + 1 */
    int32_t dtype;
    int item;                                    /* bytes of an element */
    int64_t width;                               /* elements of a fused row: (heads + 2 kv_heads) d */
    char *fused;                                 /* [tokens][width] */
    char *out;                                   /* [tokens][heads][d], q's type */
    float *lse;                                  /* [heads][tokens] */
};

/* The two ways to compute attention; same arguments, same meaning. */
typedef int32_t forward_function(const qattn_tensor *q, const qattn_tensor *k, const qattn_tensor *v,
                                 const qattn_tensor *o, const qattn_attn_params *params,
                                 qattn_stream stream);

static forward_function *const forwards[2] = { qattn_flash_forward, qattn_gqa_forward };

/* Of each of the two: seconds a call, largest |difference| from fp64. */
struct figures { double prefill[2], decode[2], error[2], lse_error[2]; };

static void die(const char *what, const char *why)
{
    fprintf(stderr, "demo: %s: %s\n", what, why);
    exit(1);
}

static void require_ok(int32_t status, const char *what)
{
    char why[512];
    if (status == QATTN_OK)
        return;
    qattn_last_error(why, sizeof why);
    die(what, why);
}

static void *take(size_t bytes)
{
    void *const p = calloc(1, bytes);
    if (!p)
        die("memory", "there is not enough");
    return p;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---------------------------------------------------------------- the model's memory */

/* Copies in [1,heads,tokens,D] of the file into columns of the fused buffer. */
static void fuse(struct layer *l, const char *name, int64_t heads, int64_t first_head)
{
    const struct qv_tensor *const t = qv_tensor(&l->file, "in", name);
    if (!t || t->rank != 4 || t->dim[1] != heads || t->dim[2] != l->tokens || t->dim[3] != l->d)
        die(l->title, "the file does not hold what its header promises");
    const size_t bytes = (size_t)(l->d * l->item);
    for (int64_t h = 0; h < heads; h++)
        for (int64_t s = 0; s < l->tokens; s++)
            memcpy(l->fused + (s * l->width + (first_head + h) * l->d) * l->item,
                   (const char *)t->data + (size_t)(h * l->tokens + s) * bytes, bytes);
    l->dtype = qv_dtype(t);
}

static void load_layer(struct layer *l, const char *folder, const char *name, const char *title)
{
    char path[1024];
    memset(l, 0, sizeof *l);
    l->title = title;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (qv_open(&l->file, path))
        die("input", l->file.error);
    if (qv_int(&l->file, "q_heads", &l->heads) || qv_int(&l->file, "kv_heads", &l->kv_heads)
        || qv_int(&l->file, "head_dim", &l->d) || qv_int(&l->file, "seq", &l->tokens)
        || qv_int(&l->file, "prefill_len", &l->prompt))
        die(path, "a size is missing in the header");
    l->want_o = qv_tensor(&l->file, "ref", "O");
    l->want_lse = qv_tensor(&l->file, "ref", "LSE");
    const struct qv_tensor *const q = qv_tensor(&l->file, "in", "Q");
    if (!l->want_o || !l->want_lse || !q || l->tokens != l->prompt + 1 || l->tokens <= DECODED)
        die(path, "not a prefill_decode case");
    l->item = q->itemsize;
    l->width = (l->heads + 2 * l->kv_heads) * l->d;
    l->fused = take((size_t)(l->tokens * l->width * l->item));
    l->out = take((size_t)(l->tokens * l->heads * l->d * l->item));
    l->lse = take((size_t)(l->heads * l->tokens) * sizeof *l->lse);
    fuse(l, "K", l->kv_heads, l->heads);
    fuse(l, "V", l->kv_heads, l->heads + l->kv_heads);
    fuse(l, "Q", l->heads, 0);
}

static void free_layer(struct layer *l)
{
    free(l->fused);
    free(l->out);
    free(l->lse);
    qv_close(&l->file);
}

/* ---------------------------------------------------------------- views */

/* `heads` heads from column block `first_head` on, tokens first .. first+count-1, of a buffer [tokens][width]. */
static qattn_tensor view_heads(const struct layer *l, char *buffer, int64_t width, int64_t first_head, int64_t heads,
                               int64_t first, int64_t count)
{
    qattn_tensor t;
    char *const start = buffer + (first * width + first_head * l->d) * l->item;
    require_ok(qattn_tensor_init(&t, start, l->dtype, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BSHD, 1, heads, count, l->d),
               "qattn_tensor_init");
    t.stride[2] = width;                   /* from token to token: one fused row, not heads * d */
    return t;
}

/* Tensors and parameters of one call: queries first .. first+count-1 see the keys up to their own. */
struct call { qattn_tensor q, k, v, o; qattn_attn_params params; };

static struct call make_call(const struct layer *l, int64_t first, int64_t count)
{
    struct call c = { .params = QATTN_ATTN_PARAMS_INIT };
    const int64_t keys = first + count;    /* the cache has grown to this */
    c.q = view_heads(l, l->fused, l->width, 0, l->heads, first, count);
    c.k = view_heads(l, l->fused, l->width, l->heads, l->kv_heads, 0, keys);
    c.v = view_heads(l, l->fused, l->width, l->heads + l->kv_heads, l->kv_heads, 0, keys);
    c.o = view_heads(l, l->out, l->heads * l->d, 0, l->heads, first, count);
    c.params.mask = QATTN_MASK_CAUSAL;     /* bottom right: the last query sees the last key */
    require_ok(qattn_tensor_init(&c.params.lse, l->lse + first, QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0,
                                 QATTN_LAYOUT_BHSD, 1, l->heads, count, 1), "qattn_tensor_init");
    c.params.lse.stride[1] = l->tokens;    /* lse is [heads][tokens] */
    c.params.lse.stride[2] = 1;
    return c;
}

static void run_call(forward_function *forward, const struct call *c)
{
    require_ok(forward(&c->q, &c->k, &c->v, &c->o, &c->params, NULL), "attention");
}

/* ---------------------------------------------------------------- figures */

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *times, int n)
{
    qsort(times, (size_t)n, sizeof *times, compare_doubles);
    return times[n / 2];
}

/* Median seconds of a call by each function, in turn, so that a busy machine is busy for both. */
static void time_call(const struct call *c, double seconds[2])
{
    static double times[2][MAX_REPEATS];
    double spent = 0;
    int n = 0;
    for (; n < MAX_REPEATS && (n < 5 || spent < 0.3); n++)
        for (int i = 0; i < 2; i++) {
            const double t0 = now();
            run_call(forwards[i], c);
            times[i][n] = now() - t0;
            spent += times[i][n];
        }
    for (int i = 0; i < 2; i++)
        seconds[i] = median(times[i], n);
}

/* Element i of out, as a double, through the reader's own conversions. */
static double out_at(const struct layer *l, int64_t i)
{
    struct qv_tensor t = *qv_tensor(&l->file, "in", "Q");
    t.data = l->out;
    return qv_get(&t, i);
}

/* Takes the larger of *worst and |got - want|, and NaN if that is what it is. */
static void note_error(double *worst, double got, double want)
{
    const double error = fabs(got - want);
    if (!(error <= *worst))
        *worst = error;
}

static void compare_rows(const struct layer *l, int64_t first, int64_t count, struct figures *f, int i)
{
    for (int64_t h = 0; h < l->heads; h++)
        for (int64_t s = first; s < first + count; s++) {
            for (int64_t e = 0; e < l->d; e++)
                note_error(&f->error[i], out_at(l, (s * l->heads + h) * l->d + e),
                           qv_get(l->want_o, (h * l->tokens + s) * l->d + e));
            note_error(&f->lse_error[i], (double)l->lse[h * l->tokens + s],
                       qv_get(l->want_lse, h * l->tokens + s));
        }
}

/* NaN everywhere: what a call does not write shows. */
static void poison(const struct layer *l)
{
    memset(l->out, 0xFF, (size_t)(l->tokens * l->heads * l->d * l->item));
    memset(l->lse, 0xFF, (size_t)(l->heads * l->tokens) * sizeof *l->lse);
}

/* Prefill of the prompt, then the last tokens one at a time, the cache growing; all results compared. */
static struct figures measure(const struct layer *l)
{
    struct figures f = { { 0 } };
    const struct call prefill = make_call(l, 0, l->prompt), last = make_call(l, l->tokens - 1, 1);
    for (int i = 0; i < 2; i++) {
        poison(l);
        run_call(forwards[i], &prefill);
        compare_rows(l, 0, l->prompt, &f, i);
        poison(l);
        for (int64_t s = l->tokens - DECODED; s < l->tokens; s++) {
            const struct call step = make_call(l, s, 1);
            run_call(forwards[i], &step);
            compare_rows(l, s, 1, &f, i);
        }
    }
    time_call(&prefill, f.prefill);
    time_call(&last, f.decode);
    return f;
}

/* With u the unit roundoff of the type: rounding an O of 2 to 4 moves it by up to 2 u, and rounding the probabilities
 * before they multiply V moves it by as much again. */
static double error_limit(const struct layer *l)
{
    return l->dtype == QATTN_DTYPE_BF16 ? 4 * 0x1p-8 : l->dtype == QATTN_DTYPE_F16 ? 4 * 0x1p-11 : 2e-6;
}

/* The LSE is f32 and here below 64, where f32 has steps of 4e-6. */
static const double lse_limit = 2e-5;

/* ---------------------------------------------------------------- the report */

static void print_times(const char *what, const double seconds[2])
{
    const bool small = seconds[0] < 1e-3;
    const double factor = small ? 1e6 : 1e3;
    const char *const unit = small ? "us" : "ms";
    printf("    %-30s %10.1f %s %10.1f %s    flash is %.1f x as fast\n", what, factor * seconds[0], unit,
           factor * seconds[1], unit, seconds[1] / seconds[0]);
}

static bool print_errors(const char *what, const double error[2], double limit)
{
    const bool good = error[0] <= limit && error[1] <= limit;
    printf("    %-30s %13.1e %13.1e    limit %.1e: %s\n", what, error[0], error[1], limit,
           good ? "good" : "TOO LARGE");
    return good;
}

static bool report_layer(const struct layer *l)
{
    const struct figures f = measure(l);
    char what[64];
    printf("\n%s: %lld query heads share %lld key head%s, %lld numbers each\n", l->title, (long long)l->heads,
           (long long)l->kv_heads, l->kv_heads == 1 ? "" : "s", (long long)l->d);
    printf("    %-30s %13s %13s\n", "", "flash_forward", "gqa_forward");
    snprintf(what, sizeof what, "prefill, %lld tokens", (long long)l->prompt);
    print_times(what, f.prefill);
    snprintf(what, sizeof what, "decode, a token over %lld keys", (long long)l->tokens);
    print_times(what, f.decode);
    const bool good = print_errors("largest error of O", f.error, error_limit(l));
    return print_errors("largest error of the LSE", f.lse_error, lse_limit) && good;
}

static void explain(const struct layer *l)
{
    char text[2048];
    const struct call c = make_call(l, 0, l->prompt);
    require_ok(qattn_flash_forward_explain(&c.q, &c.k, &c.v, &c.o, &c.params, text, sizeof text),
               "qattn_flash_forward_explain");
    printf("\nWhich implementation ran, and why none faster (qattn_flash_forward_explain):\n");
    char *rest = NULL;
    int lines = 0;
    for (const char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest), lines++)
        printf("    %s\n", line);
    if (lines == 1)
        printf("    (the first of the table: this build has none faster)\n");
}

/* ---------------------------------------------------------------- the picture */

/* Colours from night to candle light, at equal steps. */
static void make_palette(uint8_t palette[256][3])
{
    static const uint8_t stops[6][3] = { { 8, 8, 24 },     { 52, 18, 94 },   { 140, 36, 110 },
                                         { 220, 72, 64 },  { 250, 160, 48 }, { 255, 250, 210 } };
    for (int i = 0; i < 256; i++) {
        const int stop = i * 5 / 256, part = i * 5 - stop * 256;      /* part of 256 on the way to the next stop */
        for (int c = 0; c < 3; c++)
            palette[i][c] = (uint8_t)((stops[stop][c] * (256 - part) + stops[stop + 1][c] * part) / 256);
    }
}

/* Row i, column j: how much of key j query i takes. gqa_forward gives the probabilities themselves. */
static void draw_map(const struct layer *l, int64_t head, const char *path)
{
    static uint8_t palette[256][3];
    struct call c = make_call(l, 0, l->prompt);
    const size_t count = (size_t)(l->heads * l->prompt * l->prompt);
    float *const scores = take(count * sizeof *scores);
    uint8_t *const pixels = take((size_t)(l->prompt * l->prompt));
    require_ok(qattn_tensor_init(&c.params.scores, scores, QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BHSD, 1,
                                 l->heads, l->prompt, l->prompt), "qattn_tensor_init");
    c.params.scores_stage = 3;             /* after the softmax */
    run_call(qattn_gqa_forward, &c);
    const float *const map = scores + head * l->prompt * l->prompt;
    for (int64_t i = 0; i < l->prompt * l->prompt; i++)
        pixels[i] = (uint8_t)(255.0 * pow((double)map[i], 0.3) + 0.5);   /* gamma: most weights are small */
    make_palette(palette);
    if (png_write(path, (uint32_t)l->prompt, (uint32_t)l->prompt, pixels, (const uint8_t (*)[3])palette))
        die(path, "cannot be written");
    free(scores);
    free(pixels);
    printf("\nA picture of it: %s\n", path);
    printf("    %s, query head %lld. A row for each token, a column for each token it may look at;\n", l->title,
           (long long)head);
    printf("    the brighter, the more of it the token takes. Above the diagonal lies the future, hidden; the\n"
           "    bright first column is token 0, where many heads of this model put what they do not need.\n");
}

/* ---------------------------------------------------------------- main */

int main(int argc, char **argv)
{
    static struct layer f32, f16, bf16;
    char info[256];
    if (argc != 3) {
        fprintf(stderr, "usage: demo DATA_FOLDER PICTURE.png\n");
        return 2;
    }
    require_ok(qattn_build_info(info, sizeof info), "qattn_build_info");
    printf("%s\n\n", info);
    printf("Attention of SmolLM2-135M on this CPU: what the model computed for a prompt of 512 tokens, read in place\n"
           "as views of its fused [token][q heads | k heads | v heads] buffer, causal, checked against fp64 results.\n"
           "flash_forward makes one pass over the keys; gqa_forward is the textbook: product, softmax, product.\n");
    load_layer(&f32, argv[1], "promptA_layer00_f32_group1.qv", "layer 0, float32");
    load_layer(&f16, argv[1], "promptA_layer15_f16.qv", "layer 15, float16");
    load_layer(&bf16, argv[1], "promptA_layer15_bf16.qv", "layer 15, bfloat16");
    bool good = report_layer(&f32);
    good &= report_layer(&f16);
    good &= report_layer(&bf16);
    explain(&bf16);
    draw_map(&bf16, 7, argv[2]);
    free_layer(&f32);
    free_layer(&f16);
    free_layer(&bf16);
    printf(good ? "\nEverything is within its limit.\n" : "\nAN ERROR IS ABOVE ITS LIMIT.\n");
    return good ? 0 : 1;
}
