/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "core/config.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/impls.h"
#include "core/status.h"

static struct config config = { .max_cpu_arch = INT32_MAX, .max_cuda_arch = INT32_MAX };

static void complain(const char *name, const char *value, const char *rule)
{
    snprintf(config.error, sizeof config.error, "environment variable %s is \"%.64s\": must be %s", name, value, rule);
}

static void read_max_arch(const char *value)
{
    static const struct { const char *name; int32_t cpu, cuda; } known[] = {
        { "generic", CPU_ARCH_GENERIC, INT32_MAX }, { "avx2", CPU_ARCH_AVX2, INT32_MAX },
        { "avx512", CPU_ARCH_AVX512, INT32_MAX },   { "amx", CPU_ARCH_AMX, INT32_MAX },
        { "80", INT32_MAX, 80 },                    { "90", INT32_MAX, 90 },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(value, known[i].name) == 0) {
            config.max_cpu_arch = known[i].cpu;
            config.max_cuda_arch = known[i].cuda;
            return;
        }
    }
    complain("QATTN_MAX_ARCH", value, "80, 90, generic, avx2, avx512 or amx");
}

static void read_impl(const char *value)
{
    for (int i = 0; i < qattn__impl_count; i++) {
        if (strcmp(value, qattn__impls[i].id) == 0) {
            qattn__copy_text(config.impl, sizeof config.impl, value);
            return;
        }
    }
    char rule[128] = "one of";
    for (int i = 0; i < qattn__impl_count; i++) {
        const size_t used = strlen(rule);
        snprintf(rule + used, sizeof rule - used, " %s", qattn__impls[i].id);
    }
    complain("QATTN_IMPL", value, rule);
}

static void read_num_threads(const char *value)
{
    char *end;
    errno = 0;
    const long n = strtol(value, &end, 10);
    if (errno || *end || end == value || n < 1 || n > INT32_MAX)
        complain("QATTN_NUM_THREADS", value, "a whole number of at least 1");
    else
        config.num_threads = (int32_t)n;
}

static void read_switch(bool *on, const char *name, const char *value)
{
    *on = strcmp(value, "1") == 0;
    if (!*on && strcmp(value, "0") != 0)
        complain(name, value, "1 or 0");
}

static void read_environment(void)
{
    const char *value;
    if ((value = getenv("QATTN_IMPL")) && *value)
        read_impl(value);
    if ((value = getenv("QATTN_MAX_ARCH")) && *value)
        read_max_arch(value);
    if ((value = getenv("QATTN_NUM_THREADS")) && *value)
        read_num_threads(value);
    if ((value = getenv("QATTN_LOG")) && *value)
        read_switch(&config.log, "QATTN_LOG", value);
    if ((value = getenv("QATTN_CHECK_POINTERS")) && *value)
        read_switch(&config.check_pointers, "QATTN_CHECK_POINTERS", value);
}

const struct config *qattn__config(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_environment);
    return &config;
}
