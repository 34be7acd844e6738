/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "support.h"

#include <float.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---------------------------------------------------------------- seeded numbers */

uint64_t hash64(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

uint64_t rng_bits(struct rng *r) { return hash64(r->seed, r->i++); }

int64_t rng_below(struct rng *r, int64_t n)
{
    return n <= 1 ? 0 : (int64_t)(rng_bits(r) % (uint64_t)n);
}

double rng_unit(struct rng *r) { return (double)(rng_bits(r) >> 11) * 0x1p-53; }

double rng_normal(struct rng *r)
{
    const double u = 1.0 - rng_unit(r), v = rng_unit(r);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

enum { TABLE_STARTS = 16384, TABLE_SIZE = TABLE_STARTS + NORMAL_MAX_ROW, TABLE_TYPES = 6 };

static struct normal_table { int32_t dtype; double *value; unsigned char *encoded; } normal_tables[TABLE_TYPES];

static const struct normal_table *find_table(int32_t dtype)
{
    for (int i = 0; i < TABLE_TYPES; i++) {
        struct normal_table *t = &normal_tables[i];
        if (t->dtype == dtype)
            return t;
        if (t->dtype)
            continue;
        const int32_t size = format_size(dtype);
        struct rng r = { 0x5EED, 0 };
        t->dtype = dtype;
        t->value = malloc(TABLE_SIZE * sizeof *t->value);
        t->encoded = malloc((size_t)TABLE_SIZE * (size_t)size);
        for (int64_t k = 0; k < TABLE_SIZE; k++) {
            const double x = rng_normal(&r) * (dtype == QATTN_DTYPE_I8 ? 32.0 : 1.0);
            format_encode(dtype, t->encoded + k * size, x);
            t->value[k] = format_decode(dtype, t->encoded + k * size);
        }
        return t;
    }
    abort();
}

const double *normal_row(int32_t dtype, uint64_t key)
{
    return find_table(dtype)->value + hash64(key, 0) % TABLE_STARTS;
}

const void *normal_row_encoded(int32_t dtype, uint64_t key)
{
    return find_table(dtype)->encoded + (hash64(key, 0) % TABLE_STARTS) * (uint64_t)format_size(dtype);
}

/* ---------------------------------------------------------------- number formats */

static const struct format {
    int32_t dtype, size;
    const char *name;
    int exponent_bits, mantissa_bits;     /* 0, 0: integer */
} formats[] = {
    { QATTN_DTYPE_F32, 4, "f32", 8, 23 },       { QATTN_DTYPE_F16, 2, "f16", 5, 10 },
    { QATTN_DTYPE_BF16, 2, "bf16", 8, 7 },      { QATTN_DTYPE_E4M3FN, 1, "e4m3fn", 4, 3 },
    { QATTN_DTYPE_E5M2, 1, "e5m2", 5, 2 },      { QATTN_DTYPE_I8, 1, "i8", 0, 0 },
    { QATTN_DTYPE_U8, 1, "u8", 0, 0 },          { QATTN_DTYPE_BOOL, 1, "bool", 0, 0 },
};

static const struct format *find_format(int32_t dtype)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].dtype == dtype)
            return &formats[i];
    fprintf(stderr, "tests: unknown dtype 0x%x\n", (unsigned)dtype);
    abort();
}

int32_t format_size(int32_t dtype) { return find_format(dtype)->size; }
const char *format_name(int32_t dtype) { return find_format(dtype)->name; }

int32_t format_parse(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0)
            return formats[i].dtype;
    return 0;
}

static double decode_float(const struct format *f, uint32_t bits)
{
    const uint32_t mantissa = bits & ((1u << f->mantissa_bits) - 1);
    const uint32_t top = (1u << f->exponent_bits) - 1;
    const uint32_t exponent = (bits >> f->mantissa_bits) & top;
    const double sign = bits >> (f->exponent_bits + f->mantissa_bits) & 1 ? -1.0 : 1.0;
    const int bias = (1 << (f->exponent_bits - 1)) - 1;
    if (f->dtype == QATTN_DTYPE_E4M3FN && exponent == top && mantissa == 7)
        return NAN;
    if (f->dtype != QATTN_DTYPE_E4M3FN && exponent == top)
        return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - f->mantissa_bits);
    return sign * ldexp(mantissa + (double)(1u << f->mantissa_bits), (int)exponent - bias - f->mantissa_bits);
}

