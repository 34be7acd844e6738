/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Sequences and values of a case, by index. */
#include "attn_logical.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "support.h"

/* ---------------------------------------------------------------- sequences */

int64_t attn_dv(const struct attn_case *c) { return c->dv < 0 ? c->d : c->dv; }
int64_t attn_max_pages(const struct attn_case *c) { return c->page ? (c->sk + c->page - 1) / c->page : 0; }
int64_t attn_capacity_k(const struct attn_case *c) { return c->page ? attn_max_pages(c) * c->page : c->sk; }
bool attn_window(const struct attn_case *c) { return c->left != -2 || c->right != -2; }

static uint64_t key5(const struct attn_case *c, uint64_t tag, uint64_t a, uint64_t b, uint64_t d)
{
    return hash64(hash64(hash64(hash64((uint64_t)c->seed, tag), a), b), d);
}

static int64_t clamp(int64_t x, int64_t lo, int64_t hi) { return x < lo ? lo : x > hi ? hi : x; }

/* Length of a packed sequence of at most `most`: the first is full, then decode rows, empty ones, anything. */
static int64_t packed_length(const struct attn_case *c, uint64_t tag, int64_t n, int64_t most)
{
    const uint64_t bits = key5(c, tag, (uint64_t)n, 0, 0);
    if (n == 0)
        return most;
    switch (bits % 5) {
    case 0: case 1: return most > 1 ? 1 : most;
    case 2:         return 0;
    case 3:         return most;
    default:        return (int64_t)((bits >> 8) % (uint64_t)(most + 1));
    }
}

/* What seqused holds for a sequence of `most` rows. */
static int64_t used_length(const struct attn_case *c, uint64_t tag, int64_t kind, int64_t n, int64_t most)
{
    const uint64_t bits = key5(c, tag, (uint64_t)n, 1, 0);
    switch (kind) {
    case USED_SOME:         return (int64_t)(bits % (uint64_t)(most + 1));
    case USED_ZERO_OR_ALL:  return n % 2 ? most : 0;
    case USED_OUT_OF_RANGE: return n % 3 == 0 ? most + 5 : n % 3 == 1 ? -3 : INT32_MAX;
    case USED_ZERO:         return 0;
    case USED_MOST:         return most - most / 5;
    default:                return most;
    }
}

void attn_sequences(const struct attn_case *c, struct sequence *out)
{
    for (int64_t n = 0; n < c->b; n++) {
        struct sequence *s = &out[n];
        *s = (struct sequence){ .id = (uint64_t)n };
        s->slot_q = c->packed_q ? packed_length(c, 'Q', n, c->sq) : c->sq;
        s->rows = c->max_q && c->max_q < s->slot_q ? c->max_q : s->slot_q;
        s->used_q = (int32_t)used_length(c, 'U', c->used_q, n, s->rows);
        s->len_q = c->used_q ? clamp(s->used_q, 0, s->rows) : s->rows;

        s->slot_k = c->packed_k ? packed_length(c, 'K', n, c->sk) : attn_capacity_k(c);
        const int64_t keys = c->max_k && c->max_k < s->slot_k ? c->max_k : s->slot_k;
        /* a paged case counts its keys by seqused_k alone: all is sk, not the last page's end */
        const int64_t most = c->page && c->used_k == USED_ALL ? c->sk : keys;
        s->used_k = (int32_t)used_length(c, 'V', c->used_k, n, most);
        s->len_k = c->used_k || c->page ? clamp(s->used_k, 0, keys) : keys;

        s->q_off = c->offset == 2 ? (int32_t)(c->q_off + 3 * n - 2) : INT32_MIN;
        s->offset = c->top_left ? 0 : c->offset == 2 ? s->q_off : c->offset ? c->q_off : s->len_k - s->len_q;
    }
}

double attn_scale(const struct attn_case *c)
{
    if (c->scale != 0 || c->as_given)
        return (float)c->scale;
    if (c->op == OP_SOFTMAX)
        return 1.0;
    return c->d ? 1.0 / sqrt((double)c->d) : 1.0;
}

/* ---------------------------------------------------------------- values */

uint64_t attn_q_key(const struct attn_case *c, uint64_t id, int64_t h, int64_t i)
{
    return key5(c, 'q', id, c->share & 4 ? 0 : (uint64_t)h, (uint64_t)i);
}

uint64_t attn_k_key(const struct attn_case *c, uint64_t id, int64_t h, int64_t j)
{
    return key5(c, 'k', c->share & 1 ? 0 : id, c->share & 2 ? 0 : (uint64_t)h, (uint64_t)j);
}

uint64_t attn_v_key(const struct attn_case *c, uint64_t id, int64_t h, int64_t j)
{
    return key5(c, 'v', c->share & 1 ? 0 : id, c->share & 2 ? 0 : (uint64_t)h, (uint64_t)j);
}

