/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * What the CPU kernels are made of, for every instruction set of this machine: exponential and tanh against
 * libm in double, conversions over all their values against core/convert.h, the matrix product at the edges of its
 * blocks, the row softmax beyond its chunk.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/convert.h"
#include "core/impls.h"
#include "core/params.h"
#include "cpu/cpuinfo.h"
#include "ref/ref.h"
#include "simd_probe.h"
#include "suites.h"
#include "support.h"
#include "tolerance.h"

enum { MAX_LANES = 16, BATCH = 4096 };

static int probes(const struct simd_probe *out[3])
{
    int n = 0;
#if defined(__x86_64__)
    const struct cpu_features f = qattn__cpu_features();
    if (f.avx512)
        out[n++] = &simd_probe_avx512;
    if (f.avx2)
        out[n++] = &simd_probe_avx2;
#endif
    out[n++] = &simd_probe_generic;
    return n;
}

#define EACH_PROBE(p) \
    const struct simd_probe *probe_list_[3]; \
    const int probe_count_ = probes(probe_list_); \
    for (int probe_ = 0; probe_ < probe_count_; probe_++) \
        for (const struct simd_probe *p = probe_list_[probe_]; p; p = NULL)

/* ck_assert writes a mark for every call; these loops make millions. */
#define EXPECT(condition, ...) \
    do { if (!(condition)) ck_abort_msg(__VA_ARGS__); } while (0)

static void fill_uniform(float *x, int64_t n, uint64_t seed)
{
    struct rng r = { seed, 0 };
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(2.0 * rng_unit(&r) - 1.0);
}

/* ---------------------------------------------------------------- functions */

typedef void (*array_function)(const float *x, float *y, int64_t n);

/* The largest relative error of f over x = first, first + step, .. (count of them) against exact(x); *where: its x. */
static double worst_error(array_function f, double (*exact)(double), double first, double step, int64_t count,
                          double *where)
{
    static float x[BATCH], y[BATCH];
    double worst = 0.0;
    for (int64_t i = 0; i < count; i += BATCH) {
        for (int64_t j = 0; j < BATCH; j++)
            x[j] = (float)(first + step * (double)(i + j < count ? i + j : count - 1));
        f(x, y, BATCH);
        for (int64_t j = 0; j < BATCH; j++) {
            const double want = exact((double)x[j]);
            const double error = want == 0.0 ? fabs((double)y[j]) : fabs((double)y[j] - want) / fabs(want);
            if (!(error <= worst)) {
                worst = error;
                *where = (double)x[j];
            }
        }
    }
    return worst;
}

START_TEST(exp2_error)
{
    EACH_PROBE(p) {
        double where = 0.0;
        double worst = worst_error(p->exp2, exp2, -126.0, 0x1p-15, INT64_C(126) << 15, &where);
        EXPECT(worst < 1.5e-7, "%s: 2^%.9g is off by %.3g of itself", p->id, where, worst);
        report_ratio(p->id, worst / 1.5e-7);
        worst = worst_error(p->exp2, exp2, 0.0, 0x1p-12, INT64_C(127) << 12, &where);
        EXPECT(worst < 1.5e-7, "%s: 2^%.9g is off by %.3g of itself", p->id, where, worst);
        worst = worst_error(p->exp2, exp2, -0x1p-20, 0x1p-40, 1 << 20, &where);      /* just below 0 */
        EXPECT(worst < 1.5e-7, "%s: 2^%.9g is off by %.3g of itself", p->id, where, worst);
    }
    count_run("vector functions", 3);
}
END_TEST

START_TEST(exp2_edges)
{
    static const float x[16] = { 0.0f, -0.0f, -126.0f, -126.00001f, -127.0f, -150.0f, -1e6f, -3.4028235e38f,
                                 -INFINITY, NAN, -1.0f, -2.0f, 1.0f, -0x1p-126f, -0x1p-149f, -125.0f };
    static const float want[16] = { 1.0f, 1.0f, 0x1p-126f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
                                    0.0f, NAN, 0.5f, 0.25f, 2.0f, 1.0f, 1.0f, 0x1p-125f };
    float y[16];
    EACH_PROBE(p) {
        p->exp2(x, y, 16);
        for (int i = 0; i < 16; i++)
            EXPECT(isnan(want[i]) ? isnan(y[i]) : fabsf(y[i] - want[i]) <= 1.5e-7f * want[i],
                          "%s: 2^%g is %.9g, not %.9g", p->id, (double)x[i], (double)y[i], (double)want[i]);
        EXPECT(y[0] == 1.0f && y[1] == 1.0f, "%s: 2^0 is not exactly 1", p->id);
    }
}
END_TEST

