/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* matmul and matmul_nt on every row of the table, against fp64 sums over the logical values. */
#include "check_gemm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_run.h"
#include "core/params.h"
#include "gpu.h"
#include "grid.h"
#include "tolerance.h"

enum { BLOCK = 64 };

struct gemm_case {
    enum op op;
    int32_t in, out;               /* dtypes */
    int64_t b, h, hb, m, n, k;
    float   alpha, beta;           /* alpha 0: the default 1, unless as_given */
    bool    as_given, invariant;
    int64_t precision, aligned;    /* QATTN_PRECISION_*; rows on 16 bytes in random layouts too */
    int64_t special;               /* enum special: numbers at the ends */
    int64_t lay, seed;             /* lay 0: packed; 1: b transposed in memory; else random */
};

enum special {
    NOTHING_SPECIAL,
    LARGEST,           /* the last row of B its type's largest numbers, the last column of A 0 or small */
    NOT_FINITE         /* a NaN in row 1 of A, an infinity in column 2 of B: they reach no other row and column */
};

static void gemm_text(const struct gemm_case *c, char *buf, size_t cap)
{
    snprintf(buf, cap,
             "%s %s out=%s b%lld h%lld hkv%lld m%lld n%lld k%lld alpha=%g beta=%g%s%s "
             "precision=%lld aligned=%lld special=%lld "
             "lay=%lld seed=%lld",
             c->op == OP_MATMUL ? "matmul" : "matmul_nt", format_name(c->in), format_name(c->out),
             (long long)c->b, (long long)c->h, (long long)c->hb, (long long)c->m, (long long)c->n,
             (long long)c->k, (double)c->alpha, (double)c->beta, c->as_given ? " as_given" : "",
             c->invariant ? " invariant" : "", (long long)c->precision, (long long)c->aligned,
             (long long)c->special, (long long)c->lay, (long long)c->seed);
}

static uint64_t gemm_key(const struct gemm_case *c, uint64_t tag, int64_t b, int64_t h, int64_t row)
{
    return hash64(hash64(hash64(hash64((uint64_t)c->seed, tag), (uint64_t)b), (uint64_t)h), (uint64_t)row);
}

static struct layout gemm_layout(const struct gemm_case *c, uint64_t id)
{
    struct layout l = layout_packed(QATTN_LAYOUT_BHSD);
    if (c->lay == 1 && id == 1) {
        l.order[2] = 3;
        l.order[3] = 2;
    } else if (c->lay > 1) {
        struct rng r = { hash64((uint64_t)c->lay, id), 0 };
        l = c->aligned ? layout_rows(&r, 16) : layout_random(&r);
    }
    l.align = c->aligned ? 16 : 0;
    return l;
}

struct gemm_build { struct box a, b, c; };

/* The largest number a product takes: TF32 rounds larger ones to infinity. */
static double gemm_largest(const struct gemm_case *c)
{
    return c->in == QATTN_DTYPE_F32 && c->precision == QATTN_PRECISION_TF32 ? 0x1.FFCp127 : format_largest(c->in);
}

/* Row of A, or of logical B^T [N,K]: K values, in `copy` where they are special. */
static const double *gemm_row(const struct gemm_case *c, char which, int64_t b, int64_t h, int64_t row, double *copy)
{
    const double *const values = normal_row(c->in, gemm_key(c, (uint64_t)which, b, h, row));
    if (!c->special || c->k == 0)
        return values;
    memcpy(copy, values, (size_t)c->k * sizeof *copy);
    if (c->special == LARGEST)
        copy[c->k - 1] = which == 'b' ? (row % 2 ? -1 : 1) * gemm_largest(c)
                         : row % 2    ? (c->in == QATTN_DTYPE_F16 ? 0x1p-10 : 0x1p-20)
                                      : 0;
    else if (which == 'a' && row == 1)
        copy[0] = NAN;
    else if (which == 'b' && row == 2)
        copy[c->k / 2] = INFINITY;
    return copy;
}

static void gemm_fill(const struct gemm_case *c, struct gemm_build *g)
{
    const bool nt = c->op == OP_MATMUL_NT;
    static double copy[NORMAL_MAX_ROW];
    for (int64_t b = 0; b < c->b; b++) {
        for (int64_t h = 0; h < c->h; h++)
            for (int64_t m = 0; m < c->m; m++) {
                box_set_row(&g->a, b, h, m, c->k, normal_row_encoded(c->in, gemm_key(c, 'a', b, h, m)));
                const double *const row = gemm_row(c, 'a', b, h, m, copy);
                for (int64_t k = 0; k < c->k && c->special; k++)
                    box_set(&g->a, b, h, m, k, row[k]);
            }
        for (int64_t h = 0; h < c->hb; h++)
            for (int64_t n = 0; n < c->n; n++) {
                const double *const row = gemm_row(c, 'b', b, h, n, copy);
                for (int64_t k = 0; k < c->k; k++)
                    box_set(&g->b, b, h, nt ? n : k, nt ? k : n, row[k]);
            }
    }
}

