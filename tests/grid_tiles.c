/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The grid at the sizes of tensor-core tiles: rows around 16, 64 and 128, keys around 64 and 128 and several tiles
 * long, heads packed into rows, pages that cut tiles, 8-bit keys with every descale, poison behind every mask at D 64
 * to 256, TF32. Rows lie on 16 bytes, as the fast paths ask, but for some that must find another way.
 */
#include "gpu.h"
#include "grid.h"

/* On a device everything, on the CPU one case of so many (QATTN_TEST_TILES=1: everything). */
enum { CPU_ONE_IN = 60 };

bool grid_wants_tiles(void) { return gpu_wanted() || env_number("QATTN_TEST_TILES", 0); }

struct tiles { struct attn_grid *g; int64_t made; };

static void add(struct tiles *x, struct attn_case c)
{
    c.aligned = x->made % 8 == 7 ? 0 : x->made % 8 == 3 ? 2 : 1;
    if (x->made++ % CPU_ONE_IN == 0 || grid_wants_tiles())
        grid_push(x->g, c);
}

/* f16, bf16, and with f32 output. */
static struct attn_case half(enum op op, int64_t t) { return grid_typed(op, 1 + t % 4); }

static void add_lengths(struct tiles *x, enum op op)
{
    static const int64_t rows[] = { 1,  2,  8,   9,   15,  16,  17,  31,  33,  63,
                                    64, 65, 100, 127, 128, 129, 191, 193, 256, 257 };
    static const int64_t keys[] = { 1,   16,  31,  32,  33,  63,  64,  65,  95,  97,  127, 128,
                                    129, 191, 192, 193, 255, 257, 320, 383, 385, 511, 513 };
    static const int64_t widths[] = { 64, 128, 256, 96, 80, 64, 40, 128 };
    int64_t t = 0;
    for (int64_t i = 0; i < COUNT(rows); i++)
        for (int64_t j = 0; j < COUNT(keys); j++, t++) {
            struct attn_case c = half(op, t);
            grid_shape(&c, 1 + t % 2, 2, 1 + t % 2, rows[i], keys[j], widths[t % COUNT(widths)]);
            c.causal = t / 2 % 2;
            c.used_k = t % 7 == 3 ? USED_SOME : 0;
            c.used_q = t % 11 == 5 ? USED_SOME : 0;
            if (op == OP_FLASH_FORWARD || t % 3 == 0)
                add(x, c);
        }
}

static void add_widths(struct tiles *x, enum op op)
{
    static const int64_t pairs[][2] = {
        { 8, 8 },     { 16, 16 },   { 24, 24 },   { 32, 32 },   { 40, 40 },   { 48, 48 },   { 56, 56 },   { 64, 64 },
        { 72, 72 },   { 80, 80 },   { 88, 88 },   { 96, 96 },   { 104, 104 }, { 112, 112 }, { 120, 120 }, { 128, 128 },
        { 136, 136 }, { 144, 144 }, { 160, 160 }, { 176, 176 }, { 192, 192 }, { 200, 200 }, { 224, 224 }, { 248, 248 },
        { 256, 256 }, { 264, 264 }, { 320, 320 }, { 512, 512 }, { 192, 128 }, { 128, 64 },  { 64, 128 },  { 128, 256 },
        { 256, 128 }, { 96, 64 },   { 40, 128 },  { 256, 8 },   { 8, 256 },   { 576, 512 }, { 64, 0 },    { 0, 64 },
        { 33, 64 },   { 64, 33 },   { 127, 127 }, { 1, 64 },
    };
    static const int64_t sizes[][2] = { { 1, 150 }, { 3, 300 }, { 70, 130 } };
    int64_t t = 0;
    for (int64_t i = 0; i < COUNT(pairs); i++)
        for (int64_t s = 0; s < COUNT(sizes); s++)
            for (int64_t k = 0; k < 3; k++, t++) {
                struct attn_case c = k < 2 ? half(op, t) : grid_typed(op, FIRST_BYTE_TYPES + t % 18);
                grid_shape(&c, 1, 4, 2, sizes[s][0], sizes[s][1], pairs[i][0]);
                c.dv = pairs[i][1];
                c.causal = t % 2;
                add(x, c);
            }
}

