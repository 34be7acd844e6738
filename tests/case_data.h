/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Tensors of one case of cases.txt. Memory is mapped without reserve, so a tensor whose strides span gigabytes costs
 * only what its elements touch; the last element lies against an inaccessible page, and what lies between elements
 * is poison (where the span is small enough to fill).
 */
#ifndef QATTN_TESTS_CASE_DATA_H
#define QATTN_TESTS_CASE_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cases_file.h"
#include "core/problem.h"

struct span { char *map; size_t map_bytes; char *data; size_t bytes; bool filled; };

/* The inputs: q, k, v (a, b for matmul_nt; x for softmax_causal), mask, arrays, and params pointing at them. */
struct case_inputs {
    struct test_case c;
    qattn_tensor tensors[CASE_TENSORS];          /* CASE_O: shape and strides only, data NULL */
    struct span spans[CASE_TENSORS], mask_span;
    qattn_attn_params params;
    int32_t *page_table;
    int32_t seqused_q[CASE_MAX_LIST], seqused_k[CASE_MAX_LIST];
    float sinks[CASE_MAX_LIST];
};

/* One output with its LSE. */
struct case_outputs { qattn_tensor o, lse; struct span o_span, lse_span; };

/* Makes every tensor's strides explicit and then drops batches, heads and query rows, by larger strides, until the
 * case costs at most `flop`: the last elements stay where they were. Returns whether it came near. */
bool case_thin(struct test_case *c, double flop);

/* Bytes of memory that the tensors touch, pages included. */
double case_touched(const struct test_case *c);
/* What the machine can give, bytes. */
double memory_available(void);

/* Fills inputs. strided: bit t keeps the case's strides for tensor t, else it is packed. hidden_zero: zeros where
 * `poison` would put NaN. false: the memory cannot be had. */
bool case_inputs_make(struct case_inputs *in, const struct test_case *c, unsigned strided, bool hidden_zero);
void case_inputs_free(struct case_inputs *in);

/* Poisoned outputs for these inputs. */
bool case_outputs_make(struct case_outputs *out, const struct case_inputs *in);
void case_outputs_free(struct case_outputs *out);
/* No byte between or around the elements changed (checked where the span was filled). */
bool case_outputs_intact(const struct case_outputs *out);

/* The problem of the case: status of the checks. */
int32_t case_problem(struct problem *p, const struct case_inputs *in, struct case_outputs *out, enum op op);

/* ---------------------------------------------------------------- memory and geometry, used by the above */

/* `bytes` between inaccessible pages, ending at the second; false: no address space. */
bool span_make(struct span *span, size_t bytes);
void span_free(struct span *span);
/* Every byte of the span that is no element of t still holds the poison. */
bool span_intact(const struct span *span, const qattn_tensor *t);
/* Elements from the first to the last of a view with strides >= 0. */
int64_t tensor_extent(const int64_t shape[4], const int64_t stride[4]);
/* Strides of a packed tensor. */
void tensor_pack(const int64_t shape[4], int64_t stride[4]);
/* Shape and strides of tensor t of the case (pages: of the pool). */
void case_shape(const struct test_case *c, int t, int64_t shape[4]);
void case_strides(const struct test_case *c, int t, int64_t stride[4]);

/* Value, address of an element. */
double tensor_get(const qattn_tensor *t, int64_t b, int64_t h, int64_t s, int64_t d);
char *tensor_at(const qattn_tensor *t, int64_t b, int64_t h, int64_t s, int64_t d);
/* Same bits, element by element, of two tensors of one shape and type. */
bool tensor_same_bits(const qattn_tensor *a, const qattn_tensor *b);

#endif
