#!/bin/sh
# Makes the clean Debian root ROOTS/debian, once: the smallest one, with systemd (not running) and man.
#
#   tests/packages/clean-root.sh ROOTS
set -eu
roots=$1
[ ! -e "$roots/debian.done" ] || exit 0
rm -rf "$roots/debian"
# shellcheck disable=SC2016 # apt-get expands it
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2> /dev/null | grep debian.org | grep -v security | head -n 1)
debootstrap --variant=minbase --include=systemd,man-db bookworm "$roots/debian" \
    "${mirror:-http://deb.debian.org/debian}" > "$roots/debian.log" 2>&1 || { tail -n 5 "$roots/debian.log" >&2; exit 1; }
rm -rf "$roots/debian/var/cache/apt/archives" "$roots/debian/var/lib/apt/lists"
touch "$roots/debian.done"
