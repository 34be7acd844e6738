/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The vector language of cpu/isa.h as plain functions on arrays, once per instruction set: simd_probe_<isa>.c defines
 * one table each. Lengths are multiples of `lanes`.
 */
#ifndef QATTN_TESTS_SIMD_PROBE_H
#define QATTN_TESTS_SIMD_PROBE_H

#include <stdbool.h>
#include <stdint.h>

struct probe_gemm {         /* C [m][n] = alpha A [m][k] B [k][n]; f32, packed; finite_b: NaN, Inf of B count as 0 */
    const float *a, *b;
    float *c;
    int64_t m, n, k;
    float alpha;
    bool finite_b, careful;
};

struct simd_probe {
    const char *id;                                                      /* of the table row: "cpu.avx2" */
    int lanes, tile_rows, tile_width;
    void (*exp2)(const float *x, float *y, int64_t n);
    void (*exp)(const float *x, float *y, int64_t n);
    void (*tanh)(const float *x, float *y, int64_t n);
    void (*load)(int32_t dtype, const void *x, float *y, int64_t n);     /* f16 bf16 e4m3fn e5m2 i8 */
    void (*store)(int32_t dtype, const float *x, void *y, int64_t n);    /* f16 bf16 */
    void (*load_strided)(int32_t dtype, const void *x, int64_t stride, float *y, int64_t n);
    void (*store_strided)(int32_t dtype, const float *x, void *y, int64_t stride, int64_t n);
    void (*transpose)(float *square);                                    /* [lanes][lanes] */
    float (*sum)(const float *x);                                        /* of lanes */
    float (*max)(const float *x);
    uint32_t (*range)(int64_t lo, int64_t hi);
    void (*gemm)(const struct probe_gemm *g);
};

extern const struct simd_probe simd_probe_avx512, simd_probe_avx2, simd_probe_generic;

#endif
