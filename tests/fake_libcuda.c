/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * A libcuda.so.1 that is no driver: just enough for the CUDA runtime to ask for its version and start it. In
 * LD_LIBRARY_PATH it takes the place of a real one. FAKE_VERSION=12080 is the version it tells, FAKE_INIT=100 the
 * answer of cuInit. Every other function is missing.
 */
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_FOUND = 500 };

int cuDriverGetVersion(int *version);
int cuInit(unsigned flags);
int cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags);
int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *found);

static int number(const char *name)
{
    const char *const value = getenv(name);
    return value ? atoi(value) : 0;
}

int cuDriverGetVersion(int *version)
{
    *version = number("FAKE_VERSION");
    return version ? SUCCESS : INVALID_VALUE;
}

int cuInit(unsigned flags)
{
    return flags ? INVALID_VALUE : number("FAKE_INIT");
}

int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *found)
{
    (void)version, (void)flags;
    *function = NULL;
    if (strncmp(name, "cuGetProcAddress", strlen("cuGetProcAddress")) == 0)
        *(int (**)(const char *, void **, int, unsigned long long, int *))function = cuGetProcAddress_v2;
    else if (strcmp(name, "cuInit") == 0)
        *(int (**)(unsigned))function = cuInit;
    else if (strcmp(name, "cuDriverGetVersion") == 0)
        *(int (**)(int *))function = cuDriverGetVersion;
    if (found)
        *found = *function ? 0 : 1;
    return *function ? SUCCESS : NOT_FOUND;
}

int cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags)
{
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
