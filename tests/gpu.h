/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * CUDA rows under the same suites: a problem laid into fenced host memory is copied to the device with the same
 * addresses modulo 256, the same strides and the same poison, run there, and copied back over the host memory, where
 * the checks look. QATTN_TEST_DEVICE=cuda asks for the CUDA rows instead of the CPU's.
 */
#ifndef QATTN_TESTS_GPU_H
#define QATTN_TESTS_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/impls.h"
#include "support.h"

/* QATTN_TEST_DEVICE=cuda is set. */
bool gpu_wanted(void);
/* There is a device this build can use; if not, *why says why. */
bool gpu_usable(const char **why);
/* "NVIDIA H200, compute capability 9.0". */
const char *gpu_name(void);

/* Under compute-sanitizer (QATTN_TEST_RAW=1) the workspace is an allocation of its own, of exactly its size and never
 * written before: the tools then see every byte that is read unwritten, or lies beyond the end. Nothing is run 50
 * times. 2: the same, filled, for calls that read a word before they write it (cuda/common/arrive.cuh). */
bool gpu_raw(void);

/* How the row of this name multiplies f32 where `precision` is asked for: the CPU's and cuda.simt are always IEEE. */
int32_t gpu_precision(const char *row_id, int64_t precision);

/* How many runs of a grid's case number `seed` must give the same bits: 2, on a device now and then 50. */
int gpu_repeats(int64_t seed);

/* Host memory that a problem points into. Regions larger than GPU_SPARSE bytes are not copied as they lie: device
 * memory of the same extent is filled with NaN, and the elements of the problem's views alone go there and back. */
enum gpu_use {
    GPU_MEMORY,      /* comes back as it is then; the caller looks at it */
    GPU_INPUT        /* must not change, and may be read-only */
};
struct gpu_region { void *host; size_t bytes; enum gpu_use use; };
enum { GPU_MAX_REGIONS = 160, GPU_SPARSE = 64 << 20 };
struct gpu_regions { struct gpu_region at[GPU_MAX_REGIONS]; int count; };
void gpu_add(struct gpu_regions *regions, void *host, size_t bytes);
void gpu_add_box(struct gpu_regions *regions, const struct box *box);
/* The extents of the problem's views and arrays, those that overlap joined. */
void gpu_add_problem(struct gpu_regions *regions, const struct problem *p);

/* Runs p, whose pointers lie in the regions, on the row's device: a CPU row as it stands, with a fenced workspace
 * filled with `fill`; a CUDA row in copies. False with *reason where the row does not support it. Notes failures of
 * the status, of guards around the workspace and, on the device, around every region. */
bool gpu_run_row(const struct impl *row, struct problem *p, const struct gpu_regions *regions,
                 int fill, int32_t *status, char *reason, size_t cap);

/* gpu_run_row's part for CUDA rows that support p (gpu_device.c). */
bool gpu_run_on_device(const struct impl *row, struct problem *p, const struct gpu_regions *regions, int fill,
                       int32_t *status);

/* For tests that call the library's functions themselves: memory with a copy of the host's, on the device under
 * QATTN_TEST_DEVICE=cuda, else the host's heap; what it holds now; its end. gpu_device_type: for tensors in it. */
void *gpu_new(const void *host, size_t bytes);
void gpu_get(void *host, const void *memory, size_t bytes);
void gpu_free(void *memory);
int32_t gpu_device_type(void);

#endif