int32_t attn_bias_dtype(const struct attn_case *c)
{
    return c->bias_type == 1 ? QATTN_DTYPE_F16 : c->bias_type == 2 ? QATTN_DTYPE_BF16 : QATTN_DTYPE_F32;
}

static uint64_t collapse(int64_t axes, int64_t bit, uint64_t index) { return axes & bit ? index : 0; }

/* Is key j one of those that BIAS_HIDES_BAD and KEEP_HIDES_BAD hide? All that `nan` may spoil, in any sequence. */
static bool hides_bad(const struct attn_case *c, int64_t j)
{
    return j % 7 == 6 || j >= attn_capacity_k(c) - 2;
}

double attn_bias(const struct attn_case *c, uint64_t id, int64_t h, int64_t i, int64_t j)
{
    const int32_t dtype = attn_bias_dtype(c);
    const uint64_t row = hash64(collapse(c->bias, 4, (uint64_t)i), collapse(c->bias, 8, (uint64_t)j));
    const uint64_t key = key5(c, 'b', collapse(c->bias, 1, id), collapse(c->bias, 2, (uint64_t)h), row);
    switch (c->bias_kind) {
    case BIAS_SOME_HIDDEN:
        if (key % 3 == 0)
            return -INFINITY;
        break;
    case BIAS_SOME_LOWEST:
        if (key % 3 == 0)
            return -format_largest(dtype);
        break;
    case BIAS_DEAD_ROWS:
        if (collapse(c->bias, 4, (uint64_t)i) % 5 == 3)
            return -INFINITY;
        break;
    case BIAS_HIDES_BAD:
        if (c->bias & 8 && hides_bad(c, j))
            return -INFINITY;
        break;
    case BIAS_ODD:
        if (key % 97 < 2)
            return key % 97 ? (double)INFINITY : (double)NAN;
        break;
    case BIAS_LOWEST_ROWS:
        if (collapse(c->bias, 4, (uint64_t)i) % 3 == 2)
            return -format_largest(dtype);
        break;
    default:
        break;
    }
    return *normal_row(dtype, key);
}

bool attn_keep(const struct attn_case *c, uint64_t id, int64_t h, int64_t i, int64_t j)
{
    const uint64_t row = hash64(collapse(c->keep, 4, (uint64_t)i), collapse(c->keep, 8, (uint64_t)j));
    const uint64_t key = key5(c, 'm', collapse(c->keep, 1, id), collapse(c->keep, 2, (uint64_t)h), row);
    switch (c->keep_kind) {
    case KEEP_DEAD_ROWS: return collapse(c->keep, 4, (uint64_t)i) % 5 != 3 && key % 4 != 0;
    case KEEP_NONE:      return false;
    case KEEP_HIDES_BAD: return !(c->keep & 8 && hides_bad(c, j));
    case KEEP_TILES:
        return hash64(collapse(c->keep, 4, (uint64_t)i / 64), collapse(c->keep, 8, (uint64_t)j / 64)) % 5 < 2;
    default:             return key % 4 != 0;
    }
}

double attn_sink(const struct attn_case *c, int64_t h)
{
    static const double odd[4] = { 0, -INFINITY, INFINITY, NAN };
    if (c->sinks == 2 && h % 4)
        return odd[h % 4];
    return *normal_row(QATTN_DTYPE_F32, key5(c, 's', (uint64_t)h, 0, 0)) * 2;
}

double attn_slope(const struct attn_case *c, uint64_t id, int64_t h)
{
    static const double odd[4] = { 0, INFINITY, NAN, -INFINITY };
    if (c->odd_slopes && h % 4)
        return odd[h % 4];
    const uint64_t key = key5(c, 'a', c->alibi >= 2 ? id : 0, (uint64_t)h, 0);
    return (float)ldexp((c->falling && h % 2 ? -1 : 1) * (0.02 + 0.2 * (double)(key % 64) / 64), (int)c->steep);
}

static double odd_descale(const struct attn_case *c, uint64_t index, double value)
{
    switch (c->odd_scale) {
    case ODD_ZERO:     return 0;
    case ODD_NEGATIVE: return -value;
    case ODD_MIXED:    return index % 3 == 0 ? 0 : index % 3 == 1 ? -value : value;
    case ODD_NAN:      return index % 3 == 0 ? (double)NAN : value;
    default:           return value;
    }
}

