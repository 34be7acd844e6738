/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Which keys a split of a sequence takes: the decode kernel and its combination ask the same function. */
#ifndef QATTN_CUDA_DECODE_RANGE_CUH
#define QATTN_CUDA_DECODE_RANGE_CUH

#include "core/seq.h"
#include "cuda/sm80/decode_sm80.h"

/* Units of DECODE_UNIT keys, counted from key 0, that some row of the sequence sees. */
struct decode_range { int first, units; };

/* `begin`: of the first row, `end`: of the last one; neither ever falls from one row to the next. */
__device__ __forceinline__ struct decode_range decode_range_of(int begin, int end)
{
    struct decode_range range = { 0, 0 };
    if (begin < end) {
        range.first = begin / DECODE_UNIT;
        range.units = (end - 1) / DECODE_UNIT + 1 - range.first;
    }
    return range;
}

/* Splits that have keys: the first ones. A short sequence is not cut into pieces below a->least_units. */
__device__ __forceinline__ int decode_live_splits(const struct decode_sm80_args *a, const struct decode_range *range)
{
    const int most = (range->units + a->least_units - 1) / a->least_units;
    return most < a->num_splits ? most : a->num_splits;
}

/* The share of one of `live` splits: sizes differ by one unit at most, whatever the length. */
__device__ __forceinline__ struct decode_range decode_share(const struct decode_range *range, int split, int live)
{
    struct decode_range part = *range;
    if (live <= 1 || split >= live) {
        part.units = split == 0 ? range->units : 0;
        return part;
    }
    const int share = range->units / live, more = range->units % live;
    part.first = range->first + split * share + (split < more ? split : more);
    part.units = share + (split < more);
    return part;
}

#endif
