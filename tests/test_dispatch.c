/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The table and how a row is picked: order, explain, environment, NO_FALLBACK, workspaces. The environment is read once
 * a process, so these tests count on Check's forks: each sets its variables before the first call.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attn_run.h"
#include "core/config.h"
#include "core/params.h"
#include "suites.h"

enum { B = 1, H = 2, S = 6, D = 8, TEXT = 2048 };
static float memory[4][B * H * S * D];

struct call { qattn_tensor q, k, v, o; qattn_attn_params p; };

static struct call make_call(void)
{
    struct call c = { .p = QATTN_ATTN_PARAMS_INIT };
    qattn_tensor *const t[4] = { &c.q, &c.k, &c.v, &c.o };
    for (int i = 0; i < 4; i++)
        qattn_tensor_init(t[i], memory[i], QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BHSD, B, H, S, D);
    return c;
}

static int32_t run(const struct call *c) { return qattn_flash_forward(&c->q, &c->k, &c->v, &c->o, &c->p, NULL); }

static int32_t explain(const struct call *c, char *text)
{
    return qattn_flash_forward_explain(&c->q, &c->k, &c->v, &c->o, &c->p, text, TEXT);
}

static bool first_line_is(const char *text, const char *id)
{
    return strncmp(text, id, strlen(id)) == 0 && (text[strlen(id)] == '\n' || text[strlen(id)] == '\0');
}

/* ---------------------------------------------------------------- the table */

START_TEST(table)
{
    ck_assert_int_ge(qattn__impl_count, 2);
    for (int i = 0; i < qattn__impl_count; i++) {
        const struct impl *row = &qattn__impls[i];
        ck_assert_ptr_nonnull(row->id);
        ck_assert_ptr_nonnull(row->supports);
        ck_assert_ptr_nonnull(row->workspace);
        ck_assert_ptr_nonnull(row->run);
        for (int k = 0; k < i; k++) {
            ck_assert_str_ne(row->id, qattn__impls[k].id);
            /* fastest first: on one device the arch never rises, and fallbacks stand below all others */
            if (row->device_type == qattn__impls[k].device_type) {
                ck_assert_int_le(row->arch, qattn__impls[k].arch);
                ck_assert(row->fallback || !qattn__impls[k].fallback);
            }
        }
    }
    const struct impl *last = &qattn__impls[qattn__impl_count - 1];
    ck_assert_str_eq(last->id, "ref");
    ck_assert(last->fallback && last->arch == 0);
}
END_TEST

START_TEST(explain_text)
{
    struct call c = make_call();
    char text[TEXT], before[TEXT], after[TEXT];
    ck_assert_int_eq(qattn_softmax(NULL, NULL, NULL, NULL), QATTN_ERR_NULL_POINTER);     /* a message to keep */
    qattn_last_error(before, sizeof before);
    ck_assert_int_eq(explain(&c, text), QATTN_OK);
    ck_assert_int_eq(qattn_last_error(after, sizeof after), QATTN_ERR_NULL_POINTER);
    ck_assert_str_eq(before, after);
    int picked = -1;
    for (int i = 0; i < qattn__impl_count; i++)
        if (first_line_is(text, qattn__impls[i].id))
            picked = i;
    ck_assert_msg(picked >= 0, "first line is no id: %s", text);
    for (int i = 0; i < qattn__impl_count; i++) {
        char line[80];
        snprintf(line, sizeof line, "\n%s: ", qattn__impls[i].id);
        const bool faster = i < picked && qattn__impls[i].device_type == QATTN_DEVICE_CPU;
        ck_assert_msg((strstr(text, line) != NULL) == faster, "%s: %s", line + 1, text);
    }
    /* a small buffer: cut, terminated, not overrun */
    char small[16];
    memset(small, 'z', sizeof small);
    ck_assert_int_eq(qattn_flash_forward_explain(&c.q, &c.k, &c.v, &c.o, &c.p, small, 3), QATTN_OK);
    ck_assert_int_eq(small[2], '\0');
    ck_assert_int_eq(small[3], 'z');
    ck_assert_int_eq(strncmp(small, text, 2), 0);
    ck_assert_int_eq(qattn_flash_forward_explain(&c.q, &c.k, &c.v, &c.o, &c.p, NULL, 0), QATTN_OK);
    /* what the call would refuse */
    c.p.softcap = -1;
    ck_assert_int_eq(explain(&c, text), QATTN_ERR_BAD_VALUE);
    ck_assert_ptr_nonnull(strstr(text, "softcap"));
}
END_TEST

