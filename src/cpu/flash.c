/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Flash attention on CPU: cuts a call into units (flash.h), lets the pool run them in order,
 * merges splits.
 *
 * Cuts that change bits (splits, which path a sequence takes) are functions of shapes, lengths of
 * the sequence itself and flags; the number of rows of a tile changes no bit and follows cache
 * size and threads. With BATCH_INVARIANT all units take the tile path and keys are split at
 * multiples of FLASH_FIXED_SPLIT, run in turn or in parallel with the same arithmetic.
 *
 * A unit with splits: each writes its state to its slot in the workspace; the last to arrive
 * merges all slots in order and writes O. Nobody waits.
 */
#include "cpu/cpu.h"
#include "cpu/flash.h"
#include "cpu/pool.h"
#include "core/size.h"
#include "core/status.h"

#if defined(QATTN_ISA_AVX512)
enum { TILE_BYTES = 1024 * 1024 }; /* Q, O, S and the packed block of a tile: about half of L2 */
#else
enum { TILE_BYTES = 448 * 1024 };
#endif
/* ROW_UNIT: rows of a micro kernel's tile (6) and of the decode path's (4) fit. */
enum { ROW_UNIT = 12, LEAST_TILE_ROWS = 48, PARALLEL_TILES = 32, SLOT_BYTES = 64 << 20 };

/* ---------------------------------------------------------------- the plan */

/* Units without splits, from capacities, if tiles have `rows` rows. */
static int64_t count_tiles(const struct problem *p, int64_t rows)
{
    const int64_t heads = min64(p->group, rows), positions = rows / heads;
    int64_t blocks = sat_mul(p->n, ceil_div(p->cap_q, positions));
    if (p->cu_seqlens_q)
        blocks = min64(blocks, sat_add(p->q.shape[2] / positions, p->n));
    return sat_mul(sat_mul(blocks, p->hkv), ceil_div(p->group, heads));
}

static int64_t choose_tile_rows(const struct problem *p)
{
    const int64_t row_bytes = (p->d + p->dv + FLASH_KEYS) * 4,
                  block_bytes = FLASH_KEYS * (p->d + p->dv) * 4;
    int64_t rows = FLASH_TILE_ROWS;
    while (rows > LEAST_TILE_ROWS && (rows * row_bytes + block_bytes > TILE_BYTES ||
                                      count_tiles(p, rows) < 8 * (int64_t)p->num_threads))
        rows /= 2;
    if (p->cap_q < rows) /* a sequence has less than that */
        rows = min64(rows, round_up(min64(p->group, rows) * p->cap_q, ROW_UNIT));
    return max64(rows, ROW_UNIT);
}

/* Splits run in parallel where units are few and their slots fit; else a unit walks its splits, with
 * the same bits. */
static void choose_splits(struct flash_call *c)
{
    const struct problem *const p = c->p;
    const int64_t tiles = count_tiles(p, LEAST_TILE_ROWS);
    const bool few = tiles > 0 && tiles < PARALLEL_TILES;
    int64_t splits = 1;
    c->fixed_splits = (p->flags & QATTN_FLAG_BATCH_INVARIANT) != 0;
    if (c->fixed_splits)
        splits = max64(1, ceil_div(p->cap_k, FLASH_FIXED_SPLIT));
    else if (p->num_splits > 0)
        splits = p->num_splits;
    else if (few && p->cap_k > FLASH_SPLIT_KEYS)
        splits = ceil_div(FLASH_UNITS, tiles);
    c->parallel_splits = splits > 1 && few && tiles * splits * c->partial_floats * 4 <= SLOT_BYTES;
    c->target_splits = splits;
    c->max_tasks = sat_mul(count_tiles(p, c->tile_rows), c->parallel_splits ? splits : 1);
}

/* Next piece of the workspace; addresses are meaningless while base is NULL. */
static char *take(char *base, int64_t *used, int64_t bytes)
{
    char *const piece = base ? base + *used : NULL;
    *used = sat_add(*used, sat_add(bytes, 63) / 64 * 64);
    return piece;
}

static void take_state(struct flash_state *state, char *base, int64_t *used, int64_t rows,
                       int64_t o_row, bool exact)
{
    state->o_row = o_row;
    state->m = (float *)(void *)take(base, used, rows * 4);
    state->l = (double *)(void *)take(base, used, rows * 8);
    state->o = (float *)(void *)take(base, used, rows * o_row * 4);
    state->low = exact ? (float *)(void *)take(base, used, rows * o_row * 4) : NULL;
}

