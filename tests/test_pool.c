/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The thread pool of the CPU backend (cpu/pool.h) and what cpu/cpuinfo.h says of the machine. Check forks each test, so
 * every one starts with a pool that has no threads yet. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cpu/cpuinfo.h"
#include "cpu/pool.h"
#include "suites.h"
#include "support.h"

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---------------------------------------------------------------- every task once */

enum { MAX_TASKS = 5000 };

struct tally {
    int runs[MAX_TASKS];                        /* plain: the pool must make them visible to the caller */
    _Atomic int busy[QATTN__POOL_MAX_THREADS];  /* a worker number is one thread's at a time */
    int64_t last[QATTN__POOL_MAX_THREADS];
    _Atomic int faults;
    int limit;                                  /* worker numbers lie below */
    pthread_t caller;
};

static void tally_task(void *arg, int64_t index, int worker)
{
    struct tally *t = arg;
    if (index < 0 || index >= MAX_TASKS || worker < 0 || worker >= t->limit) {
        atomic_fetch_add(&t->faults, 1);
        return;
    }
    if (atomic_exchange(&t->busy[worker], 1))
        atomic_fetch_add(&t->faults, 1);
    if (index <= t->last[worker] && t->last[worker] != 0)
        atomic_fetch_add(&t->faults, 1);        /* handed out in index order */
    if ((worker == 0) != (pthread_equal(pthread_self(), t->caller) != 0))
        atomic_fetch_add(&t->faults, 1);        /* worker 0 is the caller */
    t->last[worker] = index;
    t->runs[index]++;
    atomic_store(&t->busy[worker], 0);
}

/* Allocates nothing: forked children call it too. */
static int tally_faults(int num_threads, int num_tasks)
{
    struct tally t = { .limit = num_threads < QATTN__POOL_MAX_THREADS ? num_threads : QATTN__POOL_MAX_THREADS,
                       .caller = pthread_self() };
    qattn__pool_run(num_threads, num_tasks, tally_task, &t);
    int faults = t.faults;
    for (int i = 0; i < MAX_TASKS; i++)
        faults += t.runs[i] != (i < num_tasks);
    return faults;
}

START_TEST(runs_every_task_once)
{
    static const int threads[] = { 1, 2, 3, 7, 16, 1000 }, tasks[] = { 0, 1, 2, 3, 17, 1000, MAX_TASKS };
    int64_t n = 0;
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++)
        for (size_t j = 0; j < sizeof tasks / sizeof *tasks; j++, n++)
            ck_assert_msg(tally_faults(threads[i], tasks[j]) == 0, "%d threads, %d tasks", threads[i], tasks[j]);
    for (int i = 0; i < 2000; i++, n++)
        ck_assert_int_eq(tally_faults(4, 1 + i % 9), 0);
    count_run("pool jobs", n);
}
END_TEST

/* ---------------------------------------------------------------- several at once */

/* Waits until `count` threads are inside, at most two seconds. */
struct meeting { _Atomic int inside; int count; _Atomic int met; };

static void meet_task(void *arg, int64_t index, int worker)
{
    struct meeting *m = arg;
    (void)index;
    (void)worker;
    atomic_fetch_add(&m->inside, 1);
    const double end = seconds(CLOCK_MONOTONIC) + 2.0;
    while (atomic_load(&m->inside) < m->count && seconds(CLOCK_MONOTONIC) < end)
        sched_yield();
    if (atomic_load(&m->inside) >= m->count)
        atomic_fetch_add(&m->met, 1);
}

static bool threads_meet(int count)
{
    struct meeting m = { .count = count };
    qattn__pool_run(count, count, meet_task, &m);
    return m.met == count;
}

START_TEST(tasks_run_side_by_side)
{
    ck_assert(threads_meet(2));
    ck_assert(threads_meet(8));                 /* more threads than CPUs: still as many as were asked for */
    usleep(100000);                             /* the threads fall asleep */
    ck_assert(threads_meet(8));
}
END_TEST

