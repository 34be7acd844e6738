/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * check_all: every suite on the library's object files. Host and CPU suites fork, so a crash is one failed test.
 * Selection: CK_RUN_SUITE, CK_RUN_CASE, CK_INCLUDE_TAGS, CK_EXCLUDE_TAGS (tags cpu, gpu, slow);
 * QATTN_TEST_GRID=small, edges (grid_edges.c alone) or random (other cases for each QATTN_TEST_SEED, QATTN_TEST_RANDOM
 * of them); QATTN_TEST_REPORT=1 prints measured errors beside their bounds.
 * QATTN_TEST_DEVICE=cuda: the suites that run rows of the table, on the CUDA rows, in this one process;
 * QATTN_TEST_PART=sharded: those of them that heed QATTN_TEST_SHARD, alone: the others (run_gpu.sh).
 * QATTN_TEST_SUITES: names of suites, a space between; Check's own CK_RUN_SUITE takes one.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_run.h"
#include "core/impls.h"
#include "gpu.h"
#include "suites.h"
#include "support.h"

#define SUITE_ENTRY(name) { #name, suite_##name },
static const struct { const char *name; Suite *(*make)(void); } suites[] = { SUITE_LIST(SUITE_ENTRY) };

/* Suites that run rows of the table in copies of host memory, or on the device itself. alone: they take time, or
 * change what other processes see of the device. */
static const struct {
    const char *name;
    bool alone;
} gpu_suites[] = {
    { "cuda_calls", true },  { "cuda_graphs", true }, { "cuda_far", true },  { "cuda_big", false },
    { "impls", false },      { "invariance", false }, { "lottery", false },  { "hostile", false },
    { "huge", false },       { "long_keys", false },  { "recipe", false },   { "onnx", false },
    { "smollm2", false },
    { "cases", false },      { "workspace", false },
};

static bool runs_on_gpu(const char *name)
{
    const char *const part = getenv("QATTN_TEST_PART");
    for (size_t i = 0; i < sizeof gpu_suites / sizeof *gpu_suites; i++)
        if (strcmp(name, gpu_suites[i].name) == 0)
            return !part || strcmp(part, "all") == 0 || strcmp(part, gpu_suites[i].alone ? "alone" : "sharded") == 0;
    return false;
}

/* QATTN_TEST_SUITES="onnx cases": these alone. */
static bool suite_asked(const char *name)
{
    const char *const list = getenv("QATTN_TEST_SUITES"), *at = list;
    const size_t length = strlen(name);
    while (at && (at = strstr(at, name)) != NULL) {
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
        at += length;
    }
    return !list;
}

static bool suite_wanted(const char *name)
{
    if (!suite_asked(name))
        return false;
    return gpu_wanted() ? runs_on_gpu(name) : strncmp(name, "cuda_", 5) != 0 || strcmp(name, "cuda_error") == 0;
}

/* False: the device was asked for and is not there. */
static bool find_device(void)
{
    int cuda_rows = 0;
    const char *why = "";
    for (int i = 0; i < qattn__impl_count; i++)
        cuda_rows += qattn__impls[i].device_type == QATTN_DEVICE_CUDA;
    if (!gpu_wanted()) {
        printf("no CUDA device used: %d CUDA rows in the table, their cases are not run here\n", cuda_rows);
        return true;
    }
    if (gpu_usable(&why)) {
        printf("device: %s; %d CUDA rows\n", gpu_name(), cuda_rows);
        return true;
    }
    printf("skipped: no suite ran on a CUDA device: %s\n0 passed, 0 failed, 1 skipped\n", why);
    return false;
}

/* A misspelt name would run nothing, or everything. */
static bool choices_known(void)
{
    const char *const impl = getenv("QATTN_TEST_IMPL"), *const grid = getenv("QATTN_TEST_GRID");
    bool row_found = !impl;
    for (int i = 0; i < qattn__impl_count; i++)
        row_found |= attn_row_wanted(&qattn__impls[i]);
    if (!row_found)
        printf("QATTN_TEST_IMPL: no row of this device is called %s\n", impl);
    const bool grid_known = !grid || !*grid || grid_is("small") || grid_is("edges") || grid_is("random");
    if (!grid_known)
        printf("QATTN_TEST_GRID: small, edges or random, not %s\n", grid);
    return row_found && grid_known;
}

int main(void)
{
    if (!find_device())
        return EXIT_SUCCESS;
    if (!choices_known())
        return EXIT_FAILURE;
    SRunner *runner = srunner_create(NULL);
    const size_t count = sizeof suites / sizeof *suites;
    for (size_t i = 0; i < count; i++)
        if (suite_wanted(suites[i].name))
            srunner_add_suite(runner, suites[i].make());
    support_init();
    srunner_set_fork_status(runner, gpu_wanted() ? CK_NOFORK : CK_FORK);
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
