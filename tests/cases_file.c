/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "cases_file.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qattn.h"

/* Every parser returns 0, or -1 for text that is not wholly of its form. */

static int parse_double(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end); /* nan, inf, -inf included */
    return end == text || *end ? -1 : 0;
}

static int parse_int64(const char *text, int64_t *out)
{
    char *end;
    *out = strtoll(text, &end, 10);
    return end == text || *end ? -1 : 0;
}

/* Cuts text at `separator`; at most max parts. How many, or -1. */
static int split(char *text, char separator, char *parts[], int max)
{
    int n = 0;
    for (char *at = text; at; n++) {
        if (n == max)
            return -1;
        parts[n] = at;
        at = strchr(at, separator);
        if (at)
            *at++ = '\0';
    }
    return n;
}

/* Exactly n integers, "*" standing for CASE_ALL. */
static int parse_ints(char *text, int64_t *out, int n)
{
    char *parts[8];
    if (split(text, ',', parts, 8) != n)
        return -1;
    for (int i = 0; i < n; i++) {
        if (strcmp(parts[i], "*") == 0)
            out[i] = CASE_ALL;
        else if (parse_int64(parts[i], &out[i]) != 0)
            return -1;
    }
    return 0;
}

static int parse_list(char *text, struct case_list *out)
{
    char *parts[CASE_MAX_LIST];
    out->count = split(text, ',', parts, CASE_MAX_LIST);
    for (int i = 0; i < out->count; i++)
        if (parse_double(parts[i], &out->at[i]) != 0)
            return -1;
    return out->count < 1 ? -1 : 0;
}

/* "*,*,392,*:-3.4e38" */
static int parse_patch(char *text, struct case_patch *out)
{
    char *parts[2];
    out->set = true;
    if (split(text, ':', parts, 2) != 2 || parse_ints(parts[0], out->idx, 4) != 0)
        return -1;
    return parse_double(parts[1], &out->value);
}

static int parse_flag(const char *text, bool *out)
{
    *out = strcmp(text, "1") == 0;
    return *out ? 0 : -1;
}