static void *call_often(void *arg)
{
    int faults = 0;
    for (int i = 0; i < 300; i++)
        faults += tally_faults(1 + i % 5, 1 + (i * 7) % 40);
    *(int *)arg = faults;
    return NULL;
}

START_TEST(many_callers)
{
    enum { CALLERS = 8 };
    pthread_t threads[CALLERS];
    int faults[CALLERS];
    for (int i = 0; i < CALLERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, call_often, &faults[i]), 0);
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_int_eq(faults[i], 0);
    }
}
END_TEST

static void nest_task(void *arg, int64_t index, int worker)
{
    (void)worker;
    atomic_fetch_add((_Atomic int *)arg, tally_faults(3, 5 + (int)index));
}

START_TEST(calls_inside_tasks)
{
    _Atomic int faults = 0;
    for (int i = 0; i < 50; i++)
        qattn__pool_run(4, 10, nest_task, &faults);
    ck_assert_int_eq(faults, 0);
}
END_TEST

struct gate { _Atomic int inside, open; };

static void wait_at_gate(void *arg, int64_t index, int worker)
{
    struct gate *gate = arg;
    (void)index;
    (void)worker;
    atomic_fetch_add(&gate->inside, 1);
    while (!atomic_load(&gate->open))
        usleep(1000);
}

static void *hold_pool(void *arg)
{
    qattn__pool_run(4, 4, wait_at_gate, arg);
    return NULL;
}

/* Another call holds every pool thread: this one still comes back. */
START_TEST(waits_for_no_other_call)
{
    struct gate gate = { 0, 0 };
    pthread_t holder;
    ck_assert_int_eq(pthread_create(&holder, NULL, hold_pool, &gate), 0);
    while (atomic_load(&gate.inside) < 4)
        usleep(1000);
    ck_assert_int_eq(tally_faults(4, 1000), 0);
    ck_assert_int_eq(gate.inside, 4);
    atomic_store(&gate.open, 1);
    pthread_join(holder, NULL);
}
END_TEST

/* ---------------------------------------------------------------- the process around it */

static bool child_computes(void)
{
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        _exit(!threads_meet(3) || tally_faults(4, 100) != 0);
    }
    int status = 1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static void *call_until_told(void *arg)
{
    int faults = 0;
    while (!atomic_load((_Atomic int *)arg))
        faults += tally_faults(4, 50);
    return (void *)(intptr_t)faults;
}

START_TEST(works_after_fork)
{
#if defined(__SANITIZE_THREAD__)
    count_skipped("pool jobs", "the thread sanitizer ends a child of a process with threads that starts its own", 1);
    return;
#endif
    ck_assert(threads_meet(3));
    ck_assert(child_computes());
    ck_assert(threads_meet(3));                 /* the parent's threads are still there */

#if defined(__SANITIZE_ADDRESS__)
    /* gcc 12's sanitizer leaves its allocator locked in such a child: new threads hang in its calloc */
    count_skipped("pool jobs", "the address sanitizer's own lock does not survive a fork beside busy threads", 1);
    return;
#endif
    _Atomic int told = 0;
    pthread_t busy[2];
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&busy[i], NULL, call_until_told, &told), 0);
    int failed = 0;
    for (int i = 0; i < 100; i++)
        failed += !child_computes();            /* the fork falls into calls, now and then under the lock */
    atomic_store(&told, 1);
    for (int i = 0; i < 2; i++) {
        void *faults;
        pthread_join(busy[i], &faults);
        failed += faults != NULL;
    }
    ck_assert_int_eq(failed, 0);
}
END_TEST

static _Atomic int signals_taken;
static void take_signal(int number) { (void)number; atomic_fetch_add(&signals_taken, 1); }

