/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The decode path: at most FLASH_DECODE_ROWS rows, so K and V are read once, from where they lie,
 * and nothing is packed. The cost is that of reading memory: all heads of a group share the pass.
 *
 *   per chunk of FLASH_DECODE_KEYS keys
 *     S[row][key]   dot products, four rows by VL / 4 keys at a time: VL accumulators, whose lanes
 *                   are summed together
 *     softmax step  row by row, as in the tile path
 *     O += P V      four rows by MK_VECS vectors of columns at a time
 *
 * Rows that are not contiguous, have a descale, or whose width is no multiple of VL are first
 * copied to f32 scratch, padded with zeros: the same arithmetic, so the same bits. A chunk with
 * hidden pairs is tested for non-finite V; if there is any, the product runs on a copy without
 * these values, which are then added to the rows that see them.
 */
#include "cpu/flash_softmax.h"

enum {
    ROWS = 4,
    ROW_KEYS = VL / ROWS,
    AHEAD = 16 /* rows of K and V are prefetched so many keys before their use */
};

/* ---------------------------------------------------------------- rows in scratch */

/* n rows as f32 in w->rows, padded with zeros to whole vectors; row[] then points there. */
static void stage_rows(const struct flash_scratch *w, const struct view *t, int64_t width,
                       int64_t n, const char **row, const float *const *scale, int64_t scale_step)
{
    const int64_t padded = round_up(width, VL), stride = padded + VL;
    for (int64_t j = 0; j < n; j++)
        vf_store(w->rows + j * stride + padded - VL, vf_zero());
    load_rows(w->rows, stride, t, row, n, 0, width, scale, scale_step);
    for (int64_t j = 0; j < n; j++)
        row[j] = (const char *)(w->rows + j * stride);
}

static bool is_direct(const struct view *t, int64_t width, const float *const *scale)
{
    return t->stride[3] == 1 && width % VL == 0 && !scale[0];
}

/* ---------------------------------------------------------------- the two products */

/* s[r][0 .. ROW_KEYS-1] = scale q[r] . row[0 .. ROW_KEYS-1], r < ROWS; d a multiple of VL. row[]
 * goes on for AHEAD keys, which are prefetched if `first`: the first to read these rows. */
ISA_INLINE void dot_rows(const float *q, int64_t q_row, const char *const *row, int64_t d,
                         float scale, float *s, const int32_t dtype, const int64_t size,
                         const bool first)
{
    vf c[VL];
    ISA_UNROLL
    for (int i = 0; i < VL; i++)
        c[i] = vf_zero();
    for (int64_t x = 0; x < d; x += VL) {
        vf k[ROW_KEYS];
        ISA_UNROLL
        for (int j = 0; j < ROW_KEYS; j++)
            k[j] = load_vector(row[j] + x * size, dtype);
        if (first && x * size % 64 == 0) {
            ISA_UNROLL
            for (int j = 0; j < ROW_KEYS; j++)
                __builtin_prefetch(row[AHEAD + j] + x * size);
        }
        ISA_UNROLL
        for (int r = 0; r < ROWS; r++) {
            const vf y = vf_load(q + r * q_row + x);
            ISA_UNROLL
            for (int j = 0; j < ROW_KEYS; j++)
                c[r * ROW_KEYS + j] = vf_fmadd(y, k[j], c[r * ROW_KEYS + j]);
        }
    }
    float lane[VL];
    vf_store(lane, vf_mul(vf_set1(scale), vf_hsum_each(c)));
    ISA_UNROLL
    for (int r = 0; r < ROWS; r++)
        memcpy(s + r * FLASH_KEYS, lane + r * ROW_KEYS, ROW_KEYS * sizeof *s);
}

ISA_INLINE void multiply_scores(const struct flash_scratch *w, int64_t q_row, int64_t rows,
                                int64_t d, float scale, int64_t n, const int32_t dtype,
                                const int64_t size)
{
    for (int64_t j = 0; j < n; j += ROW_KEYS) {
        dot_rows(w->q, q_row, w->k_row + j, d, scale, w->s + j, dtype, size, true);
        for (int64_t r = ROWS; r < rows; r += ROWS)
            dot_rows(w->q + r * q_row, q_row, w->k_row + j, d, scale, w->s + r * FLASH_KEYS + j,
                     dtype, size, false);
    }
}

