/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The checks of cases.txt by name. Each notes a failure of its own. */
#ifndef QATTN_TESTS_CASE_CHECKS_H
#define QATTN_TESTS_CASE_CHECKS_H

#include <stdbool.h>

#include "case_data.h"
#include "core/impls.h"
#include "row_run.h"

/* One run that has ended: its inputs and what it wrote. */
struct case_run {
    const struct impl *row;
    enum op op;
    const struct problem *p;
    struct case_inputs *in;
    struct case_outputs *out;
    bool thinned;                /* values are compared with the oracle only */
    bool big;                    /* check-big: timing is asked too */
};

/* The value against the oracle, all or sampled elements: matmul_nt and softmax_causal. */
void check_matmul(const struct case_run *run);
void check_softmax(const struct case_run *run);

/* Every named check of the case; those that have no meaning here are counted as skipped, with the reason. */
void check_named(const struct case_run *run);

/* Those that run the case again (case_reruns.c), each as the table calls it. */
void check_bitwise_repeat(const struct case_run *run, const char *argument);
void check_layout_invariant(const struct case_run *run, const char *argument);
void check_poison_invariant(const struct case_run *run, const char *argument);
void check_batch_slice_equal(const struct case_run *run, const char *argument);
void check_batch_slice_close(const struct case_run *run, const char *argument);
void check_causal_flag(const struct case_run *run, const char *argument);
void check_without_mask(const struct case_run *run, const char *argument);
void check_repeated_heads(const struct case_run *run, const char *argument);
void check_memory_flat(const struct case_run *run, const char *argument);
void check_time_unmasked(const struct case_run *run, const char *argument);
void check_time_below_full(const struct case_run *run, const char *argument);
void check_time_below_d40(const struct case_run *run, const char *argument);
void check_scaling(const struct case_run *run, const char *argument);

#endif
