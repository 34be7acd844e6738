/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Which block of a group is the last to finish? It can then do what needs all of them, in the same launch. No block
 * waits for another, and the memory need not be cleared before the launch.
 *
 * A group has one 64-bit word of the call's workspace: tag << ARRIVE_BITS | blocks that have arrived. The tag is the
 * launch's own (qattn__cuda_tag), so what lay in the word before counts as 0 arrivals. Every block makes sure that the
 * tag is there before it arrives; the last one takes it away again, for a graph replays a launch with its tag.
 */
#ifndef QATTN_CUDA_ARRIVE_CUH
#define QATTN_CUDA_ARRIVE_CUH

#include "cuda/common/arrive.h"
#include "cuda/common/ptx.cuh"

/* By one thread of each block, the same that arrives, before it does. `seen`: the word as it was read (__ldcg), some
 * time ago so that nobody waits for it. Once the tag is there, the comparison fails, and arrivals are kept. */
__device__ __forceinline__ void arrive_prepare(unsigned long long *word, unsigned long long seen, uint64_t tag)
{
    if (seen >> ARRIVE_BITS != tag)
        atomicCAS(word, seen, (unsigned long long)tag << ARRIVE_BITS);
}

/* By all threads of the block; true in the last of `blocks`. What the blocks wrote before it is then seen by loads past
 * the first-level cache (__ldcg). */
__device__ __forceinline__ bool arrive_last(unsigned long long *word, int blocks)
{
    const unsigned long long count = (1ull << ARRIVE_BITS) - 1;
    bool last = false;
    __syncthreads();
    if (threadIdx.x == 0) {
        last = (atomic_add_ordered(word, 1) & count) == (unsigned long long)(blocks - 1);
        if (last)
            *word = 0;          /* no launch's tag: they are odd */
    }
    return __syncthreads_or(last);
}

#endif