/* c[r][] = sum over keys first .. last-1 of prob[r][j] V[j] from column byte `at` on, r < ROWS */
ISA_INLINE void sum_values(vf c[ROWS][MK_VECS], const float *prob, const char *const *row,
                           int64_t at, int64_t first, int64_t last, const int32_t dtype,
                           const int64_t size, const int vecs)
{
    ISA_UNROLL
    for (int r = 0; r < ROWS; r++) {
        ISA_UNROLL
        for (int i = 0; i < vecs; i++)
            c[r][i] = vf_zero();
    }
    for (int64_t j = first; j < last; j++) {
        const char *const src = row[j] + at, *const ahead = row[AHEAD + j] + at;
        vf v[MK_VECS];
        ISA_UNROLL
        for (int64_t b = 0; b < vecs * VL * size; b += 64)
            __builtin_prefetch(ahead + b);
        ISA_UNROLL
        for (int i = 0; i < vecs; i++)
            v[i] = load_vector(src + i * VL * size, dtype);
        ISA_UNROLL
        for (int r = 0; r < ROWS; r++) {
            const vf y = vf_set1(prob[r * FLASH_KEYS + j]);
            ISA_UNROLL
            for (int i = 0; i < vecs; i++)
                c[r][i] = vf_fmadd(y, v[i], c[r][i]);
        }
    }
}

/* o[r][0 .. vecs*VL-1] = alpha[r] o + sum over n keys, in chains of FLASH_CHAIN */
ISA_INLINE void add_values(const float *prob, const char *const *row, int64_t at, int64_t n,
                           const float *alpha, float *o, int64_t o_row,
                           const int32_t dtype, const int64_t size, const int vecs)
{
    for (int64_t j = 0; j < n; j += FLASH_CHAIN) {
        vf c[ROWS][MK_VECS];
        sum_values(c, prob, row, at, j, min64(n, j + FLASH_CHAIN), dtype, size, vecs);
        ISA_UNROLL
        for (int r = 0; r < ROWS; r++) {
            const vf a = vf_set1(j == 0 ? alpha[r] : 1.0f);
            ISA_UNROLL
            for (int i = 0; i < vecs; i++) {
                float *const at_o = o + r * o_row + i * VL;
                vf_store(at_o, vf_fmadd(a, vf_load(at_o), c[r][i]));
            }
        }
    }
}

ISA_INLINE void multiply_values(const struct flash_scratch *w, int64_t rows, int64_t n,
                                const int32_t dtype, const int64_t size)
{
    const int64_t o_row = w->state.o_row;
    for (int64_t x = 0; x < o_row; x += MK_WIDTH) {
        const int vecs = (int)(min64(o_row - x, MK_WIDTH) / VL);
        for (int64_t r = 0; r < rows; r += ROWS) {
            const float *const prob = w->s + r * FLASH_KEYS, *const alpha = w->alpha + r;
            float *const o = w->state.o + r * o_row + x;
            MK_DISPATCH(
                vecs, add_values(prob, w->v_row, x * size, n, alpha, o, o_row, dtype, size, VECS));
        }
    }
}

/* ---------------------------------------------------------------- one chunk */

/* Addresses of n keys from `key` on, and of enough keys after them for dot_rows: the last one
 * again where there are none. */
static void locate_chunk(const struct problem *p, const struct flash_unit *u, const struct view *t,
                         const struct descale *ds, int64_t key, int64_t n, int64_t end,
                         const char **row, const float **scale)
{
    const int64_t wanted = n + ROW_KEYS + AHEAD, have = min64(wanted, end - key);
    locate_rows(p, &u->s, t, ds, u->kv_head, key, have, row, scale);
    for (int64_t j = have; j < wanted; j++)
        row[j] = row[have - 1];
}