double attn_descale(const struct attn_case *c, char which, int64_t kind, uint64_t id, int64_t h, int64_t row, int64_t d)
{
    const int64_t kv_head = which == 'q' && c->hkv ? h / (c->hq / c->hkv) : h;
    uint64_t index;
    switch (kind) {
    case SCALE_NONE:          return 1.0;
    case SCALE_ONE:           index = 0; break;
    case SCALE_HEAD:          index = key5(c, 1, (uint64_t)kv_head, 0, 0); break;
    case SCALE_SEQ_HEAD:      index = key5(c, 2, id, (uint64_t)h, 0); break;
    case SCALE_SEQ_KVHEAD_D:  index = key5(c, 3, id, (uint64_t)kv_head, (uint64_t)d); break;
    case SCALE_ROW_D:         index = key5(c, 4, hash64(id, (uint64_t)d), (uint64_t)h, (uint64_t)row); break;
    default:                  index = key5(c, 5, id, (uint64_t)h, (uint64_t)row); break;
    }
    const double unit = c->kv_dtype == QATTN_DTYPE_I8 ? 0x1p-5 : 1.0;
    const double value = (float)(unit * (0.25 + (double)(hash64(index, (uint64_t)which) % 1024) / 512));
    const bool odd = c->odd_of & (which == 'q' ? 1 : which == 'k' ? 2 : 4);
    return odd ? odd_descale(c, index, value) : value;
}

/* ---------------------------------------------------------------- bad values */

bool attn_bad_key(const struct attn_case *c, const struct sequence *s, int64_t j)
{
    switch (c->nan) {
    case NAN_LAST_KEYS:    return j < s->len_k && j >= s->len_k - 2;
    case NAN_LAST_VALUE:
    case MAX_LAST_VALUE:
    case MAX_LAST_KEY:
    case ZERO_QUERIES_MAX_KEY: return j < s->len_k && j == s->len_k - 1;
    case NAN_FIRST_VALUE:  return j < s->len_k && j == 0;
    case OVERFLOW_KEY:
    case INF_KEY_NAN_VALUE:      /* one that hides_bad knows */
        return j < s->len_k && j == (s->len_k < 14 ? s->len_k - 1 : s->len_k / 14 * 7 - 1);
    case NAN_SEVENTH_KEYS: return j < s->len_k && j % 7 == 6;
    case NAN_ONE_VALUE:
    case NAN_ONE_KEY:
    case INF_ONE_KEY:      return s->len_k > 0 && j == s->len_k / 2;
    default:               return false;
    }
}

static double bad_value(const struct attn_case *c, int64_t j)
{
    static const double bad[4] = { NAN, INFINITY, -INFINITY, 3e38 };
    return c->zero_bad ? 0.0 : format_round(c->kv_dtype, bad[j % 4]);
}

void attn_spoil(const struct attn_case *c, const struct sequence *s, char which, int64_t h, int64_t row,
                int64_t width, double *values)
{
    if (which == 'q') {
        if (c->nan == NAN_ONE_QUERY && row == 0 && h == 0 && width > 0)
            values[width / 2] = NAN;
        else if (c->nan == ZERO_QUERIES_MAX_KEY || (c->nan == ZERO_QUERIES && row % 2 == 0))
            memset(values, 0, (size_t)width * sizeof *values);
        else if (c->nan == OVERFLOW_KEY && width > 0)
            values[0] = format_round(c->q_dtype, 1e20);
        return;
    }
    if (c->nan == OVERFLOW_KEY && which == 'k' && width > 0)
        values[0] = attn_bad_key(c, s, row) ? format_round(c->kv_dtype, -1e30) : 0;
    if (!attn_bad_key(c, s, row))
        return;
    if (c->nan == NAN_LAST_KEYS || c->nan == NAN_SEVENTH_KEYS)
        for (int64_t d = 0; d < width; d++)
            values[d] = bad_value(c, which == 'k' ? row : row + 1);
    else if (which == 'v' && (c->nan == NAN_LAST_VALUE || c->nan == NAN_FIRST_VALUE || c->nan == INF_KEY_NAN_VALUE ||
                              c->nan == OVERFLOW_KEY))
        for (int64_t d = 0; d < width; d++)
            values[d] = c->zero_bad ? 0.0 : (double)NAN;
    else if (c->nan == NAN_ONE_VALUE && which == 'v')
        for (int64_t d = 0; d < width; d += 3)
            values[d] = bad_value(c, d / 3);
    else if (c->nan == NAN_ONE_KEY && which == 'k' && h == 0 && width > 0)
        values[width - 1] = NAN;
    else if ((c->nan == INF_ONE_KEY || c->nan == INF_KEY_NAN_VALUE) && which == 'k' && width > 0)
        values[0] = c->zero_bad ? 0.0 : INFINITY;
    else if ((c->nan == MAX_LAST_VALUE && which == 'v') ||
             ((c->nan == ZERO_QUERIES_MAX_KEY || c->nan == MAX_LAST_KEY) && which == 'k'))
        for (int64_t d = 0; d < width; d++)
            values[d] = c->zero_bad ? 0.0 : d % 2 ? -format_largest(c->kv_dtype) : format_largest(c->kv_dtype);
}
