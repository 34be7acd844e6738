/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* What the parts of test_cuda_fresh share: its scenarios, and one call that needs two kernels. */
#ifndef QATTN_TESTS_CUDA_FRESH_H
#define QATTN_TESTS_CUDA_FRESH_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "qattn.h"

enum { SKIPPED = 77, HQ = 8, HKV = 2, SK = 3000, D = 64, Q_FLOATS = HQ * D, KV_FLOATS = HKV * SK * D };
enum { SPACE = 64 << 20 };      /* bytes of a workspace: enough for every call here */

/* Ends the process. */
#define EXPECT(condition) do { if (!(condition)) fresh_fail(#condition, __FILE__, __LINE__); } while (0)
#define MUST(call) EXPECT((int)(call) == 0)
void fresh_fail(const char *what, const char *file, int line);

/* Decode with the keys in 5 splits: the kernel of the splits and the one that combines them. */
struct call {
    float *q, *k, *v, *o;       /* on the device */
    int32_t *used;              /* seqused_k [1] */
    qattn_tensor t[4];          /* q, k, v, o */
    qattn_attn_params params;
    float host_q[Q_FLOATS], host_o[Q_FLOATS], *host_k, *host_v;
};

void tensors(qattn_tensor *t, float *q, float *k, float *v, float *o, int32_t type, int32_t device);
/* In the current context. The library is not asked for anything but tensors: a capture can be its first use. */
struct call *call_new(int32_t device);
/* Other numbers, of which `used` keys count. */
void upload(struct call *c, uint64_t seed, int32_t used);
int32_t forward(struct call *c, cudaStream_t stream);
/* O on the device is what the CPU computes from the same numbers. */
void expect_right(struct call *c, int32_t used);

/* Of the driver, filled by find_driver. */
struct fresh_driver {
    CUresult (*get_current)(CUcontext *);
    CUresult (*set_current)(CUcontext);
    CUresult (*create)(CUcontext *, CUctxCreateParams *, unsigned, CUdevice);
    CUresult (*destroy)(CUcontext);
    CUresult (*primary_state)(CUdevice, unsigned *, int *);
};
extern struct fresh_driver driver;
void find_driver(void);
/* The context that is current; the device has a primary context. */
CUcontext current(void);
bool primary_active(int device);
/* The graph computes right with new numbers and lengths. */
void replay(struct call *c, cudaGraph_t graph, cudaStream_t stream);

#define FRESH_SCENARIOS(X) \
    X(questions) X(capture_first_global) X(capture_first_thread) X(capture_first_relaxed) X(capture_first_gqa) \
    X(capture_prepared) X(capture_refused) X(capture_beside_global) X(capture_beside_thread) X(capture_elsewhere) \
    X(default_streams) X(race_first) X(own_contexts) X(stale_context) X(green_context) X(reset) X(two_devices) \
    X(two_devices_apart) X(two_devices_threads) X(forked) X(context_lost) X(no_memory) X(check_pointers)
#define FRESH_DECLARE(name) void fresh_##name(void);
FRESH_SCENARIOS(FRESH_DECLARE)
#undef FRESH_DECLARE

#endif