static void add_groups(struct tiles *x, enum op op)
{
    static const int64_t groups[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 32 };
    static const int64_t rows[] = { 1, 2, 3, 4, 5, 7, 8, 9, 16, 17 }, widths[] = { 64, 128, 96, 256 };
    int64_t t = 0;
    for (int64_t i = 0; i < COUNT(groups); i++)
        for (int64_t r = 0; r < COUNT(rows); r++, t++) {
            struct attn_case c = half(op, t);
            const int64_t hkv = 1 + t % 2;
            grid_shape(&c, 1 + t % 3, groups[i] * hkv, hkv, rows[r], t % 5 ? 200 : 700, widths[t % COUNT(widths)]);
            c.causal = t % 2;
            c.left = t % 4 == 1 ? 70 : -2;
            c.right = t % 8 == 1 ? 3 : -2;
            c.sinks = t % 3 == 0;
            c.alibi = t % 5 == 4 ? 1 + t % 3 : 0;
            c.softcap = t % 7 == 6 ? 5 : 0;
            c.used_k = t % 3 == 2 ? USED_SOME : 0;
            c.splits = op == OP_FLASH_FORWARD && t % 4 == 3 ? 2 + t % 3 : 0;
            c.invariant = c.splits == 0 && t % 6 == 0;
            add(x, c);
        }
}

static void add_positions(struct tiles *x, enum op op)
{
    static const int64_t sizes[][2] = { { 200, 200 }, { 1, 500 },   { 65, 400 },
                                        { 300, 129 }, { 129, 300 }, { 256, 256 } };
    static const int64_t windows[][2] = { { -2, -2 }, { 0, 0 },     { 63, 0 },    { 64, 0 },     { 127, 64 },
                                          { -1, 5 },  { 130, 130 }, { 100, -1 },  { 1000, 1000 }, { 17, 200 } };
    static const int64_t offsets[] = { 0, 64, -64, 129, 1000, -1000 };
    int64_t t = 0;
    for (int64_t s = 0; s < COUNT(sizes); s++)
        for (int64_t w = 0; w < COUNT(windows); w++)
            for (int64_t corner = 0; corner < 2 + COUNT(offsets); corner++, t++) {
                struct attn_case c = half(op, t);
                grid_shape(&c, 1 + t % 2, 2, 1, sizes[s][0], sizes[s][1], t % 3 ? 64 : 128);
                c.left = windows[w][0];
                c.right = windows[w][1];
                c.causal = (t + w) % 2;
                c.top_left = corner == 1;
                c.offset = corner < 2 ? 0 : 1 + t % 2;
                c.q_off = corner < 2 ? 0 : offsets[corner - 2];
                c.alibi = t % 5 == 3 ? 1 : 0;
                c.used_k = t % 9 == 4 ? USED_SOME : 0;
                if (op == OP_FLASH_FORWARD || t % 4 == 0)
                    add(x, c);
            }
}

static void add_masks(struct tiles *x, enum op op)
{
    static const int64_t sizes[][2] = { { 1, 300 }, { 70, 200 }, { 130, 257 } };
    for (int64_t axes = 0; axes < 16; axes++)
        for (int64_t kind = 0; kind < 9; kind++) {
            struct attn_case c = half(op, axes + kind);
            const int64_t s = (axes + kind) % 3;
            grid_shape(&c, 2, 4, 2, sizes[s][0], sizes[s][1], kind % 2 ? 64 : 128);
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
            c.left = axes % 5 == 1 ? 80 : -2;
            c.sinks = axes % 5 == 0;
            c.softcap = axes % 7 == 3 ? 4 : 0;
            c.splits = op == OP_FLASH_FORWARD && axes % 4 == 2 ? 3 : 0;
            add(x, c);
        }
}

