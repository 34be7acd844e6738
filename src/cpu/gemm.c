/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * C = alpha A B + beta C and C = alpha A B^T + beta C, for any strides: B^T is B with its strides exchanged.
 *
 *     for each block of BLOCK_M rows and block_n columns of C        a task of one thread
 *         for each BLOCK_K of k
 *             A's block -> f32 [BLOCK_M][BLOCK_K]                    L2; one row is read along k
 *             for each MK_WIDTH columns
 *                 B's panel -> f32 [BLOCK_K][MK_WIDTH]               32 KiB (AVX-512) or less: L1
 *                 for each MK_ROWS rows: multiply in registers, add to C's f32 block
 *         C's block -> alpha, beta, one rounding
 *
 * Packing converts 16-bit elements, so the inner loop is f32 throughout. The partial sum of every BLOCK_K steps of k
 * starts from 0 and is then added, at fixed places of k: the order of an element's sum depends on nothing but K, and
 * the error grows with BLOCK_K + K / BLOCK_K instead of K. A careful product keeps a second f32 block: what rounding
 * took from the sums of blocks.
 *
 * Measured on one shared core, from 512 x 512 x 128 on: 0.73 (f32) to 0.83 (bf16) of the register FMA rate with
 * AVX-512, 0.72 to 0.90 with AVX2; 0.55 where C is far larger than the caches.
 */
#include "cpu/gemm.h"

#include "core/status.h"
#include "cpu/cpu.h"
#include "cpu/microkernel.h"
#include "cpu/pool.h"
#include "cpu/rows.h"

enum { BLOCK_K = GEMM_BLOCK_K, CHAIN = GEMM_CHAIN, BLOCK_M = 32 * MK_ROWS, BLOCK_N = 512, FEW_ROWS = 2 };

static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }
static inline int64_t blocks_of(int64_t x, int64_t block) { return (x + block - 1) / block; }

static inline char *matrix_at(const struct matrix *t, int64_t i, int64_t j)
{
    return t->data + (i * t->row + j * t->col) * t->itemsize;
}

/* Scratch of one thread, cut into its parts. lost: what rounding took from c, of careful products only. */
struct parts { float *a, *b, *c, *lost; };

static int64_t c_width(int64_t n) { return round_up(min64(n, BLOCK_N), MK_WIDTH); }
static int64_t c_height(int64_t m) { return round_up(min64(m, BLOCK_M), MK_ROWS); }

size_t ISA_NAME(qattn__gemm_scratch)(int64_t m, int64_t n, bool careful)
{
    const int64_t c = c_height(m) * c_width(n);
    return (size_t)(c_height(m) * BLOCK_K + BLOCK_K * MK_WIDTH + (careful ? 2 * c : c));
}

static struct parts cut_scratch(float *scratch, int64_t m, int64_t n)
{
    struct parts parts = { .b = scratch };
    parts.a = parts.b + BLOCK_K * MK_WIDTH;
    parts.c = parts.a + c_height(m) * BLOCK_K;
    parts.lost = parts.c + c_height(m) * c_width(n);
    return parts;
}

/* ---------------------------------------------------------------- packing */

/*
 * VL rows of `from` (fewer: `rows`), `count` <= VL elements along its contiguous axis, come out as columns:
 * dst[j * ld + i] = from[i][j]. Missing rows read as 0.
 */
ISA_INLINE void transpose_square(const char *from, int64_t pitch, int64_t rows, int64_t count, float *dst, int64_t ld,
                                 const int32_t dtype, const int size)
{
    vf v[VL];
    if (rows == VL && count == VL) {
        ISA_UNROLL
        for (int i = 0; i < VL; i++)
            v[i] = load_vector(from + i * pitch, dtype);
        vf_transpose(v);
        ISA_UNROLL
        for (int i = 0; i < VL; i++)
            vf_store(dst + i * ld, v[i]);
        return;
    }
    for (int i = 0; i < VL; i++)
        v[i] = i < rows ? gather_vector(from + i * pitch, size, count, dtype, size) : vf_zero();
    vf_transpose(v);
    for (int64_t i = 0; i < count; i++)
        vf_store(dst + i * ld, v[i]);
}

