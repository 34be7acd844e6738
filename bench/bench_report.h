/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The bench's table on stdout and its CSV. bench/README.md explains the columns. */
#ifndef QATTN_BENCH_REPORT_H
#define QATTN_BENCH_REPORT_H

#include <stdio.h>

#include "bench_measure.h"

struct bench_report {
    FILE *csv;                   /* NULL: none */
    const char *label;           /* appended to the version column */
    int32_t device;              /* QATTN_DEVICE_* */
    bool cold;
};

/* false: told on stderr */
bool bench_report_open(struct bench_report *report, const char *csv_path);
bool bench_report_close(struct bench_report *report, const char *csv_path);
void bench_report_head(const struct bench_report *report);
/* A measured case. impl NULL: the public function. */
void bench_report_line(const struct bench_report *report, const char *suite, const struct bench_case *c,
                       const struct impl *impl, const struct bench_result *r, int threads);

#endif
