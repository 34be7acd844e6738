/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * tests/data/cases.txt: inputs that once broke an attention library, one a line, words separated by a space:
 *
 *   B57 op=attn_fwd shape=4,12,12,32,1024,64,64 dtype=fp16 causal=bottom_right status=ok checks=matches_ref ...
 *
 *   op          attn_fwd attn_bwd decode_append decode_paged prefill_paged matmul_nt softmax_causal
 *   shape       B,Hq,Hkv,Sq,Sk,D,Dv   (matmul_nt: M = Sq, N = Sk, K = D)
 *   dtype       fp32 fp16 bf16
 *   causal      bottom_right top_left
 *   window      left,right, inclusive; -1 unlimited
 *   softcap, scale, sink, q_lens, kv_lens
 *   T.strides   of tensor T in B,H,S,D order, elements (q k v o do a b k_cache v_cache); absent: packed
 *   T.offset, T.dist (randn const), T.std, T.add, T.value, T.patch (index,index,index,index:value, * a whole axis)
 *   mask.kind   bool (1 visible) or add; mask.dtype shape strides pattern rows cols value std q_lens kv_lens patch
 *   page_size page_table (rows by ;) pool_pages page_stride interleaved_kv
 *   poison (bytes outside the valid region), poison_output, repeat, and words of devices and gradients
 *   status      ok reject ok_or_reject
 *   checks      names, each with an optional :argument
 *   also        more runs of the case with fields replaced: Sq:17,Sk:129 or Sk:1..130; sets separated by ;
 *   bytes       span of the tensors
 *   report      where the fault was reported
 */
#ifndef QATTN_TESTS_CASES_FILE_H
#define QATTN_TESTS_CASES_FILE_H

#include <stdbool.h>
#include <stdint.h>

enum case_op { CASE_ATTN_FWD, CASE_ATTN_BWD, CASE_APPEND, CASE_PAGED, CASE_MATMUL_NT, CASE_SOFTMAX_CAUSAL };
enum case_causal { CASE_FULL, CASE_BOTTOM_RIGHT, CASE_TOP_LEFT };
enum case_status { CASE_OK, CASE_REJECT, CASE_OK_OR_REJECT };
enum case_tensor_id { CASE_Q, CASE_K, CASE_V, CASE_O, CASE_TENSORS };   /* matmul_nt: a, b are Q, K */
enum case_mask_kind { CASE_NO_MASK, CASE_MASK_BOOL, CASE_MASK_ADD };
enum case_pattern { PATTERN_TRIL, PATTERN_RECT, PATTERN_LENS, PATTERN_RANDOM, PATTERN_COLS_VALUE };
enum { CASE_ALL = -1, CASE_MAX_LIST = 8, CASE_MAX_CHECKS = 4, CASE_MAX_ALSO = 4, CASE_MAX_COUNT = 128 };

struct case_patch { bool set; int64_t idx[4]; double value; };          /* CASE_ALL: the whole axis */
struct case_list { int count; double at[CASE_MAX_LIST]; };

struct case_tensor {
    bool    strided;
    int64_t stride[4];
    bool    is_const;           /* every element is `value`; else normal * std + add */
    double  std, add, value;
    struct case_patch patch;
};

struct case_mask {
    enum case_mask_kind kind;
    int32_t dtype;
    int64_t shape[4];
    bool    strided;
    int64_t stride[4];
    enum case_pattern pattern;
    int64_t rows[2], cols[2];   /* half-open */
    double  value, std;
    struct case_list q_lens, kv_lens;
    struct case_patch patch;
};

struct case_also { char field[16]; int64_t first, last; };              /* first..last: a sweep */

struct case_check { char name[48]; char argument[24]; };

struct test_case {
    char id[8];
    enum case_op op;
    char op_name[24];
    int64_t b, hq, hkv, seqlen_q, seqlen_k, d, dv;
    int32_t dtype;
    enum case_causal causal;
    bool    window;
    int64_t window_left, window_right;
    double  softcap, scale;     /* 0: off, default */
    struct case_list sink, q_lens, kv_lens, page_table;
    struct case_tensor tensors[CASE_TENSORS];
    struct case_mask mask;
    int64_t page_size, page_columns, pool_pages, page_stride;
    bool    interleaved_kv, poison;
    int64_t repeat;
    bool    device_only_words;  /* asks for a second device, a stream or a graph */
    enum case_status status;
    int     num_checks;
    struct case_check checks[CASE_MAX_CHECKS];
    int     num_also;           /* fields that are replaced together, or one sweep */
    struct case_also also[CASE_MAX_ALSO];
    int64_t bytes;
    char    report[96];
};

struct case_file { int count; struct test_case cases[CASE_MAX_COUNT]; char error[256]; };

/* 0, or -1 with file->error set: an unknown word or value is an error. */
int cases_read(struct case_file *file, const char *path);

/* The check, or NULL. */
const struct case_check *case_find(const struct test_case *c, const char *name);

/* How many runs the case asks for, and its run `i`: 0 is the case itself, the others have `also` applied. */
int64_t case_runs(const struct test_case *c);
struct test_case case_variant(const struct test_case *c, int64_t i);

/* Multiply-adds times two. */
double case_flop(const struct test_case *c);

#endif
