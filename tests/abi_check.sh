#!/bin/sh
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
#
# usage: abi_check.sh self SCRATCH                 the gates must go red on broken variants of the header
#        abi_check.sh baseline SCRATCH SO COMMIT   SO (built with -g) against a -g rebuild of COMMIT
#
# Three gates, because none is enough alone: abidiff does not see renumbered macros, the layout test does not see
# prototypes, the symbol list sees neither.
set -u

here=$(cd "$(dirname "$0")" && pwd)
CC=${CC:-cc}
passed=0 failed=0

verdict() {    # text, wanted (red or green), status of the gate
    got=green
    [ "$3" = 0 ] || got=red
    if [ "$got" = "$2" ]; then
        passed=$((passed + 1))
    else
        echo "failed: $1 is $got, must be $2"
        failed=$((failed + 1))
    fi
}

# ---------------------------------------------------------------- the gates

gate_abidiff() {    # old .so, new .so; both with debug information, without which abidiff sees only names
    for so in "$1" "$2"; do
        readelf -SW "$so" | grep -q '\.debug_info' || { echo "$so has no debug information"; return 1; }
    done
    abidiff --no-added-syms "$1" "$2"
}

gate_layout() {     # include folder
    $CC -std=c11 -fsyntax-only -I"$1" -I"$here" "$here/test_abi.c"
}

gate_symbols() {    # .so
    nm -D --defined-only "$1" | awk '$2 != "A" { print $3 }' | sed 's/@.*//' | LC_ALL=C sort |
        diff "$here/../lib/libqattn.symbols" - 
}

# ---------------------------------------------------------------- self-test

# A library made of a header: every prototype becomes a function that returns 0.
build_stub() {      # folder with qattn.h; makes folder/libqattn.so
    {
        echo '#include "qattn.h"'
        tr '\n' ' ' < "$1/qattn.h" | grep -o 'QATTN_API  *[^;#]*;' | grep '(' | sed 's/;$/ { return 0; }/'
    } > "$1/stub.c"
    $CC -std=c11 -g -w -fPIC -shared -fvisibility=hidden -I"$1" -Wl,-soname,"${2:-libqattn.so.0}" "$1/stub.c" \
        -o "$1/libqattn.so"
}

variant() {         # name, sed script for the header, wanted: abidiff layout symbols
    mkdir -p "$scratch/$1"
    sed -E "$2" "$here/../include/qattn.h" > "$scratch/$1/qattn.h"
    if [ "$1" != same ] && cmp -s "$scratch/$1/qattn.h" "$here/../include/qattn.h"; then
        echo "failed: variant $1 changes nothing"
        failed=$((failed + 1))
        return
    fi
    build_stub "$scratch/$1" || { echo "failed: variant $1 does not compile"; failed=$((failed + 1)); return; }
    gates "$1" "$3" "$4" "$5"
}

gates() {           # name, wanted: abidiff layout symbols
    gate_abidiff "$scratch/same/libqattn.so" "$scratch/$1/libqattn.so" > "$scratch/$1/abidiff.log" 2>&1
    verdict "abidiff on '$1'" "$2" $?
    gate_layout "$scratch/$1" > "$scratch/$1/layout.log" 2>&1
    verdict "the layout test on '$1'" "$3" $?
    gate_symbols "$scratch/$1/libqattn.so" > "$scratch/$1/symbols.log" 2>&1
    verdict "the symbol list on '$1'" "$4" $?
}

self_test() {
    # Sizes asserted by the header itself would stop the compile before a gate sees the variant.
    free='s/^QATTN_STATIC_ASSERT_.*//'
    variant same "" green green green
    variant swap 's/^( *int64_t  )window_left;/\1SWAP;/; s/window_right;/window_left;/; s/SWAP;/window_right;/' \
        red red green
    variant append "$free; s/^( *)qattn_tensor v_descale;.*/&\n\1uint64_t appended;/" red red green
    variant insert "$free; s/^( *)float    softcap;.*/&\n\1float inserted, inserted2;/" red red green
    variant remove "$free; /^ *qattn_tensor keep;/d" red red green
    variant retype 's/^( *)int32_t  num_splits;/\1float    num_splits;/' red green green
    variant renumber 's/^(#define QATTN_MASK_WINDOW +)2/\116/' green red green
    variant status 's/^(#define QATTN_ERR_CUDA +)3008/\13018/' green red green
    variant function_removed '/^QATTN_API int32_t qattn_abi_version/d' red green red
    variant function_added 's/^QATTN_API int32_t qattn_version.*/&\nQATTN_API int32_t qattn_added(void);/' \
        green green red
    variant parameter_added 's/(qattn_status_string\(int32_t status)/\1, int more/' red green green
    variant parameter_type 's/(qattn_tensor_init\(qattn_tensor \*out, void \*data, )int32_t/\1int64_t/' red green green
    variant return_type 's/^QATTN_API int32_t (qattn_version\()/QATTN_API int64_t \1/' red green green

    mkdir -p "$scratch/soname" "$scratch/stripped"
    cp "$scratch/same/qattn.h" "$scratch/soname/" && build_stub "$scratch/soname" libqattn.so.1
    gates soname red green green
    cp "$scratch/swap/qattn.h" "$scratch/stripped/" &&
        strip -g -o "$scratch/stripped/libqattn.so" "$scratch/swap/libqattn.so"
    gates stripped red red green
}

# ---------------------------------------------------------------- against the baseline

# Builds the commit in a folder of its own, with its own Makefile, once; prints the path of its library.
build_baseline() {  # commit
    tree=$scratch/$1
    if [ ! -f "$tree/done" ]; then
        rm -rf "$tree" && mkdir -p "$tree"
        git archive "$1" | tar -x -C "$tree" || return 1
        env -u MAKEFLAGS -u MAKELEVEL \
            make -C "$tree" -s -j"$(nproc)" CUDA=0 CFLAGS='-g -O0' lib > "$tree/build.log" 2>&1 ||
            { tail -n 20 "$tree/build.log" >&2; return 1; }
        touch "$tree/done"
    fi
    readlink -f "$tree/lib/libqattn.so"
}

against_baseline() {    # .so, commit
    if [ "$2" = none ]; then
        echo "abi-check: lib/abi-baseline is 'none': no commit to compare with yet; abidiff against it is skipped"
        echo "0 passed, 0 failed, 1 skipped"
        exit 0
    fi
    if ! commit=$(git rev-parse -q --verify "$2^{commit}" 2>/dev/null); then
        echo "abi-check: commit $2 of lib/abi-baseline is not here (git fetch --unshallow brings it to a shallow clone)"
        # A source archive or a shallow clone has no history to compare with; a full clone must have it.
        if [ "$(git rev-parse --is-shallow-repository 2>/dev/null)" = false ]; then
            echo "0 passed, 1 failed"
            exit 1
        fi
        echo "0 passed, 0 failed, 1 skipped"
        exit 0
    fi
    old=$(build_baseline "$commit") ||
        { echo "abi-check: commit $commit does not build"; echo "0 passed, 1 failed"; exit 1; }
    gate_abidiff "$old" "$1"
    verdict "abidiff against $2" green $?
}

scratch=$2
mkdir -p "$scratch" && scratch=$(cd "$scratch" && pwd)
case $1 in
self)     self_test ;;
baseline) against_baseline "$3" "$4" ;;
*)        echo "usage: abi_check.sh self|baseline SCRATCH [SO COMMIT]" >&2; exit 2 ;;
esac
echo "$passed passed, $failed failed"
[ $failed = 0 ]