/* The product with log2(e) adds |x| 2^-24 to the error of 2^x, its constant's rounding half as much again. */
START_TEST(exp_error)
{
    EACH_PROBE(p) {
        for (int segment = 0; segment < 87; segment++) {
            double where = 0.0;
            const double worst = worst_error(p->exp, exp, -segment - 1.0, 0x1p-12, 1 << 12, &where);
            const double bound = 1.5e-7 + 1.5 * (segment + 1.0) * 0x1p-24;
            EXPECT(worst < bound, "%s: e^%.9g is off by %.3g of itself", p->id, where, worst);
        }
    }
}
END_TEST

START_TEST(tanh_error)
{
    EACH_PROBE(p) {
        double where = 0.0;
        double worst = worst_error(p->tanh, tanh, -12.0, 0x1p-14, INT64_C(24) << 14, &where);
        EXPECT(worst < 4e-7, "%s: tanh(%.9g) is off by %.3g of itself", p->id, where, worst);
        worst = worst_error(p->tanh, tanh, 1e-30, 1e-33, 1 << 14, &where);
        EXPECT(worst < 4e-7, "%s: tanh(%.9g) is off by %.3g of itself", p->id, where, worst);
        const float x[16] = { 0.0f, -0.0f, INFINITY, -INFINITY, NAN, 50.0f, -50.0f, 3e38f };
        float y[16];
        p->tanh(x, y, 16);
        ck_assert(y[0] == 0.0f && y[1] == 0.0f && y[2] == 1.0f && y[3] == -1.0f && isnan(y[4]));
        ck_assert(y[5] == 1.0f && y[6] == -1.0f && y[7] == 1.0f);
    }
}
END_TEST

/* ---------------------------------------------------------------- conversions */

static bool same_float(float a, float b)
{
    return isnan(a) ? isnan(b) : qattn__f32_bits(a) == qattn__f32_bits(b);
}

/* All values of a type, loaded whole, strided and with a tail. */
static void check_loads(const struct simd_probe *p, int32_t dtype)
{
    const int size = format_size(dtype);
    const int64_t n = INT64_C(1) << 8 * size;
    unsigned char *const x = malloc((size_t)(3 * n * size));
    float *const y = malloc((size_t)(n + MAX_LANES) * sizeof *y);
    for (int stride = 1; stride <= 3; stride++) {
        for (int64_t i = 0; i < n; i++)
            for (int byte = 0; byte < size; byte++)
                x[(i * stride * size) + byte] = (unsigned char)(i >> 8 * byte);
        memset(y, 0x55, (size_t)(n + MAX_LANES) * sizeof *y);
        if (stride == 1)
            p->load(dtype, x, y, n);
        else
            p->load_strided(dtype, x, stride, y, n - 1);
        for (int64_t i = 0; i < n - (stride > 1); i++) {
            const float want = qattn__load(x + i * stride * size, dtype);
            EXPECT(same_float(y[i], want), "%s: %s 0x%" PRIx64 " is %.9g, not %.9g", p->id, format_name(dtype), i,
                          (double)y[i], (double)want);
        }
    }
    free(x);
    free(y);
}

START_TEST(loads_every_value)
{
    static const int32_t dtypes[] = { QATTN_DTYPE_F16, QATTN_DTYPE_BF16, QATTN_DTYPE_E4M3FN, QATTN_DTYPE_E5M2,
                                      QATTN_DTYPE_I8 };
    EACH_PROBE(p)
        for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
            check_loads(p, dtypes[i]);
}
END_TEST

/* Every 16-bit value as f32, its neighbours, and the middle between it and the next: all the cases of rounding. */
static int64_t rounding_inputs(int32_t dtype, float *x)
{
    int64_t n = 0;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        const uint16_t h[2] = { (uint16_t)bits }, next[2] = { (uint16_t)(bits + 1) };
        const float value = qattn__load(h, dtype), after = qattn__load(next, dtype);
        const float middle = (float)(0.5 * ((double)value + (double)after));
        x[n++] = value;
        x[n++] = nextafterf(value, INFINITY);
        x[n++] = nextafterf(value, -INFINITY);
        x[n++] = middle;
        x[n++] = nextafterf(middle, INFINITY);
        x[n++] = nextafterf(middle, -INFINITY);
    }
    return n;
}

