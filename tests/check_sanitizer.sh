#!/bin/sh
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
#
# usage: check_sanitizer.sh check_gpu folder
# compute-sanitizer's tools over the CUDA rows: the groups of sanitizer_cases.txt, which launch every kernel, and part
# of the products and merges, under each tool; memcheck takes hostile lengths and page ids and part of the grid too.
# A run counts as passed when the tool found nothing, the results were right, and no case of the group was left out.
# SANITIZER_JOBS runs beside each other (default: the CPUs, at most 16), each at most SANITIZER_SECONDS (300).
# SANITIZER_TOOLS and SANITIZER_GROUPS pick some, QATTN_TEST_IMPL a row.
set -u
list=$(dirname "$0")/sanitizer_cases.txt
sanitizer=$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")

lines_of() { awk -v group="[$1]" '/^\[/ { on = $0 == group; next } on && NF && !/^#/' "$list"; }

# How many cases a group has on each row that takes all of them; 1 where that is not counted.
set_up() {
    least=1
    export QATTN_TEST_DEVICE=cuda QATTN_TEST_RAW=1 CK_RUN_SUITE=impls
    case $1 in
    matmul | merge) export CK_RUN_CASE="$1" QATTN_TEST_GRID=small QATTN_TEST_SHARD=0/8 ;;
    grid)           export QATTN_TEST_GRID=small QATTN_TEST_SHARD=0/12 ;;
    hostile)        export CK_RUN_SUITE=hostile QATTN_TEST_GRID=small QATTN_TEST_SHARD=0/12 ;;
    *)
        QATTN_TEST_CASE=$(lines_of "$1")
        CK_RUN_CASE=${QATTN_TEST_CASE%% *}
        [ -n "${QATTN_TEST_IMPL:-}" ] || least=$(echo "$QATTN_TEST_CASE" | wc -l)    # cuda.simt takes all
        export QATTN_TEST_CASE CK_RUN_CASE
        ;;
    esac
}

run() {    # program, folder, tool, group: writes the verdict to folder/tool.group.verdict
    log=$2/$3.$4.log
    start=$(date +%s)
    set_up "$4"
    # Splits read a word of the workspace before anybody has written it (src/cuda/common/arrive.cuh), by design. That
    # no part of theirs is read unwritten is what NaN in the workspace shows in the grid.
    case $3.$4 in initcheck.decode* | initcheck.prefill_batches | initcheck.simt_rows) export QATTN_TEST_RAW=2 ;; esac
    timeout -k 10 "${SANITIZER_SECONDS:-300}" "$sanitizer" --tool "$3" --error-exitcode 9 --print-limit 20 "$1" \
        > "$log" 2>&1
    status=$?
    cases=$(sed -n -e "s/^cases: .*${QATTN_TEST_IMPL:-cuda.simt} \([0-9]*\) run,.*/\1/p" \
        -e 's/^cases: hostile arrays \([0-9]*\) run,.*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
    word=FAILED
    if [ $status = 0 ] && [ "$cases" -ge "$least" ] &&
        grep -qE 'ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards' "$log"; then
        word=ok
    fi
    {
        printf '%-6s %-9s %s: %d cases, %d s\n' $word "$3" "$4" "$cases" $(($(date +%s) - start))
        [ $word = ok ] || tail -n 40 "$log" | sed 's/^/       | /'
    } > "$2/$3.$4.verdict"
}

if [ "$1" = run ]; then
    shift
    run "$@"
    exit 0
fi

program=$1 folder=$2
tools=${SANITIZER_TOOLS:-racecheck memcheck initcheck synccheck}
groups=${SANITIZER_GROUPS:-$(sed -n 's/^\[\(.*\)\]$/\1/p' "$list") matmul merge}
cpus=$(nproc)
jobs=${SANITIZER_JOBS:-$([ "$cpus" -gt 16 ] && echo 16 || echo "$cpus")}

skip() {
    echo "skipped: $1"
    echo "0 passed, 0 failed, $(set -- $tools; echo $#) skipped"
    exit 0
}
[ -x "$sanitizer" ] || skip 'compute-sanitizer is not installed'
[ -e /dev/nvidiactl ] || [ -e /dev/dxg ] || skip 'no CUDA device'

mkdir -p "$folder"
rm -f "$folder"/*.log "$folder"/*.verdict
for tool in $tools; do
    for group in $groups; do echo "$tool $group"; done
    [ "$tool" = memcheck ] && printf '%s\n' 'memcheck hostile' 'memcheck grid'
done > "$folder/runs"
xargs -n 2 -P "$jobs" sh "$0" run "$program" "$folder" < "$folder/runs"
cat "$folder"/*.verdict
wanted=$(wc -l < "$folder/runs")
passed=$(grep -l '^ok ' "$folder"/*.verdict | wc -l)
echo "$passed passed, $((wanted - passed)) failed, 0 skipped"
[ "$passed" = "$wanted" ]