/* Divides one worker's scratch; returns its bytes. */
static int64_t map_scratch(const struct flash_call *c, char *base, struct flash_scratch *w)
{
    const struct problem *const p = c->p;
    const int64_t rows = c->tile_rows, o_row = round_up(p->dv, VL);
    const int64_t panels = ceil_div(p->dv, MK_WIDTH), keys = FLASH_KEYS;
    int64_t used = 0;
    take_state(&w->state, base, &used, rows, o_row, false);
    take_state(&w->sum, base, &used, rows, o_row, true);
    take_state(&w->total, base, &used, rows, o_row, true);
    w->q = (float *)(void *)take(base, &used, rows * round_up(p->d, VL) * 4);
    w->k = (float *)(void *)take(base, &used, keys * p->d * 4);
    w->v = (float *)(void *)take(base, &used, panels * MK_WIDTH * keys * 4);
    w->s = (float *)(void *)take(base, &used, rows * keys * 4);
    w->sums = (float *)(void *)take(base, &used, rows * VL * 4);
    w->alpha = (float *)(void *)take(base, &used, rows * 4);
    w->rows = (float *)(void *)take(
        base, &used, FLASH_DECODE_KEYS * (round_up(max64(p->d, p->dv), VL) + VL) * 4);
    w->see_begin = (int64_t *)(void *)take(base, &used, rows * 8);
    w->see_end = (int64_t *)(void *)take(base, &used, rows * 8);
    w->lo = (int32_t *)(void *)take(base, &used, rows / MK_ROWS * 4);
    w->hi = (int32_t *)(void *)take(base, &used, rows / MK_ROWS * 4);
    const char ***const rows_of[] = { &w->k_row, &w->v_row, &w->k_next, &w->v_next };
    const float ***const scales_of[] = { &w->k_scale, &w->v_scale, &w->k_scale_next,
                                         &w->v_scale_next };
    for (int i = 0; i < 4; i++) {
        *rows_of[i] = (const char **)(void *)take(base, &used, keys * (int64_t)sizeof(char *));
        *scales_of[i] = (const float **)(void *)take(base, &used, keys * (int64_t)sizeof(float *));
    }
    w->visible = (uint32_t *)(void *)take(base, &used, rows * keys / 8);
    w->nonfinite = (uint64_t *)(void *)take(base, &used, panels * keys * 8);
    return used;
}

/* Fills *c; base NULL: only to learn the size. Returns the bytes of the workspace. */
static int64_t plan_call(struct flash_call *c, const struct problem *p, char *base)
{
    struct flash_scratch unused;
    int64_t used = 0;
    *c = (struct flash_call){ .p = p };
    c->tile_rows = choose_tile_rows(p);
    c->heads = min64(p->group, c->tile_rows);
    c->positions = c->tile_rows / c->heads;
    c->chunks = ceil_div(p->group, c->heads);
    c->decode = !(p->flags & QATTN_FLAG_BATCH_INVARIANT);
    c->partial_floats = c->tile_rows * (3 + 2 * round_up(p->dv, VL));
    choose_splits(c);
    c->workers = (int)min64(min64(p->num_threads, QATTN__POOL_MAX_THREADS), max64(c->max_tasks, 1));
    c->scratch_bytes = (size_t)round_up(map_scratch(c, NULL, &unused), 256);

    c->first_task = (int64_t *)(void *)take(base, &used, sat_mul(sat_add(p->n, 1), 8));
    if (c->parallel_splits) {
        c->arrived =
            (atomic_int *)(void *)take(base, &used, sat_mul(c->max_tasks, sizeof(atomic_int)));
        c->partials = (float *)(void *)take(base, &used, sat_mul(c->max_tasks, c->partial_floats * 4));
    }
    used = sat_add(used, 255) / 256 * 256;
    c->scratch = base ? base + used : NULL;
    return sat_add(used, c->workers * (int64_t)c->scratch_bytes);
}

/* ---------------------------------------------------------------- units of a sequence */

static bool takes_decode_path(const struct flash_call *c, const struct seq *s)
{
    return c->decode && c->p->group <= FLASH_DECODE_ROWS &&
           s->len_q * c->p->group <= FLASH_DECODE_ROWS;
}

static int64_t count_splits(const struct flash_call *c, const struct seq *s)
{
    if (c->fixed_splits)
        return max64(1, ceil_div(s->len_k, FLASH_FIXED_SPLIT));
    if (c->p->num_splits > 0)
        return clamp64(c->p->num_splits, 1, max64(1, s->len_k));
    return clamp64(s->len_k / FLASH_SPLIT_KEYS, 1, c->target_splits);
}

