/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The tile path: up to FLASH_TILE_ROWS rows against blocks of FLASH_KEYS keys.
 *
 *   per block   pack K into panels of MK_WIDTH keys, transposed, and V into panels of MK_WIDTH
 *               columns, both f32
 *               S = scale Q K^T         panel by panel, six rows at a time: the panel stays in L1
 *               softmax step            row by row
 *               O = alpha O + P V       panel by panel, six rows at a time, in chains of
 *                                       FLASH_CHAIN keys
 *
 * Blocks no row sees are skipped; of the others each six rows use only the keys one of them sees.
 * Q, O, S and the packed block fit L2 (flash.c chooses the rows so). A non-finite value of V could
 * reach rows it is hidden from as 0 * NaN: packing tests for it, and a block that has any is
 * multiplied without these values, which are then added to the rows that see them.
 */
#include "cpu/flash_softmax.h"

/* ---------------------------------------------------------------- packing */

/* VL keys, rows[] as f32, become columns of the panel: panel[x][0 .. VL-1]. */
ISA_INLINE void transpose_keys(float *panel, const char *const *rows, int64_t d,
                               const int32_t dtype, const int64_t size)
{
    int64_t x = 0;
    for (; x + VL <= d; x += VL) {
        vf v[VL];
        ISA_UNROLL
        for (int j = 0; j < VL; j++)
            v[j] = load_vector(rows[j] + x * size, dtype);
        vf_transpose(v);
        ISA_UNROLL
        for (int j = 0; j < VL; j++)
            vf_store(panel + (x + j) * MK_WIDTH, v[j]);
    }
    for (; x < d; x++)
        for (int j = 0; j < VL; j++)
            panel[x * MK_WIDTH + j] = qattn__load(rows[j] + x * size, dtype);
}

/* n keys of the block, 1 <= n <= FLASH_KEYS; the last panel is filled up to whole vectors with
 * copies of the last key, whose scores nobody reads. */
static void pack_keys(const struct problem *p, const struct flash_scratch *w, int64_t n)
{
    const bool direct = p->k.stride[3] == 1 && !w->k_scale[0];
    const int64_t stage_row = p->d + VL;
    for (int64_t x = 0; x < n; x += VL) {
        float *const panel = w->k + x / MK_WIDTH * MK_WIDTH * p->d + x % MK_WIDTH;
        const char *rows[VL];
        const float *scales[VL];
        for (int j = 0; j < VL; j++) {
            rows[j] = w->k_row[min64(x + j, n - 1)];
            scales[j] = w->k_scale[min64(x + j, n - 1)];
        }
        if (!direct) {
            load_rows(w->rows, stage_row, &p->k, rows, VL, 0, p->d, scales,
                      p->k_descale.t.stride[3]);
            for (int j = 0; j < VL; j++)
                rows[j] = (const char *)(w->rows + j * stage_row);
        }
        DTYPE_DISPATCH(direct ? p->k.dtype : QATTN_DTYPE_F32,
                       transpose_keys(panel, rows, p->d, DTYPE, SIZE));
    }
}

/* Columns of one panel from n rows of V. Returns a vector that has a NaN lane if any value is not
 * finite. */
ISA_INLINE vf copy_values(float *panel, const char *const *rows, int64_t n, int64_t offset,
                          int64_t columns, const int32_t dtype, const int64_t size)
{
    vf test = vf_zero();
    for (int64_t j = 0; j < n; j++) {
        const char *const src = rows[j] + offset * size;
        float *const dst = panel + j * MK_WIDTH;
        int64_t x = 0;
        for (; x + VL <= columns; x += VL) {
            const vf v = load_vector(src + x * size, dtype);
            vf_store(dst + x, v);
            test = vf_fmadd(v, vf_zero(), test);
        }
        if (x < columns) {
            float tail[VL] = { 0 };
            for (int64_t y = x; y < columns; y++)
                tail[y - x] = qattn__load(src + y * size, dtype);
            const vf v = vf_load(tail);
            vf_store(dst + x, v);
            test = vf_fmadd(v, vf_zero(), test);
        }
    }
    return test;
}

