#!/bin/sh
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
#
# usage: test_symbols.sh DIR SO_FULL SONAME
# The built artefact: what libqattn.so exports and needs, and what libqattn.a defines.
set -u

dir=$1 so=$1/$2 soname=$3 here=$(dirname "$0")
passed=0 failed=0

expect() {    # text; status of the last command
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
    else
        echo "failed: $1"
        failed=$((failed + 1))
    fi
}
same() {      # text, expected list, actual list
    [ "$2" = "$3" ]
    expect "$1" $?
    [ "$2" = "$3" ] || { echo "  expected: $(echo $2)"; echo "  found:    $(echo $3)"; }
}

listed=$(cat lib/libqattn.symbols)
same 'lib/libqattn.symbols is sorted' "$(echo "$listed" | LC_ALL=C sort -u)" "$listed"
same 'exported symbols' "$listed" \
    "$(nm -D --defined-only "$so" | awk '$2 != "A" { print $3 }' | sed 's/@.*//' | LC_ALL=C sort)"
same 'functions of include/qattn.h' "$listed" "$(sh "$here/abi_names.sh" include/qattn.h | sed -n 's/^function //p')"
same 'names in lib/libqattn.map' "$listed" \
    "$(sed -n 's/^ *\(qattn_[a-z0-9_]*\);.*/\1/p' lib/libqattn.map | LC_ALL=C sort)"
same 'every constant, struct and field of the header has its number in tests/abi_golden.h' \
    "$(sh "$here/abi_names.sh" include/qattn.h |
        sed -n -e 's/^constant //p' -e 's/^struct //p' -e 's/^field //p' | LC_ALL=C sort)" \
    "$(sed -n -e 's/^ *CONSTANT(\([^,]*\),.*/\1/p' -e 's/^ *SIZE(\([^,]*\),.*/\1/p' \
        -e 's/^ *FIELD(\([^,]*\), \([^,]*\),.*/\1 \2/p' tests/abi_golden.h | LC_ALL=C sort)"

same 'soname' "$soname" "$(readelf -d "$so" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')"
same 'the links' "$2 $soname" "$(readlink "$dir/$soname") $(readlink "$dir/libqattn.so")"

needed=$(readelf -d "$so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
echo "NEEDED: $(echo $needed)"
foreign=$(echo "$needed" | grep -Ev '^(libc|libm|libpthread|libdl|librt)\.so\.[0-9]+$|^ld-linux[a-z0-9_.-]*$')
same "NEEDED names libc's own parts only" '' "$foreign"

same 'no RPATH or RUNPATH' '' "$(readelf -d "$so" | grep -E '\((RPATH|RUNPATH)\)')"
same 'no text relocations' '' "$(readelf -d "$so" | grep TEXTREL)"
same 'the stack is not executable' 'RW' "$(readelf -lW "$so" | awk '$1 == "GNU_STACK" { print $7 }')"
readelf -d "$so" | grep -q NODELETE
expect 'flag NODELETE (threads survive dlclose)' $?
same 'one version node, named after the ABI' "QATTN_${soname##*.}" \
    "$(readelf -VW "$so" | sed -n 's/.*Name: \(QATTN_[0-9.]*\)$/\1/p' | sort -u)"
echo "highest GLIBC version needed: $(readelf -VW "$so" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)"
bytes=$(wc -c < "$so")
echo "size: $bytes bytes"
[ "$bytes" -le 20971520 ]
expect 'the shared library has at most 20 MB' $?

# A static link puts our private names beside the program's: all must carry the prefix.
same 'global names of libqattn.a begin with qattn_' '' \
    "$(nm --defined-only --extern-only "$dir/libqattn.a" 2>/dev/null | awk 'NF == 3 { print $3 }' | grep -v '^qattn_')"
# The library reports by status: it never ends the process and prints nowhere but on stderr (QATTN_LOG).
forbidden='_?exit|_Exit|quick_exit|abort|printf|__printf_chk|puts|putchar|perror|system|signal|sigaction|stdout'
[ "${DEBUG:-0}" = 1 ] || forbidden="$forbidden|__assert_fail"
same 'no exit, abort, assert or print in the library' '' \
    "$(nm --undefined-only "$dir/libqattn.a" 2>/dev/null | awk 'NF == 2 { print $2 }' |
        grep -Ex "$forbidden" | sort -u)"

echo "$passed passed, $failed failed"
[ $failed = 0 ]
