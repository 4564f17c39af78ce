#!/bin/sh
# Runs a command in a mount namespace in which real engines work, and in which they cannot see the host's engines,
# containers and CDI files. Its network is its own, too: engines make bridges and rules for packets.
#
#   unshare --mount --net --propagation private tests/bed/enter.sh SPECS COMMAND [ARGUMENT]...
#
# SPECS is a directory; its files become the only CDI specifications. TRANCHE_TEST_DEV=DIR in the environment adds the
# device nodes of DIR to /dev, so that they have the same paths as on the machine that is tested; a rootless engine
# needs that. TRANCHE_TEST_LIB=DIR is where engines keep their containers. Everything is undone when the mount namespace
# ends. Needs root.
set -eu
specs=$1
shift

# Runtimes keep their state in /run, and CDI reads specifications there, so the command gets an empty /run.
mount -t tmpfs -o mode=755 tmpfs /run
[ -L /var/run ] || mount --bind /run /var/run
mkdir -p /run/cdi /run/lock

# The host's /etc must not change when an engine is configured.
mkdir -p /run/etc.upper /run/etc.work
mount -t overlay -o lowerdir=/etc,upperdir=/run/etc.upper,workdir=/run/etc.work overlay /etc
[ -d /etc/cdi ] || mkdir /etc/cdi
mount -t tmpfs -o mode=755 tmpfs /etc/cdi
if [ -n "$(ls "$specs")" ]; then
    cp "$specs"/* /etc/cdi/
    chmod 644 /etc/cdi/*
fi

# Where engines keep images and containers if nobody says otherwise. They cannot use an overlay for that.
if [ -n "${TRANCHE_TEST_LIB:-}" ]; then
    mkdir -p /run/lib.upper /run/lib.work
    mount -t overlay -o lowerdir=/var/lib,upperdir=/run/lib.upper,workdir=/run/lib.work overlay /var/lib
    for engine in containers containerd docker; do
        mkdir -p "$TRANCHE_TEST_LIB/$engine" "/var/lib/$engine"
        mount --bind "$TRANCHE_TEST_LIB/$engine" "/var/lib/$engine"
    done
fi

if [ -n "${TRANCHE_TEST_DEV:-}" ]; then
    # A /dev with the nodes of the host that engines use, without those of a driver that this machine may have.
    mkdir /run/dev
    mount -t tmpfs -o mode=755 tmpfs /run/dev
    for node in null zero full random urandom tty fuse; do
        [ ! -e "/dev/$node" ] || cp -a "/dev/$node" /run/dev/
    done
    # As udev makes them, for engines of users.
    mkdir /run/dev/net
    [ ! -e /dev/net/tun ] || cp -a /dev/net/tun /run/dev/net/
    for node in fuse net/tun; do
        [ ! -e "/run/dev/$node" ] || chmod 666 "/run/dev/$node"
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
    # podman 5 warns of it at each start, among what the container prints.
    export PODMAN_IGNORE_CGROUPSV1_WARNING=1
fi

# podman makes its locks in shared memory where they are missing, and the later one of two that do so at once fails
# ("failed to create 2048 locks in /libpod_lock: file exists"). So this is done by one at a time.
if command -v podman > /dev/null; then
    flock /dev/shm sh -c '[ -e /dev/shm/libpod_lock ] || podman --storage-driver vfs --cgroup-manager cgroupfs \
        --root /run/locks --runroot /run/locks.run ps > /dev/null' || echo "enter.sh: podman ps failed" >&2
fi

# The demonstration runs without ip.
if command -v ip > /dev/null; then
    ip link set lo up
fi
exec "$@"
