/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Scores of a tile between the product Q K^T and the softmax, where more than a scale is asked for, in the order of
 * ref/ref_softmax.c: scale, softcap, bias, ALiBi, masks. Nothing of this runs on tiles that need nothing of it.
 *
 * A thread owns, of each block of 8 keys, keys 2c and 2c + 1 of rows g + 8 x (common/ptx.cuh). Bias and keep pass
 * through shared memory: as a tile begins, before scores take the registers, each warp starts the copies of its own
 * rows, 16 bytes at a time, and waits for them after Q K^T; or, where strides or alignment forbid that, it gathers them
 * element by element into f32. Each term is one loop over the tile, chosen once a tile: with two warps a scheduler a
 * hundred instructions a tile cost about a tenth of the time, and spilled registers more.
 */
#ifndef QATTN_CUDA_FLASH_TERMS_CUH
#define QATTN_CUDA_FLASH_TERMS_CUH

#include <cfloat>

#include "cuda/common/ptx.cuh"
#include "cuda/common/score.cuh"
#include "cuda/sm80/flash_rows.cuh"

/* tanh below 1/2, a polynomial (minimax: 1.5e-8), and above, 1 - 2 / (1 + e^2y). Both err by a few units in the last
 * place. */
__device__ __forceinline__ float f80_tanh_small(float y)
{
    const float square = y * y;
    float x = __fmaf_rn(square, 0.017241498455405235f, -0.053045496344566345f);
    x = __fmaf_rn(square, x, 0.13325878977775574f);
    x = __fmaf_rn(square, x, -0.333331435918808f);
    return __fmaf_rn(square * y, x, y);
}
__device__ __forceinline__ float f80_tanh_large(float y)
{
    const float power = exp2_approx(fabsf(y) * (2.0f * LOG2_E));
    return copysignf(__fmaf_rn(-2.0f, reciprocal_approx(power + 1.0f), 1.0f), y);
}

/* s = tanh(s inverse). Where eight rows of the warp have no large score, the polynomial alone: with the same bits. */
template <class C> __device__ __forceinline__ void f80_softcap(float inverse, float (&s)[C::MB][C::BN / 8][4])
{
#pragma unroll C::UNROLL
    for (int x = 0; x < 2 * C::MB; x++) {
        float top = 0.0f;
#pragma unroll C::UNROLL
        for (int nb = 0; nb < C::BN / 8; nb++)
#pragma unroll C::UNROLL
            for (int e = 0; e < 2; e++) {
                float *const at = &s[x >> 1][nb][2 * (x & 1) + e];
                *at *= inverse;
                top = fmaxf(top, fabsf(*at));
            }
        const bool large = __any_sync(0xFFFFFFFFu, top >= 0.5f);
#pragma unroll C::UNROLL
        for (int nb = 0; nb < C::BN / 8; nb++)
#pragma unroll C::UNROLL
            for (int e = 0; e < 2; e++) {
                float *const at = &s[x >> 1][nb][2 * (x & 1) + e], y = *at;
                *at = f80_tanh_small(y);
                if (large)
                    *at = fabsf(y) < 0.5f ? *at : f80_tanh_large(y);
            }
    }
}

/* Bytes of the stage of one warp: bias, then keep. */
template <class C> struct f80_stage {
    static constexpr int ROWS = 16 * C::MB, BIAS = ROWS * C::BN * 2, KEEP = ROWS * C::BN, GATHERED = ROWS * C::BN * 4;
};

/* Where a 16-byte chunk of a row of `chunks` lies: what 8 rows read at once falls into different banks. */
template <int chunks> __device__ __forceinline__ int f80_stage_at(int row, int chunk)
{
    return row * (16 * chunks) + ((chunk ^ (row / (8 / chunks) & (chunks - 1))) << 4);
}
template <class C> __device__ __forceinline__ int f80_bias_at(int row, int chunk)
{
    return f80_stage_at<C::BN / 8>(row, chunk);
}
template <class C> __device__ __forceinline__ int f80_keep_at(int row, int chunk)
{
    return f80_stage_at<C::BN / 16>(row, chunk);
}

