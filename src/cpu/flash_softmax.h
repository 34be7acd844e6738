/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The online softmax step: what happens to the scores of one row and one block of keys between Q
 * K^T and P V.
 *
 *   adjust_row    softcap, bias, ALiBi, keep and the range of visible keys: only where a block needs it
 *   hide_outside  the range of visible keys alone
 *   row_max       m' = max(m, scores)
 *   row_exp       scores become exp(score - m'), summed: l' = l exp(m - m') + their sum
 *
 * Hidden is -inf. A row without a visible key so far has m = -inf: exp then subtracts 0 instead,
 * so hidden keys weigh 0 and a NaN score still makes l NaN: the maximum ignores NaN, the sum does
 * not.
 */
#ifndef QATTN_CPU_FLASH_SOFTMAX_H
#define QATTN_CPU_FLASH_SOFTMAX_H

#include "cpu/flash.h"
#include "cpu/flash_pack.h"

/* Some score needs more than the range of visible keys. */
static inline bool needs_adjusting(const struct problem *p)
{
    return p->softcap != 0.0f || p->bias.dtype || p->keep.dtype || p->alibi_slopes;
}

/* n <= VL elements of the bias at `at`, `step` elements apart. */
static inline vf load_bias(const char *at, int32_t dtype, int32_t itemsize, int64_t step, int64_t n)
{
    if (step == 1 && n >= VL) {
        switch (dtype) {
        case QATTN_DTYPE_F16: return vf_load_f16(at);
        case QATTN_DTYPE_BF16: return vf_load_bf16(at);
        default: return vf_load((const float *)(const void *)at);
        }
    }
    float lane[VL] = { 0 };
    for (int64_t x = 0; x < n && x < VL; x++)
        lane[x] = qattn__load(at + x * step * itemsize, dtype);
    return vf_load(lane);
}

static inline vm load_keep(const char *at, int64_t step, int64_t n)
{
    if (step == 1 && n >= VL)
        return vm_nonzero_u8(at);
    uint8_t lane[VL] = { 0 };
    for (int64_t x = 0; x < n && x < VL; x++)
        lane[x] = (uint8_t)at[x * step];
    return vm_nonzero_u8(lane);
}

/*
 * s[x] is the scaled score of key + x, from <= x < to (multiples of VL); keys lo <= x < hi are
 * visible by position and exist. Writes final scores, -inf for hidden keys, on the whole of from
 * .. to-1.
 */
static void adjust_row(const struct problem *p, const struct seq *q, int64_t h, int64_t i,
                       int64_t key, float *s, int64_t from, int64_t to, int64_t lo, int64_t hi)
{
    const vf hidden = vf_set1(-INFINITY), cap = vf_set1(p->softcap);
    const char *const bias = p->bias.dtype ? view_at(&p->bias, q->n, h, i, key) : NULL;
    const char *const keep = p->keep.dtype ? view_at(&p->keep, q->n, h, i, key) : NULL;
    const int64_t bias_step = p->bias.stride[3], keep_step = p->keep.stride[3];
    const float slope = p->alibi_slopes ? p->alibi_slopes[q->n * p->alibi_batch_stride + h] : 0.0f;
    const float distance = (float)((double)i + (double)q->offset - (double)key); /* of key + 0 */

    for (int64_t x = from; x < to; x += VL) {
        vm seen = vm_range(lo - x, hi - x);
        vf v = vf_load(s + x);
        if (p->softcap != 0.0f)
            v = vf_mul(cap, vf_tanh(vf_div(v, cap)));
        if (bias) {
            const vf b = load_bias(bias + x * bias_step * p->bias.itemsize, p->bias.dtype,
                                   p->bias.itemsize, bias_step, hi - x);
            v = vf_add(v, b);
            seen = vm_and(seen, vm_not(vm_eq(b, hidden)));
        }
        if (p->alibi_slopes) {
            const vf away = vf_abs(vf_sub(vf_set1(distance), vf_add(vf_set1((float)x), vf_iota())));
            v = vf_sub(v, vf_mul(vf_set1(slope), away));
        }
        if (keep)
            seen = vm_and(seen, load_keep(keep + x * keep_step, keep_step, hi - x));
        vf_store(s + x, vf_select(seen, v, hidden));
    }
}

/* The part of adjust_row that hides by position, when there is nothing else to do: touches only
 * vectors that need it. */
static void hide_outside(float *s, int64_t from, int64_t to, int64_t lo, int64_t hi)
{
    const vf hidden = vf_set1(-INFINITY);
    for (int64_t x = from; x < lo; x += VL)
        vf_store(s + x, vf_select(vm_range(lo - x, hi - x), vf_load(s + x), hidden));
    for (int64_t x = max64(from, hi / VL * VL); x < to; x += VL)
        vf_store(s + x, vf_select(vm_range(lo - x, hi - x), vf_load(s + x), hidden));
}

/* Bit x of `bits`: key x is visible, which is to say that its score is not -inf (NaN is visible). */
static inline void note_visible(const float *s, int64_t from, int64_t to, uint32_t *bits)
{
    memset(bits, 0, FLASH_KEYS / 8);
    for (int64_t x = from; x < to; x += VL) {
        const vm seen = vm_not(vm_eq(vf_load(s + x), vf_set1(-INFINITY)));
        bits[x / 32] |= (vm_bits(seen) & (uint32_t)((UINT64_C(1) << VL) - 1)) << x % 32;
    }
}

/*
 * The step itself, on final scores s[from .. to-1], multiples of 2 VL. Even and odd vectors are
 * summed apart, by their place in the block, so that the bits do not depend on `from` and `to`:
 * what lies outside would add zeros.
 */

/* The larger of m and all scores; NaN is ignored. */
ISA_INLINE float row_max(const float *s, int64_t from, int64_t to, float m)
{
    vf top0 = vf_set1(m), top1 = top0;
    for (int64_t x = from; x < to; x += 2 * VL) {
        top0 = vf_max(vf_load(s + x), top0);
        top1 = vf_max(vf_load(s + x + VL), top1);
    }
    return vf_hmax(vf_max(top0, top1));
}

/* What is subtracted from scores whose maximum is m. */
ISA_INLINE float row_base(float m)
{
    return m == -INFINITY ? 0.0f : m;
}

/* s becomes exp(s - base); returns the sums, lane by lane. */
ISA_INLINE vf row_exp(float *s, int64_t from, int64_t to, float base)
{
    const vf b = vf_set1(base);
    vf sum0 = vf_zero(), sum1 = vf_zero();
    for (int64_t x = from; x < to; x += 2 * VL) {
        const vf e0 = vf_exp(vf_sub(vf_load(s + x), b)),
                 e1 = vf_exp(vf_sub(vf_load(s + x + VL), b));
        vf_store(s + x, e0);
        vf_store(s + x + VL, e1);
        sum0 = vf_add(sum0, e0);
        sum1 = vf_add(sum1, e1);
    }
    return vf_add(sum0, sum1);
}

#endif
