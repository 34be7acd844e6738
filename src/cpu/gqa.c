/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Attention by three kernels, on a block of query rows of one head at a time:
 *
 *     S = scale Q K^T        gemm.c, into the thread's own S [rows][keys]
 *     P = softmax(S)         softmax.c, row by row, in place; masks come first
 *     O = P V                gemm.c
 *
 * P stays e^(S - max); its row sums divide O instead, which rounds once less.
 * Query head h reads K and V of head h / group. Only the keys some row of the block sees are touched. 8-bit K and V are
 * turned into f32 once, before. A value row that holds NaN or infinity takes no part in P V, where a hidden key's P
 * of 0 would not stop it; it is added afterwards to the rows that see it.
 *
 * A row's bits depend on its own query, keys and position: sums over keys start at multiples of GEMM_BLOCK_K, and the
 * zeros of other rows' keys change nothing.
 */
#include "core/size.h"
#include "core/status.h"
#include "cpu/cpu.h"
#include "cpu/gemm.h"
#include "cpu/microkernel.h"
#include "cpu/pool.h"
#include "cpu/rows.h"
#include "cpu/softmax.h"

enum {
    MAX_ROWS = 32 * MK_ROWS,    /* query rows of a block */
    MIN_ROWS = 8 * MK_ROWS,     /* fewer only where there are no more: packing K must pay */
    S_FLOATS = 1 << 18,         /* S of a block aims at 1 MiB: it should stay in L2 */
    KEY_CHUNK = 256,            /* keys one task of the first pass looks at */
    PIECE = 256
};
/* Keys of a sequence at most: rows of S beyond that fit in no memory, and below it no size overflows. */
#define MOST_KEYS ((int64_t)1 << 40)

static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }
static inline int64_t blocks_of(int64_t x, int64_t block) { return (x + block - 1) / block; }

/* How the call is cut up and where things lie in the workspace. */
struct gqa_call {
    const struct problem *p;
    bool    convert_kv;         /* k and v are 8-bit: f32 copies are made */
    bool    convert_q;
    int64_t rows, row_blocks;   /* query rows of a block; blocks of a head */
    int64_t key_chunks;         /* of a KV head */
    int64_t s_pitch;            /* floats from one row of S to the next */
    int64_t d_pitch, o_pitch;   /* of f32 rows of q or k, and of v or o */
    float  *k, *v;              /* [B][Hkv][cap_k][d_pitch], [..][o_pitch] */
    uint8_t *nonfinite;         /* [B][Hkv][key_chunks]: V holds NaN or infinity there */
    float  *threads;            /* per worker: struct scratch */
    size_t  scratch_floats;
    int64_t tasks;
    int64_t bytes;              /* INT64_MAX: more than can be had */
};

/* What one worker needs for a block. */
struct scratch {
    float *s;                   /* [rows][s_pitch] scores, then probabilities */
    float *q;                   /* [rows][d_pitch], 8-bit q only */
    float *o;                   /* [rows][o_pitch] */
    float *extra;               /* [rows][o_pitch] non-finite values the rows see */
    float *sum;                 /* [rows] of P; 1 where P is 0 or NaN */
    float *gemm;
};

/* ---------------------------------------------------------------- layout of the call */

static bool is_8bit(const struct view *t) { return t->itemsize == 1; }

static void choose_rows(struct gqa_call *c)
{
    const struct problem *const p = c->p;
    const int64_t heads = sat_mul(p->n, p->hq), fit = S_FLOATS / c->s_pitch / MK_ROWS * MK_ROWS;
    const int64_t tasks = 4 * (int64_t)p->num_threads;      /* at least, so that threads end together */
    c->rows = min64(max64(min64(fit, MAX_ROWS), MIN_ROWS), round_up(p->cap_q, MK_ROWS));
    if (c->rows < MK_ROWS)
        c->rows = MK_ROWS;
    c->row_blocks = blocks_of(p->cap_q, c->rows);
    while (p->num_threads > 1 && c->rows > MIN_ROWS && sat_mul(heads, c->row_blocks) < tasks) {
        c->rows = max64(round_up(c->rows / 2, MK_ROWS), MIN_ROWS);
        c->row_blocks = blocks_of(p->cap_q, c->rows);
    }
    c->tasks = sat_mul(heads, c->row_blocks);
}

