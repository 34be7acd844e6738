/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The vectors of isa.h in the compiler's own vector type: 4 floats, any machine. No fused
 * multiply-add is assumed: vf_fmadd rounds twice. Truth values are all-ones lanes. */
#ifndef QATTN_CPU_SIMD_GENERIC_H
#define QATTN_CPU_SIMD_GENERIC_H

enum { VL = 4 };
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vm __attribute__((vector_size(16)));

ISA_INLINE vf vf_zero(void) { return (vf){ 0, 0, 0, 0 }; }
ISA_INLINE vf vf_set1(float x) { return (vf){ x, x, x, x }; }
ISA_INLINE vf vf_iota(void) { return (vf){ 0, 1, 2, 3 }; }
ISA_INLINE vm vm_set1(int32_t x) { return (vm){ x, x, x, x }; }

ISA_INLINE vf vf_load(const float *p) { vf v; memcpy(&v, p, sizeof v); return v; }
ISA_INLINE void vf_store(float *p, vf v) { memcpy(p, &v, sizeof v); }
ISA_INLINE vf vf_load_n(const float *p, int64_t n)
{
    return (vf){ n > 0 ? p[0] : 0, n > 1 ? p[1] : 0, n > 2 ? p[2] : 0, n > 3 ? p[3] : 0 };
}
ISA_INLINE void vf_store_n(float *p, vf v, int64_t n)
{
    for (int i = 0; i < VL && i < n; i++)
        p[i] = v[i];
}

ISA_INLINE vf load_scalars(const void *p, int32_t dtype, int size)
{
    const char *const byte = (const char *)p;
    return (vf){ qattn__load(byte, dtype), qattn__load(byte + size, dtype),
                 qattn__load(byte + 2 * size, dtype), qattn__load(byte + 3 * size, dtype) };
}
/* Four 16-bit elements in the upper halves of lanes. */
ISA_INLINE vm load_upper_halves(const void *p)
{
    uint16_t h[4];
    memcpy(h, p, sizeof h);
    return (vm){ (int32_t)((uint32_t)h[0] << 16), (int32_t)((uint32_t)h[1] << 16), (int32_t)((uint32_t)h[2] << 16),
                 (int32_t)((uint32_t)h[3] << 16) };
}

/* The f16 bits, moved to where f32 has them, need 112 more in the exponent; infinity and NaN need
 * it full. A subnormal gets the exponent of 2^-14 and then loses the 2^-14 that this implies: no
 * f32 subnormal appears on the way. */
ISA_INLINE vf vf_load_f16(const void *p)
{
    const vm upper = load_upper_halves(p), sign = upper & vm_set1(INT32_MIN);
    const vm bits = (upper & vm_set1(0x7FFF0000)) >> 3, exponent = bits & vm_set1(0x0F800000);
    const vm normal = (bits + vm_set1(112 << 23)) | ((exponent == vm_set1(0x0F800000)) & vm_set1(0x7F800000));
    const vf subnormal = (vf)(bits + vm_set1(113 << 23)) - (vf)vm_set1(113 << 23);
    const vm is_subnormal = exponent == vm_set1(0);
    return (vf)((is_subnormal & (vm)subnormal) | (~is_subnormal & normal) | sign);
}
ISA_INLINE vf vf_load_bf16(const void *p) { return (vf)load_upper_halves(p); }
ISA_INLINE vf vf_load_e4m3(const void *p) { return load_scalars(p, QATTN_DTYPE_E4M3FN, 1); }
ISA_INLINE vf vf_load_e5m2(const void *p) { return load_scalars(p, QATTN_DTYPE_E5M2, 1); }
ISA_INLINE vf vf_load_i8(const void *p) { return load_scalars(p, QATTN_DTYPE_I8, 1); }
ISA_INLINE void vf_store_f16(void *p, vf v)
{
    for (int i = 0; i < VL; i++)
        qattn__store((char *)p + 2 * i, QATTN_DTYPE_F16, v[i]);
}
ISA_INLINE void vf_store_bf16(void *p, vf v)
{
    for (int i = 0; i < VL; i++)
        qattn__store((char *)p + 2 * i, QATTN_DTYPE_BF16, v[i]);
}

