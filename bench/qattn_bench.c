/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The one benchmark driver. It walks the library's own table of implementations, checks each case against fp64 and
 * then times it: a kernel cannot be fast and untested. bench/README.md explains options, words and columns.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_device.h"
#include "bench_matrix.h"
#include "bench_report.h"

enum { MAX_SUITES = 32, MAX_CASES = 32 };

struct options {
    const char *suites[MAX_SUITES], *cases[MAX_CASES];
    int num_suites, num_cases;
    const char *impl;            /* NULL: the fastest row that runs the case; "all"; "api"; an id */
    const char *csv_path, *label;
    int32_t device;              /* QATTN_DEVICE_* */
    int threads;                 /* 0: the library's default */
    bool list, matrix;
    struct bench_settings settings;
};

struct run {
    struct options opt;
    struct bench_report report;
    int lines, skipped, bad;     /* bad: wrong or failed */
};

static const char usage[] =
    "qattn_bench [options]: checks and times libqattn's implementations\n"
    "  --suite FILE   cases from a file, one a line (repeatable)\n"
    "  --case TEXT    one case, e.g. 'flash f32 hq16 hkv8 sq512 sk512 d128 causal' (repeatable)\n"
    "  --impl ID      a row of the table; 'all' of the device; 'api': the public call with its checks and\n"
    "                 dispatch; default: the fastest row that supports the case\n"
    "  --device NAME  cpu (default) or cuda: where the tensors lie\n"
    "  --threads N    CPU threads; default: as the library chooses\n"
    "  --ms N         time to spend on one line (default 200)\n"
    "  --repeat N     exactly N timed calls instead\n"
    "  --cold         evict the tensors from the caches before each call; cuda: flush L2\n"
    "  --csv FILE     also write CSV\n"
    "  --label TEXT   appended to the CSV's version column\n"
    "  --list         the table of implementations, and which run here\n"
    "  --matrix       the support matrix in Markdown\n";

/* ---------------------------------------------------------------- options */

static const char *next_argument(int argc, char **argv, int *i)
{
    if (*i + 1 >= argc) {
        fprintf(stderr, "qattn_bench: %s needs a value\n", argv[*i]);
        exit(2);
    }
    return argv[++*i];
}

static double next_number(int argc, char **argv, int *i, double least)
{
    const char *const name = argv[*i], *const text = next_argument(argc, argv, i);
    char *end;
    const double value = strtod(text, &end);
    if (*end || end == text || !(value >= least && value < 1e6)) {
        fprintf(stderr, "qattn_bench: %s %s: a number of at least %g, please\n", name, text, least);
        exit(2);
    }
    return value;
}

static void add_text(const char **list, int *count, int max, const char *text)
{
    if (*count == max) {
        fprintf(stderr, "qattn_bench: at most %d of an option\n", max);
        exit(2);
    }
    list[(*count)++] = text;
}

static int32_t parse_device(const char *name)
{
    const char *why;
    if (!strcmp(name, "cpu"))
        return QATTN_DEVICE_CPU;
    if (strcmp(name, "cuda"))
        fprintf(stderr, "qattn_bench: --device %s: cpu or cuda, please\n", name);
    else if (bench_device_usable(&why))
        return QATTN_DEVICE_CUDA;
    else
        fprintf(stderr, "qattn_bench: --device cuda: %s\n", why);
    exit(2);
}

static void parse_options(struct options *opt, int argc, char **argv)
{
    opt->device = QATTN_DEVICE_CPU;
    opt->settings.ms = 200;
    opt->label = "";
    for (int i = 1; i < argc; i++) {
        const char *const name = argv[i];
        if (!strcmp(name, "--suite"))
            add_text(opt->suites, &opt->num_suites, MAX_SUITES, next_argument(argc, argv, &i));
        else if (!strcmp(name, "--case"))
            add_text(opt->cases, &opt->num_cases, MAX_CASES, next_argument(argc, argv, &i));
        else if (!strcmp(name, "--impl"))
            opt->impl = next_argument(argc, argv, &i);
        else if (!strcmp(name, "--csv"))
            opt->csv_path = next_argument(argc, argv, &i);
        else if (!strcmp(name, "--label"))
            opt->label = next_argument(argc, argv, &i);
        else if (!strcmp(name, "--device"))
            opt->device = parse_device(next_argument(argc, argv, &i));
        else if (!strcmp(name, "--threads"))
            opt->threads = (int)next_number(argc, argv, &i, 0);
        else if (!strcmp(name, "--repeat"))
            opt->settings.repeat = (int)next_number(argc, argv, &i, 1);
        else if (!strcmp(name, "--ms"))
            opt->settings.ms = next_number(argc, argv, &i, 1);
        else if (!strcmp(name, "--cold"))
            opt->settings.cold = true;
        else if (!strcmp(name, "--list"))
            opt->list = true;
        else if (!strcmp(name, "--matrix"))
            opt->matrix = true;
        else {
            fputs(usage, strcmp(name, "--help") ? stderr : stdout);
            exit(strcmp(name, "--help") ? 2 : 0);
        }
    }
}

static const struct impl *find_impl(const char *id)
{
    for (int i = 0; i < qattn__impl_count; i++)
        if (!strcmp(qattn__impls[i].id, id))
            return &qattn__impls[i];
    fprintf(stderr, "qattn_bench: no implementation '%s'; --list shows them\n", id);
    exit(2);
}

/* ---------------------------------------------------------------- cases */

static const char *const verdict_words[] = { "ok", "skipped", "FAILED", "WRONG" };

