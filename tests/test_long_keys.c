/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Sums over many keys. With q = 0 every key weighs the same, O is the mean of V and no score has an error, so nothing
 * hides what the sums lose: a chain of n additions of like numbers loses up to n/2 roundings. And: what a caller set
 * its thread's floating point to changes no bit.
 */
#include <check.h>
#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn_run.h"
#include "core/impls.h"
#include "core/params.h"
#include "gpu.h"
#include "suites.h"
#include "support.h"
#include "tolerance.h"

enum { D = 8, HEADS = 2, MAX_KEYS = 32768, MAX_ROWS = 40, MAX_DV = 128 };

struct form { const char *name; enum op op; int64_t rows, dv; int32_t splits, precision; uint64_t flags; };
static const struct form forms[] = {
    { "decode", OP_FLASH_FORWARD, 1, D, 0, 0, 0 },
    { "decode, one split", OP_FLASH_FORWARD, 1, D, 1, 0, 0 },
    { "prefill", OP_FLASH_FORWARD, 20, D, 1, 0, 0 },
    { "gqa", OP_GQA_FORWARD, 2, D, 0, 0, 0 },
    { "invariant", OP_FLASH_FORWARD, 1, D, 0, 0, QATTN_FLAG_BATCH_INVARIANT },
    { "wide prefill", OP_FLASH_FORWARD, MAX_ROWS, MAX_DV, 1, 0, 0 },
    { "wide prefill, split", OP_FLASH_FORWARD, MAX_ROWS, MAX_DV, 0, 0, 0 },
    { "wide prefill, 3xTF32", OP_FLASH_FORWARD, MAX_ROWS, MAX_DV, 1, QATTN_PRECISION_3XTF32, 0 },
    { "prefill, 3xTF32", OP_FLASH_FORWARD, MAX_ROWS, 64, 0, QATTN_PRECISION_3XTF32, 0 },
};
enum { NUM_FORMS = sizeof forms / sizeof forms[0] };

static qattn_tensor packed(float *data, int64_t h, int64_t s, int64_t d)
{
    qattn_tensor t;
    ck_assert_int_eq(qattn_tensor_init(&t, data, QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BHSD, 1, h, s, d),
                     QATTN_OK);
    return t;
}

struct memory {
    float q[HEADS * MAX_ROWS * D], k[HEADS * MAX_KEYS * D], v[HEADS * MAX_KEYS * MAX_DV], o[HEADS * MAX_ROWS * MAX_DV];
};

/* One row of the table on q = 0; false: it does not run this. */
static bool run_row(const struct impl *row, const struct form *f, struct memory *m, int64_t keys)
{
    static struct problem p;
    char why[256];
    const qattn_tensor q = packed(m->q, HEADS, f->rows, D), k = packed(m->k, HEADS, keys, D);
    const qattn_tensor v = packed(m->v, HEADS, keys, f->dv), o = packed(m->o, HEADS, f->rows, f->dv);
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    params.num_splits = f->splits;
    params.precision = f->precision;
    params.flags = f->flags;
    ck_assert_int_eq(qattn__problem_attention(&p, f->op, &q, &k, &v, &o, &params, false), QATTN_OK);
    struct gpu_regions regions = { .count = 0 };
    int32_t status = QATTN_OK;
    gpu_add(&regions, m, sizeof *m);
    if (!attn_row_wanted(row) || !gpu_run_row(row, &p, &regions, 0xFF, &status, why, sizeof why))
        return false;
    ck_assert_int_eq(status, QATTN_OK);
    return true;
}

