#!/bin/sh
# Makes roots of Debian with and without NVIDIA's driver for the tests of real drivers.
#
#   tests/real-driver/roots.sh CACHE
#
# CACHE/SUITE/image is a minimal root. CACHE/SUITE/host has NVIDIA's driver as Debian's packages lay it out, and
# CACHE/SUITE/flat the same files as NVIDIA's installer does: all libraries in one directory. The packages come from the
# component non-free of Debian; nothing of them is part of tranche. A complete root is kept. A line `not run: SUITE: REASON`
# says what cannot be made. Needs root, debootstrap and a network.
set -eu
cache=$1
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
# Held until this process and all that it started have ended.
exec 9> "$cache/lock"
flock 9
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2> /dev/null | grep 'debian.org/debian$' | head -n 1)
mirror=${mirror:-http://deb.debian.org/debian}

# What a driver has, beside what these need. Not every driver has each of them.
packages="libcuda1 libnvidia-ml1 nvidia-smi nvidia-opencl-icd nvidia-cuda-mps libnvidia-ptxjitcompiler1 libnvidia-nvvm4
    libnvidia-compiler libnvcuvid1 libnvidia-encode1 libnvidia-fbc1 libnvidia-cfg1 libnvoptix1 libnvidia-rtcore
    libcudadebugger1 libnvidia-allocator1 libnvidia-eglcore libnvidia-glcore libnvidia-opticalflow1 libnvidia-ngx1
    nvidia-persistenced"

in_root() {
    root=$1
    shift
    unshare --mount --pid --fork --kill-child --propagation private sh -eu -c '
        root=$1
        shift
        mount -t proc proc "$root/proc"
        exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
    ' sh "$root" "$@" < /dev/null
}

make_image() {
    PATH="$PATH:/usr/sbin:/sbin" unshare --mount --propagation private \
        debootstrap --variant=minbase --include=ca-certificates "$suite" "$top/image" "$mirror" &&
        rm -rf "$top/image/var/cache/apt/archives"
}

make_host() {
    cp -a "$top/image" "$top/host"
    mkdir -p "$top/host/var/cache/apt/archives/partial"
    echo "deb $mirror $suite main contrib non-free" > "$top/host/etc/apt/sources.list"
    echo 'Acquire::Check-Valid-Until "false";' > "$top/host/etc/apt/apt.conf.d/90-tranche-test"
    printf '#!/bin/sh\nexit 101\n' > "$top/host/usr/sbin/policy-rc.d"
    chmod 755 "$top/host/usr/sbin/policy-rc.d"
    cp /etc/resolv.conf "$top/host/etc/resolv.conf"
    in_root "$top/host" apt-get update
    has=
    for package in $packages; do
        # The version of the suite's own driver, if it has this package at all.
        in_root "$top/host" apt-cache show "$package" > /dev/null 2>&1 && has="$has $package"
    done
    # shellcheck disable=SC2086 # one word for each package
    in_root "$top/host" apt-get install --yes --no-install-recommends $has
    in_root "$top/host" apt-get clean
}

# All libraries that Debian has below nvidia/current, in the directory above, with their own links.
make_flat() {
    cp -a "$top/host" "$top/flat"
    dir=$top/flat/usr/lib/x86_64-linux-gnu
    # Links of the alternatives, which lead to the directory that goes away.
    find "$dir" -maxdepth 1 -type l -lname '*/etc/alternatives/*' -name 'lib*nv*' -exec rm -f {} +
    find "$dir" -maxdepth 1 -type l -lname '*/etc/alternatives/*' -name 'libcuda*' -exec rm -f {} +
    cp -a "$dir/nvidia/current/." "$dir/"
    rm -rf "$dir/nvidia"
    for program in nvidia-smi nvidia-debugdump; do
        if [ -e "$top/host/usr/lib/nvidia/current/$program" ]; then
            rm -f "$top/flat/usr/bin/$program"
            cp -a "$top/host/usr/lib/nvidia/current/$program" "$top/flat/usr/bin/$program"
        fi
    done
    rm -rf "$top/flat/usr/lib/nvidia"
    in_root "$top/flat" ldconfig
}

for suite in bullseye bookworm trixie; do
    top=$cache/$suite
    [ ! -e "$top.done" ] || continue
    rm -rf --one-file-system "${top:?}"
    mkdir -p "$top"
    echo "== $suite: makes its roots (a minute or two)"
    if { make_image && make_host && make_flat; } > "$top.log" 2>&1; then
        : > "$top.done"
    else
        echo "not run: real driver of $suite: its roots cannot be made: $(grep -v '^[[:space:]]*$' "$top.log" | tail -n 1)"
    fi
done
