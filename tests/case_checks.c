/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The table of checks, and those that look at one output. */
#include "case_checks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "support.h"
#include "tolerance.h"

/* ---------------------------------------------------------------- values of the two smaller
 * operations */

void check_matmul(const struct case_run *run)
{
    const qattn_tensor *const c = &run->out->o;
    const int64_t elements = c->shape[0] * c->shape[1] * c->shape[2] * c->shape[3];
    const double work = (double)elements * (double)(run->in->c.d + 1);
    const int64_t step = work > 2e8 ? (int64_t)(work / 2e8) | 1 : 1;
    int64_t bad = 0;
    for (int64_t e = 0; e < elements;
         e += e == elements - 1 || e + step < elements ? step : elements - 1 - e) {
        const int64_t n = e % c->shape[3], m = e / c->shape[3] % c->shape[2];
        const int64_t h = e / c->shape[3] / c->shape[2] % c->shape[1],
                      b = e / c->shape[3] / c->shape[2] / c->shape[1];
        double sum;
        const double want = qattn__ref_matmul_element(run->p, b, h, m, n, &sum);
        const double got = tensor_get(c, b, h, m, n);
        if (!(fabs(got - want) <= tolerance_matmul(c->dtype, run->in->c.d, want, sum, 0)) &&
            bad++ == 0)
            note_failure("c[%lld,%lld,%lld,%lld] is %.9g, oracle %.9g", (long long)b, (long long)h,
                         (long long)m, (long long)n, got, want);
    }
}

void check_softmax(const struct case_run *run)
{
    const qattn_tensor *const y = &run->out->o, *const x = &run->in->tensors[CASE_Q];
    double *const want = malloc(((size_t)y->shape[3] + 1) * sizeof *want);
    int64_t bad = 0;
    for (int64_t n = 0; n < y->shape[0]; n++)
        for (int64_t h = 0; h < y->shape[1]; h++)
            for (int64_t i = 0; i < y->shape[2]; i++) {
                const struct seq s = seq_get(run->p, n);
                const double lse = qattn__ref_softmax_row(run->p, &s, h, i, want);
                const double got_lse = tensor_get(&run->out->lse, n, h, i, 0);
                double magnitude = 0;
                for (int64_t j = 0; j < y->shape[3]; j++)
                    magnitude = fmax(magnitude, fabs(tensor_get(x, n, h, i, j)));
                const double e_s = tolerance_score(0, magnitude);
                bool ok = isinf(lse) ? got_lse == lse
                                     : fabs(got_lse - lse) <= tolerance_lse(e_s, magnitude, lse);
                for (int64_t j = 0; j < y->shape[3]; j++) {
                    const double got = tensor_get(y, n, h, i, j);
                    ok = ok && fabs(got - want[j]) <= tolerance_probability(y->dtype, e_s, want[j]);
                }
                if (!ok && bad++ == 0)
                    note_failure("row [%lld,%lld,%lld] is off", (long long)n, (long long)h,
                                 (long long)i);
            }
    free(want);
}

/* ---------------------------------------------------------------- looking at one output */

/* Rows lo..hi of "0-3", "7" or "all". */
static void parse_rows(const char *argument, int64_t count, int64_t *lo, int64_t *hi)
{
    long long a = 0, b = count - 1;
    if (strcmp(argument, "all") != 0 && sscanf(argument, "%lld-%lld", &a, &b) == 1)
        b = a;
    *lo = a;
    *hi = b;
}

/* O (or the LSE) holds `value` in batches b0..b1, rows lo..hi. */
static void expect_value(const qattn_tensor *t, int64_t b0, int64_t b1, int64_t lo, int64_t hi,
                         double value)
{
    for (int64_t b = b0; b <= b1; b++)
        for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t s = lo; s <= hi; s++)
                for (int64_t d = 0; d < t->shape[3]; d++)
                    if (tensor_get(t, b, h, s, d) != value) {
                        note_failure("[%lld,%lld,%lld,%lld] is %.9g, must be %.9g", (long long)b,
                                     (long long)h, (long long)s, (long long)d,
                                     tensor_get(t, b, h, s, d), value);
                        return;
                    }
}

static void check_zero_rows(const struct case_run *run, const char *argument)
{
    int64_t lo, hi;
    parse_rows(argument, run->out->o.shape[2], &lo, &hi);
    expect_value(&run->out->o, 0, run->out->o.shape[0] - 1, lo, hi, 0);
}