/* V: 0 one number a column, 1 uniform in [0.5, 1.5), 2 the same but for key 0, which is 3 e-folds likelier. */
static void check_mean(const struct impl *row, const struct form *f, struct memory *m, int64_t keys, int kind)
{
    struct rng r = { 20261129, 0 };
    const float logit = 3.0f;
    const int64_t dv = f->dv;
    const int32_t precision = gpu_precision(row->id, f->precision);
    const double product = tolerance_product(QATTN_DTYPE_F32, precision);
    for (int64_t i = 0; i < HEADS * keys * dv; i++)
        m->v[i] = kind ? 0.5f + (float)(rng_bits(&r) >> 40) * 0x1p-24f : 1.1f + 0.07f * (float)(i % dv);
    for (int64_t i = 0; i < HEADS * keys * D; i++)
        m->k[i] = 0.0f;
    for (int64_t i = 0; i < HEADS * f->rows * D; i++)
        m->q[i] = kind == 2 && i % D == 0 ? sqrtf((float)D) : 0.0f;
    for (int64_t h = 0; h < HEADS; h++)
        m->k[h * keys * D] = logit;
    if (!run_row(row, f, m, keys))
        return;
    count_run("long keys", 1);
    const double first = kind == 2 ? exp((double)logit) : 1.0;
    const double e_s = kind == 2 ? tolerance_score_of(D, logit, product, logit) : 0.0;
    for (int64_t h = 0; h < HEADS; h++)
        for (int64_t d = 0; d < dv; d++) {
            const float *const v = m->v + h * keys * dv + d;
            double mean = first * (double)v[0];
            for (int64_t j = 1; j < keys; j++)
                mean += (double)v[j * dv];
            mean /= first + (double)(keys - 1);
            for (int64_t i = 0; i < f->rows; i++) {
                const double o = (double)m->o[(h * f->rows + i) * dv + d];
                const int32_t f32 = QATTN_DTYPE_F32;
                /* numerics.md: tiles of 64 keys through tensor cores are added in fp32, n/192 roundings for n keys */
                const double tiles = precision ? (double)keys / 192 * 0x1p-24 * mean : 0;
                const double bound = tolerance_output_of(f32, f32, f32, product, e_s, mean, mean) + tiles;
                ck_assert_msg(fabs(o - mean) <= bound, "%s, %s, %ld keys, V %d: off by %g, bound %g", row->id, f->name,
                              (long)keys, kind, fabs(o - mean), bound);
            }
        }
}

/* Sums in fp64, for which the wide forms take long. */
static bool is_ref(const struct impl *row) { return strcmp(row->id, "ref") == 0; }

START_TEST(means)
{
    static const int64_t keys[] = { 1000, 4096, MAX_KEYS };
    struct memory *const m = malloc(sizeof *m);
    ck_assert_ptr_nonnull(m);
    for (int n = 0; n < 3; n++)
        for (int f = 0; f < NUM_FORMS; f++)
            for (int kind = 0; kind < 3; kind++)
                if (shard_has((n * NUM_FORMS + f) * 3 + kind) && (forms[f].dv == D || !is_ref(&qattn__impls[_i])))
                    check_mean(&qattn__impls[_i], &forms[f], m, keys[n], kind);
    free(m);
}
END_TEST

/* Subnormal V and sums that round: the same call under every rounding and, on x86, with subnormals flushed. */
START_TEST(thread_settings)
{
    static struct memory before, m;
    static const int roundings[] = { FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO };
    struct rng r = { 7, 0 };
    enum { KEYS = 300 };
    for (int64_t i = 0; i < HEADS * KEYS * D; i++) {
        m.k[i] = (float)rng_normal(&r);
        m.v[i] = (float)rng_normal(&r) * (i % 2 ? 1e-41f : 1.0f);
    }
    for (int64_t i = 0; i < HEADS * MAX_ROWS * D; i++)
        m.q[i] = (float)rng_normal(&r);
    const qattn_tensor q = packed(m.q, HEADS, MAX_ROWS, D), k = packed(m.k, HEADS, KEYS, D);
    const qattn_tensor v = packed(m.v, HEADS, KEYS, D), o = packed(m.o, HEADS, MAX_ROWS, D);
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    for (params.num_threads = 1; params.num_threads <= 3; params.num_threads += 2) {
        for (unsigned t = 0; t < 20; t++) {
            ck_assert_int_eq(fesetround(roundings[t % 4]), 0);
#if defined(__x86_64__)
            __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | (t >= 4 ? 0x8040u : 0u));
#endif
            const int32_t status = qattn_flash_forward(&q, &k, &v, &o, &params, NULL);
            const int rounding = fegetround();
#if defined(__x86_64__)
            const unsigned flushing = __builtin_ia32_stmxcsr() & 0x8040u;
            __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() & ~0x8040u);
            ck_assert_uint_eq(flushing, t >= 4 ? 0x8040u : 0u);     /* the caller's settings are back */
#endif
            fesetround(FE_TONEAREST);
            ck_assert_int_eq(status, QATTN_OK);
            ck_assert_int_eq(rounding, roundings[t % 4]);
            if (t == 0 && params.num_threads == 1)
                memcpy(before.o, m.o, sizeof m.o);
            ck_assert_msg(memcmp(before.o, m.o, sizeof m.o) == 0, "other bits, %d threads, setting %u",
                          params.num_threads, t);
        }
    }
}
END_TEST

Suite *suite_long_keys(void)
{
    Suite *s = suite_create("long_keys");
    TCase *t = tcase_create("long_keys");
    tcase_set_timeout(t, 240);
    tcase_add_loop_test(t, means, 0, qattn__impl_count);
    tcase_add_test(t, thread_settings);
    suite_add_tcase(s, t);
    return s;
}