/* beta 0: C stays NaN, since it must not be read. */
static void gemm_reset(const struct gemm_case *c, struct gemm_build *g)
{
    box_poison(&g->c, POISON_OUTPUT);
    for (int64_t b = 0; b < c->b && c->beta != 0; b++)
        for (int64_t h = 0; h < c->h; h++)
            for (int64_t m = 0; m < c->m; m++)
                box_set_row(&g->c, b, h, m, c->n, normal_row_encoded(c->out, gemm_key(c, 'c', b, h, m)));
    box_snapshot(&g->c);
}

static struct gemm_build gemm_build_new(const struct gemm_case *c)
{
    const bool nt = c->op == OP_MATMUL_NT;
    const int64_t a[4] = { c->b, c->h, c->m, c->k }, out[4] = { c->b, c->h, c->m, c->n };
    const int64_t b[4] = { c->b, c->hb, nt ? c->n : c->k, nt ? c->k : c->n };
    const struct layout la = gemm_layout(c, 0), lb = gemm_layout(c, 1), lc = gemm_layout(c, 2);
    struct gemm_build g = { .a = box_new(c->in, a, &la, POISON_INPUT), .b = box_new(c->in, b, &lb, POISON_INPUT),
                            .c = box_new(c->out, out, &lc, POISON_OUTPUT) };
    gemm_fill(c, &g);
    box_snapshot(&g.a);
    box_snapshot(&g.b);
    gemm_reset(c, &g);
    return g;
}

/* Runs one row; false: it does not support the case. */
static bool gemm_run(const struct impl *row, const struct gemm_case *c, struct gemm_build *g, int32_t threads,
                     int fill, char *why, size_t cap)
{
    static struct problem p;
    const qattn_matmul_params params = {
        .struct_size = sizeof params, .alpha = c->alpha, .beta = c->beta, .num_threads = threads,
        .precision = (int32_t)c->precision,
        .flags = (c->as_given ? QATTN_FLAG_SCALE_AS_GIVEN : 0u) | (c->invariant ? QATTN_FLAG_BATCH_INVARIANT : 0u),
    };
    const int32_t status = qattn__problem_matmul(&p, c->op, &g->a.t, &g->b.t, &g->c.t, &params, false);
    if (status != QATTN_OK) {
        note_failure("valid arguments refused with %d", status);
        return true;
    }
    struct gpu_regions regions = { .count = 0 };
    int32_t ran = QATTN_OK;
    gpu_add_box(&regions, &g->a);
    gpu_add_box(&regions, &g->b);
    gpu_add_box(&regions, &g->c);
    if (!gpu_run_row(row, &p, &regions, fill, &ran, why, cap))
        return false;
    if (ran != QATTN_OK)
        note_failure("run returned %d", ran);
    if (!box_intact(&g->a) || !box_intact(&g->b))
        note_failure("an input was changed");
    return true;
}

static void gemm_compare(const char *id, const struct gemm_case *c, struct gemm_build *g)
{
    const double alpha = c->alpha == 0 && !c->as_given ? 1 : (double)c->alpha;
    const int64_t group = c->hb ? c->h / c->hb : 1;
    const int32_t precision = gpu_precision(id, c->precision);
    const double product = tolerance_product(c->in, precision);
    double worst = 0;
    for (int64_t b = 0; b < c->b; b++)
        for (int64_t h = 0; h < c->h; h++)
            for (int64_t m = 0; m < c->m; m++) {
                static double a_copy[NORMAL_MAX_ROW], b_copy[NORMAL_MAX_ROW];
                const double *x = gemm_row(c, 'a', b, h, m, a_copy);
                const double *old = normal_row(c->out, gemm_key(c, 'c', b, h, m));
                for (int64_t n = 0; n < c->n; n++) {
                    const double *y = gemm_row(c, 'b', b, h / group, n, b_copy);
                    double sum = 0, absolute = 0;
                    for (int64_t k = 0; k < c->k; k++) {
                        sum += x[k] * y[k];
                        absolute += fabs(x[k] * y[k]);
                    }
                    const double base = c->beta == 0 ? 0 : (double)c->beta * old[n], want = alpha * sum + base;
                    const double bound = tolerance_matmul_of(c->out, c->k, product, want,
                                                             fabs(alpha) * absolute, fabs(base));
                    const double got = box_get(&g->c, b, h, m, n);
                    const double ratio = isfinite(want)   ? fabs(got - want) / bound
                                         : isfinite(got) ? INFINITY
                                                         : 0;
                    if (!(ratio <= 1))
                        note_failure("c b%lld h%lld m%lld n%lld is %.9g, want %.9g (%.3g x the bound)", (long long)b,
                                     (long long)h, (long long)m, (long long)n, got, want, ratio);
                    worst = fmax(worst, ratio);
                    box_expect_written(&g->c, b, h, m, n);
                }
            }
    if (!box_intact(&g->c))
        note_failure("bytes outside c were changed");
    char key[96];
    static const char *const precisions[] = { "", " 3xtf32", " tf32" };
    snprintf(key, sizeof key, "%s %s>%s%s matmul", id, format_name(c->in), format_name(c->out),
             precisions[precision]);
    report_ratio(key, worst);
}

