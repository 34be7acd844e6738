/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * CUDA tests that need a process of their own: first uses, lost contexts, what the environment decides. Each scenario
 * is this program again with the scenario's name. It sees the public header, the shared library, and CUDA as callers
 * have it: with a runtime of its own beside the library's.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda_fresh.h"

/* ---------------------------------------------------------------- captures */

void replay(struct call *c, cudaGraph_t graph, cudaStream_t stream)
{
    static const int32_t used[] = { SK, 1, 700, 0, SK - 1 };
    cudaGraphExec_t exec;
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    for (size_t i = 0; i < sizeof used / sizeof *used; i++) {
        upload(c, 10 + i, used[i]);
        MUST(cudaGraphLaunch(exec, stream));
        MUST(cudaStreamSynchronize(stream));
        expect_right(c, used[i]);
    }
    MUST(cudaGraphExecDestroy(exec));
}

/* The library's first use is inside a capture: it works, or says CAPTURE_INVALID. Either way the capture can be ended.
 */
static void capture_first(enum cudaStreamCaptureMode mode)
{
    struct call *const c = call_new(0);
    cudaStream_t stream;
    cudaGraph_t graph;
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaStreamBeginCapture(stream, mode));
    const int32_t status = forward(c, stream);
    MUST(cudaStreamEndCapture(stream, &graph));
    EXPECT(status == QATTN_OK || status == QATTN_ERR_CAPTURE_INVALID);
    printf("in the capture: %s\n", qattn_status_name(status));
    if (status == QATTN_OK)
        replay(c, graph, stream);
    upload(c, 50, 77);
    MUST(forward(c, stream));
    expect_right(c, 77);
}

void fresh_capture_first_global(void) { capture_first(cudaStreamCaptureModeGlobal); }
void fresh_capture_first_thread(void) { capture_first(cudaStreamCaptureModeThreadLocal); }
void fresh_capture_first_relaxed(void) { capture_first(cudaStreamCaptureModeRelaxed); }

/* The three kernels of gqa_forward, first loaded in a capture of the thread's default stream. */
void fresh_capture_first_gqa(void)
{
    struct call *const c = call_new(0);
    cudaGraph_t graph;
    c->params.num_splits = 0;
    MUST(cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeGlobal));
    const int32_t status = qattn_gqa_forward(&c->t[0], &c->t[1], &c->t[2], &c->t[3], &c->params, cudaStreamPerThread);
    MUST(cudaStreamEndCapture(cudaStreamPerThread, &graph));
    EXPECT(status == QATTN_OK || status == QATTN_ERR_CAPTURE_INVALID);
    printf("in the capture: %s\n", qattn_status_name(status));
    if (status == QATTN_OK)
        replay(c, graph, cudaStreamPerThread);
}

/* prepare loads: the capture then needs nothing new. */
void fresh_capture_prepared(void)
{
    struct call *const c = call_new(0);
    cudaStream_t stream;
    cudaGraph_t graph;
    MUST(qattn_flash_forward_prepare(&c->t[0], &c->t[1], &c->t[2], &c->t[3], &c->params));
    MUST(cudaStreamCreate(&stream));
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    MUST(forward(c, stream));
    MUST(cudaStreamEndCapture(stream, &graph));
    replay(c, graph, stream);
}

/* Without a workspace a capture is refused, and goes on. A call on the legacy stream, which would wait for the captured
 * one, is CAPTURE_INVALID; that capture is then spoiled by CUDA's own rules. */
void fresh_capture_refused(void)
{
    struct call *const c = call_new(0);
    void *const workspace = c->params.workspace;
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    MUST(cudaStreamCreate(&stream));
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    c->params.workspace = NULL;
    EXPECT(forward(c, stream) == QATTN_ERR_WORKSPACE);
    c->params.workspace = workspace;
    MUST(forward(c, stream));
    MUST(cudaStreamEndCapture(stream, &graph));
    replay(c, graph, stream);
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    EXPECT(forward(c, NULL) == QATTN_ERR_CAPTURE_INVALID);
    (void)cudaStreamEndCapture(stream, &graph);
    (void)cudaGetLastError();
    upload(c, 60, 5);
    MUST(forward(c, NULL));
    expect_right(c, 5);
}

/* ---------------------------------------------------------------- captures of others */

/* First calls on a stream, without a workspace and with one, of one and of three kernels. */
static void first_calls(struct call *c, cudaStream_t stream)
{
    void *const workspace = c->params.workspace;
    c->params.workspace = NULL;
    MUST(forward(c, stream));
    c->params.workspace = workspace;
    c->params.num_splits = 0;
    MUST(qattn_gqa_forward(&c->t[0], &c->t[1], &c->t[2], &c->t[3], &c->params, stream));
    c->params.num_splits = 5;
    MUST(forward(c, stream));
}

struct recording { cudaStream_t stream; unsigned char *byte; };

