#!/bin/sh
# Makes the root file system of a machine with systemd, cgroup v2 and podman, once: it is kept in CACHE/root.
#
#   tests/vm/machine.sh CACHE
#
# Needs root, debootstrap and a Debian mirror (the first one of this machine's apt).
set -eu
cache=$1
suite=bookworm
if [ -e "$cache/root.done" ]; then
    exit 0
fi
rm -rf "$cache/root"
mkdir -p "$cache"
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null | grep -v security | head -n 1)
case $(uname -m) in
    x86_64) kernel=linux-image-cloud-amd64 ;;
    aarch64) kernel=linux-image-cloud-arm64 ;;
    *) echo "test-vm: no kernel known for $(uname -m)" >&2; exit 1 ;;
esac
# debootstrap does not resolve virtual packages: podman needs some network stack, though none is used here.
packages=systemd,systemd-sysv,udev,dbus,dbus-user-session,libpam-systemd,kmod,podman,netavark,crun,runc,busybox-static,uidmap,$kernel
debootstrap --variant=minbase --include="$packages" "$suite" "$cache/root" "${mirror:-http://deb.debian.org/debian}" \
    > "$cache/debootstrap.log" 2>&1 || {
    # Without a running system some packages are left half done; a second try settles them.
    chroot "$cache/root" dpkg --configure -a >> "$cache/debootstrap.log" 2>&1
}
# What the machine does not need makes its disk slow to write.
rm -rf "$cache/root/var/cache/apt/archives" "$cache/root/var/lib/apt/lists" "$cache/root/usr/share/doc"
touch "$cache/root.done"
