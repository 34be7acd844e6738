/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * BATCH_INVARIANT: a row's bits depend on its own query, keys and position alone. The same sequences are run as one
 * padded batch, in another order and company, padded further, packed, paged with several page sizes, in chunks
 * of a prefill and one row at a time as in decode; every row must keep its bits. On a device the implementation that
 * would run must stay the same, too, whatever the batch, the lengths and the strides.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_run.h"
#include "gpu.h"
#include "grid.h"
#include "invariance_worlds.h"
#include "suites.h"

/* What all forms share; sequence s has len_q[s] query rows, the last ones of len_k[s] keys. */
struct world {
    const struct impl *row;
    struct attn_case base;
    int64_t len_q[SEQUENCES], len_k[SEQUENCES];
};

/* One call: a case with its own b, sq, sk and form, and the sequences in it. */
struct call {
    struct attn_case c;
    struct sequence seqs[SEQUENCES + 1];
    struct attn_build build;
};

/* Sequence `id` from query row `first`, `rows` rows long, seeing its first `keys` keys. */
static struct sequence part(uint64_t id, int64_t first, int64_t rows, int64_t keys)
{
    return (struct sequence){ .id = id,
                              .first_row = first,
                              .slot_q = rows,
                              .rows = rows,
                              .len_q = rows,
                              .slot_k = keys,
                              .len_k = keys,
                              .used_q = (int32_t)rows,
                              .used_k = (int32_t)keys,
                              .offset = keys - rows };
}

static void run_call(const struct world *w, struct call *call)
{
    attn_build_init(&call->build, &call->c, call->seqs);
    const enum attn_ran ran = attn_run(w->row, &call->build, 1 + (int32_t)(call->c.lay % 3), 0xFF);
    if (ran == ATTN_UNSUPPORTED)
        note_failure("BATCH_INVARIANT refused in this form alone: %s", attn_run_reason());
}

/* Row `i` of sequence n of `got` is row first + i of sequence id of the reference. */
static void compare(const struct call *want, const struct call *got, const char *form)
{
    const struct attn_case *c = &got->c;
    for (int64_t n = 0; n < c->b; n++)
        for (int64_t h = 0; h < c->hq; h++)
            for (int64_t i = 0; i < got->seqs[n].len_q; i++) {
                const struct sequence *s = &got->seqs[n];
                if (!attn_same_row(&want->build, &got->build, (int64_t)s->id, s->first_row + i, n, i, h)) {
                    note_failure("%s: sequence %lld head %lld row %lld has other bits than in the padded batch", form,
                                 (long long)s->id, (long long)h, (long long)(s->first_row + i));
                    return;
                }
            }
}

static void run_and_compare(const struct world *w, const struct call *want, struct call *got, const char *form)
{
    run_call(w, got);
    compare(want, got, form);
    attn_build_free(&got->build);
    count_run("batch invariance forms", 1);
}

static int64_t most(const int64_t *list)
{
    int64_t top = 0;
    for (int i = 0; i < SEQUENCES; i++)
        top = list[i] > top ? list[i] : top;
    return top;
}

/* All sequences padded to sq and sk; order[n] is the sequence at place n. */
static struct call padded(const struct world *w, const uint64_t *order, int64_t b, int64_t extra_q, int64_t extra_k)
{
    struct call call = { .c = w->base };
    call.c.b = b;
    call.c.sq = most(w->len_q) + extra_q;
    call.c.sk = most(w->len_k) + extra_k;
    call.c.used_q = call.c.used_k = USED_SOME;
    for (int64_t n = 0; n < b; n++) {
        call.seqs[n] = part(order[n], 0, w->len_q[order[n]], w->len_k[order[n]]);
        call.seqs[n].slot_q = call.seqs[n].rows = call.c.sq;
        call.seqs[n].slot_k = call.c.sk;
    }
    return call;
}

static void check_padded(const struct world *w, const struct call *want)
{
    static const uint64_t orders[][SEQUENCES] = { { 2, 0, 1 }, { 1, 1, 2 }, { 0 }, { 1 }, { 2 } };
    for (int k = 0; k < 5; k++) {
        struct call got = padded(w, orders[k], k < 2 ? SEQUENCES : 1, 3 * k, 40 * k);
        got.c.lay = 5 + k;
        got.c.aligned = w->base.numbers ? k % 2 : w->base.aligned;
        run_and_compare(w, want, &got, k < 2 ? "other order, more padding" : "alone");
    }
}

