/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Random mixtures of everything. */
#include "grid.h"

int64_t grid_pick(struct rng *r, const int64_t *list, int64_t n) { return list[rng_below(r, n)]; }
static bool chance(struct rng *r, int64_t one_in) { return rng_below(r, one_in) == 0; }

void grid_random_masks(struct attn_case *c, struct rng *r)
{
    c->causal = chance(r, 2);
    if (chance(r, 3)) {
        c->left = rng_below(r, 40) - 1;
        c->right = rng_below(r, 40) - 1;
    }
    const int64_t corner = rng_below(r, 6);
    c->top_left = corner == 0;
    c->offset = corner == 1 ? 1 : corner == 2 ? 2 : 0;
    c->q_off = c->offset ? rng_below(r, 60) - 20 : 0;
    if (!c->packed_q && chance(r, 4)) {
        c->bias = 16 + rng_below(r, 16);
        c->bias_type = rng_below(r, 3);
        c->bias_kind = rng_below(r, 4);
    }
    if (!c->packed_q && chance(r, 4)) {
        c->keep = 16 + rng_below(r, 16);
        c->keep_kind = rng_below(r, 2);
        c->keep_u8 = chance(r, 2);
    }
}

void grid_random_scales(struct attn_case *c, struct rng *r)
{
    if (c->kv_dtype != F32 && c->kv_dtype != F16 && c->kv_dtype != BF16) {
        const int64_t first = c->kv_dtype == I8 ? SCALE_ONE : SCALE_NONE;
        c->k_scale = first + rng_below(r, SCALE_ROW + 1 - first);
        c->v_scale = first + rng_below(r, SCALE_ROW + 1 - first);
        if (c->q_dtype == c->kv_dtype)
            c->q_scale = first + rng_below(r, SCALE_ROW_D + 1 - first);
        if (c->page && c->k_scale == SCALE_ROW)
            c->k_scale = SCALE_PAGE;
        if (c->page && c->v_scale == SCALE_ROW)
            c->v_scale = SCALE_PAGE;
    }
}

struct attn_case attn_case_random(enum op op, struct rng *r)
{
    static const int64_t rows[] = { 1, 1, 2, 3, 4, 8, 13, 17, 32, 50, 65 };
    static const int64_t keys[] = { 1, 3, 8, 17, 33, 64, 65, 100, 130, 200 };
    static const int64_t common[] = { 8, 16, 32, 40, 64, 64, 65, 80, 96, 128 }, pages[] = { 1, 2, 3, 7, 16, 64 };
    struct attn_case c = grid_typed(op, chance(r, 2) ? rng_below(r, PLAIN_TYPES) : rng_below(r, TYPE_SETS));
    const int64_t hkv = 1 + rng_below(r, 3), group = 1 + rng_below(r, chance(r, 3) ? 8 : 3);
    grid_shape(&c, 1 + rng_below(r, 3), hkv * group, hkv, grid_pick(r, rows, COUNT(rows)),
               grid_pick(r, keys, COUNT(keys)), grid_pick(r, common, COUNT(common)));
    c.dv = op == OP_SOFTMAX || chance(r, 2) ? -1 : grid_pick(r, common, COUNT(common));
    if (op == OP_FLASH_FORWARD) {
        c.packed_q = chance(r, 4);
        c.page = chance(r, 4) ? grid_pick(r, pages, COUNT(pages)) : 0;
        c.packed_k = c.packed_q && !c.page && chance(r, 2);
        c.lead = c.packed_q ? rng_below(r, 4) : 0;
        c.splits = chance(r, 5) ? 1 + rng_below(r, 5) : 0;
        c.invariant = c.splits < 2 && chance(r, 4);
    }
    if (op != OP_SOFTMAX) {
        c.max_q = chance(r, 10) ? 1 + rng_below(r, c.sq) : 0;
        c.max_k = chance(r, 10) ? 1 + rng_below(r, c.sk) : 0;
    }
    c.used_q = chance(r, 5) ? rng_below(r, 4) : 0;
    c.used_k = chance(r, 4) ? rng_below(r, 4) : 0;
    grid_random_masks(&c, r);
    grid_random_scales(&c, r);
    if (op == OP_GQA_FORWARD && chance(r, 2)) {
        c.scores = c.q_dtype == F32 || c.q_dtype == F16 || c.q_dtype == BF16 ? 1 + rng_below(r, 2) : 1;
        c.stage = rng_below(r, 4);
    }
    c.in_place = op == OP_SOFTMAX && c.o_dtype == c.q_dtype && chance(r, 3);
    c.scale = chance(r, 5) ? rng_normal(r) * 0.3 : 0;
    c.as_given = chance(r, 20);
    c.softcap = chance(r, 4) ? 0.5 + 10 * rng_unit(r) : 0;
    c.sinks = chance(r, 4);
    c.alibi = chance(r, 5) ? 1 + rng_below(r, 3) : 0;
    c.base2 = chance(r, 5);
    c.no_lse = chance(r, 6);
    c.seed = 1 + rng_below(r, 1 << 20);
    c.lay = chance(r, 8) ? rng_below(r, 4) : 4 + rng_below(r, 1 << 20);
    c.aligned = hash64((uint64_t)c.seed, 16) % 2;
    grid_random_edges(&c, r);
    return c;
}