/* Starts the copies of the rows of one warp from bias or keep: chunks of 16 bytes, `per_row` a row of the tile. */
template <class C, bool BIAS>
__device__ __forceinline__ void f80_copy_view(const struct view *t, int64_t n, const struct f80_rows &rows,
                                              int first_row, int j0, uint32_t stage)
{
    constexpr int columns = BIAS ? 8 : 16, per_row = C::BN / columns, step = 32 / per_row;
    const int lane = f80_thread() & 31, chunk = lane % per_row, r0 = lane / per_row;
    const int64_t left = t->shape[3] - j0 - columns * chunk;
    const int bytes = (int)clamp64(left * t->itemsize, 0, 16);
    const int64_t last = t->shape[2] - 1; /* rows past the end: zeros, or the last row; nothing of them is used */
    if (rows.group.by == 1) {
        const int64_t i = rows.i0 + first_row + r0, stride = t->stride[2] * t->itemsize;
        const char *from = view_at(t, n, rows.h0, i, bytes ? j0 + columns * chunk : 0);
        const int there = last == 0 ? f80_stage<C>::ROWS : (int)clamp64(last - i + 1, 0, f80_stage<C>::ROWS);
#pragma unroll
        for (int r = 0; r < f80_stage<C>::ROWS; r += step) {
            cp_async_16_zfill(stage + (BIAS ? f80_bias_at<C>(r0 + r, chunk) : f80_keep_at<C>(r0 + r, chunk)), from,
                              r < there ? bytes : 0);
            from += step * stride;
        }
    } else {
#pragma unroll 1
        for (int r = r0; r < f80_stage<C>::ROWS; r += step) {
            const struct f80_row row = f80_row_of(rows, first_row + r);
            cp_async_16_zfill(stage + (BIAS ? f80_bias_at<C>(r, chunk) : f80_keep_at<C>(r, chunk)),
                              view_at(t, n, row.h, row.i < last ? row.i : last, bytes ? j0 + columns * chunk : 0),
                              bytes);
        }
    }
}

/* The same for what the call has. Past the last key: zeros, hidden by position. */
template <class C>
__device__ __forceinline__ void f80_copy_stage(const struct problem *p, int64_t n, const struct f80_rows &rows,
                                               int first_row, int j0, uint32_t stage)
{
    if (p->bias.dtype) {
        f80_copy_view<C, true>(&p->bias, n, rows, first_row, j0, stage);
        stage += f80_stage<C>::BIAS;
    }
    if (p->keep.dtype)
        f80_copy_view<C, false>(&p->keep, n, rows, first_row, j0, stage);
    cp_async_commit();
}

/* The same, now, into f32 [rows][BN]: the bias, -inf where keep hides. */
template <class C>
__device__ __forceinline__ void f80_gather_stage(const struct problem *p, int64_t n, const struct f80_rows &rows,
                                                 int first_row, int j0, const struct f80_sight &sight, float *stage)
{
    const int lane = f80_thread() & 31;
    __syncwarp();
#pragma unroll 1
    for (int x = lane; x < f80_stage<C>::ROWS * C::BN; x += 32) {
        const struct f80_row row = f80_row_of(rows, first_row + x / C::BN);
        const int column = x % C::BN, j = j0 + column;
        float value = 0.0f;
        if (row.i - rows.i0 <= sight.last && j < sight.len_k) {
            if (p->bias.dtype)
                value = load_any(view_at(&p->bias, n, row.h, row.i, j), p->bias.dtype);
            if (p->keep.dtype && *view_at(&p->keep, n, row.h, row.i, j) == 0)
                value = minus_infinity();
        }
        stage[(x / C::BN) * C::BN + (column ^ ((x / C::BN & 3) << 3))] = value;
    }
    __syncwarp();
}

/* Two elements of bias, of a kind that f80_add_bias tells. */
template <class C, int KIND> __device__ __forceinline__ float2 f80_bias_of(const char *stage, int row, int nb, int c)
{
    if (KIND == 0)
        return *(const float2 *)(stage + 4 * (row * C::BN + ((8 * nb + 2 * c) ^ ((row & 3) << 3))));
    const uint32_t two = *(const uint32_t *)(stage + f80_bias_at<C>(row, nb) + 4 * c);
    if (KIND == 1)
        return __half22float2(*(const __half2 *)&two);
    return make_float2(__uint_as_float(two << 16), __uint_as_float(two & 0xFFFF0000u));
}

