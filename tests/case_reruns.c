/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Checks that run the case again: in another layout, in part, without its mask, for its memory, for
 * its time. */
#include "case_checks.h"

#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"
#include "support.h"
#include "tolerance.h"

/* Runs `in` on the run's row into *out. false: skipped or failed, nothing to free. */
static bool run_again(const struct case_run *run, struct case_inputs *in, struct case_outputs *out,
                      struct problem *p)
{
    if (!case_outputs_make(out, in)) {
        note_failure("no memory for a second output");
        return false;
    }
    if (case_problem(p, in, out, run->op) == QATTN_OK && row_run(run->row, p) == QATTN_OK)
        return true;
    note_failure("the second run failed");
    case_outputs_free(out);
    return false;
}

static void expect_same_bits(const struct case_run *run, struct case_inputs *in, const char *what)
{
    struct case_outputs out;
    struct problem p;
    if (!run_again(run, in, &out, &p))
        return;
    if (!tensor_same_bits(&run->out->o, &out.o))
        note_failure("O has other bits: %s", what);
    if (run->op != OP_MATMUL_NT && !tensor_same_bits(&run->out->lse, &out.lse))
        note_failure("LSE has other bits: %s", what);
    case_outputs_free(&out);
}

/* Two outputs of the same values by other routes: within 4 units in the last place plus P's
 * rounding, and in the root mean square within P's rounding. */
static void expect_close(const qattn_tensor *a, const qattn_tensor *b, double ulps,
                         const char *what)
{
    const double unit = tolerance_unit(a->dtype);
    double error = 0, square = 0;
    for (int64_t n = 0; n < a->shape[0]; n++)
        for (int64_t h = 0; h < a->shape[1]; h++)
            for (int64_t s = 0; s < a->shape[2]; s++)
                for (int64_t d = 0; d < a->shape[3]; d++) {
                    const double x = tensor_get(a, n, h, s, d), y = tensor_get(b, n, h, s, d);
                    error += (x - y) * (x - y);
                    square += x * x;
                    if (!(fabs(x - y) <=
                          ulps * row_ulp(a->dtype, x) + (ulps > 2 ? unit : 0x1p-20))) {
                        note_failure("[%lld,%lld,%lld,%lld] is %.9g and %.9g: %s", (long long)n,
                                     (long long)h, (long long)s, (long long)d, x, y, what);
                        return;
                    }
                }
    if (!(error <= 4 * unit * unit * square))
        note_failure("rms difference %.3g of %.3g: %s", sqrt(error), sqrt(square), what);
}

void check_bitwise_repeat(const struct case_run *run, const char *argument)
{
    (void)argument;
    expect_same_bits(run, run->in, "the same call again");
}

/* All tensors packed, and one at a time strided. */
void check_layout_invariant(const struct case_run *run, const char *argument)
{
    static const char *const names[] = { "q strided alone", "k strided alone", "v strided alone",
                                         "o strided alone" };
    (void)argument;
    for (int t = -1; t < CASE_TENSORS; t++) {
        struct case_inputs in;
        if (t >= 0 && !run->in->c.tensors[t].strided)
            continue;
        if (!case_inputs_make(&in, &run->in->c, t < 0 ? 0 : 1u << t, false)) {
            note_failure("no memory for a packed copy");
            continue;
        }
        expect_same_bits(run, &in, t < 0 ? "all packed" : names[t]);
        case_inputs_free(&in);
    }
}

/* The same with zeros where the poison is. */
void check_poison_invariant(const struct case_run *run, const char *argument)
{
    struct case_inputs in;
    (void)argument;
    if (!case_inputs_make(&in, &run->in->c, ~0u, true)) {
        note_failure("no memory for a copy");
        return;
    }
    expect_same_bits(run, &in, "zeros in place of poison");
    case_inputs_free(&in);
}

/* Batch n of t alone. */
static void slice_batch(qattn_tensor *t, int64_t n)
{
    if (t->dtype == 0 || t->shape[0] == 1)
        return;
    if (t->data)
        t->data = tensor_at(t, n, 0, 0, 0);
    t->shape[0] = 1;
}

