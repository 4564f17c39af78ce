#!/bin/sh
# Installs the deb packages into a clean root, and removes and purges them. Called by run.sh.
set -eu
: "${here:?}" "${packages:?}" "${roots:?}" "${not_run:?}"
if [ "$(id -u)" != 0 ] || ! command -v debootstrap > /dev/null; then
    echo "install: needs root and debootstrap" >> "$not_run"
    exit 0
fi
"$here/clean-root.sh" "$roots"
for test in deb kubelet-deb; do
    unshare -m --propagation private "$here/root.sh" "$roots" "$packages" "$here/in-root/$test.sh"
done
