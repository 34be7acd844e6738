/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The ends of a row: its empty state, the merging of splits, and the step from (m, l, o) to O and
 * LSE. */
#include "cpu/flash.h"

void ISA_NAME(qattn__flash_empty)(struct flash_state *state, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++) {
        state->m[r] = -INFINITY;
        state->l[r] = 0.0;
    }
    memset(state->o, 0, (size_t)(rows * state->o_row) * sizeof *state->o);
    if (state->low)
        memset(state->low, 0, (size_t)(rows * state->o_row) * sizeof *state->low);
}

/* o = a o + b part, with what rounding took; part_low may be NULL. */
static void merge_row(float *o, float *low, float a, const float *part, const float *part_low,
                      float b, int64_t n)
{
    for (int64_t x = 0; x < n; x += VL) {
        vf hi = vf_load(o + x), lo = vf_load(low + x);
        vf p_hi = vf_load(part + x), p_lo = part_low ? vf_load(part_low + x) : vf_zero();
        scale_exactly(&hi, &lo, vf_set1(a));
        scale_exactly(&p_hi, &p_lo, vf_set1(b));
        add_exactly(&hi, &lo, p_hi);
        vf_store(o + x, hi);
        vf_store(low + x, vf_add(lo, p_lo));
    }
}

/* The maximum ignores NaN; a NaN row has l = NaN and keeps it. Nothing on either side: the other
 * side's very bits. */
void ISA_NAME(qattn__flash_merge)(struct flash_state *total, const struct flash_state *part,
                                  int64_t rows)
{
    for (int64_t r = 0; r < rows; r++) {
        float *const o = total->o + r * total->o_row, *const low = total->low + r * total->o_row;
        const float *const o_part = part->o + r * part->o_row;
        const float *const low_part = part->low ? part->low + r * part->o_row : NULL;
        if (part->l[r] == 0.0)
            continue;
        if (total->l[r] == 0.0) {
            memcpy(o, o_part, (size_t)total->o_row * sizeof *o);
            if (low_part)
                memcpy(low, low_part, (size_t)total->o_row * sizeof *low);
            total->m[r] = part->m[r];
            total->l[r] = part->l[r];
            continue;
        }
        const float m = part->m[r] > total->m[r] ? part->m[r] : total->m[r];
        const float base = m == -INFINITY ? 0.0f : m;
        const float a = isa_exp(total->m[r] - base), b = isa_exp(part->m[r] - base);
        merge_row(o, low, a, o_part, low_part, b, total->o_row);
        total->l[r] = total->l[r] * (double)a + part->l[r] * (double)b;
        total->m[r] = m;
    }
}

/* VL elements of (o + low) * factor from x on; low may be NULL. */
static inline vf final_values(const float *o, const float *low, int64_t x, float factor)
{
    const vf sum = low ? vf_add(vf_load(o + x), vf_load(low + x)) : vf_load(o + x);
    return vf_mul(sum, vf_set1(factor));
}

static void write_row(const struct view *t, char *at, const float *o, const float *low,
                      float factor)
{
    const int64_t n = t->shape[3], step = t->stride[3];
    int64_t x = 0;
    if (step == 1 && t->dtype == QATTN_DTYPE_F32)
        for (; x + VL <= n; x += VL)
            vf_store((float *)(void *)at + x, final_values(o, low, x, factor));
    if (step == 1 && t->dtype == QATTN_DTYPE_F16)
        for (; x + VL <= n; x += VL)
            vf_store_f16(at + 2 * x, final_values(o, low, x, factor));
    if (step == 1 && t->dtype == QATTN_DTYPE_BF16)
        for (; x + VL <= n; x += VL)
            vf_store_bf16(at + 2 * x, final_values(o, low, x, factor));
    for (; x < n; x++)
        qattn__store(at + x * step * t->itemsize, t->dtype, (low ? o[x] + low[x] : o[x]) * factor);
}

static void write_zero_row(const struct view *t, char *at)
{
    for (int64_t x = 0; x < t->shape[3]; x++)
        memset(at + x * t->stride[3] * t->itemsize, 0, (size_t)t->itemsize);
}

void ISA_NAME(qattn__flash_write)(const struct problem *p, const struct flash_unit *u,
                                  const struct flash_state *state)
{
    const struct seq *const s = &u->s;
    for (int64_t r = 0; r < u->rows; r++) {
        const int64_t h = unit_head(u, r), i = unit_position(u, r);
        const float m_row = state ? state->m[r] : -INFINITY;
        const double l_row = state ? state->l[r] : 0.0;
        const float sink = p->sinks && i < s->len_q ? p->sinks[h] : -INFINITY;
        const float m = sink > m_row ? sink : m_row, base = m == -INFINITY ? 0.0f : m;
        const float weight = isa_exp(m_row - base);
        const float sum = (float)(l_row * (double)weight + (double)isa_exp(sink - base));
        const bool dead =
            l_row == 0.0; /* no visible key: the largest score adds 1, NaN adds NaN */
        if (p->dv > 0) {
            char *const at = view_at(&p->o, s->q_batch, h, s->q_row + i, 0);
            if (dead)
                write_zero_row(&p->o, at);
            else
                write_row(&p->o, at, state->o + r * state->o_row,
                          state->low ? state->low + r * state->o_row : NULL, weight / sum);
        }
        if (p->lse.dtype) {
            const float lse = dead && sink < INFINITY ? sink : m + logf(sum);
            const float scale = p->flags & QATTN_FLAG_LSE_BASE2 ? ISA_LOG2E : 1.0f;
            qattn__store(view_at(&p->lse, s->q_batch, h, s->q_row + i, 0), QATTN_DTYPE_F32,
                         lse * scale);
        }
    }
}