/* Takes `bytes` from the workspace, 256-byte aligned. */
static char *take(struct gqa_call *c, int64_t bytes)
{
    char *const at = c->p->workspace ? c->p->workspace + c->bytes : NULL;
    c->bytes = sat_add(c->bytes, sat_add(bytes, 255) / 256 * 256);
    return at;
}

static struct gqa_call plan_call(const struct problem *p)
{
    struct gqa_call c = { .p = p, .convert_kv = is_8bit(&p->k), .convert_q = is_8bit(&p->q) };
    if (p->cap_k > MOST_KEYS) {
        c.bytes = INT64_MAX;
        return c;
    }
    const int64_t rows_kv = sat_mul(sat_mul(p->n, p->hkv), p->cap_k);
    c.s_pitch = round_up(p->cap_k, 16) + 16;        /* whole vectors may start at any key */
    c.d_pitch = round_up(p->d, 16);
    c.o_pitch = round_up(p->dv, 16);
    c.key_chunks = blocks_of(p->cap_k, KEY_CHUNK);
    choose_rows(&c);

    const size_t gemm = max64((int64_t)ISA_NAME(qattn__gemm_scratch)(c.rows, p->cap_k, false),
                              (int64_t)ISA_NAME(qattn__gemm_scratch)(c.rows, p->dv, true));
    c.scratch_floats = (size_t)(c.rows * (c.s_pitch + c.d_pitch + 2 * c.o_pitch + 1)) + gemm;
    c.scratch_floats = (c.scratch_floats + 63) & ~(size_t)63;
    const int64_t workers = qattn__pool_threads(p->num_threads, c.tasks);
    const int64_t float_bytes = sizeof(float);
    if (c.convert_kv) {
        c.k = (float *)(void *)take(&c, sat_mul(rows_kv, c.d_pitch * float_bytes));
        c.v = (float *)(void *)take(&c, sat_mul(rows_kv, c.o_pitch * float_bytes));
    }
    c.nonfinite = (uint8_t *)take(&c, sat_mul(sat_mul(p->n, p->hkv), c.key_chunks));
    c.threads = (float *)(void *)take(&c, sat_mul(workers, (int64_t)c.scratch_floats * float_bytes));
    return c;
}

static struct scratch scratch_of(const struct gqa_call *c, int worker)
{
    struct scratch w = { .s = c->threads + (size_t)worker * c->scratch_floats };
    w.q = w.s + c->rows * c->s_pitch;
    w.o = w.q + c->rows * c->d_pitch;
    w.extra = w.o + c->rows * c->o_pitch;
    w.sum = w.extra + c->rows * c->o_pitch;
    w.gemm = w.sum + c->rows;
    return w;
}

/* Row of the f32 copies: key j of KV head kv of sequence b. */
static int64_t copy_row(const struct gqa_call *c, int64_t b, int64_t kv, int64_t j)
{
    return (b * c->p->hkv + kv) * c->p->cap_k + j;
}

/* ---------------------------------------------------------------- first pass: K and V of one KV head */

static bool row_is_finite(const float *row, int64_t n)
{
    vm bad = vm_range(0, 0);
    for (int64_t d = 0; d < n; d += VL)
        bad = vm_or(bad, vm_nonfinite(vf_load(row + d)));
    return vm_bits(bad) == 0;
}

