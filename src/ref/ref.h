/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The reference: every operation exactly as its formula, in double, one row at a time, on any dtype, stride and
 * feature. Slow on purpose. It is the last row of the table, tested like every other (tests/attn_oracle.c,
 * check_gemm.c, check_merge.c), and what the bench, the fuzzer and the tests on published and large problems compare
 * with. Read ref_attention.c first.
 *
 *   ref_attention.c   O = softmax(scale Q K^T + masks) V        (Vaswani et al. 2017, section 3.2.1)
 *   ref_softmax.c     what happens between Q K^T and softmax, and the softmax itself
 *   ref_matmul.c      C = alpha A B + beta C, C = alpha A B^T + beta C
 *   ref_merge.c       one result out of results over disjoint keys
 *   ref.c             the table row: supports, workspace, run
 */
#ifndef QATTN_REF_REF_H
#define QATTN_REF_REF_H

#include "core/problem.h"
#include "core/seq.h"

/* ---------------------------------------------------------------- the row `ref` of the table */

bool qattn__ref_supports(const struct problem *p, char *why, size_t cap);
size_t qattn__ref_workspace(const struct problem *p);
int32_t qattn__ref_run(const struct problem *p, qattn_stream stream);

/* Its parts. p->workspace holds qattn__ref_workspace(p) bytes. */
void qattn__ref_matmul(const struct problem *p);
void qattn__ref_softmax(const struct problem *p);
void qattn__ref_attention(const struct problem *p);
void qattn__ref_merge(const struct problem *p);

/* ---------------------------------------------------------------- scores and their softmax (ref_softmax.c) */

/* How far a score has come: the numbers of qattn_attn_params.scores_stage. */
enum ref_stage { REF_SCALED = 0, REF_CAPPED = 1, REF_MASKED = 2, REF_SOFTMAX = 3 };

/* Score of row i and key j of query head h at `stage` <= REF_MASKED, from product = q.k (softmax: x). Key j must lie in
 * the range of seq_visible if stage is REF_MASKED; keep and bias may still hide it: -inf. */
double qattn__ref_score(const struct problem *p, const struct seq *s, int64_t h, int64_t i, int64_t j,
                        double product, enum ref_stage stage);

/* What the score's rounding error is relative to: |scale| abs_product + |bias| + |ALiBi|, with
 * abs_product = sum |q||k|. */
double qattn__ref_score_magnitude(const struct problem *p, const struct seq *s, int64_t h, int64_t i, int64_t j,
                                  double abs_product);

/* The logit of row i, head h that has no value: sinks[h]; -inf without sinks and for rows past len_q. */
double qattn__ref_sink(const struct problem *p, const struct seq *s, int64_t h, int64_t i);

/* Softmax of a row, before the division. */
struct ref_stats {
    double  max;      /* over visible scores and the sink; -inf: there are none */
    double  sum;      /* of exp(score - max), sink included */
    double  lse;      /* log(sum(exp(score))), natural; -inf: nothing visible and no sink */
    int64_t visible;  /* scores above -inf (NaN counts) */
};
struct ref_stats qattn__ref_stats(const double *score, int64_t n, double sink);

/* exp(score - max) / sum; 0 for a hidden key, NaN if the row is NaN. */
double qattn__ref_probability(const struct ref_stats *stats, double score);

/* The LSE as the call wants it: natural, or base 2 with LSE_BASE2. */
double qattn__ref_lse(const struct problem *p, double natural);

/* ---------------------------------------------------------------- single rows and elements, in double, for tests
 *
 * Each gives what the operation would write before the rounding to the output's type. All take a problem of the
 * matching op; none reads an output (beta, and in-place softmax and merge: call before running). */

struct ref_row {
    double  o[QATTN__MAX_WIDTH];       /* [Dv] */
    double  o_abs[QATTN__MAX_WIDTH];   /* [Dv] sum p_j |v_j| */
    double  lse;                       /* base as the call asks */
    double  score_mag;                 /* max over visible keys of qattn__ref_score_magnitude; 0 if none */
    int64_t visible;                   /* keys the row sees */
};

/* Attention, row i of query head h of sequence s. Its scratch comes from the heap; if there is none, all is NaN. */
void qattn__ref_attention_row(const struct problem *p, const struct seq *s, int64_t h, int64_t i, struct ref_row *out);

/* The same in the caller's memory: qattn__ref_scratch(p) doubles. */
void qattn__ref_attention_row_in(const struct problem *p, const struct seq *s, int64_t h, int64_t i,
                                 double *scratch, struct ref_row *out);
size_t qattn__ref_scratch(const struct problem *p);

/* Row i, head h of the scores [scores.shape[3]] at p->scores_stage (0..3), as gqa_forward writes them; they lie in
 * scratch. Keys past len_k and rows past len_q hold -inf at stage 2 and 0 at the other stages. */
const double *qattn__ref_scores_row(const struct problem *p, const struct seq *s, int64_t h, int64_t i,
                                    double *scratch);

/* Softmax of x's row i, head h, sequence s into y[Sk]; returns the LSE, base as the call asks. y may not be x. */
double qattn__ref_softmax_row(const struct problem *p, const struct seq *s, int64_t h, int64_t i, double *y);

/* sum_k a b of element [b,h,m,n], without alpha, beta and C; *abs_sum (may be NULL) gets sum_k |a||b|. */
double qattn__ref_matmul_element(const struct problem *p, int64_t b, int64_t h, int64_t m, int64_t n, double *abs_sum);

/* Merged row [b,h,i]: o[Dv] and o_abs[Dv] = sum w|o| / sum w (o_abs, or both, may be NULL); returns the LSE. */
double qattn__ref_merge_row(const struct problem *p, int64_t b, int64_t h, int64_t i, double *o, double *o_abs);

#endif