/* Index of text in names (ended by NULL), or -1. */
static int find_word(const char *text, const char *const names[])
{
    for (int i = 0; names[i]; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    return -1;
}

static int parse_dtype(const char *text, int32_t *out)
{
    static const char *const names[] = { "fp32", "fp16", "bf16", "u8", NULL };
    static const int32_t values[] = { QATTN_DTYPE_F32, QATTN_DTYPE_F16, QATTN_DTYPE_BF16,
                                      QATTN_DTYPE_U8 };
    const int i = find_word(text, names);
    *out = i < 0 ? 0 : values[i];
    return i < 0 ? -1 : 0;
}

static int parse_op(struct test_case *c, const char *text)
{
    static const char *const names[] = { "attn_fwd",       "attn_bwd",
                                         "decode_append",  "decode_paged",
                                         "prefill_paged",  "matmul_nt",
                                         "softmax_causal", NULL };
    static const enum case_op values[] = { CASE_ATTN_FWD,      CASE_ATTN_BWD, CASE_APPEND,
                                           CASE_PAGED,         CASE_PAGED,    CASE_MATMUL_NT,
                                           CASE_SOFTMAX_CAUSAL };
    const int i = find_word(text, names);
    if (i < 0)
        return -1;
    c->op = values[i];
    snprintf(c->op_name, sizeof c->op_name, "%s", text);
    return 0;
}

static int parse_page_table(struct test_case *c, char *text)
{
    if (strchr(text, ';') || parse_list(text, &c->page_table) != 0)
        return -1; /* one sequence is all the file has */
    c->page_columns = c->page_table.count;
    return 0;
}

static int parse_checks(struct test_case *c, char *text)
{
    char *parts[CASE_MAX_CHECKS];
    c->num_checks = split(text, ',', parts, CASE_MAX_CHECKS);
    for (int i = 0; i < c->num_checks; i++) {
        char *two[2] = { NULL, NULL };
        if (split(parts[i], ':', two, 2) < 1)
            return -1;
        snprintf(c->checks[i].name, sizeof c->checks[i].name, "%s", two[0]);
        snprintf(c->checks[i].argument, sizeof c->checks[i].argument, "%s", two[1] ? two[1] : "");
    }
    return c->num_checks < 1 ? -1 : 0;
}

/* "Sq:17,Sk:129", "Sk:1..130", "window:0:0", "causal:top_left" */
static int parse_also(struct test_case *c, char *text)
{
    char *parts[CASE_MAX_ALSO];
    c->num_also = split(text, ',', parts, CASE_MAX_ALSO);
    for (int i = 0; i < c->num_also; i++) {
        struct case_also *const a = &c->also[i];
        char *two[3];
        const int n = split(parts[i], ':', two, 3);
        if (n < 2)
            return -1;
        snprintf(a->field, sizeof a->field, "%s", two[0]);
        if (strcmp(two[0], "causal") == 0) {
            a->first = a->last =
                strcmp(two[1], "top_left") == 0 ? CASE_TOP_LEFT : CASE_BOTTOM_RIGHT;
            continue;
        }
        char *const dots = strstr(two[1], "..");
        if (dots)
            *dots = '\0';
        if (parse_int64(two[1], &a->first) != 0)
            return -1;
        a->last = a->first;
        if (dots ? parse_int64(dots + 2, &a->last) : n == 3 ? parse_int64(two[2], &a->last) : 0)
            return -1;
    }
    return c->num_also < 1 ? -1 : 0;
}

/* T.key=value */
static int parse_tensor_word(struct case_tensor *t, const char *key, char *value)
{
    if (strcmp(key, "strides") == 0) {
        t->strided = true;
        return parse_ints(value, t->stride, 4);
    }
    if (strcmp(key, "dist") == 0) {
        t->is_const = strcmp(value, "const") == 0;
        return t->is_const || strcmp(value, "randn") == 0 ? 0 : -1;
    }
    if (strcmp(key, "std") == 0)
        return parse_double(value, &t->std);
    if (strcmp(key, "add") == 0)
        return parse_double(value, &t->add);
    if (strcmp(key, "value") == 0)
        return parse_double(value, &t->value);
    return strcmp(key, "patch") == 0 ? parse_patch(value, &t->patch) : -1;
}

static int parse_mask_word(struct case_mask *m, const char *key, char *value)
{
    static const char *const kinds[] = { "none", "bool", "add", NULL };
    static const char *const patterns[] = { "tril", "rect", "lens", "random", "cols_value", NULL };
    static const char *const keys[] = { "kind",    "dtype", "shape", "strides", "pattern",
                                        "rows",    "cols",  "value", "std",     "q_lens",
                                        "kv_lens", "patch", NULL };
    int word;
    switch (find_word(key, keys)) {
    case 0:
        word = find_word(value, kinds);
        m->kind = (enum case_mask_kind)(word < 0 ? 0 : word);
        return -(word < 0);
    case 1: return parse_dtype(value, &m->dtype);
    case 2: return parse_ints(value, m->shape, 4);
    case 3: m->strided = true; return parse_ints(value, m->stride, 4);
    case 4:
        word = find_word(value, patterns);
        m->pattern = (enum case_pattern)(word < 0 ? 0 : word);
        return -(word < 0);
    case 5: return parse_ints(value, m->rows, 2);
    case 6: return parse_ints(value, m->cols, 2);
    case 7: return parse_double(value, &m->value);
    case 8: return parse_double(value, &m->std);
    case 9: return parse_list(value, &m->q_lens);
    case 10: return parse_list(value, &m->kv_lens);
    case 11: return parse_patch(value, &m->patch);
    default: return -1;
    }
}

/* Words about how a tensor of an operation that is not offered lies: read, not used. */
static bool is_noted_word(const struct test_case *c, const char *key)
{
    static const char *const keys[] = { "do.strides",  "do.offset",       "do.dist",
                                        "do.value",    "k_cache.strides", "v_cache.strides",
                                        "cache_slots", "cache_len",       "want_grads",
                                        NULL };
    return (c->op == CASE_ATTN_BWD || c->op == CASE_APPEND) && find_word(key, keys) >= 0;
}

static int parse_number_word(struct test_case *c, const char *key, char *value)
{
    const struct {
        const char *key;
        int64_t *out;
    } numbers[] = {
        { "page_size", &c->page_size },
        { "pool_pages", &c->pool_pages },
        { "page_stride", &c->page_stride },
        { "repeat", &c->repeat },
        { "bytes", &c->bytes },
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (strcmp(key, numbers[i].key) == 0)
            return parse_int64(value, numbers[i].out);
    return -1;
}

static int parse_word(struct test_case *c, const char *key, char *value)
{
    static const char *const causals[] = { "none", "bottom_right", "top_left", NULL };
    static const char *const statuses[] = { "ok", "reject", "ok_or_reject", NULL };
    static const char *const tensors[] = { "q", "k", "v", "o", "a", "b", NULL };
    static const char *const devices[] = { "device", "current_device",
                                           "stream", "producer_delay_ms",
                                           "graph",  NULL };
    int64_t pair[2], shape[7];
    int word;

    if (is_noted_word(c, key))
        return 0;
    const char *const dot = strchr(key, '.');
    if (dot) {
        char name[8];
        snprintf(name, sizeof name, "%.*s", (int)(dot - key), key);
        if (strcmp(name, "mask") == 0)
            return parse_mask_word(&c->mask, dot + 1, value);
        word = find_word(name, tensors);
        return word < 0
                   ? -1
                   : parse_tensor_word(&c->tensors[word < 4 ? word : word - 4], dot + 1, value);
    }
    if (find_word(key, devices) >= 0) {
        c->device_only_words = true;
        return 0;
    }
    if (strcmp(key, "op") == 0)
        return parse_op(c, value);
    if (strcmp(key, "shape") == 0) {
        int64_t *const to[7] = {
            &c->b, &c->hq, &c->hkv, &c->seqlen_q, &c->seqlen_k, &c->d, &c->dv
        };
        if (parse_ints(value, shape, 7) != 0)
            return -1;
        for (int i = 0; i < 7; i++)
            *to[i] = shape[i];
        return 0;
    }
    if (strcmp(key, "dtype") == 0)
        return parse_dtype(value, &c->dtype);
    if (strcmp(key, "causal") == 0 || strcmp(key, "status") == 0) {
        word = find_word(value, key[0] == 'c' ? causals : statuses);
        if (key[0] == 'c')
            c->causal = word < 0 ? CASE_FULL : (enum case_causal)word;
        else
            c->status = word < 0 ? CASE_OK : (enum case_status)word;
        return -(word < 0);
    }
    if (strcmp(key, "window") == 0) {
        if (parse_ints(value, pair, 2) != 0)
            return -1;
        c->window = true;
        c->window_left = pair[0];
        c->window_right = pair[1];
        return 0;
    }
    if (strcmp(key, "softcap") == 0)
        return parse_double(value, &c->softcap);
    if (strcmp(key, "scale") == 0)
        return parse_double(value, &c->scale);
    if (strcmp(key, "sink") == 0)
        return parse_list(value, &c->sink);
    if (strcmp(key, "q_lens") == 0)
        return parse_list(value, &c->q_lens);
    if (strcmp(key, "kv_lens") == 0)
        return parse_list(value, &c->kv_lens);
    if (strcmp(key, "page_table") == 0)
        return parse_page_table(c, value);
    if (strcmp(key, "interleaved_kv") == 0)
        return parse_flag(value, &c->interleaved_kv);
    if (strcmp(key, "poison") == 0 || strcmp(key, "poison_output") == 0) {
        c->poison = c->poison || key[6] == '\0';
        return 0; /* every run poisons its output anyway */
    }
    if (strcmp(key, "checks") == 0)
        return parse_checks(c, value);
    if (strcmp(key, "also") == 0)
        return parse_also(c, value);
    if (strcmp(key, "report") == 0) {
        snprintf(c->report, sizeof c->report, "%s", value);
        return 0;
    }
    return parse_number_word(c, key, value);
}

static int parse_case(struct test_case *c, char *line, char *error, size_t cap)
{
    memset(c, 0, sizeof *c);
    for (int t = 0; t < CASE_TENSORS; t++)
        c->tensors[t].std = 1;
    c->mask.std = 1;
    char *save, *word = strtok_r(line, " \n", &save);
    snprintf(c->id, sizeof c->id, "%s", word);
    while ((word = strtok_r(NULL, " \n", &save)) != NULL) {
        char copy[128];
        snprintf(copy, sizeof copy, "%s", word);
        char *const equals = strchr(word, '=');
        if (equals)
            *equals = '\0';
        if (!equals || parse_word(c, word, equals + 1) != 0) {
            snprintf(error, cap, "%s: %.120s", c->id, copy);
            return -1;
        }
    }
    if (c->op_name[0] != '\0' && c->dtype != 0 && c->num_checks > 0)
        return 0;
    snprintf(error, cap, "%s: no op, dtype or checks", c->id);
    return -1;
}

int cases_read(struct case_file *file, const char *path)
{
    char line[2048];
    file->count = 0;
    file->error[0] = '\0';
    FILE *const f = fopen(path, "r");
    if (!f) {
        snprintf(file->error, sizeof file->error, "cannot open %.200s", path);
        return -1;
    }
    int status = 0;
    while (status == 0 && fgets(line, sizeof line, f)) {
        if (line[0] == '#' || line[0] == '\n')
            continue;
        if (file->count == CASE_MAX_COUNT || !strchr(line, '\n')) {
            snprintf(file->error, sizeof file->error, "more than %d cases, or a line too long",
                     CASE_MAX_COUNT);
            status = -1;
        } else {
            status = parse_case(&file->cases[file->count++], line, file->error, sizeof file->error);
        }
    }
    fclose(f);
    return status;
}

const struct case_check *case_find(const struct test_case *c, const char *name)
{
    for (int i = 0; i < c->num_checks; i++)
        if (strcmp(c->checks[i].name, name) == 0)
            return &c->checks[i];
    return NULL;
}
