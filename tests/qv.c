/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "qv.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qattn.h"

enum { PREFIX_BYTES = 26, MAX_LINE = 200, MAX_WORDS = 16, ALIGNMENT = 64 };

static const struct {
    const char *name;
    int itemsize;
    int32_t dtype;
} dtypes[] = {
    { "f64", 8, 0 },
    { "f32", 4, QATTN_DTYPE_F32 },
    { "f16", 2, QATTN_DTYPE_F16 },
    { "bf16", 2, QATTN_DTYPE_BF16 },
    { "i64", 8, 0 },
    { "i32", 4, 0 },
    { "u8", 1, QATTN_DTYPE_U8 },
    { "bool", 1, QATTN_DTYPE_BOOL },
};

static int refuse(struct qv *file, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int refuse(struct qv *file, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(file->error, sizeof file->error, format, args);
    va_end(args);
    return -1;
}

/* Copies a word that must fit. */
static int copy_word(char *to, size_t cap, const char *word)
{
    const size_t n = strlen(word);
    if (n == 0 || n >= cap)
        return -1;
    memcpy(to, word, n + 1);
    return 0;
}

/* A decimal int64 and nothing else. */
static int parse_int(const char *word, int64_t *out)
{
    char *end;
    if (!isdigit((unsigned char)word[word[0] == '-']))
        return -1;
    errno = 0;
    *out = strtoll(word, &end, 10);
    return errno != 0 || *end != '\0' ? -1 : 0;
}

static int parse_float(const char *word, double *out)
{
    char *end;
    if (word[0] == '\0' || isspace((unsigned char)word[0]))
        return -1;
    *out = strtod(word, &end);
    return *end != '\0' ? -1 : 0;
}

/* Cuts a line at its single spaces; -1 on an empty word or too many. */
static int split_words(char *line, char *words[MAX_WORDS])
{
    int n = 0;
    for (char *at = line;;) {
        if (n == MAX_WORDS)
            return -1;
        words[n++] = at;
        char *const space = strchr(at, ' ');
        if (space)
            *space = '\0';
        if (*at == '\0')
            return -1;
        if (!space)
            return n;
        at = space + 1;
    }
}

static int parse_attr(struct qv *file, char **words, int n)
{
    if (n != 4 || file->num_attrs == QV_MAX_ATTRS || file->num_tensors > 0)
        return -1;
    struct qv_attr *const a = &file->attrs[file->num_attrs];
    for (int i = 0; i < file->num_attrs; i++)
        if (strcmp(file->attrs[i].name, words[1]) == 0)
            return -1;
    if (copy_word(a->name, sizeof a->name, words[1]) != 0 || strlen(words[2]) != 1)
        return -1;
    a->type = words[2][0];
    file->num_attrs++;
    switch (a->type) {
    case 'i': return parse_int(words[3], &a->i);
    case 'f': return parse_float(words[3], &a->f);
    case 's': return copy_word(a->s, sizeof a->s, words[3]);
    default: return -1;
    }
}

/* "tensor ROLE NAME DTYPE RANK DIM... OFFSET NBYTES"; *end is where the previous tensor (or the
 * header) ended. */
static int parse_tensor(struct qv *file, char **words, int n, int64_t size, int64_t *end)
{
    int64_t rank, offset, bytes;
    if (n < 7 || file->num_tensors == QV_MAX_TENSORS)
        return -1;
    struct qv_tensor *const t = &file->tensors[file->num_tensors];
    if (copy_word(t->role, sizeof t->role, words[1]) != 0 ||
        copy_word(t->name, sizeof t->name, words[2]) != 0 ||
        copy_word(t->dtype, sizeof t->dtype, words[3]) != 0 || parse_int(words[4], &rank) != 0)
        return -1;
    if (strcmp(t->role, "in") != 0 && strcmp(t->role, "out") != 0 && strcmp(t->role, "ref") != 0)
        return -1;
    if (qv_tensor(file, t->role, t->name))
        return -1;
    if (rank < 0 || rank > QV_MAX_RANK || n != 7 + rank)
        return -1;
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(dtypes[i].name, t->dtype) == 0)
            t->itemsize = dtypes[i].itemsize;
    if (t->itemsize == 0)
        return -1;
    t->rank = (int)rank;
    t->count = 1;
    for (int i = 0; i < t->rank; i++)
        if (parse_int(words[5 + i], &t->dim[i]) != 0 || t->dim[i] < 0 ||
            __builtin_mul_overflow(t->count, t->dim[i], &t->count))
            return -1;
    if (parse_int(words[5 + rank], &offset) != 0 || parse_int(words[6 + rank], &bytes) != 0)
        return -1;
    int64_t want;
    if (__builtin_mul_overflow(t->count, t->itemsize, &want) || bytes != want)
        return -1;
    if (offset % ALIGNMENT != 0 || offset < *end || offset > size || bytes > size - offset)
        return -1;
    const unsigned char *const base = file->buffer;
    for (int64_t i = *end; i < offset; i++)
        if (base[i] != 0)
            return -1;
    for (int64_t i = 0; strcmp(t->dtype, "bool") == 0 && i < bytes; i++)
        if (base[offset + i] > 1)
            return -1;
    t->data = base + offset;
    t->bytes = (size_t)bytes;
    *end = offset + bytes;
    file->num_tensors++;
    return 0;
}

