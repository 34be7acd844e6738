/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "invariance_worlds.h"

#include <string.h>

#include "attn_logical.h"
#include "grid.h"

enum { NUM_TYPES = 6 };

static const struct { int32_t q, kv, o;
} types[NUM_TYPES] = {
    { QATTN_DTYPE_F32, QATTN_DTYPE_F32, QATTN_DTYPE_F32 },
    { QATTN_DTYPE_BF16, QATTN_DTYPE_BF16, QATTN_DTYPE_BF16 },
    { QATTN_DTYPE_F16, QATTN_DTYPE_F16, QATTN_DTYPE_F16 },
    { QATTN_DTYPE_BF16, QATTN_DTYPE_E4M3FN, QATTN_DTYPE_BF16 },
    { QATTN_DTYPE_F16, QATTN_DTYPE_F16, QATTN_DTYPE_F32 },
    { QATTN_DTYPE_E4M3FN, QATTN_DTYPE_E4M3FN, QATTN_DTYPE_F32 },
};

/* Types and heads (query heads, KV heads, D) of a world. */
static struct attn_case world_of(enum op op, int64_t type, const int64_t heads[3])
{
    struct attn_case c = attn_case_default(op, types[type].q, types[type].kv, types[type].o);
    c.hq = heads[0];
    c.hkv = heads[1];
    c.d = heads[2];
    c.invariant = 1;
    return c;
}

/* Every type set, with and without causal, windows, sinks, softcap; lengths that cross tiles and splits. */
static struct attn_case base_case(int64_t k)
{
    static const int64_t heads[][3] = { { 4, 2, 64 }, { 6, 1, 40 }, { 2, 2, 128 }, { 9, 3, 65 } };
    struct attn_case c = world_of(OP_FLASH_FORWARD, k % NUM_TYPES, heads[k % 4]);
    c.causal = k % 3 != 2;
    c.left = k % 5 == 3 ? 30 : -2;
    c.sinks = k % 4 == 1;
    c.alibi = k % 7 == 2;
    c.softcap = k % 6 == 4 ? 8 : 0;
    c.seed = 900 + k;
    return c;
}

/* The same on rows of 16 bytes, with keys over several tiles and splits and heads packed into rows. */
static struct attn_case tile_case(int64_t k)
{
    static const int64_t heads[][3] = { { 8, 2, 128 }, { 4, 4, 64 }, { 8, 1, 128 }, { 2, 1, 256 },
                                        { 6, 2, 96 },  { 5, 1, 80 }, { 14, 2, 64 }, { 2, 2, 40 } };
    const int64_t t = k % 3 ? 1 + k / 3 % 4 : k % 2 ? 3 : 2;
    struct attn_case c = world_of(k % 5 == 4 ? OP_GQA_FORWARD : OP_FLASH_FORWARD, t, heads[k % 8]);
    c.dv = k % 9 == 8 && c.d == 128 ? 64 : -1;
    c.aligned = 1;
    c.causal = k % 4 != 3;
    c.left = k % 7 == 3 ? 130 : -2;
    c.sinks = k % 6 == 1;
    c.alibi = k % 11 == 2;
    c.softcap = k % 10 == 4 ? 8 : 0;
    c.seed = 1900 + k;
    return c;
}

/* f32 by each precision, and bf16, with values far from 1: on both sides of where TF32's kernels change their way. */
static struct attn_case number_case(int64_t k)
{
    static const int64_t heads[][3] = { { 4, 2, 64 }, { 8, 2, 128 }, { 2, 1, 256 }, { 3, 3, 44 } };
    const int64_t t = k % 8 == 7 ? 1 : 0;
    struct attn_case c = world_of(k % 8 == 5 ? OP_GQA_FORWARD : OP_FLASH_FORWARD, t, heads[k / 2 % 4]);
    c.causal = k % 4 != 3;
    c.precision = t == 1 ? 0 : k % 8 == 5 ? 0 : 1 + k % 2;
    c.seed = 2900 + k;
    attn_set_numbers(&c, k % 3 < 2 ? NUMBERS_LARGE_K + k / 3 % 3 : NUMBERS_LARGEST_K + k / 3 % 5);
    return c;
}

/* IEEE f32 over keys that are summed in several spans: what rounding took of a row's sums is kept and added again,
 * for keys that only others of its tile see, too. ALiBi, so that it has many digits: the sums to be added differ in
 * size. */
static struct attn_case span_case(int64_t k)
{
    struct attn_case c = attn_case_default(k % 2 ? OP_GQA_FORWARD : OP_FLASH_FORWARD, F32, F32, F32);
    c.hq = c.hkv = 1 + k / 2;
    c.d = k < 2 ? 64 : 40;
    c.invariant = c.causal = c.alibi = 1;
    c.seed = 3900 + k;
    return c;
}

struct attn_case invariance_world(int64_t k)
{
    return k < FIRST_NUMBER ? base_case(k)
           : k < FIRST_SPAN ? number_case(k - FIRST_NUMBER)
           : k < FIRST_TILE ? span_case(k - FIRST_SPAN)
                            : tile_case(k - FIRST_TILE + BASE_WORLDS);     /* seeds and masks of old */
}

void invariance_lengths(int64_t k, int64_t len_q[SEQUENCES], int64_t len_k[SEQUENCES])
{
    static const int64_t rows[][SEQUENCES] = {
        { 1, 40, 17 }, { 70, 5, 129 }, { 3, 1, 2 }, { 200, 64, 100 }, { 90, 33, 70 }
    };
    static const int64_t keys[][SEQUENCES] = {
        { 300, 40, 77 }, { 70, 260, 200 }, { 1400, 1, 600 }, { 700, 64, 1500 }, { 1070, 1536, 2100 }
    };
    const int64_t at = k >= FIRST_TILE ? (k - FIRST_TILE) % 4 : k >= FIRST_SPAN ? 4 : k % 3;
    memcpy(len_q, rows[at], sizeof rows[at]);
    memcpy(len_k, keys[at], sizeof keys[at]);
}
