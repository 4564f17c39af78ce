#!/bin/sh
# Builds the stand-in for the driver's kernel module, for the machine of tests/vm/machine.sh, unless it is there already.
#
#   tests/vm/driver/build.sh CACHE HOST NAME        makes CACHE/build/NAME/nvidia.ko of the test host in HOST
set -eu
cache=$1 name=$3
here=$(dirname "$0")
into=$cache/build/$name
mkdir -p "$into"
"$here/header.sh" "$2" > "$into/host.h.new"
if [ -e "$into/nvidia.ko" ] && cmp -s "$into/host.h.new" "$into/host.h" && cmp -s "$here/nvidia.c" "$into/nvidia.c"; then
    exit 0
fi
rm -f "$into/nvidia.ko"
mv "$into/host.h.new" "$into/host.h"
cp "$here/nvidia.c" "$into/nvidia.c"
echo "obj-m := nvidia.o" > "$into/Makefile"
chroot "$cache/build" make -C "/lib/modules/$(cat "$cache/boot/version")/build" "M=/$name" modules > "$into/log" 2>&1 || {
    tail -n 20 "$into/log" >&2
    exit 1
}
