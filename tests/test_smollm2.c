/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Real activations: queries, keys and values of SmolLM2-135M-Instruct (tests/data/smollm2) with
 * outputs computed in float64 from the stored inputs. Rows 0..511 are the prefill of a prompt, row
 * 512 is the first decode step; causal, 9 query heads on 3 key heads. Each file as it lies,
 * [B,H,S,D], and as views of a fused [token][q|k|v] buffer with O written token by token, the way a
 * model holds them.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/params.h"
#include "qv.h"
#include "row_run.h"
#include "suites.h"
#include "support.h"
#include "tolerance.h"

enum { PREFILL = 512, TOKENS = 513, WIDTH = 64 };

/* Floors of tests/data/README.md, unnormalised P rounded to the type before P V: largest absolute
 * error, and the worst head's rms error over the rms of its output. f32: of float32 arithmetic, all
 * nine heads. */
static const struct {
    const char *name;
    double max_abs, rms;
} models[] = {
    { "promptA_layer00_bf16", 1.9e-3, 1.9e-3 },
    { "promptA_layer15_bf16", 9.1e-3, 1.8e-3 },
    { "promptA_layer15_f16", 1.25e-3, 2.3e-4 },
    { "promptA_layer00_f32_group1", 2.5e-7, 4.8e-7 },
};
enum { MODELS = sizeof models / sizeof models[0], MODELS_16BIT = 3 };

/* How far above the floors a path may lie. The floors have two digits; f32's depend on the order of
 * the sums. */
static double max_factor(int32_t dtype)
{
    return dtype == QATTN_DTYPE_F32 ? 4.0 : 1.2;
}
static double rms_factor(int32_t dtype)
{
    return dtype == QATTN_DTYPE_F32 ? TOLERANCE_RMS_FACTOR_F32 : TOLERANCE_RMS_FACTOR;
}

static struct qv file;

static void open_model(int index)
{
    char path[64];
    snprintf(path, sizeof path, "smollm2/%s.qv", models[index].name);
    ck_assert_msg(qv_open(&file, data_path(path)) == 0, "%s: %s", path, file.error);
}

/* ---------------------------------------------------------------- views */

struct views {
    qattn_tensor q, k, v;
    struct box fused;
};

/* Tokens first .. first+count-1 of t, a [1,H,513,D] view. */
static qattn_tensor slice_tokens(qattn_tensor t, int64_t first, int64_t count)
{
    t.data = (char *)t.data + first * t.stride[2] * format_size(t.dtype);
    t.shape[2] = count;
    return t;
}

static qattn_tensor stored_tensor(const char *name)
{
    const struct qv_tensor *const t = qv_tensor(&file, "in", name);
    union {
        const void *in;
        void *out;
    } data = { t->data };
    qattn_tensor out;
    ck_assert_int_eq(t->dim[2], TOKENS);
    ck_assert_int_eq(qattn_tensor_init(&out, data.out, qv_dtype(t), QATTN_DEVICE_CPU, 0,
                                       QATTN_LAYOUT_BHSD, 1, t->dim[1], TOKENS, WIDTH),
                     QATTN_OK);
    return out;
}

/* Copies `from` into columns of the fused buffer, starting at element `at` of each token. */
static qattn_tensor fuse(struct box *fused, qattn_tensor from, int64_t at)
{
    qattn_tensor to = from;
    to.data = box_at(fused, 0, 0, 0, at);
    to.stride[0] = 0;
    to.stride[1] = WIDTH;
    to.stride[2] = fused->t.shape[3];
    const int64_t item = format_size(from.dtype);
    for (int64_t h = 0; h < from.shape[1]; h++)
        for (int64_t s = 0; s < TOKENS; s++)
            memcpy((char *)to.data + (h * to.stride[1] + s * to.stride[2]) * item,
                   (const char *)from.data + (h * from.stride[1] + s * from.stride[2]) * item,
                   (size_t)(WIDTH * item));
    return to;
}

