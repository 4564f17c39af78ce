#!/bin/sh
# Prints the units that packages enable: those that the preset names. Fails if a unit that can be enabled is not in the
# preset, so that a new one is not forgotten.
# shellcheck disable=SC2013 # names of units have no spaces
set -eu
cd "$(dirname "$0")"
status=0
for unit in $(grep -l '^\[Install\]' systemd/*); do
    if ! grep -q -x -E "(enable|disable) ${unit#systemd/}" preset/90-tranche.preset; then
        echo "packaging/$unit: is not in packaging/preset/90-tranche.preset; add a line: enable or disable" >&2
        status=1
    fi
done
for unit in $(sed -n 's/^enable //p' preset/90-tranche.preset); do
    [ ! -e "systemd/$unit" ] || printf '%s\n' "$unit"
done
exit $status