/* To nearest even. Above the largest finite value: Inf, or NaN where the format has no Inf. */
static uint32_t encode_float(const struct format *f, double x)
{
    const int bias = (1 << (f->exponent_bits - 1)) - 1;
    const uint32_t top = (1u << f->exponent_bits) - 1;
    const uint32_t sign = (signbit(x) ? 1u : 0u) << (f->exponent_bits + f->mantissa_bits);
    const bool no_inf = f->dtype == QATTN_DTYPE_E4M3FN;
    const uint32_t infinity = no_inf ? 0x7F : top << f->mantissa_bits;
    if (isnan(x))
        return sign | (no_inf ? 0x7F : infinity | 1u << (f->mantissa_bits - 1));
    int e;
    frexp(x, &e);                              /* |x| in [2^(e-1), 2^e) */
    if (isinf(x) || e - 1 > bias + 1)
        return sign | infinity;
    const int exponent = e - 1 < 1 - bias || x == 0 ? 1 - bias : e - 1;
    /* units of the last place; a carry out of the mantissa runs into the exponent, as it should */
    const uint64_t units = (uint64_t)nearbyint(ldexp(fabs(x), f->mantissa_bits - exponent));
    const uint64_t bits = units + ((uint64_t)(exponent + bias - 1) << f->mantissa_bits);
    return sign | (bits > infinity ? infinity : (uint32_t)bits);
}

double format_decode(int32_t dtype, const void *p)
{
    const struct format *f = find_format(dtype);
    uint32_t bits = 0;
    memcpy(&bits, p, (size_t)f->size);
    if (dtype == QATTN_DTYPE_I8)
        return (int8_t)bits;
    return f->mantissa_bits ? decode_float(f, bits) : bits;
}

void format_encode(int32_t dtype, void *p, double x)
{
    const struct format *f = find_format(dtype);
    uint32_t bits;
    if (f->mantissa_bits) {
        bits = encode_float(f, x);
    } else {
        const double lo = dtype == QATTN_DTYPE_I8 ? -128 : 0, hi = dtype == QATTN_DTYPE_I8 ? 127 : 255;
        bits = (uint32_t)(int32_t)nearbyint(x < lo ? lo : x > hi ? hi : x);
    }
    memcpy(p, &bits, (size_t)f->size);
}

double format_largest(int32_t dtype)
{
    switch (dtype) {
    case QATTN_DTYPE_F32:    return FLT_MAX;
    case QATTN_DTYPE_BF16:   return 0x1.FEp127;
    case QATTN_DTYPE_F16:    return 65504;
    case QATTN_DTYPE_E5M2:   return 57344;
    case QATTN_DTYPE_E4M3FN: return 448;
    default:                 return 127;
    }
}

double format_round(int32_t dtype, double x)
{
    uint32_t bits;
    format_encode(dtype, &bits, x);
    return format_decode(dtype, &bits);
}

/* ---------------------------------------------------------------- counters and notes */

enum { MAX_COUNTERS = 64, MAX_WHYS = 128, MAX_REPORTS = 256, TEXT = 96, CASE_TEXT = 512 };

/* Shared with forked children. One child runs at a time, so plain arithmetic is enough. */
static struct shared {
    struct { char what[TEXT]; int64_t run; } counters[MAX_COUNTERS];
    struct { char what[TEXT], why[TEXT]; int64_t skipped; } whys[MAX_WHYS];
    struct { char key[TEXT]; double worst, rms, rms_sum; int64_t rms_count; } reports[MAX_REPORTS];
    char current[CASE_TEXT];
    int failed;
} *shared;

/* A crash inside a case must name it: Check reports only the test function. */
static void name_crash(int sig)
{
    static const char head[] = "crash in case: ";
    if (write(2, head, sizeof head - 1) < 0 || write(2, shared->current, strlen(shared->current)) < 0 ||
        write(2, "\n", 1) < 0)
        _exit(127);
    signal(sig, SIG_DFL);
    raise(sig);
}

void support_init(void)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        abort();
    signal(SIGSEGV, name_crash);
    signal(SIGBUS, name_crash);
    signal(SIGFPE, name_crash);
}

