/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Layout invariance: random problems, each laid out packed and then several times through random orders, padding,
 * steps, negative and zero strides and as slices of one buffer. The same values must give the same bits on the same
 * row of the table, and those bits must be right. QATTN_TEST_LOTTERY=<problems> (default 300), QATTN_TEST_SEED=<seed>.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "attn_run.h"
#include "suites.h"

enum { TICKETS = 4, BLOCKS = 20 };

static int64_t problems(void) { return env_number("QATTN_TEST_LOTTERY", grid_small() ? 40 : 300); }

/* A problem whose values some axes share, so that stride 0 can say the same. */
static struct attn_case draw(struct rng *r)
{
    static const enum op ops[] = { OP_FLASH_FORWARD, OP_FLASH_FORWARD, OP_GQA_FORWARD, OP_SOFTMAX };
    struct attn_case c = attn_case_random(ops[rng_below(r, 4)], r);
    c.in_place = 0;
    if (c.op != OP_SOFTMAX && rng_below(r, 3) == 0) {
        c.share = 1 + rng_below(r, 7);
        c.used_k = c.page || c.packed_k ? c.used_k : 0;   /* shared keys: the longest sequence fills the memory */
    }
    if (rng_below(r, 4) == 0 && !c.packed_q && !c.page && c.op != OP_SOFTMAX) {
        c.sk = c.sq;                                      /* what slices of one buffer need */
        c.dv = -1;
        c.bias = c.keep = c.bias_kind = c.keep_kind = 0;
    }
    return c;
}

static struct attn_build *build(struct attn_case *c, struct sequence *seqs, int64_t lay)
{
    struct attn_build *b = malloc(sizeof *b);
    c->lay = lay;
    attn_build_init(b, c, seqs);
    return b;
}

static void discard(struct attn_build *b)
{
    attn_build_free(b);
    free(b);
}

/* One value tensor of the result, element by element, bit by bit. */
static bool same_values(const struct box *a, const struct box *b)
{
    const size_t size = a->mem ? (size_t)format_size(a->t.dtype) : 0;
    for (int64_t n = 0; n < a->t.shape[0]; n++)
        for (int64_t h = 0; h < a->t.shape[1]; h++)
            for (int64_t s = 0; s < a->t.shape[2]; s++)
                for (int64_t d = 0; d < a->t.shape[3]; d++) {
                    const unsigned char *x = box_at(a, n, h, s, d), *y = box_at(b, n, h, s, d);
                    for (size_t k = 0; k < size; k++)
                        if (x[k] != y[k])
                            return false;
                }
    return true;
}

static void play(const struct attn_case *c, uint64_t seed)
{
    struct rng r = { seed, 0 };
    struct sequence *seqs = calloc((size_t)c->b + 1, sizeof *seqs);
    attn_sequences(c, seqs);
    struct attn_answer a = attn_solve(c, seqs, false);
    struct attn_case packed = *c;
    for (int i = 0; i < qattn__impl_count; i++) {
        const struct impl *row = &qattn__impls[i];
        char text[400];
        if (!attn_row_wanted(row))
            continue;
        struct attn_build *first = build(&packed, seqs, 0);
        attn_case_text(&packed, text, sizeof text);
        case_begin("lottery/%s/%s", row->id, text);
        const bool ran = attn_run(row, first, 1, 0xFF) == ATTN_RAN;
        if (!ran)
            count_skipped("layout lottery", attn_run_reason(), 1);
        for (int ticket = 0; ran && ticket < TICKETS; ticket++) {
            struct attn_case other = *c;
            struct attn_build *second = build(&other, seqs, ticket == 0 ? 3 : 4 + rng_below(&r, 1 << 30));
            attn_case_text(&other, text, sizeof text);
            case_begin("lottery/%s/%s", row->id, text);
            if (attn_run(row, second, 2, 0x00) == ATTN_RAN) {
                attn_compare(row->id, second, &a);
                if (!same_values(&first->o, &second->o) || !same_values(&first->lse, &second->lse) ||
                    (c->stage >= 2 && !same_values(&first->scores, &second->scores)))
                    note_failure("another layout of the same values gave other bits");
                count_run("layout lottery", 1);
            }
            discard(second);
        }
        discard(first);
    }
    attn_answer_free(&a);
    free(seqs);
}

START_TEST(tickets)
{
    failures_clear();
    const uint64_t seed = (uint64_t)env_number("QATTN_TEST_SEED", 20261129);
    for (int64_t i = _i; i < problems(); i += BLOCKS) {
        struct rng r = { hash64(seed, (uint64_t)i), 0 };
        const struct attn_case c = draw(&r);
        play(&c, rng_bits(&r));
    }
    ck_assert_int_eq(failures(), 0);
}
END_TEST

Suite *suite_lottery(void)
{
    Suite *s = suite_create("lottery");
    TCase *t = tcase_create("tickets");
    tcase_set_tags(t, "cpu");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, tickets, 0, BLOCKS);
    suite_add_tcase(s, t);
    return s;
}
