/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The vectors of isa.h in AVX2, FMA, F16C: 8 floats, truth values as all-ones lanes. */
#ifndef QATTN_CPU_SIMD_AVX2_H
#define QATTN_CPU_SIMD_AVX2_H

#include <immintrin.h>

enum { VL = 8 };
typedef __m256 vf;
typedef __m256 vm;

ISA_INLINE vf vf_zero(void) { return _mm256_setzero_ps(); }
ISA_INLINE vf vf_set1(float x) { return _mm256_set1_ps(x); }
ISA_INLINE vf vf_iota(void) { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }

ISA_INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
ISA_INLINE void vf_store(float *p, vf v) { _mm256_storeu_ps(p, v); }
ISA_INLINE __m256i first_lanes(int64_t n)
{
    const int32_t count = n > 8 ? 8 : n < 0 ? 0 : (int32_t)n;
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
ISA_INLINE vf vf_load_n(const float *p, int64_t n) { return _mm256_maskload_ps(p, first_lanes(n)); }
ISA_INLINE void vf_store_n(float *p, vf v, int64_t n) { _mm256_maskstore_ps(p, first_lanes(n), v); }

ISA_INLINE vf vf_load_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
ISA_INLINE vf vf_load_bf16(const void *p)
{
    const __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
}
ISA_INLINE vf vf_load_e5m2(const void *p)           /* the upper byte of an f16 */
{
    const __m128i x = _mm_loadl_epi64((const __m128i *)p);
    return _mm256_cvtph_ps(_mm_unpacklo_epi8(_mm_setzero_si128(), x));
}
ISA_INLINE vf vf_load_e4m3(const void *p)           /* an f16 whose exponent is 8 too small; 480 is the code of NaN */
{
    const __m128i x = _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)p));
    const __m128i sign = _mm_and_si128(x, _mm_set1_epi16((short)0x8000));
    const __m128i rest = _mm_slli_epi16(_mm_and_si128(x, _mm_set1_epi16(0x7F)), 7);
    const __m256 v = _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(sign, rest)), _mm256_set1_ps(256.0f));
    const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
    const __m256 nan = _mm256_cmp_ps(magnitude, _mm256_set1_ps(480.0f), _CMP_EQ_OQ);
    return _mm256_blendv_ps(v, _mm256_set1_ps(NAN), nan);
}
ISA_INLINE vf vf_load_i8(const void *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
ISA_INLINE void vf_store_f16(void *p, vf v)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
ISA_INLINE void vf_store_bf16(void *p, vf v)
{
    const __m256i u = _mm256_castps_si256(v), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    const __m256 nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
    const __m256 quiet = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000));
    const __m256 r = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), quiet, nan);
    const __m256i w = _mm256_srli_epi32(_mm256_castps_si256(r), 16);
    _mm_storeu_si128((__m128i *)p, _mm_packus_epi32(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
}

ISA_INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
ISA_INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
ISA_INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
ISA_INLINE vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
ISA_INLINE vf vf_fmadd(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
ISA_INLINE vf vf_fnmadd(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }
ISA_INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
ISA_INLINE vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
ISA_INLINE vf vf_abs(vf v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }
ISA_INLINE vf vf_copysign(vf magnitude, vf sign)
{
    return _mm256_blendv_ps(vf_abs(magnitude), _mm256_or_ps(magnitude, _mm256_set1_ps(-0.0f)), sign);
}
ISA_INLINE float vf_hmax(vf v)
{
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps(x, x, 1)));
}
ISA_INLINE float vf_hsum(vf v)
{
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}
ISA_INLINE float vf_first(vf v) { return _mm256_cvtss_f32(v); }

ISA_INLINE vf vf_hsum_each(const vf v[8])
{
    const __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    const __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(v[4], v[5]), _mm256_hadd_ps(v[6], v[7]));
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

/* y 2^n by adding n to the exponent: n is clamped so that the power itself is normal, x < -126 is
 * cut afterwards. */
ISA_INLINE vf vf_exp2(vf x)
{
    const __m256 whole = _mm256_floor_ps(x), r = _mm256_sub_ps(x, whole);
    __m256 y = _mm256_fmadd_ps(_mm256_set1_ps(ISA_EXP2_C5), r, _mm256_set1_ps(ISA_EXP2_C4));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(ISA_EXP2_C3));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(ISA_EXP2_C2));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(ISA_EXP2_C1));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f));
    const __m256 n = _mm256_min_ps(_mm256_set1_ps(127.0f), whole);
    const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    const __m256 normal = _mm256_cmp_ps(x, _mm256_set1_ps(-126.0f), _CMP_NLT_UQ);
    return _mm256_and_ps(normal, _mm256_mul_ps(y, _mm256_castsi256_ps(power)));
}

ISA_INLINE vm vm_lt(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
ISA_INLINE vm vm_le(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
ISA_INLINE vm vm_eq(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
ISA_INLINE vm vm_range(int64_t lo, int64_t hi)
{
    return _mm256_castsi256_ps(_mm256_andnot_si256(first_lanes(lo), first_lanes(hi)));
}
ISA_INLINE vm vm_nonzero_u8(const void *p)
{
    const __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(x, _mm256_setzero_si256()));
}
ISA_INLINE vm vm_and(vm a, vm b) { return _mm256_and_ps(a, b); }
ISA_INLINE vm vm_or(vm a, vm b) { return _mm256_or_ps(a, b); }
ISA_INLINE vm vm_not(vm a) { return _mm256_xor_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(-1))); }
ISA_INLINE uint32_t vm_bits(vm m) { return (uint32_t)_mm256_movemask_ps(m); }
ISA_INLINE vf vf_select(vm m, vf a, vf b) { return _mm256_blendv_ps(b, a, m); }

/* 8 x 8: pairs of rows, of pairs, of halves. */
ISA_INLINE void vf_transpose(vf v[8])
{
    __m256 t[8];
    ISA_UNROLL
    for (int i = 0; i < 8; i += 4) {
        const __m256 a = _mm256_unpacklo_ps(v[i], v[i + 1]), b = _mm256_unpackhi_ps(v[i], v[i + 1]);
        const __m256 c = _mm256_unpacklo_ps(v[i + 2], v[i + 3]), d = _mm256_unpackhi_ps(v[i + 2], v[i + 3]);
        t[i] = _mm256_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm256_shuffle_ps(a, c, 0xEE);
        t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm256_shuffle_ps(b, d, 0xEE);
    }
    ISA_UNROLL
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
        v[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
    }
}

#endif
