/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The synthetic inputs against their published hashes, and every row of the table on them against
 * published float64 results (tests/data/README.md). */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/params.h"
#include "recipe.h"
#include "recipe_published.h"
#include "row_run.h"
#include "suites.h"
#include "support.h"
#include "tolerance.h"

enum { B = 2, HQ = 4, HKV = 2, SQ = 80, SK = 96, D = 64, BASE = 20261129 };
enum { Q_COUNT = B * HQ * SQ * D, K_COUNT = B * HKV * SK * D, LSE_COUNT = B * HQ * SQ };

/* One call on recipe inputs: values as bf16, packed. */
struct inputs {
    float f32[Q_COUNT]; /* scratch; q is the largest */
    uint16_t q[Q_COUNT], k[K_COUNT], v[K_COUNT];
    uint8_t keep[SQ * SK];
    int32_t seqused_k[B];
    qattn_tensor q_t, k_t, v_t;
    qattn_attn_params params;
};

struct outputs {
    char o[Q_COUNT * 4];
    float lse[LSE_COUNT];
    qattn_tensor o_t;
};

static struct inputs in;
static struct outputs out, other;

static struct recipe make_recipe(enum recipe_kind kind)
{
    return (struct recipe){ kind, BASE, B, HQ, HKV, SQ, SK, D, D };
}

static void round_to_bf16(const float *from, int64_t n, uint16_t *to)
{
    for (int64_t i = 0; i < n; i++)
        format_encode(QATTN_DTYPE_BF16, &to[i], (double)from[i]);
}

static void init_bhsd(qattn_tensor *t, void *data, int32_t dtype, int64_t h, int64_t s, int64_t d)
{
    ck_assert_int_eq(
        qattn_tensor_init(t, data, dtype, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BHSD, B, h, s, d),
        QATTN_OK);
}

static void make_inputs(enum recipe_kind kind, bool causal)
{
    const struct recipe r = make_recipe(kind);
    recipe_q(&r, in.f32);
    round_to_bf16(in.f32, Q_COUNT, in.q);
    recipe_k(&r, in.f32);
    round_to_bf16(in.f32, K_COUNT, in.k);
    recipe_v(&r, in.f32);
    round_to_bf16(in.f32, K_COUNT, in.v);
    recipe_keep(&r, in.keep);
    recipe_lengths(&r, in.seqused_k);
    init_bhsd(&in.q_t, in.q, QATTN_DTYPE_BF16, HQ, SQ, D);
    init_bhsd(&in.k_t, in.k, QATTN_DTYPE_BF16, HKV, SK, D);
    init_bhsd(&in.v_t, in.v, QATTN_DTYPE_BF16, HKV, SK, D);
    in.params = (qattn_attn_params)QATTN_ATTN_PARAMS_INIT;
    in.params.mask = causal ? QATTN_MASK_CAUSAL | QATTN_MASK_OFFSET : 0;
    in.params.q_offset =
        causal ? SK - SQ : 0; /* the published corner does not move with the lengths */
    if (recipe_has_keep(&r)) {
        ck_assert_int_eq(qattn_tensor_init(&in.params.keep, in.keep, QATTN_DTYPE_BOOL,
                                           QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BHSD, 1, 1, SQ, SK),
                         QATTN_OK);
    }
    if (recipe_has_lengths(&r))
        in.params.seqused_k = in.seqused_k;
}

static void make_problem(struct problem *p, enum op op, struct outputs *to, int32_t o_dtype)
{
    memset(to->o, 0xFF, sizeof to->o);
    memset(to->lse, 0xFF, sizeof to->lse);
    init_bhsd(&to->o_t, to->o, o_dtype, HQ, SQ, D);
    init_bhsd(&in.params.lse, to->lse, QATTN_DTYPE_F32, HQ, SQ, 1);
    ck_assert_int_eq(
        qattn__problem_attention(p, op, &in.q_t, &in.k_t, &in.v_t, &to->o_t, &in.params, false),
        QATTN_OK);
}

