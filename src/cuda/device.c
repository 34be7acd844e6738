/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Is there a CUDA device this process may use? Asks the statically linked runtime; creates no context. */
#include "cuda/device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include "core/status.h"
#include "cuda/cuda_codes.h"

#define ASSERT_CODE(name, number, enumerator) _Static_assert((int)(enumerator) == (number), #enumerator);
CUDA_CODE_LIST(ASSERT_CODE)
#undef ASSERT_CODE

/* The process that initialised the driver; 0: none yet. A CUDA context does not survive fork: a child of that process
 * knows it by the flag, which costs less to ask than the process's number. */
static pid_t first_pid;
static _Atomic(bool) forked;

/* Code 35 means "no driver" and "too old" alike: the versions tell. */
static int32_t fail_driver(const char *what)
{
    int driver = 0, runtime = 0;
    (void)cudaDriverGetVersion(&driver);   /* 0 where no driver is installed */
    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaGetLastError();
    const int32_t status = qattn__cuda_driver_status(driver, runtime);
    if (status == QATTN_ERR_NO_DRIVER)
        return qattn__fail(status, "%s: no CUDA driver (libcuda.so.1) on this machine; install NVIDIA's driver, "
                           "or pass CPU tensors", what);
    return qattn__fail(status, "%s: CUDA error %d: the driver supports CUDA %d.%d, this library was built with "
                       "%d.%d; update the driver", what, CODE_INSUFFICIENT_DRIVER, driver / 1000,
                       driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
}

/* The next step. Pure. */
static const char *advise(int code, int32_t status)
{
    if (qattn__cuda_error_sticky(code))
        return "the CUDA context of this process is lost, and the fault may stem from earlier work on this device; "
               "restart the process";
    if (code == CODE_CONTEXT_DESTROYED)
        return "whoever made this context has destroyed it; streams of other contexts are not concerned";
    switch (status) {
    case QATTN_ERR_NO_DRIVER:
        return "the libcuda.so.1 that was found is the toolkit's stub; take it out of the library path";
    case QATTN_ERR_DRIVER_TOO_OLD:
        return "update the driver";
    case QATTN_ERR_NO_DEVICE:
        return "check CUDA_VISIBLE_DEVICES, and that this process may open /dev/nvidia*";
    case QATTN_ERR_DEVICE_BUSY:
        return "another process holds the device, or its compute mode or MPS keeps this one out";
    case QATTN_ERR_NO_KERNEL_IMAGE:
        return "build the library with this device's architecture in CUDA_ARCHS";
    case QATTN_ERR_CAPTURE_INVALID:
        return "a capture under way forbids this; call the operation's *_prepare before the capture";
    case QATTN_ERR_OUT_OF_MEMORY:
        return "free device memory, or use smaller shapes";
    default:
        return code == CODE_INITIALIZATION
                   ? "did this process fork after CUDA was first used? Start workers with exec (spawn) "
                     "instead"
                   : "it may stem from earlier work on this device";
    }
}

int32_t qattn__cuda_fail(int code, const char *what)
{
    if (code == CODE_INSUFFICIENT_DRIVER)
        return fail_driver(what);
    (void)cudaGetLastError();
    const int32_t status = qattn__cuda_map_error(code);
    return qattn__fail(status, "%s: CUDA error %d %s: %s; %s", what, code, cudaGetErrorName((cudaError_t)code),
                       cudaGetErrorString((cudaError_t)code), advise(code, status));
}

static void note_fork(void)
{
    atomic_store(&forked, first_pid != 0);
}

/* Called once, by the first process that reached the driver. */
static void remember_process(void)
{
    first_pid = getpid();
    pthread_atfork(NULL, NULL, note_fork);
}

static int32_t check_fork(void)
{
    QATTN_REQUIRE(
        !atomic_load_explicit(&forked, memory_order_relaxed), QATTN_ERR_FORKED,
        "process %ld was forked from %ld, whose CUDA context it cannot use; start workers with exec (spawn), or "
        "fork before the first CUDA call",
        (long)getpid(), (long)first_pid);
    return QATTN_OK;
}

/* Devices found usable, one bit each. */
static _Atomic(uint64_t) usable;
_Static_assert(MAX_DEVICES <= 64, "the bits of usable");

int32_t qattn__cuda_status(int32_t device_id)
{
    int count = 0, mode = 0;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    QATTN_TRY(check_fork());
    const uint64_t bit = device_id >= 0 && device_id < MAX_DEVICES ? UINT64_C(1) << device_id : 0;
    if (atomic_load_explicit(&usable, memory_order_relaxed) & bit)
        return QATTN_OK;
    cudaError_t err = cudaGetDeviceCount(&count);
    if (err != cudaSuccess)
        return qattn__cuda_fail((int)err, "cudaGetDeviceCount");
    pthread_once(&once, remember_process);
    QATTN_REQUIRE(device_id >= 0 && device_id < count, QATTN_ERR_NO_DEVICE,
                  "device_id is %d: this process sees %d CUDA device(s); check CUDA_VISIBLE_DEVICES",
                  (int)device_id, count);
    err = cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, device_id);
    if (err != cudaSuccess)
        return qattn__cuda_fail((int)err, "cudaDeviceGetAttribute");
    QATTN_REQUIRE(mode != cudaComputeModeProhibited, QATTN_ERR_DEVICE_BUSY,
                  "CUDA device %d is in compute mode PROHIBITED; an administrator can change it with nvidia-smi -c",
                  (int)device_id);
    atomic_fetch_or(&usable, bit);
    return QATTN_OK;
}