/* dst[j * ld + i] = t[i][j], 0 <= i < rows, 0 <= j < cols, where t is contiguous along j; whole vectors in i. */
ISA_INLINE void pack_transposed_of(const char *src, int64_t pitch, int64_t rows, int64_t cols, float *dst, int64_t ld,
                                   const int32_t dtype, const int size)
{
    for (int64_t i = 0; i < rows; i += VL)
        for (int64_t j = 0; j < cols; j += VL)
            transpose_square(src + i * pitch + j * size, pitch, min64(rows - i, VL), min64(cols - j, VL),
                             dst + j * ld + i, ld, dtype, size);
}

static void pack_transposed(const char *src, int64_t row, int32_t dtype, int64_t rows, int64_t cols, float *dst,
                            int64_t ld)
{
    switch (dtype) {
    case QATTN_DTYPE_F16:  pack_transposed_of(src, row * 2, rows, cols, dst, ld, QATTN_DTYPE_F16, 2); break;
    case QATTN_DTYPE_BF16: pack_transposed_of(src, row * 2, rows, cols, dst, ld, QATTN_DTYPE_BF16, 2); break;
    default:               pack_transposed_of(src, row * 4, rows, cols, dst, ld, QATTN_DTYPE_F32, 4); break;
    }
}

/* dst[i * ld + j] = t[i][j], whole vectors in j: what lies behind `cols` is 0. */
static void pack_rows(const struct matrix *t, int64_t i0, int64_t j0, int64_t rows, int64_t cols, float *dst,
                      int64_t ld)
{
    if (t->col != 1 && t->row == 1) {
        pack_transposed(matrix_at(t, i0, j0), t->col, t->dtype, cols, rows, dst, ld);
        return;
    }
    for (int64_t i = 0; i < rows; i++)
        load_row(matrix_at(t, i0 + i, j0), t->col, t->dtype, cols, dst + i * ld);
}

static void zero_nonfinite(float *panel, int64_t k, int vecs)
{
    for (int64_t i = 0; i < k; i++) {
        for (int j = 0; j < vecs; j++) {
            float *const at = panel + i * MK_WIDTH + j * VL;
            const vf v = vf_load(at);
            vf_store(at, vf_select(vm_nonfinite(v), vf_zero(), v));
        }
    }
}

/* ---------------------------------------------------------------- multiplying */

/* c[MK_ROWS][MK_WIDTH] = or += a[MK_ROWS][BLOCK_K] b[k][MK_WIDTH] */
ISA_INLINE void multiply_tile(const float *a, const float *b, int64_t k, float *c, bool add, const int vecs)
{
    vf acc[MK_ROWS][MK_VECS];
    mk_clear(acc, vecs);
    mk_multiply(acc, a, BLOCK_K, 1, b, MK_WIDTH, k, vecs);
    ISA_UNROLL
    for (int i = 0; i < MK_ROWS; i++) {
        ISA_UNROLL
        for (int j = 0; j < vecs; j++) {
            float *const at = c + i * MK_WIDTH + j * VL;
            vf_store(at, add ? vf_add(vf_load(at), acc[i][j]) : acc[i][j]);
        }
    }
}

/* *sum + *lost += x; what the addition rounds off is exact (two-sum). Adding 0 changes no bit. */
ISA_INLINE void add_careful(float *sum, float *lost, vf x)
{
    const vf a = vf_load(sum), s = vf_add(a, x), b = vf_sub(s, a);
    const vf error = vf_add(vf_sub(a, vf_sub(s, b)), vf_sub(x, b));
    vf_store(sum, s);
    vf_store(lost, vf_add(vf_load(lost), error));
}

/* The first block's sum, or one more. */
ISA_INLINE void put_careful(float *sum, float *lost, vf x, bool add)
{
    if (add) {
        add_careful(sum, lost, x);
    } else {
        vf_store(sum, x);
        vf_store(lost, vf_zero());
    }
}

