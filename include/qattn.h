/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * libqattn: attention on strided tensors, CPU and CUDA, behind a stable C ABI.
 *
 * A complete program (cc hello.c -lqattn):
 *
 *     #include <qattn.h>
 *     #include <stdio.h>
 *     static float q[512*16*128], k[512*8*128], v[512*8*128], o[512*16*128];   // [S][H][D]
 *     int main(void) {
 *         qattn_tensor Q, K, V, O;
 *         qattn_attn_params p = QATTN_ATTN_PARAMS_INIT;
 *         qattn_tensor_init(&Q, q, QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BSHD, 1, 16, 512, 128);
 *         qattn_tensor_init(&K, k, QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BSHD, 1,  8, 512, 128);
 *         qattn_tensor_init(&V, v, QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BSHD, 1,  8, 512, 128);
 *         qattn_tensor_init(&O, o, QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BSHD, 1, 16, 512, 128);
 *         p.mask = QATTN_MASK_CAUSAL;
 *         char e[512];
 *         if (qattn_flash_forward(&Q, &K, &V, &O, &p, NULL) != QATTN_OK) { qattn_last_error(e, sizeof e); puts(e); }
 *         return 0;
 *     }
 *
 * Five traps of the field, and what this library does:
 *
 *   **CAUSAL CORNER**       bottom right: the last query sees the last key. QATTN_MASK_TOP_LEFT and
 *                           QATTN_MASK_OFFSET choose otherwise. (torch's is_causal is top left.)
 *   **WINDOWS**             window_left and window_right are INCLUSIVE distances: left 0, right 0 sees
 *                           the diagonal alone. (cuDNN's left bound counts the token itself.)
 *   **BASE OF THE LSE**     natural logarithm. QATTN_FLAG_LSE_BASE2 gives base 2. (FlashInfer: base 2.)
 *   **EMPTY ROWS**          a query that sees no key gets O = 0 and LSE = MINUS infinity, never NaN.
 *                           (FlashAttention-2 writes plus infinity.)
 *   **DEFAULT SCALE**       scale 0 means 1/sqrt(D) with D the width of q. (cuDNN's default is 1.)
 *
 * Coming from another library:
 *
 *   FlashAttention window_size=(l, r)        QATTN_MASK_WINDOW, window_left = l, window_right = r: as is
 *   transformers   sliding_window = W        QATTN_MASK_WINDOW, window_left = W - 1, window_right = 0
 *   cuDNN          left bound W              QATTN_MASK_WINDOW, window_left = W - 1; set scale, its default is 1
 *   torch          is_causal=True            QATTN_MASK_CAUSAL | QATTN_MASK_TOP_LEFT
 *   ONNX Attention is_causal, no cache       QATTN_MASK_CAUSAL | QATTN_MASK_TOP_LEFT
 *   ONNX Attention past_key                  QATTN_MASK_CAUSAL | QATTN_MASK_OFFSET, q_offset = past length
 *   ONNX Attention nonpad_kv_seqlen          seqused_k (bottom right per sequence)
 *   FlashInfer     return_lse                QATTN_FLAG_LSE_BASE2
 *
 * Rules that hold for every function:
 *
 *   - Operations return int32_t: QATTN_OK or a status of the list below. A refused call writes
 *     nothing; qattn_last_error tells which argument, its value, the rule and the next step.
 *   - No handle, no global state: a call is a pure function of its arguments. Any number of threads
 *     may call at once. Arguments may be reused when the call returns; on CUDA the device data must
 *     live until the stream has passed the call.
 *   - Tensors are views: no copy is made of a transposed, sliced, broadcast or negative-stride input.
 *   - `params` may be NULL: every field then has its default, which is always 0.
 *   - The library never prints (unless QATTN_LOG=1), exits, aborts, or calls back.
 */
#ifndef QATTN_H
#define QATTN_H

#include <stddef.h>
#include <stdint.h>

#define QATTN_VERSION_MAJOR 0
#define QATTN_VERSION_MINOR 1
#define QATTN_VERSION_PATCH 0
#define QATTN_VERSION       100   /* 10000*major + 100*minor + patch */
#define QATTN_ABI_VERSION   0     /* the soname's number; 0 until the first release freezes it */

#if defined(__GNUC__) || defined(__clang__)
#define QATTN_API __attribute__((visibility("default")))
#else
#define QATTN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- constants */

/* Element types: DLPack's code<<16 | bits<<8 | lanes. */
#define QATTN_DTYPE_NONE   0          /* the tensor is absent */
#define QATTN_DTYPE_F32    0x022001
#define QATTN_DTYPE_F16    0x021001
#define QATTN_DTYPE_BF16   0x041001
#define QATTN_DTYPE_E4M3FN 0x0A0801
#define QATTN_DTYPE_E5M2   0x0C0801
#define QATTN_DTYPE_I8     0x000801
#define QATTN_DTYPE_U8     0x010801
#define QATTN_DTYPE_BOOL   0x060801

/* Device types: DLPack's numbers. */
#define QATTN_DEVICE_CPU  1
#define QATTN_DEVICE_CUDA 2

/* params.flags */
#define QATTN_FLAG_SCALE_AS_GIVEN  1  /* scale (matmul: alpha) 0 means zero, not "the default" */
#define QATTN_FLAG_BATCH_INVARIANT 2  /* a row's bits depend on its own query, keys and position alone */
#define QATTN_FLAG_LSE_BASE2       4  /* every LSE of the call is a base-2 logarithm */
#define QATTN_FLAG_NO_FALLBACK     8  /* refuse where only a reference or generic implementation would run */

/* params.mask. Masks intersect. pos(i) is the position of query row i among the keys (see q_offset). */
#define QATTN_MASK_CAUSAL   1         /* row i sees keys j <= pos(i) */
#define QATTN_MASK_WINDOW   2         /* row i sees keys pos(i) - window_left <= j <= pos(i) + window_right */
#define QATTN_MASK_TOP_LEFT 4         /* pos(i) = i; without it pos(i) = i + len_k - len_q (bottom right) */
#define QATTN_MASK_OFFSET   8         /* pos(i) = i + q_offset, or i + q_offsets[n] */

/* params.precision: arithmetic of f32 tensors on CUDA. The CPU is always IEEE. */
#define QATTN_PRECISION_IEEE   0
#define QATTN_PRECISION_3XTF32 1
#define QATTN_PRECISION_TF32   2

/* Memory orders of qattn_tensor_init and qattn_tensor_from_dlpack, slowest axis first. */
#define QATTN_LAYOUT_BHSD 1
#define QATTN_LAYOUT_BSHD 2
#define QATTN_LAYOUT_SBHD 3
#define QATTN_LAYOUT_THD  4           /* packed sequences [T][H][D]; becomes shape [1, H, T, D] */

/* Status. Category = code / 1000: 1 bad argument, 2 not supported, 3 device or driver, 4 resources,
 * 5 internal. */
#define QATTN_OK                      0
#define QATTN_ERR_NULL_POINTER        1001  /* a required pointer is NULL */
#define QATTN_ERR_STRUCT_SIZE         1002  /* struct_size is no size any version ever had */
#define QATTN_ERR_PARAMS_TOO_NEW      1003  /* a field newer than this library is set */
#define QATTN_ERR_RESERVED            1004  /* a reserved field is not 0 */
#define QATTN_ERR_UNKNOWN_BITS        1005  /* a flag or mask bit this library does not know, or not for this call */
#define QATTN_ERR_BAD_DTYPE           1006  /* no QATTN_DTYPE_* value, or 0 where a tensor is required */
#define QATTN_ERR_BAD_DEVICE          1007  /* no QATTN_DEVICE_* value, or a device_id it cannot have */
#define QATTN_ERR_BAD_SHAPE           1008  /* negative, overflowing, or not fitting the other tensors */
#define QATTN_ERR_BAD_STRIDE          1009  /* an output that may overlap itself, or byte offsets beyond 63 bits */
#define QATTN_ERR_ALIAS               1010  /* an output shares its data pointer with another tensor */
#define QATTN_ERR_BAD_VALUE           1011  /* a number (or environment variable) outside its range */
#define QATTN_ERR_ALIGNMENT           1012  /* a pointer is no multiple of its element size, or workspace of 256 */
#define QATTN_ERR_DEVICE_MISMATCH     1013  /* tensors or stream live on different devices */
#define QATTN_ERR_COMBINATION         1014  /* fields that exclude or require each other */
#define QATTN_ERR_STREAM              1015  /* a CPU call was given a stream */
#define QATTN_ERR_UNKNOWN_NAME        1016  /* qattn_query: no such constant, size or offset */
#define QATTN_ERR_UNSUPPORTED_DTYPE   2001  /* this set of element types is not offered */
#define QATTN_ERR_UNSUPPORTED_SHAPE   2002  /* D or Dv above 1024 */
#define QATTN_ERR_UNSUPPORTED         2003  /* a combination of features that is not offered */
#define QATTN_ERR_NOT_BUILT           2004  /* this build has no code for that device type */
#define QATTN_ERR_NO_IMPLEMENTATION   2005  /* no row of the table may run this (NO_FALLBACK, QATTN_IMPL) */
#define QATTN_ERR_NO_DRIVER           3001  /* no CUDA driver on this machine */
#define QATTN_ERR_DRIVER_TOO_OLD      3002  /* the CUDA driver is older than the runtime needs */
#define QATTN_ERR_NO_DEVICE           3003  /* a driver, but no such CUDA device */
#define QATTN_ERR_DEVICE_BUSY         3004  /* the device is taken or prohibited */
#define QATTN_ERR_NO_KERNEL_IMAGE     3005  /* no code for the device's compute capability in this build */
#define QATTN_ERR_FORKED              3006  /* the CUDA context belongs to the parent process */
#define QATTN_ERR_CAPTURE_INVALID     3007  /* the stream's capture was invalidated or forbids the call */
#define QATTN_ERR_CUDA                3008  /* any other CUDA error; code and name in the text */
#define QATTN_ERR_WORKSPACE           4001  /* workspace missing or too small (the text gives the bytes), or
                                             more than memory can hold */
#define QATTN_ERR_OUT_OF_MEMORY       4002
#define QATTN_ERR_INTERNAL            5001  /* a fault of the library: please report the text */

/* ---------------------------------------------------------------- types */

/* The same type as cudaStream_t: no cast, no CUDA header. NULL is the legacy default stream; a call
 * on CPU tensors must pass NULL. */
typedef struct CUstream_st *qattn_stream;

/* A strided view of memory the caller owns. Frozen for ever: 96 bytes. */
typedef struct qattn_tensor {
    void    *data;         /* element [0,0,0,0], aligned to the element size; may be NULL if an axis is 0 */
    int64_t  shape[4];     /* B, H, S, D; each >= 0. D and Dv: at most 1024 in attention */
    int64_t  stride[4];    /* in ELEMENTS, same order; any sign; 0 broadcasts an input; ignored where shape is 1 */
    int32_t  dtype;        /* QATTN_DTYPE_*; 0: the tensor is absent and all 96 bytes must be 0 */
    int32_t  device_type;  /* QATTN_DEVICE_*; 0 is refused */
    int32_t  device_id;    /* CUDA ordinal; 0 on CPU */
    int32_t  reserved0;    /* must be 0 */
    uint64_t reserved1;    /* must be 0 */
} qattn_tensor;

/* struct_size set, all other fields 0, without a warning of missing initialisers. In C++ no constant expression. */
#ifdef __cplusplus
#define QATTN_PARAMS_INIT_OF(type) \
    []() { type qattn_init_ = type(); qattn_init_.struct_size = sizeof(type); return qattn_init_; }()
#else
#define QATTN_PARAMS_INIT_OF(type) { .struct_size = sizeof(type) }
#endif

/*
 * Options of attention. Start from QATTN_ATTN_PARAMS_INIT; every field not set is 0 = its default.
 *
 * N below is num_seqs if q is packed, else B of q. Arrays live on the tensors' device; their contents
 * are clamped to what the tensors can hold, never trusted.
 *
 * Scores (section "semantics" of docs/numerics.md), in this order:
 *     s = scale * (q . k);  softcap;  + bias;  - ALiBi;  masks set -inf;  sink joins max and sum;  softmax;  . V
 */
typedef struct qattn_attn_params {
    size_t   struct_size;          /* sizeof(qattn_attn_params), set by the INIT macro */
    uint64_t flags;                /* QATTN_FLAG_* */
    void    *workspace;            /* 256-byte aligned scratch on the tensors' device, contents undefined, one per
                                      concurrent call; NULL: the library allocates (CPU: heap, CUDA: stream-ordered) */
    size_t   workspace_bytes;      /* size of workspace; at least what *_workspace answered */

    float    scale;                /* multiplies q.k; 0 -> 1/sqrt(D of q) unless SCALE_AS_GIVEN; any finite value */
    float    softcap;              /* c: s -> c*tanh(s/c) after scale; 0 off; finite, >= 0 */
    uint32_t mask;                 /* QATTN_MASK_*; 0: every key of the sequence is visible */
    int32_t  precision;            /* QATTN_PRECISION_*, f32 on CUDA; 0: IEEE */

    int32_t  num_splits;           /* key splits: 0 automatic, n exactly n; gqa_forward refuses > 1 */
    int32_t  num_threads;          /* CPU threads; 0: CPUs of the affinity mask, at most the cgroup quota, or env
                                      QATTN_NUM_THREADS. Results do not depend on it */
    int32_t  scores_stage;         /* what `scores` receives: 0 after scale, 1 after softcap, 2 after bias, ALiBi and
                                      every mask (hidden -inf), 3 after softmax (rows without keys 0) */
    int32_t  reserved0;            /* must be 0 */

    int64_t  window_left;          /* keys; inclusive distance to the left, -1 unlimited; read with MASK_WINDOW */
    int64_t  window_right;         /* keys; inclusive distance to the right, -1 unlimited; read with MASK_WINDOW */
    int64_t  q_offset;             /* keys; with MASK_OFFSET: position of query row 0 among the keys, may be negative */
    const int32_t *q_offsets;      /* [N], with MASK_OFFSET: overrides q_offset per sequence; NULL: q_offset for all */

    const int32_t *cu_seqlens_q;   /* [num_seqs+1] first rows of packed sequences in q [1,Hq,total_q,D]; NULL: padded */
    const int32_t *cu_seqlens_k;   /* [num_seqs+1] the same for k and v [1,Hkv,total_k,D]; NULL: padded or paged */
    const int32_t *seqused_q;      /* [N] valid query rows of each sequence; NULL: all. Rows past it: O 0, LSE -inf */
    const int32_t *seqused_k;      /* [N] valid keys of each sequence; NULL: all. Required with page_table */

    int64_t  num_seqs;             /* with cu_seqlens_q: number of sequences (0: none, and nothing is written); else 0
                                      or B of q */
    int64_t  max_seqlen_q;         /* rows; bound of every sequence's queries (grid, workspace); 0: capacity. Rows
                                      beyond it are not touched */
    int64_t  max_seqlen_k;         /* keys; bound of every sequence's keys; 0: capacity */

    const int32_t *page_table;     /* [N][max_pages] ids of pages of k, v [num_pages,Hkv,page_size,D]; NULL: no pages */
    int64_t  page_table_stride;    /* elements between rows of page_table; 0: max_pages */
    int64_t  max_pages;            /* columns of page_table: pages a sequence may have; its capacity is
                                      max_pages * page_size keys. 0: none, as if seqused_k were 0 throughout */

    const float *sinks;            /* [Hq] one more logit per head, in max, sum and LSE, without a value; NULL: none */
    const float *alibi_slopes;     /* [Hq]: adds -slope*|pos(i) - j|; NULL: none */
    int64_t  alibi_batch_stride;   /* elements between sequences: alibi_slopes is [N,Hq]; 0: one row for all */

    qattn_tensor lse;              /* out, f32 [B,Hq,Sq,1] (packed [1,Hq,total_q,1]): log(sum(exp(score))), with sink */
    qattn_tensor bias;             /* f32/f16/bf16 [N,Hq,Sq,Sk], each axis full or 1; added after softcap; -inf hides.
                                      With pages the last axis is max_pages*page_size. Not with packed batches */
    qattn_tensor keep;             /* BOOL/U8, shape as bias: non-zero = may be seen */
    qattn_tensor scores;           /* out, gqa_forward only: f32 or q's type (8-bit q: f32) [B,Hq,Sq,Sk], see
                                      scores_stage. Not with packed batches */
    qattn_tensor q_descale;        /* f32, 8-bit q: real value = stored * descale. B axis N or 1; H axis Hq, Hkv or 1 */
    qattn_tensor k_descale;        /*   (k, v: Hkv or 1); S axis 1 or the stored tensor's own; D axis D or 1. Paged k, v
                                        also [num_pages,Hkv,page_size,1]; a shape that fits both is per sequence */
    qattn_tensor v_descale;        /*   as k_descale, with Dv. Each absent: 1. Refused where its tensor is not 8-bit */
} qattn_attn_params;
#define QATTN_ATTN_PARAMS_INIT QATTN_PARAMS_INIT_OF(qattn_attn_params)

/* Options of qattn_matmul and qattn_matmul_nt. */
typedef struct qattn_matmul_params {
    size_t   struct_size;          /* set by the INIT macro */
    uint64_t flags;                /* SCALE_AS_GIVEN (alpha), BATCH_INVARIANT, NO_FALLBACK */
    void    *workspace;            /* as in qattn_attn_params */
    size_t   workspace_bytes;
    float    alpha;                /* 0 -> 1 unless SCALE_AS_GIVEN; finite */
    float    beta;                 /* 0: C is not read; finite */
    int32_t  precision;            /* QATTN_PRECISION_*, f32 on CUDA */
    int32_t  num_threads;          /* as in qattn_attn_params */
} qattn_matmul_params;
#define QATTN_MATMUL_PARAMS_INIT QATTN_PARAMS_INIT_OF(qattn_matmul_params)

/* Options of qattn_softmax and qattn_softmax_causal. Fields mean what they mean in qattn_attn_params, with
 * the scores x [B,H,Sq,Sk] in place of q.k. */
typedef struct qattn_softmax_params {
    size_t   struct_size;          /* set by the INIT macro */
    uint64_t flags;                /* QATTN_FLAG_* */
    void    *workspace;
    size_t   workspace_bytes;
    float    scale;                /* multiplies x; 0 -> 1 unless SCALE_AS_GIVEN */
    float    softcap;
    uint32_t mask;
    int32_t  num_threads;
    int64_t  window_left;
    int64_t  window_right;
    int64_t  q_offset;
    const int32_t *q_offsets;      /* [B] */
    const int32_t *seqused_q;      /* [B]; rows past it: y 0, LSE -inf */
    const int32_t *seqused_k;      /* [B]; keys past it: y 0 */
    const float *sinks;            /* [H] */
    const float *alibi_slopes;     /* [H] or [B,H] */
    int64_t  alibi_batch_stride;
    qattn_tensor lse;              /* out, f32 [B,H,Sq,1] */
    qattn_tensor bias;             /* [B,H,Sq,Sk], each axis full or 1 */
    qattn_tensor keep;
} qattn_softmax_params;
#define QATTN_SOFTMAX_PARAMS_INIT QATTN_PARAMS_INIT_OF(qattn_softmax_params)

/* Options of qattn_merge. */
typedef struct qattn_merge_params {
    size_t   struct_size;          /* set by the INIT macro */
    uint64_t flags;                /* LSE_BASE2 (parts and result), BATCH_INVARIANT, NO_FALLBACK */
    void    *workspace;
    size_t   workspace_bytes;
    int32_t  num_threads;
    int32_t  reserved0;            /* must be 0 */
} qattn_merge_params;
#define QATTN_MERGE_PARAMS_INIT QATTN_PARAMS_INIT_OF(qattn_merge_params)

/* ---------------------------------------------------------------- tensors and messages */

/* Fills *out for memory packed in `layout` (QATTN_LAYOUT_*), with b, h, s, d the logical sizes. THD: b must
 * be 1 and s is the total number of tokens. data may be NULL (for *_workspace, or where a size is 0).
 * Errors: 1xxx for a NULL out, an unknown dtype, device or layout, a negative or overflowing size. */
QATTN_API int32_t qattn_tensor_init(qattn_tensor *out, void *data, int32_t dtype, int32_t device_type,
                                    int32_t device_id, int32_t layout, int64_t b, int64_t h, int64_t s, int64_t d);

/* Fills *out from a DLTensor (pass &managed->dl_tensor). ndim 4 in the axis order of `layout`, or 3 with
 * QATTN_LAYOUT_THD. byte_offset is added; NULL strides mean packed; lanes must be 1; device types 1 and 3
 * (pinned host) become CPU, 2 and 13 (managed) become CUDA. Takes no ownership, copies no data.
 * Errors: 1xxx; 2001 for a DLPack type that has no QATTN_DTYPE_*. */
QATTN_API int32_t qattn_tensor_from_dlpack(qattn_tensor *out, const void *dltensor, int32_t layout);

/* QATTN_VERSION and QATTN_ABI_VERSION of the library that is loaded. */
QATTN_API int32_t qattn_version(void);
QATTN_API int32_t qattn_abi_version(void);

/* Writes one line about the build (version, compiler, CPU and CUDA parts). NUL-terminated for cap >= 1. */
QATTN_API int32_t qattn_build_info(char *buf, size_t cap);

/* The value of a name of this header in its C spelling: "QATTN_MASK_CAUSAL", "sizeof(qattn_attn_params)",
 * "offsetof(qattn_attn_params,lse)". For bindings. Errors: 1001, 1016. */
QATTN_API int32_t qattn_query(const char *name, int64_t *value);

/* "QATTN_ERR_BAD_SHAPE" and one sentence in English. Static strings; for an unknown code the name is
 * "QATTN_ERR_UNKNOWN". */
QATTN_API const char *qattn_status_name(int32_t status);
QATTN_API const char *qattn_status_string(int32_t status);

/* Copies the text of this thread's last failed call (argument, value, rule, next step; "" if none failed)
 * and returns that call's status. Calling it does not change the text. NUL-terminated for cap >= 1. */
QATTN_API int32_t qattn_last_error(char *buf, size_t cap);

/* ---------------------------------------------------------------- operations
 *
 * Each operation has three twins that take the same tensors and params and no stream; tensors' data may be NULL:
 *   *_workspace   bytes of workspace that suffice for these shapes on this device, for any strides and
 *                 alignment and whatever lengths the device arrays hold
 *   *_explain     text: first line the id of the implementation that would run, then for each faster one why it
 *                 does not. NUL-terminated for cap >= 1. Where the call would be refused: that status, and why.
 *   *_prepare     loads kernels and sets their attributes, so that the first call costs what the second does.
 *                 A first call outside capture does the same. On CPU it starts the thread pool.
 */

/* C = alpha * A B + beta * C for every (B, H). A [B,H,M,K], B [B,Hb,K,N], C [B,H,M,N]; Hb divides H and head h
 * reads B's head h / (H/Hb). A, B: one type of f32, f16, bf16; C that type or f32. fp32 accumulation.
 * K = 0 gives beta * C. */
QATTN_API int32_t qattn_matmul(const qattn_tensor *a, const qattn_tensor *b, const qattn_tensor *c,
                               const qattn_matmul_params *params, qattn_stream stream);
QATTN_API int32_t qattn_matmul_workspace(const qattn_tensor *a, const qattn_tensor *b, const qattn_tensor *c,
                                         const qattn_matmul_params *params, size_t *bytes);
QATTN_API int32_t qattn_matmul_explain(const qattn_tensor *a, const qattn_tensor *b, const qattn_tensor *c,
                                       const qattn_matmul_params *params, char *buf, size_t cap);
QATTN_API int32_t qattn_matmul_prepare(const qattn_tensor *a, const qattn_tensor *b, const qattn_tensor *c,
                                       const qattn_matmul_params *params);

/* C = alpha * A B^T + beta * C: as qattn_matmul, with B [B,Hb,N,K] read in place, never transposed in memory. */
QATTN_API int32_t qattn_matmul_nt(const qattn_tensor *a, const qattn_tensor *b, const qattn_tensor *c,
                                  const qattn_matmul_params *params, qattn_stream stream);
QATTN_API int32_t qattn_matmul_nt_workspace(const qattn_tensor *a, const qattn_tensor *b, const qattn_tensor *c,
                                            const qattn_matmul_params *params, size_t *bytes);
QATTN_API int32_t qattn_matmul_nt_explain(const qattn_tensor *a, const qattn_tensor *b, const qattn_tensor *c,
                                          const qattn_matmul_params *params, char *buf, size_t cap);
QATTN_API int32_t qattn_matmul_nt_prepare(const qattn_tensor *a, const qattn_tensor *b, const qattn_tensor *c,
                                          const qattn_matmul_params *params);

/* y = softmax(x) over the last axis of [B,H,Sq,Sk], with the scale, softcap, bias, masks, lengths and sinks of
 * params. x f32, f16 or bf16; y that type or f32; y may be x itself (same data, type, shape and strides).
 * Rows that see no key get 0. */
QATTN_API int32_t qattn_softmax(const qattn_tensor *x, const qattn_tensor *y,
                                const qattn_softmax_params *params, qattn_stream stream);
QATTN_API int32_t qattn_softmax_workspace(const qattn_tensor *x, const qattn_tensor *y,
                                          const qattn_softmax_params *params, size_t *bytes);
QATTN_API int32_t qattn_softmax_explain(const qattn_tensor *x, const qattn_tensor *y,
                                        const qattn_softmax_params *params, char *buf, size_t cap);
QATTN_API int32_t qattn_softmax_prepare(const qattn_tensor *x, const qattn_tensor *y,
                                        const qattn_softmax_params *params);

/* qattn_softmax with QATTN_MASK_CAUSAL added to params.mask: no mask tensor is read. */
QATTN_API int32_t qattn_softmax_causal(const qattn_tensor *x, const qattn_tensor *y,
                                       const qattn_softmax_params *params, qattn_stream stream);
QATTN_API int32_t qattn_softmax_causal_workspace(const qattn_tensor *x, const qattn_tensor *y,
                                                 const qattn_softmax_params *params, size_t *bytes);
QATTN_API int32_t qattn_softmax_causal_explain(const qattn_tensor *x, const qattn_tensor *y,
                                               const qattn_softmax_params *params, char *buf, size_t cap);
QATTN_API int32_t qattn_softmax_causal_prepare(const qattn_tensor *x, const qattn_tensor *y,
                                               const qattn_softmax_params *params);

/* Attention by three kernels (NT matmul, softmax, matmul) with the scores in the workspace, or in
 * params.scores: the textbook path, up to O(Sq*Sk) memory. Vaswani et al. 2017, section 3.2.1, grouped as in
 * Ainslie et al. 2023: query head h reads k and v head h / (Hq/Hkv).
 * q [B,Hq,Sq,D], k [B,Hkv,Sk,D], v [B,Hkv,Sk,Dv], o [B,Hq,Sq,Dv]. Types q / k and v: f32/f32, f16/f16,
 * bf16/bf16; f16 or bf16 with k, v in one of E4M3FN, E5M2, I8; all three in one 8-bit type. o: q's type or
 * f32; for 8-bit q f16, bf16 or f32. Errors: 2xxx for other types, D or Dv above 1024, num_splits > 1, and where
 * no implementation takes packed or paged batches (on CPU the reference does, slowly: use qattn_flash_forward). */
QATTN_API int32_t qattn_gqa_forward(const qattn_tensor *q, const qattn_tensor *k, const qattn_tensor *v,
                                    const qattn_tensor *o, const qattn_attn_params *params, qattn_stream stream);
QATTN_API int32_t qattn_gqa_forward_workspace(const qattn_tensor *q, const qattn_tensor *k, const qattn_tensor *v,
                                              const qattn_tensor *o, const qattn_attn_params *params, size_t *bytes);
QATTN_API int32_t qattn_gqa_forward_explain(const qattn_tensor *q, const qattn_tensor *k, const qattn_tensor *v,
                                            const qattn_tensor *o, const qattn_attn_params *params,
                                            char *buf, size_t cap);
QATTN_API int32_t qattn_gqa_forward_prepare(const qattn_tensor *q, const qattn_tensor *k, const qattn_tensor *v,
                                            const qattn_tensor *o, const qattn_attn_params *params);

/* The same attention in one pass over the keys, O(Sq) memory: online softmax (Milakov and Gimelshein 2018),
 * tiled as in FlashAttention (Dao et al. 2022, algorithm 1); few query rows split the keys (Flash-Decoding).
 * Shapes and types as qattn_gqa_forward; also packed q, k, v (cu_seqlens_*) and paged k, v (page_table),
 * in one call with decode and prefill rows mixed. */
QATTN_API int32_t qattn_flash_forward(const qattn_tensor *q, const qattn_tensor *k, const qattn_tensor *v,
                                      const qattn_tensor *o, const qattn_attn_params *params, qattn_stream stream);
QATTN_API int32_t qattn_flash_forward_workspace(const qattn_tensor *q, const qattn_tensor *k, const qattn_tensor *v,
                                                const qattn_tensor *o, const qattn_attn_params *params, size_t *bytes);
QATTN_API int32_t qattn_flash_forward_explain(const qattn_tensor *q, const qattn_tensor *k, const qattn_tensor *v,
                                              const qattn_tensor *o, const qattn_attn_params *params,
                                              char *buf, size_t cap);
QATTN_API int32_t qattn_flash_forward_prepare(const qattn_tensor *q, const qattn_tensor *k, const qattn_tensor *v,
                                              const qattn_tensor *o, const qattn_attn_params *params);

/* Merges n partial results over disjoint sets of keys, in index order: with m = max over parts of lse_i and
 * w_i = exp(lse_i - m): o = sum(w_i o_i) / sum(w_i), lse = m + log(sum(w_i)). 1 <= n <= 64.
 * o_parts and lse_parts are arrays of n tensors: o_parts [B,H,S,Dv], all f32, f16 or bf16; lse_parts f32
 * [B,H,S,1]. o: the parts' type or f32; lse: f32 or NULL. o and lse may be part 0 themselves. A part whose
 * lse is -inf adds nothing, whatever its o holds. Sinks belong in one part only. */
QATTN_API int32_t qattn_merge(int64_t n, const qattn_tensor *o_parts, const qattn_tensor *lse_parts,
                              const qattn_tensor *o, const qattn_tensor *lse,
                              const qattn_merge_params *params, qattn_stream stream);
QATTN_API int32_t qattn_merge_workspace(int64_t n, const qattn_tensor *o_parts, const qattn_tensor *lse_parts,
                                        const qattn_tensor *o, const qattn_tensor *lse,
                                        const qattn_merge_params *params, size_t *bytes);
QATTN_API int32_t qattn_merge_explain(int64_t n, const qattn_tensor *o_parts, const qattn_tensor *lse_parts,
                                      const qattn_tensor *o, const qattn_tensor *lse,
                                      const qattn_merge_params *params, char *buf, size_t cap);
QATTN_API int32_t qattn_merge_prepare(int64_t n, const qattn_tensor *o_parts, const qattn_tensor *lse_parts,
                                      const qattn_tensor *o, const qattn_tensor *lse,
                                      const qattn_merge_params *params);

/* ---------------------------------------------------------------- layout, fixed for ever */

#define QATTN_STATIC_ASSERT_(name, cond) typedef char qattn_static_assert_##name[(cond) ? 1 : -1]
QATTN_STATIC_ASSERT_(lp64, sizeof(void *) == 8 && sizeof(size_t) == 8);
QATTN_STATIC_ASSERT_(tensor, sizeof(qattn_tensor) == 96);
QATTN_STATIC_ASSERT_(attn, sizeof(qattn_attn_params) == 872);
QATTN_STATIC_ASSERT_(matmul, sizeof(qattn_matmul_params) == 48);
QATTN_STATIC_ASSERT_(softmax, sizeof(qattn_softmax_params) == 408);
QATTN_STATIC_ASSERT_(merge, sizeof(qattn_merge_params) == 40);
#undef QATTN_STATIC_ASSERT_

#ifdef __cplusplus
}
#endif

#endif /* QATTN_H */
