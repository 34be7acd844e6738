/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * ONNX's node tests of Attention, Softmax and MatMul (tests/data/onnx) through every row of the
 * table, compared with their float64 recomputation; and the reader of the files itself.
 */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/params.h"
#include "onnx_attention.h"
#include "qv.h"
#include "row_run.h"
#include "suites.h"
#include "support.h"

enum { MAX_FILES = 80 };

static char files[MAX_FILES][256];
static int num_files;

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void list_files(void)
{
    num_files = 0;
    DIR *const dir = opendir(data_path("onnx"));
    for (const struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        const size_t n = strlen(e->d_name);
        if (n > 3 && strcmp(e->d_name + n - 3, ".qv") == 0 && num_files < MAX_FILES)
            snprintf(files[num_files++], sizeof files[0], "%s", e->d_name);
    }
    if (dir)
        closedir(dir);
    qsort(files, (size_t)num_files, sizeof files[0], by_name);
}

/* ---------------------------------------------------------------- Softmax, MatMul */

/* A view of `t` as [B,H,S,D] with the last three axes moved so that `axis` comes last. Rank 3. */
static void init_moved(qattn_tensor *out, void *data, const struct qv_tensor *t, int64_t axis)
{
    const int64_t stride[3] = { t->dim[1] * t->dim[2], t->dim[2], 1 };
    onnx_tensor(out, t, 1);
    out->data = data;
    out->shape[0] = 1;
    out->stride[0] = 0;
    for (int64_t i = 0, to = 1; i < 3; i++) {
        const int64_t at = i == axis ? 3 : to++;
        out->shape[at] = t->dim[i];
        out->stride[at] = stride[i];
    }
}

static void test_softmax(const struct qv *file)
{
    const struct qv_tensor *const x = qv_tensor(file, "in", "x"), *const ref =
                                                                      qv_tensor(file, "ref", "y");
    const struct impl *rows[ROW_MAX];
    int64_t axis = -1;
    float y[64];
    qattn_tensor x_t, y_t;
    struct problem p;
    union {
        const void *in;
        void *out;
    } data = { x->data };

    qv_int(file, "axis", &axis);
    axis += axis < 0 ? x->rank : 0;
    ck_assert_int_le(x->count, 64);
    for (int in_place = 0; in_place < 2; in_place++)
        for (int i = 0, n = 1; i < n; i++) {
            memset(y, 0xFF, sizeof y);
            if (in_place)
                memcpy(y, x->data, x->bytes);
            init_moved(&x_t, in_place ? y : data.out, x, axis);
            init_moved(&y_t, y, x, axis);
            case_begin("onnx/%s in place %d", file->name, in_place);
            ck_assert_int_eq(qattn__problem_softmax(&p, &x_t, &y_t, NULL, false, false), QATTN_OK);
            n = rows_for(&p, rows);
            ck_assert_int_gt(n, 0);
            case_begin("onnx/%s in place %d %s", file->name, in_place, rows[i]->id);
            ck_assert_int_eq(row_run(rows[i], &p), QATTN_OK);
            for (int64_t e = 0; e < x->count; e++)
                if (!onnx_matches(QATTN_DTYPE_F32, (double)y[e], qv_get(ref, e))) {
                    note_failure("y element %lld is %.9g, ref %.9g", (long long)e, (double)y[e],
                                 qv_get(ref, e));
                    break;
                }
            count_run("onnx Softmax", 1);
        }
}

/* MatMul's operands as [B,1,rows,cols]: a vector is a row (a) or a column (b), batches broadcast by
 * stride 0. */
static void init_matrix(qattn_tensor *out, void *data, const struct qv_tensor *t, bool is_b,
                        int64_t batches)
{
    const int r = t->rank;
    const int64_t rows = r > 1 ? t->dim[r - 2] : is_b ? t->dim[0] : 1;
    const int64_t cols = r > 1 ? t->dim[r - 1] : is_b ? 1 : t->dim[0];
    ck_assert_int_eq(qattn_tensor_init(out, data, qv_dtype(t), QATTN_DEVICE_CPU, 0,
                                       QATTN_LAYOUT_BHSD, batches, 1, rows, cols),
                     QATTN_OK);
    out->stride[0] = r > 2 ? rows * cols : 0;
}

static void test_matmul(const struct qv *file)
{
    const struct qv_tensor *const a = qv_tensor(file, "in", "a"), *const b =
                                                                      qv_tensor(file, "in", "b");
    const struct qv_tensor *const ref = qv_tensor(file, "ref", "c");
    union {
        const void *in;
        void *out;
    } a_data = { a->data }, b_data = { b->data };
    const struct impl *rows[ROW_MAX];
    const int64_t batches = a->rank > 2 ? a->dim[0] : b->rank > 2 ? b->dim[0] : 1;
    float c[64];
    qattn_tensor a_t, b_t, c_t, swapped;
    struct problem p;

    ck_assert_int_le(ref->count, 64);
    init_matrix(&a_t, a_data.out, a, false, batches);
    init_matrix(&b_t, b_data.out, b, true, batches);
    ck_assert_int_eq(qattn_tensor_init(&c_t, c, QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0,
                                       QATTN_LAYOUT_BHSD, batches, 1, a_t.shape[2], b_t.shape[3]),
                     QATTN_OK);
    swapped = b_t; /* B transposed, as matmul_nt reads it */
    swapped.shape[2] = b_t.shape[3];
    swapped.shape[3] = b_t.shape[2];
    swapped.stride[2] = b_t.stride[3];
    swapped.stride[3] = b_t.stride[2];
    for (int op = OP_MATMUL; op <= OP_MATMUL_NT; op++) {
        case_begin("onnx/%s %s", file->name, qattn__op_name((enum op)op));
        ck_assert_int_eq(qattn__problem_matmul(&p, (enum op)op, &a_t,
                                               op == OP_MATMUL ? &b_t : &swapped, &c_t, NULL,
                                               false),
                         QATTN_OK);
        const int n = rows_for(&p, rows);
        ck_assert_int_gt(n, 0);
        for (int i = 0; i < n; i++) {
            case_begin("onnx/%s %s %s", file->name, qattn__op_name((enum op)op), rows[i]->id);
            memset(c, 0xFF, sizeof c);
            ck_assert_int_eq(row_run(rows[i], &p), QATTN_OK);
            for (int64_t e = 0; e < ref->count; e++)
                if (!onnx_matches(QATTN_DTYPE_F32, (double)c[e], qv_get(ref, e)))
                    note_failure("c element %lld is %.9g, ref %.9g", (long long)e, (double)c[e],
                                 qv_get(ref, e));
            count_run("onnx MatMul", 1);
        }
    }
}

