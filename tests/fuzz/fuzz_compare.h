/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#ifndef QATTN_TESTS_FUZZ_FUZZ_COMPARE_H
#define QATTN_TESTS_FUZZ_FUZZ_COMPARE_H

#include "core/problem.h"
#include "fuzz_call.h"

/* Ends the process with a message unless cond holds. */
void require(bool cond, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * Holds what `p` (made from c) has just written against the fp64 oracle, then puts the old bytes back element by
 * element: whatever differs after that was written without being asked for. `who` names the row.
 */
void compare_outputs(struct call *c, const struct problem *p, const char *who);

#endif