static void gemm_check(const struct gemm_case *c)
{
    char text[200], why[192], label[96];
    gemm_text(c, text, sizeof text);
    case_begin("build/%s", text);
    struct gemm_build g = gemm_build_new(c);
    for (int i = 0; i < qattn__impl_count; i++) {
        const struct impl *row = &qattn__impls[i];
        if (!attn_row_wanted(row))
            continue;
        case_begin("%s/%s", row->id, text);
        snprintf(label, sizeof label, "%s/%s", c->op == OP_MATMUL ? "matmul" : "matmul_nt", row->id);
        if (!gemm_run(row, c, &g, 1, 0xFF, why, sizeof why)) {
            count_skipped(label, why, 1);
            continue;
        }
        count_run(label, 1);
        gemm_compare(row->id, c, &g);
        void *first = memcpy(malloc(g.c.bytes), g.c.mem, g.c.bytes);
        const int runs = gpu_repeats(c->seed);
        for (int run = 2, same = 1; run <= runs && same; run++) {
            gemm_reset(c, &g);
            gemm_run(row, c, &g, 3, run % 2 ? 0xFF : 0x00, why, sizeof why);
            same = memcmp(first, g.c.mem, g.c.bytes) == 0;
            if (!same)
                note_failure("run %d (3 threads, other workspace contents) gave other bits", run);
        }
        count_run("runs for the same bits", runs);
        free(first);
        gemm_reset(c, &g);
    }
    box_free(&g.a);
    box_free(&g.b);
    box_free(&g.c);
}

static struct gemm_case *gemms;
static int64_t num_gemms;

static void gemm_push(struct gemm_case c)
{
    gemms = realloc(gemms, (size_t)(num_gemms + 1) * sizeof *gemms);
    c.seed = num_gemms + 1;
    c.lay = num_gemms % 4 < 2 ? num_gemms % 4 : num_gemms;
    gemms[num_gemms++] = c;
}

static void gemm_grid(void)
{
    static const int64_t sizes[] = { 0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 65, 100, 129 };
    static const struct { int32_t in, out;
    } types[] = {
        { QATTN_DTYPE_F32, QATTN_DTYPE_F32 },   { QATTN_DTYPE_F16, QATTN_DTYPE_F16 },
        { QATTN_DTYPE_BF16, QATTN_DTYPE_BF16 }, { QATTN_DTYPE_F16, QATTN_DTYPE_F32 },
        { QATTN_DTYPE_BF16, QATTN_DTYPE_F32 },
    };
    static const float alphas[] = { 0, 1, -2, 0.125f }, betas[] = { 0, 1, -0.5f, 0 };
    struct rng r = { 20261129, 0 };
    enum { SIZES = sizeof sizes / sizeof *sizes, RANDOM = 500 };
    for (int op = OP_MATMUL; op <= OP_MATMUL_NT; op++) {
        for (int axis = 0; axis < 3; axis++)             /* each axis through every size */
            for (int i = 0; i < SIZES; i++)
                for (int t = 0; t < 5; t++) {
                    const int64_t s = sizes[i];
                    gemm_push((struct gemm_case){ .op = (enum op)op,
                                                  .in = types[t].in,
                                                  .out = types[t].out,
                                                  .b = 1,
                                                  .h = 2,
                                                  .hb = 1,
                                                  .m = axis == 0 ? s : 9,
                                                  .n = axis == 1 ? s : 20,
                                                  .k = axis == 2 ? s : 33,
                                                  .alpha = alphas[(t + i) % 4],
                                                  .beta = betas[i % 4] });
                }
        for (int i = 0; i < RANDOM; i++) {
            const int64_t t = rng_below(&r, 5), hb = rng_below(&r, 4), group = 1 + rng_below(&r, 4);
            gemm_push(
                (struct gemm_case){ .op = (enum op)op,
                                    .in = types[t].in,
                                    .out = types[t].out,
                                    .b = rng_below(&r, 3),
                                    .h = hb * group,
                                    .hb = hb,
                                    .m = sizes[rng_below(&r, SIZES)],
                                    .n = sizes[rng_below(&r, SIZES)],
                                    .k = rng_below(&r, 10) ? sizes[rng_below(&r, SIZES)] : 1024,
                                    .alpha = alphas[rng_below(&r, 4)],
                                    .beta = betas[rng_below(&r, 4)],
                                    .as_given = rng_below(&r, 8) == 0,
                                    .invariant = rng_below(&r, 4) == 0,
                                    .special = i % 5 < 3 ? i % 5 : 0 });
        }
    }
}

