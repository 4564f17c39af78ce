#!/bin/sh
# Installs the deb packages into clean roots of three suites, and removes and purges them. Called by run.sh.
set -eu
: "${here:?}" "${packages:?}" "${roots:?}" "${not_run:?}"
if [ "$(id -u)" != 0 ] || ! command -v debootstrap > /dev/null; then
    echo "install: needs root and debootstrap" >> "$not_run"
    exit 0
fi
"$here/clean-root.sh" "$roots"
for root in debian trixie sid; do
    # The archive may not have a suite, or not at this moment.
    if [ "$root" != debian ] && ! "$here/clean-root.sh" "$roots" "$root" "$root" systemd,man-db; then
        echo "install: debootstrap cannot make a root of $root" >> "$not_run"
        continue
    fi
    for test in deb kubelet-deb; do
        echo "$root: $test"
        CLEAN_ROOT=$root unshare -m --propagation private "$here/root.sh" "$roots" "$packages" "$here/in-root/$test.sh"
    done
done