/* ---------------------------------------------------------------- environment */

START_TEST(impl_variable)
{
    const char *id = qattn__impls[_i].id;
    struct call c = make_call();
    char text[TEXT], why[256];
    static struct problem p;
    setenv("QATTN_IMPL", id, 1);
    ck_assert_int_eq(qattn__problem_attention(&p, OP_FLASH_FORWARD, &c.q, &c.k, &c.v, &c.o, &c.p, false), QATTN_OK);
    const bool here = qattn__impls[_i].device_type == QATTN_DEVICE_CPU &&
                      qattn__impls[_i].supports(&p, why, sizeof why);
    const int32_t status = explain(&c, text);
    ck_assert_int_eq(run(&c), status);
    if (here) {
        ck_assert_int_eq(status, QATTN_OK);
        ck_assert_msg(first_line_is(text, id), "%s: %s", id, text);
    } else {
        ck_assert_int_eq(status, QATTN_ERR_NO_IMPLEMENTATION);
    }
    c.p.flags = QATTN_FLAG_NO_FALLBACK;
    ck_assert_int_eq(run(&c), here && !qattn__impls[_i].fallback ? QATTN_OK : QATTN_ERR_NO_IMPLEMENTATION);
}
END_TEST

START_TEST(max_arch)
{
    static const struct { const char *value; int32_t arch;
    } caps[] = {
        { "generic", CPU_ARCH_GENERIC }, { "avx2", CPU_ARCH_AVX2 }, { "avx512", CPU_ARCH_AVX512 },
        { "amx", CPU_ARCH_AMX },         { "80", INT32_MAX },       { "90", INT32_MAX },
    };
    struct call c = make_call();
    char text[TEXT], why[256];
    static struct problem p;
    setenv("QATTN_MAX_ARCH", caps[_i].value, 1);
    ck_assert_int_eq(qattn__problem_attention(&p, OP_FLASH_FORWARD, &c.q, &c.k, &c.v, &c.o, &c.p, false), QATTN_OK);
    const struct impl *want = NULL;
    for (int i = 0; i < qattn__impl_count && !want; i++)
        if (qattn__impls[i].device_type == QATTN_DEVICE_CPU && qattn__impls[i].arch <= caps[_i].arch &&
            qattn__impls[i].supports(&p, why, sizeof why))
            want = &qattn__impls[i];
    ck_assert_ptr_nonnull(want);
    ck_assert_int_eq(explain(&c, text), QATTN_OK);
    ck_assert_msg(first_line_is(text, want->id), "%s", text);
    ck_assert_int_eq(run(&c), QATTN_OK);
    if (caps[_i].arch == CPU_ARCH_GENERIC) {
        ck_assert_str_eq(want->id, "cpu.generic");
        c.p.flags = QATTN_FLAG_NO_FALLBACK;
        ck_assert_int_eq(run(&c), QATTN_ERR_NO_IMPLEMENTATION);
        qattn_last_error(text, sizeof text);
        ck_assert_msg(strstr(text, "NO_FALLBACK") != NULL, "%s", text);
    }
}
END_TEST

START_TEST(bad_variables)
{
    static const struct { const char *name, *value;
    } bad[] = {
        { "QATTN_IMPL", "cpu.none" },           { "QATTN_MAX_ARCH", "sse9" },
        { "QATTN_NUM_THREADS", "0" },           { "QATTN_NUM_THREADS", "-2" },
        { "QATTN_NUM_THREADS", "two" },         { "QATTN_NUM_THREADS", "3x" },
        { "QATTN_NUM_THREADS", "99999999999" },
    };
    const struct call c = make_call();
    char text[TEXT];
    setenv(bad[_i].name, bad[_i].value, 1);
    ck_assert_int_eq(run(&c), QATTN_ERR_BAD_VALUE);
    qattn_last_error(text, sizeof text);
    ck_assert_msg(strstr(text, bad[_i].name) && strstr(text, bad[_i].value), "%s", text);
}
END_TEST

