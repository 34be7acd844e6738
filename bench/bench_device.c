/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "bench_device.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench_time.h"

#if QATTN_CUDA

#include <cuda_runtime_api.h>

#include "roofline_device.h"

static cudaStream_t stream;
static cudaEvent_t begin, end;
static char name[160];

/* The bench cannot go on after such an error: say so and end. */
static void must(cudaError_t err, const char *what)
{
    if (err == cudaSuccess)
        return;
    fprintf(stderr, "qattn_bench: %s: %s\n", what, cudaGetErrorString(err));
    exit(3);
}

bool bench_device_usable(const char **why)
{
    struct cudaDeviceProp props;
    int count = 0;
    const cudaError_t err = cudaGetDeviceCount(&count);
    *why = err != cudaSuccess ? cudaGetErrorString(err) : "there is no CUDA device";
    if (err != cudaSuccess || count == 0)
        return false;
    if (!stream) {
        must(cudaGetDeviceProperties(&props, 0), "cudaGetDeviceProperties");
        snprintf(name, sizeof name, "%.100s, compute capability %d.%d", props.name, props.major, props.minor);
        must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
        must(cudaEventCreate(&begin), "cudaEventCreate");
        must(cudaEventCreate(&end), "cudaEventCreate");
    }
    return true;
}

const char *bench_device_name(void) { return name; }
qattn_stream bench_device_stream(void) { return stream; }

/* ---------------------------------------------------------------- memory */

void *bench_device_alloc(size_t bytes)
{
    void *memory = NULL;
    if (cudaMalloc(&memory, bytes ? bytes : 256) == cudaSuccess)
        return memory;
    (void)cudaGetLastError();
    return NULL;
}

void bench_device_free(void *memory)
{
    if (memory)     /* without one there may be no driver to ask */
        must(cudaFree(memory), "cudaFree");
}

void bench_device_upload(void *device, const void *host, size_t bytes)
{
    must(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream), "copy to the device");
    must(cudaStreamSynchronize(stream), "copy to the device");
}

void bench_device_download(void *host, const void *device, size_t bytes)
{
    must(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream), "copy from the device");
    must(cudaStreamSynchronize(stream), "copy from the device");
}

bool bench_device_wait(char *why, size_t cap)
{
    const cudaError_t err = cudaStreamSynchronize(stream);
    if (err != cudaSuccess)
        snprintf(why, cap, "the device reports: %s", cudaGetErrorString(err));
    return err == cudaSuccess;
}

/* ---------------------------------------------------------------- graphs */

/* A graph of `calls` times: a write over `flush_bytes` (0: none), then the item (call NULL: none). */
struct recipe { struct bench_work_item item; int calls; char *flush; size_t flush_bytes; };

static int32_t queue_all(const struct recipe *r)
{
    for (int i = 0; i < r->calls; i++) {
        if (r->flush_bytes)
            must(cudaMemsetAsync(r->flush, i, r->flush_bytes, stream), "cudaMemsetAsync");
        const int32_t status = r->item.call ? r->item.call(r->item.context, stream) : QATTN_OK;
        if (status != QATTN_OK)
            return status;
    }
    return QATTN_OK;
}

static bool record_graph(const struct recipe *r, cudaGraphExec_t *exec, char *why, size_t cap)
{
    cudaGraph_t graph = NULL;
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    const int32_t status = queue_all(r);
    const cudaError_t err = cudaStreamEndCapture(stream, &graph);
    if (status != QATTN_OK) {
        const int used = snprintf(why, cap, "%s in a capture: ", qattn_status_name(status));
        qattn_last_error(why + used, cap - (size_t)used);
        return false;
    }
    must(err, "cudaStreamEndCapture");
    must(cudaGraphInstantiate(exec, graph, 0), "cudaGraphInstantiate");
    must(cudaGraphDestroy(graph), "cudaGraphDestroy");
    return true;
}