/* sum[n] += lost[n]. A sum that overflowed has lost no number. */
static void settle(float *sum, const float *lost, int64_t n)
{
    for (int64_t j = 0; j < n; j += VL) {
        const vf s = vf_load(sum + j), l = vf_load(lost + j);
        vf_store(sum + j, vf_select(vm_nonfinite(l), s, vf_add(s, l)));
    }
}

/* multiply_tile in chains of CHAIN steps. */
ISA_INLINE void multiply_tile_careful(const float *a, const float *b, int64_t k, float *c, float *lost, bool add,
                                      const int vecs)
{
    vf acc[MK_ROWS][MK_VECS];
    float block[MK_ROWS * MK_WIDTH];            /* the chains before, added up */
    for (int64_t k0 = 0; k0 < k; k0 += CHAIN) {
        mk_clear(acc, vecs);
        mk_multiply(acc, a + k0, BLOCK_K, 1, b + k0 * MK_WIDTH, MK_WIDTH, min64(k - k0, CHAIN), vecs);
        const bool last = k - k0 <= CHAIN;
        ISA_UNROLL
        for (int i = 0; i < MK_ROWS; i++) {
            ISA_UNROLL
            for (int j = 0; j < vecs; j++) {
                const int at = i * MK_WIDTH + j * VL;
                const vf sum = k0 ? vf_add(vf_load(block + at), acc[i][j]) : acc[i][j];
                if (last)
                    put_careful(c + at, lost + at, sum, add);
                else
                    vf_store(block + at, sum);
            }
        }
    }
}

/* One row, [vecs] vectors: the rows that are left over cost what they need. The same sums in the same order. */
ISA_INLINE void multiply_row(const float *a, const float *b, int64_t k, float *c, bool add, const int vecs)
{
    vf acc[MK_VECS];
    ISA_UNROLL
    for (int j = 0; j < vecs; j++)
        acc[j] = vf_zero();
    for (; k > 0; k--, a++, b += MK_WIDTH) {
        const vf x = vf_set1(*a);
        ISA_UNROLL
        for (int j = 0; j < vecs; j++)
            acc[j] = vf_fmadd(x, vf_load(b + j * VL), acc[j]);
    }
    ISA_UNROLL
    for (int j = 0; j < vecs; j++)
        vf_store(c + j * VL, add ? vf_add(vf_load(c + j * VL), acc[j]) : acc[j]);
}

ISA_INLINE void multiply_row_careful(const float *a, const float *b, int64_t k, float *c, float *lost, bool add,
                                     const int vecs)
{
    float block[MK_WIDTH];
    for (int64_t k0 = 0; k0 < k; k0 += CHAIN)
        multiply_row(a + k0, b + k0 * MK_WIDTH, min64(k - k0, CHAIN), block, k0 > 0, vecs);
    for (int j = 0; j < vecs; j++)
        put_careful(c + j * VL, lost + j * VL, vf_load(block + j * VL), add);
}

static void multiply_rows_careful(const float *a, const float *b, int64_t m, int64_t k, float *c, float *lost,
                                  bool add, int vecs)
{
    if (m > 2) {
        MK_DISPATCH(vecs, multiply_tile_careful(a, b, k, c, lost, add, VECS));
        return;
    }
    for (int64_t i = 0; i < m; i++)
        MK_DISPATCH(vecs, multiply_row_careful(a + i * BLOCK_K, b, k, c + i * MK_WIDTH, lost + i * MK_WIDTH, add,
                                               VECS));
}

/* c[m][MK_WIDTH] = or += a[m][BLOCK_K] b[k][MK_WIDTH], m <= MK_ROWS */
static void multiply_rows(const float *a, const float *b, int64_t m, int64_t k, float *c, bool add, int vecs)
{
    if (m > 2) {
        MK_DISPATCH(vecs, multiply_tile(a, b, k, c, add, VECS));
        return;
    }
    for (int64_t i = 0; i < m; i++)
        MK_DISPATCH(vecs, multiply_row(a + i * BLOCK_K, b, k, c + i * MK_WIDTH, add, VECS));
}

/* ---------------------------------------------------------------- few rows of C */

