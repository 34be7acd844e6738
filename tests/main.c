/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * check_all: every suite on the library's object files. Host and CPU suites fork, so a crash is one failed test.
 * Selection: CK_RUN_SUITE, CK_RUN_CASE, CK_INCLUDE_TAGS, CK_EXCLUDE_TAGS (tags cpu, gpu, slow);
 * QATTN_TEST_GRID=small; QATTN_TEST_REPORT=1 prints measured errors against their bounds.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/impls.h"
#include "suites.h"
#include "support.h"

#define SUITE_ENTRY(name) { #name, suite_##name },
static const struct { const char *name; Suite *(*make)(void); } suites[] = { SUITE_LIST(SUITE_ENTRY) };

static void print_devices(void)
{
    int cuda_rows = 0;
    for (int i = 0; i < qattn__impl_count; i++)
        cuda_rows += qattn__impls[i].device_type == QATTN_DEVICE_CUDA;
    printf("no CUDA device used: %d CUDA rows in the table, their cases are not run here\n", cuda_rows);
}

int main(void)
{
    SRunner *runner = srunner_create(NULL);
    const size_t count = sizeof suites / sizeof *suites;
    for (size_t i = 0; i < count; i++)
        srunner_add_suite(runner, suites[i].make());
    support_init();
    srunner_set_fork_status(runner, CK_FORK);
    print_devices();
    fflush(stdout);
    srunner_run_all(runner, CK_ENV);
    counters_print();
    if (env_number("QATTN_TEST_REPORT", 0))
        reports_print();
    const int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    printf("check_all: %d tests run, %d failed\n", run, failed);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
