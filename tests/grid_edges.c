/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Numbers at the ends of what the contract allows, where kernels have gone wrong: descales of 0, negative and NaN,
 * infinite slopes, the largest finite numbers in V behind masks, additive masks made of a type's lowest number,
 * infinite scores of both signs, tiny softcaps, offsets near 2^63. All of them on every row, CPU and CUDA.
 */
#include "attn_logical.h"
#include "grid.h"

/* All widths of tensor-core kernels on a device; the CPU's kernels know no difference, and its oracle takes long. */
static int64_t width(int64_t t)
{
    static const int64_t wide[] = { 64, 128, 40, 256, 96 }, narrow[] = { 32, 40, 33 };
    return grid_wants_tiles() ? wide[t % COUNT(wide)] : narrow[t % COUNT(narrow)];
}

/* Three of four on the layouts that fast paths ask for. */
static void push(struct attn_grid *g, struct attn_case c, int64_t t)
{
    c.b = c.sq * c.sk > 10000 ? 1 : c.b;
    c.aligned = t % 4 != 3;
    if (c.op == OP_FLASH_FORWARD && !c.bias && !c.keep && !c.packed_q) {
        c.packed_q = c.packed_k = t % 7 == 5;
        c.page = t % 7 == 3 ? 16 : 0;
    }
    c.splits = c.op == OP_FLASH_FORWARD && t % 9 == 4 && !c.invariant ? 3 : 0;
    grid_push(g, c);
}

static struct attn_case half(enum op op, int64_t t) { return grid_typed(op, 1 + t % 4); }

/* f16, bf16, those with f32 output, and f32 by each precision. */
static struct attn_case wide(enum op op, int64_t t)
{
    struct attn_case c = t % 2 ? half(op, t / 2) : grid_typed(op, 0);
    c.precision = t % 2 ? 0 : t / 2 % 3;
    return c;
}

/* Descales that are 0 (all of a block was 0), negative or NaN, also of sequences without a key. */
static void add_descales(struct attn_grid *g, enum op op)
{
    static const int64_t sizes[][2] = { { 70, 140 }, { 1, 300 }, { 130, 100 }, { 5, 333 } };
    static const int64_t kinds[] = { SCALE_ONE, SCALE_SEQ_HEAD, SCALE_HEAD, SCALE_ROW };
    int64_t t = 0;
    for (int64_t odd = ODD_ZERO; odd <= ODD_NAN; odd++)
        for (int64_t s = 0; s < COUNT(sizes); s++)
            for (int64_t r = 0; r < 6; r++, t++) {
                struct attn_case c = grid_typed(op, r < 2 ? FIRST_BYTE_TYPES + t % 2 : FIRST_BYTE_TYPES + t % 18);
                grid_shape(&c, 2, 4, 2, sizes[s][0], sizes[s][1], width(t));
                c.k_scale = r < 4 ? kinds[(s + r) % COUNT(kinds)] : SCALE_SEQ_HEAD;
                c.v_scale = c.k_scale;
                c.q_scale = c.q_dtype == c.kv_dtype ? SCALE_ONE : SCALE_NONE;
                c.odd_scale = odd;
                c.odd_of = r < 3 ? 2 : r == 3 ? 4 : c.q_scale ? 1 : 6;
                c.causal = r % 2 == 0;
                c.used_k = r % 3 == 1 ? USED_ZERO_OR_ALL : r % 3 == 2 ? USED_SOME : 0;
                c.softcap = t % 5 == 2 ? 5 : 0;
                c.sinks = t % 6 == 5;
                push(g, c, t);
            }
}