/* row[n] = stored key or value j, as f32, descaled; 0 behind n up to a whole vector. */
static void load_descaled(const struct problem *p, const struct seq *s, const struct view *t, const struct descale *ds,
                          int64_t kv, int64_t j, int64_t n, float *row)
{
    load_row(view_at(t, s->k_batch, kv, s->k_row + j, 0), t->stride[3], t->dtype, n, row);
    if (ds->kind == DESCALE_NONE)
        return;
    const int64_t head = kv / ds->head_div;
    if (ds->t.stride[3] == 0) {
        const float factor = seq_kv_descale(p, s, ds, head, j, 0);
        for (int64_t d = 0; d < n; d++)
            row[d] *= factor;
    } else {
        for (int64_t d = 0; d < n; d++)
            row[d] *= seq_kv_descale(p, s, ds, head, j, d);
    }
}

/* Is row j of V free of NaN and infinity? PIECE columns at a time. */
static bool value_is_finite(const struct problem *p, const struct seq *s, int64_t kv, int64_t j)
{
    float piece[PIECE];
    for (int64_t d = 0; d < p->dv; d += PIECE) {
        const int64_t n = min64(p->dv - d, PIECE);
        load_row(view_at(&p->v, s->k_batch, kv, s->k_row + j, d), p->v.stride[3], p->v.dtype, n, piece);
        if (!row_is_finite(piece, n))
            return false;
    }
    return true;
}

static void look_at_keys(void *arg, int64_t index, int worker)
{
    const struct gqa_call *const c = arg;
    const struct problem *const p = c->p;
    const int64_t chunk = index % c->key_chunks, head = index / c->key_chunks;
    const int64_t kv = head % p->hkv, b = head / p->hkv;
    const struct seq s = seq_get(p, b);
    bool finite = true;
    (void)worker;
    for (int64_t j = chunk * KEY_CHUNK; j < min64(s.len_k, (chunk + 1) * KEY_CHUNK); j++) {
        if (!c->convert_kv) {
            finite = finite && value_is_finite(p, &s, kv, j);
            continue;
        }
        float *const k = c->k + copy_row(c, b, kv, j) * c->d_pitch;
        float *const v = c->v + copy_row(c, b, kv, j) * c->o_pitch;
        if (p->d > 0)
            load_descaled(p, &s, &p->k, &p->k_descale, kv, j, p->d, k);
        if (p->dv > 0)
            load_descaled(p, &s, &p->v, &p->v_descale, kv, j, p->dv, v);
        finite = finite && row_is_finite(v, p->dv);
    }
    c->nonfinite[index] = !finite;
}

/* ---------------------------------------------------------------- second pass: a block of query rows */

struct block {
    const struct gqa_call *c;
    const struct problem *p;
    struct seq s;
    int64_t h, kv;              /* query head, its KV head */
    int64_t i0, rows;           /* query rows i0 .. i0+rows-1 */
    int64_t begin, end;         /* keys in S: column j - begin; begin is a multiple of GEMM_BLOCK_K */
    bool nonfinite;             /* V holds NaN or infinity somewhere in begin .. end-1 */
    struct scratch w;
};

/* Key j of row r in S. */
static inline float *score_at(const struct block *t, int64_t r, int64_t j)
{
    return t->w.s + r * t->c->s_pitch + (j - t->begin);
}

static void visible_keys(const struct block *t, int64_t r, int64_t *begin, int64_t *end)
{
    seq_visible(t->p, &t->s, t->i0 + r, begin, end);
    if (*begin >= *end)
        *begin = *end = t->begin;
}

/* Keys any row of the block sees; all of them where scores without masks are asked for. */
static void choose_keys(struct block *t)
{
    t->begin = t->s.len_k;
    t->end = 0;
    for (int64_t r = 0; r < t->rows; r++) {
        int64_t begin, end;
        seq_visible(t->p, &t->s, t->i0 + r, &begin, &end);
        if (begin < end) {
            t->begin = min64(t->begin, begin);
            t->end = max64(t->end, end);
        }
    }
    if (t->p->scores.dtype && t->p->scores_stage < 2) {
        t->begin = 0;
        t->end = t->s.len_k;
    }
    t->begin = min64(t->begin, t->end) / GEMM_BLOCK_K * GEMM_BLOCK_K;
    const uint8_t *const flags = t->c->nonfinite + (t->s.n * t->p->hkv + t->kv) * t->c->key_chunks;
    for (int64_t chunk = t->begin / KEY_CHUNK; chunk < blocks_of(t->end, KEY_CHUNK); chunk++)
        t->nonfinite = t->nonfinite || flags[chunk];
}

