/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Attention of few query rows on tensor cores: decode. What the plan of the row (flash_sm80.c), the launcher and the
 * kernels agree on.
 *
 * A sequence belongs to this kernel when len_q * group <= FLASH_SM80_DECODE_ROWS, and to the kernel of flash_sm80.c
 * otherwise; in a call that has both, each kernel passes over the other's sequences. Of the decode kernels,
 * decode_direct.cuh is for the common shapes, decode_sm80.cuh for all.
 */
#ifndef QATTN_CUDA_DECODE_SM80_H
#define QATTN_CUDA_DECODE_SM80_H

#include "core/impls.h"
#include "cuda/common/problem_param.h"
#include "cuda/sm80/flash_sm80.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Types, widths and descales this kernel takes; not the flags: under BATCH_INVARIANT it must not run. */
bool qattn__sm80_decode_supports(const struct problem *p, char *why, size_t cap);
/* Bytes of the splits' parts; SIZE_MAX: more than can be. */
size_t qattn__sm80_decode_workspace(const struct problem *p);
int32_t qattn__sm80_decode_load(const struct problem *p);
/* Launches; `workspace` holds qattn__sm80_decode_workspace(p) bytes, 256-byte aligned, or is NULL where that is 0. */
int32_t qattn__sm80_decode(const struct problem *p, char *workspace, qattn_stream stream);

/* Keys of a unit; warps of a block; elements that rows are padded to in shared memory. */
enum { DECODE_UNIT = 16, DECODE_MAX_WARPS = 4, DECODE_STEP = 64 };
/* decode_direct.cuh: rows it takes, warps of a block, blocks a multiprocessor. */
enum { DIRECT_ROWS = 8, DIRECT_WARPS = 4, DIRECT_BLOCKS = 2 };
/* Of shared memory: what the kernel keeps of a row; what a block costs beside all it asks for; that and what the kernel
 * declares, at most. */
enum { DECODE_ROW_BYTES = 48, DECODE_BLOCK_BYTES = 1 << 10, DECODE_STATIC_BYTES = 2 << 10 };

struct decode_sm80_args {
    int32_t work;               /* items: n * kv_heads * num_splits */
    int32_t kv_heads, num_splits;
    int32_t least_units;        /* of a split that has keys */
    int32_t part_rows;          /* rows kept of a sequence and KV head: most that can be this kernel's */
    int32_t longest;            /* len_q of a sequence that is this kernel's, at most */
    int32_t part_pitch;         /* floats of a part's row: Dv, a multiple of 4 */
    float  *parts_o;            /* [n][kv_heads][num_splits][part_rows][part_pitch], not normalised; NULL: one split */
    float  *parts_ml;           /* [n][kv_heads][num_splits][part_rows][2]: row maximum and sum */
    unsigned long long *words;  /* [n][kv_heads]: the last split adds the parts (arrive.cuh); NULL: a second kernel */
    uint64_t tag;               /* of this launch */
    int32_t q_pitch, k_pitch, v_pitch;  /* bytes of a row in shared memory */
    int32_t q_lanes, k_lanes, v_lanes;      /* log2 of the lanes that copy one row */
    int32_t q_copies, k_copies, v_copies;   /* rows are 16-byte aligned: copied asynchronously; else one by one */
    int32_t page_size, page_shift;          /* log2, or -1 */
    int32_t v_in_k;             /* V is K's own rows, or their beginnings: not copied */
    int32_t stages;             /* units under way for each warp */
    int32_t whole;              /* rows of a unit lie one stride apart: no pages, or pages of whole units */
    int32_t q_offset, row_offset;       /* of Q and of what is known of rows, in shared memory */
};

/* Kernels (struct decode_sm80_args, struct problem_param): columns of O 128 or 256; k and v of 8 bits: 256 for all */
const void *qattn__decode_f16(bool bytes, bool wide);
const void *qattn__decode_bf16(bool bytes, bool wide);
const void *qattn__decode_direct_f16(bool narrow);      /* columns 64, else 128 */
const void *qattn__decode_direct_bf16(bool narrow);
/* Brings the splits' parts together: DECODE_COMBINE_THREADS threads a row. */
const void *qattn__decode_combine(void);
enum { DECODE_COMBINE_THREADS = 128 };

/* Rows len_q of a sequence make it this kernel's. */
QATTN_HD static inline bool decode_sm80_takes(int64_t len_q, int64_t group)
{
    return len_q <= FLASH_SM80_DECODE_ROWS / group;
}

#ifdef __cplusplus
}
#endif

#endif
