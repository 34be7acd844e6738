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
#include "cuda/common/divide.h"
#include "cuda/common/problem_param.h"
#include "cuda/sizes.h"
#include "cuda/sm80/decode_range.h"
#include "cuda/sm80/flash_sm80.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Types, widths and descales this kernel takes; not the flags: under BATCH_INVARIANT it must not run. */
bool qattn__sm80_decode_supports(const struct problem *p, char *why, size_t cap);

/* Warps of a block of decode_sm80.cuh; elements that rows are padded to in shared memory. */
enum { DECODE_WARPS = 4, DECODE_STEP = 64 };
/* decode_direct.cuh: rows it takes; warps of a multiprocessor, in two blocks of DECODE_WARPS or in one. */
enum { DIRECT_ROWS = 8, DIRECT_WARPS = 8 };
/* Of shared memory: what the kernel keeps of a row; what a block costs beside all it asks for, SYSTEM_SHARED_BYTES and
 * what the kernel declares, at most. */
enum { DECODE_ROW_BYTES = 48, DECODE_STATIC_BYTES = 2 << 10 };

/* Where row 0 of (batch, head) lies in a tensor, and how far rows are apart, in bytes. */
struct decode_tensor {
    char *data;
    int64_t batch, head, row;
};
QATTN_HD static inline char *decode_row_of(const struct decode_tensor *x, int64_t batch, int64_t head, int64_t row)
{
    return x->data + batch * x->batch + head * x->head + row * x->row;
}

/* What sequences have in common. DECODE_ALIKE: all but the batches' numbers. DECODE_ALIKE_BUT_KEYS: the number of keys
 * differs too, and all rows see all of them. */
enum decode_alike { DECODE_UNLIKE, DECODE_ALIKE, DECODE_ALIKE_BUT_KEYS };

/* What the direct kernel reads first comes first, side by side: a block waits for each line of its arguments. */
struct decode_sm80_args {
    struct divisor by_splits, by_heads, by_group;
    struct decode_cut cut;
    unsigned long long *words;  /* [n][kv_heads]: the last split adds the parts (arrive.cuh); NULL: a second kernel */
    int32_t alike;              /* enum decode_alike */
    struct decode_range range;  /* of all sequences, as far as they are alike */
    int32_t cap_k;              /* no sequence has more keys */
    int32_t q_vector, k_vector, v_vector;   /* rows at multiples of 16 bytes, and read so; else one by one */
    struct decode_tensor q, k, v;
    int32_t page_size, page_shift;          /* log2, or -1 */
    int32_t last_page;          /* of the pool */
    int32_t terms;              /* scores need more than a scale and a cap */
    struct seq seq;             /* of all sequences, as range */
    struct decode_tensor o;
    int32_t o_vector;           /* rows of O at multiples of 16 bytes, Dv a multiple of 4 */
    int32_t part_rows;          /* rows kept of a sequence and KV head: most that can be this kernel's */
    int32_t longest;            /* len_q of a sequence that is this kernel's, at most */
    int32_t part_pitch;         /* floats of a part's row: Dv, a multiple of 4 */
    float  *parts_o;            /* [n][kv_heads][num_splits][part_rows][part_pitch], not normalised; NULL: one split */
    float  *parts_ml;           /* [n][kv_heads][num_splits][part_rows][2]: row maximum and sum */
    uint64_t tag;               /* of this launch */
    int32_t q_pitch, k_pitch, v_pitch;  /* bytes of a row in shared memory */
    int32_t q_lanes, k_lanes, v_lanes;      /* log2 of the lanes that copy one row */
    int32_t v_in_k;             /* V is K's own rows, or their beginnings: not copied */
    int32_t stages;             /* units under way for each warp */
    int32_t whole;              /* rows of a unit lie one stride apart: no pages, or pages of whole units */
    int32_t q_offset, row_offset;       /* of Q and of what is known of rows, in shared memory */
};

struct decode_plan {
    struct decode_sm80_args args;       /* what is a matter of shapes; qattn__sm80_decode fills in the rest */
    int64_t items;              /* sequences times KV heads; a block for each split of each */
    size_t shared_bytes;        /* of the general kernel */
    bool few;                   /* the last split to finish adds the parts, no second kernel */
    size_t parts_bytes, ml_bytes;   /* workspace of the splits' O, of their maxima and sums */
    size_t bytes;               /* all of the workspace; SIZE_MAX: more than can be */
};
/* How many splits, and how much memory: from shapes, types and the device alone. */
int32_t qattn__sm80_decode_plan(const struct problem *p, struct decode_plan *plan);
/* Launches in p->workspace of plan->bytes. */
int32_t qattn__sm80_decode(const struct problem *p, struct decode_plan *plan, qattn_stream stream);
int32_t qattn__sm80_decode_load(const struct problem *p);

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
