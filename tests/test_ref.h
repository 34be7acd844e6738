/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Shared by the files that test the reference: test_ref.c (values), test_ref_keys.c (which keys a row sees),
 * test_ref_types.c (types and layouts), test_ref_ops.c (the other operations). */
#ifndef QATTN_TESTS_TEST_REF_H
#define QATTN_TESTS_TEST_REF_H

#include <check.h>
#include <math.h>

#include "core/problem.h"
#include "qattn.h"

/* One f32 rounding of the result, and one of each number the case was built from. */
#define CHECK_NEAR(got, want) \
    do { \
        const double got_ = (double)(got), want_ = (double)(want); \
        if (!(got_ == want_ || (isfinite(want_) && fabs(got_ - want_) <= 5e-7 * (1.0 + fabs(want_))))) \
            ck_abort_msg("%s is %.9g, must be %.9g", #got, got_, want_); \
    } while (0)

/* Shape of a call on one batch, packed [H][S][D] in f32. */
struct ref_shape { int64_t hq, hkv, sq, sk, d, dv; };

/* A tensor over packed memory [b][h][s][d]. */
qattn_tensor ref_tensor(const void *data, int32_t dtype, int64_t b, int64_t h, int64_t s, int64_t d);

/* Run the row `ref` on a fenced-off workspace full of NaN; the test fails if the call is refused. */
void ref_run(struct problem *p);
void ref_attend(enum op op, const qattn_tensor *q, const qattn_tensor *k, const qattn_tensor *v,
                const qattn_tensor *o, const qattn_attn_params *params);

/* flash_forward on f32, B = 1; `params` may be NULL. lse [hq][sq] is set as params.lse; o and lse start as NaN. */
void ref_attend_f32(struct ref_shape shape, const float *q, const float *k, const float *v, float *o, float *lse,
                    const qattn_attn_params *params);

/* Test cases of the other files. */
TCase *tcase_ref_keys(void);
TCase *tcase_ref_types(void);
TCase *tcase_ref_ops(void);

#endif
