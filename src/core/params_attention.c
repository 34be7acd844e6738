/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Checks of attention: q, k, v, o, packing, pages, 8-bit scales. */

#include "core/params_internal.h"

#include <inttypes.h>
#include <math.h>

#include "core/fpenv.h"
#include "core/status.h"
#include "core/tensor.h"

/* Everything the steps below share. */
struct attention_call {
    const qattn_tensor *q, *k, *v, *o;
    const qattn_attn_params *params;
    bool shapes_only;
};

static bool is_8bit(int32_t dtype)
{
    return dtype == QATTN_DTYPE_E4M3FN || dtype == QATTN_DTYPE_E5M2 || dtype == QATTN_DTYPE_I8;
}

static int32_t check_types(const struct problem *p)
{
    const int32_t q = p->q.dtype, k = p->k.dtype, v = p->v.dtype, o = p->o.dtype;
    const bool half = q == QATTN_DTYPE_F16 || q == QATTN_DTYPE_BF16;
    const bool inputs = k == v && ((q == QATTN_DTYPE_F32 && k == q) || (half && (k == q || is_8bit(k))) ||
                                   (is_8bit(q) && k == q));
    QATTN_REQUIRE(inputs, QATTN_ERR_UNSUPPORTED_DTYPE,
                  "q, k, v are %s, %s, %s: offered are f32 throughout, f16 or bf16 q with k and v of q's type or one "
                  "of e4m3fn, e5m2, i8, and one 8-bit type throughout", qattn__dtype_name(q), qattn__dtype_name(k),
                  qattn__dtype_name(v));
    const bool output = o == QATTN_DTYPE_F32 || (is_8bit(q) ? o == QATTN_DTYPE_F16 || o == QATTN_DTYPE_BF16 : o == q);
    QATTN_REQUIRE(output, QATTN_ERR_UNSUPPORTED_DTYPE, "o is %s with q %s: must be %s or f32", qattn__dtype_name(o),
                  qattn__dtype_name(q), is_8bit(q) ? "f16, bf16" : "q's type");
    return QATTN_OK;
}

static int32_t read_tensors(struct problem *p, const struct attention_call *c)
{
    QATTN_TRY(qattn__tensor_view(&p->q, c->q, "q", TENSOR_INPUT, c->shapes_only));
    QATTN_TRY(qattn__tensor_view(&p->k, c->k, "k", TENSOR_INPUT, c->shapes_only));
    QATTN_TRY(qattn__tensor_view(&p->v, c->v, "v", TENSOR_INPUT, c->shapes_only));
    QATTN_TRY(qattn__tensor_view(&p->o, c->o, "o", TENSOR_OUTPUT, c->shapes_only));
    QATTN_TRY(qattn__tensor_same_device(c->k, "k", c->q, "q"));
    QATTN_TRY(qattn__tensor_same_device(c->v, "v", c->q, "q"));
    QATTN_TRY(qattn__tensor_same_device(c->o, "o", c->q, "q"));
    for (int i = 0; i < 3; i++) {
        QATTN_TRY(qattn__tensor_extent(&p->v, "v", i, p->k.shape[i], "as in k"));
        QATTN_TRY(qattn__tensor_extent(&p->o, "o", i, p->q.shape[i], "as in q"));
    }
    QATTN_TRY(qattn__tensor_extent(&p->k, "k", 3, p->q.shape[3], "D of q"));
    QATTN_TRY(qattn__tensor_extent(&p->o, "o", 3, p->v.shape[3], "Dv of v"));
    p->hq = p->q.shape[1];
    p->hkv = p->k.shape[1];
    p->d = p->q.shape[3];
    p->dv = p->v.shape[3];
    QATTN_REQUIRE(p->hq == 0 || (p->hkv > 0 && p->hq % p->hkv == 0), QATTN_ERR_BAD_SHAPE,
                  "k.shape[1] is %" PRId64 ": must divide q.shape[1] (%" PRId64 ") into whole groups", p->hkv, p->hq);
    p->group = p->hq > 0 ? p->hq / p->hkv : 1;
    return QATTN_OK;
}

