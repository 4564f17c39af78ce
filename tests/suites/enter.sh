#!/bin/sh
# Runs a program of this checkout in the root of a Debian suite: with that suite's programs and libraries, processes and a
# network of its own, and this machine's kernel. All that it started ends with it.
#
#   TRANCHE_SUITE_ROOT=ROOT tests/suites/enter.sh PROGRAM [ARGUMENT]...
set -eu
checkout=$(cd "$(dirname "$0")/../.." && pwd)
export checkout
# shellcheck disable=SC2016 # the inner shell expands it
exec unshare --mount --pid --fork --kill-child --net --propagation private sh -eu -c '
    root=$TRANCHE_SUITE_ROOT
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount -t sysfs sysfs "$root/sys"
    mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
    # As udev makes it: every user may open these.
    mount -t tmpfs -o mode=755 tmpfs "$root/dev"
    mkdir "$root/dev/net" "$root/dev/pts" "$root/dev/shm" "$root/dev/mqueue"
    for node in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0 fuse:10:229 net/tun:10:200; do
        numbers=${node#*:}
        mknod --mode=666 "$root/dev/${node%%:*}" c "${numbers%:*}" "${numbers#*:}"
    done
    mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts "$root/dev/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    mount -t mqueue mqueue "$root/dev/mqueue"
    ln -s pts/ptmx "$root/dev/ptmx"
    for link in fd:/proc/self/fd stdin:/proc/self/fd/0 stdout:/proc/self/fd/1 stderr:/proc/self/fd/2; do
        ln -s "${link#*:}" "$root/dev/${link%%:*}"
    done
    mkdir -p "$root$checkout"
    mount --bind "$checkout" "$root$checkout"
    cd "$root"
    # Not chroot: in one, nobody may make a user namespace.
    pivot_root . .
    umount -l .
    # There is no Rust here: what the tests need was compiled before.
    unset CARGO
    export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/tmp
    cd "$checkout"
    ip link set lo up
    # This shell stays the init of the processes: it takes those whose parent has ended, and timeout refuses to be one.
    timeout --foreground --verbose --kill-after=30 1500 "$@" || exit $?
' sh "$@"
