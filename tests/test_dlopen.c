/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * usage: test_dlopen libqattn.so libqattn.symbols
 * What a plugin host does: load with every symbol bound at once, find each exported name, compute, unload,
 * load again. Loading must start no thread (fork stays safe) and leave the environment's devices alone.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "qattn.h"

static int passed, failed;

static void expect(int ok, const char *what)
{
    if (ok) {
        passed++;
    } else {
        failed++;
        printf("failed: %s\n", what);
    }
}

/* Entries of a directory of /proc/self. */
static int count_entries(const char *path)
{
    int count = 0;
    DIR *dir = opendir(path);
    if (!dir)
        return -1;
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

/* Is a device node of the GPU driver, or its library, open or mapped in this process? */
static int touches_driver(void)
{
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps)
        return -1;
    while (fgets(line, sizeof line, maps))
        found |= strstr(line, "libcuda.so") != NULL || strstr(line, "/dev/nvidia") != NULL;
    fclose(maps);
    return found;
}

static void *find(void *lib, const char *name)
{
    void *symbol = dlsym(lib, name);
    expect(symbol != NULL, name);
    return symbol;
}

static void find_all(void *lib, const char *list)
{
    char name[128];
    FILE *file = fopen(list, "r");
    expect(file != NULL, list);
    if (!file)
        return;
    while (fgets(name, sizeof name, file)) {
        name[strcspn(name, "\n")] = '\0';
        (void)find(lib, name);
    }
    fclose(file);
}

/* One head, two queries, two keys, D 1: row 0 sees key 0 alone, row 1 both with equal scores. */
static void compute(void *lib)
{
    int32_t (*init)(qattn_tensor *, void *, int32_t, int32_t, int32_t, int32_t, int64_t, int64_t, int64_t, int64_t);
    int32_t (*forward)(const qattn_tensor *, const qattn_tensor *, const qattn_tensor *, const qattn_tensor *,
                       const qattn_attn_params *, qattn_stream);
    void *symbol = find(lib, "qattn_tensor_init");
    memcpy(&init, &symbol, sizeof init);
    symbol = find(lib, "qattn_flash_forward");
    memcpy(&forward, &symbol, sizeof forward);
    if (!init || !forward)
        return;
    float q[2] = { 1, 1 }, k[2] = { 1, 1 }, v[2] = { 2, 6 }, o[2] = { NAN, NAN };
    float *const data[4] = { q, k, v, o };
    qattn_tensor t[4];
    for (int i = 0; i < 4; i++)
        expect(init(&t[i], data[i], QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BHSD, 1, 1, 2, 1) == QATTN_OK,
               "qattn_tensor_init");
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    params.mask = QATTN_MASK_CAUSAL;
    expect(forward(&t[0], &t[1], &t[2], &t[3], &params, NULL) == QATTN_OK, "qattn_flash_forward");
    expect(o[0] == 2.0f && fabsf(o[1] - 4.0f) < 1e-6f, "values of qattn_flash_forward");
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: test_dlopen libqattn.so libqattn.symbols\n");
        return 2;
    }
    const int threads = count_entries("/proc/self/task"), files = count_entries("/proc/self/fd");
    for (int round = 0; round < 3; round++) {
        void *lib = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!lib) {
            printf("failed: %s\n", dlerror());
            printf("%d passed, %d failed\n", passed, failed + 1);
            return 1;
        }
        if (round == 0) {
            expect(count_entries("/proc/self/task") == threads, "loading starts no thread");
            expect(count_entries("/proc/self/fd") == files, "loading opens no file");
            expect(touches_driver() == 0, "loading touches no GPU driver");
            expect(dlsym(lib, "qattn__fail") == NULL, "private functions are hidden");
            find_all(lib, argv[2]);
        }
        compute(lib);
        expect(dlclose(lib) == 0, "dlclose");
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