static struct views make_views(bool fused)
{
    struct views x = { .q = stored_tensor("Q"), .k = stored_tensor("K"), .v = stored_tensor("V") };
    if (!fused)
        return x;
    const struct layout layout = layout_packed(QATTN_LAYOUT_BHSD);
    const int64_t hq = x.q.shape[1], hkv = x.k.shape[1];
    const int64_t shape[4] = { 1, 1, TOKENS, (hq + 2 * hkv) * WIDTH };
    x.fused = box_new(x.q.dtype, shape, &layout, POISON_INPUT);
    x.q = fuse(&x.fused, x.q, 0);
    x.k = fuse(&x.fused, x.k, hq * WIDTH);
    x.v = fuse(&x.fused, x.v, (hq + hkv) * WIDTH);
    return x;
}

/* ---------------------------------------------------------------- comparison with the stored
 * outputs */

/* Largest |O - stored| and the worst head's relative rms, rows first .. of the file. */
static void measure(const struct problem *p, int64_t first, double *max_abs, double *rms)
{
    const struct qv_tensor *const ref = qv_tensor(&file, "ref", "O");
    *max_abs = *rms = 0;
    for (int64_t h = 0; h < p->hq; h++) {
        double error = 0, square = 0;
        for (int64_t i = 0; i < p->q.shape[2]; i++)
            for (int64_t d = 0; d < WIDTH; d++) {
                const double want = qv_get(ref, (h * TOKENS + first + i) * WIDTH + d);
                const double e = format_decode(p->o.dtype, view_at(&p->o, 0, h, i, d)) - want;
                if (!(fabs(e) <= *max_abs))
                    *max_abs = fabs(e);
                error += e * e;
                square += want * want;
            }
        const double relative = sqrt(error / square);
        if (!(relative <= *rms))
            *rms = relative;
    }
}

/* The oracle against the file: what it says of rows must be what is stored, to the file's own
 * rounding. */
static void check_oracle(const struct oracle *oracle, int64_t first, double unit)
{
    const struct qv_tensor *const ref = qv_tensor(&file, "ref", "O"), *const lse = qv_tensor(
                                                                          &file, "ref", "LSE");
    for (int64_t r = 0; r < oracle->count; r++) {
        const struct oracle_row *const row = &oracle->rows[r];
        const int64_t at = row->h * TOKENS + first + row->i;
        ck_assert_double_eq_tol(row->lse, qv_get(lse, at), 1e-12 * (1 + fabs(row->lse)));
        for (int64_t d = 0; d < WIDTH; d++)
            ck_assert_double_eq_tol(oracle->o[r * WIDTH + d], qv_get(ref, at * WIDTH + d),
                                    unit * fabs(oracle->o[r * WIDTH + d]) + 1e-13);
    }
}

/* One part of the file, one op, every row; o_dtype 0: q's. first 0: the prefill; else the decode
 * step. */
