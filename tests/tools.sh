#!/bin/sh
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
#
# Sees to the tools the tests need (Debian's package names): installs them when root, else says how.
# tests/tools.sh python   prints the python3 the tests use: the first that has NumPy, else any.
set -u

find_python() {
    for candidate in python3 /usr/bin/python3; do
        "$candidate" -c 'import numpy' 2>/dev/null && echo "$candidate" && return
    done
    command -v python3 >/dev/null 2>&1 && echo python3
}

if [ "${1-}" = python ]; then
    find_python
    exit 0
fi

missing=
wanted=
if ! command -v pkg-config >/dev/null 2>&1; then
    missing="pkg-config check"
elif ! pkg-config --exists check; then
    missing=check
fi
command -v abidiff >/dev/null 2>&1 || missing="$missing abigail-tools"
command -v g++ >/dev/null 2>&1 || missing="$missing g++"
command -v readelf >/dev/null 2>&1 || missing="$missing binutils"
# Nice to have: without them the tests of the Python binding, or its NumPy part, are skipped, and say so.
python=$(find_python)
if [ -z "$python" ] || ! "$python" -c 'import numpy' 2>/dev/null; then
    wanted="python3 python3-numpy"
fi
missing=$(echo $missing)
[ -n "$missing$wanted" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    [ -n "$missing" ] || exit 0
    echo "The tests need: $missing. On Debian or Ubuntu run:" >&2
    echo "    sudo apt-get install -y $missing $wanted" >&2
    exit 1
fi
echo "TOOLS    installing $missing $wanted"
install_packages() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }
apt-get update -qq || [ -z "$missing" ] || exit 1
[ -z "$wanted" ] || install_packages $wanted || echo "TOOLS    $wanted could not be installed: its tests are skipped"
[ -z "$missing" ] || install_packages $missing
