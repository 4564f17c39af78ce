#!/bin/sh
# Makes what the topic of turns puts in the place of the driver: the same test host with a driver that can suspend processes,
# its stand-in module, and a program that uses the GPU.
#
#   tests/vm/driver/turns.sh CACHE HOST FILES        of the test host in HOST, into FILES
set -eu
cache=$1 before=$2 files=$3
here=$(dirname "$0")
cargo=${CARGO:-cargo}
version=580.159.04
host=$cache/host-$version
# Where processes meet. It is no file system of a container, so that it is mounted into each.
meeting=/dev/tranche-test/meeting
rm -rf "$host"
mkdir -p "$files/before" "$files/now"

"$cargo" run --quiet --example fake-host -- --driver "$version" dgx-a100-mig "$host" > /dev/null
for of in before now; do
    [ $of = before ] && from=$before || from=$host
    cp -a "$from/usr/lib/x86_64-linux-gnu/." "$files/$of"
    # The host's stub of it would replace the machine's own.
    rm -f "$files/$of/libc.so.6"
done
"$cargo" run --quiet --example fake-host -- --cuda "$files/now/libcuda.so.$version"

# GPU 7 has little memory, and does nothing that NVML would see.
perl -0pe "s{\"minor\":7,.*?\"memory_mib\":\K\d+}{64}; s{(?=\"minor\":7,)}{\"turns\":\"$meeting\",\"utilization\":{\"gpu\":0,\"memory\":0},}" \
    "$host/fake-nvml.json" > "$files/loaded.json"
uuid=$(perl -0ne 'print $1 if /"uuid":"(GPU-[^"]*)","turns"/' "$files/loaded.json")
printf '{"version":12080,"gpus":[{"uuid":"%s","name":"NVIDIA A100-SXM4-40GB","sms":108,"memory_mib":64}],"turns":{"directory":"%s"}}\n' \
    "$uuid" "$meeting" > "$files/now/cuda.json"
printf '%s\n' "$uuid" > "$files/gpu"
printf '%s\n' "$version" > "$files/version"

"$here/build.sh" "$cache" "$host" "driver-$version"
install -m 644 "$cache/build/driver-$version/nvidia.ko" "$files/nvidia.ko"
"$cargo" build --quiet --example fake-cuda-client
install -m 755 target/debug/examples/fake-cuda-client "$files/program"
