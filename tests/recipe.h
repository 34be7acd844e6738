/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Synthetic inputs that every machine makes bit for bit (tests/data/README.md, "Synthetic inputs"). Every element
 * depends on its index alone; only + - * / sqrt in double, so compile with -ffp-contract=off. */
#ifndef QATTN_TESTS_RECIPE_H
#define QATTN_TESTS_RECIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum recipe_kind {
    RECIPE_NORMAL,
    RECIPE_OUTLIER,      /* four key channels of each head are 20 times larger */
    RECIPE_SINK,         /* key 0 has logit 18 in every row, and a short value */
    RECIPE_RAMP,         /* the logit grows with the key's index */
    RECIPE_RAMP_DOWN,    /* the logit falls with the key's index */
    RECIPE_DEAD_ROWS,    /* mask; every fifth row sees no key */
    RECIPE_POISON,       /* mask and lengths; hidden keys hold NaN, inf, -inf, 3e38 */
    RECIPE_KINDS
};

struct recipe {
    enum recipe_kind kind;
    uint64_t base;                              /* seed of the data set */
    int64_t b, hq, hkv, seqlen_q, seqlen_k, d, dv;
};

/* The i-th output of splitmix64. */
uint64_t recipe_bits(uint64_t seed, uint64_t i);

/* Elements first .. first+count-1 of the standard normal sequence of `seed`. */
void recipe_normals(uint64_t seed, int64_t first, int64_t count, float *out);

/* Whole tensors, packed: q [b,hq,seqlen_q,d], k [b,hkv,seqlen_k,d], v [b,hkv,seqlen_k,dv]. */
void recipe_q(const struct recipe *r, float *q);
void recipe_k(const struct recipe *r, float *k);
void recipe_v(const struct recipe *r, float *v);

/* Does the kind come with a mask [seqlen_q][seqlen_k] (1: visible), with lengths [b]? */
bool recipe_has_keep(const struct recipe *r);
bool recipe_has_lengths(const struct recipe *r);
void recipe_keep(const struct recipe *r, uint8_t *keep);
void recipe_lengths(const struct recipe *r, int32_t *seqused_k);

/* "dead_rows" */
const char *recipe_name(enum recipe_kind kind);

/* FNV-1a, 64 bits. Start with RECIPE_FNV_START; feed on with the last result. */
#define RECIPE_FNV_START 0xcbf29ce484222325u
uint64_t recipe_fnv(uint64_t hash, const void *data, size_t bytes);

#endif