/* The same for any stride and with descales. */
static vf load_values(float *panel, const struct problem *p, const struct flash_scratch *w,
                      int64_t n, int64_t offset, int64_t columns)
{
    const int64_t last = (columns - 1) / VL * VL; /* the vector that may need zeros */
    vf test = vf_zero();
    for (int64_t j = 0; j < n; j++)
        vf_store(panel + j * MK_WIDTH + last, vf_zero());
    load_rows(panel, MK_WIDTH, &p->v, w->v_row, n, offset, columns, w->v_scale,
              p->v_descale.t.stride[3]);
    for (int64_t j = 0; j < n; j++)
        for (int64_t x = 0; x < columns; x += VL)
            test = vf_fmadd(vf_load(panel + j * MK_WIDTH + x), vf_zero(), test);
    return test;
}

/* n rows of V into panels of columns. Returns whether some value is NaN or infinite. */
static bool pack_values(const struct problem *p, const struct flash_scratch *w, int64_t n)
{
    const bool direct = p->v.stride[3] == 1 && !w->v_scale[0];
    vf test = vf_zero();
    for (int64_t x = 0; x < p->dv; x += MK_WIDTH) {
        float *const panel = w->v + x * FLASH_KEYS;
        const int64_t columns = min64(p->dv - x, MK_WIDTH);
        vf t = vf_zero();
        if (direct)
            DTYPE_DISPATCH(p->v.dtype,
                           t = copy_values(panel, w->v_row, n, x, columns, DTYPE, SIZE));
        else
            t = load_values(panel, p, w, n, x, columns);
        test = vf_add(test, t);
    }
    return vm_bits(vm_eq(test, test)) != vm_bits(vm_range(0, VL));
}

/* Brings rows first .. last-1 of the next block nearer while the current one is multiplied:
 * packing alone would wait for memory, as it reads many rows side by side. */
static void prefetch_rows(const struct view *t, const char *const *row, int64_t first, int64_t last)
{
    const int64_t bytes = t->shape[3] * t->itemsize;
    if (t->stride[3] != 1)
        return;
    for (int64_t j = first; j < last; j++)
        for (int64_t b = 0; b < bytes; b += 64)
            __builtin_prefetch(row[j] + b, 0, 2);
}

/* ---------------------------------------------------------------- the two products */

/* S[6][vecs * VL] = scale Q[6][d] K[d][vecs * VL] */
ISA_INLINE void score_tile(const float *q, const float *k, int64_t d, float scale, float *s,
                           const int vecs)
{
    vf c[MK_ROWS][MK_VECS];
    mk_clear(c, vecs);
    mk_multiply(c, q, d, 1, k, MK_WIDTH, d, vecs);
    const vf factor = vf_set1(scale);
    ISA_UNROLL
    for (int i = 0; i < MK_ROWS; i++) {
        ISA_UNROLL
        for (int j = 0; j < vecs; j++)
            vf_store(s + i * FLASH_KEYS + j * VL, vf_mul(factor, c[i][j]));
    }
}

/* part[6][vecs * VL] = P[6][n] V[n][vecs * VL], or += if `more` */
ISA_INLINE void value_chain(const float *prob, const float *v, int64_t n, float *part, bool more,
                            const int vecs)
{
    vf c[MK_ROWS][MK_VECS];
    mk_clear(c, vecs);
    mk_multiply(c, prob, FLASH_KEYS, 1, v, MK_WIDTH, n, vecs);
    ISA_UNROLL
    for (int i = 0; i < MK_ROWS; i++) {
        ISA_UNROLL
        for (int j = 0; j < vecs; j++) {
            float *const at = part + i * MK_WIDTH + j * VL;
            vf_store(at, more ? vf_add(vf_load(at), c[i][j]) : c[i][j]);
        }
    }
}

/* A function of its own: inlined into a loop, its sums would not stay in registers. */
static __attribute__((noinline)) void multiply_chain(const float *prob, const float *v, int64_t n,
                                                     float *part, bool more, int vecs)
{
    MK_DISPATCH(vecs, value_chain(prob, v, n, part, more, VECS));
}

/* O[6][vecs * VL] = alpha[6] O + P[6][lo .. hi-1] V[lo .. hi-1][vecs * VL]. Chains start at multiples of
 * FLASH_CHAIN keys of the block: where they do not start at lo, what is missing would add zeros. */