static void run_rows(int model, const struct views *x, bool fused, int64_t first, enum op op,
                     int32_t o_dtype, struct oracle *oracle)
{
    const struct layout layout = layout_packed(fused ? QATTN_LAYOUT_BSHD : QATTN_LAYOUT_BHSD);
    const struct layout plain = layout_packed(QATTN_LAYOUT_BHSD);
    const int64_t count = first == 0 ? PREFILL : 1, keys = first + count;
    const int64_t o_shape[4] = { 1, x->q.shape[1], count, WIDTH },
                  lse_shape[4] = { 1, x->q.shape[1], count, 1 };
    const qattn_tensor q = slice_tokens(x->q, first, count);
    const qattn_tensor k = slice_tokens(x->k, 0, keys), v = slice_tokens(x->v, 0, keys);
    const struct impl *rows[ROW_MAX];
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    struct problem p;

    params.mask = QATTN_MASK_CAUSAL;
    for (int i = 0, n = 1; i < n; i++) {
        struct box o = box_new(o_dtype ? o_dtype : q.dtype, o_shape, &layout, POISON_OUTPUT);
        struct box lse = box_new(QATTN_DTYPE_F32, lse_shape, &plain, POISON_OUTPUT);
        double max_abs, rms;
        params.lse = lse.t;
        ck_assert_int_eq(qattn__problem_attention(&p, op, &q, &k, &v, &o.t, &params, false),
                         QATTN_OK);
        if (oracle->rows == NULL) {
            *oracle = oracle_make(&p, grid_small() ? 63 : 7, 1, 1);
            check_oracle(oracle, first, q.dtype == QATTN_DTYPE_F32 ? 0 : 0x1p-24);
        }
        n = rows_for(&p, rows);
        ck_assert_int_gt(n, 0);
        if (strcmp(rows[i]->id, "ref") == 0 && n > 1 && first == 0 && !(fused && o_dtype == 0)) {
            box_free(&o); /* the reference is slow: its prefill runs once for each op */
            box_free(&lse);
            break;
        }
        case_begin("smollm2/%s/%s/%s %s %s o %s", qattn__op_name(op), rows[i]->id,
                   models[model].name, first ? "decode" : "prefill", fused ? "fused" : "bhsd",
                   format_name(p.o.dtype));
        ck_assert_int_eq(row_run(rows[i], &p), QATTN_OK);
        oracle_agrees(oracle, &p, -1, "float64");
        measure(&p, first, &max_abs, &rms);
        if (!(max_abs <= max_factor(q.dtype) * models[model].max_abs))
            note_failure("largest error %.3g, floor %.3g", max_abs, models[model].max_abs);
        if (first == 0 && !(rms <= rms_factor(q.dtype) * models[model].rms))
            note_failure("rms error %.3g, floor %.3g", rms, models[model].rms);
        char key[64];
        snprintf(key, sizeof key, "smollm2 %s %s %s", models[model].name, rows[i]->id,
                 qattn__op_name(op));
        if (p.o.dtype == q.dtype)
            report_ratio(key, max_abs / models[model].max_abs);
        count_run("smollm2", 1);
        box_free(&o);
        box_free(&lse);
    }
}

START_TEST(stored_types)
{
    static const enum op ops[2] = { OP_FLASH_FORWARD, OP_GQA_FORWARD };
    if (!shard_has(_i))
        return;
    failures_clear();
    open_model(_i);
    for (int part = 0; part < 2; part++) {
        struct oracle oracle = { 0 };
        for (int fused = 0; fused < 2; fused++) {
            struct views x = make_views(fused);
            for (int o = 0; o < 2; o++) {
                run_rows(_i, &x, fused, part ? PREFILL : 0, ops[o], 0, &oracle);
                if (x.q.dtype != QATTN_DTYPE_F32)
                    run_rows(_i, &x, fused, part ? PREFILL : 0, ops[o], QATTN_DTYPE_F32, &oracle);
            }
            if (fused)
                box_free(&x.fused);
        }
        oracle_free(&oracle);
    }
    qv_close(&file);
    ck_assert_int_eq(failures(), 0);
}
END_TEST

/* ---------------------------------------------------------------- 8-bit */

/* What is stored in 8 bits, and how far O may then lie from the output of the unquantised inputs:
 * the worst head's relative rms (the quantisation's own error; ten times that would be a wrong
 * descale). */
static const struct {
    const char *name;
    int32_t kv;
    bool q_too;
    double rms;
} eights[] = {
    { "kv i8", QATTN_DTYPE_I8, false, 0.1 },
    { "kv e4m3", QATTN_DTYPE_E4M3FN, false, 0.1 },
    { "qkv e4m3", QATTN_DTYPE_E4M3FN, true, 0.15 },
};
enum { EIGHTS = sizeof eights / sizeof eights[0] };

/* t quantised head by head into *box; *scale [1,H,1,1] gets the factors back. */
static void quantise(const qattn_tensor *t, int32_t dtype, struct box *box, struct box *scale)
{
    const struct layout layout = layout_packed(QATTN_LAYOUT_BSHD);
    const int64_t one[4] = { 1, t->shape[1], 1, 1 };
    const double largest_code = dtype == QATTN_DTYPE_I8 ? 127 : 448;
    const int64_t item = format_size(t->dtype);
    *box = box_new(dtype, t->shape, &layout, POISON_INPUT);
    *scale = box_new(QATTN_DTYPE_F32, one, &layout, POISON_INPUT);
    for (int64_t h = 0; h < t->shape[1]; h++) {
        const char *const head = (const char *)t->data + h * t->stride[1] * item;
        double largest = 0;
        for (int64_t x = 0; x < TOKENS * WIDTH; x++)
            largest = fmax(largest, fabs(format_decode(t->dtype, head + x * item)));
        box_set(scale, 0, h, 0, 0, largest / largest_code);
        const double back = box_get(scale, 0, h, 0, 0);
        for (int64_t x = 0; x < TOKENS * WIDTH; x++)
            box_set(box, 0, h, x / WIDTH, x % WIDTH,
                    format_decode(t->dtype, head + x * item) / back);
    }
}