/* Rows past seqused_q beside rows that see NaN. */
static void add_dead_rows(struct attn_grid *g, enum op op)
{
    static const int64_t kinds[] = { NAN_FIRST_VALUE, NAN_ONE_KEY, INF_ONE_KEY, NAN_ONE_VALUE };
    static const int64_t sizes[][2] = { { 128, 128 }, { 16, 300 }, { 200, 70 } };
    int64_t t = 0;
    for (int64_t k = 0; k < COUNT(kinds); k++)
        for (int64_t s = 0; s < COUNT(sizes); s++)
            for (int64_t r = 0; r < 3; r++, t++) {
                struct attn_case c = r == 2 ? wide(op, t) : half(op, t);
                grid_shape(&c, 2, 4, 2, sizes[s][0], sizes[s][1], width(t));
                c.nan = kinds[k];
                c.used_q = USED_MOST;
                c.causal = t % 2;
                c.alibi = t % 5 == 4;
                push(g, c, t);
            }
}

/* Slopes of inf, NaN, -inf: they make nothing of a hidden key. */
static void add_slopes(struct attn_grid *g, enum op op)
{
    static const int64_t sizes[][2] = { { 70, 140 }, { 1, 200 }, { 130, 130 } };
    for (int64_t t = 0; t < 24; t++) {
        struct attn_case c = wide(op, t);
        grid_shape(&c, 2, 8, 2, sizes[t % 3][0], sizes[t % 3][1], op == OP_SOFTMAX ? 0 : width(t));
        c.alibi = 1 + t % 3;
        c.odd_slopes = 1;
        if (t % 4 < 2) {
            c.bias = 16 + (t % 8 < 4 ? 15 : 8);
            c.bias_type = t % 3;
            c.bias_kind = t % 3 ? BIAS_SOME_HIDDEN : BIAS_DEAD_ROWS;
        }
        if (t % 4 == 1 || t % 4 == 2) {
            c.keep = 16 + (t % 8 < 4 ? 15 : 8);
            c.keep_kind = t % 3 ? KEEP_RANDOM : KEEP_DEAD_ROWS;
        }
        c.causal = t % 5 == 0;
        push(g, c, t);
    }
}

/* scale / softcap beyond fp32, rows of q that are 0, and K of the largest numbers against such rows. */
static void add_zero_queries(struct attn_grid *g, enum op op)
{
    static const double numbers[][2] = { { 0, 1e-40 }, { 1e9, 1e-30 }, { -1e9, 1e-30 }, { 0, 0 }, { 0, 30 } };
    int64_t t = 0;
    for (int64_t k = 0; k < COUNT(numbers); k++)
        for (int64_t r = 0; r < 8; r++, t++) {
            struct attn_case c = r % 4 == 3 ? grid_typed(op, FIRST_BYTE_TYPES + t % 9) : wide(op, t);
            grid_shape(&c, 2, 4, 2, r % 3 ? 70 : 1, 140, width(t));
            c.nan = k < 3 || r % 2 ? ZERO_QUERIES : ZERO_QUERIES_MAX_KEY;
            c.scale = numbers[k][0];
            c.softcap = numbers[k][1];
            c.causal = t % 2;
            push(g, c, t);
        }
}

/* The largest numbers of V's type, and NaN behind a score of -inf that no mask made. */
static void add_large_values(struct attn_grid *g, enum op op)
{
    static const int64_t kinds[] = { MAX_LAST_VALUE, INF_KEY_NAN_VALUE, MAX_LAST_KEY, OVERFLOW_KEY };
    static const int64_t sizes[][2] = { { 70, 140 }, { 130, 130 }, { 1, 257 }, { 200, 96 } };
    int64_t t = 0;
    for (int64_t k = 0; k < COUNT(kinds); k++)
        for (int64_t s = 0; s < COUNT(sizes); s++)
            for (int64_t r = 0; r < 9; r++, t++) {
                struct attn_case c = r < 4 ? grid_typed(op, 0) : wide(op, t);
                grid_shape(&c, 2, 4, 2, sizes[s][0], sizes[s][1], width(t));
                c.precision = r < 4 ? 1 + r % 2 : c.precision;
                if (kinds[k] == OVERFLOW_KEY && c.q_dtype == F16) {      /* f16 has no 1e20 */
                    c.o_dtype = c.o_dtype == F16 ? BF16 : c.o_dtype;
                    c.q_dtype = c.kv_dtype = BF16;
                }
                c.nan = kinds[k];
                c.causal = r % 2 == 0;
                c.bias = r % 4 == 1 ? 16 + (t % 8 < 4 ? 15 : 8) : 0;
                c.bias_kind = c.bias ? BIAS_HIDES_BAD : 0;
                c.keep = r % 4 == 3 && s % 2 ? 16 + 12 : 0;
                c.keep_kind = c.keep ? KEEP_HIDES_BAD : 0;
                c.left = r == 6 ? 40 : -2;
                c.used_k = r == 8 ? USED_SOME : 0;
                push(g, c, t);
            }
}

