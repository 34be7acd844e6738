/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * What the test suites share: seeded numbers, number formats, fenced strided tensors, counters that survive
 * fork, failure notes. The formats are written here a second time on purpose: a fault in the library's own
 * conversions must not hide in the test that looks for it.
 */
#ifndef QATTN_TESTS_SUPPORT_H
#define QATTN_TESTS_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "qattn.h"

/* ---------------------------------------------------------------- seeded numbers */

struct rng { uint64_t seed, i; };

uint64_t hash64(uint64_t seed, uint64_t i);              /* splitmix64's i-th output */
uint64_t rng_bits(struct rng *r);
int64_t  rng_below(struct rng *r, int64_t n);            /* 0 .. n-1; 0 when n <= 1 */
double   rng_unit(struct rng *r);                        /* [0, 1) */
double   rng_normal(struct rng *r);

/* Length of a logical row that normal_row can serve. */
enum { NORMAL_MAX_ROW = 1024 };

/* A row of up to 1024 normal numbers, rounded to `dtype`, chosen by `key`: as doubles, and as the encoded
 * elements. The same key gives the same row in every layout. I8: normals times 32. Valid for ever. */
const double *normal_row(int32_t dtype, uint64_t key);
const void   *normal_row_encoded(int32_t dtype, uint64_t key);

/* ---------------------------------------------------------------- number formats */

int32_t     format_size(int32_t dtype);                  /* bytes */
const char *format_name(int32_t dtype);                  /* "bf16" */
int32_t     format_parse(const char *name);              /* 0: unknown */
double      format_decode(int32_t dtype, const void *p);
void        format_encode(int32_t dtype, void *p, double x);   /* one rounding, to nearest even; I8, U8 saturate */
double      format_round(int32_t dtype, double x);
double      format_largest(int32_t dtype);               /* finite */

/* ---------------------------------------------------------------- fenced tensors */

/* How an array of shape [4] lies in memory. */
struct layout {
    int     order[4];        /* axes, slowest first */
    int64_t step;            /* elements between neighbours of the fastest axis */
    int64_t pad[4];          /* extra elements after each axis's extent */
    bool    flip[4];         /* negative stride */
    bool    broadcast[4];    /* stride 0 (inputs whose values do not vary along the axis) */
    bool    fence_low;       /* the body starts at the fence instead of ending at it */
    int64_t
        align; /* bytes, a power of two: what every stride but the fastest axis's and the base are multiples of;
                                0: nothing */
};

struct layout layout_packed(int32_t layout);             /* QATTN_LAYOUT_BHSD, BSHD, SBHD */
struct layout layout_random(struct rng *r);              /* any order, padding, step, flips; no broadcast */
struct layout layout_rows(struct rng *r, int64_t align); /* the same with D fastest and rows aligned */

/* A tensor inside its own pages, between two inaccessible ones. Every byte starts as poison: input poison is
 * NaN in every floating format, output poison is all ones (another NaN). */
enum poison { POISON_INPUT, POISON_OUTPUT };

struct box {
    qattn_tensor   t;
    unsigned char *map;      /* whole mapping, fences included */
    size_t         map_bytes;
    unsigned char *mem;      /* between the fences */
    size_t         bytes;
    unsigned char *shadow;   /* copy of mem as it should be; box_snapshot */
};

struct box box_new(int32_t dtype, const int64_t shape[4], const struct layout *layout, enum poison poison);
void   box_free(struct box *box);
void   box_poison(struct box *box, enum poison poison);
/* Address, value of one element. */
void  *box_at(const struct box *box, int64_t b, int64_t h, int64_t s, int64_t d);
double box_get(const struct box *box, int64_t b, int64_t h, int64_t s, int64_t d);
void   box_set(struct box *box, int64_t b, int64_t h, int64_t s, int64_t d, double x);
/* Copies encoded elements [n] to [b,h,s,0..n-1]. */
void   box_set_row(struct box *box, int64_t b, int64_t h, int64_t s, int64_t n, const void *encoded);
/* Remembers every byte. box_expect_written: this element may have changed. box_intact: no other byte has. */
void   box_snapshot(struct box *box);
void   box_expect_written(struct box *box, int64_t b, int64_t h, int64_t s, int64_t d);
bool   box_intact(const struct box *box);
bool   box_same_bytes(const struct box *a, const struct box *b);   /* same layout assumed */

/* Scratch of exactly `bytes`, 256-byte aligned, fenced, filled with `fill`. bytes 0: NULL data. */
struct scratch { unsigned char *map, *data; size_t map_bytes, bytes; int fill; };
struct scratch scratch_new(size_t bytes, int fill);
/* An array of exactly `bytes` that ends at the fence: reading past it crashes. */
struct scratch scratch_array(size_t bytes);
bool   scratch_intact(const struct scratch *s);          /* the bytes after the end still hold the fill */
void   scratch_free(struct scratch *s);

/* ---------------------------------------------------------------- counters and notes */

/* In memory shared with forked children; call support_init once in main before anything else. */
void support_init(void);
void count_run(const char *what, int64_t n);
void count_skipped(const char *what, const char *why, int64_t n);
/* One line for each `what`: "cases: <what> <n> run, <m> skipped (<why>; <why>)". */
void counters_print(void);

/* The largest error/bound of a key; rms error over the plain algorithm's, largest and mean over the cases. Printed
 * under QATTN_TEST_REPORT=1. */
void report_ratio(const char *key, double ratio);
void report_rms(const char *key, double ratio);
void reports_print(void);

/* The case at work, for the line printed on a crash. */
void case_begin(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Notes a failure of the case at work on stderr; tests end with ck_assert_int_eq(failures(), 0). */
void note_failure(const char *format, ...) __attribute__((format(printf, 1, 2)));
int  failures(void);
void failures_clear(void);

/* QATTN_TEST_GRID=small: sanitizers and quick looks. */
bool grid_small(void);
/* QATTN_TEST_GRID=name. edges: of the grid of attention, the family of grid_edges.c alone; random: random cases of
 * QATTN_TEST_SEED instead. */
bool grid_is(const char *name);
/* QATTN_TEST_SHARD=k/n: this process takes the blocks k, k + n, ... of each grid. */
bool shard_has(int64_t block);
/* Value of an environment number, or `fallback`. */
int64_t env_number(const char *name, int64_t fallback);

#endif