START_TEST(node_test)
{
    static struct qv file;
    char path[300];
    if (!shard_has(_i))
        return;
    failures_clear();
    snprintf(path, sizeof path, "onnx/%s", files[_i]);
    case_begin("%s", path);
    ck_assert_msg(qv_open(&file, data_path(path)) == 0, "%s: %s", path, file.error);
    if (strcmp(file.kind, "attention") == 0)
        onnx_attention(&file);
    else if (strcmp(file.kind, "softmax") == 0)
        test_softmax(&file);
    else if (strcmp(file.kind, "matmul") == 0)
        test_matmul(&file);
    else
        count_skipped("onnx files", "RotaryEmbedding is not offered", 1);
    if (strcmp(file.kind, "rotary") != 0)
        count_run("onnx files", 1);
    qv_close(&file);
    ck_assert_int_eq(failures(), 0);
}
END_TEST

/* All of them are there. */
START_TEST(node_tests_present)
{
    ck_assert_msg(num_files == 66, "%d files in %s, 66 expected", num_files, data_path("onnx"));
}
END_TEST

/* ---------------------------------------------------------------- the reader itself */

/* Writes `bytes` of text to a scratch file and opens it: 0 or -1. */
static int open_bytes(const char *bytes, size_t n)
{
    static struct qv file;
    char path[] = "/tmp/qattn_qv_XXXXXX";
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    FILE *const f = fdopen(fd, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
    fclose(f);
    const int status = qv_open(&file, path);
    if (status == 0)
        qv_close(&file);
    else
        ck_assert_str_ne(file.error, "");
    remove(path);
    return status;
}

/* A small right file, and what a single change makes of it. */
START_TEST(reader_is_strict)
{
    static const struct {
        const char *from, *to;
    } changes[] = {
        { "QV1 ", "QV2 " },
        { "00000256", "00000192" },
        { "00000256", "00000250" },
        { "000000000268", "000000000267" },
        { "case x", "cast x" },
        { "kind matmul", "kine matmul" },
        { "attr n i 3", "attr n i x" },
        { "attr n i 3", "attr n q 3" },
        { "attr n i 3", "attr  i 33" },
        { "f32 2 1 3 256 12", "f33 2 1 3 256 12" },
        { "f32 2 1 3 256 12", "f32 2 1 4 256 12" },
        { "f32 2 1 3 256 12", "f32 1 1 3 256 12" },
        { "f32 2 1 3 256 12", "f32 2 1 3 257 12" },
        { "f32 2 1 3 256 12", "f32 2 1 3 192 12" },
        { "f32 2 1 3 256 12", "f32 2 1 3 320 12" },
        { "f32 2 1 3 256 12", "f32 9 1 3 256 12" },
        { "f32 2 1 3 256 12", "f32 2 -1 3 256 12" },
        { "tensor in", "tensor im" },
        { "tensor in", "tensro in" },
        { "end\n\n", "ent\n\n" },
        { "end\n\n", "end\nx" },
    };
    static const char text[] = "QV1 00000256 000000000268\ncase x\nkind matmul\nattr n i 3\n"
                               "tensor in a f32 2 1 3 256 12\nend\n";
    char good[268] = { 0 }, bad[sizeof good];
    memset(good, '\n', 256);
    memcpy(good, text, sizeof text - 1);
    ck_assert_int_eq(open_bytes(good, sizeof good), 0);
    for (size_t n = 0; n < sizeof good; n += n < 100 ? 1 : 13)
        ck_assert_msg(open_bytes(good, n) != 0, "cut to %zu bytes", n);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        memcpy(bad, good, sizeof bad);
        char *const at = memmem(bad, sizeof bad, changes[i].from, strlen(changes[i].from));
        ck_assert_ptr_nonnull(at);
        memcpy(at, changes[i].to, strlen(changes[i].to));
        ck_assert_msg(open_bytes(bad, sizeof bad) != 0, "accepts \"%s\" for \"%s\"", changes[i].to,
                      changes[i].from);
    }
}
END_TEST

Suite *suite_onnx(void)
{
    Suite *const suite = suite_create("onnx");
    TCase *const reader = tcase_create("reader");
    TCase *const nodes = tcase_create("nodes");
    list_files();
    tcase_add_test(reader, reader_is_strict);
    tcase_set_timeout(nodes, 30);
    tcase_add_test(nodes, node_tests_present);
    tcase_add_loop_test(nodes, node_test, 0, num_files);
    suite_add_tcase(suite, reader);
    suite_add_tcase(suite, nodes);
    return suite;
}
