/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#ifndef QATTN_BENCH_MATRIX_H
#define QATTN_BENCH_MATRIX_H

/* Prints the support matrix in Markdown: what each row of the table answers to each kind of call. A row that can
 * run nothing on this machine gets a column of question marks. */
void bench_print_matrix(void);

#endif