/* Decode and prefill rows mixed, packed and paged. */
static void add_pages(struct tiles *x, enum op op)
{
    static const int64_t pages[] = { 0, 1, 2, 3, 5, 8, 16, 24, 32, 64, 96, 128, 200, 256 };
    static const int64_t widths[] = { 64, 128, 80, 256, 96, 128 }, groups[] = { 1, 4, 8, 5, 2, 7 };
    int64_t t = 0;
    for (int64_t p = 0; p < COUNT(pages); p++)
        for (int64_t form = 0; form < 3; form++)
            for (int64_t r = 0; r < 14; r++, t++) {
                if (form == 2 && pages[p])
                    continue;
                struct attn_case c = t % 4 == 3 ? grid_typed(op, FIRST_BYTE_TYPES + t % 18) : half(op, t);
                const int64_t hkv = 1 + t % 2;
                grid_shape(&c, 2 + r % 5, groups[t % COUNT(groups)] * hkv, hkv, r % 4 == 0 ? 1 : r % 4 == 1 ? 5 : 66,
                           r % 3 ? 333 : 140, widths[t % COUNT(widths)]);
                c.page = pages[p];
                c.packed_q = form > 0;
                c.packed_k = form == 2;
                c.lead = form && r % 2 ? 3 : 0;
                c.used_q = r % 6 == 5;
                c.used_k = r % 4;
                c.causal = r % 3 != 2;
                c.left = r % 7 == 6 ? 90 : -2;
                c.max_q = r == 7 ? 9 : 0;
                c.max_k = r == 8 ? 150 : 0;
                c.splits = r % 5 == 2 ? 3 : r % 5 == 3 ? 1 : 0;
                c.invariant = c.splits < 2 && r % 3 == 1;
                c.sinks = r % 5 == 4;
                c.alibi = r % 5 == 3 ? 2 : 0;
                c.bias = form == 0 && r == 9 ? 16 + 15 : 0;
                c.keep = form == 0 && r == 10 ? 16 + 8 : 0;
                if (c.page && t % 3 == 0 && c.kv_dtype != c.q_dtype)
                    c.k_scale = c.v_scale = SCALE_PAGE;
                add(x, c);
            }
}

/* How decode cuts keys: chunks that are full, short or missing, as many splits as were asked for, blocks of either
 * size, with and without pages, lengths that all sequences share or that each has its own of. */
static void add_cuts(struct tiles *x, enum op op)
{
    static const int64_t keys[] = { 1, 16, 17, 63, 64, 65, 127, 129, 200, 513, 2049 };
    static const int64_t splits[] = { 0, 1, 2, 3, 8, 33, 64 }, pages[] = { 0, 16, 48, 64, 10 };
    int64_t t = 0;
    for (int64_t k = 0; k < COUNT(keys); k++)
        for (int64_t n = 0; n < COUNT(splits); n++)
            for (int64_t r = 0; r < 4; r++, t++) {
                const int64_t u = t + t / 4, hkv = 1 + u % 2, wide = t % 9 == 8 ? 40 : 1;    /* t % 4 is r */
                struct attn_case c = half(op, u);
                grid_shape(&c, r % 2 ? 3 : wide, (r == 3 ? 24 : 1 + t % 5) * hkv, hkv, 1 + u / 2 % 2, keys[k],
                           t % 3 ? 128 : 64);
                c.splits = splits[n];
                c.page = r == 1 || r == 3 ? pages[t % COUNT(pages)] : 0;
                c.used_k = t % 3 ? USED_SOME : USED_ALL;
                c.used_q = t % 13 == 6 ? USED_SOME : USED_ALL;
                c.causal = u % 4 == 1;
                c.top_left = u % 16 == 5;
                c.left = t % 7 == 3 ? 70 : -2;
                c.right = t % 7 == 3 ? 0 : -2;
                c.alibi = t % 11 == 4;
                c.nan = t % 5 == 2 ? NAN_LAST_KEYS : 0;
                add(x, c);
            }
}

/* Every kind of k's descale with every kind of v's. */
static void add_descales(struct tiles *x, enum op op)
{
    int64_t t = 0;
    for (int64_t k = SCALE_NONE; k <= SCALE_ROW_D; k++)
        for (int64_t v = SCALE_NONE; v <= SCALE_ROW_D; v++)
            for (int64_t r = 0; r < 3; r++, t++) {
                struct attn_case c = grid_typed(op, FIRST_BYTE_TYPES + t % 18);
                grid_shape(&c, 2, 4, 2, r == 0 ? 1 : r == 1 ? 9 : 70, r == 0 ? 300 : 140, t % 2 ? 64 : 128);
                c.k_scale = k;
                c.v_scale = v;
                c.q_scale = c.q_dtype == c.kv_dtype ? (k + v) % (SCALE_ROW_D + 1) : SCALE_NONE;
                if (c.kv_dtype == I8 && (k == SCALE_NONE || (c.q_dtype == I8 && c.q_scale == SCALE_NONE)))
                    c.scale = 1e-4;              /* raw integers: keep the scores small */
                c.causal = r == 2;
                c.packed_q = c.packed_k = op == OP_FLASH_FORWARD && r && k == SCALE_ROW;
                c.page = op == OP_FLASH_FORWARD && r < 2 && !c.packed_q && k != SCALE_ROW_D &&
                                 v != SCALE_ROW_D && t % 2
                             ? 16
                             : 0;
                c.splits = op == OP_FLASH_FORWARD && t % 5 == 0 ? 2 : 0;
                add(x, c);
            }
}