static struct matrix matrix_of(char *data, int64_t row, int64_t col, int32_t dtype, int32_t itemsize)
{
    return (struct matrix){ .data = data, .row = row, .col = col, .dtype = dtype, .itemsize = itemsize };
}

static struct matrix f32_matrix(float *data, int64_t row)
{
    return matrix_of((char *)data, row, 1, QATTN_DTYPE_F32, (int32_t)sizeof(float));
}

/* K or V [keys][width] from key `begin` on, as the caller or the first pass left it. */
static struct matrix keys_matrix(const struct block *t, const struct view *view, float *copy, int64_t pitch)
{
    if (t->c->convert_kv)
        return f32_matrix(copy + copy_row(t->c, t->s.n, t->kv, t->begin) * pitch, pitch);
    return matrix_of(view_at(view, t->s.k_batch, t->kv, t->s.k_row + t->begin, 0), view->stride[2], view->stride[3],
                     view->dtype, view->itemsize);
}

static struct matrix query_matrix(const struct block *t)
{
    const struct problem *const p = t->p;
    if (!t->c->convert_q)
        return matrix_of(view_at(&p->q, t->s.q_batch, t->h, t->s.q_row + t->i0, 0), p->q.stride[2], p->q.stride[3],
                         p->q.dtype, p->q.itemsize);
    for (int64_t r = 0; r < t->rows; r++) {
        const int64_t i = t->i0 + r;
        float *const q = t->w.q + r * t->c->d_pitch;
        load_row(view_at(&p->q, t->s.q_batch, t->h, t->s.q_row + i, 0), p->q.stride[3], p->q.dtype, p->d, q);
        for (int64_t d = 0; d < p->d && p->q_descale.kind != DESCALE_NONE; d++)
            q[d] *= seq_q_descale(p, &t->s, t->h, i, d);
    }
    return f32_matrix(t->w.q, t->c->d_pitch);
}

/* S = scale Q K^T, then softcap. */
static void multiply_qk(const struct block *t)
{
    struct gemm g = { .c = f32_matrix(t->w.s, t->c->s_pitch), .m = t->rows, .n = t->end - t->begin, .k = t->p->d,
                      .alpha = t->p->scale };
    if (g.k > 0) {
        const struct matrix k = keys_matrix(t, &t->p->k, t->c->k, t->c->d_pitch);
        g.a = query_matrix(t);
        g.b = matrix_of(k.data, k.col, k.row, k.dtype, k.itemsize);     /* transposed */
    }
    ISA_NAME(qattn__gemm)(&g, t->w.gemm);
}

static void cap_scores(const struct block *t)
{
    for (int64_t r = 0; r < t->rows && t->p->softcap != 0.0f; r++)
        ISA_NAME(qattn__cap_scores)(t->p->softcap, score_at(t, r, t->begin), t->end - t->begin);
}

/* Hides every key of S that a row does not see: -inf. */
static void mask_row(const struct block *t, int64_t r)
{
    int64_t begin, end;
    visible_keys(t, r, &begin, &end);
    ISA_NAME(qattn__mask_scores)(t->p, &t->s, t->h, t->i0 + r, begin, end - begin, score_at(t, r, begin));
    for (int64_t j = t->begin; j < begin; j++)
        *score_at(t, r, j) = -INFINITY;
    for (int64_t j = end; j < t->begin + padded_row(t->end - t->begin); j++)
        *score_at(t, r, j) = -INFINITY;
}