static int find_counter(const char *what)
{
    int i = 0;
    while (i < MAX_COUNTERS - 1 && shared->counters[i].what[0] && strncmp(shared->counters[i].what, what, TEXT - 1))
        i++;
    if (!shared->counters[i].what[0])
        snprintf(shared->counters[i].what, TEXT, "%s", what);
    return i;
}

void count_run(const char *what, int64_t n) { shared->counters[find_counter(what)].run += n; }

void count_skipped(const char *what, const char *why, int64_t n)
{
    find_counter(what);
    int i = 0;
    while (i < MAX_WHYS - 1 && shared->whys[i].what[0] &&
           (strncmp(shared->whys[i].what, what, TEXT - 1) || strncmp(shared->whys[i].why, why, TEXT - 1)))
        i++;
    snprintf(shared->whys[i].what, TEXT, "%s", what);
    snprintf(shared->whys[i].why, TEXT, "%s", why);
    shared->whys[i].skipped += n;
}

void counters_print(void)
{
    for (int i = 0; i < MAX_COUNTERS && shared->counters[i].what[0]; i++) {
        int64_t skipped = 0;
        for (int k = 0; k < MAX_WHYS; k++)
            if (strcmp(shared->whys[k].what, shared->counters[i].what) == 0)
                skipped += shared->whys[k].skipped;
        printf("cases: %s %lld run, %lld skipped", shared->counters[i].what, (long long)shared->counters[i].run,
               (long long)skipped);
        const char *separator = " (";
        for (int k = 0; k < MAX_WHYS; k++) {
            if (strcmp(shared->whys[k].what, shared->counters[i].what) || !shared->whys[k].skipped)
                continue;
            printf("%s%lld: %s", separator, (long long)shared->whys[k].skipped, shared->whys[k].why);
            separator = "; ";
        }
        puts(skipped ? ")" : "");
    }
    fflush(stdout);
}

static int find_report(const char *key)
{
    int i = 0;
    while (i < MAX_REPORTS - 1 && shared->reports[i].key[0] && strncmp(shared->reports[i].key, key, TEXT - 1))
        i++;
    snprintf(shared->reports[i].key, TEXT, "%s", key);
    return i;
}

void report_ratio(const char *key, double ratio)
{
    const int i = find_report(key);
    if (ratio > shared->reports[i].worst)
        shared->reports[i].worst = ratio;
}

void report_rms(const char *key, double ratio)
{
    const int i = find_report(key);
    if (ratio > shared->reports[i].rms)
        shared->reports[i].rms = ratio;
    shared->reports[i].rms_sum += ratio;
    shared->reports[i].rms_count++;
}

void reports_print(void)
{
    puts("measured: largest error / bound; rms error / rms error of the plain algorithm, largest and mean over cases");
    for (int i = 0; i < MAX_REPORTS && shared->reports[i].key[0]; i++) {
        printf("report: %-44s %8.4f", shared->reports[i].key, shared->reports[i].worst);
        if (shared->reports[i].rms_count > 0)
            printf("  %7.4f  %7.4f", shared->reports[i].rms,
                   shared->reports[i].rms_sum / (double)shared->reports[i].rms_count);
        puts("");
    }
}

void case_begin(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(shared->current, sizeof shared->current, format, args);
    va_end(args);
}

void note_failure(const char *format, ...)
{
    enum { SHOWN = 25 };
    if (++shared->failed > SHOWN)
        return;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "FAIL %s: %s%s\n", shared->current, text, shared->failed == SHOWN ? " (more are not shown)" : "");
}

int failures(void) { return shared->failed; }
void failures_clear(void) { shared->failed = 0; }

bool grid_is(const char *name)
{
    const char *grid = getenv("QATTN_TEST_GRID");
    return grid && strcmp(grid, name) == 0;
}

bool grid_small(void) { return grid_is("small"); }

bool shard_has(int64_t block)
{
    const char *const text = getenv("QATTN_TEST_SHARD");
    long long k = 0, n = 1;
    return !text || sscanf(text, "%lld/%lld", &k, &n) != 2 || n < 1 || block % n == k;
}

int64_t env_number(const char *name, int64_t fallback)
{
    const char *text = getenv(name);
    return text && *text ? strtoll(text, NULL, 10) : fallback;
}
