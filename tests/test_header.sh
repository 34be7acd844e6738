#!/bin/sh
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
#
# usage: CC=gcc CXX=g++ test_header.sh
# The public header alone, as each language, with every compiler at hand and every warning an error.
set -u

flags='-Iinclude -Wall -Wextra -Wpadded -Wpedantic -Werror -fsyntax-only'
passed=0 failed=0 skipped=0

try() {    # compiler, standard, file
    if ! command -v "$1" >/dev/null 2>&1; then
        echo "skipped: $1 is not installed"
        skipped=$((skipped + 1))
    elif "$1" "-std=$2" $flags "tests/$3"; then
        passed=$((passed + 1))
    else
        echo "failed: $1 -std=$2 $3"
        failed=$((failed + 1))
    fi
}

for cc in $(printf '%s\n' "${CC:-gcc}" gcc clang | awk '!seen[$0]++'); do
    for std in c99 c11 c17; do try "$cc" $std test_header.c; done
done
for cxx in $(printf '%s\n' "${CXX:-g++}" g++ clang++ | awk '!seen[$0]++'); do
    for std in c++11 c++17 c++20; do try "$cxx" $std test_header.cc; done
done

# It includes <stddef.h> and <stdint.h> alone.
if [ "$(sed -n 's/^#include *//p' include/qattn.h | sort | tr '\n' ' ')" = '<stddef.h> <stdint.h> ' ]; then
    passed=$((passed + 1))
else
    echo 'failed: include/qattn.h includes more than <stddef.h> and <stdint.h>'
    failed=$((failed + 1))
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