/* P in place, 0 outside the row's keys, and its sum; writes the LSE. */
static void softmax_row(const struct block *t, int64_t r)
{
    const int64_t i = t->i0 + r;
    int64_t begin, end;
    visible_keys(t, r, &begin, &end);
    float *const row = score_at(t, r, begin), sink = sink_of(t->p, &t->s, t->h, i);
    struct row_max m = start_max(sink);
    float sum = 1.0f;
    pad_scores(row, end - begin);
    ISA_NAME(qattn__max_scores)(row, end - begin, &m);
    if (is_spoilt(&m) || m.max == -INFINITY)
        ISA_NAME(qattn__spoil_row)(row, end - begin);
    else
        sum = (float)(ISA_NAME(qattn__exp_scores)(row, end - begin, m.max) + (double)isa_exp(sink - m.max));
    t->w.sum[r] = sum;
    for (int64_t j = t->begin; j < begin; j++)
        *score_at(t, r, j) = 0.0f;
    for (int64_t j = end; j < t->end; j++)
        *score_at(t, r, j) = 0.0f;
    store_lse(t->p, t->s.q_batch, t->h, t->s.q_row + i, &m, sum);
}

/* ---------------------------------------------------------------- what leaves the block */

/* Columns first .. end-1 of one row of `scores` = fill. */
static void fill_scores(const struct view *t, char *row, int64_t first, int64_t end, float fill)
{
    float piece[PIECE];
    for (int64_t j = 0; j < PIECE && first < end; j++)
        piece[j] = fill;
    for (int64_t j = first; j < end; j += PIECE)
        store_row(piece, min64(end - j, PIECE), row + j * t->stride[3] * t->itemsize, t->stride[3], t->dtype);
}

/* Columns begin .. end-1 of one row of `scores` = P / sum. */
static void store_probabilities(const struct block *t, int64_t r, int64_t begin, int64_t end, char *row)
{
    const struct view *const out = &t->p->scores;
    float piece[PIECE];
    for (int64_t j = begin; j < end; j += PIECE) {
        const int64_t n = min64(end - j, PIECE);
        memcpy(piece, score_at(t, r, j), (size_t)n * sizeof *piece);
        ISA_NAME(qattn__divide_row)(piece, n, t->w.sum[r]);
        store_row(piece, n, row + j * out->stride[3] * out->itemsize, out->stride[3], out->dtype);
    }
}

/* Copies S (stage 3: P / sum) to `scores` if this is the stage asked for. */
static void copy_scores(const struct block *t, int32_t stage)
{
    const struct view *const out = &t->p->scores;
    if (!out->dtype || t->p->scores_stage != stage)
        return;
    const float fill = stage == 2 ? -INFINITY : 0.0f;
    for (int64_t r = 0; r < t->rows; r++) {
        const int64_t i = t->i0 + r;
        int64_t begin = t->begin, end = i < t->s.len_q ? t->end : t->begin;
        if (stage >= 2)
            visible_keys(t, r, &begin, &end);
        char *const row = view_at(out, t->s.q_batch, t->h, t->s.q_row + i, 0);
        const int64_t step = out->stride[3] * out->itemsize;
        fill_scores(out, row, 0, begin, fill);
        if (stage < 3)
            store_row(score_at(t, r, begin), end - begin, row + begin * step, out->stride[3], out->dtype);
        else
            store_probabilities(t, r, begin, end, row);
        fill_scores(out, row, end, out->shape[3], fill);
    }
}

/* extra += the non-finite elements of value row j, for every row that sees it. */
static void add_value(const struct block *t, int64_t j)
{
    const struct matrix v = keys_matrix(t, &t->p->v, t->c->v, t->c->o_pitch);
    float piece[PIECE];
    for (int64_t d = 0; d < t->p->dv; d += PIECE) {
        const int64_t n = min64(t->p->dv - d, PIECE);
        load_row(v.data + ((j - t->begin) * v.row + d * v.col) * v.itemsize, v.col, v.dtype, n, piece);
        if (row_is_finite(piece, n))
            continue;
        for (int64_t r = 0; r < t->rows; r++)
            for (int64_t e = 0; e < n && *score_at(t, r, j) != -INFINITY; e++)
                if (!isfinite(piece[e]))
                    t->w.extra[r * t->c->o_pitch + d + e] += piece[e];
    }
}