static struct recording record(enum cudaStreamCaptureMode mode)
{
    struct recording r;
    MUST(cudaMalloc((void **)&r.byte, 1));
    MUST(cudaMemset(r.byte, 0, 1));
    MUST(cudaDeviceSynchronize());
    MUST(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    MUST(cudaStreamBeginCapture(r.stream, mode));
    MUST(cudaMemsetAsync(r.byte, 77, 1, r.stream));
    return r;
}

/* The recording went well, and does what was recorded. */
static void expect_recorded(const struct recording *r)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    unsigned char byte = 0;
    MUST(cudaStreamEndCapture(r->stream, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    MUST(cudaGraphLaunch(exec, r->stream));
    MUST(cudaStreamSynchronize(r->stream));
    MUST(cudaMemcpy(&byte, r->byte, 1, cudaMemcpyDeviceToHost));
    EXPECT(byte == 77);
}

/* This thread captures one stream and makes the library's first calls on another. */
static void capture_beside(enum cudaStreamCaptureMode mode)
{
    struct call *const c = call_new(0);
    cudaStream_t stream;
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const struct recording r = record(mode);
    first_calls(c, stream);
    MUST(qattn_flash_forward_prepare(&c->t[0], &c->t[1], &c->t[2], &c->t[3], &c->params));
    expect_recorded(&r);
    expect_right(c, SK);
}

void fresh_capture_beside_global(void) { capture_beside(cudaStreamCaptureModeGlobal); }
void fresh_capture_beside_thread(void) { capture_beside(cudaStreamCaptureModeThreadLocal); }

struct beside { struct call *c; cudaStream_t stream; };

static void *call_beside(void *arg)
{
    struct beside *const b = arg;
    first_calls(b->c, b->stream);
    return NULL;
}

/* Another thread makes them while this one captures globally. */
void fresh_capture_elsewhere(void)
{
    struct beside b = { call_new(0), NULL };
    pthread_t thread;
    MUST(cudaStreamCreateWithFlags(&b.stream, cudaStreamNonBlocking));
    const struct recording r = record(cudaStreamCaptureModeGlobal);
    MUST(pthread_create(&thread, NULL, call_beside, &b));
    MUST(pthread_join(thread, NULL));
    expect_recorded(&r);
    expect_right(b.c, SK);
}

/* ---------------------------------------------------------------- streams, threads */

void fresh_default_streams(void)
{
    struct call *const c = call_new(0);
    cudaStream_t const streams[] = { NULL, cudaStreamLegacy, cudaStreamPerThread };
    for (int i = 0; i < 6; i++) {
        if (i == 3)
            c->params.workspace = NULL;
        upload(c, 70 + (uint64_t)i, 100 + i);
        MUST(forward(c, streams[i % 3]));
        expect_right(c, 100 + i);
    }
}

enum { THREADS = 16 };
struct racer { struct call *c; cudaStream_t stream; pthread_barrier_t *start; int32_t status; };

static void *race(void *arg)
{
    struct racer *const r = arg;
    pthread_barrier_wait(r->start);
    r->status = forward(r->c, r->stream);
    return NULL;
}

/* First calls of many threads at once, half of them without a workspace. */
void fresh_race_first(void)
{
    pthread_barrier_t start;
    pthread_t threads[THREADS];
    struct racer racers[THREADS];
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        racers[i] = (struct racer){ call_new(0), NULL, &start, -1 };
        MUST(cudaStreamCreateWithFlags(&racers[i].stream, cudaStreamNonBlocking));
        if (i % 2)
            racers[i].c->params.workspace = NULL;
    }
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, race, &racers[i]));
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_join(threads[i], NULL));
    for (int i = 0; i < THREADS; i++) {
        MUST(racers[i].status);
        expect_right(racers[i].c, SK);
        EXPECT(memcmp(racers[i].c->host_o, racers[0].c->host_o, sizeof racers[i].c->host_o) == 0);
    }
}

/* ---------------------------------------------------------------- main */

#define SCENARIO(name) { #name, fresh_##name },
static const struct { const char *name; void (*run)(void); } scenarios[] = { FRESH_SCENARIOS(SCENARIO) };
enum { SCENARIOS = sizeof scenarios / sizeof *scenarios };

static int run_child(const char *name)
{
    int status = -1;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        execl("/proc/self/exe", "test_cuda_fresh", name, (char *)NULL);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return EXIT_FAILURE;
    if (WIFSIGNALED(status))
        printf("%s: signal %d\n", name, WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
}

static bool device_there(void)
{
    return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

int main(int argc, char **argv)
{
    int passed = 0, failed = 0, skipped = 0;
    for (int i = 0; i < SCENARIOS && argc > 1; i++) {
        if (strcmp(argv[1], scenarios[i].name) == 0) {
            scenarios[i].run();
            return EXIT_SUCCESS;
        }
    }
    if (argc > 1 || !device_there()) {
        printf(argc > 1 ? "no scenario of that name\n" : "skipped: no CUDA device\n");
        printf("0 passed, %d failed, %d skipped\n", argc > 1, argc > 1 ? 0 : SCENARIOS);
        return argc > 1;
    }
    for (int i = 0; i < SCENARIOS; i++) {
        const time_t start = time(NULL);
        const int status = run_child(scenarios[i].name);
        printf("%s: %s, %d s\n", scenarios[i].name, status == 0 ? "ok" : status == SKIPPED ? "skipped" : "FAILED",
               (int)(time(NULL) - start));
        passed += status == 0;
        skipped += status == SKIPPED;
        failed += status != 0 && status != SKIPPED;
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed != 0;
}