static int32_t read_packing(struct problem *p, const qattn_attn_params *a)
{
    QATTN_TRY(qattn__params_array(a->cu_seqlens_q, "cu_seqlens_q"));
    QATTN_TRY(qattn__params_array(a->cu_seqlens_k, "cu_seqlens_k"));
    QATTN_REQUIRE(a->num_seqs >= 0 && a->max_seqlen_q >= 0 && a->max_seqlen_k >= 0, QATTN_ERR_BAD_VALUE,
                  "params.num_seqs, max_seqlen_q, max_seqlen_k are %" PRId64 ", %" PRId64 ", %" PRId64
                  ": each must be at least 0", a->num_seqs, a->max_seqlen_q, a->max_seqlen_k);
    p->cu_seqlens_q = a->cu_seqlens_q;
    p->cu_seqlens_k = a->cu_seqlens_k;
    if (p->cu_seqlens_q) {
        QATTN_TRY(qattn__tensor_extent(&p->q, "q", 0, 1, "since cu_seqlens_q packs all sequences into one batch"));
        p->n = a->num_seqs;
    } else {
        p->n = p->q.shape[0];
        QATTN_REQUIRE(a->num_seqs == 0 || a->num_seqs == p->n, QATTN_ERR_COMBINATION,
                      "params.num_seqs is %" PRId64 " without cu_seqlens_q: must be 0 or q.shape[0] (%" PRId64 ")",
                      a->num_seqs, p->n);
    }
    if (p->cu_seqlens_k) {
        QATTN_REQUIRE(!a->page_table, QATTN_ERR_COMBINATION,
                      "params.page_table is %p with cu_seqlens_k: keys are packed or paged, not both",
                      (const void *)a->page_table);
        QATTN_TRY(qattn__tensor_extent(&p->k, "k", 0, 1, "since cu_seqlens_k packs all sequences into one batch"));
    }
    p->cap_q = p->q.shape[2];
    if (a->max_seqlen_q > 0 && a->max_seqlen_q < p->cap_q)
        p->cap_q = a->max_seqlen_q;
    return QATTN_OK;
}

static int32_t read_pages(struct problem *p, const qattn_attn_params *a)
{
    QATTN_REQUIRE(a->seqused_k, QATTN_ERR_COMBINATION,
                  "params.seqused_k is NULL with page_table: pages need the keys in use per sequence");
    QATTN_TRY(qattn__params_array(a->page_table, "page_table"));
    QATTN_REQUIRE(a->max_pages >= 0, QATTN_ERR_BAD_VALUE, "params.max_pages is %" PRId64 ": must be at least 0",
                  a->max_pages);
    QATTN_REQUIRE(a->page_table_stride >= 0, QATTN_ERR_BAD_VALUE,
                  "params.page_table_stride is %" PRId64 ": must be at least 0 (0: max_pages)", a->page_table_stride);
    p->page_table = a->page_table;
    p->max_pages = a->max_pages;
    p->page_table_stride = a->page_table_stride ? a->page_table_stride : a->max_pages;
    p->num_pages = p->k.shape[0];
    p->page_size = p->k.shape[2];
    QATTN_REQUIRE(p->page_size >= 1, QATTN_ERR_BAD_SHAPE,
                  "k.shape[2] is %" PRId64 " with page_table: the page size must be at least 1", p->page_size);
    QATTN_REQUIRE(!__builtin_mul_overflow(p->max_pages, p->page_size, &p->cap_k), QATTN_ERR_BAD_VALUE,
                  "params.max_pages is %" PRId64 ": max_pages * page_size must fit in 63 bits", p->max_pages);
    return QATTN_OK;
}

/* p->cap_k and, in *full, the capacity that bias and keep span. */
static int32_t read_keys(struct problem *p, const qattn_attn_params *a, int64_t *full)
{
    p->cap_k = p->k.shape[2];
    if (a->page_table) {
        QATTN_TRY(read_pages(p, a));
    } else {
        QATTN_REQUIRE(a->max_pages == 0 && a->page_table_stride == 0, QATTN_ERR_COMBINATION,
                      "params.max_pages, page_table_stride are %" PRId64 ", %" PRId64
                      " without page_table: set it, or leave them 0", a->max_pages, a->page_table_stride);
        if (!p->cu_seqlens_k)
            QATTN_TRY(qattn__tensor_extent(&p->k, "k", 0, p->n,
                                           p->cu_seqlens_q ? "the number of sequences, params.num_seqs"
                                                           : "the number of sequences"));
    }
    *full = p->cap_k;
    if (a->page_table && p->num_pages == 0)
        p->cap_k = 0;               /* an empty pool holds no key, whatever the tables say */
    if (a->max_seqlen_k > 0 && a->max_seqlen_k < p->cap_k)
        p->cap_k = a->max_seqlen_k;
    return QATTN_OK;
}