/* S holds masked scores: -inf is hidden. */
static void collect_nonfinite(const struct block *t)
{
    if (!t->nonfinite)
        return;
    memset(t->w.extra, 0, (size_t)(t->rows * t->c->o_pitch) * sizeof(float));
    for (int64_t j = t->begin; j < t->end; j++)
        add_value(t, j);
}

/* O = P V / sum, rounded once. */
static void multiply_pv(const struct block *t)
{
    const struct problem *const p = t->p;
    struct gemm g = { .a = f32_matrix(t->w.s, t->c->s_pitch), .c = f32_matrix(t->w.o, t->c->o_pitch), .m = t->rows,
                      .n = p->dv, .k = t->end - t->begin, .alpha = 1.0f, .finite_b = t->nonfinite,
                      .careful = true };
    if (p->dv == 0)
        return;
    if (g.k > 0)
        g.b = keys_matrix(t, &p->v, t->c->v, t->c->o_pitch);
    ISA_NAME(qattn__gemm)(&g, t->w.gemm);
    for (int64_t r = 0; r < t->rows; r++) {
        float *const o = t->w.o + r * t->c->o_pitch;
        for (int64_t d = 0; d < p->dv; d += VL)
            vf_store(o + d, vf_div(vf_load(o + d), vf_set1(t->w.sum[r])));
        const float *const extra = t->w.extra + r * t->c->o_pitch;
        for (int64_t d = 0; d < p->dv && t->nonfinite; d++)
            o[d] = extra[d] != 0.0f ? o[d] + extra[d] : o[d];       /* -0 + 0 would be 0 */
        store_row(o, p->dv, view_at(&p->o, t->s.q_batch, t->h, t->s.q_row + t->i0 + r, 0), p->o.stride[3], p->o.dtype);
    }
}

static void run_block(void *arg, int64_t index, int worker)
{
    const struct gqa_call *const c = arg;
    const struct problem *const p = c->p;
    struct block t = { .c = c, .p = p, .i0 = index % c->row_blocks * c->rows, .h = index / c->row_blocks % p->hq,
                       .s = seq_get(p, index / c->row_blocks / p->hq), .w = scratch_of(c, worker) };
    t.kv = t.h / p->group;
    t.rows = min64(t.s.rows - t.i0, c->rows);
    if (t.rows <= 0)
        return;
    choose_keys(&t);

    multiply_qk(&t);
    copy_scores(&t, 0);
    cap_scores(&t);
    copy_scores(&t, 1);
    for (int64_t r = 0; r < t.rows; r++)
        mask_row(&t, r);
    copy_scores(&t, 2);
    collect_nonfinite(&t);
    for (int64_t r = 0; r < t.rows; r++)
        softmax_row(&t, r);
    copy_scores(&t, 3);
    multiply_pv(&t);
}

size_t ISA_NAME(qattn__cpu_gqa_workspace)(const struct problem *p)
{
    struct problem sizes = *p;
    sizes.workspace = NULL;
    return (size_t)plan_call(&sizes).bytes;
}

int32_t ISA_NAME(qattn__cpu_gqa)(const struct problem *p)
{
    struct gqa_call call = plan_call(p);
    if (view_empty(&p->o) && !p->lse.dtype && !p->scores.dtype)
        return QATTN_OK;
    qattn__pool_run(p->num_threads, p->n * p->hkv * call.key_chunks, look_at_keys, &call);
    qattn__pool_run(p->num_threads, call.tasks, run_block, &call);
    return QATTN_OK;
}
