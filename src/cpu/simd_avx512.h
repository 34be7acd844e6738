/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The vectors of isa.h in AVX-512 F, BW, DQ, VL: 16 floats, truth values in mask registers. */
#ifndef QATTN_CPU_SIMD_AVX512_H
#define QATTN_CPU_SIMD_AVX512_H

#include <immintrin.h>

enum { VL = 16 };
typedef __m512 vf;
typedef __mmask16 vm;

ISA_INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
ISA_INLINE vf vf_set1(float x) { return _mm512_set1_ps(x); }
ISA_INLINE vf vf_iota(void)
{
    return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

ISA_INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
ISA_INLINE void vf_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
ISA_INLINE __mmask16 first_lanes(int64_t n)
{
    return (__mmask16)(n >= 16 ? 0xFFFFu : n <= 0 ? 0u : (1u << n) - 1u);
}
ISA_INLINE vf vf_load_n(const float *p, int64_t n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
ISA_INLINE void vf_store_n(float *p, vf v, int64_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), v); }

ISA_INLINE vf vf_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
ISA_INLINE vf vf_load_bf16(const void *p)
{
    const __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}
ISA_INLINE vf vf_load_e5m2(const void *p)           /* the upper byte of an f16 */
{
    const __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)p));
    return _mm512_cvtph_ps(_mm256_slli_epi16(x, 8));
}
ISA_INLINE vf vf_load_e4m3(const void *p)           /* an f16 whose exponent is 8 too small; 480 is the code of NaN */
{
    const __m256i x = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));
    const __m256i sign = _mm256_and_si256(x, _mm256_set1_epi16((short)0x8000));
    const __m256i rest = _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x7F)), 7);
    const __m512 v = _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(sign, rest)), _mm512_set1_ps(256.0f));
    const __mmask16 nan = _mm512_cmp_ps_mask(_mm512_abs_ps(v), _mm512_set1_ps(480.0f), _CMP_EQ_OQ);
    return _mm512_mask_blend_ps(nan, v, _mm512_set1_ps(NAN));
}
ISA_INLINE vf vf_load_i8(const void *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
ISA_INLINE void vf_store_f16(void *p, vf v)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
ISA_INLINE void vf_store_bf16(void *p, vf v)
{
    const __m512i u = _mm512_castps_si512(v), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i r = _mm512_mask_blend_epi32(nan, rounded, _mm512_set1_epi32(0x7FC00000));
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16)));
}

ISA_INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
ISA_INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
ISA_INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
ISA_INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
ISA_INLINE vf vf_fmadd(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
ISA_INLINE vf vf_fnmadd(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
ISA_INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
ISA_INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
ISA_INLINE vf vf_abs(vf v) { return _mm512_abs_ps(v); }
ISA_INLINE vf vf_copysign(vf magnitude, vf sign)
{
    const __m512 bit = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(bit, magnitude), _mm512_and_ps(bit, sign));
}
ISA_INLINE float vf_hmax(vf v) { return _mm512_reduce_max_ps(v); }
ISA_INLINE float vf_hsum(vf v) { return _mm512_reduce_add_ps(v); }
ISA_INLINE float vf_first(vf v) { return _mm512_cvtss_f32(v); }

/* Half of the sums at each step: of pairs of lanes, of the two halves of quarters, of quarters, of
 * halves. */
ISA_INLINE vf vf_hsum_each(const vf v[16])
{
    __m512 a[8], b[4];
    ISA_UNROLL
    for (int i = 0; i < 8; i++)
        a[i] = _mm512_add_ps(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
    ISA_UNROLL
    for (int i = 0; i < 4; i++) {
        const __m512d x = _mm512_castps_pd(a[2 * i]), y = _mm512_castps_pd(a[2 * i + 1]);
        b[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
    }
    const __m512 c = _mm512_add_ps(_mm512_shuffle_f32x4(b[0], b[1], 0x44), _mm512_shuffle_f32x4(b[0], b[1], 0xEE));
    const __m512 d = _mm512_add_ps(_mm512_shuffle_f32x4(b[2], b[3], 0x44), _mm512_shuffle_f32x4(b[2], b[3], 0xEE));
    return _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x88), _mm512_shuffle_f32x4(c, d, 0xDD));
}

ISA_INLINE vf vf_exp2(vf x)
{
    const __m512 r = _mm512_reduce_ps(x, 0x01);                     /* x - floor(x) */
    __m512 y = _mm512_fmadd_ps(_mm512_set1_ps(ISA_EXP2_C5), r, _mm512_set1_ps(ISA_EXP2_C4));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(ISA_EXP2_C3));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(ISA_EXP2_C2));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(ISA_EXP2_C1));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.0f));
    const __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(normal, y, x);                    /* y 2^floor(x) */
}

ISA_INLINE vm vm_lt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
ISA_INLINE vm vm_le(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
ISA_INLINE vm vm_eq(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
ISA_INLINE vm vm_range(int64_t lo, int64_t hi) { return (vm)(first_lanes(hi) & ~first_lanes(lo)); }
ISA_INLINE vm vm_nonzero_u8(const void *p)
{
    const __m128i x = _mm_loadu_si128((const __m128i *)p);
    return _mm_test_epi8_mask(x, x);
}
ISA_INLINE vm vm_and(vm a, vm b) { return (vm)(a & b); }
ISA_INLINE vm vm_or(vm a, vm b) { return (vm)(a | b); }
ISA_INLINE vm vm_not(vm a) { return (vm)~a; }
ISA_INLINE uint32_t vm_bits(vm m) { return m; }
ISA_INLINE vf vf_select(vm m, vf a, vf b) { return _mm512_mask_blend_ps(m, b, a); }

/* 16 x 16: pairs of rows, of pairs, of quarters, of halves. */
ISA_INLINE void vf_transpose(vf v[16])
{
    __m512 t[16];
    ISA_UNROLL
    for (int i = 0; i < 16; i += 4) {
        const __m512 a = _mm512_unpacklo_ps(v[i], v[i + 1]), b = _mm512_unpackhi_ps(v[i], v[i + 1]);
        const __m512 c = _mm512_unpacklo_ps(v[i + 2], v[i + 3]), d = _mm512_unpackhi_ps(v[i + 2], v[i + 3]);
        const __m512d a2 = _mm512_castps_pd(a), b2 = _mm512_castps_pd(b);
        const __m512d c2 = _mm512_castps_pd(c), d2 = _mm512_castps_pd(d);
        t[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a2, c2));
        t[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a2, c2));
        t[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b2, d2));
        t[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b2, d2));
    }
    ISA_UNROLL
    for (int i = 0; i < 4; i++) {                               /* quarter q of t[4g+i] is column 4q+i of rows 4g.. */
        const __m512 a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x44), b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xEE);
        const __m512 c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x44);
        const __m512 d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xEE);
        v[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        v[i + 4] = _mm512_shuffle_f32x4(a, c, 0xDD);
        v[i + 8] = _mm512_shuffle_f32x4(b, d, 0x88);
        v[i + 12] = _mm512_shuffle_f32x4(b, d, 0xDD);
    }
}

#endif
