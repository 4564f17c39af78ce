#!/bin/sh
# Runs a command in a clean Debian root that is gone afterwards, with the packages in /run/packages. Called by the tests of
# packages in a mount namespace of its own. CLEAN_ROOT is the name of another root than ROOTS/debian.
#
#   unshare -m --propagation private tests/packages/root.sh ROOTS PACKAGES COMMAND [ARGUMENT]...
set -eu
roots=$1 packages=$2
shift 2

work=$(mktemp -d "$roots/work.XXXXXX")
trap 'umount -R "$work" 2> /dev/null || true; rmdir "$work"' EXIT
mount -t tmpfs -o mode=755 tmpfs "$work"
mkdir "$work/upper" "$work/work" "$work/root"
mount -t overlay -o "lowerdir=$roots/${CLEAN_ROOT:-debian},upperdir=$work/upper,workdir=$work/work" overlay "$work/root"
mount -t proc proc "$work/root/proc"
mount -t tmpfs -o mode=755 tmpfs "$work/root/run"
mount -t tmpfs -o mode=1777 tmpfs "$work/root/tmp"
mount --rbind /dev "$work/root/dev"
mkdir "$work/root/run/packages"
mount --bind "$packages" "$work/root/run/packages"
status=0
env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LC_ALL=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive "ROOT=$work/root" "$@" || status=$?
exit $status
