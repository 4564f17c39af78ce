#!/bin/sh
# Builds the tarball $1 in the root $ROOT, and runs what it built. Called by root.sh, in a network namespace of its own.
set -eu
: "${ROOT:?}"
fail() { echo "FAILED: $*" >&2; exit 1; }
inside() { chroot "$ROOT" "$@"; }

[ "$(tail -n +3 "$ROOT/proc/net/dev" | grep -c -v ' lo:')" = 0 ] || fail "there is a network"
mkdir "$ROOT/build"
tar -xf "$ROOT/run/packages/$1" -C "$ROOT/build" --strip-components 1
inside rustc --version
inside make -C /build build
cd "$ROOT/build"
wanted=$(sed -n 's/^TRANCHE_VERSION ?= //p' release.mk)
for program in tranche tranche-oci; do
    version=$(inside "/build/target/tranche/$program" --version)
    [ "$version" = "$program $wanted" ] || fail "$program --version: expected $program $wanted, and it is $version"
    echo "$version"
done
[ -x target/tranche/tranche-runtime ] || fail "tranche-runtime was not built"
for program in tranche-verify tranche-load; do
    [ -x "target/tranche/$program" ] || fail "$program was not built"
done
inside /build/target/tranche/tranche list --inventory sim:t4x2 > listed || fail "tranche list"
cat listed
grep -q T4 listed || fail "tranche list does not show the GPUs"
ls -l target/tranche
echo "offline: built without a network"
