/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Rows of Q, K and V as f32, from any type, stride and page. A value is converted exactly, then
 * multiplied by its descale, so every layout gives the same bits. */
#ifndef QATTN_CPU_FLASH_PACK_H
#define QATTN_CPU_FLASH_PACK_H

#include "cpu/flash.h"

/* VL elements at p. dtype is a constant after inlining. */
ISA_INLINE vf load_vector(const char *p, const int32_t dtype)
{
    switch (dtype) {
    case QATTN_DTYPE_F16: return vf_load_f16(p);
    case QATTN_DTYPE_BF16: return vf_load_bf16(p);
    case QATTN_DTYPE_E4M3FN: return vf_load_e4m3(p);
    case QATTN_DTYPE_E5M2: return vf_load_e5m2(p);
    case QATTN_DTYPE_I8: return vf_load_i8(p);
    default: return vf_load((const float *)(const void *)p);
    }
}

/* Runs `call` with DTYPE and SIZE bound to the constants of `dtype`. */
#define DTYPE_CASE(name, bytes, call) \
    case QATTN_DTYPE_##name: { \
        enum { DTYPE = QATTN_DTYPE_##name, SIZE = bytes }; \
        call; \
        break; \
    }
#define DTYPE_DISPATCH(dtype, call) \
    do { \
        switch (dtype) { \
            DTYPE_CASE(F32, 4, call) \
            DTYPE_CASE(F16, 2, call) \
            DTYPE_CASE(BF16, 2, call) \
            DTYPE_CASE(E4M3FN, 1, call) \
            DTYPE_CASE(E5M2, 1, call) \
            DTYPE_CASE(I8, 1, call) \
        } \
    } while (0)

ISA_INLINE void convert_span(float *dst, const char *src, const int32_t dtype, const int64_t size,
                             int64_t n)
{
    for (int64_t x = 0; x + VL <= n; x += VL)
        vf_store(dst + x, load_vector(src + x * size, dtype));
    if (n % VL == 0)
        return;
    if (n > VL) /* the last vector overlaps the one before */
        vf_store(dst + n - VL, load_vector(src + (n - VL) * size, dtype));
    else
        for (int64_t x = 0; x < n; x++)
            dst[x] = qattn__load(src + x * size, dtype);
}

/* n elements of t's last axis from src on, times scale[x * scale_step] if scale is given. */
static inline void load_span(float *dst, const char *src, const struct view *t, int64_t n,
                             const float *scale, int64_t scale_step)
{
    const int64_t step = t->stride[3];
    if (n == 0)
        return;
    if (step == 1 || n == 1) {
        DTYPE_DISPATCH(t->dtype, convert_span(dst, src, DTYPE, SIZE, n));
    } else if (t->dtype == QATTN_DTYPE_F32) {
        for (int64_t x = 0; x < n; x++)
            memcpy(dst + x, src + x * step * 4, 4);
    } else {
        for (int64_t x = 0; x < n; x++)
            dst[x] = qattn__load(src + x * step * t->itemsize, t->dtype);
    }
    if (scale)
        for (int64_t x = 0; x < n; x++)
            dst[x] *= scale[x * scale_step];
}

/* VL rows by VL columns at a time, from a tensor whose rows are neighbours in memory. */
ISA_INLINE void transpose_columns(float *dst, int64_t dst_row, const char *src, int64_t step,
                                  int64_t rows, int64_t columns, const int32_t dtype,
                                  const int64_t size)
{
    for (int64_t x = 0; x < columns; x += VL)
        for (int64_t j = 0; j < rows; j += VL) {
            vf v[VL];
            ISA_UNROLL
            for (int i = 0; i < VL; i++)
                v[i] = load_vector(src + ((x + i) * step + j) * size, dtype);
            vf_transpose(v);
            ISA_UNROLL
            for (int i = 0; i < VL; i++)
                vf_store(dst + (j + i) * dst_row + x, v[i]);
        }
}