/* page -1: k and v packed; 0: padded k under packed q; else paged. */
static void check_packed(const struct world *w, const struct call *want, int64_t page)
{
    struct call got = { .c = w->base };
    got.c.b = SEQUENCES;
    got.c.packed_q = 1;
    got.c.packed_k = page < 0;
    got.c.page = page > 0 ? page : 0;
    got.c.lead = 2;
    got.c.lay = 11 + page;
    got.c.sk = most(w->len_k) + (page > 0 ? 2 * page : 0);
    got.c.used_k = page >= 0 ? USED_SOME : 0;
    for (uint64_t n = 0; n < SEQUENCES; n++) {
        got.seqs[n] = part(2 - n, 0, w->len_q[2 - n], w->len_k[2 - n]);
        if (page >= 0)
            got.seqs[n].slot_k = attn_capacity_k(&got.c);
    }
    run_and_compare(w, want, &got, page < 0 ? "packed" : page == 0 ? "packed q, padded k" : "packed q, paged k");
}

/* Query rows first .. first+rows-1 of each sequence in one call: a chunk of a prefill, or with rows 1 decode. With
 * `offset` all keys are there and q_offsets places the rows; without, the keys end where the chunk does. */
static void check_chunk(const struct world *w, const struct call *want, int64_t first, int64_t rows, bool offset)
{
    struct call got = { .c = w->base };
    got.c.packed_q = 1;
    got.c.b = 0;
    got.c.offset = offset ? 2 : 0;
    got.c.used_k = USED_SOME;
    got.c.lay = 21 + first;
    got.c.sk = most(w->len_k);
    for (uint64_t id = 0; id < SEQUENCES; id++) {
        const int64_t left = w->len_q[id] - first, now = left < rows ? left : rows;
        const int64_t position = w->len_k[id] - w->len_q[id] + first;
        if (now <= 0)
            continue;
        struct sequence s = part(id, first, now, offset ? w->len_k[id] : position + now);
        s.slot_k = got.c.sk;
        s.offset = position;
        s.q_off = (int32_t)position;
        got.seqs[got.c.b++] = s;
    }
    run_and_compare(w, want, &got,
                    rows == 1 ? "decode, one row at a time"
                    : offset  ? "chunk with q_offsets"
                              : "chunk");
}

/* Rows first .. of one sequence alone, padded: gqa_forward has no other chunks. */
static void check_alone(const struct world *w, const struct call *want, uint64_t id, int64_t first, int64_t rows)
{
    struct call got = { .c = w->base };
    const int64_t left = w->len_q[id] - first, now = left < rows ? left : rows;
    if (now <= 0)
        return;
    got.c.b = 1;
    got.c.sq = now;
    got.c.sk = w->len_k[id] + (first % 3 ? 0 : 30);
    got.c.offset = 2;
    got.c.used_k = USED_SOME;
    got.c.lay = 31 + first;
    struct sequence *const s = &got.seqs[0];
    *s = part(id, first, now, w->len_k[id]);
    s->slot_k = got.c.sk;
    s->offset = w->len_k[id] - w->len_q[id] + first;
    s->q_off = (int32_t)s->offset;
    run_and_compare(w, want, &got, "rows of one sequence alone");
}

/* False: the row does not run this at all. */
static bool run_first(const struct world *w, struct call *want)
{
    attn_build_init(&want->build, &want->c, want->seqs);
    if (attn_run(w->row, &want->build, 1, 0xFF) != ATTN_UNSUPPORTED)
        return true;
    count_skipped("batch invariance forms", attn_run_reason(), 1);
    attn_build_free(&want->build);
    return false;
}

static void check_world(const struct world *w)
{
    static const uint64_t straight[SEQUENCES] = { 0, 1, 2 };
    static const int64_t pages[] = { -1, 0, 1, 3, 16, 64, 257 };
    char text[300];
    attn_case_text(&w->base, text, sizeof text);
    case_begin("invariance/%s/%s", w->row->id, text);
    struct call want = padded(w, straight, SEQUENCES, 0, 0);
    if (!run_first(w, &want))
        return;
    check_padded(w, &want);
    if (w->base.op == OP_GQA_FORWARD) {
        for (uint64_t id = 0; id < SEQUENCES; id++)
            for (int64_t first = 0; first < w->len_q[id]; first += first % 2 ? 1 : 17)
                check_alone(w, &want, id, first, first % 2 ? 30 : 1);
        attn_build_free(&want.build);
        return;
    }
    for (int i = 0; i < 7; i++)
        check_packed(w, &want, pages[i]);
    if (w->base.causal) {                                /* without the mask a chunk of keys is another problem */
        const int64_t longest = most(w->len_q);
        for (int64_t first = 0; first < longest; first += 20)
            check_chunk(w, &want, first, 20, first % 40 == 0);
        for (int64_t first = 0; first < longest && longest > 64; first += 64)
            check_chunk(w, &want, first, 64, true);
        for (int64_t first = 0; first < longest; first += longest > 40 ? 7 : 1)
            check_chunk(w, &want, first, 1, false);
    } else {
        check_chunk(w, &want, 0, 1, true);
        check_chunk(w, &want, 5, 20, true);
    }
    attn_build_free(&want.build);
}

