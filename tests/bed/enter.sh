#!/bin/sh
# Runs a command in a mount namespace in which real engines work, and in which they cannot see the host's engines,
# containers and CDI files.
#
#   unshare -m --propagation private tests/bed/enter.sh SPECS COMMAND [ARGUMENT]...
#
# SPECS is a directory; its files become the only CDI specifications. TRANCHE_TEST_DEV=DIR in the environment adds the
# device nodes of DIR to /dev, so that they have the same paths as on the machine that is tested; a rootless engine
# needs that. Everything is undone when the mount namespace ends. Needs root.
set -eu
specs=$1
shift

# Runtimes keep their state in /run, and CDI reads specifications there, so the command gets an empty /run.
mount -t tmpfs -o mode=755 tmpfs /run
[ -L /var/run ] || mount --bind /run /var/run
mkdir -p /run/cdi /run/lock

# The host's /etc must not change, so a directory to mount on is made in an overlay.
if [ ! -d /etc/cdi ]; then
    mkdir -p /run/etc.upper /run/etc.work
    mount -t overlay -o lowerdir=/etc,upperdir=/run/etc.upper,workdir=/run/etc.work overlay /etc
    mkdir /etc/cdi
fi
mount -t tmpfs -o mode=755 tmpfs /etc/cdi
if [ -n "$(ls "$specs")" ]; then
    cp "$specs"/* /etc/cdi/
    chmod 644 /etc/cdi/*
fi

if [ -n "${TRANCHE_TEST_DEV:-}" ]; then
    # A /dev with the nodes of the host that engines use, without those of a driver that this machine may have.
    mkdir /run/dev
    mount -t tmpfs -o mode=755 tmpfs /run/dev
    for node in null zero full random urandom tty fuse; do
        [ ! -e "/dev/$node" ] || cp -a "/dev/$node" /run/dev/
    done
    for link in fd stdin stdout stderr ptmx; do
        [ ! -e "/dev/$link" ] || cp -a "/dev/$link" /run/dev/
    done
    for directory in pts shm mqueue; do
        [ -d "/dev/$directory" ] || continue
        mkdir "/run/dev/$directory"
        mount --rbind "/dev/$directory" "/run/dev/$directory"
    done
    cp -a "$TRANCHE_TEST_DEV"/. /run/dev/
    mount --rbind /run/dev /dev
fi

# crun refuses a hybrid tree of cgroups (v1 with an empty v2 in it), and runc needs controllers that such a v2 does not
# have. So the hybrid tree is replaced by one of v1 only. A tree of v2 only is kept.
if [ "$(stat -f -c %T /sys/fs/cgroup)" != cgroup2fs ]; then
    umount -l /sys/fs/cgroup
    mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
    for controller in $(awk '$4 == 1 && $1 !~ /^#/ { print $1 }' /proc/cgroups); do
        mkdir "/sys/fs/cgroup/$controller"
        # A controller that v2 has taken cannot be mounted for v1; engines work without it.
        mount -t cgroup -o "$controller" cgroup "/sys/fs/cgroup/$controller" 2>/dev/null || rmdir "/sys/fs/cgroup/$controller"
    done
    mkdir /sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
fi

exec "$@"
