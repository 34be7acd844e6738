/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Fork: a child of a process that has used the library computes too, with threads of its own; also when the fork
 * falls into the middle of other threads' calls. A stand-alone program on the public header alone. A child
 * that hangs is killed by its alarm and counted as a failure.
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "qattn.h"

enum {
    HQ = 4, SQ = 48, SK = 96, D = 32, NUM_Q = HQ * SQ * D, NUM_K = HQ * SK * D,
    BUSY = 3, FORKS = 60, CHILD_SECONDS = 20
};

static float q[NUM_Q], k[NUM_K], v[NUM_K], expected[NUM_Q];
static _Atomic int stop, calls;

static void fill(float *x, int count, uint32_t seed)
{
    for (int i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) * 0x1p-23f - 1.0f;
    }
}

static int32_t attend(float *o, int32_t num_threads)
{
    qattn_tensor tq, tk, tv, to;
    qattn_attn_params params = QATTN_ATTN_PARAMS_INIT;
    params.num_threads = num_threads;
    qattn_tensor_init(&tq, q, QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BHSD, 1, HQ, SQ, D);
    qattn_tensor_init(&tk, k, QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BHSD, 1, HQ, SK, D);
    qattn_tensor_init(&tv, v, QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BHSD, 1, HQ, SK, D);
    qattn_tensor_init(&to, o, QATTN_DTYPE_F32, QATTN_DEVICE_CPU, 0, QATTN_LAYOUT_BHSD, 1, HQ, SQ, D);
    return qattn_flash_forward(&tq, &tk, &tv, &to, &params, NULL);
}

/* 0: computed, and the same bits as ever. */
static int attend_again(int32_t num_threads)
{
    float o[NUM_Q];
    memset(o, 0xff, sizeof o);
    return attend(o, num_threads) != QATTN_OK || memcmp(o, expected, sizeof o) != 0;
}

/* The first result itself, against sums in double. */
static int expected_is_wrong(void)
{
    for (int row = 0; row < HQ * SQ; row++) {
        double score[SK], sum = 0.0;
        for (int j = 0; j < SK; j++) {
            double dot = 0.0;
            for (int d = 0; d < D; d++)
                dot += (double)q[row * D + d] * (double)k[(row / SQ * SK + j) * D + d];
            score[j] = exp(dot / sqrt((double)D));
            sum += score[j];
        }
        for (int d = 0; d < D; d++) {
            double o = 0.0;
            for (int j = 0; j < SK; j++)
                o += score[j] / sum * (double)v[(row / SQ * SK + j) * D + d];
            if (!(fabs((double)expected[row * D + d] - o) <= 1e-5))
                return 1;
        }
    }
    return 0;
}

/* Forks; the child calls with several threads, then forks a child of its own that does the same. 0: all well. */
static int fork_and_attend(void)
{
    const pid_t child = fork();
    if (child < 0)
        return 1;
    if (child == 0) {
        alarm(CHILD_SECONDS);
        int bad = attend_again(4) + attend_again(2);
        const pid_t grandchild = fork();
        if (grandchild == 0) {
            alarm(CHILD_SECONDS);
            _exit(attend_again(3));
        }
        int status = 1;
        bad += grandchild < 0 || waitpid(grandchild, &status, 0) != grandchild || status != 0;
        _exit(bad != 0);
    }
    int status = 1;
    return waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

static void *stay_busy(void *arg)
{
    int bad = 0;
    while (!atomic_load(&stop)) {
        bad += attend_again(2 + (int)(intptr_t)arg);
        atomic_fetch_add(&calls, 1);
    }
    return (void *)(intptr_t)bad;
}

int main(void)
{
    fill(q, NUM_Q, 1);
    fill(k, NUM_K, 2);
    fill(v, NUM_K, 3);
    int bad = attend(expected, 4) != QATTN_OK || expected_is_wrong();
    bad += fork_and_attend();                   /* the parent's pool is asleep */
    bad += attend_again(4);                     /* and still there afterwards */

    pthread_t threads[BUSY];
    for (int i = 0; i < BUSY; i++)
        if (pthread_create(&threads[i], NULL, stay_busy, (void *)(intptr_t)i) != 0)
            return puts("test_fork: no threads to be had"), 1;
    while (atomic_load(&calls) < BUSY)
        usleep(100);
    for (int i = 0; i < FORKS; i++)
        bad += fork_and_attend();               /* in the middle of calls of other threads */
    atomic_store(&stop, 1);
    for (int i = 0; i < BUSY; i++) {
        void *result;
        pthread_join(threads[i], &result);
        bad += result != NULL;
    }
    printf("test_fork: %d forks, %d of them beside %d busy threads (%d calls): %d failures\n",
           FORKS + 1, FORKS, BUSY, atomic_load(&calls), bad);
    return bad != 0;
}
