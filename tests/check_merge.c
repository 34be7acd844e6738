/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* merge on every row of the table, against fp64 sums over the logical values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_run.h"
#include "check_gemm.h"
#include "core/params.h"
#include "gpu.h"
#include "tolerance.h"

struct merge_case {
    int32_t in, out;
    int64_t parts, b, h, s, dv, seed;
    bool base2, no_lse, in_place, random_layout;
    bool bad;                    /* one part of a row holds NaN and infinities, its weight next to nothing or nothing */
};

static bool merge_is_bad(const struct merge_case *c, int64_t part, uint64_t row)
{
    return c->bad && row % 3 != 1 && part == (int64_t)(row % (uint64_t)c->parts);
}

/* The LSE of a part: now and then nothing was seen, and its o is NaN then. */
static double merge_lse(const struct merge_case *c, int64_t part, uint64_t row)
{
    const uint64_t key = hash64(hash64((uint64_t)c->seed + 77, (uint64_t)part), row);
    const double scale = row % 3 == 0 ? 30 : 2;
    if (merge_is_bad(c, part, row) && row % 11 != 10)
        return -(double)(row % 5) * 60 - (row % 2 ? 0 : 600);    /* e^-87 is fp32's last normal number, e^-745 fp64's */
    return key % 5 == 0 || row % 11 == 10 ? -INFINITY : (float)(scale * *normal_row(QATTN_DTYPE_F32, key));
}

static const double *merge_o(const struct merge_case *c, int64_t part, uint64_t row)
{
    static double bad[NORMAL_MAX_ROW];
    if (merge_is_bad(c, part, row)) {
        for (int64_t d = 0; d < c->dv; d++)
            bad[d] = d % 4 == 0 ? (double)INFINITY : d % 4 == 1 ? -(double)INFINITY : d % 4 == 2 ? (double)NAN : 0.5;
        return bad;
    }
    return normal_row(c->in, hash64(hash64((uint64_t)c->seed, (uint64_t)part), row));
}

static uint64_t merge_row(const struct merge_case *c, int64_t b, int64_t h, int64_t s)
{
    return (uint64_t)((b * c->h + h) * c->s + s);
}

struct merge_build { struct box o_parts[64], lse_parts[64], o, lse; qattn_tensor o_tensors[64], lse_tensors[64]; };

static void merge_fill(const struct merge_case *c, struct merge_build *m)
{
    const int64_t o[4] = { c->b, c->h, c->s, c->dv }, lse[4] = { c->b, c->h, c->s, 1 };
    struct rng r = { (uint64_t)c->seed, 0 };
    for (int64_t i = 0; i < c->parts + 1; i++) {
        const bool result = i == c->parts;
        const struct layout lo = c->random_layout ? layout_random(&r) : layout_packed(1 + i % 3);
        const struct layout ll = c->random_layout ? layout_random(&r) : layout_packed(QATTN_LAYOUT_BHSD);
        struct box *po = result ? &m->o : &m->o_parts[i], *pl = result ? &m->lse : &m->lse_parts[i];
        *po = box_new(result ? c->out : c->in, o, &lo, result ? POISON_OUTPUT : POISON_INPUT);
        *pl = box_new(QATTN_DTYPE_F32, lse, &ll, result ? POISON_OUTPUT : POISON_INPUT);
        for (int64_t b = 0; b < c->b && !result; b++)
            for (int64_t h = 0; h < c->h; h++)
                for (int64_t s = 0; s < c->s; s++) {
                    const uint64_t row = merge_row(c, b, h, s);
                    const double l = merge_lse(c, i, row), *values = merge_o(c, i, row);
                    box_set(pl, b, h, s, 0, c->base2 ? l / log(2.0) : l);
                    for (int64_t d = 0; d < c->dv; d++)
                        box_set(po, b, h, s, d, l == -INFINITY ? (double)NAN : values[d]);
                }
        box_snapshot(po);
        box_snapshot(pl);
        if (!result) {
            m->o_tensors[i] = po->t;
            m->lse_tensors[i] = pl->t;
        }
    }
}

