/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * Each thread starts at a barrier and times short slices; its result is its best slice, so that a neighbour's
 * load on the machine hardly enters. The sum over threads is the peak.
 */
#include "roofline.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "bench_time.h"
#include "core/impls.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { MAX_THREADS = 256, LANES = 12 };   /* 12 chains cover latency 4-5 at two multiply-adds a cycle */

struct slice_job {
    double (*slice)(const struct slice_job *job);   /* one slice; returns the work done */
    const char *part;                               /* this thread's bytes */
    size_t part_bytes;
    int slices;
    double best;                                    /* work per second */
    pthread_barrier_t *start;
};

/* ---------------------------------------------------------------- multiply-adds */

/* x <- x * m + a converges to a fixed point, so nothing over- or underflows however long it runs. */
#define EACH_LANE(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11)
enum { ROUNDS = 60000 };

#if defined(__x86_64__)

#define DEFINE_FMA_LOOP(name, isa, vec, set1, step, keep)                                    \
    __attribute__((target(isa), noinline)) static double name(const struct slice_job *job)   \
    {                                                                                        \
        const vec m = set1(0.5f), a = set1(1.0f);                                            \
        EACH_LANE(keep##_INIT)                                                               \
        for (int i = 0; i < ROUNDS; i++) {                                                   \
            EACH_LANE(step)                                                                  \
        }                                                                                    \
        EACH_LANE(keep##_USE)                                                                \
        (void)job;                                                                           \
        return (double)ROUNDS * LANES * 2.0 * (sizeof(vec) / sizeof(float));                 \
    }

#define V512_INIT(i) __m512 x##i = _mm512_set1_ps((float)i);
#define V512_STEP(i) x##i = _mm512_fmadd_ps(x##i, m, a);
#define V512_USE(i)  __asm__ volatile("" : : "v"(x##i));
#define V256_INIT(i) __m256 x##i = _mm256_set1_ps((float)i);
#define V256_STEP(i) x##i = _mm256_fmadd_ps(x##i, m, a);
#define V256_USE(i)  __asm__ volatile("" : : "x"(x##i));
#define V128_INIT(i) __m128 x##i = _mm_set1_ps((float)i);
#define V128_STEP(i) x##i = _mm_add_ps(_mm_mul_ps(x##i, m), a);
#define V128_USE(i)  __asm__ volatile("" : : "x"(x##i));

DEFINE_FMA_LOOP(run_fma_avx512, "avx512f", __m512, _mm512_set1_ps, V512_STEP, V512)
DEFINE_FMA_LOOP(run_fma_avx2, "avx2,fma", __m256, _mm256_set1_ps, V256_STEP, V256)
DEFINE_FMA_LOOP(run_fma_generic, "sse2", __m128, _mm_set1_ps, V128_STEP, V128)

static double (*pick_fma_loop(int32_t arch))(const struct slice_job *)
{
    if (arch >= CPU_ARCH_AVX512)
        return __builtin_cpu_supports("avx512f") ? run_fma_avx512 : NULL;
    if (arch == CPU_ARCH_AVX2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? run_fma_avx2
                                                                               : NULL;
    return run_fma_generic;
}

#else

/* Sixteen bytes a vector, as every 64-bit ABI offers. */
typedef float vec4 __attribute__((vector_size(16)));

static double run_fma_generic(const struct slice_job *job)
{
    const vec4 m = { 0.5f, 0.5f, 0.5f, 0.5f }, a = { 1, 1, 1, 1 };
    vec4 x[LANES] = { { 0 } };
    for (int i = 0; i < ROUNDS; i++)
        for (int lane = 0; lane < LANES; lane++)
            x[lane] = x[lane] * m + a;
    __asm__ volatile("" : : "m"(x));
    (void)job;
    return (double)ROUNDS * LANES * 2.0 * 4.0;
}

static double (*pick_fma_loop(int32_t arch))(const struct slice_job *)
{
    return arch <= CPU_ARCH_GENERIC ? run_fma_generic : NULL;
}

#endif

/* ---------------------------------------------------------------- reading */

/* Adds up 64-byte lines; a slice is one pass over the part, or several over a small one. */
enum { SLICE_BYTES = 1 << 20 };

#define DEFINE_READ_LOOP(name, attributes, vec, load, add, zero, use)                             \
    attributes static double name(const struct slice_job *job)                                     \
    {                                                                                              \
        const size_t step = 4 * sizeof(vec), end = job->part_bytes / step * step;                  \
        const size_t passes = end < SLICE_BYTES ? SLICE_BYTES / (end ? end : 1) : 1;               \
        vec s0 = zero, s1 = zero, s2 = zero, s3 = zero;                                            \
        for (size_t pass = 0; pass < passes; pass++)                                               \
            for (const char *p = job->part; p < job->part + end; p += step) {                      \
                s0 = add(s0, load(p));                                                             \
                s1 = add(s1, load(p + sizeof(vec)));                                               \
                s2 = add(s2, load(p + 2 * sizeof(vec)));                                           \
                s3 = add(s3, load(p + 3 * sizeof(vec)));                                           \
            }                                                                                      \
        use(add(add(s0, s1), add(s2, s3)));                                                        \
        return (double)end * (double)passes;                                                       \
    }

#if defined(__x86_64__)
#define USE_V(x) __asm__ volatile("" : : "x"(x))
#define LOAD_512(p) _mm512_loadu_si512(p)
#define LOAD_256(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define LOAD_128(p) _mm_loadu_si128((const __m128i *)(const void *)(p))
DEFINE_READ_LOOP(run_read_avx512, __attribute__((target("avx512f"), noinline)), __m512i, LOAD_512,
                 _mm512_add_epi64, _mm512_setzero_si512(), USE_V)
DEFINE_READ_LOOP(run_read_avx2, __attribute__((target("avx2"), noinline)), __m256i, LOAD_256,
                 _mm256_add_epi64, _mm256_setzero_si256(), USE_V)
DEFINE_READ_LOOP(run_read_generic, __attribute__((noinline)), __m128i, LOAD_128,
                 _mm_add_epi64, _mm_setzero_si128(), USE_V)

static double (*pick_read_loop(void))(const struct slice_job *)
{
    return __builtin_cpu_supports("avx512f") ? run_read_avx512
         : __builtin_cpu_supports("avx2")    ? run_read_avx2 : run_read_generic;
}
#else
#define LOAD_64(p) (*(const uint64_t *)(const void *)(p))
#define ADD_64(a, b) ((a) + (b))
#define USE_R(x) do { const uint64_t kept = (x); __asm__ volatile("" : : "r"(kept)); } while (0)
DEFINE_READ_LOOP(run_read_generic, __attribute__((noinline)), uint64_t, LOAD_64, ADD_64, 0, USE_R)
static double (*pick_read_loop(void))(const struct slice_job *) { return run_read_generic; }
#endif

/* ---------------------------------------------------------------- threads */

static void *time_slices(void *arg)
{
    struct slice_job *const job = arg;
    pthread_barrier_wait(job->start);
    job->slice(job);                                   /* warm-up: clocks, caches */
    for (int i = 0; i < job->slices; i++) {
        const double t0 = bench_now();
        const double work = job->slice(job);
        const double seconds = bench_now() - t0;
        if (seconds > 0 && work / seconds > job->best)
            job->best = work / seconds;
    }
    return NULL;
}

/* Sum over threads of the best slice; 0 if a thread could not be started. */
static double measure(double (*slice)(const struct slice_job *), const char *buffer, size_t bytes,
                      int threads, int slices)
{
    static struct slice_job jobs[MAX_THREADS];
    pthread_t ids[MAX_THREADS];
    pthread_barrier_t start;
    double sum = 0;
    int made = 1;
    if (threads > MAX_THREADS)
        threads = MAX_THREADS;
    if (pthread_barrier_init(&start, NULL, (unsigned)threads))
        return 0;
    for (int t = 0; t < threads; t++) {
        const size_t part = bytes / (size_t)threads;
        const char *const own = buffer ? buffer + part * (size_t)t : NULL;
        jobs[t] = (struct slice_job){ slice, own, part, slices, 0, &start };
    }
    for (; made < threads; made++)
        if (pthread_create(&ids[made], NULL, time_slices, &jobs[made]))
            exit(3);                                   /* the others wait at the barrier for ever */
    time_slices(&jobs[0]);
    for (int t = 1; t < threads; t++)
        pthread_join(ids[t], NULL);
    for (int t = 0; t < threads; t++)
        sum += jobs[t].best;
    pthread_barrier_destroy(&start);
    return sum;
}

/* ---------------------------------------------------------------- results, remembered */

struct remembered { int64_t key; int threads; double value; };

static double *recall(struct remembered *list, int count, int64_t key, int threads)
{
    int i = 0;
    while (i < count - 1 && list[i].threads && (list[i].key != key || list[i].threads != threads))
        i++;
    if (list[i].threads && list[i].key == key && list[i].threads == threads)
        return &list[i].value;
    list[i] = (struct remembered){ key, threads, -1 };
    return &list[i].value;
}

double roofline_flops(int32_t arch, int threads)
{
    static struct remembered list[16];
    double *const value = recall(list, 16, arch, threads);
    if (*value < 0) {
        double (*const loop)(const struct slice_job *) = pick_fma_loop(arch);
        *value = loop ? measure(loop, NULL, 0, threads, 60) : 0;
    }
    return *value;
}

double roofline_read(double bytes, int threads)
{
    static struct remembered list[64];
    size_t size = 1 << 14;
    while ((double)size < bytes && size < (size_t)1 << 30)
        size *= 2;
    double *const value = recall(list, 64, (int64_t)size, threads);
    if (*value < 0) {
        char *const buffer = aligned_alloc(4096, size);
        if (!buffer)
            return *value = 0;
        memset(buffer, 1, size);
        const double slice = (double)(size > SLICE_BYTES ? size : SLICE_BYTES) / threads;
        const int slices = slice > 3e8 ? 3 : (int)(1e9 / slice);     /* about 1 GB a thread */
        *value = measure(pick_read_loop(), buffer, size, threads, slices < 100 ? slices : 100);
        free(buffer);
    }
    return *value;
}
