/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The grid of cases every row of the table runs. A case is a line of words, as in the benches:
 *     flash bf16 kv=e4m3fn b2 hq8 hkv2 sq1 sk4097 d128 causal used_k page=16
 * The words after the shape are the names of the fields below; a field at its default is not printed, "word"
 * alone means 1. QATTN_TEST_CASE="<line>" runs that one, several lines those.
 */
#ifndef QATTN_TESTS_CASES_H
#define QATTN_TESTS_CASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/problem.h"

/* X(field, default) */
#define ATTN_CASE_SHAPE(X) \
    X(b, 1) X(hq, 1) X(hkv, 1) X(sq, 1) X(sk, 1) X(d, 64) X(dv, -1)

#define ATTN_CASE_WORDS(X) \
    X(causal, 0) X(top_left, 0) \
    X(offset, 0)        /* 1 scalar, 2 array */ \
    X(q_off, 0) \
    X(left, -2)         /* window, -1 unlimited; both -2: no window */ \
    X(right, -2) \
    X(as_given, 0) X(invariant, 0) X(base2, 0) \
    X(splits, 0) \
    X(no_lse, 0) \
    X(bias, 0)          /* 16 + the full axes: N 1, H 2, Sq 4, Sk 8 */ \
    X(bias_type, 0)     /* 0 f32, 1 f16, 2 bf16 */ \
    X(bias_kind, 0)     /* enum bias_kind */ \
    X(keep, 0)          /* as bias */ \
    X(keep_kind, 0)     /* enum keep_kind */ \
    X(keep_u8, 0) \
    X(sinks, 0)         /* 2: of every four heads' the last three are -inf, inf, NaN */ \
    X(alibi, 0)         /* 1 [Hq], 2 [N,Hq], 3 [N,Hq] in wider rows */ \
    X(steep, 0)         /* slopes times this power of two */ \
    X(falling, 0)       /* odd heads' slopes are negative */ \
    X(odd_slopes, 0)    /* of every four heads' slopes the last three are inf, NaN, -inf */ \
    X(used_q, 0)        /* enum used_kind */ \
    X(used_k, 0) \
    X(packed_q, 0) X(packed_k, 0) \
    X(lead, 0)          /* packed: rows before the first sequence and after the last */ \
    X(max_q, 0) X(max_k, 0) \
    X(page, 0) \
    X(q_scale, 0)       /* enum scale_kind: descales */ \
    X(k_scale, 0) X(v_scale, 0) \
    X(odd_scale, 0)     /* enum odd_scale: what the descales of odd_of hold */ \
    X(odd_of, 0)        /* q 1, k 2, v 4 */ \
    X(scores, 0)        /* 1 f32, 2 q's type */ \
    X(stage, 0) \
    X(nan, 0)           /* enum nan_kind */ \
    X(numbers, 0)       /* enum numbers; scale is then the case's own */ \
    X(share, 0)         /* 1: one k, v for all sequences; 2: for all KV heads; 4: one q for all heads */ \
    X(in_place, 0)      /* softmax: y is x */ \
    X(precision, 0)     /* QATTN_PRECISION_* */ \
    X(aligned, 0)       /* 1: rows of q, k, v, o on 16 bytes, D fastest, in random layouts too; 2: of k and v alone; \
                           3: of all but o */ \
    X(lay, 0)           /* 0 packed BHSD, 1 BSHD, 2 SBHD, 3 interleaved, else the seed of random layouts */ \
    X(seed, 0)

enum bias_kind { BIAS_NORMAL, BIAS_SOME_HIDDEN, BIAS_SOME_LOWEST, BIAS_DEAD_ROWS, BIAS_HIDES_BAD,
                 BIAS_ODD /* +inf and NaN here and there */,
                 BIAS_LOWEST_ROWS /* every third row its type's lowest number: additive masks of rows without keys */ };
enum keep_kind { KEEP_RANDOM, KEEP_DEAD_ROWS, KEEP_NONE, KEEP_HIDES_BAD,
                 KEEP_TILES /* blocks of 64 x 64 hidden as a whole, others seen as a whole */ };
