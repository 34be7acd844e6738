/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Launcher of gemm_simt_kernels.cu: matmul and matmul_nt, and the products of gqa_forward. */
#include "cuda/simt/gemm_simt.h"

#include "cuda/launch.h"
#include "cuda/sizes.h"
#include "cuda/simt/simt.h"

static struct gemm_operand operand_of(const struct view *t, int row_axis)
{
    return (struct gemm_operand){ .data = t->data, .batch = t->stride[0], .head = t->stride[1],
                                  .row = t->stride[row_axis], .k = t->stride[5 - row_axis], .dtype = t->dtype };
}

/* Axis b_row_axis of b is that of C's columns; every head of C has one of b's. */
static struct gemm_args args_of(const struct view *a, const struct view *b, int b_row_axis, const struct view *c)
{
    return (struct gemm_args){
        .batch = c->shape[0], .heads = c->shape[1], .m = c->shape[2], .n = c->shape[3], .k = a->shape[3],
        .b_head_div = 1,
        .a = operand_of(a, 2), .b = operand_of(b, b_row_axis), .c = c->data,
        .c_batch = c->stride[0], .c_head = c->stride[1], .c_row = c->stride[2], .c_column = c->stride[3],
        .c_dtype = c->dtype, .c_itemsize = c->itemsize, .alpha = 1.0f, .range = RANGE_ALL,
    };
}

struct gemm_args qattn__matmul_args(const struct problem *p)
{
    struct gemm_args args = args_of(&p->a, &p->b, p->op == OP_MATMUL_NT ? 2 : 3, &p->c);
    args.b_head_div = p->b_head_div;
    args.alpha = p->alpha;
    args.beta = p->beta;
    return args;
}

struct gemm_args qattn__attention_args(const struct problem *p, const struct view *a, const struct view *b,
                                       int b_row_axis, const struct view *c, enum gemm_range range)
{
    struct gemm_args args = args_of(a, b, b_row_axis, c);
    args.m = p->cap_q;
    args.b_head_div = p->group;
    args.range = range;
    return args;
}

int32_t qattn__gemm_count(struct gemm_args *a, int64_t rows, int64_t columns)
{
    a->m_tiles = blocks_of(a->m, rows);
    a->n_tiles = blocks_of(a->n, columns);
    const bool fits = !__builtin_mul_overflow(a->batch, a->heads, &a->work) &&
                      !__builtin_mul_overflow(a->work, a->m_tiles, &a->work) &&
                      !__builtin_mul_overflow(a->work, a->n_tiles, &a->work);
    QATTN_REQUIRE(fits, QATTN_ERR_UNSUPPORTED_SHAPE, "the product of batches, heads and tiles is above 2^63");
    return QATTN_OK;
}

bool qattn__gemm_has_vectors(const struct gemm_operand *t, bool along_k, int64_t width)
{
    const int64_t along = along_k ? t->k : t->row, line = along_k ? t->row : t->k;
    const int64_t piece = t->dtype == QATTN_DTYPE_F32 ? 4 : 8;
    return (along == 1 || width == 1) && t->batch % piece == 0 && t->head % piece == 0 && line % piece == 0 &&
           (uintptr_t)t->data % 16 == 0;
}

static bool lies_along_k(const struct gemm_operand *t) { return magnitude(t->k) <= magnitude(t->row) || t->row == 0; }

bool qattn__gemm_runs_along_k(const struct gemm_operand *b, int64_t n, int64_t k)
{
    return qattn__gemm_has_vectors(b, true, k) || (!qattn__gemm_has_vectors(b, false, n) && lies_along_k(b));
}

bool qattn__gemm_hides(const struct problem *p) { return p->causal || p->window || p->seqused_q || p->seqused_k; }

/* How operands are read and C is written. */
static void set_vectors(struct gemm_args *a)
{
    a->a.along_k = lies_along_k(&a->a);
    a->b.along_k = lies_along_k(&a->b);
    a->a.vectors = qattn__gemm_has_vectors(&a->a, true, a->k);
    a->b.vectors = a->b.along_k ? a->b.k == 1 || a->k == 1 : qattn__gemm_has_vectors(&a->b, false, a->n);
    a->c_vectors = a->c_dtype == QATTN_DTYPE_F32 && a->c_column == 1 && a->beta == 0.0f && a->c_row % 4 == 0 &&
                   a->c_head % 4 == 0 && a->c_batch % 4 == 0 && (uintptr_t)a->c % 16 == 0;
}

int32_t qattn__simt_gemm(struct gemm_args *a, const struct problem *p, qattn_stream stream)
{
    const bool few = a->m <= 2 * GEMM_FEW_ROWS, hiding = a->range == RANGE_VALUES;
    /* gemm_simt_kernels.cu: sums over many keys, and sums that few rows and many must agree on */
    const bool chains = hiding && (a->k > GEMM_CHAIN_KEYS || (p->flags & QATTN_FLAG_BATCH_INVARIANT));
    const bool f32 = !few && !chains && a->a.dtype == QATTN_DTYPE_F32 && a->b.dtype == QATTN_DTYPE_F32;
    const void *const kernel = f32 ? qattn__gemm_f32_simt(hiding)
                                   : qattn__gemm_simt(a->a.dtype, a->b.dtype, few, hiding);
    QATTN_REQUIRE(kernel, QATTN_ERR_INTERNAL, "no kernel for a, b of %s, %s", qattn__dtype_name(a->a.dtype),
                  qattn__dtype_name(a->b.dtype));
    QATTN_TRY(qattn__gemm_count(a, few ? GEMM_FEW_ROWS : GEMM_ROWS, GEMM_COLUMNS));
    set_vectors(a);
    a->cut = a->range != RANGE_ALL && qattn__gemm_hides(p);
    /* gemm_f32_simt.cu walks best where all items cost the same; else the device deals them out */
    int64_t blocks = a->work;
    if (f32 && !a->cut) {
        int multiprocessors = 0;
        QATTN_TRY(qattn__cuda_multiprocessors(&multiprocessors, p->device_id));
        blocks = blocks < 2 * multiprocessors ? blocks : 2 * multiprocessors;
    }
    void *params[] = { a, problem_as_param(p) };
    return qattn__cuda_launch(kernel, blocks, f32 ? GEMM_F32_THREADS : GEMM_THREADS, f32 ? GEMM_F32_SHARED : 0, params,
                              stream, "gemm_simt_kernel");
}

int32_t qattn__simt_matmul(const struct problem *p, qattn_stream stream)
{
    struct gemm_args args = qattn__matmul_args(p);
    return qattn__simt_gemm(&args, p, stream);
}