/* Row i of C, n columns from j on: alpha sum + beta C. sum has whole vectors. */
static void finish_row(const struct gemm *g, int64_t i, int64_t j, int64_t n, float *sum)
{
    char *const c = matrix_at(&g->c, i, j);
    float old[MK_WIDTH];
    if (g->beta != 0.0f)
        load_row(c, g->c.col, g->c.dtype, n, old);
    for (int64_t at = 0; at < n; at += VL) {
        const vf scaled = vf_mul(vf_set1(g->alpha), vf_load(sum + at));
        vf_store(sum + at, g->beta == 0.0f ? scaled : vf_fmadd(vf_set1(g->beta), vf_load(old + at), scaled));
    }
    store_row(sum, n, c, g->c.col, g->c.dtype);
}

/*
 * sum[width] += x[k] rows of B, read where they are: with a row or two of A, packing B would cost more than
 * multiplying. The same fused sums in the same order as a tile's.
 */
ISA_INLINE void add_b_rows(const float *x, const char *b, int64_t pitch, int64_t width, float *sum, const int k,
                           const int32_t dtype, const int size)
{
    for (int64_t j = 0; j < width; j += VL) {
        vf acc = vf_load(sum + j);
        ISA_UNROLL
        for (int l = 0; l < k; l++) {
            const char *const at = b + l * pitch + j * size;
            const vf v = width - j >= VL ? load_vector(at, dtype) : gather_vector(at, size, width - j, dtype, size);
            acc = vf_fmadd(vf_set1(x[l]), v, acc);
        }
        vf_store(sum + j, acc);
    }
}

/* sum[width] = x[k] B[k][width], B's rows contiguous. */
ISA_INLINE void multiply_stripe_of(const float *x, const char *b, int64_t pitch, int64_t k, int64_t width, float *sum,
                                   const int32_t dtype, const int size)
{
    memset(sum, 0, (size_t)round_up(width, VL) * sizeof *sum);
    for (; k >= 4; k -= 4, x += 4, b += 4 * pitch)
        add_b_rows(x, b, pitch, width, sum, 4, dtype, size);
    for (; k > 0; k--, x++, b += pitch)
        add_b_rows(x, b, pitch, width, sum, 1, dtype, size);
}

static void multiply_stripe(const struct matrix *t, const float *x, const char *b, int64_t k, int64_t width, float *sum)
{
    switch (t->dtype) {
    case QATTN_DTYPE_F16:  multiply_stripe_of(x, b, t->row * 2, k, width, sum, QATTN_DTYPE_F16, 2); break;
    case QATTN_DTYPE_BF16: multiply_stripe_of(x, b, t->row * 2, k, width, sum, QATTN_DTYPE_BF16, 2); break;
    default:               multiply_stripe_of(x, b, t->row * 4, k, width, sum, QATTN_DTYPE_F32, 4); break;
    }
}

/* s->c[n] and s->lost[n] = or += s->a[k] B[k0 ..][j ..], n <= BLOCK_N: the sums multiply_tile_careful makes. */
static void multiply_stripe_careful(const struct gemm *g, const struct parts *s, int64_t k0, int64_t j, int64_t k,
                                    int64_t n)
{
    float *const block = s->b, *const part = s->b + BLOCK_N;
    for (int64_t k1 = 0; k1 < k; k1 += CHAIN) {
        multiply_stripe(&g->b, s->a + k1, matrix_at(&g->b, k0 + k1, j), min64(k - k1, CHAIN), n, k1 ? part : block);
        for (int64_t at = 0; at < n && k1; at += VL)
            vf_store(block + at, vf_add(vf_load(block + at), vf_load(part + at)));
    }
    for (int64_t at = 0; at < n; at += VL)
        put_careful(s->c + at, s->lost + at, vf_load(block + at), k0 > 0);
}

