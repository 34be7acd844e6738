/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The two products of a tile and the softmax between them, in registers: see flash_sm80.cuh. */
#ifndef QATTN_CUDA_FLASH_TILE_CUH
#define QATTN_CUDA_FLASH_TILE_CUH

#include <type_traits>

#include "cuda/common/math.cuh"
#include "cuda/common/ptx.cuh"

/* T: type of q. W: columns of Q, K, V, O. MB: blocks of 16 rows a warp owns. BN: keys of a tile. QREG: pieces of 16
 * columns of Q that stay in registers. CTAS: blocks a multiprocessor shall hold. PLAIN: only for calls whose scores
 * need no more than a positive scale, whose rows of Q, K and V are W elements at multiples of 16 bytes, 16 bits
 * each, and not paged. EVEN: the same but for the scores. BUFFERS: tiles of K, and of V, that shared memory has room
 * for; one where EVEN. */
template <class T, bool PLAIN_, int W_, int MB_, int WARPS_, int BN_, int QREG_, int CTAS_, bool EVEN_ = PLAIN_,
          int BUFFERS_ = 2>
struct f80 {
    typedef T type;
    static constexpr bool PLAIN = PLAIN_, EVEN = EVEN_, CAREFUL = false;
    static constexpr int UNROLL = 1024; /* of loops over registers */
    static constexpr bool BF16 = std::is_same<T, __nv_bfloat16>::value;
    static constexpr int W = W_, MB = MB_, WARPS = WARPS_, BN = BN_, QREG = QREG_, CTAS = CTAS_;
    static constexpr int BUFFERS = BUFFERS_;
    static constexpr int BM = 16 * MB * WARPS, THREADS = 32 * WARPS, ROW_BYTES = 2 * W;
    static constexpr int CHUNKS = W / 8, PASS_ROWS = THREADS / CHUNKS;
    static constexpr int TILE_BYTES = BN * ROW_BYTES, Q_BYTES = BM * ROW_BYTES;
    static constexpr int SHARED = Q_BYTES + 2 * BUFFERS * TILE_BYTES;
    static_assert((PASS_ROWS % 8 == 0 || PASS_ROWS == 4) && BN % PASS_ROWS == 0, "f80_below");
    static_assert(BUFFERS == 2 || (BUFFERS == 1 && EVEN), "8-bit tiles wait in the second buffers");
    static_assert(BN <= 64 && W <= 256, "f80_expel keeps a bit for each key and each of a thread's columns");
};

/* The same, for items that hold NaN or infinity: rolled loops over sums in local memory, small and slow. */
template <class C> struct f80_careful : C {
    static constexpr bool CAREFUL = true;
    static constexpr int UNROLL = 1, QREG = 0;
};

/* 16-byte chunk c of a row of W elements lies where c ^ (row % 8) says: eight rows' chunks c fall into different
 * banks. */
template <class C> __device__ __forceinline__ uint32_t f80_swizzle(int row, int chunk)
{
    return (uint32_t)(row * C::ROW_BYTES + ((chunk ^ (row & 7)) << 4));
}

/* The chunk r rows below one of the first PASS_ROWS rows of a tile; r is a multiple of PASS_ROWS. */
template <class C> __device__ __forceinline__ uint32_t f80_below(uint32_t chunk, int r)
{
    return (chunk ^ (uint32_t)((r & 7) << 4)) + r * C::ROW_BYTES;
}

/* The warp's first pieces of Q to registers. */
template <class C> __device__ __forceinline__ void f80_keep_q(uint32_t (*q_kept)[C::MB][4], uint32_t q_warp)
{
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int ks = 0; ks < C::QREG; ks++)
#pragma unroll
        for (int mb = 0; mb < C::MB; mb++)
            ldmatrix_x4(q_kept[ks][mb], q_warp + f80_swizzle<C>(mb * 16 + (lane & 15), 2 * ks + (lane >> 4)));
}

/* The thread's number, as something the compiler knows nothing about: what is made of it in a loop stays there. The
 * loop over key tiles has no registers for addresses; one spill, and ptxas reads fragments only when they are due. */
__device__ __forceinline__ int f80_thread(void)
{
    int thread = threadIdx.x;
    keep_in_register(thread);
    return thread;
}

/* Lane-constant part of the addresses of ldmatrix, and what steps along columns flip in it. */
struct f80_lane {
    uint32_t base, flip;
};