/* Keys of one split. */
static void find_split(const struct flash_call *c, const struct seq *s, int64_t splits,
                       int64_t index, int64_t *begin, int64_t *end)
{
    if (c->fixed_splits) {
        *begin = index * FLASH_FIXED_SPLIT;
        *end = min64(s->len_k, *begin + FLASH_FIXED_SPLIT);
    } else if (c->p->num_splits > 0) {
        *begin = s->len_k * index / splits;
        *end = s->len_k * (index + 1) / splits;
    } else { /* whole blocks; the last one is the shortest */
        const int64_t length = round_up(ceil_div(s->len_k, splits), FLASH_KEYS);
        *begin = min64(s->len_k, index * length);
        *end = min64(s->len_k, *begin + length);
    }
}

/* Tasks of sequence s: [block of positions, last first][KV head][chunk of heads][split]. */
static int64_t count_blocks(const struct flash_call *c, const struct seq *s)
{
    return takes_decode_path(c, s) ? s->rows > 0 : ceil_div(s->rows, c->positions);
}

static int64_t count_units(const struct flash_call *c, const struct seq *s)
{
    if (c->p->hq == 0)
        return 0; /* KV heads without a query head */
    const int64_t chunks = takes_decode_path(c, s) ? 1 : c->chunks;
    return count_blocks(c, s) * c->p->hkv * chunks;
}

/* Splits of the sequence whose tasks start at `first` are tasks of their own, as long as there are
 * slots: sequences that overlap (bad prefix sums) may be more than the shapes allow for. The
 * others' units walk their splits, to the same bits. */
static bool splits_in_parallel(const struct flash_call *c, const struct seq *s, int64_t first)
{
    return c->parallel_splits && count_units(c, s) * count_splits(c, s) <= c->max_tasks - first;
}

static int64_t count_tasks(const struct flash_call *c, const struct seq *s, int64_t first)
{
    return count_units(c, s) * (splits_in_parallel(c, s, first) ? count_splits(c, s) : 1);
}

static int64_t find_sequence(const struct flash_call *c, int64_t task)
{
    int64_t lo = 0, hi = c->p->n; /* first_task[lo] <= task < first_task[hi] */
    while (hi - lo > 1) {
        const int64_t middle = lo + (hi - lo) / 2;
        if (c->first_task[middle] <= task)
            lo = middle;
        else
            hi = middle;
    }
    return lo;
}

static void cut_unit(const struct flash_call *c, struct flash_unit *u, int64_t local)
{
    const struct problem *const p = c->p;
    if (takes_decode_path(c, &u->s)) {
        u->kv_head = local;
        u->heads = p->group;
        u->head0 = u->kv_head * p->group;
        u->pos0 = 0;
        u->positions = u->s.len_q;
    } else {
        const int64_t chunk = local % c->chunks;
        u->kv_head = local / c->chunks % p->hkv;
        u->head0 = u->kv_head * p->group + chunk * c->heads;
        u->heads = min64(c->heads, p->group - chunk * c->heads);
        u->pos0 = (count_blocks(c, &u->s) - 1 - local / c->chunks / p->hkv) * c->positions;
        u->positions = min64(c->positions, u->s.rows - u->pos0);
    }
    u->rows = u->heads * u->positions;
}

/* ---------------------------------------------------------------- running one */

static void attend_span(const struct flash_call *c, const struct flash_unit *u, int64_t begin,
                        int64_t end, struct flash_scratch *w)
{
    if (takes_decode_path(c, &u->s))
        ISA_NAME(qattn__flash_decode_keys)(c, u, begin, end, w);
    else
        ISA_NAME(qattn__flash_tile_keys)(c, u, begin, end, w);
}

/* One split onto w->state, span by span. */
static void attend_split(const struct flash_call *c, const struct flash_unit *u, int64_t splits,
                         int64_t index, struct flash_scratch *w)
{
    int64_t begin, end;
    find_split(c, &u->s, splits, index, &begin, &end);
    if (end - begin <= FLASH_SPAN) {
        attend_span(c, u, begin, end, w);
        return;
    }
    const struct flash_state span = w->state;
    ISA_NAME(qattn__flash_empty)(&w->sum, u->rows);
    for (; begin < end; begin += FLASH_SPAN) {
        attend_span(c, u, begin, min64(end, begin + FLASH_SPAN), w);
        ISA_NAME(qattn__flash_merge)(&w->sum, &span, u->rows);
    }
    w->state = w->sum;
    w->sum = span;
}

/* Padding rows of a sequence on the decode path: its unit holds only the queries. */
static void write_padding_rows(const struct problem *p, const struct flash_unit *u)
{
    struct flash_unit padding = *u;
    padding.pos0 = u->s.len_q;
    padding.positions = u->s.rows - u->s.len_q;
    padding.rows = padding.positions * padding.heads;
    ISA_NAME(qattn__flash_write)(p, &padding, NULL);
}

