#!/bin/sh
# Gives the files of real drivers to containers of Debian 11, 12 and 13, and lets each image's own loader load them.
#
#   tests/real-driver/run.sh TRANCHE TRANCHE_OCI TRANCHE_VERIFY CACHE
#
# The hosts are roots of Debian with NVIDIA's packages (roots.sh): a driver in Debian's layout, and the same one in the
# layout of NVIDIA's installer. No GPU is needed: /proc is made of text, and NVIDIA's programs answer that there is no
# driver. It ends with a line `N passed, N failed`, and fails if anything failed.
set -eu
tranche=$1 oci=$2 verify=$3 cache=$4
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
"$here/roots.sh" "$cache"
cache=$(cd "$cache" && pwd)
bed=$cache/bed
rm -rf --one-file-system "${bed:?}"
mkdir -p "$bed"
passed=0 failed=0

check() { # WHAT COMMAND…: the command succeeds
    what=$1
    shift
    if "$@" > "$bed/check.text" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $what"
        tail -n 8 "$bed/check.text" | sed 's/^/    /'
    fi
}

# A machine with this driver and one GPU, which is made of text and of device nodes that nobody opens.
make_machine() { # VERSION DIRECTORY
    gpu=$2/proc/driver/nvidia/gpus/0000:01:00.0
    mkdir -p "$gpu" "$2/sys" "$2/dev"
    echo "NVRM version: NVIDIA UNIX x86_64 Kernel Module  $1  Thu May  2 00:00:00 UTC 2024" > "$2/proc/driver/nvidia/version"
    printf 'Character devices:\n195 nvidia\n195 nvidiactl\n508 nvidia-uvm\n\nBlock devices:\n' > "$2/proc/devices"
    printf 'Model: \t\t Tesla T4\nGPU UUID: \t GPU-11111111-2222-3333-4444-555555555555\nBus Type: \t PCIe\n%s\n%s\n' \
        'Bus Location: 	 0000:01:00.0' 'Device Minor: 	 0' > "$gpu/information"
    mknod "$2/dev/nvidia0" c 195 0
    mknod "$2/dev/nvidiactl" c 195 255
    mknod "$2/dev/nvidia-uvm" c 508 0
}

in_container() { # IMAGE SCRIPT
    limits=""
    prlimit --nofile=1048576:1048576 --nproc=4194304:4194304 true 2> /dev/null ||
        limits="--ulimit nofile=1024:1024 --ulimit nproc=1024:1024"
    runtime=$(command -v crun || command -v runc)
    # shellcheck disable=SC2086 # the limits are options
    unshare --mount --net --propagation private tests/bed/enter.sh "$bed/specs" \
        env -i PATH="$PATH" HOME="$bed" podman --storage-driver vfs --cgroup-manager cgroupfs --events-backend none \
        --root "$bed/store" --runroot "$bed/runroot" --runtime "$runtime" run --rm --network=none $limits \
        --volume "$verify:/tranche-verify:ro" --volume "$bed/libraries:/libraries:ro" --volume "$here/inside.sh:/inside.sh:ro" \
        --device nvidia.com/gpu=none --rootfs "$1:O" /bin/sh /inside.sh "$2"
}

for suite in bullseye bookworm trixie; do
    [ -e "$cache/$suite.done" ] || continue
    for layout in host flat; do
        host=$cache/$suite/$layout
        library=$(find "$host/usr/lib/x86_64-linux-gnu" -name 'libcuda.so.*.*' -type f | head -n 1)
        version=${library##*.so.}
        name="driver $version, $layout"
        rm -rf "$bed/machine" "$bed/specs"
        mkdir -p "$bed/specs"
        make_machine "$version" "$bed/machine"
        check "$name: specification" "$tranche" cdi generate --driver-root "$host" --dev-root "$bed/machine" \
            --proc-root "$bed/machine/proc" --sys-root "$bed/machine/sys" --no-nvml --cdi-version 0.5 \
            --nvidia-cdi-hook-path "$oci" --output "$bed/specs/nvidia.yaml"
        sed "s#$host##g" "$bed/specs/nvidia.yaml" | sed -n 's/^ *containerPath: *//p' | tr -d '"' | sort > "$bed/paths"
        # What is mounted is recorded: a change of a list shows here.
        list=$here/seen/$version-$layout.txt
        if [ "${TRANCHE_BLESS:-0}" = 1 ]; then
            mkdir -p "$here/seen"
            cp "$bed/paths" "$list"
        fi
        check "$name: the files of a container" diff -u "$list" "$bed/paths"
        grep '/lib.*\.so' "$bed/paths" > "$bed/libraries" || true
        for image in bullseye bookworm trixie; do
            [ -e "$cache/$image.done" ] || continue
            check "$name in a container of $image" in_container "$cache/$image/image" "$version"
        done
    done
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