/* ---------------------------------------------------------------- 8-bit scales */

struct descale_call {
    const qattn_tensor *t;
    const char *name;
    const struct view *of;       /* the stored tensor */
    const char *of_name;
    bool is_q;
};

static int32_t check_descale_width(const struct descale_call *c)
{
    const int64_t d = c->t->shape[3];
    QATTN_REQUIRE(d == 1 || d == c->of->shape[3], QATTN_ERR_BAD_SHAPE,
                  "%s.shape[3] is %" PRId64 ": must be 1 or %" PRId64 ", the width of %s", c->name, d,
                  c->of->shape[3], c->of_name);
    return QATTN_OK;
}

/* Which of the three index rules the shape means. One scale a sequence wins where a shape fits two. */
static int32_t classify_descale(struct descale *out, const struct problem *p, const struct descale_call *c)
{
    const int64_t b = c->t->shape[0], s = c->t->shape[2];
    const bool paged = !c->is_q && p->page_table;
    const bool per_sequence = s == 1 && (b == 1 || b == p->n);
    const bool per_stored_row = s == c->of->shape[2] && (b == c->of->shape[0] || (b == 1 && !paged));
    QATTN_REQUIRE(per_sequence || per_stored_row, QATTN_ERR_BAD_SHAPE,
                  "%s.shape is [%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "]: must be [%" PRId64
                  " or 1, heads, 1, D or 1], or per row of %s: [%" PRId64 ", heads, %" PRId64 ", %s]", c->name, b,
                  c->t->shape[1], s, c->t->shape[3], p->n, c->of_name, c->of->shape[0], c->of->shape[2],
                  paged ? "1" : "D or 1");
    out->kind = per_sequence ? DESCALE_SEQUENCE : paged ? DESCALE_PAGE : DESCALE_ROW;
    QATTN_REQUIRE(out->kind != DESCALE_PAGE || c->t->shape[3] == 1, QATTN_ERR_BAD_SHAPE,
                  "%s.shape[3] is %" PRId64 ": must be 1 where scales go by page row", c->name, c->t->shape[3]);
    return QATTN_OK;
}

static int32_t read_descale(struct descale *out, const struct problem *p, const struct attention_call *call,
                            const struct descale_call *c)
{
    bool absent;
    out->head_div = 1;
    QATTN_TRY(qattn__tensor_absent(c->t, c->name, &absent));
    if (absent)
        return QATTN_OK;
    QATTN_TRY(qattn__tensor_view(&out->t, c->t, c->name, TENSOR_INPUT, call->shapes_only));
    QATTN_TRY(qattn__tensor_same_device(c->t, c->name, call->q, "q"));
    QATTN_REQUIRE(out->t.dtype == QATTN_DTYPE_F32, QATTN_ERR_UNSUPPORTED_DTYPE, "%s is %s: must be f32", c->name,
                  qattn__dtype_name(out->t.dtype));
    QATTN_REQUIRE(is_8bit(c->of->dtype), QATTN_ERR_COMBINATION, "%s is set but %s is %s: scales go with 8-bit tensors",
                  c->name, c->of_name, qattn__dtype_name(c->of->dtype));
    const int64_t h = c->t->shape[1];
    QATTN_REQUIRE(h == 1 || h == p->hkv || (c->is_q && h == p->hq), QATTN_ERR_BAD_SHAPE,
                  "%s.shape[1] is %" PRId64 ": must be 1, %" PRId64 " KV heads%s", c->name, h, p->hkv,
                  c->is_q ? " or all query heads" : "");
    if (c->is_q && h == p->hkv && h != p->hq)
        out->head_div = p->group;
    QATTN_TRY(check_descale_width(c));
    return classify_descale(out, p, c);
}

