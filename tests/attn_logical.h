/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * What a case means, apart from any memory: sequences, their lengths, values by index, and the fp64 answer. Written
 * from the contract alone, without the library's seq.h, params.c or ref/, so that those are tested too.
 */
#ifndef QATTN_TESTS_ATTN_LOGICAL_H
#define QATTN_TESTS_ATTN_LOGICAL_H

#include "cases.h"

/* One sequence. Its query row i has the values of logical row first_row + i of sequence `id`. */
struct sequence {
    uint64_t id;
    int64_t  first_row;
    int64_t  slot_q, rows, len_q;    /* stored rows; rows written; rows that are queries */
    int64_t  slot_k, len_k;          /* stored keys, keys that count */
    int64_t  offset;                 /* pos(i) = i + offset */
    int32_t  used_q, used_k, q_off;  /* as the arrays hold them, right or wrong */
};

/* The sequences of a case: out[c->b]. */
void attn_sequences(const struct attn_case *c, struct sequence *out);

int64_t attn_dv(const struct attn_case *c);
int64_t attn_max_pages(const struct attn_case *c);     /* columns of the page table */
int64_t attn_capacity_k(const struct attn_case *c);    /* Sk, or max_pages * page: the last axis of bias and keep */
bool    attn_window(const struct attn_case *c);
double  attn_scale(const struct attn_case *c);
int32_t attn_bias_dtype(const struct attn_case *c);

/* Values. h is a query head (q, bias, keep, sinks, slopes) or a KV head (k, v). Rows and keys are logical. */
uint64_t attn_q_key(const struct attn_case *c, uint64_t id, int64_t h, int64_t i);     /* for normal_row */
uint64_t attn_k_key(const struct attn_case *c, uint64_t id, int64_t h, int64_t j);
uint64_t attn_v_key(const struct attn_case *c, uint64_t id, int64_t h, int64_t j);
double attn_bias(const struct attn_case *c, uint64_t id, int64_t h, int64_t i, int64_t j);
bool   attn_keep(const struct attn_case *c, uint64_t id, int64_t h, int64_t i, int64_t j);
double attn_sink(const struct attn_case *c, int64_t h);
double attn_slope(const struct attn_case *c, uint64_t id, int64_t h);
/* Descale `which` in { 'q', 'k', 'v' } with its axes collapsed as `kind` says; row is a query row or key. */
double attn_descale(const struct attn_case *c, char which, int64_t kind, uint64_t id, int64_t h,
                    int64_t row, int64_t d);
/* Does `nan` put bad values into key j? They overwrite rows of k and v [width] in place. */
bool attn_bad_key(const struct attn_case *c, const struct sequence *s, int64_t j);
void attn_spoil(const struct attn_case *c, const struct sequence *s, char which, int64_t h, int64_t row,
                int64_t width, double *values);

/* Values [width] of a row of normals, whose key this is, as c->numbers says; sets c->numbers and c->scale; |x|, or what
 * counts in its place in the error of a product by c->precision. */
void attn_stretch(const struct attn_case *c, char which, uint64_t key, int64_t width, double *values);
void attn_set_numbers(struct attn_case *c, int64_t kind);
double attn_tf32_floor(const struct attn_case *c, double x);

/* The answer. Rows are numbered by attn_row. */
struct attn_answer {
    int64_t  dv, keys;          /* columns of o; columns of scores (capacity_k) */
    int64_t *first;             /* [b] first row of a sequence */
    double  *o, *o_abs;         /* [rows][dv] */
    double  *lse, *magnitude;   /* [rows] natural log; see tolerance_score */
    double  *floor;             /* [rows] |scale| sum |q_i k_i|, each at least attn_tf32_floor: for tolerance_product */
    double  *scores;            /* [rows][keys] at c->stage, when c->scores or softmax; -inf or 0 past the lengths */
    double  *score_magnitude, *score_floor;    /* [rows][keys] of scores at stages 0 to 2 */
    bool    *sees_bad;          /* [rows] a bad key of `nan` is visible */
    double  *plain;             /* [rows][dv] the plain fp32 algorithm's o, rounded; NULL unless asked for */
};

int64_t attn_row(const struct attn_case *c, const struct attn_answer *a, const struct sequence *seqs,
                 int64_t n, int64_t h, int64_t i);
struct attn_answer attn_solve(const struct attn_case *c, const struct sequence *seqs, bool plain);
void attn_answer_free(struct attn_answer *a);

#endif
