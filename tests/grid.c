/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The grid: corner shapes first, then one family per feature, then random mixtures of everything. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_logical.h"
#include "gpu.h"
#include "grid.h"
#include "support.h"

/* Every set of types the contract offers: q, k and v, o. */
static const struct { int32_t q, kv, o; } types[TYPE_SETS] = {
    { F32, F32, F32 },  { F16, F16, F16 },   { BF16, BF16, BF16 }, { F16, F16, F32 },   { BF16, BF16, F32 },
    { F16, E4M3, F16 }, { BF16, E4M3, BF16 }, { F16, E5M2, F16 },  { BF16, E5M2, BF16 }, { F16, I8, F16 },
    { BF16, I8, BF16 }, { F16, E5M2, F32 },  { BF16, I8, F32 },    { BF16, E4M3, F32 }, { E4M3, E4M3, F16 },
    { E4M3, E4M3, BF16 }, { E4M3, E4M3, F32 }, { E5M2, E5M2, F32 }, { E5M2, E5M2, BF16 }, { I8, I8, F32 },
    { I8, I8, F16 },    { I8, I8, BF16 },    { E5M2, E5M2, F16 },
};

void attn_grid_push(struct attn_grid *grid, const struct attn_case *c)
{
    if (grid->count == grid->capacity) {
        grid->capacity = grid->capacity ? 2 * grid->capacity : 256;
        grid->at = realloc(grid->at, (size_t)grid->capacity * sizeof *grid->at);
        if (!grid->at)
            abort();
    }
    grid->at[grid->count++] = *c;
}

void attn_grid_free(struct attn_grid *grid)
{
    free(grid->at);
    *grid = (struct attn_grid){ 0 };
}

static bool is_softmax(const struct attn_case *c) { return c->op == OP_SOFTMAX; }

/* A case of type set t; softmax takes the q and o of the first five. */
struct attn_case grid_typed(enum op op, int64_t t)
{
    const int64_t k = op == OP_SOFTMAX ? t % 5 : t % TYPE_SETS;
    struct attn_case c = attn_case_default(op, types[k].q, types[k].kv, types[k].o);
    if (types[k].kv == I8)
        c.k_scale = c.v_scale = SCALE_ONE;      /* raw integers would make every row one-hot */
    if (types[k].q == I8)
        c.q_scale = SCALE_ONE;
    return c;
}

void grid_shape(struct attn_case *c, int64_t b, int64_t hq, int64_t hkv, int64_t sq, int64_t sk, int64_t d)
{
    c->b = b;
    c->hq = hq;
    c->hkv = is_softmax(c) ? hq : hkv;
    c->sq = sq;
    c->sk = sk;
    c->d = is_softmax(c) ? 0 : d;
}

/* Every pushed case gets a seed, and two of three a random layout. */
void grid_push(struct attn_grid *g, struct attn_case c)
{
    c.seed = 1 + g->count;
    c.aligned |= gpu_wanted() && g->count % 2;
    if (c.lay == 0)
        c.lay = g->count % 9 == 0 ? 0 : g->count % 9 == 1 ? 1 : g->count % 9 == 2 ? 2 : 4 + g->count;
    attn_grid_push(g, &c);
}

/* ---------------------------------------------------------------- families */

static const int64_t lengths[] = { 0, 1, 2, 3, 5, 7, 8, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 257 };

/* Sq x Sk, causal and not. */
static void add_lengths(struct attn_grid *g, enum op op)
{
    int64_t t = 0;
    for (int64_t i = 0; i < COUNT(lengths); i++)
        for (int64_t j = 0; j < COUNT(lengths); j++) {
            if (lengths[i] * lengths[j] > 20000)
                continue;
            struct attn_case c = grid_typed(op, t % PLAIN_TYPES);
            grid_shape(&c, 1 + t % 2, 2, 1 + t % 2, lengths[i], lengths[j], t % 5 ? 32 : 64);
            c.causal = t++ % 2;
            grid_push(g, c);
        }
}