ISA_INLINE void value_tile(const float *prob, const float *v, int64_t lo, int64_t hi,
                           const float *alpha, float *o, int64_t o_row, const int vecs)
{
    _Alignas(64) float part[MK_ROWS * MK_WIDTH];
    int64_t next = min64(hi, (lo / FLASH_CHAIN + 1) * FLASH_CHAIN);
    multiply_chain(prob + lo, v + lo * MK_WIDTH, next - lo, part, false, vecs);
    for (int64_t j = next; j < hi; j = next) {
        next = min64(hi, j + FLASH_CHAIN);
        multiply_chain(prob + j, v + j * MK_WIDTH, next - j, part, true, vecs);
    }
    ISA_UNROLL
    for (int i = 0; i < MK_ROWS; i++) {
        const vf a = vf_set1(alpha[i]);
        ISA_UNROLL
        for (int j = 0; j < vecs; j++) {
            float *const at = o + i * o_row + j * VL;
            vf_store(at, vf_fmadd(a, vf_load(at), vf_load(part + i * MK_WIDTH + j * VL)));
        }
    }
}

static void multiply_scores(const struct problem *p, const struct flash_scratch *w, int64_t groups,
                            int64_t n, int64_t next_n)
{
    const int64_t d = p->d;
    const float scale = d == 0 ? 0.0f : p->scale;
    for (int64_t x = 0; x < n; x += MK_WIDTH) {
        const float *const panel = w->k + x * d;
        for (int64_t g = 0; g < groups; g++) {
            if (x == 0)
                prefetch_rows(&p->k, w->k_next, g * next_n / groups, (g + 1) * next_n / groups);
            if (w->hi[g] <= x || w->lo[g] >= x + MK_WIDTH)
                continue;
            const int vecs = (int)ceil_div(min64(w->hi[g] - x, MK_WIDTH), VL);
            const float *const q = w->q + g * MK_ROWS * d;
            float *const s = w->s + g * MK_ROWS * FLASH_KEYS + x;
            MK_DISPATCH(vecs, score_tile(q, panel, d, scale, s, VECS));
        }
    }
}

static void multiply_values(const struct problem *p, const struct flash_scratch *w, int64_t groups,
                            int64_t next_n)
{
    const int64_t o_row = w->state.o_row;
    for (int64_t x = 0; x < p->dv; x += MK_WIDTH) {
        const int vecs = (int)ceil_div(min64(p->dv - x, MK_WIDTH), VL);
        for (int64_t g = 0; g < groups; g++) {
            const int64_t lo = w->lo[g], hi = w->hi[g];
            if (x == 0)
                prefetch_rows(&p->v, w->v_next, g * next_n / groups, (g + 1) * next_n / groups);
            if (lo >= hi)
                continue;
            const float *const v = w->v + x * FLASH_KEYS;
            const float *const prob = w->s + g * MK_ROWS * FLASH_KEYS;
            float *const o = w->state.o + g * MK_ROWS * o_row + x;
            const float *const alpha = w->alpha + g * MK_ROWS;
            MK_DISPATCH(vecs, value_tile(prob, v, lo, hi, alpha, o, o_row, VECS));
        }
    }
}

/* ---------------------------------------------------------------- non-finite V */

/* Takes the non-finite values of n packed rows out of V and notes their places. */
static void remove_nonfinite(const struct problem *p, const struct flash_scratch *w, int64_t n)
{
    for (int64_t x = 0; x < p->dv; x += MK_WIDTH) {
        for (int64_t j = 0; j < n; j++) {
            float *const row = w->v + x * FLASH_KEYS + j * MK_WIDTH;
            uint64_t bits = 0;
            for (int64_t y = 0; y < min64(p->dv - x, MK_WIDTH); y++)
                if (!isfinite(row[y])) {
                    bits |= UINT64_C(1) << y;
                    row[y] = 0.0f;
                }
            w->nonfinite[x / MK_WIDTH * FLASH_KEYS + j] = bits;
        }
    }
}

/* Adds what remove_nonfinite took out to the rows that see it: a NaN or an infinity, even where
 * the probability is 0. */