/* Row i of C, n <= BLOCK_N columns from j on; B's rows are contiguous. s->a holds A's row, s->c the sums. */
static void multiply_one_row(const struct gemm *g, const struct parts *s, int64_t i, int64_t j, int64_t n)
{
    float *const total = s->c, *const part = s->b;
    for (int64_t k0 = 0; k0 < g->k; k0 += BLOCK_K) {
        const int64_t k = min64(g->k - k0, BLOCK_K);
        load_row(matrix_at(&g->a, i, k0), g->a.col, g->a.dtype, k, s->a);
        if (g->careful) {
            multiply_stripe_careful(g, s, k0, j, k, n);
            continue;
        }
        multiply_stripe(&g->b, s->a, matrix_at(&g->b, k0, j), k, n, k0 ? part : total);
        for (int64_t at = 0; at < n && k0; at += VL)
            vf_store(total + at, vf_add(vf_load(total + at), vf_load(part + at)));
    }
    if (g->careful)
        settle(total, s->lost, n);
    for (int64_t at = 0; at < n; at += MK_WIDTH)
        finish_row(g, i, j + at, min64(n - at, MK_WIDTH), total + at);
}

/* ---------------------------------------------------------------- one block of C */

/* MK_WIDTH columns of the block, c[m][MK_WIDTH]: B's panel against every row of A's block. */
static void multiply_panel(const struct gemm *g, const struct parts *s, int64_t m0, int64_t n0, int64_t k0,
                           int64_t m, int64_t k, float *c, float *lost)
{
    const int64_t n = min64(g->n - n0, MK_WIDTH);
    const int vecs = (int)blocks_of(n, VL);
    pack_rows(&g->b, k0, n0, k, n, s->b, MK_WIDTH);
    if (g->finite_b)
        zero_nonfinite(s->b, k, vecs);
    for (int64_t i = 0; i < m; i += MK_ROWS) {
        const int64_t rows = min64(m - i, MK_ROWS);
        if (g->careful)
            multiply_rows_careful(s->a + i * BLOCK_K, s->b, rows, k, c + i * MK_WIDTH, lost + i * MK_WIDTH, k0 > 0,
                                  vecs);
        else
            multiply_rows(s->a + i * BLOCK_K, s->b, rows, k, c + i * MK_WIDTH, k0 > 0, vecs);
        if (g->careful && k0 + k == g->k)
            for (int64_t row = 0; row < rows; row++)
                settle(c + (i + row) * MK_WIDTH, lost + (i + row) * MK_WIDTH, n);
        if (k0 + k == g->k)
            for (int64_t row = 0; row < rows; row++)
                finish_row(g, m0 + i + row, n0, n, c + (i + row) * MK_WIDTH);
    }
}

/* Rows m0 .. m0+m-1 and columns n0 .. n0+n-1 of C; m <= BLOCK_M, n <= BLOCK_N. */
static void multiply_block(const struct gemm *g, const struct parts *s, int64_t m0, int64_t n0, int64_t m, int64_t n)
{
    const int64_t height = round_up(m, MK_ROWS);
    for (int64_t k0 = 0; k0 < g->k; k0 += BLOCK_K) {
        const int64_t k = min64(g->k - k0, BLOCK_K);
        pack_rows(&g->a, m0, k0, m, k, s->a, BLOCK_K);
        memset(s->a + m * BLOCK_K, 0, (size_t)((height - m) * BLOCK_K) * sizeof *s->a);
        for (int64_t j = 0; j < n; j += MK_WIDTH)
            multiply_panel(g, s, m0, n0 + j, k0, m, k, s->c + j * height, s->lost + j * height);
    }
}

/* K = 0: C = beta C. */
static void scale_c(const struct gemm *g)
{
    float zeros[MK_WIDTH];
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j += MK_WIDTH) {
            memset(zeros, 0, sizeof zeros);
            finish_row(g, i, j, min64(g->n - j, MK_WIDTH), zeros);
        }
    }
}

void ISA_NAME(qattn__gemm)(const struct gemm *g, float *scratch)
{
    const struct parts parts = cut_scratch(scratch, g->m, g->n);
    if (g->k == 0)
        scale_c(g);
    if (g->m <= FEW_ROWS && g->b.col == 1 && !g->finite_b) {
        for (int64_t i = 0; i < g->m && g->k > 0; i++)
            for (int64_t n0 = 0; n0 < g->n; n0 += BLOCK_N)
                multiply_one_row(g, &parts, i, n0, min64(g->n - n0, BLOCK_N));
        return;
    }
    for (int64_t m0 = 0; m0 < g->m && g->k > 0; m0 += BLOCK_M)
        for (int64_t n0 = 0; n0 < g->n; n0 += BLOCK_N)
            multiply_block(g, &parts, m0, n0, min64(g->m - m0, BLOCK_M), min64(g->n - n0, BLOCK_N));
}

