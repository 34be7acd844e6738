#!/bin/sh
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
#
# usage: check_sanitizer.sh check_gpu folder
# compute-sanitizer's tools over CUDA rows. memcheck, synccheck and initcheck take every SANITIZER_SHARDS-th (12) block
# of the small grid, memcheck also the hostile lengths and page ids; racecheck, which is slow, takes the cases listed
# here. Each run ends after SANITIZER_SECONDS (120). SANITIZER_TOOLS picks tools, QATTN_TEST_IMPL a row.
set -u
program=$1 folder=$2
tools=${SANITIZER_TOOLS:-memcheck synccheck initcheck racecheck}
seconds=${SANITIZER_SECONDS:-120}
shards=${SANITIZER_SHARDS:-12}
passed=0 failed=0

# Kernels of each kind: tiles cut by masks, windows, splits, packed and paged keys, bias, non-finite values, 8 bits.
race_cases='
flash bf16 b2 hq4 hkv2 sq40 sk200 d64 causal
flash f16 b1 hq4 hkv1 sq70 sk300 d128 left=40 right=0
flash bf16 b1 hq8 hkv2 sq1 sk900 d128 splits=4
flash bf16 b3 hq4 hkv2 sq9 sk150 d128 causal packed_q used_k=1 page=16
flash bf16 b2 hq4 hkv2 sq20 sk150 d64 bias=31 keep=31 sinks alibi
flash bf16 b2 hq4 hkv2 sq20 sk150 d64 causal nan=1
flash f32 b1 hq4 hkv2 sq33 sk150 d64 causal
flash f32 b1 hq4 hkv2 sq1 sk900 d64 splits=3
flash bf16 kv=e4m3fn b2 hq4 hkv2 sq20 sk150 d128 causal k_scale=1 v_scale=1
gqa bf16 b1 hq4 hkv2 sq40 sk150 d64 causal scores stage=3
gqa f32 b1 hq4 hkv2 sq40 sk150 d64
softmax f32 b1 hq2 hkv2 sq9 sk3000 causal
softmax bf16 b1 hq2 hkv2 sq9 sk70 keep=31'

skip() {
    echo "skipped: $1"
    echo "0 passed, 0 failed, $(set -- $tools; echo $#) skipped"
    exit 0
}

sanitizer=$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")
[ -x "$sanitizer" ] || skip 'compute-sanitizer is not installed'
[ -e /dev/nvidiactl ] || [ -e /dev/dxg ] || skip 'no CUDA device'

run() {    # tool, name, NAME=value...
    tool=$1 name=$2
    shift 2
    log=$folder/log
    start=$(date +%s)
    env "$@" timeout -k 10 "$seconds" "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 20 "$program" \
        > "$log" 2>&1
    status=$?
    cases=$(sed -n 's/^cases: .*cuda.* \([0-9][0-9]*\) run,.*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
    word=FAILED
    if [ $status = 0 ] && [ "$cases" -gt 0 ] && grep -qE 'ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards' "$log"; then
        word=ok
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        cp "$log" "$folder/failed-$failed.log"
    fi
    printf '%-6s %-9s %s: %d cases, %d s\n' $word "$tool" "$name" "$cases" $(($(date +%s) - start))
    if [ $word = FAILED ]; then
        tail -n 40 "$log" | sed 's/^/       | /'
    fi
}

race() {
    echo "$race_cases" | while read -r line; do
        [ -z "$line" ] || printf '%s\n' "$line"
    done > "$folder/cases"
    while read -r line <&3; do
        run racecheck "$line" QATTN_TEST_CASE="$line" CK_RUN_CASE="${line%% *}"
    done 3< "$folder/cases"
    run racecheck 'matmul, some' QATTN_TEST_SHARD=0/8 CK_RUN_CASE=matmul
    run racecheck 'merge, some' QATTN_TEST_SHARD=0/8 CK_RUN_CASE=merge
}

mkdir -p "$folder"
rm -f "$folder"/failed-*.log
export QATTN_TEST_DEVICE=cuda QATTN_TEST_GRID=small CK_RUN_SUITE=impls
for tool in $tools; do
    if [ "$tool" = racecheck ]; then
        race
    else
        run "$tool" "part 1 of $shards of the grid" QATTN_TEST_SHARD="0/$shards"
    fi
    if [ "$tool" = memcheck ]; then
        run memcheck 'hostile' CK_RUN_SUITE=hostile QATTN_TEST_SHARD="0/$shards"
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
