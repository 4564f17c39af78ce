#!/bin/sh
# Runs the emulator of the files that machine.sh made, in the directory CACHE. Needs a mount namespace of its own.
#
#   unshare -m tests/vm/emulator.sh CACHE [OPTION]...
set -eu
cache=$1
shift
mount --bind "$cache" "$cache/build/mnt"
# shellcheck disable=SC2016 # the shell inside expands it
exec chroot "$cache/build" sh -c 'cd /mnt && exec qemu-system-x86_64 "$@"' sh "$@"
