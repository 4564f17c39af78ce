#!/bin/sh
# Installs missing packages that the tests and the demonstration need: on Debian and its derivatives, as root. Elsewhere
# it prints what is missing, and the tests that need it are skipped by name. It never removes a package.
#
#   tests/bed/packages.sh [vm]       with `vm`, those for the machine of `make test-vm` as well
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
# program:package
needed="cc:gcc conmon:conmon podman:podman crun:crun runc:runc busybox:busybox-static newuidmap:uidmap unshare:util-linux
    bwrap:bubblewrap systemd-nspawn:systemd-container lxc-execute:lxc
    musl-gcc:musl-tools strace:strace containerd:containerd dockerd:docker.io systemd-analyze:systemd"
# Programs of another architecture, and what runs them.
[ "$(uname -m)" != x86_64 ] ||
    needed="$needed aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu qemu-aarch64-static:qemu-user-static"
case ${1:-} in
    vm) needed="$needed debootstrap:debootstrap mkfs.ext4:e2fsprogs" ;;
esac
set --
for pair in $needed; do
    PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%:*}" > /dev/null 2>&1 || set -- "$@" "${pair#*:}"
done
# A compiler without the C library's headers and start files links nothing.
[ -e /usr/include/stdio.h ] || set -- "$@" libc6-dev
[ "$(uname -m)" != x86_64 ] || [ -e /usr/aarch64-linux-gnu/include/stdio.h ] || set -- "$@" libc6-dev-arm64-cross
[ $# = 0 ] || install "$@"

# For a 32-bit loader in addition to the 64-bit one. gcc-multilib would remove cross compilers.
links32() {
    echo 'int main(void) { return 0; }' | gcc -m32 -xc - -o /dev/null 2> /dev/null
}
if [ "$(uname -m)" = x86_64 ] && command -v gcc > /dev/null 2>&1 && ! links32; then
    install libc6-dev-i386 "lib32gcc-$(gcc -dumpversion | cut -d. -f1)-dev"
fi
