/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Limits of a device as the kernels of src/cuda meet them: fp32 multiply-adds, mma.sync on bf16 and on TF32, and
 * reading. Each warp keeps eight independent sums in registers, enough to hide the latency of one unit; nothing touches
 * memory.
 */
#include "roofline_device.h"

enum { THREADS = 256, BLOCKS_PER_SM = 4, ROUNDS = 2048, CHAINS = 8 };

static __device__ __forceinline__ void mma_bf16(float *d, const unsigned *a, const unsigned *b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ __forceinline__ void mma_tf32(float *d, const unsigned *a, const unsigned *b)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* One step of every chain. Values stay small: products of numbers below 1e-3 are added. */
template <int UNIT> static __device__ __forceinline__ void step(float (*d)[4], const unsigned *a, const unsigned *b)
{
#pragma unroll
    for (int i = 0; i < CHAINS; i++) {
        if (UNIT == UNIT_MMA16)
            mma_bf16(d[i], a, b);
        else if (UNIT == UNIT_MMA_TF32)
            mma_tf32(d[i], a, b);
        else
            for (int k = 0; k < 4; k++)
                d[i][k] = fmaf(d[i][k], 0.5f, 1.0f);
    }
}

template <int UNIT> static __global__ void __launch_bounds__(THREADS) multiply_kernel(float *sink)
{
    float d[CHAINS][4] = {};
    unsigned a[4], b[2];
    for (int i = 0; i < 4; i++)
        a[i] = 0x38003800u + threadIdx.x * 8 + i;
    for (int i = 0; i < 2; i++)
        b[i] = 0x38003800u + threadIdx.x * 16 + i;
    for (int round = 0; round < ROUNDS; round++)
        step<UNIT>(d, a, b);
    float sum = 0;
    for (int i = 0; i < CHAINS; i++)
        sum += d[i][0] + d[i][1] + d[i][2] + d[i][3];
    if (sum == -1.0f)                              /* never: the sums are needed, so the loop is kept */
        *sink = sum;
}

static int sm_count(void)
{
    int count = 0;
    return cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0) == cudaSuccess ? count : 1;
}

void roofline_device_multiply(enum bench_unit unit, qattn_stream stream)
{
    const int blocks = sm_count() * BLOCKS_PER_SM;
    if (unit == UNIT_MMA16)
        multiply_kernel<UNIT_MMA16><<<blocks, THREADS, 0, stream>>>(NULL);
    else if (unit == UNIT_MMA_TF32)
        multiply_kernel<UNIT_MMA_TF32><<<blocks, THREADS, 0, stream>>>(NULL);
    else
        multiply_kernel<UNIT_FMA32><<<blocks, THREADS, 0, stream>>>(NULL);
}

double roofline_device_flop(enum bench_unit unit)
{
    const double warps = (double)sm_count() * BLOCKS_PER_SM * (THREADS / 32);
    const double step_flop = unit == UNIT_MMA16      ? 2.0 * 16 * 8 * 16
                           : unit == UNIT_MMA_TF32 ? 2.0 * 16 * 8 * 8
                                                   : 2.0 * 4 * 32;
    return warps * ROUNDS * CHAINS * step_flop;
}

/* Each block walks chunks of the buffer, sixteen bytes a thread and load, four loads in flight, past L1. */
static __global__ void __launch_bounds__(THREADS)
read_kernel(const uint4 *buffer, size_t count, int passes, unsigned *sink)
{
    const size_t chunk = (size_t)THREADS * 4, stride = chunk * gridDim.x;
    unsigned sum = 0;
    for (int pass = 0; pass < passes; pass++)
        for (size_t at = chunk * blockIdx.x + threadIdx.x; at < count; at += stride) {
            uint4 x[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[i] = at + i * THREADS < count ? __ldcg(buffer + at + i * THREADS) : make_uint4(0, 0, 0, 0);
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum += x[i].x ^ x[i].y ^ x[i].z ^ x[i].w;
        }
    if (sum == 0x9E3779B9u)
        *sink = sum;
}

void roofline_device_read(const void *buffer, size_t bytes, int passes, void *sink, qattn_stream stream)
{
    const size_t count = bytes / sizeof(uint4), chunks = (count + THREADS * 4 - 1) / (THREADS * 4);
    const size_t most = (size_t)sm_count() * 8;
    read_kernel<<<(unsigned)(chunks < most ? chunks : most), THREADS, 0, stream>>>(
        (const uint4 *)buffer, count, passes, (unsigned *)sink);
}