/*
 * n rows, columns first .. first+width-1, to dst[n][dst_row]. Rows that are neighbours in memory
 * (a transposed K) go through vector transposes as far as whole vectors go; everything else, row
 * by row.
 */
static inline void load_rows(float *dst, int64_t dst_row, const struct view *t,
                             const char *const *row, int64_t n, int64_t first, int64_t width,
                             const float *const *scale, int64_t scale_step)
{
    const int64_t step = t->stride[3], skip = first * step * t->itemsize;
    bool neighbours = t->stride[2] == 1 && step != 1 && !scale[0];
    for (int64_t j = 1; j < n && neighbours; j++) /* not across pages */
        neighbours = row[j] == row[0] + j * t->itemsize;
    const int64_t rows = neighbours ? n / VL * VL : 0, columns = neighbours ? width / VL * VL : 0;
    if (rows > 0 && columns > 0) {
        const char *const src = row[0] + skip;
        DTYPE_DISPATCH(t->dtype,
                       transpose_columns(dst, dst_row, src, step, rows, columns, DTYPE, SIZE));
    }
    for (int64_t j = 0; j < n; j++) {
        const int64_t done = j < rows ? columns : 0;
        load_span(dst + j * dst_row + done, row[j] + skip + done * step * t->itemsize, t,
                  width - done, scale[j] ? scale[j] + (first + done) * scale_step : NULL,
                  scale_step);
    }
}

/* Addresses of keys key .. key+n-1 of `head` in t (k or v), and of their descales (NULL if there
 * are none). */
static inline void locate_rows(const struct problem *p, const struct seq *s, const struct view *t,
                               const struct descale *ds, int64_t head, int64_t key, int64_t n,
                               const char **row, const float **scale)
{
    if (!p->page_table) {
        const char *first = view_at(t, s->k_batch, head, s->k_row + key, 0);
        for (int64_t x = 0; x < n; x++)
            row[x] = first + x * t->stride[2] * t->itemsize;
    } else {
        for (int64_t x = 0; x < n;) {
            int64_t page, slot;
            seq_page(p, s, key + x, &page, &slot);
            const char *first = view_at(t, page, head, slot, 0);
            for (int64_t y = 0; x < n && slot + y < p->page_size; x++, y++)
                row[x] = first + y * t->stride[2] * t->itemsize;
        }
    }
    for (int64_t x = 0; x < n; x++) {
        const struct view *const d = &ds->t;
        int64_t page, slot;
        const char *at = NULL;
        if (ds->kind == DESCALE_SEQUENCE) {
            at = view_at(d, s->n, head / ds->head_div, 0, 0);
        } else if (ds->kind == DESCALE_ROW) {
            at = view_at(d, s->k_batch, head / ds->head_div, s->k_row + key + x, 0);
        } else if (ds->kind == DESCALE_PAGE) {
            seq_page(p, s, key + x, &page, &slot);
            at = view_at(d, page, head, slot, 0);
        }
        scale[x] = (const float *)(const void *)at;
        if (!at && x == 0) {
            memset(scale, 0, (size_t)n * sizeof *scale);
            break;
        }
    }
}

/* Row i, query head h of q, as f32. */
static inline void load_query(const struct problem *p, const struct seq *s, int64_t h, int64_t i,
                              float *dst)
{
    const struct descale *const ds = &p->q_descale;
    const char *at = NULL;
    if (ds->kind == DESCALE_SEQUENCE)
        at = view_at(&ds->t, s->n, h / ds->head_div, 0, 0);
    else if (ds->kind != DESCALE_NONE)
        at = view_at(&ds->t, s->q_batch, h / ds->head_div, s->q_row + i, 0);
    load_span(dst, view_at(&p->q, s->q_batch, h, s->q_row + i, 0), &p->q, p->d,
              (const float *)(const void *)at, ds->t.stride[3]);
}

#endif
