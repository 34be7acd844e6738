/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "bench_case.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct { const char *word; enum op op; uint32_t mask; } op_words[] = {
    { "flash", OP_FLASH_FORWARD, 0 },   { "gqa", OP_GQA_FORWARD, 0 },
    { "matmul", OP_MATMUL, 0 },         { "matmul_nt", OP_MATMUL_NT, 0 },
    { "softmax", OP_SOFTMAX, 0 },       { "softmax_causal", OP_SOFTMAX, QATTN_MASK_CAUSAL },
    { "merge", OP_MERGE, 0 },
};

static const struct { const char *word; int32_t dtype; } dtype_words[] = {
    { "f32", QATTN_DTYPE_F32 },       { "f16", QATTN_DTYPE_F16 },   { "bf16", QATTN_DTYPE_BF16 },
    { "e4m3fn", QATTN_DTYPE_E4M3FN }, { "e5m2", QATTN_DTYPE_E5M2 }, { "i8", QATTN_DTYPE_I8 },
};

static const struct { const char *word; int32_t layout; } layout_words[] = {
    { "bhsd", QATTN_LAYOUT_BHSD }, { "bshd", QATTN_LAYOUT_BSHD }, { "sbhd", QATTN_LAYOUT_SBHD },
};

/* "b2", "sq512", "page=16": a word, then a whole number, into an int64_t field. */
static const struct { const char *word; size_t offset; } number_words[] = {
    { "b", offsetof(struct bench_case, b) },         { "hq", offsetof(struct bench_case, hq) },
    { "h", offsetof(struct bench_case, hq) },        { "hkv", offsetof(struct bench_case, hkv) },
    { "sq", offsetof(struct bench_case, sq) },       { "sk", offsetof(struct bench_case, sk) },
    { "d", offsetof(struct bench_case, d) },         { "dv", offsetof(struct bench_case, dv) },
    { "m", offsetof(struct bench_case, sq) },        { "n", offsetof(struct bench_case, sk) },
    { "k", offsetof(struct bench_case, d) },         { "page=", offsetof(struct bench_case, page) },
    { "splits=", offsetof(struct bench_case, num_splits) },
    { "parts=", offsetof(struct bench_case, parts) }, { "decode=", offsetof(struct bench_case, decodes) },
};