/* Tiles of tensor cores: sizes around 64, 128 and 256, steps of K around 16, 32 and 64, TF32. */
static void gemm_tiles(void)
{
    static const int64_t sizes[] = { 1,   8,   16,  24,  63,  64,  65,  72,  96,  120,
                                     127, 128, 129, 136, 192, 200, 255, 256, 257, 264 };
    static const int64_t depths[] = { 1,  4,  8,  15, 16,  17,  24,  31,  32,  33,  48,
                                      63, 64, 65, 96, 128, 130, 200, 256, 520, 1000 };
    enum { SIZES = sizeof sizes / sizeof *sizes, DEPTHS = sizeof depths / sizeof *depths, CASES = 1500 };
    static const int32_t kinds[][2] = {
        { QATTN_DTYPE_F16, QATTN_DTYPE_F16 }, { QATTN_DTYPE_BF16, QATTN_DTYPE_BF16 },
        { QATTN_DTYPE_F16, QATTN_DTYPE_F32 }, { QATTN_DTYPE_BF16, QATTN_DTYPE_F32 },
        { QATTN_DTYPE_F32, QATTN_DTYPE_F32 },
    };
    static const float alphas[] = { 0, 0, -2, 0.125f }, betas[] = { 0, 0, 1, -0.5f };
    struct rng r = { 80, 0 };
    for (int i = 0; i < CASES; i++) {
        const int64_t t = rng_below(&r, 7), hb = 1 + rng_below(&r, 2), group = 1 + rng_below(&r, 3);
        struct gemm_case c = { .op = rng_below(&r, 2) ? OP_MATMUL : OP_MATMUL_NT,
                               .in = kinds[t < 4 ? t : 4][0],
                               .out = kinds[t < 4 ? t : 4][1],
                               .b = 1 + rng_below(&r, 2),
                               .h = hb * group,
                               .hb = hb,
                               .m = sizes[rng_below(&r, SIZES)],
                               .n = sizes[rng_below(&r, SIZES)],
                               .k = depths[rng_below(&r, DEPTHS)],
                               .alpha = alphas[rng_below(&r, 4)],
                               .beta = betas[rng_below(&r, 4)],
                               .as_given = rng_below(&r, 12) == 0,
                               .invariant = rng_below(&r, 4) == 0,
                               .precision = t < 4 ? 0 : t - 4,
                               .aligned = rng_below(&r, 4) > 0,
                               .special = i % 7 < 3 ? i % 7 : 0 };
        if (grid_wants_tiles() || i % 40 == 0)
            gemm_push(c);
    }
    /* more tiles than blocks: each walks over several */
    static const int64_t few[] = { 0, 1, 15, 16, 17, 33, 50 };
    for (int i = 0; i < 14 && grid_wants_tiles(); i++)
        gemm_push((struct gemm_case){ .op = i % 2 ? OP_MATMUL : OP_MATMUL_NT,
                                      .in = kinds[i % 3 ? 4 : i % 2][0],
                                      .out = kinds[i % 3 ? 4 : i % 2][1],
                                      .b = 2,
                                      .h = 80,
                                      .hb = i % 4 ? 80 : 20,
                                      .m = 130,
                                      .n = 131 + i / 2 % 2,
                                      .k = few[i / 2],
                                      .alpha = 1.5f,
                                      .beta = i / 2 % 2 ? 0.5f : 0,
                                      .aligned = i % 5 != 4 });
}