/* q, k and v far from 1, and a scale that brings the scores back. */
static void add_numbers(struct attn_grid *g, enum op op)
{
    static const int64_t sizes[][2] = { { 70, 140 }, { 1, 257 }, { 5, 96 }, { 130, 130 } };
    int64_t t = 0;
    for (int64_t kind = NUMBERS_NORMAL + 1; kind < NUMBERS_KINDS; kind++)
        for (int64_t s = 0; s < COUNT(sizes); s++)
            for (int64_t r = 0; r < 4; r++, t++) {
                struct attn_case c = grid_typed(op, r < 3 ? 0 : t % 8 < 4 ? 2 : 4);      /* f32, bf16 */
                grid_shape(&c, 2, 4, 2, sizes[s][0], sizes[s][1], width(t));
                attn_set_numbers(&c, kind);
                c.precision = r % 3;
                c.causal = (t + t / 4) % 2;                                              /* t / 4: t % 4 is r */
                c.nan = kind == NUMBERS_TINY_V || t % 6 == 5 ? NAN_LAST_VALUE : t % 6 == 2 ? NAN_ONE_VALUE : 0;
                c.sinks = t % 5 == 3;
                c.bias = t % 7 == 2 ? 16 + 12 : 0;
                c.alibi = t % 8 == 6;
                c.invariant = t % 3 == 1;
                push(g, c, t);
            }
}

/* Distances that no 64-bit sum holds. */
static void add_far_offsets(struct attn_grid *g, enum op op)
{
    static const int64_t offsets[] = { INT64_MAX, INT64_MIN, INT64_MAX - 100, (int64_t)1 << 62 };
    for (int64_t t = 0; t < 16; t++) {
        struct attn_case c = wide(op, t);
        grid_shape(&c, 1, 4, 2, t % 3 ? 70 : 1, 140, width(t));
        c.offset = 1;
        c.q_off = offsets[t % 4];
        c.alibi = 1 + t / 4 % 3;
        c.causal = t % 8 == 4 || t % 8 == 6;
        push(g, c, t);
    }
}

/* slope * distance beyond what fp32 holds in units of a small scale, at keys that are all far away. */
static void add_steep_slopes(struct attn_grid *g, enum op op)
{
    static const struct { double scale; int64_t steep, off; } kinds[] = {
        { 1e-30, 30, 143 }, { 1e-29, 0, (int64_t)1 << 40 }, { 1e-12, 94, 200 }, { 1e-4, 0, (int64_t)1 << 61 },
    };
    for (int64_t t = 0; t < 24; t++) {
        struct attn_case c = t % 6 == 5 ? wide(op, t) : half(op, t / 4);
        grid_shape(&c, 2, 4, 2, t % 5 ? 70 : 1, 140, width(t));
        c.scale = kinds[t % 4].scale;
        c.steep = kinds[t % 4].steep;
        c.q_off = kinds[t % 4].off;
        c.offset = 1;
        c.alibi = 1 + t / 4 % 3;
        c.causal = t % 7 != 6;
        push(g, c, t);
    }
    /* slopes of either sign: keys all far away, some rows' beyond the window's far end; or a row's own key alone
     * counts, which is near */
    for (int64_t t = 0; t < 24; t++) {
        static const int64_t near[] = { 3, 6, 10, 24 };
        struct attn_case c = half(op, t / 6);
        grid_shape(&c, 2, 4, 2, t % 6 < 4 ? 140 : 70, t % 2 ? 140 : 70, width(t / 2));
        c.offset = c.alibi = c.causal = 1;
        c.falling = t % 4 != 1;
        c.steep = t % 2 ? near[t / 2 % 4] : 2;
        c.q_off = t % 2 ? 0 : (int64_t)1 << 40;
        c.left = t % 2 == 0 ? c.q_off + 20 * (t / 2 % 2) : t % 8 == 5 ? 0 : -2;
        push(g, c, t);
    }
}

