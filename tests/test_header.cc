/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The header alone, as C++11 or later; see test_header.c. */
#include "qattn.h"

int test_header();

int test_header()
{
    const qattn_attn_params attention = QATTN_ATTN_PARAMS_INIT;
    const qattn_matmul_params matmul = QATTN_MATMUL_PARAMS_INIT;
    const qattn_softmax_params softmax = QATTN_SOFTMAX_PARAMS_INIT;
    const qattn_merge_params merge = QATTN_MERGE_PARAMS_INIT;
    qattn_tensor t{};
    const qattn_stream stream = nullptr;
    int32_t status =
        qattn_tensor_init(&t, nullptr, QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BHSD, 0, 0, 0, 0);
    status |= qattn_matmul(&t, &t, &t, &matmul, stream);
    status |= qattn_softmax(&t, &t, &softmax, stream);
    status |= qattn_flash_forward(&t, &t, &t, &t, &attention, stream);
    status |= qattn_merge(1, &t, &t, &t, nullptr, &merge, stream);
    return static_cast<int>(status);
}
