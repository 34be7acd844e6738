/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The library as a plug-in: found and loaded at run time, nothing linked. The program starts without it, and can
 * say why it does not use it.
 *
 *     cc load.c $(pkg-config --cflags qattn) -ldl -lm && ./a.out [libqattn.so.0]
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <qattn.h>

enum { B = 1, H = 2, S = 40, D = 16 };

/* Only what this program calls. The prototypes of the header check each use. */
static struct {
    int32_t (*abi_version)(void);
    int32_t (*query)(const char *name, int64_t *value);
    int32_t (*last_error)(char *buf, size_t cap);
    int32_t (*tensor_init)(qattn_tensor *out, void *data, int32_t dtype, int32_t device_type, int32_t device_id,
                           int32_t layout, int64_t b, int64_t h, int64_t s, int64_t d);
    int32_t (*flash_forward)(const qattn_tensor *q, const qattn_tensor *k, const qattn_tensor *v,
                             const qattn_tensor *o, const qattn_attn_params *params, qattn_stream stream);
} api;

/* A data pointer is no function pointer in ISO C; POSIX promises that this store works. */
static int load_symbol(void *handle, const char *name, void *function_pointer)
{
    *(void **)function_pointer = dlsym(handle, name);
    if (*(void **)function_pointer)
        return 1;
    fprintf(stderr, "%s\n", dlerror());
    return 0;
}

/* Sizes and offsets this program was compiled with against those of the library that was found. */
static int same_layout(void)
{
    int64_t tensor = 0, lse = 0;
    return api.query("sizeof(qattn_tensor)", &tensor) == QATTN_OK && tensor == (int64_t)sizeof(qattn_tensor)
        && api.query("offsetof(qattn_attn_params,lse)", &lse) == QATTN_OK
        && lse == (int64_t)offsetof(qattn_attn_params, lse);
}

static double larger(double a, double b)       /* fmax drops a NaN; a check must not */
{
    return isnan(a) || a > b ? a : b;
}

static float q[B][H][S][D], k[B][H][S][D], v[B][H][S][D], o[B][H][S][D];

/* Window of 8 keys to the left, none to the right, by the formula. */
static double compare_with_naive(void)
{
    double worst = 0;
    for (int h = 0; h < H; h++)
        for (int i = 0; i < S; i++) {
            const int first = i > 8 ? i - 8 : 0;
            double p[S], sum = 0;
            for (int j = first; j <= i; j++) {
                double s = 0;
                for (int d = 0; d < D; d++)
                    s += (double)q[0][h][i][d] * k[0][h][j][d];
                sum += p[j] = exp(s / sqrt(D));
            }
            for (int d = 0; d < D; d++) {
                double x = 0;
                for (int j = first; j <= i; j++)
                    x += p[j] / sum * v[0][h][j][d];
                worst = larger(worst, fabs(x - o[0][h][i][d]));
            }
        }
    return worst;
}

int main(int argc, char **argv)
{
    char text[512];
    qattn_tensor t[4];
    float *const data[4] = { &q[0][0][0][0], &k[0][0][0][0], &v[0][0][0][0], &o[0][0][0][0] };
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    void *const handle = dlopen(argc > 1 ? argv[1] : "libqattn.so.0", RTLD_NOW | RTLD_LOCAL);

    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        return EXIT_FAILURE;
    }
    if (!load_symbol(handle, "qattn_abi_version", &api.abi_version) || !load_symbol(handle, "qattn_query", &api.query)
        || !load_symbol(handle, "qattn_last_error", &api.last_error)
        || !load_symbol(handle, "qattn_tensor_init", &api.tensor_init)
        || !load_symbol(handle, "qattn_flash_forward", &api.flash_forward))
        return EXIT_FAILURE;
    if (api.abi_version() != QATTN_ABI_VERSION || !same_layout()) {
        fprintf(stderr, "the library found has ABI %d, this program %d, or their structs differ\n", api.abi_version(),
                QATTN_ABI_VERSION);
        return EXIT_FAILURE;
    }

    unsigned seed = 4;
    for (int n = 0; n < 3; n++)
        for (int x = 0; x < B * H * S * D; x++) {
            seed = seed * 1664525u + 1013904223u;
            data[n][x] = (float)(seed >> 8) / 8388608.0f - 1.0f;
        }
    int32_t status = QATTN_OK;
    for (int n = 0; n < 4 && status == QATTN_OK; n++)
        status = api.tensor_init(&t[n], data[n], QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BHSD, B, H, S, D);
    params.mask = QATTN_MASK_WINDOW;
    params.window_left = 8;
    params.window_right = 0;
    if (status == QATTN_OK)
        status = api.flash_forward(&t[0], &t[1], &t[2], &t[3], &params, NULL);
    if (status != QATTN_OK) {
        api.last_error(text, sizeof text);
        fprintf(stderr, "%s\n", text);
        return EXIT_FAILURE;
    }
    const double worst = compare_with_naive();
    printf("load: largest difference from the naive loop %.1e\n", worst);
    return worst < 1e-5 ? EXIT_SUCCESS : EXIT_FAILURE;
}