#define SWITCH(name) { #name, offsetof(struct bench_case, name) }
static const struct { const char *word; size_t offset; } switch_words[] = {
    SWITCH(bias), SWITCH(keep), SWITCH(sinks), SWITCH(alibi), SWITCH(lse), SWITCH(scores),
    SWITCH(packed_q), SWITCH(packed_k), SWITCH(used_k), SWITCH(ragged), SWITCH(descale),
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---------------------------------------------------------------- words */

static bool find_dtype(const char *word, int32_t *dtype)
{
    for (size_t i = 0; i < COUNT(dtype_words); i++)
        if (!strcmp(word, dtype_words[i].word)) {
            *dtype = dtype_words[i].dtype;
            return true;
        }
    return false;
}

static bool find_layout(const char *word, int32_t *layout)
{
    for (size_t i = 0; i < COUNT(layout_words); i++)
        if (!strcmp(word, layout_words[i].word)) {
            *layout = layout_words[i].layout;
            return true;
        }
    return false;
}

static bool take_op(struct bench_case *c, const char *word)
{
    for (size_t i = 0; i < COUNT(op_words); i++)
        if (!strcmp(word, op_words[i].word)) {
            c->op = op_words[i].op;
            c->mask |= op_words[i].mask;
            return true;
        }
    return false;
}

static bool take_number(struct bench_case *c, const char *word)
{
    const size_t stem = strcspn(word, "0123456789");
    char *end;
    const size_t digits = strspn(word + stem, "0123456789");
    if (digits == 0 || digits > 12 || word[stem + digits])
        return false;
    for (size_t i = 0; i < COUNT(number_words); i++)
        if (stem == strlen(number_words[i].word) && !strncmp(word, number_words[i].word, stem)) {
            const int64_t value = strtoll(word + stem, &end, 10);
            memcpy((char *)c + number_words[i].offset, &value, sizeof value);
            return true;
        }
    return false;
}

static bool take_switch(struct bench_case *c, const char *word)
{
    const bool on = true;
    for (size_t i = 0; i < COUNT(switch_words); i++)
        if (!strcmp(word, switch_words[i].word)) {
            memcpy((char *)c + switch_words[i].offset, &on, sizeof on);
            return true;
        }
    return false;
}

static bool take_mask(struct bench_case *c, const char *word)
{
    if (!strcmp(word, "causal"))
        c->mask |= QATTN_MASK_CAUSAL;
    else if (!strcmp(word, "top_left"))
        c->mask |= QATTN_MASK_TOP_LEFT;
    else if (!strcmp(word, "invariant"))
        c->flags |= QATTN_FLAG_BATCH_INVARIANT;
    else if (!strcmp(word, "3xtf32"))
        c->precision = QATTN_PRECISION_3XTF32;
    else if (!strcmp(word, "tf32"))
        c->precision = QATTN_PRECISION_TF32;
    else if (sscanf(word, "left=%" SCNd64, &c->window_left) == 1
             || sscanf(word, "right=%" SCNd64, &c->window_right) == 1)
        c->mask |= QATTN_MASK_WINDOW;
    else
        return sscanf(word, "softcap=%lf", &c->softcap) == 1;
    return true;
}

static bool take_setting(struct bench_case *c, const char *word)
{
    if (!strncmp(word, "kv=", 3))
        return find_dtype(word + 3, &c->kv_dtype);
    if (!strncmp(word, "out=", 4))
        return find_dtype(word + 4, &c->out_dtype);
    if (!strncmp(word, "layout=", 7))
        return find_layout(word + 7, &c->layout);
    return find_dtype(word, &c->dtype);
}

static bool take_word(struct bench_case *c, const char *word)
{
    return take_number(c, word) || take_switch(c, word) || take_mask(c, word) || take_setting(c, word);
}

/* ---------------------------------------------------------------- a line */

static void resolve_defaults(struct bench_case *c)
{
    const bool eight_bits = qattn__dtype_size(c->dtype) == 1;
    if (c->hkv < 0)
        c->hkv = c->hq;
    if (c->dv < 0)
        c->dv = c->d;
    if (c->sk < 0)
        c->sk = c->sq;
    if (!c->kv_dtype)
        c->kv_dtype = c->dtype;
    if (!c->out_dtype)
        c->out_dtype = eight_bits ? QATTN_DTYPE_F32 : c->dtype;
    if (c->op == OP_MERGE && !c->parts)
        c->parts = 2;
}

bool bench_case_parse(struct bench_case *out, const char *line, char *why, size_t cap)
{
    struct bench_case c = { .b = 1, .hq = 1, .hkv = -1, .sq = 1, .sk = -1, .d = 64, .dv = -1,
                            .window_left = -1, .window_right = -1,
                            .layout = QATTN_LAYOUT_BHSD, .op = OP_COUNT };
    char copy[sizeof c.text], *rest = NULL;
    if (strlen(line) >= sizeof copy) {
        snprintf(why, cap, "line longer than %zu characters", sizeof copy - 1);
        return false;
    }
    strcpy(copy, line);
    for (char *word = strtok_r(copy, " \t\r\n", &rest); word; word = strtok_r(NULL, " \t\r\n", &rest)) {
        if (!(c.op == OP_COUNT ? take_op(&c, word) : take_word(&c, word))) {
            snprintf(why, cap, "unknown word '%s'%s", word,
                     c.op == OP_COUNT ? ": a case begins with its operation" : "");
            return false;
        }
        if (c.text[0])
            strcat(c.text, " ");
        strcat(c.text, word);
    }
    if (c.op == OP_COUNT || !c.dtype) {
        snprintf(why, cap, "no %s given", c.op == OP_COUNT ? "operation" : "element type");
        return false;
    }
    if ((c.ragged && !c.packed_q) || (c.decodes && (!c.packed_q || !c.page)) || (c.ragged && c.decodes)) {
        snprintf(why, cap, "ragged needs packed_q; decode= needs packed_q and page=; not both");
        return false;
    }
    resolve_defaults(&c);
    *out = c;
    return true;
}

const char *bench_case_op_word(const struct bench_case *c)
{
    for (size_t i = 0; i < COUNT(op_words); i++)
        if (c->op == op_words[i].op)
            return op_words[i].word;
    return "?";
}

/* ---------------------------------------------------------------- work */

/* n, n/2 .. n/32 in turn, at least 1 (0 stays 0). */
static int64_t ragged_length(int64_t longest, int64_t n)
{
    const int64_t length = longest >> n % 6;
    return length ? length : longest > 0;
}

int64_t bench_case_rows(const struct bench_case *c, int64_t n)
{
    return c->ragged ? ragged_length(c->sq, n) : n < c->decodes ? 1 : c->sq;
}

int64_t bench_case_keys(const struct bench_case *c, int64_t n)
{
    if (c->ragged)
        return ragged_length(c->sk, n);
    if (c->decodes && n >= c->decodes)
        return c->sq < c->sk ? c->sq : c->sk;
    return c->used_k ? c->sk - n * 37 % (c->sk / 2 + 1) : c->sk;
}

/* Pairs of query and key that one head of a sequence with sq rows and sk keys sees. */
static double visible_pairs(const struct bench_case *c, int64_t sq, int64_t sk)
{
    const bool causal = c->mask & QATTN_MASK_CAUSAL, window = c->mask & QATTN_MASK_WINDOW;
    if (!causal && !window)
        return (double)sq * (double)sk;
    if (!window && sq == sk)
        return 0.5 * (double)sq * (double)sk;
    const int64_t offset = c->mask & QATTN_MASK_TOP_LEFT ? 0 : sk - sq;
    double pairs = 0;
    for (int64_t i = 0; i < sq; i++) {
        const int64_t pos = i + offset;
        int64_t first = 0, last = sk - 1;
        if (causal && pos < last)
            last = pos;
        if (window && c->window_right >= 0 && pos + c->window_right < last)
            last = pos + c->window_right;
        if (window && c->window_left >= 0 && pos - c->window_left > first)
            first = pos - c->window_left;
        pairs += last >= first ? (double)(last - first + 1) : 0.0;
    }
    return pairs;
}

static double size_of(int32_t dtype)
{
    return (double)qattn__dtype_size(dtype);
}

static struct bench_work attention_work(const struct bench_case *c)
{
    const double width = (double)(c->d + c->dv);
    struct bench_work w = { 0, 0 };
    for (int64_t n = 0; n < c->b; n++) {
        const int64_t keys = bench_case_keys(c, n);
        w.flop += 2 * (double)c->hq * visible_pairs(c, bench_case_rows(c, n), keys) * width;
        w.bytes += (double)c->hkv * (double)keys * width * size_of(c->kv_dtype);
    }
    return w;
}

struct bench_work bench_case_work(const struct bench_case *c)
{
    const double heads = (double)c->b * (double)c->hq, kv_heads = (double)c->b * (double)c->hkv;
    const double sq = (double)c->sq, sk = (double)c->sk, d = (double)c->d, dv = (double)c->dv;
    struct bench_work w = { 0, 0 };
    switch (c->op) {
    case OP_MATMUL:
    case OP_MATMUL_NT:                       /* A [M,K], B [N,K], C [M,N] */
        w.flop = 2 * heads * sq * sk * d;
        w.bytes = (heads * sq + kv_heads * sk) * d * size_of(c->dtype)
                + heads * sq * sk * size_of(c->out_dtype);
        break;
    case OP_SOFTMAX:
        w.bytes = heads * sq * sk * (size_of(c->dtype) + size_of(c->out_dtype));
        break;
    case OP_MERGE:
        w.bytes = heads * sq * dv * ((double)c->parts * size_of(c->dtype) + size_of(c->out_dtype));
        break;
    default:
        return attention_work(c);
    }
    return w;
}
