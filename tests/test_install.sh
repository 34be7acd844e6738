#!/bin/sh
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
#
# usage: MAKE=make CC=gcc CXX=g++ CUDA=0 test_install.sh SCRATCH
# Installs into a scratch DESTDIR, builds every example against the installed tree through pkg-config alone, runs
# them, links one statically, uninstalls, and looks for what is left. Two prefixes: the default one found by
# `pkg-config --define-prefix`, and a distribution's (/usr, multiarch LIBDIR) through a sysroot.
set -u

scratch=$1
passed=0 failed=0 skipped=0
rm -rf "$scratch" && mkdir -p "$scratch" && scratch=$(cd "$scratch" && pwd)

expect() {    # text; status of the last command
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
    else
        echo "failed: $1"
        failed=$((failed + 1))
    fi
}

run() {       # log name, command...: output is shown only when it fails
    log=$scratch/$1.log
    shift
    "$@" > "$log" 2>&1 < /dev/null && return 0
    echo "  \$ $*"
    tail -n 15 "$log" | sed 's/^/  /'
    return 1
}

build_and_run() {    # source; pc is the pkg-config command of the installed tree
    name=$(basename "$(dirname "$1")")
    case $1 in
    *.cc) compiler="${CXX:-g++} -std=c++11" ;;
    *)    compiler="${CC:-gcc} -std=c11" ;;
    esac
    cp "$1" "$work/"
    # 04_dlopen finds the library at run time: it takes the header alone.
    case $name in
    *dlopen*) libs=-ldl ;;
    *)        libs=$($pc --libs qattn) ;;
    esac
    (cd "$work" && run "$name-build" $compiler -Wall -Wextra -Werror \
        "$(basename "$1")" $($pc --cflags qattn) $libs -lm -o "$name")
    expect "$name builds through pkg-config" $? || return
    (cd "$work" && LD_LIBRARY_PATH=$root$libdir run "$name" "./$name")
    expect "$name runs" $?
}

link_static() {
    cp examples/01_hello/hello.c "$work/"
    (cd "$work" && run static-build ${CC:-gcc} -std=c11 hello.c $($pc --cflags qattn) \
        $($pc --static --libs qattn | sed 's/-lqattn/-l:libqattn.a/') -lm -o hello_static &&
        run static ./hello_static && ! readelf -d hello_static | grep -q libqattn)
    expect '01_hello links libqattn.a and runs alone' $?
}

run_python() {       # the binding, copied out of the source tree, on the installed library
    if ! command -v python3 >/dev/null 2>&1; then
        echo "skipped: the Python example (python3 is not installed)"
        skipped=$((skipped + 1))
        return
    fi
    mkdir -p "$work/python" && cp examples/python/*.py "$work/python/"
    (cd "$work/python" && QATTN_LIBRARY=$root$libdir/$soname run python python3 -B -c "
import ctypes, qattn
print(qattn.__file__)
name, value = b'sizeof(qattn_attn_params)', ctypes.c_int64()
library = ctypes.CDLL('$root$libdir/$soname')
assert library.qattn_query(name, ctypes.byref(value)) == 0 and value.value == 872, value")
    expect 'examples/python/qattn.py loads the installed library' $?
    for script in "$work"/python/*.py; do
        [ "$(basename "$script")" = qattn.py ] && continue
        (cd "$work/python" && QATTN_LIBRARY=$root$libdir/$soname run "$(basename "$script")" python3 -B "$script")
        status=$?
        missing=$(sed -n "s/^ModuleNotFoundError: No module named '\(numpy\|torch\|transformers\)'$/\1/p" \
            "$scratch/$(basename "$script").log")
        if [ $status != 0 ] && [ -n "$missing" ]; then
            echo "skipped: $(basename "$script") ($missing is not installed)"
            skipped=$((skipped + 1))
        else
            expect "$(basename "$script") runs on the installed library" $status
        fi
    done
}

one_prefix() {       # name, prefix, libdir, how pkg-config finds it: define or sysroot
    root=$scratch/$1 prefix=$2 libdir=$3 work=$scratch/$1-work
    soname=libqattn.so.$(sed -n 's/^#define QATTN_ABI_VERSION *\([0-9]*\).*/\1/p' include/qattn.h)
    mkdir -p "$work"
    if [ "$4" = define ]; then
        export PKG_CONFIG_LIBDIR="$root$libdir/pkgconfig"
        unset PKG_CONFIG_SYSROOT_DIR
        pc='pkg-config --define-prefix'
    else
        export PKG_CONFIG_LIBDIR="$root$libdir/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root"
        pc=pkg-config
    fi
    places="DESTDIR=$root PREFIX=$prefix LIBDIR=$libdir INCLUDEDIR=$prefix/include CUDA=${CUDA:-0}"
    run "$1-install" ${MAKE:-make} --no-print-directory install $places
    expect "make install ($1)" $?
    ! grep -q "$root" "$root$libdir/pkgconfig/qattn.pc"
    expect "qattn.pc does not name DESTDIR ($1)" $?
    $pc --exists qattn && [ "$($pc --variable=abi_version qattn)" = "${soname##*.}" ]
    expect "pkg-config finds qattn ($1)" $?
    for source in examples/[0-9]*/*.c examples/[0-9]*/*.cc; do
        [ -f "$source" ] && build_and_run "$source"
    done
    link_static
    run_python
    run "$1-uninstall" ${MAKE:-make} --no-print-directory uninstall $places
    expect "make uninstall ($1)" $?
    left=$(find "$root" ! -type d)
    [ -z "$left" ]
    expect "nothing is left after uninstall ($1): $left" $?
}

one_prefix local /usr/local /usr/local/lib define
one_prefix distribution /usr /usr/lib/x86_64-linux-gnu sysroot

if [ $skipped = 0 ]; then
    echo "$passed passed, $failed failed"
else
    echo "$passed passed, $failed failed, $skipped skipped"
fi
[ $failed = 0 ]
