/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* matmul, matmul_nt and merge over every row of the table: part of the suite `impls`. */
#ifndef QATTN_TESTS_CHECK_GEMM_H
#define QATTN_TESTS_CHECK_GEMM_H

#include <check.h>

void check_gemm_add(Suite *s);
void check_merge_add(Suite *s);

#endif