/* s = s factor + bias, of f32 (gathered), f16 or bf16: kind 0, 1, 2. CAREFUL: -inf hides infinities and NaN too. */
template <class C, int KIND>
__device__ __forceinline__ void f80_add_bias(const char *stage, float factor,
                                             float (&s)[C::MB][C::BN / 8][4])
{
    const int lane = f80_thread() & 31, c = lane & 3;
#pragma unroll C::UNROLL
    for (int x = 0; x < 2 * C::MB; x++)
#pragma unroll C::UNROLL
        for (int nb = 0; nb < C::BN / 8; nb++) {
            const float2 bias = f80_bias_of<C, KIND>(stage, 8 * x + (lane >> 2), nb, c);
            float *const at = &s[x >> 1][nb][2 * (x & 1)];
            at[0] = __fmaf_rn(at[0], factor, bias.x);
            at[1] = __fmaf_rn(at[1], factor, bias.y);
        }
    if (C::CAREFUL)
#pragma unroll C::UNROLL
        for (int x = 0; x < 2 * C::MB; x++)
#pragma unroll C::UNROLL
            for (int nb = 0; nb < C::BN / 8; nb++) {
                const float2 bias = f80_bias_of<C, KIND>(stage, 8 * x + (lane >> 2), nb, c);
                float *const at = &s[x >> 1][nb][2 * (x & 1)];
                at[0] = bias.x == minus_infinity() ? bias.x : at[0];
                at[1] = bias.y == minus_infinity() ? bias.y : at[1];
            }
}

/* Hides what keep hides. */
template <class C>
__device__ __forceinline__ void f80_apply_keep(const char *stage, float (&s)[C::MB][C::BN / 8][4])
{
    const int lane = f80_thread() & 31, c = lane & 3;
#pragma unroll C::UNROLL
    for (int x = 0; x < 2 * C::MB; x++)
#pragma unroll C::UNROLL
        for (int nb = 0; nb < C::BN / 8; nb++) {
            const char *const from = stage + f80_keep_at<C>(8 * x + (lane >> 2), nb / 2) + 8 * (nb & 1) + 2 * c;
            const unsigned two = *(const uint16_t *)from;
            float *const at = &s[x >> 1][nb][2 * (x & 1)];
            at[0] = two & 0xFFu ? at[0] : minus_infinity();
            at[1] = two & 0xFF00u ? at[1] : minus_infinity();
        }
}

/* s = s factor - slope |distance|. rows: [BM] slope, query row of the tile; distance: pos of query row 0 minus j0. */
template <class C>
__device__ __forceinline__ void f80_add_alibi(const float2 *rows, int first_row, int64_t distance, float factor,
                                              float (&s)[C::MB][C::BN / 8][4])
{
    const int lane = f80_thread() & 31;
#pragma unroll C::UNROLL
    for (int x = 0; x < 2 * C::MB; x++) {
        const float2 row = rows[first_row + 8 * x + (lane >> 2)];
        const float far = (float)(distance + (int)row.y - 2 * (lane & 3));
#pragma unroll C::UNROLL
        for (int nb = 0; nb < C::BN / 8; nb++)
#pragma unroll C::UNROLL
            for (int e = 0; e < 2; e++) {
                float *const at = &s[x >> 1][nb][2 * (x & 1) + e];
                *at = __fmaf_rn(*at, factor, __fmul_rn(-row.x, fabsf(far - (float)(8 * nb + e))));
            }
    }
}

/* A multiple of 63 slopes joins a score and leaves it again, each rounded, and the shift is rounded once more where the
 * maximum takes it: so slopes (in units of 1) up to 1 alone, which trained models have, and distances at which the
 * largest P stays near 1. */
template <class C> __device__ __forceinline__ bool f80_is_steep(float slope, float far, float unit)
{
    const float fall = fabsf(__fmul_rn(slope, unit));
    return !C::EVEN || !(fall <= 1.0f && __fmul_rn(fall, fabsf(far)) <= 0x1p20f);
}