START_TEST(stores_round_to_nearest_even)
{
    static const int32_t dtypes[] = { QATTN_DTYPE_F16, QATTN_DTYPE_BF16 };
    float *const x = malloc((size_t)(7 * 0x10000) * sizeof *x);
    uint16_t *const y = malloc((size_t)(7 * 0x10000) * sizeof *y);
    uint16_t *const strided = malloc((size_t)(3 * 7 * 0x10000) * sizeof *strided);
    EACH_PROBE(p) {
        for (int t = 0; t < 2; t++) {
            const int64_t n = rounding_inputs(dtypes[t], x);
            p->store(dtypes[t], x, y, n);
            p->store_strided(dtypes[t], x, strided, 3, n);
            for (int64_t i = 0; i < n; i++) {
                uint16_t want[2];
                qattn__store(want, dtypes[t], x[i]);
                const bool same = isnan(x[i]) ? isnan(qattn__load(&y[i], dtypes[t])) : y[i] == want[0];
                EXPECT(same, "%s: %.9g to %s is 0x%x, not 0x%x", p->id, (double)x[i], format_name(dtypes[t]), y[i],
                              want[0]);
                EXPECT(y[i] == strided[3 * i], "%s: strides change the bits of %.9g", p->id, (double)x[i]);
            }
        }
    }
    free(x);
    free(y);
    free(strided);
}
END_TEST

START_TEST(lanes)
{
    EACH_PROBE(p) {
        float square[MAX_LANES * MAX_LANES], x[MAX_LANES];
        const int n = p->lanes;
        for (int i = 0; i < n * n; i++)
            square[i] = (float)i;
        p->transpose(square);
        for (int i = 0; i < n * n; i++)
            EXPECT(square[i] == (float)(i % n * n + i / n), "%s: transpose [%d]", p->id, i);
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < n; j++)
                x[j] = j == i ? 5.0f : -(float)j;
            ck_assert(p->max(x) == 5.0f);
            ck_assert(p->sum(x) == 5.0f + (float)i - (float)(n * (n - 1) / 2));
        }
        for (int lo = -2; lo <= n + 2; lo++)
            for (int hi = -2; hi <= n + 2; hi++)
                for (int i = 0; i < n; i++)
                    EXPECT((p->range(lo, hi) >> i & 1) == (lo <= i && i < hi), "%s: range %d %d", p->id, lo, hi);
        ck_assert(p->range(INT64_MIN, INT64_MAX) == (uint32_t)((UINT64_C(1) << n) - 1));
    }
}
END_TEST

/* ---------------------------------------------------------------- matrix product */

enum { GEMM_M = 200, GEMM_N = 150, GEMM_K = 400 };
static float gemm_a[GEMM_M * GEMM_K], gemm_b[GEMM_K * GEMM_N], gemm_c[GEMM_M * GEMM_N], gemm_d[GEMM_N];

static void check_product(const struct simd_probe *p, int64_t m, int64_t n, int64_t k)
{
    const struct probe_gemm g = { .a = gemm_a, .b = gemm_b, .c = gemm_c, .m = m, .n = n, .k = k, .alpha = 0.75f };
    memset(gemm_c, 0xff, sizeof gemm_c);
    p->gemm(&g);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = 0.0, sum_abs = 0.0;
            for (int64_t l = 0; l < k; l++) {
                const double term = 0.75 * (double)gemm_a[i * k + l] * (double)gemm_b[l * n + j];
                sum += term;
                sum_abs += fabs(term);
            }
            const double bound = tolerance_matmul(QATTN_DTYPE_F32, k, sum, sum_abs, 0.0);
            EXPECT(fabs((double)gemm_c[i * n + j] - sum) <= bound, "%s: %" PRId64 "x%" PRId64 "x%" PRId64
                          " [%" PRId64 "][%" PRId64 "] is %.9g, not %.9g", p->id, m, n, k, i, j,
                          (double)gemm_c[i * n + j], sum);
        }
    }
    for (int64_t i = m * n; i < GEMM_M * GEMM_N; i++)
        EXPECT(isnan(gemm_c[i]), "%s: wrote behind C", p->id);
}

START_TEST(gemm_edges)
{
    fill_uniform(gemm_a, GEMM_M * GEMM_K, 1);
    fill_uniform(gemm_b, GEMM_K * GEMM_N, 2);
    int64_t n = 0;
    EACH_PROBE(p) {
        static const int64_t sizes_k[] = { 1, 2, 17, 127, 128, 129, 256, 257, 400 };
        for (int64_t m = 1; m <= 2 * p->tile_rows + 1; m++)
            for (size_t k = 0; k < sizeof sizes_k / sizeof *sizes_k; k++, n++)
                check_product(p, m, p->tile_width + m % 3 - 1, sizes_k[k]);
        for (int64_t width = 1; width <= GEMM_N; width += width < 2 * p->lanes ? 1 : p->lanes - 1, n++)
            check_product(p, 7, width, 130);
        check_product(p, 192, 33, 31);
        check_product(p, 193, 33, 31);
        check_product(p, 5, 3, 0);
        n += 3;
    }
    count_run("gemm edges", n);
}
END_TEST

