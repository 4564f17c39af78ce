#!/bin/sh
# Runs a command as root of a user namespace of its own, with mounts, processes and an empty /run of its own. The user needs
# no privilege for that, and the tests of hooks can mount and change the root directory.
#
#   tests/bed/own-namespace.sh COMMAND [ARGUMENT]...
#
# With --check it says whether that works here, by its exit code.
set -eu
[ "${1:-}" != --check ] || set -- true
# A network of its own, because sysfs is mounted only by the owner of one.
exec unshare --user --map-root-user --mount --propagation private --net --pid --fork --mount-proc --kill-child \
    sh -c 'mount -t tmpfs -o mode=755 tmpfs /run && exec "$@"' sh "$@"