START_TEST(forms)
{
    if (!shard_has(_i))
        return;
    failures_clear();
    for (int i = 0; i < qattn__impl_count; i++) {
        struct world w = { .row = &qattn__impls[i], .base = invariance_world(_i) };
        if (!attn_row_wanted(w.row) || strcmp(w.row->id, "ref") == 0)
            continue;                                    /* ref: one row at a time by construction, and slow */
        invariance_lengths(_i, w.len_q, w.len_k);
        check_world(&w);
    }
    ck_assert_int_eq(failures(), 0);
}
END_TEST

/* ---------------------------------------------------------------- the choice */

/* The row of the table that would run the case. */
static const char *chosen(const struct attn_case *c)
{
    static struct problem p;
    char why[200];
    const char *id = "none";
    struct sequence *const seqs = calloc((size_t)c->b + 1, sizeof *seqs);
    struct attn_build b;
    attn_sequences(c, seqs);
    attn_build_init(&b, c, seqs);
    if (attn_build_problem(&b, &p, 1) == QATTN_OK) {
        p.device_type = QATTN_DEVICE_CUDA;
        for (int i = qattn__impl_count - 1; i >= 0; i--)
            if (qattn__impls[i].device_type == QATTN_DEVICE_CUDA && qattn__impls[i].supports(&p, why, sizeof why))
                id = qattn__impls[i].id;
    }
    attn_build_free(&b);
    free(seqs);
    return id;
}

/* What BATCH_INVARIANT says the implementation must not depend on. */
static struct attn_case vary(const struct attn_case *c, int form, struct rng *r)
{
    static const int64_t rows[] = { 1, 3, 17, 130 }, keys[] = { 5, 64, 150, 700 }, pages[] = { 1, 16, 24, 64 };
    struct attn_case v = *c;
    v.b = 1 + rng_below(r, 4);
    v.sq = grid_pick(r, rows, 4);
    v.sk = grid_pick(r, keys, 4);
    v.lay = form < 2 ? form : 4 + rng_below(r, 1 << 20);
    v.aligned = form % 2;
    v.bias = v.keep = v.max_q = v.max_k = v.q_scale = v.k_scale = v.v_scale = v.packed_q =
        v.packed_k = v.page = v.lead = 0;
    v.used_k = form == 3;
    if (v.op == OP_FLASH_FORWARD) {
        v.packed_q = form % 3 == 2;
        v.page = form >= 4 ? grid_pick(r, pages, 4) : 0;
        v.packed_k = v.packed_q && !v.page;
    }
    return v;
}

START_TEST(implementations)
{
    enum { FORMS = 8 };
    failures_clear();
    for (int64_t k = 0; k < 200; k++) {
        struct rng r = { hash64(310, (uint64_t)k), 0 };
        struct attn_case c = grid_random_tiles(k % 4 ? OP_FLASH_FORWARD : OP_GQA_FORWARD, &r);
        c.invariant = 1;
        c.splits = c.nan = 0;
        if (!shard_has(k))
            continue;
        struct attn_case v = vary(&c, 1, &r);
        const char *const first = chosen(&v);
        for (int form = 0; form < FORMS; form++) {
            char text[400];
            v = vary(&c, form, &r);
            attn_case_text(&v, text, sizeof text);
            case_begin("invariance/choice/%s", text);
            const char *const now = chosen(&v);
            if (strcmp(first, now) != 0)
                note_failure("BATCH_INVARIANT runs on %s, and on %s with packed aligned tensors", now, first);
            count_run("batch invariance choices", 1);
        }
    }
    ck_assert_int_eq(failures(), 0);
}
END_TEST

Suite *suite_invariance(void)
{
    Suite *s = suite_create("invariance");
    TCase *t = tcase_create("forms");
    tcase_set_tags(t, "cpu");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, forms, 0, grid_small() ? 3 : grid_wants_tiles() ? ALL_WORLDS : LEAST_WORLDS);
    suite_add_tcase(s, t);
    if (gpu_wanted()) {
        TCase *const choices = tcase_create("implementations");
        tcase_add_test(choices, implementations);
        suite_add_tcase(s, choices);
    }
    return s;
}