/* Of Q and V: lanes 0-15 rows 0-15 of the left 8 columns, lanes 16-31 those of the right 8. */
template <class C> __device__ __forceinline__ struct f80_lane f80_lane_rows(uint32_t tile)
{
    const int lane = f80_thread() & 31;
    struct f80_lane x = { tile + (lane & 15) * C::ROW_BYTES, (uint32_t)(((lane >> 4) ^ lane) & 7) << 4 };
    return x;
}

/* Of K: lanes 0-7 keys 0-7 of the left 8 columns, 8-15 those of the right 8, 16-31 keys 8-15 likewise. */
template <class C> __device__ __forceinline__ struct f80_lane f80_lane_keys(uint32_t tile)
{
    const int lane = f80_thread() & 31;
    struct f80_lane x = { tile + ((lane & 7) + ((lane >> 4) << 3)) * C::ROW_BYTES,
                          (uint32_t)(((lane >> 3 & 1) ^ lane) & 7) << 4 };
    return x;
}

/* The block of 16 rows and 16 columns number (row, column). */
template <class C> __device__ __forceinline__ uint32_t f80_at(const struct f80_lane &x, int row, int column)
{
    return x.base + ((uint32_t)((column & 3) << 5) ^ x.flip) + (column >> 2) * 128 + row * 16 * C::ROW_BYTES;
}

