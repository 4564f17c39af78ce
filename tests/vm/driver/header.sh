#!/bin/sh
# Prints host.h of the stand-in module: what the test host in HOST has in /proc of the driver.
#
#   tests/vm/driver/header.sh HOST
set -eu
proc=$1/proc

# A file's text as a string of C.
quoted() {
    sed 's/\\/\\\\/g; s/"/\\"/g; s/^/"/; s/$/\\n"/' "$1"
}

echo "#define DRIVER_VERSION \"$(sed -n 's/^NVRM version:.* \([0-9][0-9.]*\)  .*/\1/p' "$proc/driver/nvidia/version")\""

echo "static const char *const tops[] = {"
for top in "$proc"/driver/*; do
    echo "\"driver/${top##*/}\","
done
echo "};"

echo "static const struct entry entries[] = {"
# Sorted, so that a directory comes before what is in it.
find "$proc/driver" -mindepth 1 | LC_ALL=C sort | while read -r path; do
    echo "{\"${path#"$proc"/}\","
    if [ -d "$path" ]; then
        echo NULL
    else
        quoted "$path"
    fi
    echo "},"
done
echo "};"

# Names of one major number share its minors as the driver's modules do.
echo "static const struct numbers devices[] = {"
sed -n '/^Character/,/^$/s/^ *\([0-9][0-9]*\) \(nvidia.*\)$/\1 \2/p' "$proc/devices" | while read -r major name; do
    case $name in
        nvidiactl) first=255 count=1 ;;
        nvidia-modeset) first=254 count=1 ;;
        nvidia | nvidia-frontend) first=0 count=254 ;;
        *) first=0 count=256 ;;
    esac
    echo "{$major, $first, $count, \"$name\"},"
done
echo "};"
