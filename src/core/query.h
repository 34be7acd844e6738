/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#ifndef QATTN_CORE_QUERY_H
#define QATTN_CORE_QUERY_H

#include <stdint.h>

/* Behind qattn_query. */
int32_t qattn__query(const char *name, int64_t *value);

#endif
