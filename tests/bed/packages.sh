#!/bin/sh
# Installs what the tests and the demonstration need and do not find: on Debian and its kin, as root. Elsewhere it says
# what is missing; the tests that need it are then left out by name.
set -eu

# program:package
needed="cc:gcc conmon:conmon podman:podman crun:crun runc:runc busybox:busybox-static newuidmap:uidmap unshare:util-linux musl-gcc:musl-tools strace:strace"
programs=""
packages=""
for pair in $needed; do
    program=${pair%%:*}
    PATH="$PATH:/usr/sbin:/sbin" command -v "$program" > /dev/null 2>&1 && continue
    programs="$programs $program"
    packages="$packages ${pair#*:}"
done
# A compiler without the C library's headers and start files links nothing.
[ -e /usr/include/stdio.h ] || packages="$packages libc6-dev"
[ -n "$packages" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null 2>&1; then
    echo "installing:$packages"
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    # The lists may be as old as the machine's image.
    if ! { apt-get update && apt-get install -y --no-install-recommends $packages; } > "$log" 2>&1; then
        tail -n 5 "$log" >&2
        echo "cannot install:$packages" >&2
    fi
    rm -f "$log"
else
    echo "missing:$programs; install them to run everything (as root on Debian this is done for you)" >&2
fi