START_TEST(threads_variable)
{
    struct call c = make_call();
    static struct problem p;
    setenv("QATTN_NUM_THREADS", "5", 1);
    ck_assert_int_eq(qattn__problem_attention(&p, OP_FLASH_FORWARD, &c.q, &c.k, &c.v, &c.o, &c.p, false), QATTN_OK);
    ck_assert_int_eq(p.num_threads, 5);
    c.p.num_threads = 2;
    ck_assert_int_eq(qattn__problem_attention(&p, OP_FLASH_FORWARD, &c.q, &c.k, &c.v, &c.o, &c.p, false), QATTN_OK);
    ck_assert_int_eq(p.num_threads, 2);
}
END_TEST

/* QATTN_LOG=1 prints one line a call that names op and row; without it nothing is printed. */
START_TEST(log_variable)
{
    const struct call c = make_call();
    char text[TEXT] = "", said[TEXT] = "";
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    if (_i)
        setenv("QATTN_LOG", "1", 1);
    const int keep = dup(2);
    dup2(ends[1], 2);
    const int32_t status = run(&c);
    fflush(stderr);
    dup2(keep, 2);
    close(ends[1]);
    ck_assert_int_eq(status, QATTN_OK);
    ck_assert_int_ge(read(ends[0], said, sizeof said - 1), 0);
    ck_assert_int_eq(explain(&c, text), QATTN_OK);
    strtok(text, "\n");
    ck_assert_msg(_i ? strstr(said, "flash_forward") && strstr(said, text) : said[0] == '\0', "\"%s\"", said);
}
END_TEST

/* ---------------------------------------------------------------- workspaces */

static int32_t ask_workspace(const struct attn_build *b, size_t *bytes)
{
    qattn_tensor q = b->q.t, k = b->k.t, v = b->v.t, o = b->o.t;
    q.data = k.data = v.data = o.data = NULL;
    if (b->c->op == OP_SOFTMAX) {
        qattn_softmax_params p = b->softmax;
        p.num_threads = 2;
        return qattn_softmax_workspace(&q, &o, &p, bytes);
    }
    qattn_attn_params p = b->attn;
    p.num_threads = 2;
    return b->c->op == OP_GQA_FORWARD ? qattn_gqa_forward_workspace(&q, &k, &v, &o, &p, bytes)
                                      : qattn_flash_forward_workspace(&q, &k, &v, &o, &p, bytes);
}

static int32_t run_public(const struct attn_build *b, void *workspace, size_t bytes)
{
    if (b->c->op == OP_SOFTMAX) {
        qattn_softmax_params p = b->softmax;
        p.num_threads = 2;
        p.workspace = workspace;
        p.workspace_bytes = bytes;
        return qattn_softmax(b->c->in_place ? &b->o.t : &b->q.t, &b->o.t, &p, NULL);
    }
    qattn_attn_params p = b->attn;
    p.num_threads = 2;
    p.workspace = workspace;
    p.workspace_bytes = bytes;
    return b->c->op == OP_GQA_FORWARD ? qattn_gqa_forward(&b->q.t, &b->k.t, &b->v.t, &b->o.t, &p, NULL)
                                      : qattn_flash_forward(&b->q.t, &b->k.t, &b->v.t, &b->o.t, &p, NULL);
}

/* Enough for every row; the same without data, with other strides and other lengths; a call works with it, with none,
 * and not with less than its row needs. */
