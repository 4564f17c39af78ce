#!/bin/sh
# Packs what the machine unpacks at its first boot: the deb package, a driver's files, its stand-in for a kernel module, and
# the checks.
#
#   tests/vm/payload.sh CACHE        makes CACHE/payload.tar
set -eu
cache=$1
here=$(dirname "$0")
cargo=${CARGO:-cargo}
files=$cache/payload
host=$cache/host
rm -rf "$files" "$host"
mkdir -p "$files/usr/bin" "$files/opt/test"
cp target/package/tranche_*.deb "$files/opt/test/tranche.deb"

# A driver whose library answers from a file and whose programs are fakes: eight A100, two of them without MIG.
"$cargo" build --quiet --example fake-mps
"$cargo" run --quiet --example fake-host -- dgx-a100-mig "$host" > /dev/null
# The host's stub of it would replace the machine's own.
rm "$host/usr/lib/x86_64-linux-gnu/libc.so.6"
cp -a "$host/usr" "$files"
for program in nvidia-cuda-mps-control nvidia-cuda-mps-server nvidia-smi; do
    install -m 755 target/debug/examples/fake-mps "$files/usr/bin/$program"
done
# What the driver keeps in the kernel is lost at a boot, and a service may change it that may not write to the disk. Both
# are true of /dev.
ln -s /dev/tranche-test/nvml.json "$files/fake-nvml.json"
ln -s /dev/tranche-test/modes "$files/fake-nvml.state.json"
echo '{"record": "/dev/tranche-test/record"}' > "$files/fake-mps.json"
cp "$host/fake-nvml.json" "$files/opt/test/loaded.json"
sed '1s/^{/{"faults":{"init":"DRIVER_NOT_LOADED"},/' "$host/fake-nvml.json" > "$files/opt/test/not-loaded.json"
# At the second boot, the instances of two GPUs are lost, and the driver makes none on one of them.
instances='"mig":\{[^\[\{]*"instances":\K(\[(?:[^\[\]]++|(?1))*\])'
perl -0pe "s/\"minor\":0,.*?$instances/[]/; s/\"minor\":1,.*?$instances/[]/;
    s/\"minor\":1,/\"minor\":1,\"errors\":{\"nvmlDeviceCreateGpuInstanceWithPlacement\":\"TIMEOUT\"},/" \
    "$host/fake-nvml.json" > "$files/opt/test/next-boot.json"
install -D -m 644 "$here/driver/tmpfiles.conf" "$files/etc/tmpfiles.d/tranche-test.conf"
install -D -m 644 "$here/driver/udev.rules" "$files/etc/udev/rules.d/50-tranche-test.rules"
"$here/driver/build.sh" "$cache" "$host" driver
install -D -m 644 "$cache/build/driver/nvidia.ko" "$files/usr/lib/modules/$(cat "$cache/boot/version")/extra/nvidia.ko"
"$here/driver/turns.sh" "$cache" "$host" "$files/opt/test/turns"

cp -a "$here/guest" "$here/spec.json" docs/how-to/team.md "$files/opt/test"
mkdir "$files/opt/test/pages"
cp docs/tutorials/*.md docs/how-to/*.md "$files/opt/test/pages"
target/package/root/usr/bin/tranche --version > "$files/opt/test/version"
tar -C "$files" --owner=0 --group=0 -cf "$cache/payload.tar" .
