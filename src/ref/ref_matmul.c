/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 *     matmul      C = alpha A B   + beta C        c_mn = alpha sum_k a_mk b_kn + beta c_mn
 *     matmul_nt   C = alpha A B^T + beta C        c_mn = alpha sum_k a_mk b_nk + beta c_mn
 *
 * The two differ in which axis of B walks with k: a transposed view costs nothing where strides are free. Query
 * times key is the second kind, probability times value the first.
 */
#include "ref/ref.h"

#include <math.h>

#include "core/convert.h"

double qattn__ref_matmul_element(const struct problem *p, int64_t b, int64_t h, int64_t m, int64_t n, double *abs_sum)
{
    const int64_t num_k = p->a.shape[3], hb = h / p->b_head_div;    /* several heads of A may share one of B */
    const bool nt = p->op == OP_MATMUL_NT;
    double sum = 0.0, sum_abs = 0.0;
    if (num_k > 0) {
        const char *const a_row = view_at(&p->a, b, h, m, 0);
        const char *const b_row = nt ? view_at(&p->b, b, hb, n, 0) : view_at(&p->b, b, hb, 0, n);
        const int64_t a_step = p->a.stride[3] * p->a.itemsize, b_step = p->b.stride[nt ? 3 : 2] * p->b.itemsize;
        for (int64_t k = 0; k < num_k; k++) {
            const double a_mk = (double)qattn__load(a_row + k * a_step, p->a.dtype);
            const double b_kn = (double)qattn__load(b_row + k * b_step, p->b.dtype);
            sum += a_mk * b_kn;
            sum_abs += fabs(a_mk * b_kn);
        }
    }
    if (abs_sum)
        *abs_sum = sum_abs;
    return sum;
}

/* beta 0: what C holds, NaN included, is not read. */
static void write_element(const struct problem *p, int64_t b, int64_t h, int64_t m, int64_t n)
{
    char *const c = view_at(&p->c, b, h, m, n);
    double value = (double)p->alpha * qattn__ref_matmul_element(p, b, h, m, n, NULL);
    if (p->beta != 0.0f)
        value += (double)p->beta * (double)qattn__load(c, p->c.dtype);
    qattn__store_f64(c, p->c.dtype, value);
}

void qattn__ref_matmul(const struct problem *p)
{
    for (int64_t b = 0; b < p->c.shape[0]; b++)
        for (int64_t h = 0; h < p->c.shape[1]; h++)
            for (int64_t m = 0; m < p->c.shape[2]; m++)
                for (int64_t n = 0; n < p->c.shape[3]; n++)
                    write_element(p, b, h, m, n);
}
