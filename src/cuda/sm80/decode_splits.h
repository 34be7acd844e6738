/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* How many splits and warps a block a decode call gets. */
#ifndef QATTN_CUDA_DECODE_SPLITS_H
#define QATTN_CUDA_DECODE_SPLITS_H

#include <stdint.h>

/* What is to be cut, and where it runs. All above 0; items times splits fit 31 bits. */
struct decode_demand {
    uint32_t items;             /* sequences times KV heads */
    uint32_t units;             /* of the longest sequence there may be */
    uint32_t tiles_log2;        /* of its rows: as many warps share a unit */
    uint32_t places;            /* warps that the device holds at once */
    uint32_t most_warps;        /* of a block: DECODE_WARPS or DIRECT_WARPS */
};

struct decode_choice { uint32_t splits, warps; };

struct decode_choice qattn__decode_choose(const struct decode_demand *d);

#endif
