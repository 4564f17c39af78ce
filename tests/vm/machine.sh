#!/bin/sh
# Makes the disk of a machine with systemd, cgroup v2 and podman, and a copy of its files with what builds a kernel module
# and with the emulator, so that this machine needs neither. Both are kept, and made anew when this script has changed.
#
#   tests/vm/machine.sh CACHE        makes CACHE/disk.img, CACHE/boot/{kernel,initrd} and CACHE/build
#
# Needs root, debootstrap, mkfs.ext4 and a Debian mirror (the first one of this machine's apt).
set -eu
cache=$1
here=$(dirname "$0")
suite=bookworm
stamp=$(cat "$0" "$here/tranche-test.service" | sha256sum)
if [ "$(cat "$cache/stamp" 2> /dev/null)" = "$stamp" ]; then
    exit 0
fi
rm -rf "$cache/root" "$cache/build" "$cache/boot" "$cache/stamp"
mkdir -p "$cache/boot"
root=$cache/root
log=$cache/machine.log
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null | grep -v security | head -n 1)
# debootstrap does not resolve virtual packages: podman needs some network stack, though none is used here.
packages=systemd,systemd-sysv,udev,dbus,dbus-user-session,libpam-systemd,kmod,podman,netavark,crun,runc,busybox-static,uidmap,linux-image-cloud-amd64
debootstrap --variant=minbase --include="$packages" "$suite" "$root" "${mirror:-http://deb.debian.org/debian}" > "$log" 2>&1 || {
    # Without a running system some packages are left half done; a second try settles them.
    chroot "$root" dpkg --configure -a >> "$log" 2>&1
}
cp "$root"/boot/vmlinuz-* "$cache/boot/kernel"
cp "$root"/boot/initrd.img-* "$cache/boot/initrd"
basename "$root"/lib/modules/* > "$cache/boot/version"

# A compiler would make the machine's disk three times as large.
cp -a "$root" "$cache/build"
chroot "$cache/build" sh -c "apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y \
    --no-install-recommends gcc make qemu-system-x86 linux-headers-$(cat "$cache/boot/version")" >> "$log" 2>&1 || {
    tail -n 5 "$log" >&2
    exit 1
}

# The machine's only file of the tests: it unpacks the others from the second disk.
install -D -m 644 "$here/tranche-test.service" "$root/etc/systemd/system/tranche-test.service"
ln -sf ../tranche-test.service "$root/etc/systemd/system/multi-user.target.wants/tranche-test.service"
# What the machine does not need makes its disk slow to write.
rm -rf "$root/var/cache/apt/archives" "$root/var/lib/apt/lists" "$root/usr/share/doc"
truncate -s 2G "$cache/disk.img"
mkfs.ext4 -q -d "$root" "$cache/disk.img"
rm -rf "$root"
echo "$stamp" > "$cache/stamp"