/* true: the case has been dealt with (measured, wrong or failed); false: this row does not run it. */
static bool run_impl(struct run *run, const char *suite, const struct bench_case *c,
                     struct bench_data *d, const struct impl *impl, bool say_unsupported)
{
    const struct bench_result r = bench_measure(impl, d, c, &run->opt.settings);
    const char *const id = impl ? impl->id : "api";
    if (r.verdict == BENCH_OK) {
        bench_report_line(&run->report, suite, c, impl, &r, d->problem.num_threads);
        run->lines++;
    } else if (r.verdict != BENCH_UNSUPPORTED || say_unsupported)
        printf("%-66s %-12s %s: %s\n", c->text, id, verdict_words[r.verdict], r.why);
    run->bad += r.verdict == BENCH_WRONG || r.verdict == BENCH_FAILED;
    return r.verdict != BENCH_UNSUPPORTED;
}

static void run_impls(struct run *run, const char *suite, const struct bench_case *c,
                      struct bench_data *d)
{
    const char *const want = run->opt.impl;
    const bool all = want && !strcmp(want, "all");
    bool done = false;
    if (want && !strcmp(want, "api"))
        done = run_impl(run, suite, c, d, NULL, true);
    else if (want && !all)
        done = run_impl(run, suite, c, d, find_impl(want), true);
    else
        for (int i = 0; i < qattn__impl_count && (all || !done); i++)
            if (qattn__impls[i].device_type == run->opt.device)
                done |= run_impl(run, suite, c, d, &qattn__impls[i], all);
    if (!done) {
        run->skipped++;
        if (!want)
            printf("%-66s no implementation\n", c->text);
    }
}

static void run_case(struct run *run, const char *suite, const char *where, const char *text)
{
    static struct bench_case c;
    static struct bench_data d;
    char why[512];
    if (!bench_case_parse(&c, text, why, sizeof why)) {
        fprintf(stderr, "%s: %s\n", where, why);
        exit(2);
    }
    if (!bench_data_make(&d, &c, run->opt.device, run->opt.threads, false, why, sizeof why)) {
        printf("%-66s FAILED: %s\n", c.text, why);
        run->bad++;
        return;
    }
    run_impls(run, suite, &c, &d);
    bench_data_free(&d);
}

/* "bench/suites/prefill.txt" -> "prefill" */
static void name_suite(char *out, size_t cap, const char *path)
{
    const char *const slash = strrchr(path, '/');
    snprintf(out, cap, "%s", slash ? slash + 1 : path);
    char *const dot = strrchr(out, '.');
    if (dot && dot != out)
        *dot = 0;
}

/* One case a line; '#' begins a comment. */
static void run_suite(struct run *run, const char *path)
{
    char line[512], suite[64], where[512];
    FILE *const file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "qattn_bench: %s: %s\n", path, strerror(errno));
        exit(2);
    }
    name_suite(suite, sizeof suite, path);
    printf("\nsuite %s\n", suite);
    bench_report_head(&run->report);
    for (int number = 1; fgets(line, sizeof line, file); number++) {
        line[strcspn(line, "#\r\n")] = 0;
        if (!line[strspn(line, " \t")])
            continue;
        snprintf(where, sizeof where, "%s:%d", path, number);
        run_case(run, suite, where, line);
    }
    fclose(file);
}

/* ---------------------------------------------------------------- the table */

static void print_impls(int32_t device)
{
    static struct bench_case c;
    static struct bench_data d;
    char why[512];
    if (!bench_case_parse(&c, "flash f32 b1 hq2 hkv1 sq64 sk64 d64", why, sizeof why)
        || !bench_data_make(&d, &c, device, 0, true, why, sizeof why)) {
        fprintf(stderr, "qattn_bench: %s\n", why);
        exit(3);
    }
    printf("implementations, fastest first; asked with %s\n", c.text);
    for (int i = 0; i < qattn__impl_count; i++) {
        const struct impl *const impl = &qattn__impls[i];
        why[0] = 0;
        const bool here = impl->device_type == d.problem.device_type;
        if (here && impl->supports(&d.problem, why, sizeof why))
            printf("  %-14s runs\n", impl->id);
        else
            printf("  %-14s does not run: %s\n", impl->id, here ? why : "it is for another device");
    }
    bench_data_free(&d);
}

/* 0: all right; 1: a case was wrong or failed; 2: usage. */
int main(int argc, char **argv)
{
    static struct run run;
    char info[256];
    parse_options(&run.opt, argc, argv);
    if (run.opt.matrix) {
        bench_print_matrix();
        return 0;
    }
    qattn_build_info(info, sizeof info);
    printf("%s%s%s\n", info, run.opt.device == QATTN_DEVICE_CUDA ? "\n" : "",
           run.opt.device == QATTN_DEVICE_CUDA ? bench_device_name() : "");
    if (run.opt.list) {
        print_impls(run.opt.device);
        return 0;
    }
    if (!run.opt.num_suites && !run.opt.num_cases) {
        fputs(usage, stderr);
        return 2;
    }
    run.report = (struct bench_report){ NULL, run.opt.label, run.opt.device, run.opt.settings.cold };
    if (run.opt.csv_path && !bench_report_open(&run.report, run.opt.csv_path))
        return 2;
    if (run.opt.num_cases)
        bench_report_head(&run.report);
    for (int i = 0; i < run.opt.num_cases; i++)
        run_case(&run, "-", "--case", run.opt.cases[i]);
    for (int i = 0; i < run.opt.num_suites; i++)
        run_suite(&run, run.opt.suites[i]);
    if (run.opt.device == QATTN_DEVICE_CUDA)
        bench_device_print_limits();
    printf("\n%d lines, %d cases skipped, %d wrong or failed\n", run.lines, run.skipped, run.bad);
    return !bench_report_close(&run.report, run.opt.csv_path) || run.bad;
}