static void merge_compare(const char *id, const struct merge_case *c, struct merge_build *m,
                          struct box *o, struct box *lse)
{
    double worst = 0;
    for (int64_t b = 0; b < c->b; b++)
        for (int64_t h = 0; h < c->h; h++)
            for (int64_t s = 0; s < c->s; s++) {
                const uint64_t row = merge_row(c, b, h, s);
                double top = -INFINITY, sum = 0, magnitude = 0, merged[NORMAL_MAX_ROW] = { 0 },
                       size[NORMAL_MAX_ROW] = { 0 };
                for (int64_t i = 0; i < c->parts; i++) {
                    const double l = merge_lse(c, i, row);
                    top = fmax(top, l);
                    if (l > -INFINITY)
                        magnitude = fmax(magnitude, fabs(l));
                }
                for (int64_t i = 0; i < c->parts && top > -INFINITY; i++) {
                    const double w = exp(merge_lse(c, i, row) - top), *part = merge_o(c, i, row);
                    sum += w;
                    for (int64_t d = 0; d < c->dv && merge_lse(c, i, row) > -INFINITY; d++) {
                        merged[d] += isfinite(part[d]) ? w * part[d] : (double)NAN;
                        size[d] += w * fabs(part[d]);
                    }
                }
                for (int64_t d = 0; d < c->dv; d++) {
                    const double want = sum > 0 ? merged[d] / sum : 0, got = box_get(o, b, h, s, d);
                    const double ratio = isnan(want) ? (isfinite(got) ? INFINITY : 0)    /* which one is not promised */
                                                     : fabs(got - want) / tolerance_merge(c->out, magnitude, want,
                                                                                          sum > 0 ? size[d] / sum : 0);
                    if (!(ratio <= 1))
                        note_failure("o b%lld h%lld s%lld d%lld is %.9g, want %.9g (%.3g x the bound)", (long long)b,
                                     (long long)h, (long long)s, (long long)d, got, want, ratio);
                    worst = fmax(worst, ratio);
                    box_expect_written(o, b, h, s, d);
                }
                if (c->no_lse)
                    continue;
                const double want = sum > 0 ? top + log(sum) : -INFINITY;
                const double got = box_get(lse, b, h, s, 0) * (c->base2 ? log(2.0) : 1);
                if (want == -INFINITY
                        ? got != want
                        : !(fabs(got - want) <=
                            tolerance_lse(tolerance_score(0, magnitude), magnitude, want)))
                    note_failure("lse b%lld h%lld s%lld is %.9g, want %.9g", (long long)b,
                                 (long long)h, (long long)s, got, want);
                box_expect_written(lse, b, h, s, 0);
            }
    if (!box_intact(o) || !box_intact(lse))
        note_failure("bytes outside the result were changed");
    for (int64_t i = 0; i < c->parts; i++)
        if ((&m->o_parts[i] != o && !box_intact(&m->o_parts[i])) ||
            (&m->lse_parts[i] != lse && !box_intact(&m->lse_parts[i])))
            note_failure("part %lld was changed", (long long)i);
    char key[96];
    snprintf(key, sizeof key, "%s %s>%s merge", id, format_name(c->in), format_name(c->out));
    report_ratio(key, worst);
}