static int32_t read_descales(struct problem *p, const struct attention_call *c)
{
    const qattn_attn_params *a = c->params;
    const struct descale_call q = { &a->q_descale, "params.q_descale", &p->q, "q", true };
    const struct descale_call k = { &a->k_descale, "params.k_descale", &p->k, "k", false };
    const struct descale_call v = { &a->v_descale, "params.v_descale", &p->v, "v", false };
    QATTN_TRY(read_descale(&p->q_descale, p, c, &q));
    QATTN_TRY(read_descale(&p->k_descale, p, c, &k));
    return read_descale(&p->v_descale, p, c, &v);
}

/* ---------------------------------------------------------------- scores, splits, limits */

static int32_t read_scores_output(struct problem *p, const struct attention_call *c, int64_t full_k)
{
    const qattn_attn_params *a = c->params;
    bool absent;
    QATTN_REQUIRE(a->scores_stage >= 0 && a->scores_stage <= 3, QATTN_ERR_BAD_VALUE,
                  "params.scores_stage is %" PRId32 ": must be from 0 to 3", a->scores_stage);
    p->scores_stage = a->scores_stage;
    QATTN_TRY(qattn__tensor_absent(&a->scores, "params.scores", &absent));
    if (absent)
        return QATTN_OK;
    QATTN_TRY(qattn__tensor_view(&p->scores, &a->scores, "params.scores", TENSOR_OUTPUT, c->shapes_only));
    QATTN_TRY(qattn__tensor_same_device(&a->scores, "params.scores", c->q, "q"));
    QATTN_REQUIRE(p->op == OP_GQA_FORWARD, QATTN_ERR_UNSUPPORTED,
                  "params.scores is set: only qattn_gqa_forward returns scores, flash never holds them");
    QATTN_REQUIRE(!p->cu_seqlens_q && !p->cu_seqlens_k, QATTN_ERR_UNSUPPORTED,
                  "params.scores is set with packed sequences: scores are offered for padded batches");
    const int64_t want[4] = { p->n, p->hq, p->q.shape[2], full_k };
    for (int i = 0; i < 4; i++)
        QATTN_TRY(qattn__tensor_extent(&p->scores, "params.scores", i, want[i], "of [B,Hq,Sq,Sk]"));
    const int32_t t = p->scores.dtype;
    QATTN_REQUIRE(t == QATTN_DTYPE_F32 || (t == p->q.dtype && !is_8bit(t)), QATTN_ERR_UNSUPPORTED_DTYPE,
                  "params.scores is %s with q %s: must be f32%s", qattn__dtype_name(t), qattn__dtype_name(p->q.dtype),
                  is_8bit(p->q.dtype) ? "" : " or q's type");
    return QATTN_OK;
}

static int32_t read_splits(struct problem *p, const qattn_attn_params *a)
{
    QATTN_REQUIRE(a->num_splits >= 0, QATTN_ERR_BAD_VALUE,
                  "params.num_splits is %" PRId32 ": must be at least 0 (0: automatic)", a->num_splits);
    QATTN_REQUIRE(a->num_splits <= 1 || p->op == OP_FLASH_FORWARD, QATTN_ERR_UNSUPPORTED,
                  "params.num_splits is %" PRId32 ": qattn_gqa_forward does not split keys; leave it 0",
                  a->num_splits);
    QATTN_REQUIRE(a->num_splits <= 1 || !(a->flags & QATTN_FLAG_BATCH_INVARIANT), QATTN_ERR_COMBINATION,
                  "params.num_splits is %" PRId32 " with BATCH_INVARIANT: that flag fixes the splits; leave it 0",
                  a->num_splits);
    p->num_splits = a->num_splits;
    return QATTN_OK;
}

static int32_t check_limits(const struct problem *p)
{
    QATTN_REQUIRE(p->d <= QATTN__MAX_WIDTH, QATTN_ERR_UNSUPPORTED_SHAPE,
                  "q.shape[3] (D) is %" PRId64 ": at most %d is offered", p->d, QATTN__MAX_WIDTH);
    QATTN_REQUIRE(p->dv <= QATTN__MAX_WIDTH, QATTN_ERR_UNSUPPORTED_SHAPE,
                  "v.shape[3] (Dv) is %" PRId64 ": at most %d is offered", p->dv, QATTN__MAX_WIDTH);
    return QATTN_OK;
}