/* One line of the header, `number` counting from 0 after the prefix. */
static int parse_line(struct qv *file, char *line, int number, int64_t size, int64_t *end)
{
    char *words[MAX_WORDS];
    if (strncmp(line, "note ", 5) == 0)
        return number < 2 ? -1 : 0;
    const int n = split_words(line, words);
    if (n < 1)
        return -1;
    if (number < 2) {
        const bool first = number == 0;
        if (n != 2 || strcmp(words[0], first ? "case" : "kind") != 0)
            return -1;
        return first ? copy_word(file->name, sizeof file->name, words[1])
                     : copy_word(file->kind, sizeof file->kind, words[1]);
    }
    if (strcmp(words[0], "attr") == 0)
        return parse_attr(file, words, n);
    if (strcmp(words[0], "tensor") == 0)
        return parse_tensor(file, words, n, size, end);
    return -1;
}

/* The text between the prefix and `header` bytes: lines, "end", then only newlines. */
static int parse_header(struct qv *file, int64_t header, int64_t size)
{
    const char *const base = file->buffer;
    int64_t end = header; /* of the last tensor so far */
    int number = 0;
    for (int64_t at = PREFIX_BYTES; at < header; number++) {
        const char *const stop = memchr(base + at, '\n', (size_t)(header - at));
        char line[MAX_LINE + 1];
        if (!stop || stop - (base + at) > MAX_LINE)
            return refuse(file, "line %d of the header is unended or longer than %d bytes", number,
                          MAX_LINE);
        const size_t length = (size_t)(stop - (base + at));
        memcpy(line, base + at, length);
        line[length] = '\0';
        at += (int64_t)length + 1;
        if (strlen(line) != length)
            return refuse(file, "line %d of the header has a NUL", number);
        if (strcmp(line, "end") == 0) {
            for (; at < header; at++)
                if (base[at] != '\n')
                    return refuse(file, "text after \"end\"");
            if (number < 2)
                return refuse(file, "no case or kind");
            return end == size
                       ? 0
                       : refuse(file, "%" PRId64 " bytes follow the last tensor", size - end);
        }
        char text[MAX_LINE + 1];
        memcpy(text, line, sizeof text);
        if (parse_line(file, line, number, size, &end) != 0)
            return refuse(file, "line %d of the header: %.120s", number, text);
    }
    return refuse(file, "the header has no \"end\"");
}

/* Fixed-width decimal number of the prefix. */
static int parse_digits(const char *at, int digits, int64_t *out)
{
    *out = 0;
    for (int i = 0; i < digits; i++) {
        if (!isdigit((unsigned char)at[i]))
            return -1;
        *out = *out * 10 + (at[i] - '0');
    }
    return 0;
}

static int parse_file(struct qv *file, int64_t size)
{
    const char *const base = file->buffer;
    int64_t header, length;
    if (size < PREFIX_BYTES || memcmp(base, "QV1 ", 4) != 0 || base[12] != ' ' ||
        base[25] != '\n' || parse_digits(base + 4, 8, &header) != 0 ||
        parse_digits(base + 13, 12, &length) != 0)
        return refuse(file, "no QV1 prefix");
    if (length != size)
        return refuse(file, "the file has %" PRId64 " bytes, its header says %" PRId64, size,
                      length);
    if (header % ALIGNMENT != 0 || header < PREFIX_BYTES || header > size)
        return refuse(file, "header length %" PRId64, header);
    return parse_header(file, header, size);
}

