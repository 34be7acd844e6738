/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Flash attention on CPU, inside: what its files share. Read in this order:
 *
 *   flash.c          the call: which units of work there are, their order, the workspace, splits
 *   flash_tile.c     a unit with many rows: packed K and V panels, scores, softmax step, product with V
 *   flash_softmax.h  the online softmax step of one row
 *   flash_pack.h     rows of Q, K, V to f32, from any type, stride and page
 *   flash_decode.c   a unit with few rows: K and V streamed once, nothing packed
 *   flash_finish.c   merging of splits, sink, division, LSE, writing of O
 *
 * A unit is (sequence, KV head, block of query positions, keys of one split). Its rows are the
 * positions times the query heads of the group, so all of them share one pass over K and V: row r
 * is position pos0 + r / heads of query head head0 + r % heads. Per row the running state is
 *
 *   m     largest score so far (natural units), -inf: none
 *   l     sum of exp(score - m)
 *   o     sum of exp(score - m) V, unnormalised, f32
 *
 * The error of O does not grow with the number of keys: in a block chains of additions end after FLASH_CHAIN keys, and
 * the states of every FLASH_SPAN keys are merged with two-sums (Knuth 1997, section 4.2.2): `low` is what rounding
 * took from o.
 *
 * No arithmetic of a row depends on the other rows of its unit; the bits of a row are fixed by the
 * key blocks (FLASH_KEYS keys from the split's first key on) and the splits.
 */
#ifndef QATTN_CPU_FLASH_H
#define QATTN_CPU_FLASH_H

#include <stdatomic.h>

#include "core/problem.h"
#include "core/seq.h"
#include "cpu/isa.h"
#include "cpu/microkernel.h"

enum {
    FLASH_KEYS = 128,            /* keys of a block of the tile path; a multiple of MK_WIDTH */
    FLASH_CHAIN = 32,            /* keys added one after another before their sum joins the others */
    FLASH_SPAN = 2048,           /* keys of one state; a multiple of FLASH_KEYS that divides FLASH_FIXED_SPLIT */
    FLASH_TILE_ROWS = 384,       /* most rows of a tile; 12 times a power of 2 */
    FLASH_DECODE_ROWS = 16,      /* units of at most so many rows take the decode path */
    FLASH_DECODE_KEYS = 64,      /* keys of a chunk of the decode path */
    FLASH_SPLIT_KEYS = 512,      /* automatic splits are no shorter */
    FLASH_FIXED_SPLIT = 4096,    /* the splits of BATCH_INVARIANT */
    FLASH_UNITS = 64             /* automatic splits: units of work aimed at */
};

/* Per row of a tile; all arrays lie in one worker's part of the workspace. */
struct flash_state {
    float   *m;                  /* [rows] */
    double  *l;                  /* [rows] */
    float   *o;                  /* [rows][o_row], columns dv .. o_row-1 are padding */
    float   *low;                /* as o; NULL: nothing was taken */
    int64_t  o_row;              /* dv rounded up to VL */
};

struct flash_unit {
    struct seq s;
    int64_t kv_head;
    int64_t head0, heads;        /* query heads, all of kv_head's group */
    int64_t pos0, positions;     /* query rows of the sequence */
    int64_t rows;                /* heads * positions */
};

static inline int64_t unit_head(const struct flash_unit *u, int64_t r) { return u->head0 + r % u->heads; }
static inline int64_t unit_position(const struct flash_unit *u, int64_t r) { return u->pos0 + r / u->heads; }

/* Scratch of one worker. R: rows of the largest tile, rounded up to MK_ROWS. */
struct flash_scratch {
    struct flash_state state;    /* of the span being computed, then of the split */
    struct flash_state sum;      /* of the spans before it */
    struct flash_state total;    /* of the splits before it */
    float   *q;                  /* [R][d] */
    float   *k;                  /* [FLASH_KEYS / MK_WIDTH][d][MK_WIDTH]: panels of keys, transposed */
    float   *v;                  /* [o_row / MK_WIDTH, up][FLASH_KEYS][MK_WIDTH]: panels of columns */
    float   *s;                  /* [R][FLASH_KEYS] scores, then probabilities */
    float   *sums;               /* [R][VL] l of the tile path, lane by lane */
    float   *alpha;              /* [R] what a block multiplies o and l by */
    float   *rows;               /* [FLASH_DECODE_KEYS][width + VL] rows of K or V as f32 */
    int64_t *see_begin, *see_end;/* [R] keys each row sees by position */
    int32_t *lo, *hi;            /* [R / MK_ROWS] keys of the block any of the six rows sees */
    const char **k_row, **v_row; /* [FLASH_KEYS] addresses of the block's rows */
    const float **k_scale, **v_scale;  /* [FLASH_KEYS] descales; NULL: none */
    const char **k_next, **v_next;           /* [FLASH_KEYS] the same for the block after it */
    const float **k_scale_next, **v_scale_next;
    uint32_t *visible;           /* [R][FLASH_KEYS / 32] keys a row sees, kept only for non-finite V */
    uint64_t *nonfinite;         /* [panels of V][FLASH_KEYS] columns, bit by bit */
};

/* One call, read-only while it runs but for `arrived`. */
struct flash_call {
    const struct problem *p;
    int64_t  tile_rows;          /* rows of a tile at most */
    int64_t  heads, chunks;      /* a group is cut into `chunks` of at most `heads` query heads */
    int64_t  positions;          /* of a tile */
    bool     decode;             /* units of few rows take the decode path */
    bool     fixed_splits;       /* BATCH_INVARIANT: splits of FLASH_FIXED_SPLIT keys */
    bool     parallel_splits;    /* splits are units of their own; else a unit walks all of them */
    int64_t  target_splits;      /* per unit, if not fixed */
    int64_t  max_tasks;
    int      workers;
    int64_t *first_task;         /* [n + 1] */
    atomic_int *arrived;         /* [max_tasks] splits done, at a unit's split 0; parallel_splits only */
    float   *partials;           /* [max_tasks][partial_floats]: l[R], m[R], o[R][o_row], low[R][o_row] */
    int64_t  partial_floats;
    char    *scratch;
    size_t   scratch_bytes;      /* of one worker */
};

/* Keys begin .. end-1 onto w->state, from an empty state. tile: w->q was packed by
 * flash_tile_begin. */
void ISA_NAME(qattn__flash_tile_begin)(const struct flash_call *c, const struct flash_unit *u, struct flash_scratch *w);
void ISA_NAME(qattn__flash_tile_keys)(const struct flash_call *c, const struct flash_unit *u, int64_t begin,
                                      int64_t end, struct flash_scratch *w);
void ISA_NAME(qattn__flash_decode_keys)(const struct flash_call *c, const struct flash_unit *u, int64_t begin,
                                        int64_t end, struct flash_scratch *w);

/* total and part over disjoint keys become total; an empty total takes part's bits. */
void ISA_NAME(qattn__flash_merge)(struct flash_state *total, const struct flash_state *part, int64_t rows);
void ISA_NAME(qattn__flash_empty)(struct flash_state *state, int64_t rows);
/* O and LSE of the unit's rows from their state; NULL: rows that see nothing. */
void ISA_NAME(qattn__flash_write)(const struct problem *p, const struct flash_unit *u, const struct flash_state *state);

/* *hi + *low += x, *hi being the rounded sum. */
ISA_INLINE void add_exactly(vf *hi, vf *low, vf x)
{
    const vf sum = vf_add(*hi, x), x_part = vf_sub(sum, *hi);
    *low = vf_add(*low, vf_add(vf_sub(*hi, vf_sub(sum, x_part)), vf_sub(x, x_part)));
    *hi = sum;
}

/* *hi + *low *= a; exact but for low where the machine has fused multiply-adds. */
ISA_INLINE void scale_exactly(vf *hi, vf *low, vf a)
{
    const vf product = vf_mul(*hi, a);
    *low = vf_sub(vf_mul(*low, a), vf_fnmadd(*hi, a, product));
    *hi = product;
}

static inline int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }
static inline int64_t ceil_div(int64_t x, int64_t unit) { return (x + unit - 1) / unit; }
static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
