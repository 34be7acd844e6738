/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Every row of core/impls.h that can run here, over the grid of cases.h, against the fp64 answer of attn_oracle.c:
 * outputs NaN-poisoned and fenced, inputs' padding and workspace poisoned, inputs unchanged, same bits on a
 * second run with other threads and other poison. QATTN_TEST_IMPL=id picks a row, QATTN_TEST_CASE a case.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_run.h"
#include "check_gemm.h"
#include "suites.h"
#include "tolerance.h"

enum { BLOCK = 64, MAX_BLOCKS = 200 };

static struct attn_grid grids[OP_COUNT];

/* Rows that do not see a bad key must have the bits of the run where those keys hold 0. */
static void check_against_zeros(const struct impl *row, const struct attn_build *bad, const struct attn_answer *a)
{
    struct attn_case zero = *bad->c;
    zero.zero_bad = true;
    struct attn_build b;
    attn_build_init(&b, &zero, bad->seqs);
    if (attn_run(row, &b, 1, 0x55) == ATTN_RAN)
        for (int64_t n = 0; n < zero.b; n++)
            for (int64_t h = 0; h < zero.hq; h++)
                for (int64_t i = 0; i < b.seqs[n].rows; i++) {
                    if (a->sees_bad[attn_row(&zero, a, b.seqs, n, h, i)])
                        continue;
                    if (!attn_same_row(bad, &b, n, i, n, i, h))
                        note_failure("row n%lld h%lld i%lld sees no bad key but differs from the run with 0 there",
                                     (long long)n, (long long)h, (long long)i);
                }
    attn_build_free(&b);
}

static void check_row(const struct impl *row, struct attn_build *b, const struct attn_answer *a)
{
    char label[96], text[400];
    const struct attn_case *c = b->c;
    const char *op = c->op == OP_GQA_FORWARD ? "gqa" : c->op == OP_SOFTMAX ? "softmax" : "flash";
    snprintf(label, sizeof label, "%s/%s", op, row->id);
    attn_case_text(c, text, sizeof text);
    case_begin("%s/%s", row->id, text);
    if (c->nan == OVERFLOW_KEY && strcmp(row->id, "ref") == 0) {
        count_skipped(label, "scores in fp64 do not overflow", 1);
        return;
    }
    const enum attn_ran ran = attn_run(row, b, 1, 0xFF);
    if (ran != ATTN_RAN) {
        count_skipped(label, attn_run_reason(), 1);
        return;
    }
    count_run(label, 1);
    attn_compare(row->id, b, a);
    const struct attn_copy first = attn_copy_outputs(b);
    const int runs = gpu_repeats(c->seed);
    for (int run = 2, same = 1; run <= runs && same; run++) {
        attn_build_reset(b);
        same = attn_run(row, b, 3, run % 2 ? 0xFF : 0x00) != ATTN_RAN || attn_copy_equal(&first, b);
        if (!same)
            note_failure("run %d (3 threads, other workspace contents) gave other bits", run);
    }
    count_run("runs for the same bits", runs);
    attn_copy_free(&first);
    if (c->nan == NAN_LAST_KEYS || c->nan == NAN_SEVENTH_KEYS || c->nan == NAN_LAST_VALUE || c->nan == MAX_LAST_VALUE ||
        c->nan == INF_KEY_NAN_VALUE || c->nan == MAX_LAST_KEY) {
        attn_build_reset(b);
        if (attn_run(row, b, 1, 0xFF) == ATTN_RAN)
            check_against_zeros(row, b, a);
    }
    attn_build_reset(b);
}

static void check_case(const struct attn_case *c)
{
    struct sequence *seqs = calloc((size_t)c->b + 1, sizeof *seqs);
    struct attn_build b;
    char text[400];
    attn_case_text(c, text, sizeof text);
    case_begin("build/%s", text);
    attn_sequences(c, seqs);
    attn_build_init(&b, c, seqs);
    struct attn_answer a = attn_solve(c, seqs, attn_wants_plain(c, seqs));
    for (int i = 0; i < qattn__impl_count; i++)
        if (attn_row_wanted(&qattn__impls[i]))
            check_row(&qattn__impls[i], &b, &a);
    attn_answer_free(&a);
    attn_build_free(&b);
    free(seqs);
}

static void check_block(enum op op, int block)
{
    failures_clear();
    const struct attn_grid *grid = &grids[op];
    for (int64_t i = (int64_t)block * BLOCK; i < grid->count && i < (int64_t)(block + 1) * BLOCK; i++)
        if (shard_has(i))
            check_case(&grid->at[i]);
    ck_assert_msg(failures() == 0, "%d failures in cases %d to %d", failures(), block * BLOCK,
                  (block + 1) * BLOCK - 1);
}

START_TEST(flash) { check_block(OP_FLASH_FORWARD, _i); }
END_TEST
START_TEST(gqa) { check_block(OP_GQA_FORWARD, _i); }
END_TEST
START_TEST(softmax) { check_block(OP_SOFTMAX, _i); }
END_TEST

/* The grid's own text: every case reads back as itself, or QATTN_TEST_CASE would lie. */
START_TEST(case_lines)
{
    static const enum op ops[] = { OP_FLASH_FORWARD, OP_GQA_FORWARD, OP_SOFTMAX };
    for (size_t k = 0; k < 3; k++)
        for (int64_t i = 0; i < grids[ops[k]].count; i++) {
            char line[400], again[400];
            struct attn_case back;
            attn_case_text(&grids[ops[k]].at[i], line, sizeof line);
            ck_assert_msg(attn_case_parse(&back, line), "does not parse: %s", line);
            attn_case_text(&back, again, sizeof again);
            ck_assert_str_eq(line, again);
        }
}
END_TEST

static void add_grid(Suite *s, const char *name, enum op op, const TTest *test)
{
    TCase *t = tcase_create(name);
    grids[op] = attn_grid_make(op);
    tcase_set_tags(t, "cpu");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, test, 0, (int)((grids[op].count + BLOCK - 1) / BLOCK));
    suite_add_tcase(s, t);
}

Suite *suite_impls(void)
{
    Suite *s = suite_create("impls");
    add_grid(s, "flash", OP_FLASH_FORWARD, flash);
    add_grid(s, "gqa", OP_GQA_FORWARD, gqa);
    add_grid(s, "softmax", OP_SOFTMAX, softmax);
    TCase *t = tcase_create("case_lines");
    tcase_add_test(t, case_lines);
    suite_add_tcase(s, t);
    check_gemm_add(s);
    check_merge_add(s);
    return s;
}
