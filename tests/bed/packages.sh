#!/bin/sh
# Installs missing packages that the tests and the demonstration need: on Debian and its derivatives, as root. Elsewhere
# it prints what is missing, and the tests that need it are skipped by name. It never removes a package.
#
#   tests/bed/packages.sh [demo|suites|vm|image|chart]   with `demo`, only those for the demonstration; with `suites`, those
#                                            that make the roots of `make test-engines`; with `image` and `chart`, those
#                                            for `make image` and `make test-chart`; with `vm`, those for the machine of
#                                            `make test-vm` as well as those for the tests
set -eu

install() {
    if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null 2>&1; then
        echo "missing: $*; install them to run everything (as root on Debian this is done for you)" >&2
        return
    fi
    echo "installing: $*"
    log=$(mktemp)
    # The lists may be as old as the machine's image.
    if ! { apt-get update && apt-get install -y --no-install-recommends --no-remove "$@"; } > "$log" 2>&1; then
        tail -n 5 "$log" >&2
        echo "cannot install: $*" >&2
    fi
    rm -f "$log"
}

export DEBIAN_FRONTEND=noninteractive
# Adds to `packages` what of these pairs of program:package is not installed.
packages=
need() {
    for pair in "$@"; do
        PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%:*}" > /dev/null 2>&1 || packages="$packages ${pair#*:}"
    done
}

what=${1:-}
if [ "$what" = image ] || [ "$what" = chart ]; then
    [ "$what" = chart ] || need buildah:buildah readelf:binutils
    [ "$what" = image ] || python3 -m pip --version > /dev/null 2>&1 || packages="python3 python3-pip"
    # shellcheck disable=SC2086 # one word for each package
    [ -z "$packages" ] || install $packages
    exit 0
fi
need cc:gcc unshare:util-linux
# A compiler without the C library's headers and start files links nothing.
[ -e /usr/include/stdio.h ] || packages="$packages libc6-dev"
[ "$what" = suites ] || need conmon:conmon podman:podman busybox:busybox-static
if [ "$what" = demo ]; then
    command -v runc > /dev/null 2>&1 || need crun:crun
elif [ "$what" = suites ]; then
    need debootstrap:debootstrap
else
    need crun:crun runc:runc newuidmap:uidmap slirp4netns:slirp4netns bwrap:bubblewrap systemd-nspawn:systemd-container lxc-execute:lxc \
        musl-gcc:musl-tools strace:strace containerd:containerd dockerd:docker.io docker-compose:docker-compose \
        buildah:buildah promtool:prometheus rootlesskit:rootlesskit systemd-analyze:systemd ip:iproute2
    # A client of containerd's CRI.
    /usr/bin/python3 -c "import grpc" 2> /dev/null || packages="$packages python3-grpcio"
    # Programs of another architecture, and what runs them.
    if [ "$(uname -m)" = x86_64 ]; then
        need aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu qemu-aarch64-static:qemu-user-static
        [ -e /usr/aarch64-linux-gnu/include/stdio.h ] || packages="$packages libc6-dev-arm64-cross"
    fi
fi
[ "$what" != vm ] || need debootstrap:debootstrap mkfs.ext4:e2fsprogs
# shellcheck disable=SC2086 # one word for each package
[ -z "$packages" ] || install $packages
case $what in demo | suites) exit 0 ;; esac

# For a 32-bit loader in addition to the 64-bit one. gcc-multilib would remove cross compilers.
links32() {
    echo 'int main(void) { return 0; }' | gcc -m32 -xc - -o /dev/null 2> /dev/null
}
if [ "$(uname -m)" = x86_64 ] && command -v gcc > /dev/null 2>&1 && ! links32; then
    install libc6-dev-i386 "lib32gcc-$(gcc -dumpversion | cut -d. -f1)-dev"
fi
