#!/bin/sh
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
#
# usage: fatbin.sh spills.txt log...      (make fatbin; the logs are what `ptxas -v` said of each kernel file)
# One line a kernel and architecture: registers, shared bytes that it declares, bytes of spill stores. A kernel that
# spills must stand in spills.txt: name without parameters, tab, the most bytes, tab, what they cost. No other may.
# And every kernel must wait for the one before it in the stream, as launches let it come up early
# (src/cuda/common/ptx.cuh): at once, after nothing but declarations.
set -u
list=$1
shift
grep -rl __global__ "$(dirname "$list")" | xargs awk '
    /__global__/     { kernel = FILENAME ":" FNR; kernels++; waits = body = late = 0 }
    body && /^    ((if|for|while|do|switch|return)[^a-z_]|[a-zA-Z0-9_:]+(<[^=;]*>)?\()/ && !/static_assert/ {
        waits = waits || (!late && /^    wait_for_predecessor\(\);/)
        late = 1
    }
    /^\{/            { body = 1 }
    /^\}/ && kernel  {
        if (!waits) {
            print "failed: its first statement is not wait_for_predecessor: " kernel
            failed++
        }
        kernel = ""
        body = 0
    }
    END { printf "waits: %d passed, %d failed\n", kernels - failed, failed; exit failed > 0 || !kernels }
' || exit 1
cat "$@" | awk '
    /Compiling entry function/ { split($0, quoted, "\047"); name = quoted[2]; arch = quoted[4] }
    /bytes spill stores/       { for (i = 1; i <= NF; i++) if ($(i + 2) == "spill" && $(i + 3) ~ /^stores/) spill = $i }
    /Used [0-9]+ registers/    {
        shared = 0
        for (i = 1; i <= NF; i++) {
            if ($i == "Used") regs = $(i + 1)
            if ($(i + 1) == "bytes" && $(i + 2) ~ /^smem/) shared = $i
        }
        print name, arch, regs, shared, spill
    }' | c++filt | sed 's/(.*) sm_/ sm_/; s/^void //; s/^(anonymous namespace):://' | awk -v list="$list" '
    BEGIN {
        while ((getline line < list) > 0)
            if (line !~ /^#/ && split(line, field, "\t") >= 3) allowed[field[1]] = field[2]
        printf "%-62s %-7s %5s %7s %6s\n", "kernel", "arch", "regs", "shared", "spill"
    }
    {
        name = $1
        for (i = 2; i <= NF - 4; i++) name = name " " $i
        printf "%-62s %-7s %5s %7s %6s\n", name, $(NF - 3), $(NF - 2), $(NF - 1), $NF
        kernels++
        seen[name] = 1
        if ($NF > (name in allowed ? allowed[name] : 0)) {
            printf "failed: %s spills %s bytes on %s: see src/cuda/spills.txt\n", name, $NF, $(NF - 3)
            failed++
        }
    }
    END {
        for (name in allowed)
            if (!(name in seen)) {
                printf "failed: %s stands in src/cuda/spills.txt, and there is no such kernel\n", name
                stale++
            }
        printf "fatbin: %d passed, %d failed\n", kernels - failed, failed + stale
        exit failed + stale > 0 || kernels == 0
    }'