static void check_zero_rows_batch0(const struct case_run *run, const char *argument)
{
    int64_t lo, hi;
    parse_rows(argument, run->out->o.shape[2], &lo, &hi);
    expect_value(&run->out->o, 0, 0, lo, hi, 0);
}

static void check_lse_rows(const struct case_run *run, const char *argument)
{
    int64_t lo, hi;
    parse_rows(argument, run->out->o.shape[2], &lo, &hi);
    expect_value(&run->out->lse, 0, run->out->o.shape[0] - 1, lo, hi, (double)-INFINITY);
}

static void check_zero_batches(const struct case_run *run, const char *argument)
{
    int64_t lo, hi;
    parse_rows(argument, run->out->o.shape[0], &lo, &hi);
    expect_value(&run->out->o, lo, hi, 0, run->out->o.shape[2] - 1, 0);
}

static void check_lse_batches(const struct case_run *run, const char *argument)
{
    int64_t lo, hi;
    parse_rows(argument, run->out->o.shape[0], &lo, &hi);
    expect_value(&run->out->lse, lo, hi, 0, run->out->o.shape[2] - 1, (double)-INFINITY);
}

static void check_out_equals(const struct case_run *run, const char *argument)
{
    expect_value(&run->out->o, 0, run->out->o.shape[0] - 1, 0, run->out->o.shape[2] - 1,
                 strtod(argument, NULL));
}

static void check_finite(const struct case_run *run, const char *argument)
{
    const qattn_tensor *const o = &run->out->o;
    (void)argument;
    for (int64_t b = 0; b < o->shape[0]; b++)
        for (int64_t h = 0; h < o->shape[1]; h++)
            for (int64_t s = 0; s < o->shape[2]; s++)
                for (int64_t d = 0; d < o->shape[3]; d++)
                    if (!isfinite(tensor_get(o, b, h, s, d))) {
                        note_failure("O[%lld,%lld,%lld,%lld] is not finite", (long long)b,
                                     (long long)h, (long long)s, (long long)d);
                        return;
                    }
}

static void check_lse_close(const struct case_run *run, const char *argument)
{
    const qattn_tensor *const lse = &run->out->lse;
    const double want = strtod(argument, NULL);
    for (int64_t h = 0; h < lse->shape[1]; h++)
        for (int64_t s = 0; s < lse->shape[2]; s++)
            if (!(fabs(tensor_get(lse, 0, h, s, 0) - want) <= 0.05)) /* the file gives one digit */
                note_failure("LSE[0,%lld,%lld] is %.9g, must be %.9g", (long long)h, (long long)s,
                             tensor_get(lse, 0, h, s, 0), want);
}

/* Every row of O has the values of V's row `argument` of its head. */
static void check_out_equals_v_row(const struct case_run *run, const char *argument)
{
    const qattn_tensor *const o = &run->out->o, *const v = &run->in->tensors[CASE_V];
    const int64_t j = strtoll(argument, NULL, 10), group = o->shape[1] / v->shape[1];
    for (int64_t h = 0; h < o->shape[1]; h++)
        for (int64_t s = 0; s < o->shape[2]; s++)
            for (int64_t d = 0; d < o->shape[3]; d++)
                if (tensor_get(o, 0, h, s, d) != tensor_get(v, 0, h / group, j, d)) {
                    note_failure("O[0,%lld,%lld,%lld] is not V's row %lld", (long long)h,
                                 (long long)s, (long long)d, (long long)j);
                    return;
                }
}

static void check_out_equals_mean_v(const struct case_run *run, const char *argument)
{
    const qattn_tensor *const o = &run->out->o, *const v = &run->in->tensors[CASE_V];
    const int64_t group = o->shape[1] / v->shape[1];
    (void)argument;
    for (int64_t h = 0; h < o->shape[1]; h++)
        for (int64_t d = 0; d < o->shape[3]; d++) {
            double sum = 0, sum_abs = 0;
            for (int64_t j = 0; j < v->shape[2]; j++) {
                sum += tensor_get(v, 0, h / group, j, d);
                sum_abs += fabs(tensor_get(v, 0, h / group, j, d));
            }
            const double mean = sum / (double)v->shape[2], mean_abs = sum_abs / (double)v->shape[2];
            const double bound = tolerance_output(o->dtype, v->dtype, o->dtype, 0, mean, mean_abs);
            if (!(fabs(tensor_get(o, 0, h, 0, d) - mean) <= bound))
                note_failure("O[0,%lld,0,%lld] is %.9g, the mean of V %.9g", (long long)h,
                             (long long)d, tensor_get(o, 0, h, 0, d), mean);
        }
}