/* A careful product of same-signed terms keeps to the contract's 2^-20 of its sum at any K; constants round one way. */
START_TEST(gemm_careful_long)
{
    enum { LONG_K = 65536, WIDTH = 19 };
    static float ones[7 * LONG_K], columns[LONG_K * WIDTH], c[7 * WIDTH];
    for (int64_t i = 0; i < 7 * LONG_K; i++)
        ones[i] = 1.0f;
    for (int64_t i = 0; i < LONG_K * WIDTH; i++)
        columns[i] = 1.1f + 0.07f * (float)(i % WIDTH);
    EACH_PROBE(p) {
        for (int64_t m = 1; m <= 7; m += 3) {
            for (int64_t k = 64; k <= LONG_K; k *= 4) {
                const struct probe_gemm g = { .a = ones, .b = columns, .c = c, .m = m, .n = WIDTH, .k = k,
                                              .alpha = 1.0f, .careful = true };
                p->gemm(&g);
                for (int64_t i = 0; i < m * WIDTH; i++) {
                    const double sum = (double)k * (double)columns[i % WIDTH];
                    EXPECT(fabs((double)c[i] - sum) <= 0x1p-20 * sum, "%s: m %" PRId64 " k %" PRId64
                           " is %.9g, not %.9g", p->id, m, k, (double)c[i], sum);
                }
            }
        }
    }
}
END_TEST

/* A row alone has the bits it has among others, and a column too. */
START_TEST(gemm_rows_stand_alone)
{
    fill_uniform(gemm_a, GEMM_M * GEMM_K, 3);
    fill_uniform(gemm_b, GEMM_K * GEMM_N, 4);
    EACH_PROBE(p) for (int careful = 0; careful < 2; careful++) {
        struct probe_gemm g = { .a = gemm_a, .b = gemm_b, .c = gemm_c, .m = GEMM_M, .n = GEMM_N, .k = GEMM_K,
                                .alpha = 1.0f, .careful = careful != 0 };
        p->gemm(&g);
        for (int64_t i = 0; i < GEMM_M; i += 7) {
            g.a = gemm_a + i * GEMM_K;
            g.c = gemm_d;
            g.m = 1;
            p->gemm(&g);
            EXPECT(memcmp(gemm_d, gemm_c + i * GEMM_N, sizeof gemm_d) == 0, "%s: row %" PRId64, p->id, i);
        }
    }
}
END_TEST

START_TEST(gemm_drops_nonfinite)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    static float zeroed[GEMM_M * GEMM_N];
    fill_uniform(gemm_a, GEMM_M * GEMM_K, 5);
    fill_uniform(gemm_b, GEMM_K * GEMM_N, 6);
    EACH_PROBE(p) {
        struct probe_gemm g = { .a = gemm_a, .b = gemm_b, .c = zeroed, .m = 9, .n = GEMM_N, .k = 150, .alpha = 1.0f };
        for (int i = 0; i < 40; i++)
            gemm_b[i * 151] = 0.0f;
        p->gemm(&g);
        for (int i = 0; i < 40; i++)
            gemm_b[i * 151] = bad[i % 3];
        g.c = gemm_c;
        g.finite_b = true;
        p->gemm(&g);
        EXPECT(memcmp(zeroed, gemm_c, sizeof(float) * 9 * GEMM_N) == 0, "%s", p->id);
        g.finite_b = false;
        p->gemm(&g);
        EXPECT(isnan(gemm_c[0]), "%s: the flag is what drops them", p->id);
    }
}
END_TEST

/* ---------------------------------------------------------------- long softmax rows */

enum { LONG_KEYS = 50000, LONG_ROWS = 3 };

static const struct impl *find_row(const char *id)
{
    for (int i = 0; i < qattn__impl_count; i++)
        if (strcmp(qattn__impls[i].id, id) == 0)
            return &qattn__impls[i];
    return NULL;
}

static qattn_tensor rows_tensor(void *data, int32_t dtype, int64_t keys)
{
    qattn_tensor t;
    qattn_tensor_init(&t, data, dtype, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BHSD, 1, 1, LONG_ROWS, keys);
    return t;
}

