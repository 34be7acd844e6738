/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* From a checked problem to a row of the table: the first, fastest one that may and can run it. */
#ifndef QATTN_CORE_DISPATCH_H
#define QATTN_CORE_DISPATCH_H

#include "core/problem.h"

/* Picks a row, provides the workspace, runs. Clears nothing, retries nothing. */
int32_t qattn__dispatch(struct problem *p, qattn_stream stream);

/* *bytes = what suffices for every row that could run these shapes here. */
int32_t qattn__workspace(const struct problem *p, size_t *bytes);

/* The picked row's id, then "id: reason" for each faster one. */
int32_t qattn__explain(const struct problem *p, char *buf, size_t cap);

/* Loads what the picked row needs. */
int32_t qattn__prepare(const struct problem *p);

#endif
