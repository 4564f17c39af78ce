#!/bin/sh
# Prints the units that a package enables: those that its preset names. Fails if a unit that can be enabled is not in the
# preset, so that a new one is not forgotten.
#
#   packaging/units.sh [kubelet]      with `kubelet`, those of the package tranche-kubelet
# shellcheck disable=SC2013 # names of units have no spaces
set -eu
part=${1:-.}
cd "$(dirname "$0")/$part"
status=0
for unit in $(grep -l '^\[Install\]' systemd/*); do
    if ! grep -q -x -E "(enable|disable) ${unit#systemd/}" preset/*; then
        echo "$unit: is not in $(echo preset/*); add a line: enable or disable" >&2
        status=1
    fi
done
for unit in $(sed -n 's/^enable //p' preset/*); do
    [ ! -e "systemd/$unit" ] || printf '%s\n' "$unit"
done
exit $status
