/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Device tensors that span more addresses than any memory holds. Only the pages that have elements are mapped, so a
 * stride of 2^36 bytes costs a few pages of 2 MB, and a wrong address is a fault, not a wrong number.
 */
#ifndef QATTN_TESTS_FAR_MEMORY_H
#define QATTN_TESTS_FAR_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "qattn.h"

enum { FAR_PAGES = 96, FAR_PAGE_BYTES = 2 << 20 };

/* The host's copy of a page; only [low, high) of it has elements. */
struct far_page { int64_t index, low, high; uint64_t handle; unsigned char *host; };

/* A tensor of given strides. Its lowest byte is the first of a page: nothing below it is mapped. */
struct far_tensor {
    qattn_tensor t;
    uint64_t base, reserved;      /* device addresses */
    int64_t lowest;               /* byte offset of the lowest byte from element 0 */
    int pages;
    struct far_page page[FAR_PAGES];
};

/* False where the driver has no such mappings. */
bool far_begin(void);
/* Addresses alone; far_upload maps memory there. */
struct far_tensor far_new(int32_t dtype, const int64_t shape[4], const int64_t stride[4]);
void far_free(struct far_tensor *far);
/* Between a packed [b][h][s][d] array on the host and the tensor; other bytes of its pages are NaN in every type. */
void far_upload(struct far_tensor *far, const void *packed);
void far_download(struct far_tensor *far, void *packed);
/* Every byte of the pages that is no element still holds what far_upload left there; to be asked after far_download. */
bool far_intact(const struct far_tensor *far);

/* A packed tensor that repeats the same `period` bytes (a multiple of 2 MB) all along: inputs of any size. */
struct far_repeat { qattn_tensor t; uint64_t base, reserved, handle; int64_t pieces; };
struct far_repeat far_repeat_new(int32_t dtype, const int64_t shape[4], const void *bytes, size_t period);
void far_repeat_free(struct far_repeat *far);

#endif
