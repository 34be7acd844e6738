/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* CUDA's error numbers without CUDA's headers. device.c asserts that they are the enumerators' values. */
#include "cuda/device.h"

#include "cuda/cuda_codes.h"
#include "qattn.h"

int32_t qattn__cuda_map_error(int code)
{
    if (code >= CODE_CAPTURE_FIRST && code <= CODE_CAPTURE_LAST)
        return QATTN_ERR_CAPTURE_INVALID;
    switch (code) {
    case CODE_SUCCESS:
        return QATTN_OK;
    case CODE_STUB_LIBRARY:          /* the toolkit's libcuda stub was loaded instead of a driver */
    case CODE_INSUFFICIENT_DRIVER:
        return QATTN_ERR_NO_DRIVER;
    case CODE_NEWER_DRIVER:
    case CODE_PTX_VERSION:           /* the driver's compiler is older than the PTX of this build */
        return QATTN_ERR_DRIVER_TOO_OLD;
    case CODE_NO_DEVICE:
    case CODE_INVALID_DEVICE:
        return QATTN_ERR_NO_DEVICE;
    case CODE_DEVICES_UNAVAILABLE:   /* exclusive or prohibited compute mode */
    case CODE_DEVICE_IN_USE:
    case CODE_MPS_NOT_READY:
    case CODE_MPS_MAX_CLIENTS:
    case CODE_MPS_MAX_CONNECTIONS:
        return QATTN_ERR_DEVICE_BUSY;
    case CODE_INVALID_FUNCTION:      /* the kernel has no image for this device */
    case CODE_INVALID_IMAGE:
    case CODE_NO_KERNEL_IMAGE:
        return QATTN_ERR_NO_KERNEL_IMAGE;
    case CODE_OUT_OF_MEMORY:
        return QATTN_ERR_OUT_OF_MEMORY;
    default:
        return QATTN_ERR_CUDA;
    }
}

int32_t qattn__cuda_driver_status(int driver_version, int runtime_version)
{
    if (driver_version <= 0)
        return QATTN_ERR_NO_DRIVER;
    return driver_version < runtime_version ? QATTN_ERR_DRIVER_TOO_OLD : QATTN_ERR_CUDA;
}

bool qattn__cuda_error_sticky(int code)
{
    switch (code) {
    case CODE_ECC:
    case CODE_ILLEGAL_ADDRESS:
    case CODE_LAUNCH_TIMEOUT:
    case CODE_ASSERT:
    case CODE_HARDWARE_STACK:
    case CODE_ILLEGAL_INSTRUCTION:
    case CODE_MISALIGNED_ADDRESS:
    case CODE_ADDRESS_SPACE:
    case CODE_INVALID_PC:
    case CODE_LAUNCH_FAILURE:
        return true;
    default:
        return false;
    }
}
