# shellcheck shell=sh
# What the tests of installed packages have in common: they source this file. ROOT is the root that packages are installed
# into.
: "${ROOT:?}"

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

inside() {
    chroot "$ROOT" "$@"
}

# The files of the root with their modes and targets, without what package managers keep for themselves and caches.
files() {
    find "$ROOT" \( -path "$ROOT/proc" -o -path "$ROOT/dev" -o -path "$ROOT/tmp" -o -path "$ROOT/run/packages" -o -path "$ROOT/run/systemd" \
        -o -path "$ROOT/var/lib/dpkg/*-old" -o -path "$ROOT/var/lib/rpm" -o -path "$ROOT/usr/lib/sysimage" \
        -o -path "$ROOT/var/log" -o -path "$ROOT/var/cache/man" \) -prune -o -printf '%y %m /%P %l\n' | LC_ALL=C sort
}

# $1, $2: lists of files; $3: what should have left nothing
same() {
    diff "$1" "$2" || fail "$3 left (>) or took (<) files"
}
