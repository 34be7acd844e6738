#!/bin/sh
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
#
# usage: CC=cc abi_golden.sh include-dir scratch-dir > tests/abi_golden.h
# Writes the sizes, offsets and constants that a header has now. Only `make abi-update` runs it: the result is
# checked in, and test_abi.c compares every later header with it.
set -eu

include=$1 scratch=$2 here=$(dirname "$0")
mkdir -p "$scratch"
{
    echo '#include <qattn.h>'
    echo '#include <stdio.h>'
    echo '#include <string.h>'
    echo 'int main(void) {'
    sh "$here/abi_names.sh" "$include/qattn.h" | while read -r kind name field; do
        case $kind in
        constant) printf 'printf(strstr("%s", "_DTYPE_") ? "CONSTANT(%s, 0x%%06llx)\\n" : "CONSTANT(%s, %%llu)\\n",' \
                      "$name" "$name" "$name"
                  printf ' (unsigned long long)%s);\n' "$name" ;;
        struct)   printf 'printf("SIZE(%s, %%zu)\\n", sizeof(%s));\n' "$name" "$name" ;;
        field)    printf 'printf("FIELD(%s, %s, %%zu, %%zu)\\n", offsetof(%s, %s), sizeof(((%s *)0)->%s));\n' \
                      "$name" "$field" "$name" "$field" "$name" "$field" ;;
        esac
    done
    echo 'return 0; }'
} > "$scratch/golden.c"
${CC:-cc} -std=c11 -I"$include" "$scratch/golden.c" -o "$scratch/golden"

cat << 'EOF'
/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* The layout and the values of include/qattn.h, as literal numbers: CONSTANT(name, value), SIZE(struct, bytes),
 * FIELD(struct, field, offset, bytes). Written by `make abi-update`; a change here is a change of the ABI. */
#ifndef QATTN_TESTS_ABI_GOLDEN_H
#define QATTN_TESTS_ABI_GOLDEN_H

#define ABI_GOLDEN(CONSTANT, SIZE, FIELD) \
EOF
"$scratch/golden" | sed -e 's/^/    /' -e '$!s/$/ \\/'
printf '\n#endif\n'