/* ---------------------------------------------------------------- hashes */

START_TEST(elements_and_hashes)
{
    static const float first[8] = { 0x1.c99c42p+0f, -0x1.32f29p+0f, -0x1.81b85ap-1f,
                                    0x1.0ebf8ep+0f, 0x1.ce9e24p-2f, -0x1.2e1844p-1f,
                                    0x1.1a6a28p-1f, 0x1.257c6ap-3f };
    const enum recipe_kind kind = (enum recipe_kind)_i;
    const struct recipe r = make_recipe(kind);
    if (!shard_has(2 * RECIPE_KINDS + 7 + _i))
        return;
    const size_t k_bytes = sizeof(float) * K_COUNT;
    make_inputs(kind, false);
    recipe_q(&r, in.f32);
    if (kind == RECIPE_NORMAL)
        ck_assert_mem_eq(in.f32, first, sizeof first);
    ck_assert_uint_eq(recipe_fnv(RECIPE_FNV_START, in.f32, sizeof in.f32), hash_f32[kind].q);
    recipe_k(&r, in.f32);
    ck_assert_uint_eq(recipe_fnv(RECIPE_FNV_START, in.f32, k_bytes), hash_f32[kind].k);
    recipe_v(&r, in.f32);
    ck_assert_uint_eq(recipe_fnv(RECIPE_FNV_START, in.f32, k_bytes), hash_f32[kind].v);
    ck_assert_uint_eq(recipe_fnv(RECIPE_FNV_START, in.q, sizeof in.q), hash_bf16[kind].q);
    ck_assert_uint_eq(recipe_fnv(RECIPE_FNV_START, in.k, sizeof in.k), hash_bf16[kind].k);
    ck_assert_uint_eq(recipe_fnv(RECIPE_FNV_START, in.v, sizeof in.v), hash_bf16[kind].v);
    if (recipe_has_keep(&r))
        ck_assert_uint_eq(recipe_fnv(RECIPE_FNV_START, in.keep, sizeof in.keep),
                          hash_bf16[kind].keep);
}
END_TEST

START_TEST(any_part_alone)
{
    float whole[101], part[40];
    recipe_normals(recipe_bits(BASE, 0), 0, 101, whole);
    for (int64_t first = 0; first <= 61; first++) {
        recipe_normals(recipe_bits(BASE, 0), first, 40, part);
        ck_assert_mem_eq(part, whole + first, sizeof part);
    }
}
END_TEST

START_TEST(hundred_million_elements)
{
    enum { CHUNK = 1000000 };
    float *const chunk = malloc(CHUNK * sizeof *chunk);
    uint64_t hash = RECIPE_FNV_START;
    ck_assert_ptr_nonnull(chunk);
    for (int64_t i = 0; i < 100; i++) {
        recipe_normals(recipe_bits(BASE, 0), i * CHUNK, CHUNK, chunk);
        hash = recipe_fnv(hash, chunk, CHUNK * sizeof *chunk);
    }
    free(chunk);
    ck_assert_uint_eq(hash, 0x7f554131bf6e991f);
}
END_TEST

/* ---------------------------------------------------------------- outputs */

static const char *label(const struct impl *row, enum op op, enum recipe_kind kind, int causal,
                         int32_t o_dtype)
{
    static char text[128];
    snprintf(text, sizeof text, "recipe/%s/%s/%s causal %d o %s", qattn__op_name(op),
             row ? row->id : "oracle", recipe_name(kind), causal, format_name(o_dtype));
    return text;
}

/* Index of row [b,h,i] among the oracle's rows: all rows are there, in order. */
static int64_t row_index(int64_t b, int64_t h, int64_t i)
{
    return (b * HQ + h) * SQ + i;
}

