/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * What CUDA tensors are answered on this machine, without computing: a build without CUDA, a machine without a
 * driver, a device that does not exist, a forked child. The pointers are fakes: nothing may read them. Needs no
 * device; with one it sees more.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "qattn.h"

enum { S = 8, D = 16 };

static int passed, failed, skipped;

static void expect(bool ok, const char *what)
{
    if (ok) {
        passed++;
    } else {
        failed++;
        printf("failed: %s\n", what);
    }
}

/* No page of a process lies here. */
static void *const fake = (void *)(uintptr_t)0x1000;

static qattn_tensor cuda_tensor(int32_t device_id)
{
    qattn_tensor t;
    expect(qattn_tensor_init(&t, fake, QATTN_DTYPE_F32, QATTN_DEVICE_CUDA, device_id, QATTN_LAYOUT_BHSD, 1, 1, S, D) ==
           QATTN_OK, "qattn_tensor_init of a CUDA tensor");
    return t;
}

/* Attention on that device; q, k, v and o must not be the same memory, so o stands one tensor further. */
static int32_t forward(int32_t device_id, char *text, size_t cap)
{
    const qattn_tensor q = cuda_tensor(device_id);
    qattn_tensor o = q;
    o.data = (char *)fake + S * D * sizeof(float);
    const int32_t status = qattn_flash_forward(&q, &q, &q, &o, NULL, NULL);
    expect(qattn_last_error(text, cap) == status || status == QATTN_OK, "qattn_last_error gives the same status");
    return status;
}

/* Which row would run; touches no data. */
static int32_t explain(int32_t device_id, char *text, size_t cap)
{
    const qattn_tensor q = cuda_tensor(device_id);
    qattn_tensor o = q;
    o.data = (char *)fake + S * D * sizeof(float);
    return qattn_flash_forward_explain(&q, &q, &q, &o, NULL, text, cap);
}

static bool any_driver(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (lib)
        dlclose(lib);
    return lib != NULL;
}

static bool exits_with_0(pid_t child)
{
    int how = 0;
    return child > 0 && waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 0;
}

static bool forked_child_gets(int32_t expected)
{
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        char text[512];
        const int32_t status = forward(0, text, sizeof text);
        printf("in a forked child: %s: %s\n", qattn_status_name(status), text);
        fflush(stdout);
        _exit(status != expected);
    }
    return exits_with_0(child);
}

/* This program again, with every device hidden from it. */
static bool passes_without_visible_device(char **argv)
{
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        setenv("CUDA_VISIBLE_DEVICES", "", 1);
        setenv("QATTN_TEST_HIDDEN", "1", 1);
        execv("/proc/self/exe", argv);
        _exit(127);
    }
    return exits_with_0(child);
}

/* With a driver and a device. */
static void test_with_device(char **argv)
{
    char text[512];
    int32_t status = forward(999, text, sizeof text);
    printf("device 999: %s: %s\n", qattn_status_name(status), text);
    expect(status == QATTN_ERR_NO_DEVICE && strstr(text, "999"), "device 999 does not exist, and the text says so");
    status = explain(0, text, sizeof text);
    printf("device 0: %s: %s\n", qattn_status_name(status), text);
    expect(status == QATTN_OK && strncmp(text, "cuda.", 5) == 0, "device 0: a CUDA row is chosen");
    expect(forked_child_gets(QATTN_ERR_FORKED), "a child forked after the first CUDA call is told so");
    expect(explain(0, text, sizeof text) == QATTN_OK, "the parent goes on as before");
    expect(passes_without_visible_device(argv), "CUDA_VISIBLE_DEVICES= gives NO_DEVICE everywhere");
}

/* Without one: every call and twin gives this status. */
static void test_without_device(int32_t expected)
{
    char text[512];
    size_t bytes = 7;
    const int32_t status = forward(0, text, sizeof text);
    printf("device 0: %s: %s\n", qattn_status_name(status), text);
    expect(status == expected, qattn_status_name(expected));
    expect(strlen(text) > 20, "the text says why and what to do");
    expect(forward(3, text, sizeof text) == expected, "device 3: the same");
    const qattn_tensor q = cuda_tensor(0);
    qattn_tensor o = q;
    o.data = (char *)fake + S * D * sizeof(float);
    expect(qattn_flash_forward_workspace(&q, &q, &q, &o, NULL, &bytes) == expected && bytes == 7, "*_workspace");
    expect(qattn_flash_forward_prepare(&q, &q, &q, &o, NULL) == expected, "*_prepare");
    expect(qattn_flash_forward_explain(&q, &q, &q, &o, NULL, text, sizeof text) == expected, "*_explain");
    expect(qattn_gqa_forward(&q, &q, &q, &o, NULL, NULL) == expected, "qattn_gqa_forward");
    expect(qattn_softmax(&q, &o, NULL, NULL) == expected, "qattn_softmax");
    expect(forked_child_gets(expected), "a forked child: the same");
}

int main(int argc, char **argv)
{
    (void)argc;
    char build[512];
    qattn_build_info(build, sizeof build);
    const char *const told = getenv("QATTN_TEST_STATUS");     /* set by test_drivers.sh */
    if (told)
        test_without_device(atoi(told));
    else if (strstr(build, "no cuda"))
        test_without_device(QATTN_ERR_NOT_BUILT);
    else if (!any_driver())
        test_without_device(QATTN_ERR_NO_DRIVER);
    else if (getenv("QATTN_TEST_HIDDEN"))
        test_without_device(QATTN_ERR_NO_DEVICE);
    else if (access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0)
        test_with_device(argv);
    else {
        printf("skipped: there is a driver, but no device\n");
        skipped++;
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed != 0;
}
