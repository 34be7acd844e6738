/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Functions of the CUDA driver, looked up at first use, not linked: the library must load where no driver is. */
#ifndef QATTN_CUDA_DRIVER_H
#define QATTN_CUDA_DRIVER_H

#include <stdint.h>

#include <cuda.h>

/* X(field, name, parameter types), as of the driver of CUDA 12.0 */
#define DRIVER_FUNCTIONS(X) \
    X(stream_get_ctx, cuStreamGetCtx, (CUstream, CUcontext *)) \
    X(get_current, cuCtxGetCurrent, (CUcontext *)) \
    X(get_device, cuCtxGetDevice, (CUdevice *)) \
    X(get_id, cuCtxGetId, (CUcontext, unsigned long long *)) \
    X(push, cuCtxPushCurrent, (CUcontext)) \
    X(pop, cuCtxPopCurrent, (CUcontext *)) \
    X(retain_primary, cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice)) \
    X(primary_state, cuDevicePrimaryCtxGetState, (CUdevice, unsigned *, int *)) \
    X(get_attribute, cuFuncGetAttribute, (int *, CUfunction_attribute, CUfunction)) \
    X(set_attribute, cuFuncSetAttribute, (CUfunction, CUfunction_attribute, int)) \
    X(launch, cuLaunchKernelEx, (const CUlaunchConfig *, CUfunction, void **, void **)) \
    X(pointer_attributes, cuPointerGetAttributes, (unsigned, CUpointer_attribute *, void **, CUdeviceptr)) \
    X(exchange_capture_mode, cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *))

/* As of the driver of CUDA 12.4; NULL with an older one */
#define DRIVER_LATER_FUNCTIONS(X) \
    X(get_resource, cuCtxGetDevResource, (CUcontext, CUdevResource *, CUdevResourceType))

#define DRIVER_FIELD(field, name, types) CUresult (*field) types;
struct driver { DRIVER_FUNCTIONS(DRIVER_FIELD) DRIVER_LATER_FUNCTIONS(DRIVER_FIELD) };
#undef DRIVER_FIELD

/* Filled by qattn__cuda_load_driver, constant afterwards. */
extern struct driver qattn__driver;
int32_t qattn__cuda_load_driver(void);

/* The status of a driver call that failed. The two interfaces of CUDA number their errors alike. */
int32_t qattn__driver_fail(CUresult result, const char *what);

#define QATTN_DRIVER_TRY(field, name, args) \
    do { \
        const CUresult driver_result_ = qattn__driver.field args; \
        if (driver_result_ != CUDA_SUCCESS) \
            return qattn__driver_fail(driver_result_, name); \
    } while (0)

#endif
