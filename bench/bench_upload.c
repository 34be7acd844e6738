/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* A case's blocks copied to the CUDA device, and its tensors and params pointed there. */
#include "bench_data.h"
#include "bench_device.h"

/* The device's address of what `pointer`, into one of the blocks, points to. For shapes alone nothing is copied, and
 * arrays stay where they are: that they are given is all that matters. */
static void *translate(const struct bench_data *d, const void *pointer)
{
    const char *const at = pointer;
    for (int i = 0; at && i < d->num_blocks; i++) {
        const char *const start = d->blocks[i];
        if (start <= at && at < start + d->block_bytes[i])
            return d->shapes_only ? d->blocks[i] : (char *)d->mirrors[i] + (at - start);
    }
    return NULL;
}

static void move_tensor(const struct bench_data *d, qattn_tensor *t)
{
    if (!t->dtype)
        return;
    t->data = translate(d, t->data);
    t->device_type = QATTN_DEVICE_CUDA;
}

static void move_attention(struct bench_data *d)
{
    qattn_attn_params *const p = &d->attn;
    qattn_tensor *const tensors[] = { &p->lse,       &p->bias,      &p->keep,     &p->scores,
                                      &p->q_descale, &p->k_descale, &p->v_descale };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        move_tensor(d, tensors[i]);
    p->cu_seqlens_q = translate(d, p->cu_seqlens_q);
    p->cu_seqlens_k = translate(d, p->cu_seqlens_k);
    p->seqused_k = translate(d, p->seqused_k);
    p->page_table = translate(d, p->page_table);
    p->sinks = translate(d, p->sinks);
    p->alibi_slopes = translate(d, p->alibi_slopes);
}

bool bench_data_upload(struct bench_data *d)
{
    for (int i = 0; i < d->num_blocks && !d->shapes_only; i++) {
        d->mirrors[i] = bench_device_alloc(d->block_bytes[i]);
        if (!d->mirrors[i])
            return false;
        bench_device_upload(d->mirrors[i], d->blocks[i], d->block_bytes[i]);
    }
    for (int i = 0; i < 3; i++)
        move_tensor(d, &d->in[i]);
    move_tensor(d, &d->out);
    move_tensor(d, &d->out_lse);
    for (int i = 0; i < QATTN__MAX_PARTS; i++) {
        move_tensor(d, &d->part_o[i]);
        move_tensor(d, &d->part_lse[i]);
    }
    move_attention(d);
    return true;
}
