/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The thread pool of the CPU backend: started by the first call that can use it, kept, asleep when idle.
 *
 * A call posts a job (a counter of tasks) and works on it itself; idle pool threads help. The call returns when
 * all its tasks are done. Any number of calls may run at once, also from inside a task; none waits for another
 * one's tasks. Where threads cannot be started the caller does all the work. After fork() the child starts a
 * pool of its own.
 */
#ifndef QATTN_CPU_POOL_H
#define QATTN_CPU_POOL_H

#include <stdint.h>

/* Most threads one call uses, the caller included; num_threads above it is cut. */
enum { QATTN__POOL_MAX_THREADS = 256 };

/* Threads that will work on num_tasks tasks: what scratch has to be there for. */
static inline int qattn__pool_threads(int num_threads, int64_t num_tasks)
{
    const int threads = num_threads < QATTN__POOL_MAX_THREADS ? num_threads : QATTN__POOL_MAX_THREADS;
    return threads < num_tasks ? threads : (int)num_tasks;
}

/*
 * Runs task(arg, i, worker) once for every 0 <= i < num_tasks, on at most num_threads threads. Tasks are handed
 * out in index order. worker, in [0, qattn__pool_threads), belongs to one thread for the whole call: it indexes
 * scratch.
 */
void qattn__pool_run(int num_threads, int64_t num_tasks, void (*task)(void *arg, int64_t index, int worker), void *arg);

/* Starts the threads a call with num_threads would use, as far as they can be had. */
void qattn__pool_start(int num_threads);

#endif
