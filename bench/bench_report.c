/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "bench_report.h"

#include <errno.h>
#include <string.h>

#include "bench_device.h"
#include "roofline.h"

static const char csv_header[] =
    "suite,case,op,impl,dtype,threads,median_us,min_us,p95_us,host_us,gflops,gbs,roofline_share,"
    "workspace_bytes,max_err,version\n";

static bool on_device(const struct bench_report *report) { return report->device == QATTN_DEVICE_CUDA; }

/* ---------------------------------------------------------------- the roofline */

/* Peak of the best instructions this CPU has. */
static double best_flops(int threads)
{
    double flops = 0;
    for (int32_t arch = CPU_ARCH_AVX512; arch >= CPU_ARCH_GENERIC && flops == 0; arch--)
        flops = roofline_flops(arch, threads);
    return flops;
}

/* Flop/s of the unit that a CUDA row uses on this type: tensor cores, unless it is the generic row or IEEE fp32.
 * 3xTF32 spends three products on one. */
static double device_flops(const struct impl *impl, const struct bench_case *c)
{
    if (impl && impl->fallback)
        return bench_device_flops(UNIT_FMA32);
    if (c->dtype != QATTN_DTYPE_F32)
        return bench_device_flops(UNIT_MMA16);
    if (c->precision == QATTN_PRECISION_IEEE)
        return bench_device_flops(UNIT_FMA32);
    return bench_device_flops(UNIT_MMA_TF32) / (c->precision == QATTN_PRECISION_3XTF32 ? 3 : 1);
}

/* Time the machine needs at least, over the time taken: 1 is perfect. On CPU 16-bit types too are multiplied in
 * fp32, so its multiply-adds are the ceiling of every row of today. */
static double roofline_share(const struct bench_report *report, const struct bench_case *c, const struct impl *impl,
                             int threads, double seconds)
{
    const struct bench_work w = bench_case_work(c);
    double flops, read;
    if (on_device(report)) {
        flops = device_flops(impl, c);
        read = bench_device_read(report->cold ? 1e12 : w.bytes);
    } else {
        flops = impl ? roofline_flops(impl->arch, threads) : best_flops(threads);
        read = roofline_read(w.bytes, threads);
    }
    const double compute = flops > 0 ? w.flop / flops : 0, memory = read > 0 ? w.bytes / read : 0;
    return (compute > memory ? compute : memory) / seconds;
}

/* ---------------------------------------------------------------- output */

bool bench_report_open(struct bench_report *report, const char *csv_path)
{
    report->csv = fopen(csv_path, "w");
    if (report->csv)
        fputs(csv_header, report->csv);
    else
        fprintf(stderr, "qattn_bench: %s: %s\n", csv_path, strerror(errno));
    return report->csv != NULL;
}

bool bench_report_close(struct bench_report *report, const char *csv_path)
{
    const bool good = !report->csv || fclose(report->csv) == 0;
    if (!good)
        fprintf(stderr, "qattn_bench: %s: %s\n", csv_path, strerror(errno));
    report->csv = NULL;
    return good;
}

void bench_report_head(const struct bench_report *report)
{
    printf("%-66s %-12s %5s %10s %10s %8s %7s %5s %9s\n", "case", "impl", on_device(report) ? "host" : "thr",
           "median us", "min us", "GFLOP/s", "GB/s", "roof", "max err");
}

/* What one line of output says, apart from the names. */
struct line {
    char threads[16], host[24];  /* on CPU and on a device; else empty */
    double median_us, min_us, p95_us, gflops, gbs, share;
};

static void write_csv(const struct bench_report *report, const char *suite, const struct bench_case *c,
                      const char *id, const struct bench_result *r, const struct line *l)
{
    FILE *const csv = report->csv;
    fprintf(csv, "%s,\"%s\",%s,%s,%s,%s,", suite, c->text, bench_case_op_word(c), id, qattn__dtype_name(c->dtype),
            l->threads);
    fprintf(csv, "%.3f,%.3f,%.3f,%s,%.3f,%.3f,%.4f,", l->median_us, l->min_us, l->p95_us, l->host, l->gflops, l->gbs,
            l->share);
    fprintf(csv, "%zu,%.3e,%d.%d.%d%s%s\n", r->workspace_bytes, r->max_err, QATTN_VERSION_MAJOR,
            QATTN_VERSION_MINOR, QATTN_VERSION_PATCH, report->label[0] ? "+" : "", report->label);
    fflush(csv);
}

void bench_report_line(const struct bench_report *report, const char *suite, const struct bench_case *c,
                       const struct impl *impl, const struct bench_result *r, int threads)
{
    const struct bench_work w = bench_case_work(c);
    const char *const id = impl ? impl->id : "api";
    struct line l = {
        .median_us = 1e6 * r->median, .min_us = 1e6 * r->min, .p95_us = 1e6 * r->p95,
        .gflops = 1e-9 * w.flop / r->median, .gbs = 1e-9 * w.bytes / r->median,
        .share = roofline_share(report, c, impl, threads, r->median),
    };
    if (on_device(report))
        snprintf(l.host, sizeof l.host, "%.2f", 1e6 * r->host);
    else
        snprintf(l.threads, sizeof l.threads, "%d", threads);
    printf("%-66s %-12s %5s %10.1f %10.1f %8.1f %7.1f %5.2f %9.1e\n", c->text, id,
           on_device(report) ? l.host : l.threads, l.median_us, l.min_us, l.gflops, l.gbs, l.share, r->max_err);
    fflush(stdout);
    if (report->csv)
        write_csv(report, suite, c, id, r, &l);
}