static void write_unit(const struct flash_call *c, const struct flash_unit *u,
                       const struct flash_state *state)
{
    ISA_NAME(qattn__flash_write)(c->p, u, state);
    if (takes_decode_path(c, &u->s))
        write_padding_rows(c->p, u);
}

static void run_all_splits(const struct flash_call *c, const struct flash_unit *u, int64_t splits,
                           struct flash_scratch *w)
{
    if (splits == 1) {
        attend_split(c, u, 1, 0, w);
        write_unit(c, u, &w->state);
        return;
    }
    ISA_NAME(qattn__flash_empty)(&w->total, u->rows);
    for (int64_t i = 0; i < splits; i++) {
        attend_split(c, u, splits, i, w);
        ISA_NAME(qattn__flash_merge)(&w->total, &w->state, u->rows);
    }
    write_unit(c, u, &w->total);
}

/* The slot of a task as a state. */
static struct flash_state map_slot(const struct flash_call *c, int64_t task)
{
    float *const slot = c->partials + task * c->partial_floats;
    const int64_t rows = c->tile_rows, o_row = round_up(c->p->dv, VL);
    return (struct flash_state){
        .l = (double *)(void *)slot, .m = slot + 2 * rows, .o = slot + 3 * rows,
        .low = slot + 3 * rows + rows * o_row, .o_row = o_row
    };
}

/* Copies the rows of a state to a slot. */
static void store_state(const struct flash_state *slot, const struct flash_state *state, int64_t rows)
{
    const size_t bytes = (size_t)(rows * slot->o_row) * sizeof *slot->o;
    memcpy(slot->m, state->m, (size_t)rows * sizeof *slot->m);
    memcpy(slot->l, state->l, (size_t)rows * sizeof *slot->l);
    memcpy(slot->o, state->o, bytes);
    if (state->low)
        memcpy(slot->low, state->low, bytes);
    else
        memset(slot->low, 0, bytes);
}

static void run_one_split(const struct flash_call *c, const struct flash_unit *u, int64_t splits,
                          int64_t index, int64_t task, struct flash_scratch *w)
{
    const struct flash_state slot = map_slot(c, task);
    attend_split(c, u, splits, index, w);
    store_state(&slot, &w->state, u->rows);
    if (atomic_fetch_add_explicit(&c->arrived[task - index], 1, memory_order_acq_rel) != splits - 1)
        return;
    ISA_NAME(qattn__flash_empty)(&w->total, u->rows);
    for (int64_t i = 0; i < splits; i++) {
        const struct flash_state part = map_slot(c, task - index + i);
        ISA_NAME(qattn__flash_merge)(&w->total, &part, u->rows);
    }
    write_unit(c, u, &w->total);
}

static void run_task(void *arg, int64_t task, int worker)
{
    const struct flash_call *const c = (const struct flash_call *)arg;
    const int64_t n = find_sequence(c, task);
    struct flash_unit u = { .s = seq_get(c->p, n) };
    struct flash_scratch w;
    const int64_t splits = count_splits(c, &u.s), local = task - c->first_task[n];
    map_scratch(c, c->scratch + (size_t)worker * c->scratch_bytes, &w);
    const bool parallel = splits_in_parallel(c, &u.s, c->first_task[n]);
    cut_unit(c, &u, parallel ? local / splits : local);
    if (!takes_decode_path(c, &u.s))
        ISA_NAME(qattn__flash_tile_begin)(c, &u, &w);
    if (parallel && splits > 1)
        run_one_split(c, &u, splits, local % splits, task, &w);
    else
        run_all_splits(c, &u, splits, &w);
}

/* ---------------------------------------------------------------- the row's functions */

size_t ISA_NAME(qattn__cpu_flash_workspace)(const struct problem *p)
{
    struct flash_call c;
    return (size_t)plan_call(&c, p, NULL);
}

int32_t ISA_NAME(qattn__cpu_flash)(const struct problem *p)
{
    struct flash_call c;
    plan_call(&c, p, p->workspace);
    int64_t tasks = 0;
    for (int64_t n = 0; n < p->n; n++) {
        const struct seq s = seq_get(p, n);
        c.first_task[n] = tasks;
        tasks += count_tasks(&c, &s, tasks);
    }
    c.first_task[p->n] = tasks;
    if (c.parallel_splits)
        for (int64_t t = 0; t < min64(tasks, c.max_tasks); t++)
            atomic_init(&c.arrived[t], 0);
    qattn__pool_run(c.workers, tasks, run_task, &c);
    return QATTN_OK;
}