/* s - shift = s - slope distance, under a causal mask: what j > pos gives is hidden. The thread's columns of the tile
 * come with their multiple of the slope; what all of them have in common is the row's shift, which costs nothing a
 * score. Steep rows go without. unit: what a slope is worth. */
template <class C>
__device__ __forceinline__ void f80_add_alibi_causal(const float2 *rows, int first_row, int64_t distance, float unit,
                                                     float (&s)[C::MB][C::BN / 8][4], float (&shift)[2 * C::MB])
{
    const int lane = f80_thread() & 31;
    bool steep = !C::EVEN;
    if (C::EVEN) {
#pragma unroll C::UNROLL
        for (int x = 0; x < 2 * C::MB; x++) {
            const float2 row = rows[first_row + 8 * x + (lane >> 2)];
            const float far = (float)(distance + (int)row.y - 2 * (lane & 3));
            const float slope = f80_is_steep<C>(row.x, far, unit) ? 0.0f : row.x;
            steep |= f80_is_steep<C>(row.x, far, unit);
            shift[x] = __fmul_rn(slope, far);
#pragma unroll C::UNROLL
            for (int nb = 0; nb < C::BN / 8; nb++)
#pragma unroll C::UNROLL
                for (int e = 0; e < 2; e++) {
                    float *const at = &s[x >> 1][nb][2 * (x & 1) + e];
                    *at = __fmaf_rn(slope, (float)(8 * nb + e), *at);
                }
        }
    }
    if (!__any_sync(0xFFFFFFFFu, steep))
        return;
#pragma unroll C::UNROLL
    for (int x = 0; x < 2 * C::MB; x++) {
        const float2 row = rows[first_row + 8 * x + (lane >> 2)];
        const float far = (float)(distance + (int)row.y - 2 * (lane & 3));
#pragma unroll C::UNROLL
        for (int nb = 0; nb < C::BN / 8; nb++)
#pragma unroll C::UNROLL
            for (int e = 0; e < 2; e++) {
                float *const at = &s[x >> 1][nb][2 * (x & 1) + e];
                *at = f80_is_steep<C>(row.x, far, unit) ? __fmaf_rn(-row.x, far - (float)(8 * nb + e), *at) : *at;
            }
    }
}

/* Softcap, ALiBi, bias, keep, each in a loop of its own; the scale joins the first sum. Without a sum the scores stay
 * what args->unit times the score is. A score is s - shift of its row (and lane). CAREFUL: f80_add_bias. */
template <class C>
__device__ __forceinline__ void f80_terms(const struct flash_sm80_args *a, const struct problem *p, const char *stage,
                                          const float2 *alibi, int64_t distance, float scale, float by_cap,
                                          int first_row, float (&s)[C::MB][C::BN / 8][4],
                                          float (&shift)[2 * C::MB])
{
    float factor = scale;
    if (p->softcap != 0.0f) {
        f80_softcap<C>(by_cap, s);
        factor = p->softcap;
    }
    if (p->alibi_slopes && !a->scaled) {
        f80_add_alibi_causal<C>(alibi, first_row, distance, a->unit, s, shift);
    } else if (p->alibi_slopes) {
        f80_add_alibi<C>(alibi, first_row, distance, factor, s);
        factor = 1.0f;
    }
    if (a->stage == FLASH_SM80_GATHERED) {
        f80_add_bias<C, 0>(stage, a->scaled ? factor : 1.0f, s);
    } else if (p->bias.dtype == QATTN_DTYPE_F16) {
        f80_add_bias<C, 1>(stage, factor, s);
    } else if (p->bias.dtype == QATTN_DTYPE_BF16) {
        f80_add_bias<C, 2>(stage, factor, s);
    } else if (a->scaled && factor != 1.0f) {
#pragma unroll C::UNROLL
        for (int mb = 0; mb < C::MB; mb++)
#pragma unroll C::UNROLL
            for (int nb = 0; nb < C::BN / 8; nb++)
#pragma unroll C::UNROLL
                for (int e = 0; e < 4; e++)
                    s[mb][nb][e] *= factor;
    }
    if (a->stage == FLASH_SM80_COPIED && p->keep.dtype)
        f80_apply_keep<C>(stage + (p->bias.dtype ? f80_stage<C>::BIAS : 0), s);
}