START_TEST(matmul)
{
    failures_clear();
    for (int64_t i = (int64_t)_i * BLOCK; i < num_gemms && i < (int64_t)(_i + 1) * BLOCK; i++)
        if (shard_has(i) && (!grid_small() || i % 9 == 0))
            gemm_check(&gemms[i]);
    ck_assert_int_eq(failures(), 0);
}
END_TEST

/* A part of the product alone: rows m0 .. m1 and columns n0 .. n1 of one batch and head. */
static void gemm_part(const struct gemm_case *c, const struct gemm_build *g,
                      struct gemm_build *part, int64_t b, int64_t h, const int64_t m[2],
                      const int64_t n[2])
{
    const bool nt = c->op == OP_MATMUL_NT;
    const int64_t group = c->h / c->hb;
    *part = *g;
    part->a.t.data = box_at(&g->a, b, h, m[0], 0);
    part->b.t.data = nt ? box_at(&g->b, b, h / group, n[0], 0) : box_at(&g->b, b, h / group, 0, n[0]);
    part->c.t.data = box_at(&g->c, b, h, m[0], n[0]);
    for (int axis = 0; axis < 2; axis++)
        part->a.t.shape[axis] = part->b.t.shape[axis] = part->c.t.shape[axis] = 1;
    part->a.t.shape[2] = part->c.t.shape[2] = m[1] - m[0];
    part->b.t.shape[nt ? 2 : 3] = part->c.t.shape[3] = n[1] - n[0];
}

/* BATCH_INVARIANT: an element of C has the same bits whatever rows, columns, heads and batches are computed with it. */
static void gemm_check_parts(const struct impl *row, const struct gemm_case *c)
{
    static const int64_t rows[] = { 0, 1, 2, 19, 83, 150 }, columns[] = { 0, 8, 9, 73, 140 };
    enum { ROWS = sizeof rows / sizeof *rows - 1, COLUMNS = sizeof columns / sizeof *columns - 1 };
    char text[200], why[192];
    struct gemm_build g = gemm_build_new(c), part;
    gemm_text(c, text, sizeof text);
    case_begin("%s/%s in parts", row->id, text);
    if (gemm_run(row, c, &g, 1, 0xFF, why, sizeof why)) {
        void *const whole = memcpy(malloc(g.c.bytes), g.c.mem, g.c.bytes);
        gemm_reset(c, &g);
        for (int64_t x = 0; x < c->b * c->h * ROWS * COLUMNS; x++) {
            const int64_t i = x % ROWS, j = x / ROWS % COLUMNS, head = x / ROWS / COLUMNS;
            gemm_part(c, &g, &part, head / c->h, head % c->h, rows + i, columns + j);
            if (!gemm_run(row, c, &part, 1, 0x00, why, sizeof why))
                note_failure("refused in parts alone: %s", why);
        }
        if (memcmp(whole, g.c.mem, g.c.bytes) != 0)
            note_failure("the parts have other bits than the whole");
        free(whole);
        count_run("matmul in parts", 1);
    } else {
        count_skipped("matmul in parts", why, 1);
    }
    box_free(&g.a);
    box_free(&g.b);
    box_free(&g.c);
}

START_TEST(matmul_parts)
{
    static const int32_t kinds[] = { QATTN_DTYPE_F32, QATTN_DTYPE_F16, QATTN_DTYPE_BF16 };
    failures_clear();
    for (int64_t i = 0; i < 24; i++) {
        struct gemm_case c = { .op = i % 2 ? OP_MATMUL : OP_MATMUL_NT,
                               .in = kinds[i / 2 % 3],
                               .out = kinds[i / 2 % 3],
                               .b = 2,
                               .h = 2,
                               .hb = 1 + i % 2,
                               .m = 150,
                               .n = 140,
                               .k = i / 6 % 2 ? 200 : 64,
                               .invariant = true,
                               .aligned = i < 18,
                               .lay = i % 3 == 2 ? 40 + i : 0,
                               .seed = 9000 + i };
        if (!shard_has(i) || (grid_small() && i % 8))
            continue;
        c.precision = i % 4 == 0 && c.in == QATTN_DTYPE_F32;
        for (int k = 0; k < qattn__impl_count; k++)
            if (attn_row_wanted(&qattn__impls[k]) && strcmp(qattn__impls[k].id, "ref") != 0)
                gemm_check_parts(&qattn__impls[k], &c);
    }
    ck_assert_int_eq(failures(), 0);
}
END_TEST

void check_gemm_add(Suite *s)
{
    gemm_grid();
    gemm_tiles();
    TCase *const t = tcase_create("matmul");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, matmul, 0, (int)((num_gemms + BLOCK - 1) / BLOCK));
    tcase_add_test(t, matmul_parts);
    suite_add_tcase(s, t);
}
