#!/bin/sh
# Runs a command where real engines work and the host's own engines, containers and CDI files are out of reach.
#
#   unshare -m --propagation private tests/bed/enter.sh SPECS COMMAND [ARGUMENT]...
#
# SPECS is a directory whose files become the only CDI specs there are. TRANCHE_TEST_DEV=DIR in the environment adds the
# device nodes of DIR to /dev: there they have the paths that they would have on that machine, which a rootless engine
# insists on. Everything is undone when the mount namespace goes. Needs root.
set -eu
specs=$1
shift

# Runtimes keep their state in /run, and specs may lie there too: the command gets an empty one.
mount -t tmpfs -o mode=755 tmpfs /run
[ -L /var/run ] || mount --bind /run /var/run
mkdir -p /run/cdi /run/lock

# Nothing may be made in the host's /etc, not even a directory to mount on.
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
    # A /dev with what engines use of the host's, and nothing of a driver that this machine may have.
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

# crun refuses a hybrid tree of cgroups (v1 with an empty v2 beside it), and runc needs what v2 lacks there: so one tree
# of v1 alone. Where cgroup v2 is mounted alone it stays.
if [ "$(stat -f -c %T /sys/fs/cgroup)" != cgroup2fs ]; then
    umount -l /sys/fs/cgroup
    mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
    for controller in $(awk '$4 == 1 && $1 !~ /^#/ { print $1 }' /proc/cgroups); do
        mkdir "/sys/fs/cgroup/$controller"
        # A controller that v2 has taken is not there for v1; engines do without it.
        mount -t cgroup -o "$controller" cgroup "/sys/fs/cgroup/$controller" 2>/dev/null || rmdir "/sys/fs/cgroup/$controller"
    done
    mkdir /sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
fi

exec "$@"
