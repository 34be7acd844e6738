/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Layout invariance: random problems, each laid out packed and then several times through random orders, padding,
 * steps, negative and zero strides and as slices of one buffer. The same values must give the same bits on the same
 * path, and those bits must be right. A path is a row of the table; on a device, where k and v, or q, have rows on 16
 * bytes, a row may have others of its own, but not under BATCH_INVARIANT. Some f32 and bf16 problems have values far
 * from 1 (`numbers`), half of them on both sides of where TF32's kernels change their way.
 * QATTN_TEST_LOTTERY=<problems> (default 300, on a device 1000), QATTN_TEST_SEED=<seed>.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "attn_run.h"
#include "gpu.h"
#include "grid.h"
#include "suites.h"

enum { TICKETS = 4, BLOCKS = 20 };

static int64_t problems(void)
{
    return env_number("QATTN_TEST_LOTTERY", grid_small() ? 40 : gpu_wanted() ? 1000 : 300);
}

/* A problem whose values some axes share, so that stride 0 can say the same. */
static struct attn_case draw(struct rng *r)
{
    static const enum op ops[] = { OP_FLASH_FORWARD, OP_FLASH_FORWARD, OP_GQA_FORWARD, OP_SOFTMAX };
    const enum op op = ops[rng_below(r, 4)];
    const bool tiles = gpu_wanted() && op != OP_SOFTMAX && rng_below(r, 3);
    struct attn_case c = tiles ? grid_random_tiles(op, r) : attn_case_random(op, r);
    c.in_place = 0;
    c.nan = 0;
    if (c.op != OP_SOFTMAX && rng_below(r, 3) == 0) {
        c.share = 1 + rng_below(r, 7);
        c.used_k = c.page || c.packed_k ? c.used_k : 0;   /* shared keys: the longest sequence fills the memory */
    }
    if (op == OP_GQA_FORWARD)
        c.invariant = rng_below(r, 3) == 0;
    const bool wide = c.q_dtype == c.kv_dtype && (c.q_dtype == F32 || c.q_dtype == BF16);
    if (wide && c.op != OP_SOFTMAX && rng_below(r, 4) == 0) {
        attn_set_numbers(&c, rng_below(r, 2) ? NUMBERS_LARGE_K + rng_below(r, 3) : 1 + rng_below(r, NUMBERS_KINDS - 1));
        c.softcap = c.as_given = 0;
        c.precision = c.q_dtype == F32 ? rng_below(r, 3) : 0;
        c.invariant = rng_below(r, 4) > 0;
        c.splits = c.invariant ? 0 : c.splits;
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

static bool has_aligned_rows(const struct box *box)
{
    const int64_t size = format_size(box->t.dtype);
    bool aligned = (uintptr_t)box->t.data % 16 == 0 && (box->t.stride[3] == 1 || box->t.shape[3] < 2);
    for (int axis = 0; axis < 3; axis++)
        aligned &= box->t.shape[axis] < 2 || box->t.stride[axis] * size % 16 == 0;
    return aligned;
}

/* Which of a row's paths may run the build: bit 0, k and v have rows on 16 bytes; bit 1, so has q. */
static int path_of(const struct impl *row, const struct attn_build *b)
{
    if (row->device_type != QATTN_DEVICE_CUDA || b->c->invariant || b->c->op == OP_SOFTMAX)
        return 0;
    return (has_aligned_rows(&b->k) && has_aligned_rows(&b->v)) | (has_aligned_rows(&b->q) ? 2 : 0);
}

static void expect_same(const struct attn_build *a, const struct attn_build *b)
{
    if (!same_values(&a->o, &b->o) || !same_values(&a->lse, &b->lse) ||
        (a->c->stage >= 2 && !same_values(&a->scores, &b->scores)))
        note_failure("another layout of the same values gave other bits");
}

/* All tickets of one problem on one row. */
static void play_row(const struct impl *row, const struct attn_case *c, struct sequence *seqs,
                     const struct attn_answer *a, struct rng r)
{
    struct attn_case cases[TICKETS + 1];
    struct attn_build *builds[TICKETS + 1] = { NULL }, *first[4] = { NULL };
    char text[400];
    for (int ticket = 0; ticket <= TICKETS; ticket++) {
        struct attn_case *const now = &cases[ticket];
        *now = *c;
        if (ticket > 0)
            now->aligned = ticket % 2 ? !c->aligned : c->aligned;
        builds[ticket] = build(now, seqs, ticket == 0 ? 0 : ticket == 1 ? 3 : 4 + rng_below(&r, 1 << 30));
        attn_case_text(now, text, sizeof text);
        case_begin("lottery/%s/%s", row->id, text);
        if (attn_run(row, builds[ticket], ticket ? 2 : 1, ticket ? 0x00 : 0xFF) != ATTN_RAN) {
            count_skipped("layout lottery", attn_run_reason(), 1);
            continue;
        }
        attn_compare(row->id, builds[ticket], a);
        const int path = path_of(row, builds[ticket]);
        if (first[path])
            expect_same(first[path], builds[ticket]);
        else
            first[path] = builds[ticket];
        count_run("layout lottery", 1);
    }
    for (int ticket = 0; ticket <= TICKETS; ticket++)
        if (builds[ticket])
            discard(builds[ticket]);
}

static void play(const struct attn_case *c, uint64_t seed)
{
    const struct rng r = { seed, 0 };
    struct sequence *seqs = calloc((size_t)c->b + 1, sizeof *seqs);
    attn_sequences(c, seqs);
    struct attn_answer a = attn_solve(c, seqs, false);
    for (int i = 0; i < qattn__impl_count; i++)
        if (attn_row_wanted(&qattn__impls[i]))
            play_row(&qattn__impls[i], c, seqs, &a, r);
    attn_answer_free(&a);
    free(seqs);
    count_run("lottery problems", 1);
}

START_TEST(tickets)
{
    failures_clear();
    const uint64_t seed = (uint64_t)env_number("QATTN_TEST_SEED", 20261129);
    for (int64_t i = _i; i < problems(); i += BLOCKS) {
        struct rng r = { hash64(seed, (uint64_t)i), 0 };
        const struct attn_case c = draw(&r);
        if (shard_has(i))
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
