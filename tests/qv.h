/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Reader of QV1 files (tests/data/README.md): one case a file, an ASCII header, then raw little-endian tensors.
 * Strict: a file that breaks any rule of the format is refused, so what it opens needs no further checks. */
#ifndef QATTN_TESTS_QV_H
#define QATTN_TESTS_QV_H

#include <stddef.h>
#include <stdint.h>

enum { QV_MAX_RANK = 8, QV_MAX_ATTRS = 32, QV_MAX_TENSORS = 32 };

struct qv_tensor {
    char role[8];            /* "in" an input, "out" as published, "ref" recomputed in float64 */
    char name[64];
    char dtype[8];           /* f64 f32 f16 bf16 i64 i32 u8 bool */
    int rank;                /* 0: a scalar */
    int64_t dim[QV_MAX_RANK];
    const void *data;        /* row-major, packed, 64-byte aligned; lives until qv_close */
    size_t bytes;
    int64_t count;           /* elements: product of dim */
    int itemsize;
};

struct qv_attr {
    char name[64];
    char type;               /* 'i', 'f', 's' */
    int64_t i;
    double f;
    char s[128];
};

struct qv {
    char name[128];          /* line "case" */
    char kind[32];           /* attention, rotary, softmax, matmul, prefill_decode, decode_tape */
    int num_attrs, num_tensors;
    struct qv_attr attrs[QV_MAX_ATTRS];
    struct qv_tensor tensors[QV_MAX_TENSORS];
    void *buffer;            /* the whole file */
    char error[256];         /* why qv_open refused it; "" after success */
};

/* 0 and a filled *out, or -1 with out->error set and nothing to close. */
int qv_open(struct qv *out, const char *path);
void qv_close(struct qv *file);

/* NULL if the file has no such tensor. */
const struct qv_tensor *qv_tensor(const struct qv *file, const char *role, const char *name);

/* Attribute of that name and type: 0 and its value, or -1 and *out untouched. */
int qv_int(const struct qv *file, const char *name, int64_t *out);
int qv_float(const struct qv *file, const char *name, double *out);
int qv_word(const struct qv *file, const char *name, const char **out);

/* Element i of the flat row-major order, exact. 0 <= i < count. */
double qv_get(const struct qv_tensor *tensor, int64_t i);

/* QATTN_DTYPE_* of a tensor ("u8" and "bool" included); 0 for f64, i64, i32, which the library does not take. */
int32_t qv_dtype(const struct qv_tensor *tensor);

#endif
