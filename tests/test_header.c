/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The header alone, as C99 or later; run_checks.sh compiles it with every warning as an error. Uses each kind of
 * declaration once, so that macros are expanded too. */
#include "qattn.h"

int test_header(void);

int test_header(void)
{
    const qattn_attn_params attention = QATTN_ATTN_PARAMS_INIT;
    const qattn_matmul_params matmul = QATTN_MATMUL_PARAMS_INIT;
    const qattn_softmax_params softmax = QATTN_SOFTMAX_PARAMS_INIT;
    const qattn_merge_params merge = QATTN_MERGE_PARAMS_INIT;
    qattn_tensor t;
    const qattn_stream stream = NULL;
    int32_t status = qattn_tensor_init(&t, NULL, QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BHSD, 0, 0, 0, 0);
    status |= qattn_matmul(&t, &t, &t, &matmul, stream);
    status |= qattn_softmax(&t, &t, &softmax, stream);
    status |= qattn_flash_forward(&t, &t, &t, &t, &attention, stream);
    status |= qattn_merge(1, &t, &t, &t, NULL, &merge, stream);
    return (int)status;
}
