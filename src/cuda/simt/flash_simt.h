/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* What the launcher and the kernels of the one-pass attention without tensor cores agree on. */
#ifndef QATTN_CUDA_FLASH_SIMT_H
#define QATTN_CUDA_FLASH_SIMT_H

#include "cuda/common/problem_param.h"
#include "qattn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Threads; keys of a tile; elements of D, or keys, of a chunk; tiles of a span. */
enum { FS_THREADS = 256, FS_BN = 128, FS_BK = 16, FS_SPAN = 4 };

/* Shared memory that the kernel declares itself, at most, by rows of the tile. With 128 rows and D
 * 256 there is just room for Q. */
enum { FS_STATIC_128 = 13568, FS_STATIC_64 = 9 << 10, FS_STATIC_16 = 6 << 10 };

/* The tile shapes: query rows (heads of a group counted apart) and columns of O. FS_128X64 exists for f32 alone: 16-bit
 * types have cuda.sm80, and each shape costs seconds of the build. */
enum flash_simt_shape { FS_128X128, FS_64X256, FS_16X128, FS_128X64, FS_SHAPES };

/* flash_f32_simt.cu: rows of a tile, columns of O at most (and D), chunks in shared memory; what it declares itself. */
enum { FF_ROWS = 64, FF_WIDTH = 128, FF_THREADS = 128, FF_STAGES = 4, FF_STATIC = 6 << 10 };

struct flash_simt_args {
    int64_t work;               /* items: n * kv_heads * tiles * slices * num_splits */
    int64_t n, kv_heads, tiles, slices, num_splits;
    int64_t part_rows;          /* rows of one split's part: B * Sq * Hq of q */
    float  *parts_o;            /* [num_splits][part_rows][Dv], not normalised; NULL: write O and LSE at once */
    float  *parts_ml;           /* [num_splits][part_rows][2]: row maximum and sum */
    int32_t q_resident;         /* Q of the tile stays in shared memory */
    int32_t k_along_d, v_along_d;   /* neighbouring elements of D lie closer than neighbouring keys */
    int32_t zero;               /* 0: fs_fold in flash_simt.cuh */
    int32_t o_fours;            /* flash_f32_simt.cu: four columns of O can be stored at once */
    int32_t spans_shared;       /* sums of spans lie in shared memory */
    float  *spans;              /* or here, by block: then no more blocks than multiprocessors; else NULL */
};

/* Kernels (struct flash_simt_args, struct problem_param) for k and v of one stored type; NULL: no such shape. */
const void *qattn__flash_simt_f32(enum flash_simt_shape shape);
const void *qattn__flash_simt_f16(enum flash_simt_shape shape);
const void *qattn__flash_simt_bf16(enum flash_simt_shape shape);
const void *qattn__flash_simt_byte(enum flash_simt_shape shape);
/* The one of those four. */
const void *qattn__flash_simt(int32_t kv_dtype, enum flash_simt_shape shape);
/* f32 with many rows. */
const void *qattn__flash_f32_simt(void);
/* Brings the parts of splits together, (struct flash_simt_args ..., struct problem_param): 8 warps
 * a block, a warp a row. */
const void *qattn__flash_simt_combine(void);

/* Neighbours along D of an f32 tensor lie side by side, and every four of them on 16 bytes. */
bool qattn__flash_in_fours(const struct view *t);
/* For launchers of kernels that share items, parts and the second kernel: fills n .. num_splits and work of `a`. */
int32_t qattn__flash_items(const struct problem *p, int64_t rows_of_tile, int64_t width_of_tile, int64_t keys_of_tile,
                           struct flash_simt_args *a);
/* Bytes of the parts, 0 without splits, SIZE_MAX: more than can be; with memory they are placed there. */
size_t qattn__flash_parts(const struct problem *p, struct flash_simt_args *a, char *memory);
/* Starts the second kernel where there are splits; params as for the first, whose first argument starts with `a`. */
int32_t qattn__flash_combine(const struct problem *p, const struct flash_simt_args *a, void **params,
                             qattn_stream stream);

#ifdef __cplusplus
}
#endif

#endif
