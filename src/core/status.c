/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "core/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The last failure of this thread; text "" until one fails. */
static _Thread_local struct { int32_t code; char text[512]; } last_error;

int32_t qattn__fail(int32_t code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(last_error.text, sizeof last_error.text, format, args);
    va_end(args);
    last_error.code = code;
    return code;
}

void qattn__copy_text(char *buf, size_t cap, const char *text)
{
    if (!buf || cap == 0)
        return;
    size_t n = strlen(text);
    if (n > cap - 1)
        n = cap - 1;
    memcpy(buf, text, n);
    buf[n] = '\0';
}

int32_t qattn__last_error(char *buf, size_t cap)
{
    qattn__copy_text(buf, cap, last_error.text);
    return last_error.code;
}

const char *qattn__status_name(int32_t status)
{
    switch (status) {
#define X(name, sentence) case QATTN_##name: return "QATTN_" #name;
    QATTN_STATUS_LIST(X)
#undef X
    default: return "QATTN_ERR_UNKNOWN";
    }
}

const char *qattn__status_string(int32_t status)
{
    switch (status) {
#define X(name, sentence) case QATTN_##name: return sentence;
    QATTN_STATUS_LIST(X)
#undef X
    default: return "a status this library does not know";
    }
}
