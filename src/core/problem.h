/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * struct problem: a checked, normalised call. qattn.c builds it once; every implementation reads only it.
 *
 * What holds when an implementation sees one:
 *   - all arguments passed the checks of core/params.c; nothing in here needs checking again;
 *   - views: strides in elements, 0 on every axis of size 1 (so a broadcast axis needs no branch);
 *     an absent tensor has dtype 0 and data NULL;
 *   - defaults are resolved: scale, alpha, num_threads, page strides;
 *   - lengths, offsets and page ids in arrays are NOT trusted: read them through seq.h, which clamps.
 */
#ifndef QATTN_CORE_PROBLEM_H
#define QATTN_CORE_PROBLEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "qattn.h"

/* Inline functions that CUDA kernels share with the host. */
#ifdef __CUDACC__
#define QATTN_HD __host__ __device__
#else
#define QATTN_HD
#endif

enum op { OP_MATMUL, OP_MATMUL_NT, OP_SOFTMAX, OP_GQA_FORWARD, OP_FLASH_FORWARD, OP_MERGE, OP_COUNT };

struct view {
    char   *data;        /* element [0,0,0,0] */
    int64_t shape[4];    /* B, H, S, D */
    int64_t stride[4];   /* elements; 0 where shape is 1 */
    int32_t dtype;       /* 0: absent */
    int32_t itemsize;    /* bytes of one element; 0 when absent */
};

/* Address of element [b,h,s,d]; 64-bit throughout. */
QATTN_HD static inline char *view_at(const struct view *t, int64_t b, int64_t h, int64_t s, int64_t d)
{
    return t->data + (b * t->stride[0] + h * t->stride[1] + s * t->stride[2] + d * t->stride[3]) * t->itemsize;
}

/* How an 8-bit tensor's descale is indexed. */
enum descale_kind {
    DESCALE_NONE,        /* absent: every scale is 1 */
    DESCALE_SEQUENCE,    /* [n, head/head_div, 0, d] */
    DESCALE_ROW,         /* [stored b, head/head_div, stored row, d]: one per row of the stored tensor */
    DESCALE_PAGE         /* [page, head, slot in page, 0] */
};
struct descale { struct view t; enum descale_kind kind; int64_t head_div; };

enum position_rule { POSITION_BOTTOM_RIGHT, POSITION_TOP_LEFT, POSITION_OFFSET };

enum { QATTN__MAX_PARTS = 64, QATTN__MAX_WIDTH = 1024 };

struct problem {
    enum op  op;
    int32_t  device_type, device_id;
    uint64_t flags;              /* QATTN_FLAG_* */
    char    *workspace;          /* what the chosen row asked for or more (rows with checks_workspace: any size),
                                  * 256-byte aligned; NULL if it asked for 0 */
    size_t   workspace_bytes;
    int32_t  num_threads;        /* CPU: >= 1 */
    int32_t  precision;          /* QATTN_PRECISION_* */
    bool     shapes_only;        /* *_workspace, *_explain, *_prepare: data pointers may be NULL */

    /* matmul: c = alpha a b(t) + beta c. a [B,H,M,K], b [B,Hb,K,N] or [B,Hb,N,K], c [B,H,M,N]; head h of a
     * reads b's head h / b_head_div */
    struct view a, b, c;
    int64_t  b_head_div;
    float    alpha, beta;

    /* softmax: x -> y [B,H,Sq,Sk]; the score fields below apply with n = B, hq = H */
    struct view x, y;

    /* attention: q [B,Hq,Sq,D], k [B,Hkv,Sk,D], v [B,Hkv,Sk,Dv], o [B,Hq,Sq,Dv]; B = 1 and S = total rows when
     * packed; k, v [num_pages,Hkv,page_size,D] when paged */
    struct view q, k, v, o;
    struct view lse, bias, keep, scores;
    struct descale q_descale, k_descale, v_descale;
    int64_t  n;                  /* sequences: num_seqs if q is packed, else B of q */
    int64_t  hq, hkv, d, dv;     /* softmax: hq = hkv = H, d = dv = 0 */
    int64_t  group;              /* hq / hkv; 1 when hq is 0 */
    float    scale, softcap;     /* scale resolved; softcap 0: off */
    int32_t  num_splits;         /* 0 automatic */
    int32_t  scores_stage;

    /* which keys a row sees: read through seq.h */
    bool     causal, window;
    enum position_rule position;
    int64_t  window_left, window_right;   /* -1: unlimited */
    int64_t  q_offset;
    const int32_t *q_offsets;             /* [n] or NULL */
    const int32_t *cu_seqlens_q;          /* [n+1] or NULL: q is padded */
    const int32_t *cu_seqlens_k;          /* [n+1] or NULL: k is padded or paged */
    const int32_t *seqused_q, *seqused_k; /* [n] or NULL */
    int64_t  cap_q;              /* rows one sequence may have at most: capacity cut by max_seqlen_q */
    int64_t  cap_k;              /* keys likewise */
    const int32_t *page_table;   /* [n][max_pages] or NULL */
    int64_t  page_table_stride, max_pages, page_size, num_pages;
    const float *sinks;          /* [hq] or NULL */
    const float *alibi_slopes;   /* [hq] or NULL */
    int64_t  alibi_batch_stride; /* 0: one row for all */

    /* merge: parts[i].o [B,H,S,Dv], parts[i].lse [B,H,S,1]; result in o, lse (lse may be absent) */
    int64_t  num_parts;
    struct { struct view o, lse; } parts[QATTN__MAX_PARTS];
};

/* Product of the extents is 0: nothing to write. */
QATTN_HD static inline bool view_empty(const struct view *t)
{
    return t->shape[0] == 0 || t->shape[1] == 0 || t->shape[2] == 0 || t->shape[3] == 0;
}

/* Bytes of one element of a QATTN_DTYPE_*, 0 if unknown. */
int32_t qattn__dtype_size(int32_t dtype);
/* "bf16"; "?" if unknown. */
const char *qattn__dtype_name(int32_t dtype);
/* "flash_forward". */
const char *qattn__op_name(enum op op);

#endif
