#!/bin/sh
# Boots a machine with systemd and cgroup v2, runs tests/vm/guest.sh in it, and judges by the lines on its console.
#
#   tests/vm/run.sh CACHE TRANCHE TRANCHE_OCI
#
# CACHE keeps the machine's root file system between runs. Needs root, qemu, debootstrap and mkfs.ext4; the machine is
# emulated, so a processor that can virtualise is not needed.
set -eu
cache=$1
tranche=$2
oci=$3
here=$(dirname "$0")
qemu=qemu-system-$(uname -m)

missing=""
for program in "$qemu" debootstrap mkfs.ext4; do
    command -v "$program" > /dev/null 2>&1 || missing="$missing $program"
done
[ "$(id -u)" = 0 ] || missing="$missing root"
if [ -n "$missing" ]; then
    echo "not run: test-vm: missing:$missing"
    [ "${TRANCHE_TEST_STRICT:-0}" != 1 ]
    exit
fi

"$here/machine.sh" "$cache"
root=$cache/root
install -D -m 755 "$tranche" "$root/usr/bin/tranche"
install -D -m 755 "$oci" "$root/usr/bin/tranche-oci"
install -D -m 755 "$here/guest.sh" "$root/opt/test/guest.sh"
install -D -m 644 "$here/spec.json" "$root/opt/test/spec.json"
# A machine of files with a driver, from which the checks make a specification.
rm -rf "$root/opt/test/host"
"${CARGO:-cargo}" run --quiet --example fake-host -- dgx-a100-mig "$root/opt/test/host" > /dev/null
sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1 > "$root/opt/test/version"
install -D -m 644 "$here/tranche-test.service" "$root/etc/systemd/system/tranche-test.service"
ln -sf ../tranche-test.service "$root/etc/systemd/system/multi-user.target.wants/tranche-test.service"

disk=$cache/disk.img
rm -f "$disk"
truncate -s 2G "$disk"
mkfs.ext4 -q -d "$root" "$disk"

console=$cache/console.log
case $(uname -m) in
    aarch64) machine="-machine virt -cpu max"; serial=ttyAMA0 ;;
    *) machine=""; serial=ttyS0 ;;
esac
# No login on the console: it would hang up the line that the checks write to.
# A machine that hangs must not hang the test: it needs minutes where it is emulated on a busy host.
timeout 1500 "$qemu" $machine -accel tcg -m 2048 -smp 2 -nographic -no-reboot -net none \
    -kernel "$root"/boot/vmlinuz-* -initrd "$root"/boot/initrd.img-* \
    -append "root=/dev/vda rw console=$serial quiet systemd.mask=serial-getty@$serial.service" \
    -drive "file=$disk,if=virtio,format=raw" < /dev/null > "$console" 2>&1 || true
rm -f "$disk"

# The firmware leaves its own marks on the line of the first result.
tr -d '\r' < "$console" | sed 's/^.*\(result: \)/\1/' > "$console.text"
grep -A 4 '^result: ' "$console.text" || true
if ! grep -q '^result: end' "$console.text"; then
    echo "test-vm: the machine did not get to the end; its console:" >&2
    tail -n 20 "$console.text" >&2
    exit 1
fi
! grep -q '^result: failed' "$console.text"
