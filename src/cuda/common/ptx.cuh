/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * One function for each PTX instruction that C cannot say. All run on compute capability 8.0 and later.
 *
 * Fragments of mma.sync m16n8k16, lane l of a warp, g = l / 4, c = l % 4; two 16-bit elements a register, lower k
 * lower:
 *     A [16][16]   a0 (g, 2c..)  a1 (g + 8, 2c..)  a2 (g, 2c + 8..)  a3 (g + 8, 2c + 8..)
 *     B [16][8]    b0 (k 2c.., n g)  b1 (k 2c + 8.., n g)
 *     D [16][8]    d0 d1 (g, 2c..)  d2 d3 (g + 8, 2c..)
 * So D of two neighbouring n blocks, rounded to 16 bits, is the A fragment of a next product.
 */
#ifndef QATTN_CUDA_PTX_CUH
#define QATTN_CUDA_PTX_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

/* Address of shared memory as instructions take it. */
__device__ __forceinline__ uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* ---------------------------------------------------------------- asynchronous copies, memory to shared memory */

/* 16 bytes, both ends 16-byte aligned; past the first-level cache. */
__device__ __forceinline__ void cp_async_16(uint32_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/* The first `bytes` (0 .. 16) of `from`, zeros after them; with 0 `from` is not read. */
__device__ __forceinline__ void cp_async_16_zfill(uint32_t to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

/* 4 or 8 bytes, so aligned. */
template <int size> __device__ __forceinline__ void cp_async_small(uint32_t to, const void *from)
{
    static_assert(size == 4 || size == 8, "cp.async.ca copies 4 or 8 bytes here");
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(size) : "memory");
}

/* 4 bytes, or zeros with bytes 0: then `from` is not read. */
__device__ __forceinline__ void cp_async_4_zfill(uint32_t to, const void *from, int bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

/* Closes the group of this thread's copies since the last one. */
__device__ __forceinline__ void cp_async_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Until at most `pending` of this thread's newest groups are under way. Others' copies: a barrier after it. */
template <int pending> __device__ __forceinline__ void cp_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/* ---------------------------------------------------------------- memory to registers */

/* 16 bytes, so aligned, that nobody writes while the kernel runs. */
__device__ __forceinline__ void load_16(uint32_t *r, const void *from)
{
    asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "l"(from));
}

/* For load_once_16: what comes leaves the second-level cache before other things do. */
__device__ __forceinline__ uint64_t policy_evict_first(void)
{
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* 16 bytes, so aligned, that nobody writes while the kernel runs and that are read once; whole lines of 128 are
 * fetched. */
__device__ __forceinline__ void load_once_16(uint32_t *r, const void *from, uint64_t policy)
{
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.L2::128B.v4.b32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "l"(from), "l"(policy));
}

/* ---------------------------------------------------------------- shared memory to fragments */

/* Four 8x8 matrices of 16-bit elements; lanes 8 i .. 8 i + 7 give the addresses of the 16-byte rows of matrix i.
 * Register i of lane l holds its elements (l / 4, 2 (l % 4) ..). */
__device__ __forceinline__ void ldmatrix_x4(uint32_t *r, uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

/* The same with each matrix transposed: elements (2 (l % 4) .., l / 4). */
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t *r, uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

/* An 8x8 matrix of 16-bit elements, one row for each four lanes, transposed: lane l had (l / 4, 2 (l % 4) ..) and gets
 * (2 (l % 4) .., l / 4). */
__device__ __forceinline__ uint32_t transpose_8x8(uint32_t x)
{
    uint32_t y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

__device__ __forceinline__ uint32_t load_shared_32(uint32_t address)
{
    uint32_t x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
    return x;
}

/* ---------------------------------------------------------------- products: d += a b, sums in f32 */

/* [16][16] x [16][8]; T is __half or __nv_bfloat16. */
template <class T> __device__ __forceinline__ void mma_16816(float *d, const uint32_t *a, const uint32_t *b);

template <> __device__ __forceinline__ void mma_16816<__half>(float *d, const uint32_t *a, const uint32_t *b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <> __device__ __forceinline__ void mma_16816<__nv_bfloat16>(float *d, const uint32_t *a, const uint32_t *b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* [16][8] x [8][8] of TF32 (f32 whose low 13 bits are ignored): A a0 (g, c) a1 (g + 8, c) a2 (g, c + 4) a3 (g + 8, c
 * + 4), B b0 (k c, n g) b1 (k c + 4, n g), D as above. */
__device__ __forceinline__ void mma_1688_tf32(float *d, const uint32_t *a, const uint32_t *b)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* x rounded to TF32, to nearest, ties away from zero. */
__device__ __forceinline__ uint32_t round_tf32(float x)
{
    uint32_t y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
}

/* ---------------------------------------------------------------- arithmetic */

/* Two numbers rounded to nearest even, `low` in the low half: one instruction. */
template <class T> __device__ __forceinline__ uint32_t pack_16(float low, float high);

template <> __device__ __forceinline__ uint32_t pack_16<__half>(float low, float high)
{
    uint32_t y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

template <> __device__ __forceinline__ uint32_t pack_16<__nv_bfloat16>(float low, float high)
{
    uint32_t y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

/* 1/x to 1 unit in the last place; subnormals count as 0. */
__device__ __forceinline__ float reciprocal_approx(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* ---------------------------------------------------------------- registers, barriers, launches */

/* No instruction: x stays in its register, where the compiler would compute it again at each use. */
__device__ __forceinline__ void keep_in_register(int &x) { asm volatile("" : "+r"(x)); }
__device__ __forceinline__ void keep_in_register(int64_t &x) { asm volatile("" : "+l"(x)); }

/* Barrier `id` (1 .. 15) of `threads` threads of the block, whole warps. */
__device__ __forceinline__ void named_barrier(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* Adds to *x, what it was before. What this thread has seen or written, and others before a barrier with it, is seen by
 * threads of the device that find the sum here; and the other way round. */
__device__ __forceinline__ unsigned long long atomic_add_ordered(unsigned long long *x, unsigned long long add)
{
    unsigned long long before;
    asm volatile("atom.add.acq_rel.gpu.global.u64 %0, [%1], %2;" : "=l"(before) : "l"(x), "l"(add) : "memory");
    return before;
}

/* The next kernel of the stream may start, if it was launched so that it can; before 9.0: nothing. Only after
 * wait_for_predecessor: before its own wait, that kernel may read what is older than this one. */
__device__ __forceinline__ void launch_dependents(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Until the kernel before this one is complete and its writes are seen; before 9.0 it is, always. The first thing that
 * every kernel does, in all threads: launch.c starts kernels early, and a block that did not wait could end before what
 * the kernels before it wrote is there. */
__device__ __forceinline__ void wait_for_predecessor(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#endif
