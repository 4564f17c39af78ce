#!/bin/sh
# Builds the tarball of `make dist` with the Rust of Debian unstable, in a clean root without a network, and runs what it built.
#
#   tests/packages/offline.sh TARBALL ROOTS
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tarball=$(readlink -f "$1")
mkdir -p "$2"
roots=$(cd "$2" && pwd)
"$here/clean-root.sh" "$roots" rust sid cargo,rustc,gcc,libc6-dev,make
exec unshare -m -n --propagation private env CLEAN_ROOT=rust \
    "$here/root.sh" "$roots" "$(dirname "$tarball")" "$here/in-root/offline.sh" "${tarball##*/}"
