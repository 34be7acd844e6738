/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The cases of tests/data/cases.txt, each of which once broke an attention library.
 *
 *   small   at most 5 GFLOP and 0.1 GB: in full, on every row of the table
 *   large   thinned to 0.2 GFLOP on every row: fewer batches, heads and rows, spread over the whole
 *           extent, so that the offsets stay as large (where that touches little memory)
 *   QATTN_TEST_BIG=1: the large ones in full on the fastest row and thinned to 20 GFLOP on
 *   cpu.generic
 *
 * Every run is compared with the oracle (sampled rows where it would take long), and its output's
 * padding looked at; the checks that a case names come on top (case_checks.c).
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "case_checks.h"
#include "case_data.h"
#include "cases_file.h"
#include "core/params.h"
#include "gpu.h"
#include "row_run.h"
#include "suites.h"
#include "support.h"

static struct case_file file;

static const double small_flop = 5e9, small_bytes = 1e8;
static const double thin_flop = 2e8, thin_bytes = 2e8, generic_flop = 2e10;
static const double oracle_flop = 3e8, oracle_flop_sanitized = 2e7;
static const double grid_flop = 3e8;    /* QATTN_TEST_GRID=small */
static const double scores_limit = 4e9; /* gqa_forward's workspace, bytes */

static bool is_small(const struct test_case *c)
{
    return case_flop(c) <= small_flop && (double)c->bytes <= small_bytes;
}

static bool is_offered(const struct test_case *c)
{
    return c->op != CASE_ATTN_BWD && c->op != CASE_APPEND;
}

/* ---------------------------------------------------------------- one case */

/* Which rows a test takes, and how far a case is thinned. */
struct plan {
    const char *what;
    bool big, thinned;
    const char *only;
};

static const char *label(const struct test_case *c, enum op op, const struct impl *row)
{
    static char text[160];
    snprintf(text, sizeof text, "cases/%s/%s/%s b%lld hq%lld hkv%lld sq%lld sk%lld d%lld dv%lld %s",
             c->id, qattn__op_name(op), row ? row->id : "-", (long long)c->b, (long long)c->hq,
             (long long)c->hkv, (long long)c->seqlen_q, (long long)c->seqlen_k, (long long)c->d,
             (long long)c->dv, format_name(c->dtype));
    return text;
}

/* A refused call: the status by both doors, and nothing written. */
static void check_refusal(const struct case_inputs *in, enum op op)
{
    const qattn_tensor *const t = in->tensors;
    struct case_outputs out;
    struct problem p;
    char why[512];
    if (!case_outputs_make(&out, in)) {
        note_failure("no memory for the output");
        return;
    }
    const int32_t status = case_problem(&p, in, &out, op);
    qattn_attn_params params = in->params;
    params.lse = out.lse;
    const int32_t public = op == OP_GQA_FORWARD
                               ? qattn_gqa_forward(&t[0], &t[1], &t[2], &out.o, &params, NULL)
                               : qattn_flash_forward(&t[0], &t[1], &t[2], &out.o, &params, NULL);
    if (status == QATTN_OK || public != status)
        note_failure("must be refused: checks say %d, the call %d", status, public);
    if (qattn_last_error(why, sizeof why) != public || why[0] == '\0')
        note_failure("no message");
    out.o.shape[0] = out.lse.shape[0] = 0; /* no element may have been written */
    if (!case_outputs_intact(&out))
        note_failure("a refused call wrote");
    case_outputs_free(&out);
}