static void merge_check_row(const struct impl *row, const struct merge_case *c,
                            struct merge_build *m, const char *text)
{
    static struct problem p;
    char why[192], label[96];
    struct box *const o = c->in_place ? &m->o_parts[0] : &m->o, *const lse = c->in_place ? &m->lse_parts[0] : &m->lse;
    const qattn_merge_params params = { .struct_size = sizeof params, .flags = c->base2 ? QATTN_FLAG_LSE_BASE2 : 0u,
                                        .num_threads = 1 + (int32_t)(c->seed % 3) };
    case_begin("%s/%s", row->id, text);
    snprintf(label, sizeof label, "merge/%s", row->id);
    const int32_t status = qattn__problem_merge(&p, c->parts, m->o_tensors, m->lse_tensors, &o->t,
                                                c->no_lse ? NULL : &lse->t, &params, false);
    if (status != QATTN_OK) {
        note_failure("valid arguments refused with %d", status);
        return;
    }
    struct gpu_regions regions = { .count = 0 };
    int32_t ran = QATTN_OK;
    for (int64_t i = 0; i < c->parts; i++) {
        gpu_add_box(&regions, &m->o_parts[i]);
        gpu_add_box(&regions, &m->lse_parts[i]);
    }
    gpu_add_box(&regions, &m->o);
    gpu_add_box(&regions, &m->lse);
    if (!gpu_run_row(row, &p, &regions, 0xFF, &ran, why, sizeof why)) {
        count_skipped(label, why, 1);
        return;
    }
    if (ran != QATTN_OK)
        note_failure("run failed with %d", ran);
    count_run(label, 1);
    merge_compare(row->id, c, m, o, lse);
}

static void merge_check(const struct merge_case *c)
{
    char text[200];
    snprintf(text, sizeof text,
             "merge %s out=%s parts=%lld b%lld h%lld s%lld d%lld%s%s%s%s seed=%lld",
             format_name(c->in), format_name(c->out), (long long)c->parts, (long long)c->b,
             (long long)c->h, (long long)c->s, (long long)c->dv, c->base2 ? " base2" : "",
             c->no_lse ? " no_lse" : "", c->in_place ? " in_place" : "", c->bad ? " bad" : "", (long long)c->seed);
    for (int i = 0; i < qattn__impl_count; i++) {
        if (!attn_row_wanted(&qattn__impls[i]))
            continue;
        static struct merge_build m;
        memset(&m, 0, sizeof m);
        merge_fill(c, &m);
        merge_check_row(&qattn__impls[i], c, &m, text);
        for (int64_t k = 0; k < c->parts; k++) {
            box_free(&m.o_parts[k]);
            box_free(&m.lse_parts[k]);
        }
        box_free(&m.o);
        box_free(&m.lse);
    }
}

START_TEST(merge)
{
    enum { CASES = 300 };
    static const int32_t types[] = { QATTN_DTYPE_F32, QATTN_DTYPE_F16, QATTN_DTYPE_BF16 };
    static const int64_t widths[] = { 0, 1, 3, 16, 33, 64, 128, 200 }, counts[] = { 1, 2, 3, 8, 64 };
    struct rng r = { 4242, 0 };
    failures_clear();
    for (int64_t i = 0; i < CASES; i++) {
        struct merge_case c = { .in = types[i % 3],
                                .parts = counts[rng_below(&r, 5)],
                                .b = i == 0 ? 0 : 1 + rng_below(&r, 2),
                                .h = 1 + rng_below(&r, 3),
                                .s = rng_below(&r, 20),
                                .dv = widths[rng_below(&r, 8)],
                                .seed = i + 1,
                                .base2 = rng_below(&r, 3) == 0,
                                .no_lse = rng_below(&r, 4) == 0,
                                .random_layout = rng_below(&r, 2) };
        c.out = rng_below(&r, 3) ? c.in : QATTN_DTYPE_F32;
        c.in_place = c.in == c.out && rng_below(&r, 3) == 0;
        c.bad = i % 5 == 4;
        if (shard_has(i) && (!grid_small() || i % 9 == 0))
            merge_check(&c);
    }
    ck_assert_int_eq(failures(), 0);
}
END_TEST

void check_merge_add(Suite *s)
{
    TCase *const t = tcase_create("merge");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, merge);
    suite_add_tcase(s, t);
}
