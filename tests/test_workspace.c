/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * What *_workspace answers for shapes suffices for any strides and alignment of these shapes, on whatever row of the
 * table they lead to: random problems, asked once with strides of one layout and without data, and compared with what
 * the chosen row takes in other layouts. Nothing is computed.
 */
#include <check.h>
#include <stdlib.h>

#include "attn_run.h"
#include "core/params.h"
#include "gpu.h"
#include "grid.h"
#include "suites.h"

enum { PROBLEMS = 300, LAYOUTS = 5 };

/* The same shape without memory, on the device under test. */
static qattn_tensor hollow(qattn_tensor t)
{
    if (t.dtype) {
        t.data = NULL;
        t.device_type = gpu_device_type();
    }
    return t;
}

static int32_t ask(const struct attn_build *b, size_t *bytes)
{
    const qattn_tensor q = hollow(b->q.t), k = hollow(b->k.t), v = hollow(b->v.t), o = hollow(b->o.t);
    if (b->c->op == OP_SOFTMAX) {
        qattn_softmax_params s = b->softmax;
        s.lse = hollow(s.lse);
        s.bias = hollow(s.bias);
        s.keep = hollow(s.keep);
        return qattn_softmax_workspace(&q, &o, &s, bytes);
    }
    qattn_attn_params p = b->attn;
    qattn_tensor *const extras[] = { &p.lse, &p.bias, &p.keep, &p.scores, &p.q_descale, &p.k_descale, &p.v_descale };
    for (size_t i = 0; i < sizeof extras / sizeof *extras; i++)
        *extras[i] = hollow(*extras[i]);
    return b->c->op == OP_GQA_FORWARD ? qattn_gqa_forward_workspace(&q, &k, &v, &o, &p, bytes)
                                      : qattn_flash_forward_workspace(&q, &k, &v, &o, &p, bytes);
}

/* What the row that would run the build takes; *id: which one. */
static size_t taken(const struct attn_build *b, const char **id)
{
    static struct problem p;
    char why[200];
    ck_assert_int_eq(attn_build_problem(b, &p, 0), QATTN_OK);
    p.device_type = gpu_device_type();
    for (int i = 0; i < qattn__impl_count; i++)
        if (qattn__impls[i].device_type == p.device_type && qattn__impls[i].supports(&p, why, sizeof why)) {
            *id = qattn__impls[i].id;
            return qattn__impls[i].workspace(&p);
        }
    *id = "none";
    return 0;
}

static void check(const struct attn_case *c, struct rng *r)
{
    size_t answers[LAYOUTS], takes[LAYOUTS];
    const char *ids[LAYOUTS] = { NULL };
    struct sequence *const seqs = calloc((size_t)c->b + 1, sizeof *seqs);
    attn_sequences(c, seqs);
    for (int k = 0; k < LAYOUTS; k++) {
        struct attn_case other = *c;
        struct attn_build b;
        other.lay = k < 2 ? k : 4 + rng_below(r, 1 << 20);
        other.aligned = k % 3;
        attn_build_init(&b, &other, seqs);
        if (ask(&b, &answers[k]) != QATTN_OK)
            answers[k] = SIZE_MAX;                   /* refused for its types or combination: in every layout */
        takes[k] = answers[k] == SIZE_MAX ? 0 : taken(&b, &ids[k]);
        attn_build_free(&b);
    }
    for (int k = 1; k < LAYOUTS; k++)
        if ((answers[k] == SIZE_MAX) != (answers[0] == SIZE_MAX))
            note_failure("layout %d is %s, layout 0 is not", k, answers[k] == SIZE_MAX ? "refused" : "taken");
    for (int k = 0; k < LAYOUTS; k++)
        for (int x = 0; x < LAYOUTS; x++)
            if (takes[x] > answers[k])
                note_failure("asked in layout %d: %zu bytes, but %s takes %zu in layout %d", k,
                             answers[k], ids[x], takes[x], x);
    if (answers[0] == SIZE_MAX)
        count_skipped("workspace answers", "the combination is refused", LAYOUTS);
    else
        count_run("workspace answers", LAYOUTS);
    free(seqs);
}

START_TEST(any_strides)
{
    static const enum op ops[] = { OP_FLASH_FORWARD, OP_FLASH_FORWARD, OP_GQA_FORWARD, OP_SOFTMAX };
    failures_clear();
    for (int64_t i = 0; i < (grid_small() ? PROBLEMS / 8 : PROBLEMS); i++) {
        struct rng r = { hash64(314, (uint64_t)i), 0 };
        const enum op op = ops[i % 4];
        struct attn_case c = op != OP_SOFTMAX && rng_below(&r, 2) ? grid_random_tiles(op, &r)
                                                                  : attn_case_random(op, &r);
        char text[400];
        c.in_place = 0;
        attn_case_text(&c, text, sizeof text);
        case_begin("workspace/%s", text);
        if (shard_has(i))
            check(&c, &r);
    }
    ck_assert_int_eq(failures(), 0);
}
END_TEST

