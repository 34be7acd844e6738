/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "bench_measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_device.h"
#include "bench_time.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum { MIN_CALLS = 3, MAX_CALLS = 20000 };

static int32_t call_once(const struct impl *impl, const struct bench_data *d, qattn_stream stream)
{
    return impl ? impl->run(&d->problem, stream) : bench_data_call(d, stream);
}

static bool on_device(const struct bench_data *d) { return d->device_type == QATTN_DEVICE_CUDA; }

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
        const int32_t status = call_once(impl, d, NULL);
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

struct call { const struct impl *impl; const struct bench_data *data; };

static int32_t queue_call(const void *context, qattn_stream stream)
{
    const struct call *const call = context;
    return call_once(call->impl, call->data, stream);
}

static int32_t time_on_device(struct bench_result *r, const struct call *call, const struct bench_settings *settings,
                              double *times)
{
    const struct bench_work_item item = { queue_call, call };
    r->host = bench_device_host_time(item);
    r->calls = bench_device_time(item, settings->ms, settings->repeat, settings->cold, times, MAX_CALLS, r->why,
                                 sizeof r->why);
    if (r->calls)
        return QATTN_OK;
    r->verdict = BENCH_FAILED;
    return QATTN_ERR_CUDA;
}

/* The first call warms up; the second, on a poisoned output, is checked: state that a call leaves behind must not spoil
 * the next. */
static int32_t call_twice(struct bench_result *r, const struct call *call)
{
    const bool device = on_device(call->data);
    const qattn_stream stream = device ? bench_device_stream() : NULL;
    int32_t status = call_once(call->impl, call->data, stream);
    if (status == QATTN_OK) {
        bench_data_poison(call->data);
        status = call_once(call->impl, call->data, stream);
    }
    if (status != QATTN_OK || !device)
        return status;
    if (!bench_device_wait(r->why, sizeof r->why)) {
        r->verdict = BENCH_FAILED;
        return QATTN_ERR_CUDA;
    }
    bench_data_fetch(call->data);
    return QATTN_OK;
}

/* `times` holds MAX_CALLS. */
static void check_and_time(struct bench_result *r, const struct impl *impl, struct bench_data *d,
                           const struct bench_case *c, const struct bench_settings *settings,
                           double *times)
{
    const struct call call = { impl, d };
    int32_t status = call_twice(r, &call);
    if (status == QATTN_OK && !bench_check(d, c, &r->max_err)) {
        snprintf(r->why, sizeof r->why, "differs from fp64 by %.3g", r->max_err);
        r->verdict = BENCH_WRONG;
        return;
    }
    if (status == QATTN_OK)
        status = on_device(d) ? time_on_device(r, &call, settings, times)
                              : time_calls(impl, d, settings, times, &r->calls);
    if (status == QATTN_OK)
        summarise(r, times);
    else if (r->verdict == BENCH_OK)
        note_failure(r, status);
}

/* ---------------------------------------------------------------- workspace */

/* A row's own wish; the public function on CUDA is given one too, as it is captured. */
static int32_t count_workspace(const struct impl *impl, const struct bench_data *d, size_t *bytes)
{
    *bytes = impl ? impl->workspace(&d->problem) : 0;
    return impl || !on_device(d) ? QATTN_OK : bench_data_workspace(d, bytes);
}

static void *take_workspace(struct bench_data *d, size_t bytes)
{
    void *const memory = !bytes         ? NULL
                       : on_device(d) ? bench_device_alloc(bytes)
                                      : aligned_alloc(256, (bytes + 255) / 256 * 256);
    d->problem.workspace = memory;
    d->problem.workspace_bytes = bytes;
    bench_data_set_workspace(d, memory, memory ? bytes : 0);
    return memory;
}

static void give_back(struct bench_data *d)
{
    if (on_device(d))
        bench_device_free(d->problem.workspace);
    else
        free(d->problem.workspace);
    d->problem.workspace = NULL;
    bench_data_set_workspace(d, NULL, 0);
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
    const int32_t status = count_workspace(impl, d, &r.workspace_bytes);
    if (status != QATTN_OK) {
        note_failure(&r, status);
        return r;
    }
    void *const workspace = take_workspace(d, r.workspace_bytes);
    double *const times = malloc(MAX_CALLS * sizeof *times);
    if ((r.workspace_bytes && !workspace) || !times) {
        snprintf(r.why, sizeof r.why, "out of memory");
        r.verdict = BENCH_FAILED;
    } else {
        check_and_time(&r, impl, d, c, settings, times);
    }
    free(times);
    give_back(d);
    return r;
}
