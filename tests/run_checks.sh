#!/bin/sh
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
#
# usage: run_checks.sh full|sanitized|abi|gpu
# from the Makefile, which sets BUILD OUT SO SONAME CUDA DEBUG ASAN TSAN CC CXX MAKE
# Runs every test program, shows its counts, and ends with one line `N passed, M failed, K skipped` for all.
#
# A test program ends with such a line of its own, or with libcheck's; a step that exits non-zero has failed even
# if its counts say otherwise. `cases:` lines are the grids' own counts; their skipped cases are added.
set -u

logs=$BUILD/check
rm -rf "$logs" && mkdir -p "$logs"
passed=0 failed=0 skipped=0 cases=0
start=$(date +%s)

# Sums of one log: passed failed skipped cases.
count() {
    awk '
        /^[0-9]+%: Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+$/ {
            gsub(/[^0-9 ]/, ""); passed += $2 - $3 - $4; failed += $3 + $4; next
        }
        /^([A-Za-z_]+: )?[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$/ {
            sub(/^[A-Za-z_]+: /, ""); passed += $1; failed += $3; skipped += $5; next
        }
        /^cases: .* [0-9]+ run, [0-9]+ skipped/ {
            for (i = 2; i < NF; i++) {
                if ($(i + 1) == "run,") cases += $i
                if ($(i + 1) ~ /^skipped/) skipped += $i
            }
        }
        END { print passed + 0, failed + 0, skipped + 0, cases + 0 }' "$1"
}

step() {    # name, seconds it may take, command...
    name=$1 limit=$2 log=$logs/$1.log
    shift 2
    before=$(date +%s)
    timeout -k 10 "$limit" "$@" > "$log" 2>&1 < /dev/null
    status=$?
    set -- $(count "$log")
    p=$1 f=$2 s=$3 c=$4
    if [ $status = 124 ] || [ $status = 137 ]; then echo "failed: not done after $limit s" >> "$log"; fi
    if [ $status != 0 ] && [ "$f" = 0 ]; then f=1; fi
    if [ $status = 0 ] && [ "$p$f$s" = 000 ]; then
        p=1    # no counts of its own: the program is one test
    fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s)) cases=$((cases + c))
    word=ok
    [ "$f" = 0 ] || word=FAILED
    printf '%-6s %-16s %5d passed %3d failed %3d skipped %4d s\n' $word "$name" "$p" "$f" "$s" $(($(date +%s) - before))
    grep -E '^(cases:|skipped:|NEEDED:|highest GLIBC|abi-check:)' "$log" | sed 's/^/         /'
    if [ "$f" != 0 ]; then
        grep -vE '^(cases:|skipped:)' "$log" | tail -n 60 | sed 's/^/       | /'
        echo "       the whole log: $log"
    fi
}

skip() {    # name, reason
    skipped=$((skipped + 1))
    printf '%-6s %-16s %s\n' skip "$1" "$2"
}

tests=$BUILD/tests
abi_steps() {
    step test_abi 60 "$tests/test_abi"
    step test_abi_cxx 60 "$tests/test_abi_cxx"
    step test_symbols 60 sh tests/test_symbols.sh "$OUT" "$SO" "$SONAME"
    step abi_gates 120 sh tests/abi_check.sh self "$BUILD/abi"
}
# What hands torch tensors to the library: needs more than the binding does.
transformers_step() {    # python3 or nothing
    if [ -n "$1" ] && "$1" -c 'import importlib.util as u, sys
sys.exit(not (u.find_spec("torch") and u.find_spec("transformers")))'; then
        step test_transformers 600 env QATTN_LIBRARY="$PWD/$OUT/$SO" PYTHONDONTWRITEBYTECODE=1 \
            "$1" tests/test_transformers.py
    else
        skip test_transformers 'torch and transformers are not installed for python3'
    fi
}
summary() {
    echo
    echo "$cases grid cases run; $(($(date +%s) - start)) s; logs in $logs"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed = 0 ] && [ $passed -gt 0 ]
    exit
}

case $1 in
abi)
    abi_steps
    step abidiff 600 sh tests/abi_check.sh baseline build/abi-baseline "$OUT/$SO" "$(cat lib/abi-baseline)"
    summary ;;
gpu)
    step test_device 120 "$tests/test_device"
    if [ "$CUDA" = 1 ]; then
        step test_cuda_fresh 600 "$tests/test_cuda_fresh"
    fi
    step check_gpu 1800 sh tests/run_gpu.sh "$tests/check_gpu" "$logs/gpu"
    transformers_step "$(command -v python3)"
    summary ;;
esac

# Some tests ask for more memory than there is and expect a status, not a sanitizer's abort.
export ASAN_OPTIONS="allocator_may_return_null=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
export TSAN_OPTIONS="allocator_may_return_null=1${TSAN_OPTIONS:+:$TSAN_OPTIONS}"

check_all_limit=2400
if [ "${TSAN:-0}" = 1 ]; then    # ten times slower
    check_all_limit=9000
    export CK_TIMEOUT_MULTIPLIER=5
fi
step check_all $check_all_limit "$tests/check_all"
step test_dlopen 60 "$tests/test_dlopen" "$OUT/$SO" lib/libqattn.symbols
step test_threads 180 "$tests/test_threads"
if [ "${ASAN:-0}" = 1 ]; then
    skip test_fork "the address sanitizer's own allocator can hang in a child forked beside busy threads"
elif [ "${TSAN:-0}" = 1 ]; then
    skip test_fork 'the thread sanitizer ends a child of a process with threads that starts its own'
else
    step test_fork 180 "$tests/test_fork"
fi
step test_device 60 "$tests/test_device"
step test_run_gpu 60 sh tests/test_run_gpu.sh "$logs/run_gpu"
if [ "$CUDA" = 1 ]; then
    step test_cuda_faults 120 "$tests/test_cuda_faults"
    step test_drivers 120 sh tests/test_drivers.sh "$tests/test_device" "$tests/drivers"
fi

if [ "$1" = sanitized ]; then
    step test_abi 60 "$tests/test_abi"
else
    abi_steps
    step abidiff 300 "$MAKE" -s CUDA=0 'CFLAGS=-g -O0' abi-diff
    step test_header 60 sh tests/test_header.sh
    step test_install 300 sh tests/test_install.sh "$BUILD/install"
    step bench 120 "$BUILD/bench/qattn_bench" --suite bench/suites/small.txt --repeat 3
    step test_readme 120 sh tests/test_readme.sh check "$BUILD/bench/qattn_bench" "$OUT" "$BUILD/readme"
    python=$(sh tests/tools.sh python)
    if [ -z "$python" ]; then
        skip test_ctypes 'python3 is not installed'
    else
        step test_ctypes 120 env QATTN_LIBRARY="$PWD/$OUT/$SO" PYTHONDONTWRITEBYTECODE=1 "$python" tests/test_ctypes.py
    fi
    transformers_step "$(command -v python3)"
fi
summary
