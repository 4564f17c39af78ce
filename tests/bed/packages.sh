#!/bin/sh
# Installs what the tests and the demonstration need and do not find: on Debian and its kin, as root. Elsewhere it says
# what is missing; the tests that need it are then left out by name. Nothing that is installed is ever removed.
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
    musl-gcc:musl-tools strace:strace"
set --
for pair in $needed; do
    PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%:*}" > /dev/null 2>&1 || set -- "$@" "${pair#*:}"
done
# A compiler without the C library's headers and start files links nothing.
[ -e /usr/include/stdio.h ] || set -- "$@" libc6-dev
[ $# = 0 ] || install "$@"

# For a loader of 32 bits beside that of 64. Not gcc-multilib, which would have cross compilers go.
links32() {
    echo 'int main(void) { return 0; }' | gcc -m32 -xc - -o /dev/null 2> /dev/null
}
if [ "$(uname -m)" = x86_64 ] && command -v gcc > /dev/null 2>&1 && ! links32; then
    install libc6-dev-i386 "lib32gcc-$(gcc -dumpversion | cut -d. -f1)-dev"
fi