static const int64_t widths[] = { 0,   1,   2,   3,   7,   8,   15,  16,  17,   24,  31,  32,
                                  33,  40,  48,  64,  65,  72,  80,  96,  100,  112, 128, 129,
                                  160, 192, 200, 256, 257, 320, 512, 576, 1023, 1024 };

static void add_widths(struct attn_grid *g, enum op op)
{
    static const int64_t pairs[][2] = { { 192, 128 }, { 576, 512 }, { 128, 192 }, { 64, 0 }, { 0, 64 }, { 1, 1024 },
                                        { 1024, 1 }, { 40, 80 }, { 64, 65 }, { 96, 33 } };
    for (int64_t i = 0; i < COUNT(widths); i++)
        for (int64_t k = 0; k < 2 * PLAIN_TYPES; k++) {
            struct attn_case c = grid_typed(op, k % PLAIN_TYPES);
            grid_shape(&c, 1, 4, 2, k < PLAIN_TYPES ? 1 + i % 3 : 19, 37, widths[i]);
            c.causal = k % 2;
            grid_push(g, c);
        }
    for (int64_t i = 0; i < COUNT(pairs); i++)
        for (int64_t t = 0; t < 8; t++) {
            struct attn_case c = grid_typed(op, t);
            grid_shape(&c, 2, 3, 1, t % 2 ? 1 : 18, 21, pairs[i][0]);
            c.dv = pairs[i][1];
            grid_push(g, c);
        }
}

static void add_groups(struct attn_grid *g, enum op op)
{
    static const int64_t groups[] = { 1, 2, 3, 4, 5, 6, 7, 8, 12, 16 }, rows[] = { 1, 2, 3, 6, 33 };
    int64_t t = 0;
    for (int64_t i = 0; i < COUNT(groups); i++)
        for (int64_t r = 0; r < COUNT(rows); r++)
            for (int64_t hkv = 1; hkv <= 3; hkv++) {
                struct attn_case c = grid_typed(op, t % 5);
                grid_shape(&c, 1 + t % 2, groups[i] * hkv, hkv, rows[r], 45, 64);
                c.causal = t++ % 2;
                c.sinks = t % 3 == 0;
                grid_push(g, c);
            }
}

/* The causal corners, windows on both sides, offsets, at Sq <, =, > Sk. */
static void add_positions(struct attn_grid *g, enum op op)
{
    static const int64_t sizes[][2] = { { 1, 70 },  { 5, 5 },     { 33, 70 }, { 70, 33 },
                                        { 66, 66 }, { 130, 130 }, { 40, 1 } };
    static const int64_t windows[][2] = { { -2, -2 }, { 0, 0 }, { 3, 0 }, { -1, 0 }, { 0, -1 }, { 5, 7 }, { -1, -1 },
                                          { 31, 2 }, { 64, 64 }, { 1000, 0 } };
    static const int64_t offsets[] = { 0, 3, -4, 1000, -1000 };
    int64_t t = 0;
    for (int64_t s = 0; s < COUNT(sizes); s++)
        for (int64_t w = 0; w < COUNT(windows); w++)
            for (int64_t corner = 0; corner < 2 + COUNT(offsets); corner++) {
                struct attn_case c = grid_typed(op, t % PLAIN_TYPES);
                grid_shape(&c, 1 + t % 2, 2, 1, sizes[s][0], sizes[s][1], 32);
                c.left = windows[w][0];
                c.right = windows[w][1];
                c.causal = (t + w) % 2;
                c.top_left = corner == 1;
                c.offset = corner < 2 ? 0 : 1 + t % 2;
                c.q_off = corner < 2 ? 0 : offsets[corner - 2];
                c.alibi = t++ % 4 == 3;
                grid_push(g, c);
            }
    for (int64_t k = 0; k < 6; k++) {                    /* offsets and windows at the ends of 64 bits */
        struct attn_case c = grid_typed(op, 0);
        grid_shape(&c, 1, 1, 1, 5, 9, 16);
        c.offset = 1;
        c.q_off = k % 2 ? INT64_MAX : INT64_MIN;
        c.causal = k < 2;
        c.left = k < 2 ? -2 : k < 4 ? INT64_MAX - 1 : 3;
        c.right = k < 2 ? -2 : k < 4 ? INT64_MAX - 1 : 3;
        grid_push(g, c);
    }
}