/* Published against own: both float64, the table has 15 and 12 digits. */
static void check_oracle(const struct oracle *oracle, const struct expected *e)
{
    const int64_t last = row_index(1, 3, 79), mid = row_index(0, 1, 40);
    double sum_o = 0, sum_lse = 0;
    int dead = 0;
    for (int64_t i = 0; i < oracle->count; i++) {
        dead += isinf(oracle->rows[i].lse) && oracle->rows[i].lse < 0;
        sum_lse += isfinite(oracle->rows[i].lse) ? oracle->rows[i].lse : 0;
        for (int64_t d = 0; d < D; d++)
            sum_o += fabs(oracle->o[i * D + d]);
    }
    ck_assert_double_eq_tol(oracle->o[last * D + 5], e->o_last, 1e-14);
    ck_assert_double_eq_tol(oracle->o[mid * D + 63], e->o_mid, 1e-14);
    ck_assert_double_eq_tol(oracle->rows[last].lse, e->lse_last, 1e-13);
    ck_assert_double_eq_tol(oracle->rows[mid].lse, e->lse_mid, 1e-13);
    ck_assert_double_eq_tol(sum_o / e->sum_o, 1, 2e-12);
    ck_assert_double_eq_tol(sum_lse / e->sum_lse, 1, 2e-12);
    ck_assert_int_eq(dead, e->dead);
}

static void check_number(const char *what, double got, double want, double bound)
{
    if (!(fabs(got - want) <= bound))
        note_failure("%s is %.12g, published %.12g, bound %.3g", what, got, want, bound);
}

/* A row's output against the published numbers; bounds come from the oracle's sums. */
static void check_published(const struct oracle *oracle, const struct problem *p,
                            const struct expected *e)
{
    double sum_o = 0, sum_lse = 0, bound_o = 0, bound_lse = 0, o_bound[2] = { 0 },
           lse_bound[2] = { 0 };
    const int64_t last = row_index(1, 3, 79), mid = row_index(0, 1, 40);
    int dead = 0;
    for (int64_t i = 0; i < oracle->count; i++) {
        const struct oracle_row *const row = &oracle->rows[i];
        const double e_s = tolerance_score(D, row->magnitude);
        const double lse = out.lse[i];
        const double l = isfinite(row->lse) ? tolerance_lse(e_s, row->magnitude, row->lse) : 0;
        dead += isinf(lse) && lse < 0;
        sum_lse += isinf(lse) ? 0 : lse;
        bound_lse += l;
        lse_bound[0] = i == last ? l : lse_bound[0];
        lse_bound[1] = i == mid ? l : lse_bound[1];
        for (int64_t d = 0; d < D; d++) {
            const double o = tolerance_output(p->q.dtype, p->v.dtype, p->o.dtype, e_s,
                                              oracle->o[i * D + d], oracle->o_abs[i * D + d]);
            sum_o += fabs(format_decode(p->o.dtype, out.o + (i * D + d) * p->o.itemsize));
            bound_o += o;
            o_bound[0] = i == last && d == 5 ? o : o_bound[0];
            o_bound[1] = i == mid && d == 63 ? o : o_bound[1];
        }
    }
    check_number("O[1,3,79,5]", format_decode(p->o.dtype, out.o + (last * D + 5) * p->o.itemsize),
                 e->o_last, o_bound[0]);
    check_number("O[0,1,40,63]", format_decode(p->o.dtype, out.o + (mid * D + 63) * p->o.itemsize),
                 e->o_mid, o_bound[1]);
    check_number("LSE[1,3,79]", out.lse[last], e->lse_last, lse_bound[0]);
    check_number("LSE[0,1,40]", out.lse[mid], e->lse_mid, lse_bound[1]);
    check_number("sum |O|", sum_o, e->sum_o, bound_o);
    check_number("sum LSE", sum_lse, e->sum_lse, bound_lse);
    check_number("rows without keys", dead, e->dead, 0);
}

