/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "bench_measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_time.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum { MIN_CALLS = 3, MAX_CALLS = 20000 };

static int32_t call_once(const struct impl *impl, const struct bench_data *d)
{
    return impl ? impl->run(&d->problem, NULL) : bench_data_call(d);
}

/* ---------------------------------------------------------------- cold caches */

static void evict(const char *data, size_t bytes)
{
#if defined(__x86_64__)
    for (size_t i = 0; i < bytes; i += 64)
        _mm_clflush(data + i);
#else
    (void)data;
    (void)bytes;
#endif
}

static void evict_tensor(const struct view *t)
{
    const int64_t *const n = t->shape;
    if (t->dtype)                                  /* the bench's tensors are packed */
        evict(t->data, (size_t)(n[0] * n[1] * n[2] * n[3]) * (size_t)t->itemsize);
}

static void evict_problem(const struct problem *p)
{
    const struct view *const views[] = { &p->q, &p->k, &p->v, &p->o, &p->a,    &p->b,
                                         &p->c, &p->x, &p->y, &p->bias, &p->keep };
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++)
        evict_tensor(views[i]);
    for (int64_t i = 0; i < p->num_parts; i++)
        evict_tensor(&p->parts[i].o);
#if defined(__x86_64__)
    _mm_mfence();
#endif
}

/* ---------------------------------------------------------------- times */

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool wants_more(const struct bench_settings *settings, int calls, double spent)
{
    if (calls >= MAX_CALLS)
        return false;
    return settings->repeat ? calls < settings->repeat
                            : calls < MIN_CALLS || spent < 1e-3 * settings->ms;
}

static int32_t time_calls(const struct impl *impl, const struct bench_data *d,
                          const struct bench_settings *settings, double *times, int *calls)
{
    double spent = 0;
    int n = 0;
    while (wants_more(settings, n, spent)) {
        if (settings->cold)
            evict_problem(&d->problem);
        const double t0 = bench_now();
        const int32_t status = call_once(impl, d);
        times[n] = bench_now() - t0;
        if (status != QATTN_OK)
            return status;
        spent += times[n++];
    }
    *calls = n;
    return QATTN_OK;
}

static void summarise(struct bench_result *r, double *times)
{
    const int n = r->calls;
    qsort(times, (size_t)n, sizeof *times, compare_doubles);
    r->min = times[0];
    r->median = n % 2 ? times[n / 2] : 0.5 * (times[n / 2 - 1] + times[n / 2]);
    r->p95 = times[(n * 95 + 99) / 100 - 1];
}

/* ---------------------------------------------------------------- one line of the table */

static void note_failure(struct bench_result *r, int32_t status)
{
    char text[400];
    qattn_last_error(text, sizeof text);
    snprintf(r->why, sizeof r->why, "%s: %s", qattn_status_name(status), text);
    r->verdict = BENCH_FAILED;
}

/* `times` holds MAX_CALLS. The first call warms up; the second, on a poisoned output, is checked: state
 * that a call leaves behind must not spoil the next. */
static void check_and_time(struct bench_result *r, const struct impl *impl, struct bench_data *d,
                           const struct bench_case *c, const struct bench_settings *settings,
                           double *times)
{
    int32_t status = call_once(impl, d);
    if (status == QATTN_OK) {
        bench_data_poison(d);
        status = call_once(impl, d);
    }
    if (status == QATTN_OK && !bench_check(d, c, &r->max_err)) {
        snprintf(r->why, sizeof r->why, "differs from fp64 by %.3g", r->max_err);
        r->verdict = BENCH_WRONG;
        return;
    }
    if (status == QATTN_OK)
        status = time_calls(impl, d, settings, times, &r->calls);
    if (status == QATTN_OK)
        summarise(r, times);
    else
        note_failure(r, status);
}

struct bench_result bench_measure(const struct impl *impl, struct bench_data *d,
                                  const struct bench_case *c, const struct bench_settings *settings)
{
    struct bench_result r = { .verdict = BENCH_OK };
    struct problem *const p = &d->problem;
    if (impl && impl->device_type != p->device_type)
        snprintf(r.why, sizeof r.why, "the row is for another device");
    if (impl && (r.why[0] || !impl->supports(p, r.why, sizeof r.why))) {
        r.verdict = BENCH_UNSUPPORTED;
        return r;
    }
    r.why[0] = 0;
    const size_t bytes = impl ? impl->workspace(p) : 0;
    p->workspace = bytes ? aligned_alloc(256, (bytes + 255) / 256 * 256) : NULL;
    r.workspace_bytes = p->workspace_bytes = bytes;
    double *const times = malloc(MAX_CALLS * sizeof *times);
    if ((bytes && !p->workspace) || !times) {
        snprintf(r.why, sizeof r.why, "out of memory");
        r.verdict = BENCH_FAILED;
    } else {
        check_and_time(&r, impl, d, c, settings, times);
    }
    free(times);
    free(p->workspace);
    p->workspace = NULL;
    return r;
}
