#!/bin/sh
# Fetches packages of NVIDIA's driver from Debian's component non-free, one of each branch, and unpacks them:
#
#     nvidia-packages.sh DIRECTORY PACKAGE BRANCH...
#
# DIRECTORY/PACKAGE/BRANCH has the files of the newest version of that branch that the archive has. Nothing is
# installed, and the machine's own lists of packages stay as they are. Prints a line for each branch: the branch, and
# the version or `-` and why it is not there. What was unpacked before is not fetched again.
set -u
directory=$1 package=$2
shift 2

# The suites that have a driver: 470, 535, 550, 555.
suites='bullseye bookworm sid experimental'
mirror=http://deb.debian.org/debian
own=$directory/apt
mkdir -p "$own/lists/partial" "$own/cache/archives/partial"
own=$(cd "$own" && pwd)
in_own() {
    program=$1
    shift
    "$program" -oDir::Etc::sourcelist="$own/sources.list" -oDir::Etc::sourceparts=/dev/null \
        -oDir::State::lists="$own/lists" -oDir::Cache="$own/cache" -oAPT::Sandbox::User=root \
        -oAcquire::Languages=none -oAcquire::Retries=1 -oAcquire::http::Timeout=20 "$@"
}

# The lists are a day old at most. An archive that cannot be reached is asked once.
is_unreachable=
update() {
    [ -z "$is_unreachable" ] || return 1
    [ -z "$(find "$own/updated" -mmin -1440 2> /dev/null)" ] || return 0
    found=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2> /dev/null |
        grep 'debian.org/debian$' | head -n 1)
    mirror=${found:-$mirror}
    for suite in $suites; do echo "deb $mirror $suite non-free"; done > "$own/sources.list"
    # A suite may be gone, and its branches with it. The others are still there.
    in_own apt-get update > "$own/log" 2>&1
    if [ -n "$(find "$own/lists" -name '*_Packages*' -print -quit)" ]; then
        touch "$own/updated"
    else
        is_unreachable=yes
        return 1
    fi
}

fetch() {
    version=$(in_own apt-cache madison "$package" | tr -d ' ' | cut -d '|' -f 2 | grep "^$1\." | sort -V | tail -n 1)
    [ -n "$version" ] || { why="the archive has no $package of $1 any more"; return 1; }
    rm -rf "$place.new"
    mkdir -p "$place.new" &&
        (cd "$place.new" && in_own apt-get download "$package=$version" > "$own/log" 2>&1 &&
            dpkg -x ./*.deb . && rm -f ./*.deb) &&
        echo "$version" > "$place.new/version" && rm -rf "$place" && mv "$place.new" "$place" ||
        { why="$(grep '^E:' "$own/log" | head -n 1)"; return 1; }
}

for branch in "$@"; do
    place=$directory/$package/$branch why=
    if [ -e "$place/version" ] || { update && fetch "$branch"; }; then
        echo "$branch $(cat "$place/version")"
    else
        echo "$branch - ${why:-non-free of $mirror cannot be reached: $(grep '^[WE]:' "$own/log" | head -n 1)}"
    fi
done