static void check_slices(const struct case_run *run, bool bits)
{
    const int64_t b = run->in->c.b;
    const int64_t batches[4] = { 0, 1, b / 2, b - 1 };
    for (int i = 0; i < 4 && b > 0; i++) {
        struct case_inputs in = *run->in;
        struct case_outputs out;
        struct problem p;
        qattn_tensor o = run->out->o;
        if (batches[i] >= b)
            continue;
        for (int t = 0; t < CASE_TENSORS; t++)
            slice_batch(&in.tensors[t], batches[i]);
        slice_batch(&in.params.keep, batches[i]);
        slice_batch(&in.params.bias, batches[i]);
        tensor_pack(in.tensors[CASE_O].shape, in.tensors[CASE_O].stride);
        if (!run_again(run, &in, &out, &p))
            continue;
        slice_batch(&o, batches[i]);
        if (!bits)
            expect_close(&o, &out.o, 2, "a batch alone");
        else if (!tensor_same_bits(&o, &out.o))
            note_failure("batch %lld alone has other bits", (long long)batches[i]);
        case_outputs_free(&out);
    }
}

/* Equal bits are promised with BATCH_INVARIANT, which these cases ask for. */
void check_batch_slice_equal(const struct case_run *run, const char *argument)
{
    (void)argument;
    check_slices(run, true);
}

void check_batch_slice_close(const struct case_run *run, const char *argument)
{
    (void)argument;
    check_slices(run, false);
}

/* The case's mask taken away; `mask` bits added. */
static void expect_close_without_mask(const struct case_run *run, uint32_t mask, const char *what)
{
    struct case_inputs in = *run->in;
    struct case_outputs out;
    struct problem p;
    memset(&in.params.keep, 0, sizeof in.params.keep);
    memset(&in.params.bias, 0, sizeof in.params.bias);
    in.params.mask |= mask;
    if (!run_again(run, &in, &out, &p))
        return;
    expect_close(&run->out->o, &out.o, 4, what);
    case_outputs_free(&out);
}

void check_causal_flag(const struct case_run *run, const char *argument)
{
    (void)argument;
    expect_close_without_mask(run, QATTN_MASK_CAUSAL, "causal flag in place of the mask");
}

void check_without_mask(const struct case_run *run, const char *argument)
{
    (void)argument;
    expect_close_without_mask(run, 0, "without the mask");
}

/* K and V with every head repeated for each query head of its group. */
void check_repeated_heads(const struct case_run *run, const char *argument)
{
    struct case_inputs in = *run->in;
    struct span spans[2] = { { 0 } };
    struct case_outputs out;
    struct problem p;
    bool ok = true;
    (void)argument;
    for (int t = CASE_K; t <= CASE_V; t++) {
        const qattn_tensor *const from = &run->in->tensors[t];
        qattn_tensor *const to = &in.tensors[t];
        to->shape[1] = in.tensors[CASE_Q].shape[1];
        tensor_pack(to->shape, to->stride);
        ok = ok && span_make(&spans[t - CASE_K], (size_t)(tensor_extent(to->shape, to->stride) *
                                                          format_size(to->dtype)));
        to->data = spans[t - CASE_K].data;
        const int64_t group = to->shape[1] / from->shape[1];
        for (int64_t b = 0; ok && b < to->shape[0]; b++)
            for (int64_t h = 0; h < to->shape[1]; h++)
                for (int64_t x = 0; x < to->shape[2] * to->shape[3]; x++)
                    memcpy(tensor_at(to, b, h, x / to->shape[3], x % to->shape[3]),
                           tensor_at(from, b, h / group, x / to->shape[3], x % to->shape[3]),
                           (size_t)format_size(to->dtype));
    }
    if (!ok) {
        note_failure("no memory for repeated heads");
    } else if (run_again(run, &in, &out, &p)) {
        expect_close(&run->out->o, &out.o, 4, "key heads repeated");
        case_outputs_free(&out);
    }
    span_free(&spans[0]);
    span_free(&spans[1]);
}

/* ---------------------------------------------------------------- memory */

