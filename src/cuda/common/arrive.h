/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* What the launcher and the device code of arrive.cuh share. */
#ifndef QATTN_CUDA_ARRIVE_H
#define QATTN_CUDA_ARRIVE_H

#include <stdint.h>

enum { ARRIVE_BITS = 24, ARRIVE_MOST = 1 << 24 };   /* a group is of fewer than ARRIVE_MOST blocks */

#ifdef __cplusplus
extern "C" {
#endif

/* A launch's own number, of 64 - ARRIVE_BITS bits, odd. Results do not depend on it. */
uint64_t qattn__cuda_tag(void);

#ifdef __cplusplus
}
#endif

#endif
