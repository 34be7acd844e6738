/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Lengths, offsets and page ids are data, and data may be wrong. Whatever the arrays hold: no access outside the
 * tensors (they are fenced), no byte written outside the outputs' elements, success; and wrong entries of one sequence
 * leave the bits of the others alone.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_run.h"
#include "gpu.h"
#include "grid.h"
#include "suites.h"

enum { BLOCKS = 8, CASES = 320, COMBS = 6 };

static int32_t *ints(struct scratch *s) { return (int32_t *)(void *)s->data; }

/* Near the truth, far from it, or at the ends of 32 bits. */
static int32_t wrong(struct rng *r, int64_t truth)
{
    switch (rng_below(r, 5)) {
    case 0:  return INT32_MAX;
    case 1:  return INT32_MIN;
    case 2:  return (int32_t)rng_bits(r);
    case 3:  return (int32_t)(truth + rng_below(r, 7) - 3);
    default: return (int32_t)-rng_below(r, 100);
    }
}

static struct attn_case draw(struct rng *r)
{
    struct attn_case c;
    do {
        const enum op op = rng_below(r, 4) ? OP_FLASH_FORWARD : OP_GQA_FORWARD;
        c = gpu_wanted() && rng_below(r, 2) ? grid_random_tiles(op, r) : attn_case_random(op, r);
    } while ((!c.packed_q && !c.page && !c.used_k && !c.used_q && c.offset != 2) || c.nan);
    c.b = 2 + rng_below(r, 4);
    c.no_lse = c.scores = 0;
    return c;
}

/* Outputs hold any values now, but nothing outside their elements has changed. */
static void check_fences(struct attn_build *b, const char *what)
{
    struct box *const outputs[] = { &b->o, &b->lse };
    for (int k = 0; k < 2; k++) {
        const int64_t *shape = outputs[k]->t.shape;
        for (int64_t n = 0; n < shape[0]; n++)
            for (int64_t h = 0; h < shape[1]; h++)
                for (int64_t s = 0; s < shape[2]; s++)
                    for (int64_t d = 0; d < shape[3]; d++)
                        box_expect_written(outputs[k], n, h, s, d);
        if (!box_intact(outputs[k]))
            note_failure("%s: bytes outside the output were changed", what);
    }
}

/* Entries of sequence `victim` alone are wrong. */
static void spoil_one(struct attn_build *b, int64_t victim, struct rng *r)
{
    const int64_t columns = attn_max_pages(b->c),
                  pitch = b->attn.page_table_stride ? b->attn.page_table_stride : columns;
    if (b->attn.seqused_q)
        ints(&b->used_q)[victim] = wrong(r, b->seqs[victim].used_q);
    if (b->attn.seqused_k)
        ints(&b->used_k)[victim] = wrong(r, b->seqs[victim].used_k);
    if (b->attn.q_offsets)
        ints(&b->offsets)[victim] = wrong(r, b->seqs[victim].q_off);
    for (int64_t x = 0; x < columns; x++)
        ints(&b->table)[victim * pitch + x] = wrong(r, ints(&b->table)[victim * pitch + x]);
}

static void check_one_victim(const struct impl *row, const struct attn_case *c, struct sequence *seqs, struct rng r)
{
    struct attn_build clean, spoilt;
    attn_build_init(&clean, c, seqs);
    attn_build_init(&spoilt, c, seqs);
    const int64_t victim = rng_below(&r, c->b);
    spoil_one(&spoilt, victim, &r);
    if (attn_run(row, &clean, 1, 0xFF) == ATTN_RAN && attn_run(row, &spoilt, 3, 0x00) == ATTN_RAN)
        for (int64_t n = 0; n < c->b; n++)
            for (int64_t h = 0; n != victim && h < c->hq; h++)
                for (int64_t i = 0; i < seqs[n].rows; i++)
                    if (!attn_same_row(&clean, &spoilt, n, i, n, i, h))
                        note_failure("wrong entries of sequence %lld changed sequence %lld, head %lld, row %lld",
                                     (long long)victim, (long long)n, (long long)h, (long long)i);
    check_fences(&spoilt, "one sequence's entries wrong");
    attn_build_free(&clean);
    attn_build_free(&spoilt);
}