/* The work that the oracle may take, all rows of a case or some. */
static struct oracle make_oracle(const struct problem *p)
{
    const double budget = grid_small() ? oracle_flop_sanitized : oracle_flop;
    const double row = 2 * ((double)p->cap_k + 1) * (double)(p->d + p->dv + 1);
    const double rows = budget / row + 1; /* affordable */
    int64_t batch_step = 1, head_step = 1;
    if ((double)p->n > rows / 8) /* first thin the batches, then the heads, then the rows */
        batch_step = (int64_t)((double)p->n / (rows / 8) + 1);
    const double batches = (double)(p->n / batch_step + 1);
    if (batches * (double)p->hq > rows / 4)
        head_step = (int64_t)(batches * (double)p->hq / (rows / 4) + 1) | 1;
    const double heads = (double)(p->hq / head_step + 1);
    const int64_t step = (int64_t)(batches * heads * (double)p->cap_q / rows) + 1;
    return oracle_make(p, step > 1 ? step | 1 : 1, head_step, batch_step);
}

/* The large runs say how long they took. */
static int32_t run_timed(const struct plan *plan, const struct case_inputs *in,
                         const struct impl *row, const struct problem *p)
{
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    const int32_t status = row_run(row, p);
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (plan->big || plan->only) {
        const double seconds =
            (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
        printf("%s: %s %s %s %.1f GFLOP %.2f s\n", plan->what, in->c.id, qattn__op_name(p->op),
               row->id, case_flop(&in->c) / 1e9, seconds);
        fflush(stdout);
    }
    return status;
}

/* One op on one row. */
static void run_row(const struct plan *plan, struct case_inputs *in, enum op op,
                    const struct impl *row, struct oracle *oracle)
{
    const struct case_check *const not_row = case_find(&in->c, "matches_ref_rows_not");
    struct case_outputs out;
    struct problem p;
    if (!case_outputs_make(&out, in)) {
        note_failure("no memory for the output");
        return;
    }
    if (case_problem(&p, in, &out, op) != QATTN_OK) {
        char why[512];
        qattn_last_error(why, sizeof why);
        note_failure("refused: %s", why);
    } else if ((double)row->workspace(&p) > scores_limit) {
        char text[96];
        snprintf(text, sizeof text, "gqa_forward: %s has over 4 GB of scores", in->c.id);
        count_skipped(plan->what, text, 1);
    } else if (run_timed(plan, in, row, &p) != QATTN_OK) {
        note_failure("run failed");
    } else {
        const struct case_run run = { row, op, &p, in, &out, plan->thinned, plan->big };
        const bool attention = op == OP_FLASH_FORWARD || op == OP_GQA_FORWARD;
        if (attention && oracle->rows == NULL)
            *oracle = make_oracle(&p);
        if (attention)
            oracle_agrees(oracle, &p, not_row ? strtoll(not_row->argument, NULL, 10) : -1,
                          "float64");
        else if (op == OP_SOFTMAX)
            check_softmax(&run);
        else
            check_matmul(&run);
        if (!case_outputs_intact(&out))
            note_failure("wrote between or around the elements of O or LSE");
        if (!plan->thinned)
            check_named(&run);
    }
    case_outputs_free(&out);
}

/* One op: the checks of its arguments, then its rows. */
static void run_op(const struct plan *plan, struct case_inputs *in, enum op op,
                   struct oracle *oracle)
{
    const struct impl *rows[ROW_MAX];
    struct case_outputs out;
    struct problem p;

    case_begin("%s", label(&in->c, op, NULL));
    if (in->c.status == CASE_REJECT) {
        check_refusal(in, op);
        return;
    }
    if (!case_outputs_make(&out, in)) {
        note_failure("no memory for the output");
        return;
    }
    const int32_t status = case_problem(&p, in, &out, op);
    const int n = status == QATTN_OK ? rows_for(&p, rows) : 0;
    case_outputs_free(&out);
    if (op == OP_GQA_FORWARD && in->c.page_size > 0 && n == 0) {
        count_skipped(plan->what, "gqa_forward does not offer pages", 1);
    } else if (status != QATTN_OK && in->c.status == CASE_OK_OR_REJECT) {
        check_refusal(in, op);
    } else if (n == 0) {
        char why[512];
        qattn_last_error(why, sizeof why);
        note_failure("must run: status %d, %d rows; %s", status, n, status ? why : "");
    }
    int ran = 0;
    for (int i = 0; i < n; i++) {
        if (plan->only ? strcmp(plan->only, rows[i]->id) != 0 : plan->big && i > 0)
            continue;
        case_begin("%s", label(&in->c, op, rows[i]));
        run_row(plan, in, op, rows[i], oracle);
        ran++;
    }
    if (n > 0 && ran == 0) {
        char text[96];
        snprintf(text, sizeof text, "%s of %s: not offered by the row", qattn__op_name(op),
                 in->c.id);
        count_skipped(plan->what, text, 1);
    }
}

static void run_case(const struct plan *plan, const struct test_case *c)
{
    static struct case_inputs in;
    struct oracle oracle = { 0 };
    case_begin("cases/%s", c->id);
    if (case_touched(c) * 1.05 + 5e8 > memory_available() ||
        !case_inputs_make(&in, c, ~0u, false)) {
        char text[96];
        snprintf(text, sizeof text, "%s needs %.1f GB of memory", c->id, case_touched(c) / 1e9);
        count_skipped(plan->what, text, 1);
        return;
    }
    switch (c->op) {
    case CASE_SOFTMAX_CAUSAL: run_op(plan, &in, OP_SOFTMAX, &oracle); break;
    case CASE_MATMUL_NT: run_op(plan, &in, OP_MATMUL_NT, &oracle); break;
    default:
        run_op(plan, &in, OP_FLASH_FORWARD, &oracle);
        run_op(plan, &in, OP_GQA_FORWARD, &oracle);
        break;
    }
    oracle_free(&oracle);
    case_inputs_free(&in);
    count_run(plan->what, 1);
}

/* ---------------------------------------------------------------- tests */

START_TEST(small_case)
{
    static const struct plan plan = { "cases", false, false, NULL };
    const struct test_case *const c = &file.cases[_i];
    if (!is_offered(c) || !is_small(c) || !shard_has(_i))
        return;
    if (grid_small() && case_flop(c) > grid_flop) {
        char text[96];
        snprintf(text, sizeof text, "QATTN_TEST_GRID=small: %s", c->id);
        count_skipped(plan.what, text, 1);
        return;
    }
    failures_clear();
    for (int64_t i = 0; i < case_runs(c); i++) {
        const struct test_case v = case_variant(c, i);
        const struct plan variant = { i == 0 ? plan.what : "cases variants", false, false, NULL };
        if (i == 0 || !grid_small() || i % 16 == 1)
            run_case(&variant, &v);
    }
    ck_assert_int_eq(failures(), 0);
}
END_TEST

/* Where thinning reaches the size and the rows that are left touch little memory. */
START_TEST(large_case_thinned)
{
    static const struct plan plan = { "cases thinned", false, true, NULL };
    struct test_case c = file.cases[_i];
    if (!is_offered(&c) || is_small(&c) || !shard_has(_i))
        return;
    if (!case_thin(&c, grid_small() ? thin_flop / 20 : thin_flop) ||
        case_touched(&c) > thin_bytes) {
        char text[96];
        snprintf(text, sizeof text, "%s touches %.1f GB, %.1f GFLOP", c.id, case_touched(&c) / 1e9,
                 case_flop(&c) / 1e9);
        count_skipped(plan.what, text, 1);
        return;
    }
    failures_clear();
    run_case(&plan, &c);
    ck_assert_int_eq(failures(), 0);
}
END_TEST

START_TEST(large_case)
{
    static const struct plan plan = { "cases big", true, false, NULL };
    const struct test_case *const c = &file.cases[_i];
    if (!is_offered(c) || is_small(c) || !shard_has(_i))
        return;
    failures_clear();
    for (int64_t i = 0; i < case_runs(c); i++) {
        const struct test_case v = case_variant(c, i);
        run_case(&plan, &v);
    }
    ck_assert_int_eq(failures(), 0);
}
END_TEST

START_TEST(large_case_generic)
{
    static const struct plan plan = { "cases big, cpu.generic", false, true, "cpu.generic" };
    struct test_case c = file.cases[_i];
    if (!is_offered(&c) || is_small(&c) || gpu_wanted())
        return;
    failures_clear();
    case_thin(&c, generic_flop);
    run_case(&plan, &c);
    ck_assert_int_eq(failures(), 0);
}
END_TEST

/* Timing and long repetitions of the small cases, on the fastest row. */
START_TEST(small_case_timed)
{
    static const struct plan plan = { "cases timed", true, false, NULL };
    static const char *const names[] = { "time_not_above_unmasked", "time_below_D40",
                                         "cpu_scaling_at_least", "device_memory_flat" };
    const struct test_case *const c = &file.cases[_i];
    bool asked = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        asked = asked || case_find(c, names[i]);
    if (!is_offered(c) || !is_small(c) || !asked || gpu_wanted())
        return;
    failures_clear();
    run_case(&plan, c);
    ck_assert_int_eq(failures(), 0);
}
END_TEST

/* ---------------------------------------------------------------- counting */

/* Collects ids and counts them as skipped, a few names a line. */
struct names {
    const char *why;
    char text[90];
    int count;
};

static void flush_names(struct names *n)
{
    if (n->count > 0)
        count_skipped("cases", n->text, n->count);
    n->count = 0;
}

static void add_name(struct names *n, const char *id)
{
    if (n->count > 0 && strlen(n->text) + strlen(id) + 2 > sizeof n->text - 1)
        flush_names(n);
    if (n->count++ == 0)
        snprintf(n->text, sizeof n->text, "%s", n->why);
    const size_t used = strlen(n->text);
    snprintf(n->text + used, sizeof n->text - used, " %s", id);
}

START_TEST(every_case_is_counted)
{
    struct names backward = { .why = "attn_bwd is not offered:" },
                 append = { .why = "decode_append is not offered:" };
    struct names large = { .why = "in full in check-big:" };
    int run = 0, other = 0;
    if (!shard_has(0))
        return;
    ck_assert_msg(file.error[0] == '\0', "%s", file.error);
    for (int i = 0; i < file.count; i++) {
        const struct test_case *const c = &file.cases[i];
        if (c->op == CASE_ATTN_BWD)
            add_name(&backward, c->id);
        else if (c->op == CASE_APPEND)
            add_name(&append, c->id);
        else if (!is_small(c) && !env_number("QATTN_TEST_BIG", 0))
            add_name(&large, c->id);
        run += is_offered(c) && is_small(c);
        other += !is_offered(c) || !is_small(c);
    }
    flush_names(&backward);
    flush_names(&append);
    flush_names(&large);
    ck_assert_int_eq(file.count, 86);
    ck_assert_int_eq(run + other, 86);
    ck_assert_int_gt(run, 40);
}
END_TEST

/* tag: "big" is what check-big selects; the others run by default. */
static void add_loop(Suite *suite, const char *name, const char *tag, const TTest *test,
                     double seconds)
{
    TCase *const tcase = tcase_create(name);
    tcase_set_tags(tcase, tag);
    tcase_set_timeout(tcase, seconds);
    tcase_add_loop_test(tcase, test, 0, file.count);
    suite_add_tcase(suite, tcase);
}

Suite *suite_cases(void)
{
    Suite *const suite = suite_create("cases");
    TCase *const counts = tcase_create("counts");
    cases_read(&file, data_path("cases.txt"));
    tcase_set_tags(counts, "cpu big");
    tcase_add_test(counts, every_case_is_counted);
    suite_add_tcase(suite, counts);
    add_loop(suite, "small", "cpu", small_case, 240);
    add_loop(suite, "thinned", "cpu", large_case_thinned, 240);
    if (env_number("QATTN_TEST_BIG", 0)) {
        add_loop(suite, "big", "big slow", large_case, 3600);
        add_loop(suite, "big_generic", "big slow", large_case_generic, 3600);
        add_loop(suite, "timed", "big slow", small_case_timed, 600);
    }
    return suite;
}