/* bias and keep over every set of broadcast axes. */
static void add_masks(struct attn_grid *g, enum op op)
{
    for (int64_t axes = 0; axes < 16; axes++)
        for (int64_t kind = 0; kind < 9; kind++) {
            struct attn_case c = grid_typed(op, (axes + kind) % 8);
            grid_shape(&c, 2, 4, 2, kind % 3 == 0 ? 1 : 35, axes % 2 ? 67 : 130, 32);
            if (kind < 5) {
                c.bias = 16 + axes;
                c.bias_type = (axes + kind) % 3;
                c.bias_kind = kind;
            }
            if (kind >= 4) {
                c.keep = 16 + axes;
                c.keep_kind = kind % 4;
                c.keep_u8 = axes % 2;
            }
            c.causal = axes % 3 == 0;
            c.sinks = axes % 5 == 0;
            grid_push(g, c);
        }
}

static void add_numbers(struct attn_grid *g, enum op op)
{
    static const double scales[] = { 0, 1, -1, 0.01, -0.3, 20, 1e-30, 1e30 }, caps[] = { 0, 0.5, 5, 50 };
    int64_t t = 0;
    for (int64_t i = 0; i < COUNT(scales); i++)
        for (int64_t k = 0; k < COUNT(caps); k++)
            for (int64_t r = 0; r < 3; r++) {
                struct attn_case c = grid_typed(op, t % PLAIN_TYPES);
                /* scores of 1e31 tell nothing about rounding: one key, or a cap */
                grid_shape(&c, 2, 4, 2, r == 0 ? 1 : 20, scales[i] == 1e30 && caps[k] == 0 ? 1 : 50, 48);
                c.scale = scales[i];
                c.as_given = i == 0 && r == 1;
                c.softcap = caps[k];
                c.sinks = t % 2;
                c.alibi = scales[i] == 1e30 ? 0 : t % 4;
                c.base2 = t % 5 == 0;
                c.causal = t++ % 3 == 0;
                grid_push(g, c);
            }
}

/* Biases of +inf and NaN, seen and behind masks. */
static void add_odd_biases(struct attn_grid *g, enum op op)
{
    static const int64_t sizes[][2] = { { 1, 40 }, { 35, 67 }, { 70, 200 } };
    for (int64_t t = 0; t < 15; t++) {
        struct attn_case c = grid_typed(op, t % 5);
        grid_shape(&c, 2, 4, 2, sizes[t % 3][0], sizes[t % 3][1], 64);
        c.bias = 16 + (t % 2 ? 15 : 12);
        c.bias_type = t % 3;
        c.bias_kind = BIAS_ODD;
        c.causal = t % 2;
        c.keep = t % 4 == 3 ? 16 + 15 : 0;
        c.softcap = t % 5 == 4 ? 5 : 0;
        grid_push(g, c);
    }
}

/* Sinks that are no numbers, on rows with keys and without. */
static void add_odd_sinks(struct attn_grid *g, enum op op)
{
    for (int64_t t = 0; t < 12; t++) {
        struct attn_case c = grid_typed(op, t % 5);
        grid_shape(&c, 2, 8, 2, t % 2 ? 9 : 1, t % 3 ? 70 : 3, 64);
        c.sinks = 2;
        c.causal = t % 2;
        c.used_k = t % 4 == 3 ? USED_ZERO_OR_ALL : 0;
        c.used_q = t % 4 == 2 ? USED_SOME : 0;
        c.splits = op == OP_FLASH_FORWARD && t % 6 == 5 ? 3 : 0;
        c.base2 = t % 5 == 0;
        grid_push(g, c);
    }
}