/* The answer for descales shaped [.., D] is the same whether the D of them lie apart or are one (stride 0), and
 * suffices for both: a row that runs one of the two alone must not ask for more than was answered for the other. */
static void check_descales(const struct attn_case *c)
{
    size_t answers[2], takes[2];
    const char *ids[2] = { NULL };
    struct sequence *const seqs = calloc((size_t)c->b + 1, sizeof *seqs);
    struct attn_build b;
    attn_sequences(c, seqs);
    attn_build_init(&b, c, seqs);
    for (int k = 0; k < 2; k++) {
        b.attn.k_descale.stride[3] = b.attn.v_descale.stride[3] = k;
        if (ask(&b, &answers[k]) != QATTN_OK)
            note_failure("refused with stride %d", k);
        takes[k] = taken(&b, &ids[k]);
    }
    for (int k = 0; k < 2; k++)
        if (answers[k] != answers[0] || takes[k] > answers[0])
            note_failure("with stride %d: %zu bytes, %s takes %zu; with stride 0: %zu bytes", k, answers[k], ids[k],
                         takes[k], answers[0]);
    count_run("workspace of descales", 2);
    attn_build_free(&b);
    free(seqs);
}

START_TEST(descale_strides)
{
    static const int64_t sizes[][3] = { { 1, 1, 4097 }, { 2, 70, 300 }, { 1, 4, 6000 } };
    failures_clear();
    for (int64_t i = 0; i < 3 * 9 * 2; i++) {
        struct attn_case c = grid_typed(i % 2 ? OP_GQA_FORWARD : OP_FLASH_FORWARD, FIRST_BYTE_TYPES + i / 2 % 9);
        char text[400];
        grid_shape(&c, sizes[i / 18][0], 8, 2, sizes[i / 18][1], sizes[i / 18][2], 64);
        c.k_scale = c.v_scale = SCALE_SEQ_KVHEAD_D;
        attn_case_text(&c, text, sizeof text);
        case_begin("workspace of descales/%s", text);
        if (shard_has(i))
            check_descales(&c);
    }
    ck_assert_int_eq(failures(), 0);
}
END_TEST

/* Scores that no memory holds: a refusal, or a number that says so, not one that wrapped. The CPU keeps no scores. */
START_TEST(no_memory_holds)
{
    static const int64_t lengths[][3] = {
        { (int64_t)1 << 31, (int64_t)1 << 32, 1 }, { (int64_t)1 << 40, (int64_t)1 << 40, 1 }, { 1, INT64_MAX, 0 },
        { INT64_MAX, INT64_MAX, 0 }, { (int64_t)1 << 61, 3, 0 },
    };
    static const int32_t types[] = { F16, BF16, F32, E4M3 };
    const int64_t sq = lengths[_i / 4][0], sk = lengths[_i / 4][1], d = lengths[_i / 4][2];
    const int32_t type = types[_i % 4], device = gpu_device_type();
    qattn_tensor q, k, v, o;
    size_t bytes = 0;
    ck_assert_int_eq(qattn_tensor_init(&q, NULL, type, device, 0, QATTN_LAYOUT_BHSD, 1, 1, sq, d), QATTN_OK);
    ck_assert_int_eq(qattn_tensor_init(&k, NULL, type, device, 0, QATTN_LAYOUT_BHSD, 1, 1, sk, d), QATTN_OK);
    if (qattn_tensor_init(&v, NULL, type, device, 0, QATTN_LAYOUT_BHSD, 1, 1, sk, 1) != QATTN_OK ||
        qattn_tensor_init(&o, NULL, type == E4M3 ? F32 : type, device, 0, QATTN_LAYOUT_BHSD, 1, 1, sq, 1) != QATTN_OK)
        return;                                                  /* nor does an address */
    const int32_t status = qattn_gqa_forward_workspace(&q, &k, &v, &o, NULL, &bytes);
    const bool fits = (double)sq * (double)sk < 0x1p61;
    if (status == QATTN_OK && gpu_wanted() && !fits) {
        ck_assert_msg(bytes >= (size_t)1 << 62, "%zu bytes for %lld x %lld scores", bytes, (long long)sq,
                      (long long)sk);
        count_run("workspace of too much", 1);
    }
}
END_TEST

Suite *suite_workspace(void)
{
    Suite *const s = suite_create("workspace");
    TCase *const t = tcase_create("workspace");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, any_strides);
    tcase_add_test(t, descale_strides);
    tcase_add_loop_test(t, no_memory_holds, 0, 5 * 4);
    suite_add_tcase(s, t);
    return s;
}
