#!/bin/sh
# Starts a real container with one MIG device of a DGX that exists only as files: makes the files, writes the
# specification of that machine, and gives it to podman.
#
#   demo/run.sh TRANCHE TRANCHE_OCI FAKE_HOST
set -eu
tranche=$1
oci=$PWD/$2
fake_host=$3
host_name=${DEMO_HOST:-dgx-a100-mig}
device=${DEMO_DEVICE:-nvidia.com/gpu=0:0}
# The files of the demonstration. make runs this script in the repository's root.
here=target/demo
bed=$PWD/$here
rm -rf "$bed"
mkdir -p "$bed/specs"

say() {
    printf '\n== %s\n' "$1"
}

show() {
    printf '$ %s\n' "$*" | sed "s#$PWD/##g"
    "$@"
}

say "A machine made of files: $host_name"
host=$("$fake_host" "$host_name" "$bed/host")
set -- --driver-root "$host" --dev-root "$host" --proc-root "$host/proc" --sys-root "$host/sys"

say "What tranche finds on it"
show "$tranche" list "$@"

say "Its CDI specification"
show "$tranche" cdi generate "$@" --cdi-version 0.5 --nvidia-cdi-hook-path "$oci" --output "$here/specs/nvidia.yaml"
show "$tranche" cdi list --spec-dir "$here/specs" | grep -v -e GPU- -e MIG-

say "A container with $device"
engine_missing=""
[ "$(id -u)" = 0 ] || engine_missing="only root can give an engine specifications of its own"
for program in podman busybox unshare; do
    command -v "$program" > /dev/null 2>&1 || engine_missing="$program is not installed"
done
runtime=$(command -v crun || command -v runc || true)
[ -n "$runtime" ] || engine_missing="neither crun nor runc is installed"
if [ -n "$engine_missing" ]; then
    echo "No container is started: $engine_missing. A container would get:"
    show "$tranche" cdi inspect "$device" --spec-dir "$here/specs"
    exit
fi

image=$bed/image
mkdir -p "$image/bin" "$image/proc" "$image/sys" "$image/dev" "$image/etc" "$image/tmp" "$image/run" "$image/usr/lib"
cp "$(command -v busybox)" "$image/bin/busybox"
for applet in sh ls find grep sort wc readlink; do ln -s busybox "$image/bin/$applet"; done

# On some machines, podman's default limits are higher than this process may set.
limits=""
prlimit --nofile=1048576:1048576 --nproc=4194304:4194304 true 2> /dev/null \
    || limits="--ulimit nofile=1024:1024 --ulimit nproc=1024:1024"
inside='echo "GPU and MIG capability nodes:"
ls -l /dev/nvidia* | grep ^c
echo "driver libraries: $(find /usr/lib* -type f -name "lib*.so.*" | wc -l) files, $(find /usr/lib* -type l -name "lib*.so*" | wc -l) links, such as:"
find /usr/lib* -name "libcuda.so*" -o -name "libnvidia-ml.so*" | sort | while read -r name; do
    if [ -L "$name" ]; then echo "  $name -> $(readlink "$name")"; else echo "  $name"; fi
done'
printf '$ podman run --device %s IMAGE sh\n' "$device"
# shellcheck disable=SC2086 # the limits are options
unshare --mount --net --propagation private tests/bed/enter.sh "$bed/specs" \
    env -i PATH="$PATH" HOME="$bed" podman --storage-driver vfs --cgroup-manager cgroupfs --events-backend none \
    --root "$bed/store" --runroot "$bed/runroot" --runtime "$runtime" \
    run --rm --network=none $limits "--device=$device" --rootfs "$image" /bin/sh -c "$inside"
