/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#include "cpu/cpuinfo.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

enum {
    LEAF1_ECX_FMA = 1 << 12, LEAF1_ECX_OSXSAVE = 1 << 27, LEAF1_ECX_AVX = 1 << 28, LEAF1_ECX_F16C = 1 << 29,
    LEAF7_EBX_AVX2 = 1 << 5,
    XCR0_YMM = 0x06,        /* xmm and ymm state saved by the OS */
    XCR0_ZMM = 0xe6         /* besides: mask registers, upper halves of zmm0-15, zmm16-31 */
};
static const unsigned LEAF7_EBX_AVX512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;     /* F, DQ, BW, VL */

static uint32_t read_xcr0(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return lo;
}

static struct cpu_features ask_features(void)
{
    const unsigned leaf1 = LEAF1_ECX_FMA | LEAF1_ECX_OSXSAVE | LEAF1_ECX_AVX | LEAF1_ECX_F16C;
    struct cpu_features f = { false, false };
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & leaf1) != leaf1)
        return f;
    const uint32_t xcr0 = read_xcr0();
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return f;
    f.avx2 = (b & LEAF7_EBX_AVX2) && (xcr0 & XCR0_YMM) == XCR0_YMM;
    f.avx512 = f.avx2 && (b & LEAF7_EBX_AVX512) == LEAF7_EBX_AVX512 && (xcr0 & XCR0_ZMM) == XCR0_ZMM;
    return f;
}

#else

static struct cpu_features ask_features(void)
{
    return (struct cpu_features){ false, false };
}

#endif

/* CPUID traps to the hypervisor on a virtual machine (microseconds), so it is asked once. */
struct cpu_features qattn__cpu_features(void)
{
    enum { KNOWN = 1, AVX2 = 2, AVX512 = 4 };
    static _Atomic int known;       /* 0: not asked yet; a race asks twice and finds the same */
    int bits = atomic_load_explicit(&known, memory_order_relaxed);
    if (bits == 0) {
        const struct cpu_features f = ask_features();
        bits = KNOWN | (f.avx2 ? AVX2 : 0) | (f.avx512 ? AVX512 : 0);
        atomic_store_explicit(&known, bits, memory_order_relaxed);
    }
    return (struct cpu_features){ .avx2 = bits & AVX2, .avx512 = bits & AVX512 };
}

static int count_affinity(void)
{
    cpu_set_t mask[8];      /* 8192 CPUs: the most a Linux kernel is built for */
    if (sched_getaffinity(0, sizeof mask, mask) != 0)
        return 1;
    const int n = CPU_COUNT_S(sizeof mask, mask);
    return n > 0 ? n : 1;
}

/* First line of a small file, without its newline. */
static bool read_line(const char *path, char *line, size_t cap)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    const bool ok = fgets(line, (int)cap, f) != NULL;
    fclose(f);
    if (ok)
        line[strcspn(line, "\n")] = '\0';
    return ok;
}

/* CPUs of quota/period microseconds, rounded up; 0: unlimited or unreadable. */
static int64_t quota_cpus(int64_t quota, int64_t period)
{
    return quota > 0 && period > 0 ? quota / period + (quota % period != 0) : 0;
}

/* Quota written in one cgroup folder; 0: none. v2 keeps "max 100000" or "150000 100000" in cpu.max. */
static int64_t folder_quota(const char *folder, bool v2)
{
    char path[640], line[64];
    snprintf(path, sizeof path, "%s/%s", folder, v2 ? "cpu.max" : "cpu.cfs_quota_us");
    if (!read_line(path, line, sizeof line))
        return 0;
    char *rest;
    const int64_t quota = strtoll(line, &rest, 10);     /* "max": 0 */
    if (v2)
        return quota_cpus(quota, strtoll(rest, NULL, 10));
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    return read_line(path, line, sizeof line) ? quota_cpus(quota, strtoll(line, NULL, 10)) : 0;
}

/* Least quota of the group `name` ("/a/b") below `mount` and of all groups above it; 0: none. */
static int64_t hierarchy_quota(const char *mount, const char *name, bool v2)
{
    char folder[576];
    int64_t least = 0;
    /* in a namespace the name may point outside ("/../x"): then only the namespace's root can be read */
    snprintf(folder, sizeof folder, "%s%s", mount, strstr(name, "..") ? "" : name);
    for (;;) {
        const int64_t cpus = folder_quota(folder, v2);
        if (cpus > 0 && (least == 0 || cpus < least))
            least = cpus;
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < strlen(mount))
            return least;
        *slash = '\0';
    }
}

/* Does a comma-separated list of controllers hold "cpu"? */
static bool has_cpu_controller(const char *list, size_t length)
{
    for (size_t i = 0; i < length;) {
        size_t n = 0;
        while (i + n < length && list[i + n] != ',')
            n++;
        if (n == 3 && memcmp(list + i, "cpu", 3) == 0)
            return true;
        i += n + 1;
    }
    return false;
}

/* Least CPU quota of the cgroups (v1 and v2, where they are usually mounted) this process is in; 0: none. */
static int64_t cgroup_quota(void)
{
    char line[512];
    int64_t least = 0;
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f)
        return 0;
    while (fgets(line, sizeof line, f)) {           /* "0::/group" (v2) or "4:cpu,cpuacct:/group" (v1) */
        line[strcspn(line, "\n")] = '\0';
        const char *list = strchr(line, ':');
        const char *name = list ? strchr(list + 1, ':') : NULL;
        if (!name)
            continue;
        list++;
        name++;
        int64_t cpus = 0;
        if (list + 1 == name)
            cpus = hierarchy_quota("/sys/fs/cgroup", name, true);
        else if (has_cpu_controller(list, (size_t)(name - list - 1)))
            cpus = hierarchy_quota("/sys/fs/cgroup/cpu", name, false);
        if (cpus > 0 && (least == 0 || cpus < least))
            least = cpus;
    }
    fclose(f);
    return least;
}

int qattn__cpu_count(void)
{
    static _Atomic int known;       /* as above */
    int count = atomic_load_explicit(&known, memory_order_relaxed);
    if (count == 0) {
        const int64_t quota = cgroup_quota();
        count = count_affinity();
        if (quota > 0 && quota < count)
            count = (int)quota;
        atomic_store_explicit(&known, count, memory_order_relaxed);
    }
    return count;
}