/* The sums of a row that has seen nothing. */
template <class C>
__device__ __forceinline__ void f80_clear(float (&o)[C::MB][C::W / 8][4], float (&m)[2 * C::MB], float (&l)[2 * C::MB])
{
#pragma unroll
    for (int mb = 0; mb < C::MB; mb++)
#pragma unroll
        for (int nb = 0; nb < C::W / 8; nb++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                o[mb][nb][e] = 0.0f;
#pragma unroll
    for (int x = 0; x < 2 * C::MB; x++) {
        m[x] = minus_infinity();
        l[x] = 0.0f;
    }
}

/* s = Q K^T of the warp's rows. Fragments are read one step ahead of their use. */
template <class C>
__device__ __forceinline__ void f80_multiply_k(float (&s)[C::MB][C::BN / 8][4], uint32_t (*q_kept)[C::MB][4],
                                               uint32_t q, uint32_t k)
{
    typedef typename C::type T;
    constexpr int blocks = C::BN / 16, steps = C::W / 16 * blocks;
    const struct f80_lane q_lane = f80_lane_rows<C>(q), k_lane = f80_lane_keys<C>(k);
#pragma unroll C::UNROLL
    for (int mb = 0; mb < C::MB; mb++)
#pragma unroll C::UNROLL
        for (int nb = 0; nb < C::BN / 8; nb++)
#pragma unroll C::UNROLL
            for (int e = 0; e < 4; e++)
                s[mb][nb][e] = 0.0f;
    uint32_t a[2][C::MB][4], b[2][4];
#pragma unroll C::UNROLL
    for (int mb = 0; mb < C::MB; mb++)
        if (C::QREG == 0)
            ldmatrix_x4(a[0][mb], f80_at<C>(q_lane, mb, 0));
    ldmatrix_x4(b[0], f80_at<C>(k_lane, 0, 0));
#pragma unroll C::UNROLL
    for (int ks = 0; ks < C::W / 16; ks++)
#pragma unroll C::UNROLL
        for (int n2 = 0; n2 < blocks; n2++) {
            const int step = ks * blocks + n2;
            if (step + 1 < steps)
                ldmatrix_x4(b[step + 1 & 1], f80_at<C>(k_lane, (step + 1) % blocks, (step + 1) / blocks));
            if (n2 == 0 && ks + 1 < C::W / 16 && ks + 1 >= C::QREG)
#pragma unroll C::UNROLL
                for (int mb = 0; mb < C::MB; mb++)
                    ldmatrix_x4(a[ks + 1 & 1][mb], f80_at<C>(q_lane, mb, ks + 1));
#pragma unroll C::UNROLL
            for (int mb = 0; mb < C::MB; mb++) {
                const uint32_t *const left = ks < C::QREG ? q_kept[ks][mb] : a[ks & 1][mb];
                mma_16816<T>(s[mb][2 * n2], left, b[step & 1]);
                mma_16816<T>(s[mb][2 * n2 + 1], left, b[step & 1] + 2);
            }
        }
}

/* o += P V, P in 16 bits. */
template <class C>
__device__ __forceinline__ void f80_multiply_v(float (&o)[C::MB][C::W / 8][4],
                                               const uint32_t (&pr)[C::MB][C::BN / 16][4], uint32_t v)
{
    typedef typename C::type T;
    constexpr int blocks = C::W / 16, steps = C::BN / 16 * blocks;
    const struct f80_lane v_lane = f80_lane_rows<C>(v);
    uint32_t b[2][4];
    ldmatrix_x4_trans(b[0], f80_at<C>(v_lane, 0, 0));
#pragma unroll C::UNROLL
    for (int ks = 0; ks < C::BN / 16; ks++)
#pragma unroll C::UNROLL
        for (int n2 = 0; n2 < blocks; n2++) {
            const int step = ks * blocks + n2;
            if (step + 1 < steps)
                ldmatrix_x4_trans(b[step + 1 & 1], f80_at<C>(v_lane, (step + 1) / blocks, (step + 1) % blocks));
#pragma unroll C::UNROLL
            for (int mb = 0; mb < C::MB; mb++) {
                mma_16816<T>(o[mb][2 * n2], pr[mb][ks], b[step & 1]);
                mma_16816<T>(o[mb][2 * n2 + 1], pr[mb][ks], b[step & 1] + 2);
            }
        }
}

/* P is e^(s - m) times 2^lift, in which l and O share: f16 has no full precision below 2^-14. */
template <class C> __device__ __forceinline__ constexpr float f80_lift(void)
{
    return C::BF16 ? 0.0f : 10.0f;
}

/* Where m * to_log2 has few bits left behind the point, scores lose m before they are multiplied. Where O is f32 always
 * (huge < 0): the largest P is then an exact power of 2, which no rounding of O hides. */
__device__ __forceinline__ bool f80_is_huge(float m_log2, float huge)
{
    return fabsf(m_log2) > huge;
}

/* O and l brought to the new maxima: a factor of exactly 1 where a row has none. */
template <class C>
__device__ __forceinline__ void f80_rescale(float to_log2, const float (&m)[2 * C::MB], const float (&old)[2 * C::MB],
                                            float (&l)[2 * C::MB], float (&o)[C::MB][C::W / 8][4])
{
#pragma unroll C::UNROLL
    for (int x = 0; x < 2 * C::MB; x++) {
        const float factor = m[x] > old[x] ? exp2_approx((old[x] - m[x]) * to_log2) : 1.0f;
        l[x] = __fmul_rn(l[x], factor);
#pragma unroll C::UNROLL
        for (int nb = 0; nb < C::W / 8; nb++) {
            o[x >> 1][nb][2 * (x & 1)] *= factor;
            o[x >> 1][nb][2 * (x & 1) + 1] *= factor;
        }
    }
}

/* Scores of rows with a huge maximum lose it, and their shift before. */
template <class C>
__device__ __forceinline__ void f80_take_maxima(float to_log2, float huge, const float (&m)[2 * C::MB],
                                                float (&shift)[2 * C::MB], float (&s)[C::MB][C::BN / 8][4])
{
#pragma unroll C::UNROLL
    for (int x = 0; x < 2 * C::MB; x++) {
        const bool takes = f80_is_huge(m[x] * to_log2, huge);
        const float less = takes && m[x] != minus_infinity() ? m[x] : 0.0f, before = takes ? shift[x] : 0.0f;
#pragma unroll C::UNROLL
        for (int nb = 0; nb < C::BN / 8; nb++)
#pragma unroll C::UNROLL
            for (int e = 0; e < 2; e++) {
                float *const at = &s[x >> 1][nb][2 * (x & 1) + e];
                *at = __fsub_rn(C::PLAIN ? *at : __fsub_rn(*at, before), less);
            }
        if (takes)
            shift[x] = 0.0f;
    }
}

/* What the exponents of a row with maximum m lose. */
template <class C> __device__ __forceinline__ float f80_from(float m, float to_log2, float huge)
{
    const float m_log2 = __fmul_rn(m, to_log2);
    return __fsub_rn(f80_is_huge(m_log2, huge) ? 0.0f : m_log2, f80_lift<C>());
}

/* The maxima of a thread's share of rows over the keys of block n2. */
template <class C>
__device__ __forceinline__ void f80_top_block(const float (&s)[C::MB][C::BN / 8][4], int n2, float (&top)[2 * C::MB])
{
#pragma unroll C::UNROLL
    for (int x = 0; x < 2 * C::MB; x++)
#pragma unroll C::UNROLL
        for (int nb = 2 * n2; nb < 2 * n2 + 2; nb++)
            top[x] = fmaxf(top[x], fmaxf(s[x >> 1][nb][2 * (x & 1)], s[x >> 1][nb][2 * (x & 1) + 1]));
}

/* The same over the whole tile. PLAIN: with the rows' maxima so far. */
template <class C>
__device__ __forceinline__ void f80_tops(const float (&s)[C::MB][C::BN / 8][4], const float (&m)[2 * C::MB],
                                         float (&top)[2 * C::MB])
{
#pragma unroll C::UNROLL
    for (int x = 0; x < 2 * C::MB; x++)
        top[x] = C::PLAIN ? m[x] : minus_infinity();
#pragma unroll C::UNROLL
    for (int n2 = 0; n2 < C::BN / 16; n2++)
        f80_top_block<C>(s, n2, top);
}

/* m moves to the maxima that the lanes of a row have in `top`, O and l with it; from: see f80_from. A score is s -
 * shift, where the instance has terms. */
template <class C>
__device__ __forceinline__ void f80_settle(float to_log2, float huge, float (&top)[2 * C::MB],
                                           float (&shift)[2 * C::MB], float (&m)[2 * C::MB],
                                           float (&from)[2 * C::MB], float (&l)[2 * C::MB],
                                           float (&o)[C::MB][C::W / 8][4], float (&s)[C::MB][C::BN / 8][4])
{
    bool grow = false;
    float size = 0.0f;
#pragma unroll C::UNROLL
    for (int x = 0; x < 2 * C::MB; x++)
        top[x] = C::PLAIN ? top[x] : fmaxf(m[x], __fsub_rn(top[x], shift[x]));
#pragma unroll C::UNROLL
    for (int step = 1; step <= 2; step++) /* all rows at once: a shuffle takes 25 cycles */
#pragma unroll C::UNROLL
        for (int x = 0; x < 2 * C::MB; x++)
            top[x] = fmaxf(top[x], __shfl_xor_sync(0xFFFFFFFFu, top[x], step));
#pragma unroll C::UNROLL
    for (int x = 0; x < 2 * C::MB; x++) {
        const float m_log2 = __fmul_rn(top[x], to_log2);
        from[x] = __fsub_rn(m_log2, f80_lift<C>());
        grow |= top[x] > m[x];
        size = fmaxf(size, fabsf(m_log2));
    }
    if (__any_sync(0xFFFFFFFFu, grow || f80_is_huge(size, huge))) {
        float old[2 * C::MB];
#pragma unroll C::UNROLL
        for (int x = 0; x < 2 * C::MB; x++) {
            old[x] = m[x];
            m[x] = top[x];
        }
        f80_rescale<C>(to_log2, m, old, l, o);
        if (__any_sync(0xFFFFFFFFu, f80_is_huge(size, huge))) {
            f80_take_maxima<C>(to_log2, huge, m, shift, s);
#pragma unroll C::UNROLL
            for (int x = 0; x < 2 * C::MB; x++)
                from[x] = f80_from<C>(m[x], to_log2, huge);
        }
    }
    if (!C::PLAIN)
#pragma unroll C::UNROLL
        for (int x = 0; x < 2 * C::MB; x++)
            from[x] = __fmaf_rn(shift[x], to_log2, from[x]);
}

/* s becomes P; l gains the row sums. */
template <class C>
__device__ __forceinline__ void f80_exponentials(float (&s)[C::MB][C::BN / 8][4], float to_log2,
                                                 const float (&from)[2 * C::MB], float (&l)[2 * C::MB])
{
#pragma unroll C::UNROLL
    for (int x = 0; x < 2 * C::MB; x++) {
        float sum = 0.0f;
#pragma unroll C::UNROLL
        for (int nb = 0; nb < C::BN / 8; nb++) {
            float *const at = &s[x >> 1][nb][2 * (x & 1)];
            at[0] = exp2_approx(__fmaf_rn(at[0], to_log2, -from[x]));
            at[1] = exp2_approx(__fmaf_rn(at[1], to_log2, -from[x]));
            sum = __fadd_rn(sum, __fadd_rn(at[0], at[1]));
        }
        l[x] = __fadd_rn(l[x], sum);
    }
}

template <class C>
__device__ __forceinline__ void f80_pack(const float (&s)[C::MB][C::BN / 8][4], uint32_t (&pr)[C::MB][C::BN / 16][4])
{
    typedef typename C::type T;
#pragma unroll C::UNROLL
    for (int mb = 0; mb < C::MB; mb++)
#pragma unroll C::UNROLL
        for (int ks = 0; ks < C::BN / 16; ks++)
#pragma unroll C::UNROLL
            for (int e = 0; e < 4; e++)
                pr[mb][ks][e] =
                    pack_16<T>(s[mb][2 * ks + (e >> 1)][2 * (e & 1)], s[mb][2 * ks + (e >> 1)][2 * (e & 1) + 1]);
}

#endif