/* Scores of n keys from `key` on, raw; keys exist up to end-1. */
static void score_chunk(const struct problem *p, const struct flash_unit *u,
                        const struct flash_scratch *w, int64_t key, int64_t n, int64_t end,
                        int64_t rows)
{
    const int64_t q_row = round_up(p->d, VL);
    if (p->d == 0) {
        memset(w->s, 0, (size_t)(rows * FLASH_KEYS) * sizeof *w->s);
        return;
    }
    locate_chunk(p, u, &p->k, &p->k_descale, key, n, end, w->k_row, w->k_scale);
    const bool direct = is_direct(&p->k, p->d, w->k_scale);
    if (!direct)
        stage_rows(w, &p->k, p->d, n, w->k_row, w->k_scale, p->k_descale.t.stride[3]);
    for (int64_t j = n; !direct && j < round_up(n, ROW_KEYS); j++) /* scores nobody reads */
        w->k_row[j] = w->k_row[n - 1];
    DTYPE_DISPATCH(direct ? p->k.dtype : QATTN_DTYPE_F32,
                   multiply_scores(w, q_row, rows, q_row, p->scale, n, DTYPE, SIZE));
}

/* Softmax step of all rows. Returns whether some row does not see some of the n keys. */
static bool softmax_chunk(const struct problem *p, const struct flash_unit *u,
                          const struct flash_scratch *w, int64_t key, int64_t n)
{
    const bool adjusting = needs_adjusting(p);
    const int64_t to = round_up(n, 2 * VL);
    bool hidden = false;
    for (int64_t r = 0; r < u->rows; r++) {
        const int64_t lo = clamp64(w->see_begin[r] - key, 0, n),
                      hi = clamp64(w->see_end[r] - key, 0, n);
        float *const s = w->s + r * FLASH_KEYS;
        uint32_t *const visible = w->visible + r * (FLASH_KEYS / 32);
        if (adjusting)
            adjust_row(p, &u->s, unit_head(u, r), unit_position(u, r), key, s, 0, to, lo, hi);
        else
            hide_outside(s, 0, to, lo < hi ? lo : to, hi);
        note_visible(s, 0, to, visible);
        for (int64_t j = 0; j < n; j += 32) {
            const uint32_t all = n - j >= 32 ? UINT32_MAX : (UINT32_C(1) << (n - j)) - 1;
            hidden |= visible[j / 32] != all;
        }
        const float top = row_max(s, 0, to, w->state.m[r]), base = row_base(top);
        w->alpha[r] = isa_exp(w->state.m[r] - base);
        w->state.l[r] = w->state.l[r] * (double)w->alpha[r] +
                        (double)vf_hsum(row_exp(s, 0, to, base));
        w->state.m[r] = top;
    }
    return hidden;
}

/* Some of the first `width` elements of n rows, a multiple of VL, is NaN or infinite. */
ISA_INLINE bool find_nonfinite(const char *const *row, int64_t n, int64_t width,
                               const int32_t dtype, const int64_t size)
{
    vf test = vf_zero();
    for (int64_t j = 0; j < n; j++)
        for (int64_t x = 0; x < width; x += VL)
            test = vf_fmadd(load_vector(row[j] + x * size, dtype), vf_zero(), test);
    return vm_bits(vm_eq(test, test)) != vm_bits(vm_range(0, VL));
}

static bool has_nonfinite(const struct flash_scratch *w, int64_t n, int32_t dtype)
{
    bool found = false;
    DTYPE_DISPATCH(dtype, found = find_nonfinite(w->v_row, n, w->state.o_row, DTYPE, SIZE));
    return found;
}

/* The rows in scratch lose their non-finite values: 0 instead, their places in w->nonfinite[panel
 * of columns][j]. */
