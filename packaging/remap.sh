#!/bin/sh
# Prints the options for rustc that replace the directories of this machine in the programs, so that the same source gives
# the same bytes in every directory, for every user, and with vendored crates. The last option that matches counts.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd -P)
cargo_home=${CARGO_HOME:-$HOME/.cargo}
printf '%s ' "--remap-path-prefix=$cargo_home=/usr/src/cargo" "--remap-path-prefix=$here=/usr/src/tranche"
for crates in "$cargo_home"/registry/src/* "$here/vendor"; do
    [ ! -d "$crates" ] || printf '%s ' "--remap-path-prefix=$crates=/usr/src/crates"
done