START_TEST(published_outputs)
{
    static const int32_t o_dtypes[2] = { QATTN_DTYPE_F32, QATTN_DTYPE_BF16 };
    static const enum op ops[2] = { OP_FLASH_FORWARD, OP_GQA_FORWARD };
    if (!shard_has(_i))
        return;
    const enum recipe_kind kind = (enum recipe_kind)(_i / 2);
    const int causal = _i % 2;
    const struct expected *const e = &outputs[kind][causal];
    const struct impl *rows[ROW_MAX];
    struct problem p;

    failures_clear();
    make_inputs(kind, causal);
    make_problem(&p, OP_FLASH_FORWARD, &out, QATTN_DTYPE_F32);
    case_begin("%s", label(NULL, p.op, kind, causal, QATTN_DTYPE_F32));
    struct oracle oracle = oracle_make(&p, 1, 1, 1);
    ck_assert_int_eq(oracle.count, LSE_COUNT);
    check_oracle(&oracle, e);
    for (int run = 0; run < 4; run++) {
        make_problem(&p, ops[run / 2], &out, o_dtypes[run % 2]);
        const int n = rows_for(&p, rows);
        for (int i = 0; i < n; i++) {
            make_problem(&p, ops[run / 2], &out, o_dtypes[run % 2]);
            case_begin("%s", label(rows[i], p.op, kind, causal, p.o.dtype));
            ck_assert_int_eq(row_run(rows[i], &p), QATTN_OK);
            oracle_agrees(&oracle, &p, -1, "recipe");
            check_published(&oracle, &p, e);
            count_run("recipe", 1);
        }
        ck_assert_int_gt(n, 0);
    }
    oracle_free(&oracle);
    ck_assert_int_eq(failures(), 0);
}
END_TEST

/* ---------------------------------------------------------------- hidden poison */

/* Which of the two causes hide keys in a run. */
struct hiding {
    bool keep, lengths;
};

static bool is_hidden(const struct hiding *hiding, int64_t b, int64_t j)
{
    return (hiding->lengths && j >= in.seqused_k[b]) || (hiding->keep && j % 7 == 6);
}

/* Zeroes the keys that are hidden, or those that are poisoned but visible. */
static void zero_keys(const struct hiding *hiding, bool hidden)
{
    const struct hiding both = { true, true };
    for (int64_t i = 0; i < B * HKV * SK; i++) {
        const int64_t b = i / (HKV * SK), j = i % SK;
        if (hidden ? is_hidden(hiding, b, j) : is_hidden(&both, b, j) && !is_hidden(hiding, b, j)) {
            memset(in.k + i * D, 0, D * sizeof *in.k);
            memset(in.v + i * D, 0, D * sizeof *in.v);
        }
    }
}

/* Same bits with poison behind the mask as with zeros there, and nothing non-finite. */
START_TEST(poison_behind_masks)
{
    static const struct hiding hidings[3] = { { true, true }, { true, false }, { false, true } };
    static const enum op ops[2] = { OP_FLASH_FORWARD, OP_GQA_FORWARD };
    const struct hiding *const hiding = &hidings[_i / 2];
    const int causal = _i % 2;
    const struct impl *rows[ROW_MAX];
    struct problem p;

    if (!shard_has(2 * RECIPE_KINDS + _i))
        return;
    failures_clear();
    for (int run = 0; run < 2; run++) {
        make_inputs(RECIPE_POISON, causal);
        if (!hiding->keep)
            in.params.keep = (qattn_tensor){ 0 };
        if (!hiding->lengths)
            in.params.seqused_k = NULL;
        zero_keys(hiding, false);
        make_problem(&p, ops[run], &out, QATTN_DTYPE_F32);
        const int n = rows_for(&p, rows);
        for (int i = 0; i < n; i++) {
            case_begin("%s keep %d lengths %d",
                       label(rows[i], p.op, RECIPE_POISON, causal, QATTN_DTYPE_F32), hiding->keep,
                       hiding->lengths);
            make_inputs(RECIPE_POISON, causal);
            if (!hiding->keep)
                in.params.keep = (qattn_tensor){ 0 };
            if (!hiding->lengths)
                in.params.seqused_k = NULL;
            zero_keys(hiding, false);
            make_problem(&p, ops[run], &out, QATTN_DTYPE_F32);
            ck_assert_int_eq(row_run(rows[i], &p), QATTN_OK);
            for (int64_t x = 0; x < Q_COUNT; x++)
                if (!isfinite(format_decode(QATTN_DTYPE_F32, out.o + x * 4))) {
                    note_failure("O element %lld is not finite", (long long)x);
                    break;
                }
            zero_keys(hiding, true);
            make_problem(&p, ops[run], &other, QATTN_DTYPE_F32);
            ck_assert_int_eq(row_run(rows[i], &p), QATTN_OK);
            if (memcmp(out.o, other.o, sizeof out.o) != 0 ||
                memcmp(out.lse, other.lse, sizeof out.lse) != 0)
                note_failure("hidden poison changes bits");
            count_run("recipe", 1);
        }
    }
    ck_assert_int_eq(failures(), 0);
}
END_TEST

