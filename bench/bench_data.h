/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The tensors and parameters of a case, as a caller would pass them, and the checked problem made from them. */
#ifndef QATTN_BENCH_DATA_H
#define QATTN_BENCH_DATA_H

#include "bench_case.h"

enum { BENCH_MAX_BLOCKS = 2 * QATTN__MAX_PARTS + 24 };

struct bench_data {
    void *blocks[BENCH_MAX_BLOCKS];      /* every allocation, in host memory */
    void *mirrors[BENCH_MAX_BLOCKS];     /* the same on a CUDA device, NULL without one */
    size_t block_bytes[BENCH_MAX_BLOCKS];
    int   num_blocks;
    bool  out_of_memory;
    bool  shapes_only;                   /* no element exists: for asking what is supported */
    int32_t device_type;                 /* QATTN_DEVICE_*: where the tensors below lie */
    qattn_tensor in[3], out, out_lse;    /* q k v o; a b c; x y; out and lse of merge */
    int   out_block;                     /* number of `out`'s block; -1 for shapes only */
    size_t out_bytes;
    qattn_tensor part_o[QATTN__MAX_PARTS], part_lse[QATTN__MAX_PARTS];
    qattn_attn_params attn;
    qattn_matmul_params matmul;
    qattn_softmax_params softmax;
    qattn_merge_params merge;
    struct problem problem;              /* what implementations run */
    struct problem host;                 /* the same on host memory, for the check */
};

/* Builds everything, in device_type's memory (device 0); threads 0: the library's default. On failure returns false,
 * writes the reason to why[cap] and leaves nothing to free. */
bool bench_data_make(struct bench_data *out, const struct bench_case *c, int32_t device_type, int threads,
                     bool shapes_only, char *why, size_t cap);
void bench_data_free(struct bench_data *d);

/* bench_upload.c: copies every block to the CUDA device and lets tensors and params point there. False: out of
 * memory. */
bool bench_data_upload(struct bench_data *d);

/* bench_call.c: the case through the public function, checks and dispatch included; on CPU with the library's own
 * workspace. */
int32_t bench_data_call(const struct bench_data *d, qattn_stream stream);
/* What its *_workspace answers; then the workspace its params name. */
int32_t bench_data_workspace(const struct bench_data *d, size_t *bytes);
void bench_data_set_workspace(struct bench_data *d, void *workspace, size_t bytes);

/* Fills the output with 0xFF bytes, a NaN in every float type. */
void bench_data_poison(const struct bench_data *d);
/* Brings the output to host memory, if it is not there. */
void bench_data_fetch(const struct bench_data *d);

/* Compares sampled rows of the output with an fp64 computation of them. Returns whether all are within the bound of
 * their element types; *max_err receives the largest absolute error. */
bool bench_check(const struct bench_data *d, const struct bench_case *c, double *max_err);

#endif
