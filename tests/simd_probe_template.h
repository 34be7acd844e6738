/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Body of simd_probe_<isa>.c: included once, after the instruction set was chosen. */
#ifndef QATTN_TESTS_SIMD_PROBE_TEMPLATE_H
#define QATTN_TESTS_SIMD_PROBE_TEMPLATE_H

#include "cpu/gemm.h"
#include "cpu/microkernel.h"
#include "cpu/rows.h"
#include "simd_probe.h"

#define PROBE_EACH(name, function) \
    static void name(const float *x, float *y, int64_t n) \
    { \
        for (int64_t i = 0; i < n; i += VL) \
            vf_store(y + i, function(vf_load(x + i))); \
    }

PROBE_EACH(probe_exp2, vf_exp2)
PROBE_EACH(probe_exp, vf_exp)
PROBE_EACH(probe_tanh, vf_tanh)

static void probe_load(int32_t dtype, const void *x, float *y, int64_t n)
{
    const int64_t size = dtype == QATTN_DTYPE_F16 || dtype == QATTN_DTYPE_BF16 ? 2 : 1;
    for (int64_t i = 0; i < n; i += VL)
        vf_store(y + i, load_vector((const char *)x + i * size, dtype));
}

static void probe_store(int32_t dtype, const float *x, void *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += VL)
        store_vector((char *)y + i * 2, vf_load(x + i), dtype);
}

static void probe_load_strided(int32_t dtype, const void *x, int64_t stride, float *y, int64_t n)
{
    load_row(x, stride, dtype, n, y);
}

static void probe_store_strided(int32_t dtype, const float *x, void *y, int64_t stride, int64_t n)
{
    store_row(x, n, y, stride, dtype);
}

static void probe_transpose(float *square)
{
    vf v[VL];
    for (int i = 0; i < VL; i++)
        v[i] = vf_load(square + i * VL);
    vf_transpose(v);
    for (int i = 0; i < VL; i++)
        vf_store(square + i * VL, v[i]);
}

static float probe_sum(const float *x) { return vf_hsum(vf_load(x)); }
static float probe_max(const float *x) { return vf_hmax(vf_load(x)); }
static uint32_t probe_range(int64_t lo, int64_t hi) { return vm_bits(vm_range(lo, hi)); }

static struct matrix probe_matrix(const float *data, int64_t row)
{
    union { const float *in; char *out; } address = { .in = data };
    return (struct matrix){ .data = address.out, .row = row, .col = 1, .dtype = QATTN_DTYPE_F32, .itemsize = 4 };
}

static void probe_gemm(const struct probe_gemm *g)
{
    static float scratch[1 << 20];
    const struct gemm call = { .a = probe_matrix(g->a, g->k), .b = probe_matrix(g->b, g->n),
                               .c = probe_matrix(g->c, g->n), .m = g->m, .n = g->n, .k = g->k,
                               .alpha = g->alpha, .finite_b = g->finite_b, .careful = g->careful };
    if (ISA_NAME(qattn__gemm_scratch)(g->m, g->n, g->careful) <= sizeof scratch / sizeof *scratch)
        ISA_NAME(qattn__gemm)(&call, scratch);
}

const struct simd_probe ISA_NAME(simd_probe) = {
    .id = PROBE_ID, .lanes = VL, .tile_rows = MK_ROWS, .tile_width = MK_WIDTH,
    .exp2 = probe_exp2, .exp = probe_exp, .tanh = probe_tanh, .load = probe_load, .store = probe_store,
    .load_strided = probe_load_strided, .store_strided = probe_store_strided, .transpose = probe_transpose,
    .sum = probe_sum, .max = probe_max, .range = probe_range, .gemm = probe_gemm,
};

#endif
