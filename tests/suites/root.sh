#!/bin/sh
# Makes the root CACHE/SUITE with the engines of that suite, or brings the packages of a root that is there up to date.
#
#   tests/suites/root.sh SUITE CACHE
#
# CACHE/SUITE.done exists while the root is complete: one that was interrupted is made anew. Without a network, a complete
# root is used as it is.
set -eu
suite=$1 cache=$2
here=$(cd "$(dirname "$0")" && pwd)
root=$cache/$suite
log=$cache/$suite.log

# fail WHAT: one line, with the last line of the log.
fail() {
    echo "test-engines: $1: $(grep -v '^[[:space:]]*$' "$log" | tail -n 1)" >&2
    exit 1
}

# in_root COMMAND…: with the machine's network and devices, which packages may need.
in_root() {
    unshare --mount --pid --fork --kill-child --propagation private sh -eu -c '
        root=$1
        shift
        mount -t proc proc "$root/proc"
        mount --rbind /dev "$root/dev"
        exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
    ' sh "$root" "$@" < /dev/null >> "$log" 2>&1
}

mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2> /dev/null | grep 'debian.org/debian$' | head -n 1)
mirror=${mirror:-http://deb.debian.org/debian}
: > "$log"
if [ ! -e "$root.done" ]; then
    echo "== $suite: makes $root (minutes)"
    # What an interrupted run left is not repaired. Its mounts ended with it: debootstrap mounts in a namespace of its own.
    rm -rf --one-file-system "${root:?}"
    PATH="$PATH:/usr/sbin:/sbin" unshare --mount --propagation private \
        debootstrap --variant=minbase "$suite" "$root" "$mirror" >> "$log" 2>&1 || fail "cannot make a root of $suite"
    {
        echo "deb $mirror $suite main"
        if [ "$suite" != sid ]; then
            echo "deb $mirror $suite-updates main"
            echo "deb $mirror-security $suite-security main"
        fi
    } > "$root/etc/apt/sources.list"
    # A mirror may be a snapshot of another day.
    echo 'Acquire::Check-Valid-Until "false";' > "$root/etc/apt/apt.conf.d/90-tranche-test"
    # No daemon starts: the tests start those that they need.
    printf '#!/bin/sh\nexit 101\n' > "$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
fi

cp /etc/resolv.conf "$root/etc/resolv.conf"
mkdir -p "$root/run/tranche-packages"
cp "$here/../bed/packages.sh" "$here/engines.sh" "$root/run/tranche-packages/"
if in_root apt-get update --error-on=any; then
    # Until the packages are as they should be, the root is not complete.
    rm -f "$root.done"
    in_root apt-get --yes --no-install-recommends dist-upgrade || fail "cannot upgrade the packages of $suite"
    in_root /run/tranche-packages/engines.sh || fail "cannot install the engines of $suite"
    in_root apt-get clean
    date +%F > "$root.done"
elif [ -e "$root.done" ]; then
    echo "== $suite: the archive cannot be reached; the packages are those of $(cat "$root.done")"
else
    fail "cannot read the package lists of $suite"
fi
