/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "row_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/seq.h"
#include "gpu.h"
#include "support.h"
#include "tolerance.h"

int rows_for(const struct problem *p, const struct impl *rows[ROW_MAX])
{
    int n = 0;
    char why[256];
    struct problem local = *p;
    local.device_type = gpu_wanted() ? QATTN_DEVICE_CUDA : QATTN_DEVICE_CPU;
    for (int i = 0; i < qattn__impl_count && n < ROW_MAX; i++)
        if (qattn__impls[i].device_type == local.device_type &&
            qattn__impls[i].supports(&local, why, sizeof why))
            rows[n++] = &qattn__impls[i];
    return n;
}

int32_t row_run(const struct impl *row, const struct problem *p)
{
    static struct gpu_regions regions;
    struct problem local = *p;
    char why[256];
    int32_t status = QATTN_ERR_INTERNAL;
    regions.count = 0;
    gpu_add_problem(&regions, p);
    if (!gpu_run_row(row, &local, &regions, 0xFF, &status, why, sizeof why))
        note_failure("%s does not run it after all: %s", row->id, why);
    return status;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double row_seconds(const struct impl *row, const struct problem *p, int repeats)
{
    struct problem local = *p;
    const size_t bytes = row->workspace(p);
    struct scratch scratch = scratch_new(bytes, 0xFF);
    double best = -1;
    local.workspace = (char *)scratch.data;
    local.workspace_bytes = bytes;
    for (int i = 0; i < repeats; i++) {
        const double start = now();
        if (row->run(&local, NULL) != QATTN_OK) {
            best = -1;
            break;
        }
        const double seconds = now() - start;
        best = best < 0 || seconds < best ? seconds : best;
    }
    scratch_free(&scratch);
    return best;
}

const char *data_path(const char *name)
{
    static char path[512];
    const char *const root = getenv("QATTN_TEST_DATA");
    snprintf(path, sizeof path, "%s/%s", root ? root : "tests/data", name);
    return path;
}

/* ---------------------------------------------------------------- oracle */

static bool is_sampled(int64_t x, int64_t step, int64_t count)
{
    return x % step == 0 || x == count - 1;
}

/* Calls of the oracle for each chosen row; with out NULL it only counts. */
static int64_t visit_rows(const struct problem *p, int64_t step, int64_t head_step,
                          int64_t batch_step, struct oracle *out)
{
    int64_t count = 0;
    double *const scratch = out ? malloc((qattn__ref_scratch(p) + 1) * sizeof *scratch) : NULL;
    struct ref_row *const row = out ? malloc(sizeof *row) : NULL;
    for (int64_t n = 0; n < p->n; n++) {
        const struct seq s = seq_get(p, n);
        for (int64_t h = 0; is_sampled(n, batch_step, p->n) && h < p->hq; h++)
            for (int64_t i = 0; is_sampled(h, head_step, p->hq) && i < s.rows; i++) {
                /* a step that is no multiple of tile sizes, shifted by head: different rows of each
                 * */
                if (step > 1 && (i + h * 7) % step != 0 && i != 0 && i != s.rows - 1)
                    continue;
                if (out) {
                    qattn__ref_attention_row_in(p, &s, h, i, scratch, row);
                    out->rows[count] =
                        (struct oracle_row){ n, h, i, row->lse, row->score_mag, row->visible };
                    for (int64_t d = 0; d < p->dv; d++) {
                        out->o[count * p->dv + d] = row->o[d];
                        out->o_abs[count * p->dv + d] = row->o_abs[d];
                    }
                }
                count++;
            }
    }
    free(scratch);
    free(row);
    return count;
}

struct oracle oracle_make(const struct problem *p, int64_t step, int64_t head_step,
                          int64_t batch_step)
{
    struct oracle oracle = { .dv = p->dv };
    oracle.count = visit_rows(p, step, head_step, batch_step, NULL);
    const size_t cells = (size_t)(oracle.count * p->dv) + 1;
    oracle.rows = malloc(((size_t)oracle.count + 1) * sizeof *oracle.rows);
    oracle.o = malloc(cells * sizeof *oracle.o);
    oracle.o_abs = malloc(cells * sizeof *oracle.o_abs);
    visit_rows(p, step, head_step, batch_step, &oracle);
    return oracle;
}

void oracle_free(struct oracle *oracle)
{
    free(oracle->rows);
    free(oracle->o);
    free(oracle->o_abs);
    *oracle = (struct oracle){ 0 };
}

int64_t oracle_step(const struct problem *p, double flop)
{
    const double keys = (double)p->cap_k + 1;
    const double rows = (double)p->n * (double)p->hq * (double)p->cap_q;
    const double work = 2 * rows * keys * (double)(p->d + p->dv);
    const int64_t step = (int64_t)(work / flop) + 1;
    return step > 1 ? step | 1 : 1;
}

/* A number within the bound; an infinite LSE is exact; of another non-finite value only its being
 * so is promised. */
static bool is_close(double got, double want, double bound, bool is_lse)
{
    if (isfinite(want))
        return fabs(got - want) <= bound;
    return is_lse && isinf(want) ? got == want : !isfinite(got);
}

bool oracle_agrees(const struct oracle *oracle, const struct problem *p, int64_t skip_row,
                   const char *what)
{
    int64_t bad = 0;
    char first[200] = "";
    for (int64_t r = 0; r < oracle->count; r++) {
        const struct oracle_row *const row = &oracle->rows[r];
        if (row->i == skip_row)
            continue;
        const struct seq s = seq_get(p, row->n);
        const double e_s = tolerance_score(p->d, row->magnitude);
        for (int64_t d = -1; d < oracle->dv; d++) {
            double got, want, bound;
            if (d < 0) {
                if (p->lse.dtype == 0)
                    continue;
                got = format_decode(p->lse.dtype,
                                    view_at(&p->lse, s.q_batch, row->h, s.q_row + row->i, 0));
                want = row->lse;
                bound = tolerance_lse(e_s, row->magnitude, want);
            } else {
                got = format_decode(p->o.dtype,
                                    view_at(&p->o, s.q_batch, row->h, s.q_row + row->i, d));
                want = oracle->o[r * oracle->dv + d];
                bound = tolerance_output(p->q.dtype, p->v.dtype, p->o.dtype, e_s, want,
                                         oracle->o_abs[r * oracle->dv + d]);
            }
            if (is_close(got, want, bound, d < 0))
                continue;
            if (bad++ == 0)
                snprintf(first, sizeof first,
                         "%s[n %lld, h %lld, i %lld, d %lld] is %.9g, oracle %.9g, bound %.3g",
                         d < 0 ? "lse" : "o", (long long)row->n, (long long)row->h,
                         (long long)row->i, (long long)d, got, want, bound);
        }
    }
    if (bad)
        note_failure("%s: %lld of %lld elements off; %s", what, (long long)bad,
                     (long long)(oracle->count * oracle->dv), first);
    return bad == 0;
}

double row_ulp(int32_t dtype, double x)
{
    const int digits = dtype == QATTN_DTYPE_BF16 ? 8 : dtype == QATTN_DTYPE_F16 ? 11 : 24;
    const int lowest = dtype == QATTN_DTYPE_F16 ? -24 : -149;
    int exponent;
    frexp(x, &exponent); /* |x| = f * 2^exponent, f in [1/2, 1) */
    const int ulp = exponent - digits;
    return ldexp(1.0, x == 0 || ulp < lowest ? lowest : ulp);
}
