/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* What the launcher and the kernels of the one-pass attention on tensor cores agree on. */
#ifndef QATTN_CUDA_FLASH_SM80_KERNEL_H
#define QATTN_CUDA_FLASH_SM80_KERNEL_H

#include <stdbool.h>

#include "core/seq.h"
#include "cuda/common/divide.h"
#include "cuda/common/problem_param.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How bias and keep reach a kernel: rows copied 16 bytes at a time, or element by element into one f32 tile. */
enum flash_sm80_stage { FLASH_SM80_NO_STAGE, FLASH_SM80_COPIED, FLASH_SM80_GATHERED };

/* Shared memory behind the tiles, where a call needs it: places of paged keys, ALiBi, bias and keep. */
#define F80_PLACES_BYTES(keys) (4 * (keys)*8)
#define F80_ALIBI_BYTES(rows)  ((rows)*8)

/* Shared memory that a kernel declares itself, at most. */
#define F80_STATIC_BYTES 1024

/* A sequence whose lengths and positions are all small: FLASH_SM80_SMALL. */
struct f80_sequence {
    int64_t q_batch, k_batch, q_row, k_row; /* its row 0 in q and o, key 0 in k and v */
    int32_t rows, len_q, len_k;             /* rows written, queries, keys */
    int32_t begin0, end0;                   /* row i sees the keys begin0 + i <= j < end0 + i, cut into 0 .. len_k */
};
enum { FLASH_SM80_SMALL = 1 << 29, FLASH_SM80_FAR = 1 << 30 };

/* Without a window an offset may be anything: it is cut to where a row sees all keys or none. */
QATTN_HD static inline struct f80_sequence f80_sequence_of(const struct problem *p, const struct seq *s)
{
    const int32_t offset = (int32_t)clamp64(s->offset, -FLASH_SM80_FAR, FLASH_SM80_FAR);
    struct f80_sequence x = {
        .q_batch = s->q_batch, .k_batch = s->k_batch, .q_row = s->q_row, .k_row = s->k_row, .rows = (int32_t)s->rows,
        .len_q = (int32_t)s->len_q, .len_k = (int32_t)s->len_k, .begin0 = -FLASH_SM80_FAR,
        .end0 = p->causal ? offset + 1 : FLASH_SM80_FAR,
    };
    if (p->window && p->window_right >= 0 && offset + (int32_t)p->window_right < x.end0)
        x.end0 = offset + (int32_t)p->window_right + 1;
    if (p->window && p->window_left >= 0)
        x.begin0 = offset - (int32_t)p->window_left;
    return x;
}

/* How O leaves. ROWS, ANY_ROWS: in Q's type, through shared memory, 16 bytes at a time; or, with other strides, one by
 * one. PAIRS: f32 in aligned rows, and parts of splits, Dv even, two neighbours at a time. EACH: all else, in f32
 * through shared memory, one by one. */
enum flash_sm80_out { FLASH_SM80_OUT_ROWS, FLASH_SM80_OUT_ANY_ROWS, FLASH_SM80_OUT_PAIRS, FLASH_SM80_OUT_EACH };

struct flash_sm80_args {
    int64_t part_rows;                /* rows of one split's part: B * Sq * Hq of q */
    float *parts_o;                   /* [num_splits][part_rows][Dv], not normalised; NULL: write O and LSE at once */
    float *parts_ml;                  /* [num_splits][part_rows][2]: row maximum and sum */
    int64_t k_row_bytes, v_row_bytes; /* between neighbouring keys; not paged */
    int64_t least_rows;               /* a sequence of fewer query rows is the decode kernel's */
    int32_t work;                     /* items: (n * tiles, or at most of a packed batch) * kv_heads * num_splits */
    int32_t tiles, num_splits;
    int32_t pairs, section;           /* (n, KV head); those whose items are neighbours: K and V fit the L2 cache */
    int32_t low, head;                /* the last items: tiles below low of all pairs; how many are before them */
    struct divisor by_section;    /* items of a section */
    struct divisor by_count, by_last_count, by_pairs; /* pairs of a section, of the last one, all */
    struct divisor by_heads, by_group;                /* KV heads; heads of a group */
    float to_log2;                         /* the kernel's scores times this are logarithms to base 2 */
    int32_t terms;                         /* scores need more than a scale */
    int32_t scaled;                        /* the kernel multiplies them by it */
    int32_t stage;                         /* enum flash_sm80_stage */
    int32_t q_vector, kv_vector;           /* rows of q, of k and v can be moved 16 bytes at a time */
    int32_t out;                           /* enum flash_sm80_out */
    float unit, huge;                      /* a score is the kernel's times unit; huge: f80_is_huge */
    int32_t near;                          /* all lengths and positions are below FLASH_SM80_SMALL */
    int32_t alike;                         /* and all sequences are this one, but for the batches' numbers; group 1 */
    struct f80_sequence sequence;
};

/* What a launch of a kernel needs. */
struct flash_sm80_kernel {
    const void *kernel;  /* (struct flash_sm80_args, struct problem_param) */
    int rows, keys;      /* of a tile */
    int threads, blocks; /* of a block; blocks a multiprocessor holds */
    bool one_item;       /* a block does one item: the grid has as many blocks */
    size_t shared_bytes; /* without what only some calls need */
    size_t static_bytes; /* that the kernel declares itself */
};

/* By type of q and columns of Q, K, V and O: the first that hold D and Dv. plain: for the calls struct f80 tells. */
struct flash_sm80_kernel qattn__flash_sm80_f16_64(bool plain);
struct flash_sm80_kernel qattn__flash_sm80_f16_128(bool plain);
struct flash_sm80_kernel qattn__flash_sm80_f16_256(bool plain);
struct flash_sm80_kernel qattn__flash_sm80_bf16_64(bool plain);
struct flash_sm80_kernel qattn__flash_sm80_bf16_128(bool plain);
struct flash_sm80_kernel qattn__flash_sm80_bf16_256(bool plain);

/* With terms, otherwise as plain calls: struct f80. */
struct flash_sm80_kernel qattn__flash_sm80_f16_128_terms(void);
struct flash_sm80_kernel qattn__flash_sm80_bf16_128_terms(void);

#ifdef __cplusplus
}
#endif

#endif