/* Seconds of one replay. */
static double replay(cudaGraphExec_t exec)
{
    float ms = 0;
    must(cudaEventRecord(begin, stream), "cudaEventRecord");
    must(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
    must(cudaEventRecord(end, stream), "cudaEventRecord");
    must(cudaEventSynchronize(end), "replaying a graph");
    must(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    return 1e-3 * ms;
}

static double rough_time(struct bench_work_item item)
{
    enum { CALLS = 3 };
    float ms = 0;
    must(cudaEventRecord(begin, stream), "cudaEventRecord");
    for (int i = 0; i < CALLS; i++)
        (void)item.call(item.context, stream);
    must(cudaEventRecord(end, stream), "cudaEventRecord");
    must(cudaEventSynchronize(end), "the calls");
    must(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    return 1e-3 * ms / CALLS;
}

static size_t l2_bytes(void)
{
    int bytes = 0;
    must(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, 0), "cudaDeviceGetAttribute");
    return (size_t)bytes;
}

/* Replays both graphs in turn; what is reported is the difference. `empty` NULL: nothing to subtract. */
static int replay_all(cudaGraphExec_t exec, cudaGraphExec_t empty, int calls, double ms, int repeat, double *times,
                      int max)
{
    enum { LEAST = 5, WARM = 2 };
    double spent = 0;
    int n = 0;
    for (int i = 0; i < WARM; i++)
        (void)replay(exec);
    while (n < max && (repeat ? n < repeat : n < LEAST || spent < 1e-3 * ms)) {
        const double nothing = empty ? replay(empty) : 0, all = replay(exec);
        spent += all;
        times[n++] = (all - nothing) / calls;
    }
    return n;
}

int bench_device_time(struct bench_work_item item, double ms, int repeat, bool cold, double *times, int max, char *why,
                      size_t cap)
{
    enum { MAX_CALLS = 50 };
    const double graph_seconds = 2e-3, rough = rough_time(item);
    const int fit = rough * MAX_CALLS > graph_seconds ? (int)(graph_seconds / rough) : MAX_CALLS;
    struct recipe recipe = { item, fit > 0 ? fit : 1, NULL, cold ? 2 * l2_bytes() : 0 };
    cudaGraphExec_t exec = NULL, empty = NULL;
    int n = 0;
    if (cold && !(recipe.flush = bench_device_alloc(recipe.flush_bytes))) {
        snprintf(why, cap, "out of memory");
        return 0;
    }
    if (record_graph(&recipe, &exec, why, cap)) {
        recipe.item.call = NULL;
        if (!cold || record_graph(&recipe, &empty, why, cap))
            n = replay_all(exec, empty, recipe.calls, ms, repeat, times, max);
        must(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
        if (empty)
            must(cudaGraphExecDestroy(empty), "cudaGraphExecDestroy");
    }
    bench_device_free(recipe.flush);
    return n;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_device_host_time(struct bench_work_item item)
{
    enum { CALLS = 201, QUEUE = 20 };              /* few enough that the queue is never full */
    static double times[CALLS];
    for (int i = 0; i < CALLS; i++) {
        if (i % QUEUE == 0)
            must(cudaStreamSynchronize(stream), "the calls");
        const double t0 = bench_now();
        (void)item.call(item.context, stream);
        times[i] = bench_now() - t0;
    }
    must(cudaStreamSynchronize(stream), "the calls");
    qsort(times, CALLS, sizeof *times, compare_doubles);
    return times[CALLS / 2];
}

/* ---------------------------------------------------------------- the device's limits, remembered */

/* Best of several replays: a limit. */
static double best_rate(struct bench_work_item item, double work)
{
    double times[9], best = 0;
    char why[200];
    const int n = bench_device_time(item, 50, 9, false, times, 9, why, sizeof why);
    for (int i = 0; i < n; i++)
        if (work / times[i] > best)
            best = work / times[i];
    return best;
}

struct unit_job { enum bench_unit unit; };
static int32_t call_unit(const void *context, qattn_stream s)
{
    roofline_device_multiply(((const struct unit_job *)context)->unit, s);
    return QATTN_OK;
}

enum { SMALLEST = 20, LARGEST = 31 };              /* of buffers read: powers of two */
static double flops[UNIT_COUNT], reads[LARGEST + 1];

double bench_device_flops(enum bench_unit unit)
{
    const struct unit_job job = { unit };
    if (flops[unit] == 0)
        flops[unit] = best_rate((struct bench_work_item){ call_unit, &job }, roofline_device_flop(unit));
    return flops[unit];
}

struct read_job { const void *buffer; size_t bytes; int passes; void *sink; };
static int32_t call_read(const void *context, qattn_stream s)
{
    const struct read_job *const job = context;
    roofline_device_read(job->buffer, job->bytes, job->passes, job->sink, s);
    return QATTN_OK;
}

double bench_device_read(double bytes)
{
    int k = SMALLEST;
    while (k < LARGEST && (double)((size_t)1 << k) < bytes)
        k++;
    if (reads[k] == 0) {
        const size_t size = (size_t)1 << k;
        const int passes = size < (size_t)1 << 28 ? (int)(((size_t)1 << 28) / size) : 1;
        struct read_job job = { bench_device_alloc(size), size, passes, bench_device_alloc(256) };
        if (job.buffer && job.sink)
            reads[k] = best_rate((struct bench_work_item){ call_read, &job }, (double)size * passes);
        bench_device_free((void *)(uintptr_t)job.buffer);
        bench_device_free(job.sink);
    }
    return reads[k];
}

void bench_device_print_limits(void)
{
    static const char *const names[UNIT_COUNT] = { "fp32", "mma 16-bit", "mma TF32" };
    printf("limits measured:");
    for (int unit = 0; unit < UNIT_COUNT; unit++)
        if (flops[unit] > 0)
            printf(" %s %.1f TFLOP/s;", names[unit], 1e-12 * flops[unit]);
    for (int k = SMALLEST; k <= LARGEST; k++)
        if (reads[k] > 0)
            printf(" reading %zu MiB %.2f TB/s;", ((size_t)1 << k) >> 20, 1e-12 * reads[k]);
    printf("\n");
}

#else

bool bench_device_usable(const char **why)
{
    *why = "this build has the CPU part alone (CUDA=1 builds both)";
    return false;
}

/* Never called. */
const char *bench_device_name(void) { return "none"; }
qattn_stream bench_device_stream(void) { return NULL; }
void *bench_device_alloc(size_t bytes) { (void)bytes; return NULL; }
void bench_device_free(void *memory) { (void)memory; }
void bench_device_upload(void *device, const void *host, size_t bytes) { (void)device, (void)host, (void)bytes; }
void bench_device_download(void *host, const void *device, size_t bytes) { (void)host, (void)device, (void)bytes; }
bool bench_device_wait(char *why, size_t cap) { (void)why, (void)cap; return false; }
int bench_device_time(struct bench_work_item item, double ms, int repeat, bool cold, double *times, int max, char *why,
                      size_t cap)
{
    (void)item, (void)ms, (void)repeat, (void)cold, (void)times, (void)max, (void)why, (void)cap;
    return 0;
}
double bench_device_host_time(struct bench_work_item item) { (void)item; return 0; }
double bench_device_flops(enum bench_unit unit) { (void)unit; return 0; }
double bench_device_read(double bytes) { (void)bytes; return 0; }
void bench_device_print_limits(void) {}

#endif
