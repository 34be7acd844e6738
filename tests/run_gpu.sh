#!/bin/sh
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
#
# usage: run_gpu.sh check_gpu logs [seconds]
# Runs the device suites of the program: first those that must be alone on the device, then the others in
# QATTN_TEST_SHARDS processes beside each other (default: the CPUs, at most 16; the float64 oracle takes most of the
# time). Ends with the sums of all: `cases:` lines as the program prints them, `report:` lines under
# QATTN_TEST_REPORT=1 (largest values), the first failures, and `N passed, M failed`. Each process may take `seconds`.
set -u

program=$1 logs=$2 limit=${3:-900}
cpus=$(nproc 2>/dev/null || echo 4)
shards=${QATTN_TEST_SHARDS:-$([ "$cpus" -gt 16 ] && echo 16 || echo "$cpus")}
mkdir -p "$logs" && rm -f "$logs"/part.*.log "$logs"/part.*.status
export QATTN_TEST_DEVICE=cuda CK_FORK=no

run() {    # name of the part, environment...
    part=$1
    shift
    timeout -k 10 "$limit" env "$@" "$program" > "$logs/part.$part.log" 2>&1 < /dev/null
    echo $? > "$logs/part.$part.status"
}

end_if_skipped() {    # log of a part that found no device
    if grep '^skipped: no suite ran' "$1"; then
        echo "0 passed, 0 failed, 1 skipped"
        exit 0
    fi
}

start=$(date +%s)
if [ "${QATTN_TEST_PART:-all}" != sharded ]; then
    run alone QATTN_TEST_PART=alone
    echo "alone on the device: $(($(date +%s) - start)) s"
    end_if_skipped "$logs/part.alone.log"
    grep -E '^device|^host cost' "$logs/part.alone.log"
fi
start=$(date +%s)
if [ "${QATTN_TEST_PART:-all}" != alone ]; then
    k=0
    while [ $k -lt "$shards" ]; do
        run $k QATTN_TEST_PART=sharded QATTN_TEST_SHARD=$k/"$shards" &
        k=$((k + 1))
    done
    wait
    end_if_skipped "$logs/part.0.log"
    echo "$shards shards: $(($(date +%s) - start)) s"
fi

# A part that ended badly without saying which test failed counts as one failure.
lost=0
told='^[0-9]+%: Checks: [0-9]+, Failures: [0-9]*[1-9]|Errors: [0-9]*[1-9]'
for status in "$logs"/part.*.status; do
    log=${status%.status}.log
    if ! grep -q '^[0-9]*%: Checks: ' "$log" || { [ "$(cat "$status")" != 0 ] && ! grep -qE "$told" "$log"; }; then
        echo "failed: $log ended with status $(cat "$status"): $(tail -n 1 "$log" | cut -c1-200)"
        lost=$((lost + 1))
    fi
done
grep -hE '^FAIL |^crash |:[FE]:' "$logs"/part.*.log | awk '{ key = substr($0, 1, 70) } !seen[key]++' | head -n 40 |
    cut -c1-330

cat "$logs"/part.*.log | awk -v lost="$lost" '
    /^[0-9]+%: Checks: / {
        gsub(/[^0-9 ]/, "")
        checks = $2 > checks ? $2 : checks; failed += $3 + $4
        if (first == "") first = $2
        all[++n] = $2
    }
    /^cases: / {
        label = $0; sub(/^cases: /, "", label)
        match(label, / [0-9]+ run, /)
        counts = substr(label, RSTART + 1); label = substr(label, 1, RSTART - 1)
        split(counts, c, " ")
        if (!(label in run)) order[++labels] = label
        run[label] += c[1]; skipped[label] += c[3]
        if (match(counts, /\(.*\)$/)) {
            list_text = substr(counts, RSTART + 1, RLENGTH - 2)    # "3: this; 2: that", and reasons hold ";" too
            gsub(/; [0-9]+: /, "\001&", list_text)
            parts = split(list_text, why, "\001; ")
            for (i = 1; i <= parts; i++) {
                reason = why[i]
                times = reason ~ /^[0-9]+: / ? reason + 0 : 0
                sub(/^[0-9]+: /, "", reason)
                id = label SUBSEP reason
                if (!(id in reasons)) list[label] = list[label] SUBSEP reason
                reasons[id] += times
            }
        }
    }
    /^report: / {
        key = substr($0, 9, 44); sub(/ +$/, "", key)
        m = split(substr($0, 53), v, " ")
        if (!(key in worst)) { keys[++nkeys] = key; worst[key] = 0; rms[key] = 0 }
        if (v[1] + 0 > worst[key]) worst[key] = v[1] + 0
        if (m > 1 && v[2] + 0 > rms[key]) rms[key] = v[2] + 0
    }
    END {
        for (i = 1; i <= labels; i++) {
            line = "cases: " order[i] " " run[order[i]] " run, " skipped[order[i]] " skipped"
            parts = split(list[order[i]], why, SUBSEP)
            text = ""
            for (k = 2; k <= parts; k++)
                text = text (k > 2 ? "; " : "") reasons[order[i] SUBSEP why[k]] ": " why[k]
            print line (text == "" ? "" : " (" text ")")
        }
        for (i = 1; i <= nkeys; i++)
            printf "report: %-44s %8.4f  %7.4f\n", keys[i], worst[keys[i]], rms[keys[i]]
        # every shard goes through all tests of its part: counted once
        for (i = 1; i <= n; i++) if (!(all[i] in once)) { once[all[i]] = 1; total += all[i] }
        bad = failed + lost
        printf "%d passed, %d failed\n", (total > bad ? total - bad : 0), bad
    }' > "$logs/sums"
cat "$logs/sums"
grep -qE '^[1-9][0-9]* passed, 0 failed$' "$logs/sums"