/* ---------------------------------------------------------------- the table */

enum when { ALWAYS, BIG_ONLY, NEVER };

/* check NULL: every run does it anyway (the oracle, fences and poison, the status). */
static const struct {
    const char *name;
    void (*check)(const struct case_run *, const char *);
    enum when when;
    const char *why;
} checks[] = {
    { "matches_ref", NULL, ALWAYS, NULL },
    { "matches_ref_sampled_rows", NULL, ALWAYS, NULL },
    { "matches_ref_sampled_batches", NULL, ALWAYS, NULL },
    { "matches_ref_rows_not", NULL, ALWAYS, NULL },
    { "lse_matches_ref", NULL, ALWAYS, NULL },
    { "no_oob", NULL, ALWAYS, NULL },
    { "no_fault", NULL, ALWAYS, NULL },
    { "no_process_abort", NULL, ALWAYS, NULL },
    { "guard_bytes_intact", NULL, ALWAYS, NULL },
    { "success_no_write", NULL, ALWAYS, NULL },
    { "error_surfaced", NULL, ALWAYS, NULL },
    { "status_error", NULL, ALWAYS, NULL },
    { "finite", check_finite, ALWAYS, NULL },
    { "zero_rows", check_zero_rows, ALWAYS, NULL },
    { "zero_rows_batch0", check_zero_rows_batch0, ALWAYS, NULL },
    { "zero_batches", check_zero_batches, ALWAYS, NULL },
    { "lse_neg_inf_rows", check_lse_rows, ALWAYS, NULL },
    { "lse_neg_inf_batches", check_lse_batches, ALWAYS, NULL },
    { "lse_close", check_lse_close, ALWAYS, NULL },
    { "out_equals", check_out_equals, ALWAYS, NULL },
    { "out_equals_v_row", check_out_equals_v_row, ALWAYS, NULL },
    { "out_equals_mean_v", check_out_equals_mean_v, ALWAYS, NULL },
    { "bitwise_repeat", check_bitwise_repeat, ALWAYS, NULL },
    { "layout_invariant", check_layout_invariant, ALWAYS, NULL },
    { "padding_poison_invariant", check_poison_invariant, ALWAYS, NULL },
    { "batch_slice_equal", check_batch_slice_equal, ALWAYS, NULL },
    { "batch_slice_close_2ulp", check_batch_slice_close, ALWAYS, NULL },
    { "equals_same_call_with_causal_flag", check_causal_flag, ALWAYS, NULL },
    { "equals_same_call_without_mask", check_without_mask, ALWAYS, NULL },
    { "equals_repeated_kv_heads", check_repeated_heads, ALWAYS, NULL },
    { "device_memory_flat", check_memory_flat, ALWAYS, NULL },
    { "time_not_above_unmasked", check_time_unmasked, BIG_ONLY, "time is taken in check-big" },
    { "time_below_full", check_time_below_full, BIG_ONLY, "time is taken in check-big" },
    { "time_below_D40", check_time_below_d40, BIG_ONLY, "time is taken in check-big" },
    { "cpu_scaling_at_least", check_scaling, BIG_ONLY, "time is taken in check-big" },
    { "bandwidth_at_least", NULL, NEVER, "the benches measure bandwidth" },
    { "current_device_restored", NULL, NEVER, "CUDA: the suite cuda_calls" },
    { "synccheck_clean", NULL, NEVER, "CUDA: make check-sanitizer" },
    { "capture_ok", NULL, NEVER, "CUDA: the suite cuda_calls" },
    { "graph_replay_equals_eager", NULL, NEVER, "CUDA: the suite cuda_calls" },
};

static void check_one(const struct case_run *run, const struct case_check *asked)
{
    char text[96];
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        if (strcmp(checks[i].name, asked->name) != 0)
            continue;
        if (checks[i].when == NEVER || (checks[i].when == BIG_ONLY && (!run->big || gpu_wanted()))) {
            snprintf(text, sizeof text, "%s: %s", asked->name,
                     checks[i].when == BIG_ONLY && gpu_wanted() ? "the benches take the time"
                                                                : checks[i].why);
            count_skipped("cases checks", text, 1);
            return;
        }
        if (checks[i].check)
            checks[i].check(run, asked->argument);
        count_run("cases checks", 1);
        return;
    }
    note_failure("unknown check %s", asked->name);
}

void check_named(const struct case_run *run)
{
    for (int i = 0; i < run->in->c.num_checks; i++)
        check_one(run, &run->in->c.checks[i]);
}