/* kv_len 0 in every batch: all rows are dead. */
START_TEST(no_keys_at_all)
{
    static const enum op ops[2] = { OP_FLASH_FORWARD, OP_GQA_FORWARD };
    const struct impl *rows[ROW_MAX];
    struct problem p;
    if (!shard_has(2 * RECIPE_KINDS + 6))
        return;
    failures_clear();
    for (int run = 0; run < 4; run++) {
        make_inputs(RECIPE_NORMAL, run / 2);
        memset(in.seqused_k, 0, sizeof in.seqused_k);
        in.params.seqused_k = in.seqused_k;
        make_problem(&p, ops[run % 2], &out, QATTN_DTYPE_BF16);
        const int n = rows_for(&p, rows);
        for (int i = 0; i < n; i++) {
            make_problem(&p, ops[run % 2], &out, QATTN_DTYPE_BF16);
            case_begin("%s no keys", label(rows[i], p.op, RECIPE_NORMAL, run / 2, p.o.dtype));
            ck_assert_int_eq(row_run(rows[i], &p), QATTN_OK);
            int64_t bad = 0;
            for (int64_t x = 0; x < Q_COUNT; x++)
                bad += format_decode(QATTN_DTYPE_BF16, out.o + x * 2) != 0;
            for (int64_t x = 0; x < LSE_COUNT; x++)
                bad += !(isinf(out.lse[x]) && out.lse[x] < 0);
            if (bad)
                note_failure("%lld elements are not O = 0, LSE = -inf", (long long)bad);
            count_run("recipe", 1);
        }
    }
    ck_assert_int_eq(failures(), 0);
}
END_TEST

Suite *suite_recipe(void)
{
    Suite *const suite = suite_create("recipe");
    TCase *const inputs_case = tcase_create("inputs");
    TCase *const outputs_case = tcase_create("outputs");
    tcase_set_timeout(inputs_case, 60);
    tcase_add_loop_test(inputs_case, elements_and_hashes, 0, RECIPE_KINDS);
    tcase_add_test(inputs_case, any_part_alone);
    tcase_set_timeout(outputs_case, 60);
    tcase_add_loop_test(outputs_case, published_outputs, 0, 2 * RECIPE_KINDS);
    tcase_add_loop_test(outputs_case, poison_behind_masks, 0, 6);
    tcase_add_test(outputs_case, no_keys_at_all);
    suite_add_tcase(suite, inputs_case);
    suite_add_tcase(suite, outputs_case);
    if (env_number("QATTN_TEST_BIG", 0)) {
        TCase *const big = tcase_create("big");
        tcase_set_tags(big, "big");
        tcase_set_timeout(big, 120);
        tcase_add_test(big, hundred_million_elements);
        suite_add_tcase(suite, big);
    }
    return suite;
}
