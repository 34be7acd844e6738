/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Every suite of check_all, in running order: SUITE(name) means Suite *suite_name(void). */
#ifndef QATTN_TESTS_SUITES_H
#define QATTN_TESTS_SUITES_H

#include <check.h>

#define SUITE_LIST(SUITE) \
    SUITE(status) \
    SUITE(params) \
    SUITE(tensor) \
    SUITE(dispatch) \
    SUITE(cuda_error) \
    SUITE(badargs) \
    SUITE(convert) \
    SUITE(ref) \
    SUITE(pool) \
    SUITE(cpu_kernels) \
    SUITE(impls) \
    SUITE(invariance) \
    SUITE(lottery) \
    SUITE(hostile) \
    SUITE(huge) \
    SUITE(workspace) \
    SUITE(long_keys) \
    SUITE(cuda_calls) \
    SUITE(cuda_graphs) \
    SUITE(cuda_far) \
    SUITE(cuda_big) \
    SUITE(recipe) \
    SUITE(onnx) \
    SUITE(smollm2) \
    SUITE(cases)

#define DECLARE_SUITE(name) Suite *suite_##name(void);
SUITE_LIST(DECLARE_SUITE)
#undef DECLARE_SUITE

#endif
