/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* A case through the library's public functions. */
#include "bench_data.h"

int32_t bench_data_call(const struct bench_data *d, qattn_stream stream)
{
    const qattn_tensor *const in = d->in;
    switch (d->problem.op) {
    case OP_MATMUL:        return qattn_matmul(&in[0], &in[1], &d->out, &d->matmul, stream);
    case OP_MATMUL_NT:     return qattn_matmul_nt(&in[0], &in[1], &d->out, &d->matmul, stream);
    case OP_SOFTMAX:       return qattn_softmax(&in[0], &d->out, &d->softmax, stream);
    case OP_GQA_FORWARD:   return qattn_gqa_forward(&in[0], &in[1], &in[2], &d->out, &d->attn, stream);
    case OP_FLASH_FORWARD: return qattn_flash_forward(&in[0], &in[1], &in[2], &d->out, &d->attn, stream);
    default:
        return qattn_merge(d->problem.num_parts, d->part_o, d->part_lse, &d->out, &d->out_lse, &d->merge, stream);
    }
}

int32_t bench_data_workspace(const struct bench_data *d, size_t *bytes)
{
    const qattn_tensor *const in = d->in;
    switch (d->problem.op) {
    case OP_MATMUL:      return qattn_matmul_workspace(&in[0], &in[1], &d->out, &d->matmul, bytes);
    case OP_MATMUL_NT:   return qattn_matmul_nt_workspace(&in[0], &in[1], &d->out, &d->matmul, bytes);
    case OP_SOFTMAX:     return qattn_softmax_workspace(&in[0], &d->out, &d->softmax, bytes);
    case OP_GQA_FORWARD: return qattn_gqa_forward_workspace(&in[0], &in[1], &in[2], &d->out, &d->attn, bytes);
    case OP_FLASH_FORWARD:
        return qattn_flash_forward_workspace(&in[0], &in[1], &in[2], &d->out, &d->attn, bytes);
    default:
        return qattn_merge_workspace(d->problem.num_parts, d->part_o, d->part_lse, &d->out, &d->out_lse, &d->merge,
                                     bytes);
    }
}

void bench_data_set_workspace(struct bench_data *d, void *workspace, size_t bytes)
{
    d->attn.workspace = d->matmul.workspace = d->softmax.workspace = d->merge.workspace = workspace;
    d->attn.workspace_bytes = d->matmul.workspace_bytes = bytes;
    d->softmax.workspace_bytes = d->merge.workspace_bytes = bytes;
}
