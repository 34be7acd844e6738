#!/bin/sh
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
#
# usage: abi_update.sh SCRATCH     (make abi-update)
# Brings lib/libqattn.symbols, the first node of lib/libqattn.map and tests/abi_golden.h to what the header says now,
# and shows what changed. Once the ABI is frozen, additions get a node of their own: move them by hand.
set -eu

here=$(dirname "$0") scratch=$1
mkdir -p "$scratch"
cp lib/libqattn.symbols lib/libqattn.map tests/abi_golden.h "$scratch/"

sh "$here/abi_names.sh" include/qattn.h | sed -n 's/^function //p' | LC_ALL=C sort > "$scratch/new.symbols"
abi=$(sed -n 's/^#define QATTN_ABI_VERSION *\([0-9]*\).*/\1/p' include/qattn.h)
{
    sed -n '/^#/p' lib/libqattn.map
    echo "QATTN_$abi {"
    echo 'global:'
    sed 's/.*/    &;/' "$scratch/new.symbols"
    printf 'local:\n    *;\n};\n'
} > "$scratch/new.map"
sh "$here/abi_golden.sh" include "$scratch" > "$scratch/new.golden"

cp "$scratch/new.symbols" lib/libqattn.symbols
cp "$scratch/new.map" lib/libqattn.map
cp "$scratch/new.golden" tests/abi_golden.h
for file in lib/libqattn.symbols lib/libqattn.map tests/abi_golden.h; do
    diff -u "$scratch/$(basename $file)" $file || :
done