static void add_lengths_used(struct attn_grid *g, enum op op)
{
    for (int64_t q = 0; q < 5; q++)
        for (int64_t k = 0; k < 5; k++)
            for (int64_t t = 0; t < 4; t++) {
                struct attn_case c = grid_typed(op, (q + k + t) % 8);
                grid_shape(&c, 3, 4, 2, t == 1 ? 1 : 22, t == 2 ? 140 : 40, 32);
                c.used_q = q;
                c.used_k = k;
                c.causal = t % 2;
                c.left = t == 3 ? 6 : -2;
                c.max_q = t == 2 && !is_softmax(&c) ? 15 : 0;
                c.max_k = t == 3 && !is_softmax(&c) ? 25 : 0;
                grid_push(g, c);
            }
}

/* Packed, paged, and the engines' mixture. */
static void add_packed(struct attn_grid *g, enum op op)
{
    static const int64_t pages[] = { 0, 1, 2, 3, 16, 64, 128, 257 };
    int64_t t = 0;
    for (int64_t p = 0; p < COUNT(pages); p++)
        for (int64_t form = 0; form < 3; form++)         /* q padded; q packed, k padded or paged; both packed */
            for (int64_t r = 0; r < 12; r++) {
                if (form == 2 && pages[p])
                    continue;
                struct attn_case c = grid_typed(op, t);
                grid_shape(&c, 1 + r % 5, 4, 2, r % 4 == 0 ? 1 : 37, r % 3 ? 90 : 150, r % 2 ? 64 : 40);
                c.page = pages[p];
                c.packed_q = form > 0;
                c.packed_k = form == 2;
                c.lead = form && r % 2 ? 3 : 0;
                c.used_q = r % 6 == 5;
                c.used_k = r % 4;
                c.causal = r % 3 != 2;
                c.left = r % 7 == 6 ? 11 : -2;
                c.max_q = r == 7 ? 9 : 0;
                c.max_k = r == 8 ? 50 : 0;
                c.sinks = r % 5 == 4;
                c.alibi = r % 5 == 3 ? 2 : 0;
                c.bias = form == 0 && r == 9 ? 16 + 15 : 0;
                c.keep = form == 0 && r == 10 ? 16 + 8 : 0;
                if (c.page && (t % 3 == 0) && c.kv_dtype != c.q_dtype)
                    c.k_scale = c.v_scale = SCALE_PAGE;
                t++;
                grid_push(g, c);
            }
}

static void add_descales(struct attn_grid *g, enum op op)
{
    for (int64_t t = 5; t < TYPE_SETS; t++)
        for (int64_t kind = SCALE_NONE; kind <= SCALE_ROW_D; kind++)
            for (int64_t r = 0; r < 2; r++) {
                struct attn_case c = grid_typed(op, t);
                if (kind == SCALE_NONE && c.kv_dtype == I8)
                    c.scale = 1e-4;              /* raw integers: keep the scores small */
                grid_shape(&c, 2, 6, 2, r ? 9 : 1, 40, 32);
                c.k_scale = kind;
                c.v_scale = (kind + 2 * r) % (SCALE_ROW_D + 1);
                c.q_scale = c.q_dtype == c.kv_dtype ? (kind + 3 * r) % (SCALE_ROW_D + 1) : SCALE_NONE;
                if (c.q_dtype == I8 && (kind == SCALE_NONE || c.q_scale == SCALE_NONE))
                    c.scale = 1e-4;
                c.causal = r;
                c.packed_q = c.packed_k = r && kind == SCALE_ROW;
                grid_push(g, c);
            }
}

/* Long keys: splits, the order of sums, BATCH_INVARIANT. */
static void add_splits(struct attn_grid *g, enum op op)
{
    static const int64_t splits[] = { 0, 1, 2, 3, 7, 64 }, keys[] = { 5, 300, 1025, 4097 };
    int64_t t = 0;
    for (int64_t i = 0; i < COUNT(splits); i++)
        for (int64_t k = 0; k < COUNT(keys); k++)
            for (int64_t r = 0; r < 4; r++) {
                struct attn_case c = grid_typed(op, t++ % 8);
                grid_shape(&c, 1 + r % 2, 4, 2, r < 2 ? 1 : r == 2 ? 3 : keys[k] > 4000 ? 5 : 20, keys[k], 32);
                c.splits = op == OP_GQA_FORWARD ? splits[i] % 2 : splits[i];
                c.invariant = c.splits == 0 && r % 2;
                c.causal = r % 2;
                c.sinks = r == 3;
                c.used_k = r == 1 ? USED_SOME : 0;
                c.packed_q = c.packed_k = op == OP_FLASH_FORWARD && r == 2;
                c.page = op == OP_FLASH_FORWARD && r == 3 ? 16 : 0;
                grid_push(g, c);
            }
}

