#!/bin/sh
# Installs the rpm packages into a clean root, and removes them. Called by run.sh.
set -eu
: "${here:?}" "${packages:?}" "${roots:?}" "${not_run:?}"
if [ "$(id -u)" != 0 ] || ! command -v debootstrap > /dev/null || ! command -v rpm > /dev/null; then
    echo "rpm: needs root, debootstrap and rpm" >> "$not_run"
    exit 0
fi
"$here/clean-root.sh" "$roots"
for test in rpm kubelet-rpm; do
    unshare -m --propagation private "$here/root.sh" "$roots" "$packages" "$here/in-root/$test.sh"
done
