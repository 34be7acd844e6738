/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* What the grid's files share. */
#ifndef QATTN_TESTS_GRID_H
#define QATTN_TESTS_GRID_H

#include "cases.h"
#include "support.h"

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof(*(array))))

enum { F32 = QATTN_DTYPE_F32, F16 = QATTN_DTYPE_F16, BF16 = QATTN_DTYPE_BF16, E4M3 = QATTN_DTYPE_E4M3FN,
       E5M2 = QATTN_DTYPE_E5M2, I8 = QATTN_DTYPE_I8 };

/* Sets of types: 0 to 2 are f32, f16, bf16; 3 and 4 f16 and bf16 with f32 output; 5 to 13 have 8-bit k and v under
 * 16-bit q; the others are all 8-bit. */
enum { PLAIN_TYPES = 3, TYPE_SETS = 23, FIRST_BYTE_TYPES = 5, FIRST_BYTE_Q_TYPES = 14 };

/* A case of type set t (mod their number). */
struct attn_case grid_typed(enum op op, int64_t t);
void grid_shape(struct attn_case *c, int64_t b, int64_t hq, int64_t hkv, int64_t sq, int64_t sk, int64_t d);
/* Every pushed case gets a seed, and two of three a random layout. */
void grid_push(struct attn_grid *g, struct attn_case c);

int64_t grid_pick(struct rng *r, const int64_t *list, int64_t n);
void grid_random_masks(struct attn_case *c, struct rng *r);
void grid_random_scales(struct attn_case *c, struct rng *r);
/* Now and then one of the numbers of grid_edges.c, where the case has a place for it. */
void grid_random_edges(struct attn_case *c, struct rng *r);

/* All cases at the sizes of tensor-core tiles, not a few of them: on a device, and under QATTN_TEST_TILES=1. */
bool grid_wants_tiles(void);

/* Numbers at the ends of what the contract allows, where kernels have gone wrong. */
void grid_add_edges(struct attn_grid *g, enum op op);
/* Attention at the sizes of tensor-core tiles. */
void grid_add_tiles(struct attn_grid *g, enum op op);
/* One random case at such sizes. */
struct attn_case grid_random_tiles(enum op op, struct rng *r);

#endif