/* NaN and Inf, hidden and seen. */
static void add_bad_values(struct attn_grid *g, enum op op)
{
    static const int64_t sizes[][2] = { { 1, 33 }, { 9, 9 }, { 40, 70 }, { 130, 131 }, { 70, 40 } };
    for (int64_t nan = NAN_LAST_KEYS; nan <= NAN_ONE_QUERY; nan++)
        for (int64_t s = 0; s < COUNT(sizes); s++)
            for (int64_t r = 0; r < 10; r++) {
                struct attn_case c = grid_typed(op, r % 5);
                grid_shape(&c, 2, 4, 2, sizes[s][0], sizes[s][1], 32);
                c.nan = nan;
                c.causal = r % 3 == 0;
                c.left = r % 3 == 1 ? 5 : -2;
                c.keep = r == 4 || r == 8 ? 16 + 8 : r == 5 ? 16 + 15 : 0;
                c.keep_kind = KEEP_HIDES_BAD;
                c.bias = r == 6 || r == 9 ? 16 + 12 : r == 7 ? 16 + 8 : 0;
                c.bias_kind = BIAS_HIDES_BAD;
                c.used_k = r == 2 ? USED_SOME : 0;
                c.softcap = r == 5 ? 3 : 0;
                if (!c.keep)
                    c.keep_kind = 0;
                if (!c.bias)
                    c.bias_kind = 0;
                grid_push(g, c);
            }
}

static void add_scores(struct attn_grid *g)
{
    for (int64_t stage = 0; stage < 4; stage++)
        for (int64_t t = 0; t < 8; t++)
            for (int64_t r = 0; r < 5; r++) {
                struct attn_case c = grid_typed(OP_GQA_FORWARD, t);
                grid_shape(&c, 2, 4, 2, r == 0 ? 1 : 25, 40, 32);
                c.scores = 1 + (t + r) % 2;       /* q's type only where q has 16 bits or more */
                c.stage = stage;
                c.softcap = r % 2 ? 4 : 0;
                c.causal = r > 2;
                c.bias = r == 2 ? 16 + 15 : 0;
                c.bias_kind = r == 2 ? BIAS_SOME_HIDDEN : 0;
                c.keep = r == 3 ? 16 + 12 : 0;
                c.keep_kind = r == 3 ? KEEP_DEAD_ROWS : 0;
                c.used_q = c.used_k = r == 4;
                c.alibi = r == 1;
                grid_push(g, c);
            }
}

static void add_softmax(struct attn_grid *g)
{
    static const int64_t keys[] = { 1, 2, 15, 16, 17, 63, 65, 200, 1025, 4097 };
    for (int64_t k = 0; k < COUNT(keys); k++)
        for (int64_t t = 0; t < 10; t++) {
            struct attn_case c = grid_typed(OP_SOFTMAX, t % 5);
            grid_shape(&c, 2, 3, 3, 1 + t, keys[k], 0);
            c.causal = t % 2;
            c.in_place = c.o_dtype == c.q_dtype && t >= 5;
            c.no_lse = t == 7;
            grid_push(g, c);
        }
}

