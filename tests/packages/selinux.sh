#!/bin/sh
# Installs the SELinux module into the policy of a clean root. Called by run.sh.
set -eu
: "${here:?}" "${packages:?}" "${roots:?}" "${not_run:?}"
if [ "$(id -u)" != 0 ] || ! command -v debootstrap > /dev/null; then
    echo "selinux: needs root and debootstrap" >> "$not_run"
    exit 0
fi
"$here/clean-root.sh" "$roots" selinux bookworm selinux-policy-default,policycoreutils,setools
CLEAN_ROOT=selinux exec unshare -m --propagation private "$here/root.sh" "$roots" "$packages" "$here/in-root/selinux.sh"
