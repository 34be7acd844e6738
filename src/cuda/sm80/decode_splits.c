/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "cuda/sm80/decode_splits.h"

#include "cuda/sm80/decode_sm80.h"

enum { MAX_SPLITS = 256, MAX_WAVES = 8, FULL_WAVES = 4 };

/* Blocks of one size: how many find a place at once, and their key groups. */
struct blocks { uint32_t warps, slots, groups_log2; };

/* A step, one unit for each key group of `blocks` blocks, takes what reading takes that is asked for when the one
 * before it is there, and longer when more than half of the places are taken, until with all of them it is the memory's
 * time. */
static uint32_t step_of(const struct blocks *of, uint32_t blocks)
{
    const uint32_t half = of->slots / 2;
    return 120 + (blocks > half ? 68 * (blocks - half) / (of->slots - half) : 0);
}

/* Cost of a call in 10 ns, measured on an H200 with the direct kernel in bf16 at D 128 (docs/notes/cuda_decode.md).
 * Blocks come in waves; those of the last one do not end together, which costs a share of its time. Every block pays
 * for its start and its end, less where other blocks hide them, more if it is large; splits pay for bringing their
 * parts together. */
static int64_t cost_of(const struct decode_demand *d, const struct blocks *of, uint32_t splits)
{
    const uint32_t blocks = d->items * splits, full = (blocks - 1) / of->slots, last = blocks - full * of->slots;
    const int64_t steps = (((d->units - 1) / splits) >> of->groups_log2) + 1;
    const int64_t last_wave = steps * step_of(of, last);
    const uint32_t ends = of->warps > DECODE_WARPS ? 400 : full > 0 ? 200 : 300;
    return full * steps * step_of(of, of->slots) + last_wave + last_wave / 64 + (full + 1) * ends +
           (splits > 1 ? 100 + 10 * splits : 0);
}

struct candidate { struct decode_choice choice; int64_t cost; };

static void try_splits(const struct decode_demand *d, const struct blocks *of, uint32_t splits, struct candidate *best)
{
    const int64_t cost = cost_of(d, of, splits);
    if (cost < best->cost)
        *best = (struct candidate){ { splits, of->warps }, cost };
}

/* Powers of two that leave no more than seven eighths of the places empty, and what fills whole waves of blocks. Large
 * blocks only where all of them find a place at once: else nothing hides their starts and ends. */
static void try_blocks(const struct decode_demand *d, uint32_t warps, struct candidate *best)
{
    const struct blocks of = { warps, d->places / warps, (uint32_t)__builtin_ctz(warps) - d->tiles_log2 };
    const uint32_t chunks = ((d->units - 1) >> of.groups_log2) + 1, most = chunks < MAX_SPLITS ? chunks : MAX_SPLITS;
    const bool large = warps > DECODE_WARPS;
    const uint32_t limit = large ? of.slots : MAX_WAVES * of.slots, waves = large ? 1 : FULL_WAVES;
    if (d->items > limit)
        return;
    uint32_t splits = 1;
    while (2 * splits <= most && 16 * splits * d->items <= of.slots)
        splits *= 2;
    for (; splits <= most && splits * d->items <= limit; splits *= 2)
        try_splits(d, &of, splits, best);
    for (uint32_t wave = 1; wave <= waves; wave++) {
        const uint32_t full = wave * of.slots / d->items;
        if (full > 0 && full <= most)
            try_splits(d, &of, full, best);
    }
}

struct decode_choice qattn__decode_choose(const struct decode_demand *d)
{
    struct candidate best = { { 1, DECODE_WARPS }, INT64_MAX };
    try_blocks(d, DECODE_WARPS, &best);
    if (d->most_warps > DECODE_WARPS)
        try_blocks(d, d->most_warps, &best);
    return best.choice;
}