static void add_empty(struct attn_grid *g, enum op op)
{
    for (int64_t k = 0; k < 6; k++)
        for (int64_t t = 0; t < 6; t++) {
            struct attn_case c = grid_typed(op, t);
            grid_shape(&c, 2, 4, 2, 5, 7, 16);
            c.b = k == 0 ? 0 : 2;
            if (k == 1)
                c.hq = c.hkv = 0;
            c.hq = k == 2 ? 0 : c.hq;
            c.sq = k == 3 ? 0 : c.sq;
            c.sk = k == 4 ? 0 : c.sk;
            c.hkv = is_softmax(&c) ? c.hq : c.hkv;
            c.sinks = k == 4 && t % 2;
            c.packed_q = c.packed_k = k == 0 && t % 2 && !is_softmax(&c);
            grid_push(g, c);
        }
}

static void add_random(struct attn_grid *g, enum op op, int64_t n)
{
    struct rng r = { hash64(20261129, (uint64_t)op), 0 };
    for (int64_t i = 0; i < n; i++) {
        struct attn_case c = attn_case_random(op, &r);
        /* words print with 9 digits: keep what the line can say */
        c.scale = (float)c.scale;
        c.softcap = (float)c.softcap;
        attn_grid_push(g, &c);
    }
}

/* Others than any run before: QATTN_TEST_GRID=random QATTN_TEST_SEED=n QATTN_TEST_RANDOM=cases. */
static void add_random_of_seed(struct attn_grid *g, enum op op)
{
    struct rng r = { hash64((uint64_t)env_number("QATTN_TEST_SEED", 1), (uint64_t)op), 77 };
    const int64_t cases = env_number("QATTN_TEST_RANDOM", 2000);
    for (int64_t i = 0; i < cases; i++) {
        struct attn_case c = i % 2 && op != OP_SOFTMAX ? grid_random_tiles(op, &r) : attn_case_random(op, &r);
        c.scale = (float)c.scale;
        c.softcap = (float)c.softcap;
        attn_grid_push(g, &c);
    }
}

/* ---------------------------------------------------------------- whole grids */

/* Small: every ninth case, which still meets every family. */
static void thin(struct attn_grid *g)
{
    enum { KEEP_ONE_IN = 9 };
    int64_t kept = 0;
    for (int64_t i = 0; i < g->count; i += KEEP_ONE_IN)
        g->at[kept++] = g->at[i];
    g->count = kept;
}

/* The cases of this operation among the lines of `text`. */
static void add_lines(struct attn_grid *g, enum op op, const char *text)
{
    char line[400];
    struct attn_case one;
    while (*text) {
        const size_t length = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)length, text);
        if (length > 0 && !attn_case_parse(&one, line)) {
            printf("QATTN_TEST_CASE: no case: %s\n", line);
            exit(EXIT_FAILURE);
        }
        if (length > 0 && one.op == op)
            attn_grid_push(g, &one);
        text += length + (text[length] == '\n');
    }
}

struct attn_grid attn_grid_make(enum op op)
{
    struct attn_grid g = { 0 };
    const char *only = getenv("QATTN_TEST_CASE");
    if (only) {
        add_lines(&g, op, only);
        return g;
    }
    if (grid_is("edges")) {
        grid_add_edges(&g, op);
        return g;
    }
    if (grid_is("random")) {
        add_random_of_seed(&g, op);
        return g;
    }
    add_empty(&g, op);
    add_lengths(&g, op);
    if (op != OP_SOFTMAX)
        add_widths(&g, op);
    add_groups(&g, op);
    add_positions(&g, op);
    add_masks(&g, op);
    add_numbers(&g, op);
    add_lengths_used(&g, op);
    add_bad_values(&g, op);
    if (op == OP_FLASH_FORWARD)
        add_packed(&g, op);
    if (op != OP_SOFTMAX) {
        add_descales(&g, op);
        add_splits(&g, op);
    }
    if (op == OP_GQA_FORWARD)
        add_scores(&g);
    if (op == OP_SOFTMAX)
        add_softmax(&g);
    add_odd_sinks(&g, op);
    add_odd_biases(&g, op);
    grid_add_edges(&g, op);
    add_random(&g, op, op == OP_FLASH_FORWARD ? 900 : 300);
    if (op != OP_SOFTMAX)
        grid_add_tiles(&g, op);
    if (grid_small())
        thin(&g);
    return g;
}
