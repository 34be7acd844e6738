#!/bin/sh
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
#
# usage: test_readme.sh check BENCH LIBDIR SCRATCH    or    test_readme.sh write BENCH
#   check   README.md tells the truth: its support matrix is what the table of implementations answers, every link,
#           path, make target and bench option in it exists, its examples run; docs/abi.md lists every environment
#           variable
#   write   puts the matrix of this build into README.md (on a machine that runs every row)
# BENCH is build/.../bench/qattn_bench, LIBDIR holds libqattn.so. Run in the root of the tree.
set -u
[ $# -ge 2 ] || { echo "usage: test_readme.sh check BENCH LIBDIR SCRATCH | write BENCH" >&2; exit 2; }
mode=$1 bench=$2
passed=0 failed=0 skipped=0

pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); echo "failed: $*"; }
skip() { skipped=$((skipped + 1)); echo "skipped: $*"; }
must() { if "$@"; then pass; else fail "$*"; fi; }

between() {    # name: the lines of README.md between its two markers
    awk -v b="<!-- $1 begin -->" -v e="<!-- $1 end -->" '$0 == e { on = 0 } on { print } $0 == b { on = 1 }' README.md
}

write_matrix() {
    "$bench" --matrix > "$1" || exit 1
    if grep -q ' ? |' "$1"; then
        echo "test_readme: this machine cannot run every row: $(grep -m 1 '^| attention' "$1")"
        exit 1
    fi
    if ! grep -q 'cuda.sm80' "$1"; then
        echo "test_readme: $bench has no CUDA rows, whose columns the README would lose: build it with CUDA=1"
        exit 1
    fi
    awk -v file="$1" '
        $0 == "<!-- matrix end -->" { on = 0 }
        !on { print }
        $0 == "<!-- matrix begin -->" { on = 1; while ((getline line < file) > 0) print line }' README.md > "$1.new" &&
        cat "$1.new" > README.md
    rm -f "$1" "$1.new"
}

if [ "$mode" = write ]; then
    scratch=$(mktemp) || exit 1
    write_matrix "$scratch"
    exit
fi
libdir=$3 scratch=$4
mkdir -p "$scratch"

# ---------------------------------------------------------------- the matrix, cell by cell

"$bench" --matrix > "$scratch/matrix.now" || fail "$bench --matrix"
between matrix > "$scratch/matrix.readme"
# Cells are compared by the name of their column: a build without CUDA has none of the cuda rows. Columns that print ?
# belong to rows this machine cannot run. Either counts as skipped.
awk -F'|' '
    NR == FNR { now[FNR] = $0; lines = FNR; next }
    {
        if (FNR > lines) { print "wrong line " $0; next }
        fields = split(now[FNR], cell, "|")
        if ($0 ~ /`cpu\./) {            # a header: where each column of README stands in the table
            delete at
            for (i = 3; i < NF; i++)
                for (k = 3; k < fields; k++)
                    if (cell[k] == $i) at[i] = k
        }
        if (cell[2] != $2) { print "wrong line " $0; next }
        for (i = 3; i < NF; i++)
            if (!(i in at) || cell[at[i]] == " ? ") unknown++
            else if (cell[at[i]] == $i) n++
            else print "wrong cell \"" $2 "\", column " i - 1 ": README says" $i "the table" cell[at[i]]
    }
    END {
        if (FNR != lines || NR == lines) print "wrong length: README has " NR - lines " lines, the table " lines
        print "cells " n + 0 " " unknown + 0
    }' "$scratch/matrix.now" "$scratch/matrix.readme" > "$scratch/matrix.result"
if grep '^wrong' "$scratch/matrix.result"; then
    fail "the support matrix; 'sh tests/test_readme.sh write $bench' writes it"
else
    pass
fi
set -- $(sed -n 's/^cells //p' "$scratch/matrix.result")
echo "cases: matrix cells $1 run, $2 skipped (of rows this build or machine cannot run)"
[ "$1" -gt 0 ] || fail "no cell of the matrix was compared"

# ---------------------------------------------------------------- links and paths

for doc in README.md docs/abi.md bench/README.md; do
    folder=$(dirname "$doc")
    for link in $(grep -o '](\([^)]*\))' "$doc" | sed 's/^](//; s/)$//; s/#.*//' | grep -v '^https\?:' | sort -u); do
        must test -e "$folder/$link"
    done
done
# Whatever looks like a path of the tree, in text or in a command.
for path in $(grep -ohE '\b(src|include|tests|bench|examples|docs|lib)/[A-Za-z0-9_./-]*[A-Za-z0-9_/]' \
    README.md NEWS bench/README.md docs/abi.md | sort -u); do
    must test -e "$path"
done

# ---------------------------------------------------------------- commands and options

targets=$(sed -n 's/^\([a-z][a-z -]*\):.*/ \1 /p' Makefile)
for target in $(grep -ohE '(^|`|\$\(|&& )make (-s )?[a-z][a-z-]+' README.md docs/abi.md bench/README.md |
    sed 's/.* //' | sort -u); do
    case $targets in
    *" $target "*) pass ;;
    *) fail "make $target: no such target" ;;
    esac
done
"$bench" --help > "$scratch/usage" || fail "$bench --help"
for option in $(grep -ohE -- '--(suite|case|impl|threads|ms|repeat|cold|csv|label|list|matrix)\b' \
    README.md bench/README.md | sort -u); do
    must grep -q -e "$option" "$scratch/usage"
done
for suite in bench/suites/*.txt; do
    must grep -q "suites/$(basename "$suite")" bench/README.md
done

# ---------------------------------------------------------------- environment

for name in $(grep -rhoE 'getenv\("QATTN_[A-Z_]+"\)' src | grep -oE 'QATTN_[A-Z_]+' | sort -u); do
    must grep -q "| \`$name\` |" docs/abi.md
done

# ---------------------------------------------------------------- the examples run

# Block n of language l.
block() { awk -v lang="$1" '$0 == "```" { on = 0 } on { print } $0 == "```" lang { on = 1 }' README.md; }

block c > "$scratch/readme.c"
if ${CC:-cc} -std=c11 -Wall -Werror -Iinclude "$scratch/readme.c" -o "$scratch/readme" -L"$libdir" -lqattn; then
    must test "$(LD_LIBRARY_PATH=$libdir "$scratch/readme")" = done
else
    fail "the C example of README.md does not compile"
fi
python=$(sh tests/tools.sh python)
if [ -n "$python" ] && "$python" -c 'import numpy' 2>/dev/null; then
    { block python; echo 'assert o.shape == (1, 512, 16, 128) and np.isfinite(o).all(), o.shape'; } \
        > "$scratch/readme.py"
    must env QATTN_LIBRARY="$libdir/libqattn.so" PYTHONPATH=examples/python PYTHONDONTWRITEBYTECODE=1 \
        "$python" "$scratch/readme.py"
else
    skip "the Python example of README.md (NumPy is not installed)"
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