/* ---------------------------------------------------------------- the operation */

/* Tasks: blocks of C of every [b,h], small enough that each thread gets several. */
struct blocking { int64_t m, n, blocks_m, blocks_n, tasks; };

static struct blocking choose_blocks(const struct problem *p)
{
    const int64_t m = p->c.shape[2], n = p->c.shape[3], products = p->c.shape[0] * p->c.shape[1];
    struct blocking t = { .m = c_height(m), .n = c_width(n) };
    for (;;) {
        t.blocks_m = t.m ? blocks_of(m, t.m) : 0;
        t.blocks_n = t.n ? blocks_of(n, t.n) : 0;
        t.tasks = products * t.blocks_m * t.blocks_n;
        if (p->num_threads == 1 || t.tasks >= 4 * (int64_t)p->num_threads)
            return t;
        if (t.m > 8 * MK_ROWS)
            t.m = round_up(t.m / 2, MK_ROWS);
        else if (t.n > MK_WIDTH)
            t.n = round_up(t.n / 2, MK_WIDTH);
        else
            return t;
    }
}

struct matmul_call { const struct problem *p; struct blocking t; size_t scratch; };

static struct matrix matrix_of(const struct view *t, int64_t b, int64_t h, bool transposed)
{
    return (struct matrix){ .data = t->data ? view_at(t, b, h, 0, 0) : NULL, .row = t->stride[transposed ? 3 : 2],
                            .col = t->stride[transposed ? 2 : 3], .dtype = t->dtype, .itemsize = t->itemsize };
}

static void run_block(void *arg, int64_t index, int worker)
{
    const struct matmul_call *const call = arg;
    const struct problem *const p = call->p;
    const struct blocking *const t = &call->t;
    const int64_t n0 = index % t->blocks_n * t->n, m0 = index / t->blocks_n % t->blocks_m * t->m;
    const int64_t product = index / t->blocks_n / t->blocks_m;
    const int64_t b = product / p->c.shape[1], h = product % p->c.shape[1];

    struct gemm g = { .a = matrix_of(&p->a, b, h, false), .c = matrix_of(&p->c, b, h, false),
                      .b = matrix_of(&p->b, b, h / p->b_head_div, p->op == OP_MATMUL_NT),
                      .m = min64(p->c.shape[2] - m0, t->m), .n = min64(p->c.shape[3] - n0, t->n), .k = p->a.shape[3],
                      .alpha = p->alpha, .beta = p->beta };
    if (g.k > 0) {
        g.a.data = matrix_at(&g.a, m0, 0);
        g.b.data = matrix_at(&g.b, 0, n0);
    }
    g.c.data = matrix_at(&g.c, m0, n0);
    ISA_NAME(qattn__gemm)(&g, (float *)(void *)p->workspace + (size_t)worker * call->scratch);
}

/* Floats of one thread, a multiple of 64 so that no two threads share a cache line. */
static size_t thread_scratch(const struct problem *p)
{
    const struct blocking t = choose_blocks(p);
    return (ISA_NAME(qattn__gemm_scratch)(t.m, t.n, false) + 63) & ~(size_t)63;
}

size_t ISA_NAME(qattn__cpu_matmul_workspace)(const struct problem *p)
{
    const int threads = qattn__pool_threads(p->num_threads, choose_blocks(p).tasks);
    return thread_scratch(p) * sizeof(float) * (size_t)threads;
}

int32_t ISA_NAME(qattn__cpu_matmul)(const struct problem *p)
{
    struct matmul_call call = { .p = p, .t = choose_blocks(p), .scratch = thread_scratch(p) };
    qattn__pool_run(p->num_threads, call.t.tasks, run_block, &call);
    return QATTN_OK;
}
