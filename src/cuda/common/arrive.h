/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* What the launcher and the device code of arrive.cuh share. */
#ifndef QATTN_CUDA_ARRIVE_H
#define QATTN_CUDA_ARRIVE_H

enum { ARRIVE_BITS = 24, ARRIVE_MOST = 1 << 24 };   /* a group is of fewer than ARRIVE_MOST blocks */

#endif