/* Every prefix sum wrong; `comb`: 0, total, 0, total, so that the sequences together are much more than the total. */
static void check_prefix_sums(const struct impl *row, const struct attn_case *c, struct sequence *seqs, struct rng r,
                              bool comb)
{
    struct attn_build b;
    attn_build_init(&b, c, seqs);
    for (int64_t n = 0; n <= c->b; n++) {
        const int32_t end_q = (int32_t)b.q.t.shape[2], end_k = (int32_t)b.k.t.shape[2];
        ints(&b.cu_q)[n] = comb ? (n % 2 ? end_q : 0) : wrong(&r, ints(&b.cu_q)[n]);
        ints(&b.cu_k)[n] = comb ? (n % 2 ? end_k : 0) : wrong(&r, ints(&b.cu_k)[n]);
    }
    attn_run(row, &b, 1, 0xFF);        /* sequences may overlap: one thread, or the threads would race on purpose */
    check_fences(&b, comb ? "prefix sums as a comb" : "prefix sums wrong");
    attn_build_free(&b);
}

START_TEST(arrays)
{
    failures_clear();
    const int64_t cases = grid_small() ? CASES / 8 : CASES;
    for (int64_t k = _i; k < cases; k += BLOCKS) {
        if (!shard_has(k))
            continue;
        struct rng r = { hash64(555, (uint64_t)k), 0 };
        const struct attn_case c = draw(&r);
        struct sequence *seqs = calloc((size_t)c.b, sizeof *seqs);
        char text[400];
        attn_case_text(&c, text, sizeof text);
        attn_sequences(&c, seqs);
        for (int i = 0; i < qattn__impl_count; i++) {
            if (!attn_row_wanted(&qattn__impls[i]))
                continue;
            case_begin("hostile/%s/%s", qattn__impls[i].id, text);
            check_one_victim(&qattn__impls[i], &c, seqs, r);
            if (c.packed_q) {
                check_prefix_sums(&qattn__impls[i], &c, seqs, r, false);
                check_prefix_sums(&qattn__impls[i], &c, seqs, r, true);
            }
            count_run("hostile arrays", 1);
        }
        free(seqs);
    }
    ck_assert_int_eq(failures(), 0);
}
END_TEST

/* Many sequences that each claim the whole total, few rows, long keys: where the keys are split over threads, the plan
 * made from the shapes must still hold. */
START_TEST(comb_of_decode)
{
    const int64_t k = _i, few = grid_small() ? 4 : 1;      /* the ref row takes seconds, under a sanitizer minutes */
    failures_clear();
    for (int i = 0; i < qattn__impl_count; i++) {
        if (!attn_row_wanted(&qattn__impls[i]) || !shard_has(k))
            continue;
        struct attn_case c = attn_case_default(OP_FLASH_FORWARD, QATTN_DTYPE_F32, QATTN_DTYPE_F32, QATTN_DTYPE_F32);
        struct rng r = { (uint64_t)k, 0 };
        struct sequence seqs[16];
        char text[400];
        c.b = k < 3 ? 16 : 9;
        c.sq = k % 3 == 0 ? 1 : (k % 3 == 1 ? 60 : 200) / few;
        c.sk = 1500;
        c.d = 16;
        c.packed_q = c.packed_k = 1;
        c.splits = k % 2 ? 5 : 0;
        c.invariant = k == 2;
        c.seed = 40 + k;
        attn_case_text(&c, text, sizeof text);
        case_begin("hostile comb/%s/%s", qattn__impls[i].id, text);
        attn_sequences(&c, seqs);
        check_prefix_sums(&qattn__impls[i], &c, seqs, r, true);
        count_run("hostile arrays", 1);
    }
    ck_assert_int_eq(failures(), 0);
}
END_TEST

Suite *suite_hostile(void)
{
    Suite *s = suite_create("hostile");
    TCase *t = tcase_create("arrays");
    tcase_set_tags(t, "cpu");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, arrays, 0, BLOCKS);
    tcase_add_loop_test(t, comb_of_decode, 0, COMBS);
    suite_add_tcase(s, t);
    return s;
}
