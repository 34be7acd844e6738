/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The register-blocked product all CPU matrix work is made of:
 *
 *     C[MK_ROWS][MK_WIDTH] += A[MK_ROWS][k] B[k][MK_WIDTH]
 *
 * C stays in registers: 6 rows x 4 vectors of 16 (AVX-512, 24 of 32 registers), 6 x 2 of 8 (AVX2,
 * 12 of 16) or 6 x 2 of 4. B is a panel: MK_WIDTH consecutive columns, row after row, so that it
 * streams through L1. A is read one scalar at a time. Every element of C is one chain of fused
 * multiply-adds in the order of k, whatever the number of vectors, so cutting a tile differently
 * changes no bit.
 */
#ifndef QATTN_CPU_MICROKERNEL_H
#define QATTN_CPU_MICROKERNEL_H

#include "cpu/isa.h"

#if defined(QATTN_ISA_AVX512)
enum { MK_VECS = 4 };
#else
enum { MK_VECS = 2 };
#endif
enum { MK_ROWS = 6, MK_WIDTH = MK_VECS * VL };

/* A[i][k] is a[i * a_row + k * a_step]; row k of B is b + k * b_row. `vecs`, 1..MK_VECS, is a
 * constant after inlining: only the first vecs vectors of C and B are touched. */
ISA_INLINE void mk_multiply(vf c[MK_ROWS][MK_VECS], const float *a, int64_t a_row, int64_t a_step,
                            const float *b, int64_t b_row, int64_t k, const int vecs)
{
    for (; k > 0; k--, a += a_step, b += b_row) {
        vf x[MK_VECS];
        ISA_UNROLL
        for (int j = 0; j < vecs; j++)
            x[j] = vf_load(b + j * VL);
        ISA_UNROLL
        for (int i = 0; i < MK_ROWS; i++) {
            const vf y = vf_set1(a[i * a_row]);
            ISA_UNROLL
            for (int j = 0; j < vecs; j++)
                c[i][j] = vf_fmadd(y, x[j], c[i][j]);
        }
    }
}

ISA_INLINE void mk_clear(vf c[MK_ROWS][MK_VECS], const int vecs)
{
    ISA_UNROLL
    for (int i = 0; i < MK_ROWS; i++) {
        ISA_UNROLL
        for (int j = 0; j < vecs; j++)
            c[i][j] = vf_zero();
    }
}

/* Runs `call` with VECS bound to the constant 1..MK_VECS that equals `vecs`. */
#if defined(QATTN_ISA_AVX512)
#define MK_DISPATCH(vecs, call) \
    do { \
        switch (vecs) { \
        case 1: { enum { VECS = 1 }; call; break; } \
        case 2: { enum { VECS = 2 }; call; break; } \
        case 3: { enum { VECS = 3 }; call; break; } \
        default: { enum { VECS = 4 }; call; break; } \
        } \
    } while (0)
#else
#define MK_DISPATCH(vecs, call) \
    do { \
        if ((vecs) == 1) { enum { VECS = 1 }; call; } \
        else { enum { VECS = 2 }; call; } \
    } while (0)
#endif

#endif
