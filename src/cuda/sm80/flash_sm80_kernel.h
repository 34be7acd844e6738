/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* What the launcher and the kernels of the one-pass attention on tensor cores agree on. */
#ifndef QATTN_CUDA_FLASH_SM80_KERNEL_H
#define QATTN_CUDA_FLASH_SM80_KERNEL_H

#include <stdbool.h>

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

/* Division of x < 2^31 by a fixed number: ((x mult >> 32) + x) >> shift. */
struct f80_divisor {
    uint32_t by, mult, shift;
};

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
    struct f80_divisor by_section;    /* items of a section */
    struct f80_divisor by_count, by_last_count, by_pairs; /* pairs of a section, of the last one, all */
    struct f80_divisor by_heads, by_group;                /* KV heads; heads of a group */
    float to_log2;                         /* the kernel's scores times this are logarithms to base 2 */
    int32_t terms;                         /* scores need more than a scale */
    int32_t scaled;                        /* the kernel multiplies them by it */
    int32_t stage;                         /* enum flash_sm80_stage */
    int32_t q_vector, kv_vector, o_vector; /* rows of q, of k and v, of o can be moved 16 bytes at a time */
    float unit, huge;                      /* a score is the kernel's times unit; huge: f80_is_huge */
    int32_t alike;                         /* sequences have these lengths; row 0 sees begin0 <= j < end0 */
    int32_t len_q, len_k, begin0, end0;
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
