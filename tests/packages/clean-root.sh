#!/bin/sh
# Makes the clean Debian root ROOTS/NAME, once: the smallest one of SUITE with PACKAGES, which do not run. Without a name it
# is ROOTS/debian, with systemd and man.
#
#   tests/packages/clean-root.sh ROOTS [NAME SUITE PACKAGE,...]
set -eu
roots=$1 name=${2:-debian} suite=${3:-bookworm} include=${4:-systemd,man-db}
[ ! -e "$roots/$name.done" ] || exit 0
rm -rf "${roots:?}/$name"
# shellcheck disable=SC2016 # apt-get expands it
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2> /dev/null | grep debian.org | grep -v security | head -n 1)
debootstrap --variant=minbase --include="$include" "$suite" "$roots/$name" \
    "${mirror:-http://deb.debian.org/debian}" > "$roots/$name.log" 2>&1 || { tail -n 5 "$roots/$name.log" >&2; exit 1; }
rm -rf "$roots/$name/var/cache/apt/archives" "$roots/$name/var/lib/apt/lists"
touch "$roots/$name.done"