/* NaN and Inf behind every kind of mask, and seen. */
static void add_bad_values(struct tiles *x, enum op op)
{
    static const int64_t sizes[][2] = { { 1, 300 },  { 130, 130 }, { 200, 200 },
                                        { 65, 321 }, { 257, 257 }, { 16, 128 } };
    static const int64_t widths[] = { 64, 128, 256, 40, 96, 128 };
    int64_t t = 0;
    for (int64_t nan = NAN_LAST_KEYS; nan <= NAN_LAST_VALUE; nan++)
        for (int64_t s = 0; s < COUNT(sizes); s++)
            for (int64_t r = 0; r < 12; r++, t++) {
                struct attn_case c =
                    r == 11 ? grid_typed(op, 8)
                            : half(op, t + t / 12); /* 8: e5m2, which has NaN and Inf */
                grid_shape(&c, 1, 4, 2, sizes[s][0], sizes[s][1], widths[(t + s) % COUNT(widths)]);
                c.nan = nan;
                c.causal = r % 3 == 0;
                c.left = r % 3 == 1 ? 50 : -2;
                c.keep = r == 4 || r == 8 ? 16 + 8 : r == 5 ? 16 + 15 : 0;
                c.keep_kind = c.keep ? KEEP_HIDES_BAD : 0;
                c.bias = r == 6 || r == 9 ? 16 + 12 : r == 7 ? 16 + 8 : 0;
                c.bias_kind = c.bias ? BIAS_HIDES_BAD : 0;
                c.used_k = r == 2 ? USED_SOME : 0;
                c.softcap = r == 5 ? 3 : 0;
                c.splits = op == OP_FLASH_FORWARD && r == 10 ? 3 : 0;
                c.page = op == OP_FLASH_FORWARD && (r == 1 || r == 3) ? 16 : 0;
                c.packed_q = c.packed_k = op == OP_FLASH_FORWARD && r == 0;
                if (op == OP_FLASH_FORWARD || t % 3 == 0)
                    add(x, c);
            }
}

/* f32 through TF32 and three products of it, and as IEEE says. */
static void add_precisions(struct tiles *x, enum op op)
{
    static const int64_t rows[] = { 1, 5, 64, 129 }, keys[] = { 17, 128, 300 }, widths[] = { 64, 128, 40, 256, 96, 33 };
    int64_t t = 0;
    for (int64_t i = 0; i < COUNT(rows); i++)
        for (int64_t j = 0; j < COUNT(keys); j++)
            for (int64_t w = 0; w < COUNT(widths); w++)
                for (int64_t precision = 0; precision < 3; precision++, t++) {
                    struct attn_case c = grid_typed(op, 0);
                    grid_shape(&c, 1 + t % 2, 4, 2, rows[i], keys[j], widths[w]);
                    c.precision = precision;
                    c.causal = t / 3 % 2;
                    c.left = t % 5 == 1 ? 60 : -2;
                    c.sinks = t % 7 == 2;
                    c.used_k = t % 6 == 5 ? USED_SOME : 0;
                    c.bias = t % 8 == 3 ? 16 + 12 : 0;
                    c.keep = t % 8 == 5 ? 16 + 8 : 0;
                    c.nan = t % 16 == 9 ? NAN_LAST_VALUE : t % 16 == 13 ? NAN_LAST_KEYS : 0;
                    c.page = op == OP_FLASH_FORWARD && t % 10 == 7 ? 16 : 0;
                    c.packed_q = c.packed_k = op == OP_FLASH_FORWARD && t % 10 == 6 && !c.bias && !c.keep;
                    c.splits = op == OP_FLASH_FORWARD && t % 9 == 8 ? 3 : 0;
                    add(x, c);
                }
}