static void remove_nonfinite(const struct problem *p, const struct flash_scratch *w, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        float *const row = w->rows + j * (w->state.o_row + VL);
        for (int64_t x = 0; x < p->dv; x += MK_WIDTH) {
            uint64_t bits = 0;
            for (int64_t y = 0; y < min64(p->dv - x, MK_WIDTH); y++)
                if (!isfinite(row[x + y])) {
                    bits |= UINT64_C(1) << y;
                    row[x + y] = 0.0f;
                }
            w->nonfinite[x / MK_WIDTH * FLASH_KEYS + j] = bits;
        }
    }
}

/* What was taken out is not finite whatever the probability: rows that see it become NaN in that
 * column. */
static void spoil_columns(const struct problem *p, const struct flash_unit *u,
                          const struct flash_scratch *w, int64_t n)
{
    for (int64_t x = 0; x < p->dv; x++)
        for (int64_t j = 0; j < n; j++)
            if (w->nonfinite[x / MK_WIDTH * FLASH_KEYS + j] >> x % MK_WIDTH & 1)
                for (int64_t r = 0; r < u->rows; r++)
                    if (w->visible[r * (FLASH_KEYS / 32) + j / 32] >> j % 32 & 1)
                        w->state.o[r * w->state.o_row + x] = NAN;
}

static void value_chunk(const struct problem *p, const struct flash_unit *u,
                        const struct flash_scratch *w, int64_t key, int64_t n, int64_t end,
                        int64_t rows, bool hidden)
{
    if (p->dv == 0)
        return;
    locate_chunk(p, u, &p->v, &p->v_descale, key, n, end, w->v_row, w->v_scale);
    bool direct = is_direct(&p->v, p->dv, w->v_scale);
    if (!direct)
        stage_rows(w, &p->v, p->dv, n, w->v_row, w->v_scale, p->v_descale.t.stride[3]);
    const bool nonfinite = hidden && has_nonfinite(w, n, direct ? p->v.dtype : QATTN_DTYPE_F32);
    if (nonfinite) {
        if (direct)
            stage_rows(w, &p->v, p->dv, n, w->v_row, w->v_scale, 0);
        remove_nonfinite(p, w, n);
        direct = false;
    }
    DTYPE_DISPATCH(direct ? p->v.dtype : QATTN_DTYPE_F32, multiply_values(w, rows, n, DTYPE, SIZE));
    if (nonfinite)
        spoil_columns(p, u, w, n);
}

/* ---------------------------------------------------------------- a unit */

static void load_unit(const struct problem *p, const struct flash_unit *u,
                      const struct flash_scratch *w, int64_t rows)
{
    const int64_t q_row = round_up(p->d, VL);
    memset(w->q, 0, (size_t)(rows * q_row) * sizeof *w->q);
    for (int64_t r = 0; r < u->rows; r++) {
        seq_visible(p, &u->s, unit_position(u, r), &w->see_begin[r], &w->see_end[r]);
        if (p->d > 0)
            load_query(p, &u->s, unit_head(u, r), unit_position(u, r), w->q + r * q_row);
    }
    for (int64_t r = u->rows; r < rows; r++)
        w->alpha[r] = 1.0f;
}

void ISA_NAME(qattn__flash_decode_keys)(const struct flash_call *c, const struct flash_unit *u,
                                        int64_t begin, int64_t end, struct flash_scratch *w)
{
    const struct problem *const p = c->p;
    const int64_t rows = round_up(u->rows, ROWS);
    int64_t first = end, last = begin;
    ISA_NAME(qattn__flash_empty)(&w->state, rows);
    load_unit(p, u, w, rows);
    for (int64_t r = 0; r < u->rows; r++) {
        const int64_t b = max64(w->see_begin[r], begin), e = min64(w->see_end[r], end);
        if (b < e) {
            first = min64(first, b);
            last = max64(last, e);
        }
    }
    for (int64_t key = first; key < last; key += FLASH_DECODE_KEYS) {
        const int64_t n = min64(FLASH_DECODE_KEYS, last - key);
        score_chunk(p, u, w, key, n, end, rows);
        const bool hidden = softmax_chunk(p, u, w, key, n);
        value_chunk(p, u, w, key, n, end, rows, hidden);
    }
}