/* Rows of several chunks, with a window, a sink and hidden keys; in place too. */
static void check_long_rows(const struct impl *row, int32_t dtype, bool in_place)
{
    const int64_t count = (int64_t)LONG_ROWS * LONG_KEYS;
    const int size = format_size(dtype);
    char *const x = malloc((size_t)(count * size)), *const y = in_place ? x : malloc((size_t)(count * size));
    double *const want = malloc((size_t)count * sizeof *want);
    unsigned char *const keep = malloc((size_t)count);
    float lse[LONG_ROWS];
    double want_lse[LONG_ROWS];
    const float sink = 9.0f;
    struct rng r = { 11, 0 };
    for (int64_t i = 0; i < count; i++) {
        qattn__store(x + i * size, dtype, (float)(3.0 * rng_normal(&r)));
        keep[i] = rng_below(&r, 9) != 0;
    }
    const qattn_tensor tx = rows_tensor(x, dtype, LONG_KEYS), ty = rows_tensor(y, dtype, LONG_KEYS);
    qattn_softmax_params params = QATTN_SOFTMAX_PARAMS_INIT;
    params.lse = rows_tensor(lse, QATTN_DTYPE_F32, 1);
    params.keep = rows_tensor(keep, QATTN_DTYPE_U8, LONG_KEYS);
    params.sinks = &sink;
    params.mask = QATTN_MASK_CAUSAL | QATTN_MASK_WINDOW;
    params.window_left = 45001;
    params.window_right = -1;
    struct problem p;
    ck_assert_int_eq(qattn__problem_softmax(&p, &tx, &ty, &params, false, false), QATTN_OK);
    const struct seq s = seq_get(&p, 0);
    for (int64_t i = 0; i < LONG_ROWS; i++)
        want_lse[i] = qattn__ref_softmax_row(&p, &s, 0, i, want + i * LONG_KEYS);

    const size_t bytes = row->workspace(&p);
    struct scratch scratch = scratch_new(bytes, 0xff);
    p.workspace = (char *)scratch.data;
    p.workspace_bytes = bytes;
    ck_assert_int_eq(row->run(&p, NULL), QATTN_OK);
    ck_assert(scratch_intact(&scratch));
    const double e_s = tolerance_score(0, 16.0);
    for (int64_t i = 0; i < count; i++) {
        const double got = (double)qattn__load(y + i * size, dtype);
        EXPECT(fabs(got - want[i]) <= tolerance_probability(dtype, e_s, want[i]),
                      "%s %s: y[%" PRId64 "] is %.9g, not %.9g", row->id, format_name(dtype), i, got, want[i]);
    }
    for (int64_t i = 0; i < LONG_ROWS; i++)
        ck_assert_double_le(fabs((double)lse[i] - want_lse[i]), tolerance_lse(e_s, 16.0, want_lse[i]));
    scratch_free(&scratch);
    free(x);
    if (!in_place)
        free(y);
    free(want);
    free(keep);
}

START_TEST(softmax_long_rows)
{
    int64_t n = 0;
    EACH_PROBE(p) {
        check_long_rows(find_row(p->id), QATTN_DTYPE_F32, false);
        check_long_rows(find_row(p->id), QATTN_DTYPE_F32, true);
        check_long_rows(find_row(p->id), QATTN_DTYPE_BF16, true);
        n += 3;
    }
    count_run("long softmax rows", n);
}
END_TEST

Suite *suite_cpu_kernels(void)
{
    Suite *suite = suite_create("cpu_kernels");
    TCase *vectors = tcase_create("vectors"), *kernels = tcase_create("kernels");
    tcase_set_timeout(vectors, 120);
    tcase_add_test(vectors, exp2_error);
    tcase_add_test(vectors, exp2_edges);
    tcase_add_test(vectors, exp_error);
    tcase_add_test(vectors, tanh_error);
    tcase_add_test(vectors, loads_every_value);
    tcase_add_test(vectors, stores_round_to_nearest_even);
    tcase_add_test(vectors, lanes);
    tcase_set_timeout(kernels, 120);
    tcase_add_test(kernels, gemm_edges);
    tcase_add_test(kernels, gemm_careful_long);
    tcase_add_test(kernels, gemm_rows_stand_alone);
    tcase_add_test(kernels, gemm_drops_nonfinite);
    tcase_add_test(kernels, softmax_long_rows);
    suite_add_tcase(suite, vectors);
    suite_add_tcase(suite, kernels);
    return suite;
}