static void run_eight_bit(int model, int kind, enum op op)
{
    const struct layout layout = layout_packed(QATTN_LAYOUT_BSHD);
    const struct impl *rows[ROW_MAX];
    struct views x = make_views(false);
    struct box k, v, q = { 0 }, k_scale, v_scale, q_scale = { 0 };
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    struct oracle oracle = { 0 };
    struct problem p;

    quantise(&x.k, eights[kind].kv, &k, &k_scale);
    quantise(&x.v, eights[kind].kv, &v, &v_scale);
    params.mask = QATTN_MASK_CAUSAL;
    params.k_descale = k_scale.t;
    params.v_descale = v_scale.t;
    if (eights[kind].q_too) {
        quantise(&x.q, eights[kind].kv, &q, &q_scale);
        params.q_descale = q_scale.t;
    }
    const int64_t lse_shape[4] = { 1, x.q.shape[1], TOKENS, 1 };
    for (int i = 0, n = 1; i < n; i++) {
        struct box o = box_new(x.q.dtype, x.q.shape, &layout, POISON_OUTPUT);
        struct box lse = box_new(QATTN_DTYPE_F32, lse_shape, &layout, POISON_OUTPUT);
        double max_abs, rms;
        params.lse = lse.t;
        ck_assert_int_eq(
            qattn__problem_attention(&p, op, q.map ? &q.t : &x.q, &k.t, &v.t, &o.t, &params, false),
            QATTN_OK);
        if (oracle.rows == NULL)
            oracle = oracle_make(&p, grid_small() ? 63 : 7, 1, 1);
        n = rows_for(&p, rows);
        if (n == 0) {
            note_failure("no row runs it");
        } else {
            case_begin("smollm2/%s/%s/%s %s", qattn__op_name(op), rows[i]->id, models[model].name,
                       eights[kind].name);
            ck_assert_int_eq(row_run(rows[i], &p), QATTN_OK);
            oracle_agrees(&oracle, &p, -1, "float64 of the dequantised values");
            measure(&p, 0, &max_abs, &rms);
            if (!(rms <= eights[kind].rms))
                note_failure("rms distance %.3g from the unquantised output, limit %.3g", rms,
                             eights[kind].rms);
            count_run("smollm2 8-bit", 1);
        }
        box_free(&o);
        box_free(&lse);
    }
    oracle_free(&oracle);
    box_free(&k);
    box_free(&v);
    box_free(&k_scale);
    box_free(&v_scale);
    if (q.map) {
        box_free(&q);
        box_free(&q_scale);
    }
}

START_TEST(eight_bit_keys)
{
    if (!shard_has(MODELS + _i))
        return;
    failures_clear();
    open_model(_i / EIGHTS);
    run_eight_bit(_i / EIGHTS, _i % EIGHTS, OP_FLASH_FORWARD);
    run_eight_bit(_i / EIGHTS, _i % EIGHTS, OP_GQA_FORWARD);
    qv_close(&file);
    ck_assert_int_eq(failures(), 0);
}
END_TEST

Suite *suite_smollm2(void)
{
    Suite *const suite = suite_create("smollm2");
    TCase *const stored = tcase_create("stored");
    TCase *const eight = tcase_create("eight_bit");
    tcase_set_timeout(stored, 120);
    tcase_set_timeout(eight, 120);
    tcase_add_loop_test(stored, stored_types, 0, MODELS);
    tcase_add_loop_test(eight, eight_bit_keys, 0, MODELS_16BIT * EIGHTS);
    suite_add_tcase(suite, stored);
    suite_add_tcase(suite, eight);
    return suite;
}