/* IEEE f32 over many rows at widths up to 128, with everything. */
static void add_wide_f32(struct tiles *x, enum op op)
{
    static const int64_t rows[] = { 33, 64, 65, 200 }, keys[] = { 1, 127, 128, 129, 600, 1100 };
    static const int64_t widths[][2] = { { 128, 128 }, { 99, 96 }, { 16, 65 }, { 0, 128 }, { 128, 65 }, { 99, 128 } };
    struct rng r = { hash64(32, (uint64_t)op), 0 };
    int64_t t = 0;
    for (int64_t i = 0; i < COUNT(rows); i++)
        for (int64_t j = 0; j < COUNT(keys); j++)
            for (int64_t k = 0; k < 6; k++, t++) {
                struct attn_case c = grid_typed(op, 0);
                const int64_t hkv = 1 + t % 2;
                grid_shape(&c, 1 + t / 2 % 2, hkv * (1 + t % 3), hkv, rows[i], keys[j], widths[k][0]);
                c.dv = widths[k][1];
                c.packed_q = c.packed_k = op == OP_FLASH_FORWARD && t % 5 == 4;
                c.splits = op == OP_FLASH_FORWARD && t % 4 == 1 ? 3 : op == OP_FLASH_FORWARD && t % 4 == 2;
                if (t % 3)
                    grid_random_masks(&c, &r);
                else
                    c.causal = t % 2;
                c.used_q = t % 7 == 3;
                c.used_k = t % 7 == 5;
                c.softcap = t % 8 == 6 ? 5 : 0;
                c.alibi = t % 9 == 7;
                c.sinks = t % 6 == 5;
                c.nan = t % 10 == 8 ? NAN_LAST_VALUE : t % 10 == 9 ? NAN_LAST_KEYS : 0;
                add(x, c);
            }
}

static void add_splits(struct tiles *x, enum op op)
{
    static const int64_t splits[] = { 0, 1, 2, 3, 8, 64 }, keys[] = { 130, 1000, 4100 }, rows[] = { 1, 4, 16, 70 };
    int64_t t = 0;
    for (int64_t i = 0; i < COUNT(splits); i++)
        for (int64_t k = 0; k < COUNT(keys); k++)
            for (int64_t r = 0; r < COUNT(rows); r++, t++) {
                struct attn_case c = t % 6 == 5 ? grid_typed(op, FIRST_BYTE_TYPES + t % 9) : half(op, t);
                grid_shape(&c, 1 + t % 2, 4, 1 + t % 2, rows[r], keys[k], t % 3 ? 128 : 64);
                c.splits = splits[i];
                c.invariant = c.splits == 0 && r % 2;
                c.causal = t % 2;
                c.left = t % 7 == 3 ? 300 : -2;
                c.sinks = t % 5 == 3;
                c.used_k = t % 3 == 1 ? USED_SOME : 0;
                c.packed_q = c.packed_k = r == 2;
                c.page = r == 3 ? 16 : 0;
                add(x, c);
            }
}

/* Every way out of a tile: o of any strides, or in aligned rows, beside q, k, v that fast paths take; f32 and 16 bits;
 * Dv odd, even and a multiple of 8; parts of splits; rows past seqused_q; tiles done again for NaN. */
static void add_results(struct tiles *x, enum op op)
{
    static const int64_t widths[][2] = { { 64, 64 }, { 128, 128 }, { 256, 256 }, { 128, 65 }, { 64, 66 }, { 128, 20 },
                                         { 256, 130 }, { 64, 2 } };
    static const int64_t groups[] = { 1, 3, 4 };
    int64_t t = 0;
    for (int64_t w = 0; w < COUNT(widths); w++)
        for (int64_t g = 0; g < COUNT(groups); g++)
            for (int64_t r = 0; r < 16; r++, t++) {
                struct attn_case c = half(op, r);
                grid_shape(&c, 1 + t % 2, 2 * groups[g], 2, r / 4 % 2 ? 130 : 70, 200, widths[w][0]);
                c.dv = widths[w][1];
                c.causal = t % 2;
                c.used_q = t % 5 == 3 ? USED_MOST : 0;
                c.nan = t % 4 == 2 ? NAN_ONE_VALUE : 0;
                if (op == OP_FLASH_FORWARD) {
                    c.splits = r / 8 ? 3 : 0;
                    c.packed_q = c.packed_k = t % 7 == 5;
                }
                c.lay = 4 + t;
                c.aligned = t % 8 == 7 ? 1 : 3;
                if (x->made++ % CPU_ONE_IN == 0 || grid_wants_tiles())
                    grid_push(x->g, c);
            }
}