static void add_nonfinite(const struct problem *p, const struct flash_scratch *w, int64_t rows,
                          int64_t n)
{
    const int64_t scale_step = p->v_descale.t.stride[3];
    for (int64_t x = 0; x < p->dv; x++) {
        for (int64_t j = 0; j < n; j++) {
            if (!(w->nonfinite[x / MK_WIDTH * FLASH_KEYS + j] >> x % MK_WIDTH & 1))
                continue;
            float value = 0.0f;
            load_span(&value, w->v_row[j] + x * p->v.stride[3] * p->v.itemsize, &p->v, 1,
                      w->v_scale[j] ? w->v_scale[j] + x * scale_step : NULL, 0);
            for (int64_t r = 0; r < rows; r++)
                if (w->visible[r * (FLASH_KEYS / 32) + j / 32] >> j % 32 & 1)
                    w->state.o[r * w->state.o_row + x] += w->s[r * FLASH_KEYS + j] * value;
        }
    }
}

/* ---------------------------------------------------------------- one block of keys */

/* Scores of the six rows of group g made final; a row that sees nothing gets hidden scores. */
static void adjust_group(const struct problem *p, const struct flash_unit *u,
                         const struct flash_scratch *w, int64_t g, int64_t key, int64_t n,
                         bool keep_visible)
{
    const bool adjusting = needs_adjusting(p);
    const int64_t from = w->lo[g] / (2 * VL) * (2 * VL), to = round_up(w->hi[g], 2 * VL);
    for (int64_t r = g * MK_ROWS; r < (g + 1) * MK_ROWS; r++) {
        const int64_t lo = clamp64(w->see_begin[r] - key, 0, n),
                      hi = clamp64(w->see_end[r] - key, 0, n);
        float *const s = w->s + r * FLASH_KEYS;
        if (lo >= hi)
            hide_outside(s, from, to, to, to);
        else if (!adjusting)
            hide_outside(s, from, to, lo, hi);
        else
            adjust_row(p, &u->s, unit_head(u, r), unit_position(u, r), key, s, from, to, lo, hi);
        if (keep_visible)
            note_visible(s, from, to, w->visible + r * (FLASH_KEYS / 32));
    }
}

/* Softmax step of six rows; all maxima first, so that the rows' latencies overlap. sums[6][VL]: l,
 * lane by lane. */
ISA_INLINE void softmax_group(float *s, int64_t from, int64_t to, float *m, float *sums,
                              float *alpha)
{
    enum { LANES = VL > 8 ? VL : 8 };
    float base[LANES] = { 0 }, fall[LANES] = { 0 };
    for (int r = 0; r < MK_ROWS; r++) {
        const float top = row_max(s + r * FLASH_KEYS, from, to, m[r]);
        base[r] = row_base(top);
        fall[r] = m[r] - base[r];
        m[r] = top;
    }
    for (int r = 0; r < MK_ROWS; r += VL)
        vf_store(fall + r, vf_exp(vf_load(fall + r)));
    for (int r = 0; r < MK_ROWS; r++) {
        const vf sum = row_exp(s + r * FLASH_KEYS, from, to, base[r]);
        vf_store(sums + r * VL, vf_fmadd(vf_load(sums + r * VL), vf_set1(fall[r]), sum));
        alpha[r] = fall[r];
    }
}

static void softmax_block(const struct flash_scratch *w, int64_t groups)
{
    for (int64_t g = 0; g < groups; g++) {
        const int64_t from = w->lo[g] / (2 * VL) * (2 * VL), to = round_up(w->hi[g], 2 * VL),
                      r = g * MK_ROWS;
        float *const s = w->s + r * FLASH_KEYS, *const m = w->state.m + r,
                     *const sums = w->sums + r * VL;
        if (from == 0 && to == FLASH_KEYS) /* constants to the compiler */
            softmax_group(s, 0, FLASH_KEYS, m, sums, w->alpha + r);
        else if (from < to)
            softmax_group(s, from, to, m, sums, w->alpha + r);
    }
}

/* What each six rows see of keys key .. key+n-1. */
static void find_group_ranges(const struct flash_scratch *w, int64_t groups, int64_t key, int64_t n)
{
    for (int64_t g = 0; g < groups; g++) {
        int64_t lo = n, hi = 0;
        for (int64_t r = g * MK_ROWS; r < (g + 1) * MK_ROWS; r++) {
            const int64_t b = clamp64(w->see_begin[r] - key, 0, n),
                          e = clamp64(w->see_end[r] - key, 0, n);
            if (b < e) {
                lo = min64(lo, b);
                hi = max64(hi, e);
            }
        }
        w->lo[g] = (int32_t)lo;
        w->hi[g] = (int32_t)hi;
    }
}

