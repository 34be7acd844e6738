#!/bin/sh
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
#
# usage: abi_names.sh qattn.h
# What the header promises, one name a line: `function NAME`, `constant NAME`, `struct NAME`, `field STRUCT NAME`.
# QATTN_VERSION* change with each release and are no part of the ABI.
set -eu

# The header without its comments.
code=$(tr '\n' '\001' < "$1" | sed -E 's,/\*[^*]*\*+([^/*][^*]*\*+)*/,,g' | tr '\001' '\n')

echo "$code" | tr '\n' ' ' | grep -o 'QATTN_API  *[^;#]*;' | grep -o 'qattn_[a-z0-9_]*(' | tr -d '(' | sort |
    sed 's/^/function /'
echo "$code" | sed -n 's/^#define \(QATTN_[A-Z0-9_]*\)  *[0-9].*/constant \1/p' | grep -v '^constant QATTN_VERSION'
echo "$code" | awk '
    /^typedef struct qattn_[a-z_]* \{/ { name = $3; print "struct " name; next }
    /^\}/ { name = "" }
    name != "" && /;/ {
        sub(/;.*/, "")
        count = split($0, part, ",")
        for (i = 1; i <= count; i++) {
            sub(/\[[^]]*\]/, "", part[i]); sub(/[ \t]*$/, "", part[i]); sub(/^.*[ *]/, "", part[i])
            print "field " name " " part[i]
        }
    }'
