/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Which keys a split of a sequence takes: the launcher, the decode kernels and the splits' combination ask here. */
#ifndef QATTN_CUDA_DECODE_RANGE_H
#define QATTN_CUDA_DECODE_RANGE_H

#include "core/seq.h"

/* Keys of a unit. */
enum { DECODE_UNIT = 16 };

/* log2 of the tiles of 16 rows that `rows` (up to 64) take. The warps of a block that have one tile each are a key
 * group. */
QATTN_HD static inline int32_t decode_tiles_log2(int32_t rows) { return rows <= 16 ? 0 : rows <= 32 ? 1 : 2; }

/* How the splits of a call share a sequence's units: chunks go to the splits in turn, and a chunk is one unit for each
 * key group of a block. */
struct decode_cut {
    int32_t num_splits;
    int32_t warps_log2;         /* of a block */
    int32_t exact;              /* the caller wants as many: chunks are smaller where else some had no keys */
};

/* What splits need to know of a sequence. */
struct decode_range {
    int32_t rows;               /* len_q * group; -1: more than these kernels take */
    int32_t len_k;
    int32_t first, units;       /* units, counted from key 0, that some row sees */
    int32_t max_begin, min_end; /* keys that all rows see */
    int32_t chunk_log2;         /* units of a chunk */
    int32_t live;               /* splits that have keys: the first ones */
};

QATTN_HD static inline int32_t decode_chunks(int32_t units, int32_t chunk_log2)
{
    return (units + (1 << chunk_log2) - 1) >> chunk_log2;
}

QATTN_HD static inline void decode_cut_range(struct decode_range *x, const struct decode_cut *cut)
{
    x->chunk_log2 = cut->warps_log2 - decode_tiles_log2(x->rows);
    while (cut->exact && x->chunk_log2 > 0 && decode_chunks(x->units, x->chunk_log2) < cut->num_splits)
        x->chunk_log2--;
    const int32_t chunks = decode_chunks(x->units, x->chunk_log2);
    x->live = chunks < cut->num_splits ? chunks : cut->num_splits;
}

/* `longest`: len_q that these kernels take, at most. Neither end of what a row sees ever falls from one row to the
 * next. */
QATTN_HD static inline struct decode_range decode_range_of(const struct problem *p, const struct seq *s,
                                                           int32_t longest, const struct decode_cut *cut)
{
    struct decode_range x = { .rows = s->len_q <= longest ? (int32_t)(s->len_q * p->group) : -1,
                              .len_k = (int32_t)s->len_k };
    int64_t begin, end, last_begin, last_end;
    if (x.rows <= 0)
        return x;
    seq_visible(p, s, 0, &begin, &end);
    seq_visible(p, s, s->len_q - 1, &last_begin, &last_end);
    x.max_begin = (int32_t)last_begin;
    x.min_end = (int32_t)end;
    if (begin < last_end) {
        x.first = (int32_t)begin / DECODE_UNIT;
        x.units = ((int32_t)last_end - 1) / DECODE_UNIT + 1 - x.first;
    }
    decode_cut_range(&x, cut);
    return x;
}

/* The same where all rows see all keys, and only their number is not that of `x`. */
QATTN_HD static inline struct decode_range decode_range_with(struct decode_range x, int32_t len_k,
                                                             const struct decode_cut *cut)
{
    x.len_k = x.min_end = len_k;
    x.units = (len_k + DECODE_UNIT - 1) / DECODE_UNIT;
    decode_cut_range(&x, cut);
    return x;
}

#endif