static void check_workspace(const struct attn_case *c)
{
    struct sequence *seqs = calloc((size_t)c->b + 1, sizeof *seqs);
    struct attn_build b;
    static struct problem p;
    char why[256], text[400];
    size_t bytes = 0, again = 0, least = SIZE_MAX;
    attn_case_text(c, text, sizeof text);
    case_begin("workspace/%s", text);
    attn_sequences(c, seqs);
    attn_build_init(&b, c, seqs);
    ck_assert_msg(ask_workspace(&b, &bytes) == QATTN_OK, "%s", text);
    ck_assert_int_eq(attn_build_problem(&b, &p, 2), QATTN_OK);
    const struct view *const out = c->op == OP_SOFTMAX ? &p.y : &p.o;
    const bool written = !view_empty(out) || (p.lse.dtype && !view_empty(&p.lse));
    ck_assert_msg(written || bytes == 0, "nothing to write, yet *_workspace says %zu: %s", bytes, text);
    for (int i = 0; i < qattn__impl_count && written; i++)
        if (qattn__impls[i].device_type == QATTN_DEVICE_CPU && qattn__impls[i].supports(&p, why, sizeof why)) {
            const size_t need = qattn__impls[i].workspace(&p);
            ck_assert_msg(need <= bytes, "%s needs %zu, *_workspace says %zu: %s",
                          qattn__impls[i].id, need, bytes, text);
            least = need < least ? need : least;
        }
    ck_assert_int_eq(run_public(&b, NULL, 0), QATTN_OK);
    const struct attn_copy first = attn_copy_outputs(&b);
    attn_build_reset(&b);
    struct scratch scratch = scratch_new(bytes, 0xFF);
    ck_assert_int_eq(run_public(&b, scratch.data, bytes), QATTN_OK);
    ck_assert_msg(attn_copy_equal(&first, &b), "own and given workspace differ: %s", text);
    ck_assert(scratch_intact(&scratch));
    if (written && least > 1) {
        attn_build_reset(&b);
        ck_assert_int_eq(run_public(&b, scratch.data, 1), QATTN_ERR_WORKSPACE);
        ck_assert(box_intact(&b.o));
    }
    scratch_free(&scratch);
    attn_copy_free(&first);
    for (int64_t n = 0; n < c->b && b.attn.seqused_k; n++)            /* other lengths in memory, the same answer */
        ((int32_t *)(void *)b.used_k.data)[n] = (int32_t)n;
    for (int64_t n = 0; n <= c->b && b.attn.cu_seqlens_q; n++)
        ((int32_t *)(void *)b.cu_q.data)[n] = 0;
    ck_assert_int_eq(ask_workspace(&b, &again), QATTN_OK);
    ck_assert_uint_eq(bytes, again);
    attn_build_free(&b);
    struct attn_case other = *c;
    other.lay = c->lay == 1 ? 2 : 1;                                  /* other strides, the same answer */
    attn_build_init(&b, &other, seqs);
    ck_assert_int_eq(ask_workspace(&b, &again), QATTN_OK);
    ck_assert_uint_eq(bytes, again);
    attn_build_free(&b);
    free(seqs);
    count_run("workspace queries", 1);
}

START_TEST(workspaces)
{
    static const enum op ops[] = { OP_FLASH_FORWARD, OP_GQA_FORWARD, OP_SOFTMAX };
    enum { EVERY = 23 };
    struct attn_grid g = attn_grid_make(ops[_i]);
    for (int64_t i = 0; i < g.count; i += EVERY)
        check_workspace(&g.at[i]);
    attn_grid_free(&g);
}
END_TEST

START_TEST(prepare)
{
    struct call c = make_call();
    ck_assert_int_eq(qattn_flash_forward_prepare(&c.q, &c.k, &c.v, &c.o, &c.p), QATTN_OK);
    ck_assert_int_eq(qattn_gqa_forward_prepare(&c.q, &c.k, &c.v, &c.o, NULL), QATTN_OK);
    c.q.data = c.k.data = c.v.data = c.o.data = NULL;
    ck_assert_int_eq(qattn_flash_forward_prepare(&c.q, &c.k, &c.v, &c.o, &c.p), QATTN_OK);
    ck_assert_int_eq(qattn_softmax_prepare(&c.q, &c.o, NULL), QATTN_OK);
    ck_assert_int_eq(qattn_softmax_causal_prepare(&c.q, &c.o, NULL), QATTN_OK);
    ck_assert_int_eq(qattn_matmul_nt_prepare(&c.q, &c.k, &c.o, NULL), QATTN_ERR_BAD_SHAPE);
    ck_assert_int_eq(qattn_flash_forward_workspace(&c.q, &c.k, &c.v, &c.o, &c.p, NULL), QATTN_ERR_NULL_POINTER);
}
END_TEST

Suite *suite_dispatch(void)
{
    Suite *s = suite_create("dispatch");
    TCase *t = tcase_create("dispatch");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, table);
    tcase_add_test(t, explain_text);
    tcase_add_loop_test(t, impl_variable, 0, qattn__impl_count);
    tcase_add_loop_test(t, max_arch, 0, 6);
    tcase_add_loop_test(t, bad_variables, 0, 7);
    tcase_add_test(t, threads_variable);
    tcase_add_loop_test(t, log_variable, 0, 2);
    tcase_add_loop_test(t, workspaces, 0, 3);
    tcase_add_test(t, prepare);
    suite_add_tcase(s, t);
    return s;
}
