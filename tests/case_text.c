/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* A case as a line of words and back: tests/cases.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "support.h"

#define ENTRY(name, initial) { #name, offsetof(struct attn_case, name), initial },
static const struct word { const char *name; size_t offset; int64_t initial; } shape_words[] = {
    ATTN_CASE_SHAPE(ENTRY)
}, words[] = {
    ATTN_CASE_WORDS(ENTRY)
};
#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static const struct { const char *name; enum op op; } op_names[] = {
    { "flash", OP_FLASH_FORWARD }, { "gqa", OP_GQA_FORWARD }, { "softmax", OP_SOFTMAX },
};

static int64_t *field(struct attn_case *c, const struct word *w)
{
    return (int64_t *)(void *)((char *)c + w->offset);
}

static int64_t value_of(const struct attn_case *c, const struct word *w)
{
    int64_t value;
    memcpy(&value, (const char *)c + w->offset, sizeof value);
    return value;
}

struct attn_case attn_case_default(enum op op, int32_t q_dtype, int32_t kv_dtype, int32_t o_dtype)
{
    struct attn_case c = { .op = op, .q_dtype = q_dtype, .kv_dtype = kv_dtype, .o_dtype = o_dtype };
    for (size_t i = 0; i < COUNT(shape_words); i++)
        *field(&c, &shape_words[i]) = shape_words[i].initial;
    for (size_t i = 0; i < COUNT(words); i++)
        *field(&c, &words[i]) = words[i].initial;
    return c;
}

static size_t append(char *buf, size_t cap, size_t at, const char *text)
{
    const int n = snprintf(buf + at, cap - at, "%s%s", at ? " " : "", text);
    return at + (size_t)n < cap ? at + (size_t)n : cap - 1;
}

void attn_case_text(const struct attn_case *c, char *buf, size_t cap)
{
    char word[64];
    size_t at = 0;
    for (size_t i = 0; i < COUNT(op_names); i++)
        if (op_names[i].op == c->op)
            at = append(buf, cap, at, op_names[i].name);
    at = append(buf, cap, at, format_name(c->q_dtype));
    if (c->kv_dtype != c->q_dtype) {
        snprintf(word, sizeof word, "kv=%s", format_name(c->kv_dtype));
        at = append(buf, cap, at, word);
    }
    if (c->o_dtype != c->q_dtype) {
        snprintf(word, sizeof word, "out=%s", format_name(c->o_dtype));
        at = append(buf, cap, at, word);
    }
    for (size_t i = 0; i < COUNT(shape_words); i++) {
        if (value_of(c, &shape_words[i]) < 0)
            continue;
        snprintf(word, sizeof word, "%s%lld", shape_words[i].name, (long long)value_of(c, &shape_words[i]));
        at = append(buf, cap, at, word);
    }
    for (size_t i = 0; i < COUNT(words); i++) {
        const int64_t value = value_of(c, &words[i]);
        if (value == words[i].initial)
            continue;
        snprintf(word, sizeof word, value == 1 ? "%s" : "%s=%lld", words[i].name, (long long)value);
        at = append(buf, cap, at, word);
    }
    if (c->scale != 0) {
        snprintf(word, sizeof word, "scale=%.9g", c->scale);
        at = append(buf, cap, at, word);
    }
    if (c->softcap != 0) {
        snprintf(word, sizeof word, "softcap=%.9g", c->softcap);
        append(buf, cap, at, word);
    }
}

static bool take_shape(struct attn_case *c, const char *word)
{
    const size_t stem = strcspn(word, "0123456789");
    for (size_t i = 0; i < COUNT(shape_words); i++)
        if (word[stem] && strlen(shape_words[i].name) == stem && strncmp(word, shape_words[i].name, stem) == 0) {
            *field(c, &shape_words[i]) = strtoll(word + stem, NULL, 10);
            return true;
        }
    return false;
}

static bool take_word(struct attn_case *c, const char *word)
{
    const size_t stem = strcspn(word, "=");
    for (size_t i = 0; i < COUNT(words); i++)
        if (strlen(words[i].name) == stem && strncmp(word, words[i].name, stem) == 0) {
            *field(c, &words[i]) = word[stem] ? strtoll(word + stem + 1, NULL, 10) : 1;
            return true;
        }
    if (sscanf(word, "scale=%lf", &c->scale) == 1 || sscanf(word, "softcap=%lf", &c->softcap) == 1)
        return true;
    if (strncmp(word, "kv=", 3) == 0)
        return (c->kv_dtype = format_parse(word + 3)) != 0;
    if (strncmp(word, "out=", 4) == 0)
        return (c->o_dtype = format_parse(word + 4)) != 0;
    return false;
}

bool attn_case_parse(struct attn_case *c, const char *line)
{
    char copy[512], *save = NULL;
    snprintf(copy, sizeof copy, "%s", line);
    const char *const op_word = strtok_r(copy, " ", &save), *const dtype_word = strtok_r(NULL, " ", &save);
    const int32_t dtype = dtype_word ? format_parse(dtype_word) : 0;
    bool known = false;
    for (size_t i = 0; op_word && i < COUNT(op_names); i++)
        if (strcmp(op_names[i].name, op_word) == 0) {
            *c = attn_case_default(op_names[i].op, dtype, dtype, dtype);
            known = true;
        }
    if (!known || !dtype)
        return false;
    for (const char *word = strtok_r(NULL, " ", &save); word; word = strtok_r(NULL, " ", &save))
        if (!take_shape(c, word) && !take_word(c, word))
            return false;
    return true;
}