enum used_kind { USED_ALL, USED_SOME, USED_ZERO_OR_ALL, USED_OUT_OF_RANGE, USED_ZERO, USED_MOST /* four of five */ };
enum scale_kind { SCALE_NONE, SCALE_ONE, SCALE_HEAD, SCALE_SEQ_HEAD, SCALE_SEQ_KVHEAD_D, SCALE_ROW, SCALE_ROW_D,
                  SCALE_PAGE };
enum odd_scale { ODD_NOTHING, ODD_ZERO, ODD_NEGATIVE, ODD_MIXED /* either, or neither */, ODD_NAN /* one in three */ };
enum nan_kind {
    NAN_NOTHING,
    NAN_LAST_KEYS,       /* the last two keys of each sequence hold NaN, Inf */
    NAN_SEVENTH_KEYS,    /* every key j with j mod 7 = 6 */
    NAN_ONE_VALUE,       /* some columns of one visible V row */
    NAN_ONE_KEY,         /* one K row of KV head 0 */
    INF_ONE_KEY,         /* one element of one K row is +inf: scores of +inf and -inf */
    NAN_ONE_QUERY,       /* q row 0 of head 0 */
    NAN_LAST_VALUE,      /* the last V row is NaN, its key is not */
    NAN_FIRST_VALUE,     /* the first V row is NaN */
    INF_KEY_NAN_VALUE,   /* one K element is inf, its V row NaN: hidden where the score is -inf, by value or mask */
    MAX_LAST_VALUE,      /* the last V row holds its type's largest numbers, of both signs */
    ZERO_QUERIES,        /* every other row of q is 0 */
    ZERO_QUERIES_MAX_KEY, /* q is 0, the last K row its type's largest numbers */
    MAX_LAST_KEY,        /* the last K row holds its type's largest numbers */
    OVERFLOW_KEY         /* one key's scores overflow to -inf in fp32, and its V row is NaN: hidden */
};

/* Magnitudes of f32 and bf16 values (attn_numbers.c), each with a scale that makes ordinary scores of them. */
enum numbers {
    NUMBERS_NORMAL,
    NUMBERS_LARGE_K,     /* 2^55 to 2^58 times a normal number */
    NUMBERS_LARGE_Q,
    NUMBERS_LARGE_QK,
    NUMBERS_LARGEST_K,   /* up to the type's largest number, q 2^-97 */
    NUMBERS_LARGE_V,     /* 2^108 */
    NUMBERS_SMALL_QK,    /* products of 2^-120 to 2^-114 */
    NUMBERS_TINY_K,      /* subnormal and above, q 2^97 */
    NUMBERS_TINY_V,      /* subnormal, as O is then: below what the bound counts, so NaN and bits alone are tested */
    NUMBERS_KINDS
};

#define ATTN_CASE_FIELD(name, initial) int64_t name;
struct attn_case {
    enum op op;                            /* OP_FLASH_FORWARD, OP_GQA_FORWARD, OP_SOFTMAX (x is [b,hq,sq,sk]) */
    int32_t q_dtype, kv_dtype, o_dtype;    /* all set */
    double  scale, softcap;
    bool    zero_bad;                      /* bad keys of `nan` hold 0 instead; not part of the line */
    ATTN_CASE_SHAPE(ATTN_CASE_FIELD)
    ATTN_CASE_WORDS(ATTN_CASE_FIELD)
};
#undef ATTN_CASE_FIELD

struct attn_case attn_case_default(enum op op, int32_t q_dtype, int32_t kv_dtype, int32_t o_dtype);
void attn_case_text(const struct attn_case *c, char *buf, size_t cap);
bool attn_case_parse(struct attn_case *c, const char *line);

/* A list that grows. */
struct attn_grid { struct attn_case *at; int64_t count, capacity; };
void attn_grid_push(struct attn_grid *grid, const struct attn_case *c);
void attn_grid_free(struct attn_grid *grid);

/* The cases of one operation, corner shapes first; QATTN_TEST_GRID and QATTN_TEST_CASE heeded. */
struct attn_grid attn_grid_make(enum op op);

/* One random case of everything (valid by construction); `r` is a struct rng. */
struct rng;
struct attn_case attn_case_random(enum op op, struct rng *r);

#endif
