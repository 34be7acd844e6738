/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Is there a CUDA device this process may use? Asks the statically linked runtime; creates no context. */
#include "cuda/device.h"

#include <stdatomic.h>
#include <sys/types.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include "core/status.h"
#include "cuda/cuda_codes.h"

#define ASSERT_CODE(name, number, enumerator) _Static_assert((int)(enumerator) == (number), #enumerator);
CUDA_CODE_LIST(ASSERT_CODE)
#undef ASSERT_CODE

/* The process that initialised the driver; 0: none yet. A CUDA context does not survive fork. */
static _Atomic(pid_t) first_pid;

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

int32_t qattn__cuda_fail(int code, const char *what)
{
    if (code == CODE_INSUFFICIENT_DRIVER)
        return fail_driver(what);
    (void)cudaGetLastError();
    const int32_t status = qattn__cuda_map_error(code);
    const char *advice = "it may stem from earlier work on this device";
    if (status == QATTN_ERR_NO_DEVICE)
        advice = "check CUDA_VISIBLE_DEVICES, and that this process may open /dev/nvidia*";
    else if (qattn__cuda_error_sticky(code))
        advice = "the CUDA context of this process is lost, and the fault may stem from earlier work on this "
                 "device; restart the process";
    else if (code == CODE_INITIALIZATION)
        advice = "did this process fork after CUDA was first used? Start workers with exec (spawn) instead";
    return qattn__fail(status, "%s: CUDA error %d %s: %s; %s", what, code, cudaGetErrorName((cudaError_t)code),
                       cudaGetErrorString((cudaError_t)code), advice);
}

/* Keeps the pid of the first process that reached the driver. */
static int32_t check_fork(void)
{
    pid_t expected = 0;
    const pid_t pid = getpid();
    if (atomic_compare_exchange_strong(&first_pid, &expected, pid) || expected == pid)
        return QATTN_OK;
    return qattn__fail(QATTN_ERR_FORKED, "process %ld was forked from %ld, whose CUDA context it cannot use; "
                       "start workers with exec (spawn), or fork before the first CUDA call",
                       (long)pid, (long)expected);
}

int32_t qattn__cuda_status(int32_t device_id)
{
    int count = 0, mode = 0;
    const pid_t parent = atomic_load(&first_pid);
    if (parent != 0)
        QATTN_TRY(check_fork());
    cudaError_t err = cudaGetDeviceCount(&count);
    if (err != cudaSuccess)
        return qattn__cuda_fail((int)err, "cudaGetDeviceCount");
    QATTN_TRY(check_fork());
    QATTN_REQUIRE(device_id >= 0 && device_id < count, QATTN_ERR_NO_DEVICE,
                  "device_id is %d: this process sees %d CUDA device(s); check CUDA_VISIBLE_DEVICES",
                  (int)device_id, count);
    err = cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, device_id);
    if (err != cudaSuccess)
        return qattn__cuda_fail((int)err, "cudaDeviceGetAttribute");
    QATTN_REQUIRE(mode != cudaComputeModeProhibited, QATTN_ERR_DEVICE_BUSY,
                  "CUDA device %d is in compute mode PROHIBITED; an administrator can change it with nvidia-smi -c",
                  (int)device_id);
    return QATTN_OK;
}