/* Addresses of the next block's rows; n may be 0. */
static void locate_next(const struct problem *p, const struct flash_unit *u,
                        const struct flash_scratch *w, int64_t key, int64_t n)
{
    if (p->d > 0 && n > 0)
        locate_rows(p, &u->s, &p->k, &p->k_descale, u->kv_head, key, n, w->k_next, w->k_scale_next);
    if (p->dv > 0 && n > 0)
        locate_rows(p, &u->s, &p->v, &p->v_descale, u->kv_head, key, n, w->v_next, w->v_scale_next);
}

#define SWAP(type, a, b) \
    do { \
        type swap_ = (a); \
        (a) = (b); \
        (b) = swap_; \
    } while (0)

static void move_to_next(struct flash_scratch *w)
{
    SWAP(const char **, w->k_row, w->k_next);
    SWAP(const char **, w->v_row, w->v_next);
    SWAP(const float **, w->k_scale, w->k_scale_next);
    SWAP(const float **, w->v_scale, w->v_scale_next);
}

/* Keys key .. key+n-1, whose rows are located; next_n keys follow. */
static void attend_block(const struct problem *p, const struct flash_unit *u,
                         struct flash_scratch *w, int64_t key, int64_t n, int64_t next_n)
{
    const int64_t groups = ceil_div(u->rows, MK_ROWS);

    find_group_ranges(w, groups, key, n);
    locate_next(p, u, w, key + n, next_n);
    if (p->d > 0)
        pack_keys(p, w, n);
    const bool nonfinite = p->dv > 0 && pack_values(p, w, n);
    if (nonfinite)
        remove_nonfinite(p, w, n);
    multiply_scores(p, w, groups, n, p->d > 0 ? next_n : 0);
    for (int64_t g = 0; g < groups; g++)
        if (w->lo[g] < w->hi[g])
            adjust_group(p, u, w, g, key, n, nonfinite);
        else if (nonfinite)
            memset(w->visible + g * MK_ROWS * (FLASH_KEYS / 32), 0, MK_ROWS * FLASH_KEYS / 8);
    softmax_block(w, groups);
    multiply_values(p, w, groups, next_n);
    if (nonfinite)
        add_nonfinite(p, w, u->rows, n);
}

/* ---------------------------------------------------------------- a unit */

void ISA_NAME(qattn__flash_tile_begin)(const struct flash_call *c, const struct flash_unit *u,
                                       struct flash_scratch *w)
{
    const struct problem *const p = c->p;
    const int64_t padded = round_up(u->rows, MK_ROWS);
    for (int64_t r = 0; r < padded; r++) {
        w->see_begin[r] = w->see_end[r] = 0;
        if (r >= u->rows) {
            memset(w->q + r * p->d, 0, (size_t)p->d * sizeof *w->q);
            continue;
        }
        seq_visible(p, &u->s, unit_position(u, r), &w->see_begin[r], &w->see_end[r]);
        if (p->d > 0)
            load_query(p, &u->s, unit_head(u, r), unit_position(u, r), w->q + r * p->d);
    }
}

void ISA_NAME(qattn__flash_tile_keys)(const struct flash_call *c, const struct flash_unit *u,
                                      int64_t begin, int64_t end, struct flash_scratch *w)
{
    const int64_t padded = round_up(u->rows, MK_ROWS);
    int64_t first = end, last = begin;
    for (int64_t r = 0; r < u->rows; r++) {
        const int64_t b = max64(w->see_begin[r], begin), e = min64(w->see_end[r], end);
        if (b < e) {
            first = min64(first, b);
            last = max64(last, e);
        }
    }
    ISA_NAME(qattn__flash_empty)(&w->state, padded);
    memset(w->sums, 0, (size_t)(padded * VL) * sizeof *w->sums);
    if (first >= last)
        return;
    int64_t key = begin + (first - begin) / FLASH_KEYS * FLASH_KEYS,
            n = min64(FLASH_KEYS, last - key);
    locate_next(c->p, u, w, key, n);
    while (n > 0) {
        const int64_t next_n = min64(FLASH_KEYS, last - key - n);
        move_to_next(w);
        attend_block(c->p, u, w, key, n, next_n);
        key += n;
        n = next_n;
    }
    for (int64_t r = 0; r < u->rows; r++)
        w->state.l[r] = (double)vf_hsum(vf_load(w->sums + r * VL));
}
