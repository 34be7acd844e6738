#!/bin/sh
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
#
# usage: test_run_gpu.sh SCRATCH
# What run_gpu.sh makes of programs that are no check_gpu: it may be green only where tests ran and all passed.
set -u
scratch=$1
passed=0 failed=0
rm -rf "$scratch" && mkdir -p "$scratch" || exit 1

expect() {    # name, status (0 or 1), the last line, the program's body
    printf '#!/bin/sh\n%s\n' "$4" > "$scratch/$1"
    chmod +x "$scratch/$1"
    QATTN_TEST_SHARDS=3 QATTN_TEST_PART=${5:-all} sh tests/run_gpu.sh "$scratch/$1" "$scratch/$1.logs" 20 \
        > "$scratch/$1.out" 2>&1
    status=$?
    [ $status = 0 ] || status=1
    last=$(tail -n 1 "$scratch/$1.out")
    if [ "$status $last" = "$2 $3" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "failed: $1: status $status, '$last'; must be $2, '$3'"
    fi
}

skip='skipped: no suite ran on a CUDA device: none'
expect good 0 '7 passed, 0 failed' 'echo "100%: Checks: 7, Failures: 0, Errors: 0"'
expect nothing 1 '0 passed, 4 failed' ':'
expect no_tests 1 '0 passed, 0 failed' 'echo "100%: Checks: 0, Failures: 0, Errors: 0"'
expect one_fails 1 '3 passed, 4 failed' 'echo "85%: Checks: 7, Failures: 1, Errors: 0"; exit 1'
expect ends_badly 1 '3 passed, 4 failed' 'echo "100%: Checks: 7, Failures: 0, Errors: 0"; exit 3'
expect shard_lost 1 '6 passed, 1 failed' \
    '[ "$QATTN_TEST_SHARD" = 1/3 ] && exit 0; echo "100%: Checks: 7, Failures: 0, Errors: 0"'
expect no_device 0 '0 passed, 0 failed, 1 skipped' "echo '$skip'"
expect no_device_sharded 0 '0 passed, 0 failed, 1 skipped' "echo '$skip'" sharded
expect missing 1 '0 passed, 4 failed' 'exec /nonexistent/check_gpu'

echo "$passed passed, $failed failed"
[ $failed = 0 ]
