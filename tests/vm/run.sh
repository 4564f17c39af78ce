#!/bin/sh
# Boots a machine with systemd and cgroup v2, runs tests/vm/guest in it, and judges by the lines on its console: each check
# of tests/vm/checks.txt must have been done, with success.
#
#   tests/vm/run.sh CACHE
#
# CACHE keeps the machine's disk between runs. `make deb` has made the package. Needs root, debootstrap and
# mkfs.ext4; the machine is emulated, so a processor that can virtualise is not needed.
set -eu
cache=$1
here=$(dirname "$0")
cargo=${CARGO:-cargo}

missing=""
for program in debootstrap mkfs.ext4; do
    PATH="$PATH:/usr/sbin:/sbin" command -v "$program" > /dev/null 2>&1 || missing="$missing $program"
done
[ "$(id -u)" = 0 ] || missing="$missing root"
# The driver of the test host is of this machine.
[ "$(uname -m)" = x86_64 ] || missing="$missing x86_64"
if [ -n "$missing" ]; then
    echo "not run: test-vm: missing:$missing"
    [ "${TRANCHE_TEST_STRICT:-0}" != 1 ]
    exit
fi

"$here/machine.sh" "$cache"
"$here/payload.sh" "$cache"

console=$cache/console.log
disk=$cache/run.img
cp --sparse=always "$cache/disk.img" "$disk"
: > "$console"
# Each boot is a program of its own, with the same disk.
# No login on the console: it would hang up the line that the checks write to.
# A machine that hangs must not hang the test: it needs minutes where it is emulated on a busy host.
for boot in first second; do
    [ $boot = first ] || grep -q '^result: reboot' "$console" || break
    timeout 2400 unshare -m "$here/emulator.sh" "$cache" -accel tcg -m 2048 -smp 2 -nographic -no-reboot -net none \
        -kernel boot/kernel -initrd boot/initrd \
        -append "root=/dev/vda rw console=ttyS0 quiet panic=-1 systemd.mask=serial-getty@ttyS0.service" \
        -drive "file=run.img,if=virtio,format=raw" \
        -drive "file=payload.tar,if=virtio,format=raw,readonly=on" < /dev/null >> "$console" 2>&1 || true
done
rm -f "$disk"

# The firmware leaves its own marks on the line of the first result.
tr -d '\r' < "$console" | sed 's/^.*\(result: \)/\1/' > "$console.text"
sed -n 's/^result: ok: //p' "$console.text" | sort > "$cache/passed"
sed '/^#/d; /^$/d' "$here/checks.txt" | sort > "$cache/wanted"
sed -n '/^result: /{s/^result: //;p;b}; /^  /p' "$console.text"
if ! grep -q '^result: end' "$console.text"; then
    echo "test-vm: the machine did not get to the end; its console:" >&2
    tail -n 20 "$console.text" >&2
    exit 1
fi
if ! comm -3 "$cache/wanted" "$cache/passed" > "$cache/differences" || [ -s "$cache/differences" ]; then
    echo "test-vm: these checks of tests/vm/checks.txt did not succeed, or (indented) are not in that file:" >&2
    cat "$cache/differences" >&2
    exit 1
fi
! grep -q '^result: failed' "$console.text"