START_TEST(threads_take_no_signals)
{
    struct sigaction action = { .sa_handler = take_signal };
    sigaction(SIGUSR1, &action, NULL);
    ck_assert(threads_meet(4));                 /* threads start while the caller takes signals */
    sigset_t usr1, pending;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &usr1, NULL);
    kill(getpid(), SIGUSR1);
    usleep(50000);
    ck_assert_int_eq(signals_taken, 0);
    sigpending(&pending);
    ck_assert(sigismember(&pending, SIGUSR1));
    pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
    ck_assert_int_eq(signals_taken, 1);         /* the caller's own mask is as it was */
}
END_TEST

START_TEST(idle_threads_sleep)
{
    ck_assert(threads_meet(8));
    usleep(20000);
    const double before = seconds(CLOCK_PROCESS_CPUTIME_ID);
    usleep(200000);
    ck_assert_double_le(seconds(CLOCK_PROCESS_CPUTIME_ID) - before, 0.02);
}
END_TEST

/* No address space for another stack: the caller does all the work. */
START_TEST(works_without_threads)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    count_skipped("pool jobs", "a sanitizer needs the address space this test takes away", 1);
#else
    struct tally *t = calloc(1, sizeof *t);
    t->limit = 4;
    t->caller = pthread_self();
    const struct rlimit none = { 0, 0 };
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &none), 0);
    qattn__pool_run(4, 100, tally_task, t);
    ck_assert_int_eq(t->faults, 0);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(t->runs[i], 1);
    ck_assert_int_eq((int)t->last[0], 99);      /* all by worker 0 */
    count_run("pool jobs", 1);
#endif
}
END_TEST

/* ---------------------------------------------------------------- the machine */

START_TEST(counts_cpus)
{
    cpu_set_t mask;
    CPU_ZERO(&mask);
    ck_assert_int_eq(sched_getaffinity(0, sizeof mask, &mask), 0);
    ck_assert_int_ge(qattn__cpu_count(), 1);
    ck_assert_int_le(qattn__cpu_count(), CPU_COUNT(&mask));
    ck_assert_int_eq(qattn__cpu_count(), qattn__cpu_count());
}
END_TEST

START_TEST(counts_affinity)
{
    cpu_set_t mask, one;
    CPU_ZERO(&mask);
    CPU_ZERO(&one);
    ck_assert_int_eq(sched_getaffinity(0, sizeof mask, &mask), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &mask))
            CPU_SET(cpu, &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    const pid_t child = fork();
    if (child == 0)
        _exit(qattn__cpu_count());              /* asked once a process: this one was not asked before */
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(WEXITSTATUS(status), 1);
}
END_TEST

/* The compiler's own probe asks CPU and OS too. */
START_TEST(knows_features)
{
    const struct cpu_features f = qattn__cpu_features();
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool fma = __builtin_cpu_supports("fma") != 0;
    ck_assert_int_eq(f.avx2, __builtin_cpu_supports("avx2") && fma);
    ck_assert_int_eq(f.avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && fma);
#else
    ck_assert(!f.avx2 && !f.avx512);
#endif
}
END_TEST

Suite *suite_pool(void)
{
    Suite *suite = suite_create("pool");
    TCase *jobs = tcase_create("jobs"), *process = tcase_create("process"), *machine = tcase_create("machine");
    tcase_set_timeout(jobs, 60);
    tcase_add_test(jobs, runs_every_task_once);
    tcase_add_test(jobs, tasks_run_side_by_side);
    tcase_add_test(jobs, many_callers);
    tcase_add_test(jobs, calls_inside_tasks);
    tcase_add_test(jobs, waits_for_no_other_call);
    tcase_set_timeout(process, 60);
    tcase_add_test(process, works_after_fork);
    tcase_add_test(process, threads_take_no_signals);
    tcase_add_test(process, idle_threads_sleep);
    tcase_add_test(process, works_without_threads);
    tcase_add_test(machine, counts_cpus);
    tcase_add_test(machine, counts_affinity);
    tcase_add_test(machine, knows_features);
    suite_add_tcase(suite, jobs);
    suite_add_tcase(suite, process);
    suite_add_tcase(suite, machine);
    return suite;
}