ISA_INLINE vf vf_add(vf a, vf b) { return a + b; }
ISA_INLINE vf vf_sub(vf a, vf b) { return a - b; }
ISA_INLINE vf vf_mul(vf a, vf b) { return a * b; }
ISA_INLINE vf vf_div(vf a, vf b) { return a / b; }
ISA_INLINE vf vf_fmadd(vf a, vf b, vf c) { return a * b + c; }
ISA_INLINE vf vf_fnmadd(vf a, vf b, vf c) { return c - a * b; }

ISA_INLINE vm vm_lt(vf a, vf b) { return (vm)(a < b); }
ISA_INLINE vm vm_le(vf a, vf b) { return (vm)(a <= b); }
ISA_INLINE vm vm_eq(vf a, vf b) { return (vm)(a == b); }
ISA_INLINE vm vm_and(vm a, vm b) { return a & b; }
ISA_INLINE vm vm_or(vm a, vm b) { return a | b; }
ISA_INLINE vm vm_not(vm a) { return ~a; }
ISA_INLINE uint32_t vm_bits(vm m)
{
    return (m[0] & 1u) | (m[1] & 2u) | (m[2] & 4u) | (m[3] & 8u);
}
ISA_INLINE vm vm_range(int64_t lo, int64_t hi)
{
    return (vm){ -(lo <= 0 && 0 < hi), -(lo <= 1 && 1 < hi), -(lo <= 2 && 2 < hi), -(lo <= 3 && 3 < hi) };
}
ISA_INLINE vm vm_nonzero_u8(const void *p)
{
    const uint8_t *const b = (const uint8_t *)p;
    return (vm){ -(b[0] != 0), -(b[1] != 0), -(b[2] != 0), -(b[3] != 0) };
}
ISA_INLINE vf vf_select(vm m, vf a, vf b) { return (vf)((m & (vm)a) | (~m & (vm)b)); }

ISA_INLINE vf vf_max(vf a, vf b) { return vf_select((vm)(a > b), a, b); }
ISA_INLINE vf vf_min(vf a, vf b) { return vf_select((vm)(a < b), a, b); }
ISA_INLINE vf vf_abs(vf v) { return (vf)((vm)v & vm_set1(INT32_MAX)); }
ISA_INLINE vf vf_copysign(vf magnitude, vf sign)
{
    return (vf)(((vm)magnitude & vm_set1(INT32_MAX)) | ((vm)sign & vm_set1(INT32_MIN)));
}
ISA_INLINE float vf_hmax(vf v)
{
    const float a = v[0] > v[2] ? v[0] : v[2], b = v[1] > v[3] ? v[1] : v[3];
    return a > b ? a : b;
}
ISA_INLINE float vf_hsum(vf v) { return (v[0] + v[2]) + (v[1] + v[3]); }
ISA_INLINE float vf_first(vf v) { return v[0]; }
ISA_INLINE vf vf_hsum_each(const vf v[4])
{
    return (vf){ vf_hsum(v[0]), vf_hsum(v[1]), vf_hsum(v[2]), vf_hsum(v[3]) };
}

/* As in AVX2; floor by truncation, on values clamped to where an int32 is exact (NaN becomes -127
 * there and comes back through r). */
ISA_INLINE vf vf_exp2(vf x)
{
    const vf clamped = vf_select((vm)(x > vf_set1(-127.0f)), vf_select((vm)(x < vf_set1(127.0f)), x, vf_set1(127.0f)),
                                 vf_set1(-127.0f));
    vm n = __builtin_convertvector(clamped, vm);
    n += (vm)(__builtin_convertvector(n, vf) > clamped);
    const vf r = x - __builtin_convertvector(n, vf);
    vf y = vf_set1(ISA_EXP2_C5) * r + vf_set1(ISA_EXP2_C4);
    y = y * r + vf_set1(ISA_EXP2_C3);
    y = y * r + vf_set1(ISA_EXP2_C2);
    y = y * r + vf_set1(ISA_EXP2_C1);
    y = y * r + vf_set1(1.0f);
    const vm below = (vm)(x < vf_set1(-126.0f));
    return (vf)(~below & (vm)(y * (vf)((n + 127) << 23)));
}

ISA_INLINE void vf_transpose(vf v[4])
{
    const vf a = v[0], b = v[1], c = v[2], d = v[3];
    v[0] = (vf){ a[0], b[0], c[0], d[0] };
    v[1] = (vf){ a[1], b[1], c[1], d[1] };
    v[2] = (vf){ a[2], b[2], c[2], d[2] };
    v[3] = (vf){ a[3], b[3], c[3], d[3] };
}

#endif