/* Reads everything into a 64-byte aligned buffer. */
static int read_file(struct qv *file, const char *path, int64_t *size)
{
    FILE *const f = fopen(path, "rb");
    if (!f)
        return refuse(file, "%s: %s", path, strerror(errno));
    int status = -1;
    long length = -1;
    if (fseek(f, 0, SEEK_END) != 0 || (length = ftell(f)) < 0 || fseek(f, 0, SEEK_SET) != 0) {
        refuse(file, "%s: cannot seek", path);
    } else {
        const size_t room = ((size_t)length / ALIGNMENT + 1) * ALIGNMENT;
        file->buffer = aligned_alloc(ALIGNMENT, room);
        if (!file->buffer)
            refuse(file, "%s: no memory for %ld bytes", path, length);
        else if (fread(file->buffer, 1, (size_t)length, f) != (size_t)length)
            refuse(file, "%s: short read", path);
        else
            status = 0;
    }
    fclose(f);
    *size = length;
    return status;
}

int qv_open(struct qv *out, const char *path)
{
    int64_t size = 0;
    memset(out, 0, sizeof *out);
    int status = read_file(out, path, &size);
    if (status == 0)
        status = parse_file(out, size);
    if (status != 0) {
        free(out->buffer);
        out->buffer = NULL;
        out->num_attrs = out->num_tensors = 0;
    }
    return status;
}

void qv_close(struct qv *file)
{
    free(file->buffer);
    memset(file, 0, sizeof *file);
}

const struct qv_tensor *qv_tensor(const struct qv *file, const char *role, const char *name)
{
    for (int i = 0; i < file->num_tensors; i++)
        if (strcmp(file->tensors[i].role, role) == 0 && strcmp(file->tensors[i].name, name) == 0)
            return &file->tensors[i];
    return NULL;
}

static const struct qv_attr *find_attr(const struct qv *file, const char *name, char type)
{
    for (int i = 0; i < file->num_attrs; i++)
        if (strcmp(file->attrs[i].name, name) == 0 && file->attrs[i].type == type)
            return &file->attrs[i];
    return NULL;
}

int qv_int(const struct qv *file, const char *name, int64_t *out)
{
    const struct qv_attr *const a = find_attr(file, name, 'i');
    if (!a)
        return -1;
    *out = a->i;
    return 0;
}

int qv_float(const struct qv *file, const char *name, double *out)
{
    const struct qv_attr *const a = find_attr(file, name, 'f');
    if (!a)
        return -1;
    *out = a->f;
    return 0;
}

int qv_word(const struct qv *file, const char *name, const char **out)
{
    const struct qv_attr *const a = find_attr(file, name, 's');
    if (!a)
        return -1;
    *out = a->s;
    return 0;
}

static double f32_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double f16_bits(uint16_t bits)
{
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    double x;
    if (exponent == 31)
        x = fraction ? NAN : INFINITY;
    else if (exponent == 0)
        x = ldexp(fraction, -24);
    else
        x = ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000 ? -x : x;
}

double qv_get(const struct qv_tensor *tensor, int64_t i)
{
    const char *const at = (const char *)tensor->data + i * tensor->itemsize;
    union {
        double f64;
        uint32_t u32;
        uint16_t u16;
        int64_t i64;
        int32_t i32;
        uint8_t u8;
    } x;
    memcpy(&x, at, (size_t)tensor->itemsize);
    if (strcmp(tensor->dtype, "f64") == 0)
        return x.f64;
    if (strcmp(tensor->dtype, "f32") == 0)
        return f32_bits(x.u32);
    if (strcmp(tensor->dtype, "f16") == 0)
        return f16_bits(x.u16);
    if (strcmp(tensor->dtype, "bf16") == 0)
        return f32_bits((uint32_t)x.u16 << 16);
    if (strcmp(tensor->dtype, "i64") == 0)
        return (double)x.i64;
    if (strcmp(tensor->dtype, "i32") == 0)
        return x.i32;
    return x.u8;
}

int32_t qv_dtype(const struct qv_tensor *tensor)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(dtypes[i].name, tensor->dtype) == 0)
            return dtypes[i].dtype;
    return 0;
}