static size_t heap_in_use(void)
{
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* Through the public call, which takes its workspace from the heap; once, since it chooses its row
 * itself. check: 100 calls, check-big: as many as asked. The allocator's caches may take a little.
 * */
void check_memory_flat(const struct case_run *run, const char *argument)
{
    const struct impl *rows[ROW_MAX];
    const size_t slack = 65536;
    const int64_t repeat = run->big && run->in->c.repeat > 0 ? run->in->c.repeat : 100;
    (void)argument;
    if (run->op != OP_FLASH_FORWARD) {
        const size_t bytes = run->row->workspace(run->p);
        if (bytes > (size_t)64 << 20)
            note_failure("workspace of %zu bytes: a hidden copy?", bytes);
        return;
    }
    if (rows_for(run->p, rows) == 0 || rows[0] != run->row)
        return;
    if (gpu_wanted()) {
        count_skipped("cases checks", "device_memory_flat: CUDA: the suite cuda_calls", 1);
        return;
    }
    qattn_attn_params params = run->in->params;
    params.lse = run->out->lse;
    const qattn_tensor *const t = run->in->tensors;
    size_t before = 0;
    for (int64_t i = 0; i < repeat; i++) {
        if (i == 2)
            before = heap_in_use(); /* pools and lazy tables are there by now */
        if (qattn_flash_forward(&t[CASE_Q], &t[CASE_K], &t[CASE_V], &run->out->o, &params, NULL) !=
            QATTN_OK) {
            note_failure("call %lld failed", (long long)i);
            return;
        }
    }
    const size_t after = heap_in_use();
    if (after > before + slack)
        note_failure("%zu bytes of heap lost over %lld calls", after - before,
                     (long long)(repeat - 2));
}

/* ---------------------------------------------------------------- time: check-big on a quiet
 * machine */

static double seconds_of(const struct case_run *run, struct case_inputs *in)
{
    struct case_outputs out;
    struct problem p;
    if (!run_again(run, in, &out, &p))
        return -1;
    const double seconds = row_seconds(run->row, &p, 3);
    case_outputs_free(&out);
    return seconds;
}

static void expect_ratio(const char *what, double time, double other, double limit)
{
    char key[96];
    snprintf(key, sizeof key, "time %s / limit %.2f", what, limit);
    report_ratio(key, time / other / limit);
    if (!(time > 0 && other > 0 && time <= limit * other))
        note_failure("%s: %.3g s against %.3g s, limit %.2f", what, time, other, limit);
}

void check_time_unmasked(const struct case_run *run, const char *argument)
{
    struct case_inputs in = *run->in;
    (void)argument;
    memset(&in.params.bias, 0, sizeof in.params.bias);
    /* "not above", with room for reading the mask and for noise */
    expect_ratio("with the mask, without", seconds_of(run, run->in), seconds_of(run, &in), 1.3);
}

void check_time_below_full(const struct case_run *run, const char *argument)
{
    struct case_inputs in = *run->in;
    in.params.mask &= ~(uint32_t)QATTN_MASK_WINDOW;
    in.params.window_left = in.params.window_right = 0;
    expect_ratio("with the window, without", seconds_of(run, run->in), seconds_of(run, &in),
                 strtod(argument, NULL));
}

void check_time_below_d40(const struct case_run *run, const char *argument)
{
    struct test_case wide = run->in->c;
    struct case_inputs in;
    wide.d = wide.dv = 40;
    if (!case_inputs_make(&in, &wide, ~0u, false)) {
        note_failure("no memory for D = 40");
        return;
    }
    expect_ratio("D 33, D 40", seconds_of(run, run->in), seconds_of(run, &in),
                 strtod(argument, NULL));
    case_inputs_free(&in);
}

void check_scaling(const struct case_run *run, const char *argument)
{
    struct problem p = *run->p;
    if (sysconf(_SC_NPROCESSORS_ONLN) < 6) {
        count_skipped("cases checks", "cpu_scaling_at_least: fewer than 6 CPUs", 1);
        return;
    }
    p.num_threads = 6;
    const double many = row_seconds(run->row, &p, 3);
    p.num_threads = 1;
    expect_ratio("6 threads, 1 thread", many, row_seconds(run->row, &p, 3),
                 1 / strtod(argument, NULL));
}