/* Whole rows at the lowest number: every key weighs the same. Blocks of keep as large as tiles, and rows of none. */
static void add_whole_rows(struct attn_grid *g, enum op op)
{
    static const int64_t sizes[][2] = { { 70, 140 }, { 130, 300 }, { 1, 200 }, { 257, 257 } };
    int64_t t = 0;
    for (int64_t type = 0; type < 3; type++)
        for (int64_t s = 0; s < COUNT(sizes); s++)
            for (int64_t r = 0; r < 4; r++, t++) {
                struct attn_case c = r == 3 ? grid_typed(op, FIRST_BYTE_TYPES + t % 9) : wide(op, t);
                grid_shape(&c, 1 + t % 2, 4, 2, sizes[s][0], sizes[s][1], width(t));
                c.bias = 16 + (r == 0 ? 15 : r == 1 ? 12 : r == 2 ? 13 : 4);
                c.bias_type = type;
                c.bias_kind = BIAS_LOWEST_ROWS;
                c.causal = t % 3 == 1;
                c.keep = t % 5 == 4 ? 16 + 12 : 0;
                c.keep_kind = c.keep ? KEEP_DEAD_ROWS : 0;
                push(g, c, t);
                c.keep = 16 + (r % 2 ? 15 : 12);
                c.keep_kind = type == 2 && r == 3 ? KEEP_NONE : KEEP_TILES;
                c.keep_u8 = r == 2;
                c.bias = r == 1 ? 16 + 8 : 0;
                c.bias_kind = c.bias ? BIAS_SOME_HIDDEN : 0;
                c.sinks = r == 2;
                push(g, c, ++t);
            }
}

void grid_random_edges(struct attn_case *c, struct rng *r)
{
    enum { ONE_IN = 6 };
    if (rng_below(r, ONE_IN))
        return;
    const int64_t what = rng_below(r, 3), number = rng_below(r, 64);
    const bool infinite = c->kv_dtype != I8 && c->kv_dtype != E4M3;      /* has infinities */
    if (c->bias && what == 0)
        c->bias_kind = number % 2 ? BIAS_LOWEST_ROWS : BIAS_ODD;
    else if (c->keep && what < 2)
        c->keep_kind = KEEP_TILES;
    else if (c->alibi && what < 2)
        c->odd_slopes = 1;
    else if ((c->k_scale || c->v_scale) && what < 2) {
        c->odd_scale = ODD_ZERO + number % 4;
        c->odd_of = 1 + number / 4 % 7;
    } else if (what == 2)
        c->used_q = USED_MOST;
    else if (c->op != OP_SOFTMAX && !c->nan)
        c->nan = infinite ? NAN_FIRST_VALUE + number % 6 : MAX_LAST_VALUE + number % 3;
}

void grid_add_edges(struct attn_grid *g, enum op op)
{
    add_slopes(g, op);
    add_far_offsets(g, op);
    add_steep_slopes(g, op);
    add_whole_rows(g, op);
    if (op == OP_SOFTMAX)
        return;
    add_descales(g, op);
    add_dead_rows(g, op);
    add_zero_queries(g, op);
    add_large_values(g, op);
    add_numbers(g, op);
}
