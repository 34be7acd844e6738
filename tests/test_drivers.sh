#!/bin/sh
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
#
# usage: test_drivers.sh test_device folder
# The shared library where the driver is missing, broken, a stub, too old, or cannot start: what callers are told.
# `folder` holds fake/libcuda.so.1, made from tests/fake_libcuda.c. Needs neither driver nor device.
set -u
program=$1 folder=$2
passed=0 failed=0 skipped=0

expect() {    # status that every call gives, its number, folder of libcuda.so.1, NAME=value...
    name=$1 number=$2 path=$3
    shift 3
    if env QATTN_TEST_STATUS="$number" LD_LIBRARY_PATH="$path" "$@" "$program" > "$folder/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'failed: %s with %s %s\n' "$name" "$path" "$*"
        sed 's/^/    /' "$folder/log"
    fi
    grep '^device 0' "$folder/log"
}

mkdir -p "$folder/broken" "$folder/stub"
echo 'this is no library' > "$folder/broken/libcuda.so.1"
expect NO_DRIVER 3001 "$folder/broken" A=
expect DRIVER_TOO_OLD 3002 "$folder/fake" FAKE_VERSION=11040
expect DRIVER_TOO_OLD 3002 "$folder/fake" FAKE_VERSION=12080
expect DRIVER_TOO_OLD 3002 "$folder/fake" FAKE_VERSION=99000 FAKE_INIT=0       # its functions are missing
expect NO_DEVICE 3003 "$folder/fake" FAKE_VERSION=99000 FAKE_INIT=100
expect DEVICE_BUSY 3004 "$folder/fake" FAKE_VERSION=99000 FAKE_INIT=46
expect NO_DRIVER 3001 "$folder/fake" FAKE_VERSION=99000 FAKE_INIT=34
expect CUDA 3008 "$folder/fake" FAKE_VERSION=99000 FAKE_INIT=999
stub=${CUDA_HOME:-/usr/local/cuda}/lib64/stubs/libcuda.so
if [ -e "$stub" ]; then
    ln -sf "$stub" "$folder/stub/libcuda.so.1"
    expect NO_DRIVER 3001 "$folder/stub" A=
else
    skipped=1
    echo "skipped: the toolkit's stub library is not at $stub"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
