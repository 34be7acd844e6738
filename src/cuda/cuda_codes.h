/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The cudaError_t numbers this library tells apart: X(name here, number, CUDA's enumerator). */
#ifndef QATTN_CUDA_CUDA_CODES_H
#define QATTN_CUDA_CUDA_CODES_H

#define CUDA_CODE_LIST(X) \
    X(SUCCESS, 0, cudaSuccess) \
    X(OUT_OF_MEMORY, 2, cudaErrorMemoryAllocation) \
    X(INITIALIZATION, 3, cudaErrorInitializationError) \
    X(STUB_LIBRARY, 34, cudaErrorStubLibrary) \
    X(INSUFFICIENT_DRIVER, 35, cudaErrorInsufficientDriver) \
    X(NEWER_DRIVER, 36, cudaErrorCallRequiresNewerDriver) \
    X(DEVICES_UNAVAILABLE, 46, cudaErrorDevicesUnavailable) \
    X(INVALID_FUNCTION, 98, cudaErrorInvalidDeviceFunction) \
    X(NO_DEVICE, 100, cudaErrorNoDevice) \
    X(INVALID_DEVICE, 101, cudaErrorInvalidDevice) \
    X(INVALID_IMAGE, 200, cudaErrorInvalidKernelImage) \
    X(NO_KERNEL_IMAGE, 209, cudaErrorNoKernelImageForDevice) \
    X(ECC, 214, cudaErrorECCUncorrectable) \
    X(DEVICE_IN_USE, 216, cudaErrorDeviceAlreadyInUse) \
    X(PTX_VERSION, 222, cudaErrorUnsupportedPtxVersion) \
    X(ILLEGAL_ADDRESS, 700, cudaErrorIllegalAddress) \
    X(LAUNCH_TIMEOUT, 702, cudaErrorLaunchTimeout) \
    X(CONTEXT_DESTROYED, 709, cudaErrorContextIsDestroyed) \
    X(ASSERT, 710, cudaErrorAssert) \
    X(HARDWARE_STACK, 714, cudaErrorHardwareStackError) \
    X(ILLEGAL_INSTRUCTION, 715, cudaErrorIllegalInstruction) \
    X(MISALIGNED_ADDRESS, 716, cudaErrorMisalignedAddress) \
    X(ADDRESS_SPACE, 717, cudaErrorInvalidAddressSpace) \
    X(INVALID_PC, 718, cudaErrorInvalidPc) \
    X(LAUNCH_FAILURE, 719, cudaErrorLaunchFailure) \
    X(MPS_NOT_READY, 807, cudaErrorMpsServerNotReady) \
    X(MPS_MAX_CLIENTS, 808, cudaErrorMpsMaxClientsReached) \
    X(MPS_MAX_CONNECTIONS, 809, cudaErrorMpsMaxConnectionsReached) \
    X(CAPTURE_FIRST, 900, cudaErrorStreamCaptureUnsupported) \
    X(CAPTURE_LAST, 908, cudaErrorStreamCaptureWrongThread)

#define CUDA_CODE_ENUM(name, number, enumerator) CODE_##name = number,
enum cuda_code { CUDA_CODE_LIST(CUDA_CODE_ENUM) };
#undef CUDA_CODE_ENUM

#endif
