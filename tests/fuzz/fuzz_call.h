/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * A call made of fuzzer bytes. Every tensor and array lies in a heap block of exactly its size, so the address
 * sanitizer sees each access outside; every block keeps a copy of what it held before the call.
 *
 *   fuzz_call.c     bytes -> a call that is valid, or nearly
 *   fuzz_mutate.c   breaks fields of it; tells whether the library may still be let loose on the pointers
 *   fuzz_args.c     makes the call and its twins, checks statuses, refusals and values
 */
#ifndef QATTN_TESTS_FUZZ_FUZZ_CALL_H
#define QATTN_TESTS_FUZZ_FUZZ_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/problem.h"

struct bytes { const uint8_t *data; size_t left; };

static inline uint8_t take_u8(struct bytes *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->data++;
}

/* 0 .. n-1 */
static inline int64_t take_below(struct bytes *in, int64_t n) { return take_u8(in) % n; }
static inline bool take_chance(struct bytes *in, int one_in) { return take_below(in, one_in) == one_in - 1; }

struct block {
    unsigned char *mem;      /* malloc of exactly `bytes` (of 1 if 0) */
    unsigned char *before;   /* its contents before the call */
    size_t bytes;
    bool output;
};

enum { MAX_BLOCKS = 40, MAX_FUZZ_PARTS = 4, MAX_TENSORS = 16 };

struct call {
    enum op op;
    bool causal_twin;                   /* qattn_softmax_causal */
    bool comparable;                    /* lengths, page ids and starts are sane: values are specified */
    qattn_tensor a, b, c, d;            /* in the order of the operation: q k v o; a b c; x y; -, -, o, lse (merge) */
    int64_t num_parts;
    qattn_tensor o_parts[MAX_FUZZ_PARTS], lse_parts[MAX_FUZZ_PARTS];
    union {
        qattn_attn_params    attn;
        qattn_matmul_params  matmul;
        qattn_softmax_params softmax;
        qattn_merge_params   merge;
    } params;
    size_t params_size;                 /* sizeof of the member in use */
    struct block blocks[MAX_BLOCKS];
    int num_blocks;
};

/* Makes a tiny call. */
void call_make(struct call *c, struct bytes *in);
void call_free(struct call *c);

/* Every tensor of the call, those in params too. */
int call_tensors(struct call *c, qattn_tensor *out[MAX_TENSORS]);

/* The block that holds bytes [p, p + bytes); NULL: none does. */
struct block *call_find(struct call *c, const void *p, size_t bytes);

/* Overwrites some fields with odd values. */
void call_mutate(struct call *c, struct bytes *in);

/* Every pointer the library may follow stays inside its block, and the work is small. */
bool call_is_contained(struct call *c);

#endif