/* Hides what the rows do not see by position. */
template <class C>
__device__ __forceinline__ void f80_hide(const struct f80_sight &sight, const struct f80_rows &rows, int j0,
                                         int first_row, float (&s)[C::MB][C::BN / 8][4])
{
    const int lane = threadIdx.x & 31, column = j0 + 2 * (lane & 3);
#pragma unroll C::UNROLL
    for (int x = 0; x < 2 * C::MB; x++) {
        int begin, end;
        f80_see(sight, rows, first_row + 8 * x + (lane >> 2), &begin, &end);
        begin -= column;
        end -= column;
#pragma unroll C::UNROLL
        for (int nb = 0; nb < C::BN / 8; nb++)
#pragma unroll C::UNROLL
            for (int e = 0; e < 2; e++)
                if (8 * nb + e < begin || 8 * nb + e >= end)
                    s[x >> 1][nb][2 * (x & 1) + e] = minus_infinity();
    }
}

/*
 * A tile of V that holds NaN or infinity, in the second pass over an item. First each warp makes the elements of O
 * that see such a value NaN (which non-finite value is not promised); then the values become 0, so that the product
 * gives all other elements the bits they have where V holds 0 there. s - shift: final scores, -inf where hidden. All
 * threads of the block call this.
 */
template <class C>
__device__ __forceinline__ void f80_expel(const float (&s)[C::MB][C::BN / 8][4], const float (&shift)[2 * C::MB],
                                          bool active, char *v, float (&o)[C::MB][C::W / 8][4])
{
    const uint32_t exponent = C::BF16 ? 0x7F80u : 0x7C00u;
    const int lane = f80_thread() & 31, c = lane & 3;
    bool some = false;
#pragma unroll 1
    for (int x = f80_thread(); x < C::BN * C::W / 2; x += C::THREADS) {
        const uint32_t two = ((const uint32_t *)v)[x];
        some |= (two & exponent) == exponent || (two >> 16 & exponent) == exponent;
    }
    if (!__syncthreads_or(some))
        return;
    if (active) {
#pragma unroll C::UNROLL
        for (int x = 0; x < 2 * C::MB; x++) {
            uint64_t sees = 0, bad = 0; /* bit j: key j of the tile; bit 2 nb + e: the thread's column 8 nb + 2 c + e */
#pragma unroll C::UNROLL
            for (int nb = 0; nb < C::BN / 8; nb++)
#pragma unroll C::UNROLL
                for (int e = 0; e < 2; e++)
                    sees |= (uint64_t)(s[x >> 1][nb][2 * (x & 1) + e] - shift[x] != minus_infinity())
                            << (8 * nb + 2 * c + e);
            sees |= __shfl_xor_sync(0xFFFFFFFFu, sees, 1);
            sees |= __shfl_xor_sync(0xFFFFFFFFu, sees, 2);
#pragma unroll 1
            for (int j = 0; j < C::BN; j++) {
                if (!(sees >> j & 1))
                    continue;
#pragma unroll 1
                for (int nb = 0; nb < C::W / 8; nb++) {
                    const uint32_t two = *(const uint32_t *)(v + f80_swizzle<C>(j, nb) + 4 * c);
                    bad |= (uint64_t)((two & exponent) == exponent) << (2 * nb);
                    bad |= (uint64_t)((two >> 16 & exponent) == exponent) << (2 * nb + 1);
                }
            }
#pragma unroll C::UNROLL
            for (int nb = 0; nb < C::W / 8; nb++)
#pragma unroll C::UNROLL
                for (int e = 0; e < 2; e++)
                    if (bad >> (2 * nb + e) & 1)
                        o[x >> 1][nb][2 * (x & 1) + e] = __int_as_float(0x7FC00000);
        }
    }
    __syncthreads();
#pragma unroll 1
    for (int x = f80_thread(); x < C::BN * C::W / 2; x += C::THREADS) {
        uint32_t two = ((uint32_t *)v)[x];
        two = (two & exponent) == exponent ? two & 0xFFFF0000u : two;
        two = (two >> 16 & exponent) == exponent ? two & 0xFFFFu : two;
        ((uint32_t *)v)[x] = two;
    }
    __syncthreads();
}

#endif