static int32_t check_aliases(const struct problem *p)
{
    const struct named_view out[] = {
        { &p->o, "o" }, { &p->lse, "params.lse" }, { &p->scores, "params.scores" },
    };
    const struct named_view in[] = {
        { &p->q, "q" }, { &p->k, "k" }, { &p->v, "v" }, { &p->bias, "params.bias" }, { &p->keep, "params.keep" },
        { &p->q_descale.t, "params.q_descale" }, { &p->k_descale.t, "params.k_descale" },
        { &p->v_descale.t, "params.v_descale" },
    };
    return qattn__params_aliases(out, sizeof out / sizeof out[0], in, sizeof in / sizeof in[0]);
}

/* 1/sqrt(D), whatever rounding the caller's thread is set to. */
static float default_scale(int64_t d)
{
    const fp_state saved = fp_enter_default();
    const float scale = d > 0 ? (float)(1.0 / sqrt((double)d)) : 1.0f;
    fp_leave(saved);
    return scale;
}

static int32_t read_score_options(struct problem *p, const struct attention_call *c, int64_t full_k)
{
    const qattn_attn_params *a = c->params;
    const bool packed = p->cu_seqlens_q || p->cu_seqlens_k;
    QATTN_REQUIRE(!packed || (!a->bias.dtype && !a->keep.dtype), QATTN_ERR_UNSUPPORTED,
                  "params.%s is set with packed sequences: bias and keep are offered for padded batches",
                  a->bias.dtype ? "bias" : "keep");
    const struct score_options scores = {
        .scale = a->scale, .default_scale = default_scale(p->d),
        .softcap = a->softcap, .mask = a->mask, .window_left = a->window_left, .window_right = a->window_right,
        .q_offset = a->q_offset, .alibi_batch_stride = a->alibi_batch_stride, .q_offsets = a->q_offsets,
        .seqused_q = a->seqused_q, .seqused_k = a->seqused_k, .sinks = a->sinks, .alibi_slopes = a->alibi_slopes,
        .lse = &a->lse, .bias = &a->bias, .keep = &a->keep,
        .shape = { p->n, p->hq, p->q.shape[2], full_k },
        .lse_shape = { p->q.shape[0], p->hq, p->q.shape[2] },
        .first = c->q, .first_name = "q", .shapes_only = c->shapes_only,
    };
    return qattn__params_scores(p, &scores);
}

int32_t qattn__problem_attention(struct problem *p, enum op op, const qattn_tensor *q, const qattn_tensor *k,
                                 const qattn_tensor *v, const qattn_tensor *o, const qattn_attn_params *params,
                                 bool shapes_only)
{
    qattn_attn_params local;
    QATTN_REQUIRE(q, QATTN_ERR_NULL_POINTER, "q is NULL: a tensor is required");
    qattn__problem_clear(p, op, q, shapes_only);
    QATTN_TRY(qattn__params_read(&local, sizeof local, params));
    QATTN_REQUIRE(local.reserved0 == 0, QATTN_ERR_RESERVED, "params.reserved0 is %" PRId32 ": must be 0",
                  local.reserved0);
    const struct attention_call call = { q, k, v, o, &local, shapes_only };
    const struct common_options common = {
        local.flags, QATTN__ALL_FLAGS, local.workspace, local.workspace_bytes, local.num_threads, local.precision,
    };
    int64_t full_k = 0;
    QATTN_TRY(read_tensors(p, &call));
    QATTN_TRY(qattn__params_common(p, &common));
    QATTN_TRY(read_packing(p, &local));
    QATTN_TRY(read_keys(p, &local, &full_k));
    QATTN_TRY(read_score_options(p, &call, full_k));
    QATTN_TRY(read_descales(p, &call));
    QATTN_TRY(read_scores_output(p, &call, full_k));
    QATTN_TRY(read_splits(p, &local));
    QATTN_TRY(check_limits(p));
    QATTN_TRY(check_aliases(p));
    return check_types(p);
}
