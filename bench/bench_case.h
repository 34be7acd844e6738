/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* One benchmark case, written as a line of words: "flash bf16 b1 hq16 hkv8 sq512 sk512 d128 causal layout=bshd".
 * bench/README.md lists the words. */
#ifndef QATTN_BENCH_CASE_H
#define QATTN_BENCH_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/problem.h"

struct bench_case {
    char    text[200];                 /* the line, single spaces */
    enum op op;
    int32_t dtype;                     /* of q, a, x or the parts */
    int32_t kv_dtype, out_dtype;       /* 0 in the line: dtype, or f32 output for an 8-bit dtype */
    int64_t b, hq, hkv, sq, sk, d, dv; /* matmul: m, n, k are sq, sk, d; hkv is b's head count */
    int32_t layout;                    /* QATTN_LAYOUT_* of q, k, v, o */
    uint32_t mask;                     /* QATTN_MASK_* */
    uint64_t flags;                    /* QATTN_FLAG_* */
    int64_t window_left, window_right;
    double  softcap;
    bool    bias, keep, sinks, alibi, lse, scores, descale;
    bool    packed_q, packed_k;        /* sequences one after the other in [T][H][D], cu_seqlens_* */
    bool    used_k;                    /* seqused_k: later sequences are shorter, down to half */
    bool    ragged;                    /* packed sequences of sq, sq/2 .. sq/32 rows in turn, and keys likewise */
    int64_t decodes;                   /* packed q: so many sequences first with one row over sk keys; the others have
                                          sq rows over as many keys */
    int64_t page;                      /* page size; 0: not paged */
    int64_t num_splits, parts;
    int32_t precision;                 /* QATTN_PRECISION_* */
};

/* Parses `line` into *out. On failure returns false and writes the reason to why[cap]. */
bool bench_case_parse(struct bench_case *out, const char *line, char *why, size_t cap);

/* Rows and keys of sequence n: sq and sk, or fewer with used_k, ragged or decodes. */
int64_t bench_case_rows(const struct bench_case *c, int64_t n);
int64_t bench_case_keys(const struct bench_case *c, int64_t n);

/* "flash", "gqa", "matmul": the first word of a case. */
const char *bench_case_op_word(const struct bench_case *c);

/* Work of one call. Attention: 2 (D + Dv) flop per visible pair of query and key; a square causal case counts half
 * of all pairs, the field's convention. bytes: attention K and V once; other operations every tensor once. */
struct bench_work { double flop, bytes; };
struct bench_work bench_case_work(const struct bench_case *c);

#endif