struct attn_case grid_random_tiles(enum op op, struct rng *r)
{
    static const int64_t rows[] = { 1, 1, 1, 2, 4, 7, 16, 33, 64, 65, 100, 128, 130, 200 };
    static const int64_t keys[] = { 1, 17, 64, 65, 100, 128, 130, 200, 257, 300, 400, 513, 700 };
    static const int64_t common[] = { 64, 128, 128, 64, 256, 40, 80, 96, 32, 192 },
                         pages[] = { 1, 3, 8, 16, 16, 64, 128, 200 };
    static const int64_t groups[] = { 1, 2, 3, 4, 5, 6, 7, 8, 12, 1, 4, 8 };
    const int64_t t = rng_below(r, 4) ? 1 + rng_below(r, 4) : rng_below(r, 3) ? FIRST_BYTE_TYPES + rng_below(r, 18) : 0;
    struct attn_case c = grid_typed(op, t);
    const int64_t hkv = 1 + rng_below(r, 2), group = grid_pick(r, groups, COUNT(groups));
    const int64_t sq = grid_pick(r, rows, group > 4 ? 7 : COUNT(rows));
    grid_shape(&c, 1 + rng_below(r, 3), hkv * group, hkv, sq, grid_pick(r, keys, COUNT(keys)),
               grid_pick(r, common, COUNT(common)));
    c.dv = rng_below(r, 4) ? -1 : grid_pick(r, common, COUNT(common));
    c.precision = t == 0 ? rng_below(r, 3) : 0;
    if (op == OP_FLASH_FORWARD) {
        c.packed_q = rng_below(r, 3) == 0;
        c.page = rng_below(r, 3) == 0 ? grid_pick(r, pages, COUNT(pages)) : 0;
        c.packed_k = c.packed_q && !c.page && rng_below(r, 2);
        c.lead = c.packed_q ? rng_below(r, 4) : 0;
        c.b += c.packed_q ? rng_below(r, 5) : 0;
        c.splits = rng_below(r, 5) == 0 ? 1 + rng_below(r, 6) : 0;
        c.invariant = c.splits < 2 && rng_below(r, 4) == 0;
    }
    c.max_q = rng_below(r, 12) == 0 ? 1 + rng_below(r, c.sq) : 0;
    c.max_k = rng_below(r, 12) == 0 ? 1 + rng_below(r, c.sk) : 0;
    c.used_q = rng_below(r, 6) == 0 ? rng_below(r, 4) : 0;
    c.used_k = rng_below(r, 3) == 0 ? rng_below(r, 4) : 0;
    if (rng_below(r, 2))
        c.causal = 1;
    else
        grid_random_masks(&c, r);
    grid_random_scales(&c, r);
    c.scale = rng_below(r, 8) == 0 ? (float)(rng_normal(r) * 0.3) : 0;
    c.softcap = rng_below(r, 6) == 0 ? (float)(0.5 + 10 * rng_unit(r)) : 0;
    c.sinks = rng_below(r, 5) == 0 ? 1 + rng_below(r, 2) : 0;
    c.alibi = rng_below(r, 6) == 0 ? 1 + rng_below(r, 3) : 0;
    c.base2 = rng_below(r, 5) == 0;
    c.no_lse = rng_below(r, 6) == 0;
    c.nan = rng_below(r, 12) == 0 && c.kv_dtype != I8 && c.kv_dtype != E4M3 ? 1 + rng_below(r, NAN_LAST_VALUE) : 0;
    c.seed = 1 + rng_below(r, 1 << 20);
    c.lay = rng_below(r, 4) == 0 ? rng_below(r, 4) : 4 + rng_below(r, 1 << 20);
    c.aligned = rng_below(r, 6) == 0 ? 0 : rng_below(r, 5) == 0 ? 2 : 1;
    grid_random_edges(&c, r);
    return c;
}

void grid_add_tiles(struct attn_grid *g, enum op op)
{
    struct tiles x = { g, 0 };
    struct rng r = { hash64(80, (uint64_t)op), 0 };
    add_lengths(&x, op);
    add_widths(&x, op);
    add_groups(&x, op);
    add_positions(&x, op);
    add_masks(&x, op);
    add_descales(&x, op);
    add_bad_values(&x, op);
    add_precisions(&x, op);
    add_wide_f32(&x, op);
    add_results(&x, op);
    if (op == OP_FLASH_FORWARD) {
        add_pages(&x, op);
        add_cuts(&x, op);
        add_splits(&x, op);
    }
    for (int64_t i = 0; i < (op == OP_FLASH_FORWARD ? 600 : 150); i++) {
        const struct attn_case c = grid_random_tiles(op, &r);
        if (i % CPU_ONE_IN == 0 || grid_wants_tiles())
            attn_grid_push(g, &c);
    }
}
