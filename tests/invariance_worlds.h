/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* What the sequences of test_invariance.c are: types, widths, masks and lengths of each world. */
#ifndef QATTN_TESTS_INVARIANCE_WORLDS_H
#define QATTN_TESTS_INVARIANCE_WORLDS_H

#include "cases.h"

enum { SEQUENCES = 3 };

/* World k: with the sizes of tensor-core tiles ALL_WORLDS, else LEAST_WORLDS. */
enum { BASE_WORLDS = 24, NUMBER_WORLDS = 16, SPAN_WORLDS = 4, TILE_WORLDS = 48,
       FIRST_NUMBER = BASE_WORLDS, FIRST_SPAN = FIRST_NUMBER + NUMBER_WORLDS, FIRST_TILE = FIRST_SPAN + SPAN_WORLDS,
       ALL_WORLDS = FIRST_TILE + TILE_WORLDS, LEAST_WORLDS = FIRST_TILE + 3 };

/* Without b, sq, sk and form. */
struct attn_case invariance_world(int64_t k);
/* Sequence s has len_q[s] query rows, the last ones of len_k[s] keys. */
void invariance_lengths(int64_t k, int64_t len_q[SEQUENCES], int64_t len_k[SEQUENCES]);

#endif
