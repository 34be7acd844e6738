/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Errors travel by return value; their text is one thread-local buffer. */
#ifndef QATTN_CORE_STATUS_H
#define QATTN_CORE_STATUS_H

#include "qattn.h"

/* The one list of status codes, names and sentences: X(name, sentence). status.c derives everything. */
#define QATTN_STATUS_LIST(X) \
    X(OK, "success") \
    X(ERR_NULL_POINTER, "a required pointer is NULL") \
    X(ERR_STRUCT_SIZE, "struct_size is no size any version of the struct ever had") \
    X(ERR_PARAMS_TOO_NEW, "a field newer than this library is set") \
    X(ERR_RESERVED, "a reserved field is not 0") \
    X(ERR_UNKNOWN_BITS, "an unknown flag or mask bit, or one that has no meaning for this call") \
    X(ERR_BAD_DTYPE, "not an element type, or none where a tensor is required") \
    X(ERR_BAD_DEVICE, "not a device type, or a device_id it cannot have") \
    X(ERR_BAD_SHAPE, "a shape is negative, overflows, or does not fit the other tensors") \
    X(ERR_BAD_STRIDE, "an output tensor may overlap itself, or strides overflow") \
    X(ERR_ALIAS, "an output shares its data pointer with another tensor") \
    X(ERR_BAD_VALUE, "a number or environment variable is outside its range") \
    X(ERR_ALIGNMENT, "a pointer is not aligned as required") \
    X(ERR_DEVICE_MISMATCH, "tensors or stream live on different devices") \
    X(ERR_COMBINATION, "fields that exclude or require each other") \
    X(ERR_STREAM, "a call on CPU tensors was given a stream") \
    X(ERR_UNKNOWN_NAME, "no such constant, size or offset") \
    X(ERR_UNSUPPORTED_DTYPE, "this set of element types is not offered") \
    X(ERR_UNSUPPORTED_SHAPE, "a width above the limit of 1024") \
    X(ERR_UNSUPPORTED, "this combination of features is not offered") \
    X(ERR_NOT_BUILT, "this build has no code for that device type") \
    X(ERR_NO_IMPLEMENTATION, "no implementation may run this problem") \
    X(ERR_NO_DRIVER, "no CUDA driver on this machine") \
    X(ERR_DRIVER_TOO_OLD, "the CUDA driver is older than the runtime needs") \
    X(ERR_NO_DEVICE, "no such CUDA device") \
    X(ERR_DEVICE_BUSY, "the CUDA device is taken or prohibited") \
    X(ERR_NO_KERNEL_IMAGE, "this build has no code for the device's compute capability") \
    X(ERR_FORKED, "the CUDA context belongs to the parent process") \
    X(ERR_CAPTURE_INVALID, "the stream's capture is invalid or forbids the call") \
    X(ERR_CUDA, "a CUDA error; it may stem from earlier work on this device") \
    X(ERR_WORKSPACE, "the workspace is missing or too small") \
    X(ERR_OUT_OF_MEMORY, "out of memory") \
    X(ERR_INTERNAL, "a fault of the library; please report the text")

/* Records `code` and the formatted text for this thread and returns `code`. Text: argument, value, rule,
 * next step, as in "k.shape[1] is 3: must divide q.shape[1] (8); pass whole groups". */
int32_t qattn__fail(int32_t code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Copies text to buf[cap], cut to fit and NUL-terminated; nothing for cap 0 or a NULL buf. */
void qattn__copy_text(char *buf, size_t cap, const char *text);

/* Behind qattn_last_error, qattn_status_name, qattn_status_string. */
int32_t qattn__last_error(char *buf, size_t cap);
const char *qattn__status_name(int32_t status);
const char *qattn__status_string(int32_t status);

#define QATTN_TRY(expr) \
    do { const int32_t try_status_ = (expr); if (try_status_ != QATTN_OK) return try_status_; } while (0)

#define QATTN_REQUIRE(cond, code, ...) \
    do { if (!(cond)) return qattn__fail((code), __VA_ARGS__); } while (0)

#endif
