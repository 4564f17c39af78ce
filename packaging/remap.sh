#!/bin/sh
# Prints its arguments and the options for rustc that replace the directories of this machine in the programs, so that the
# same source gives the same bytes in every directory, for every user, and with vendored crates. The last option that
# matches counts. They are in the form of CARGO_ENCODED_RUSTFLAGS, in which a path may have spaces.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd -P)
cargo_home=${CARGO_HOME:-$HOME/.cargo}
set -- "$@" "--remap-path-prefix=$cargo_home=/usr/src/cargo" "--remap-path-prefix=$here=/usr/src/tranche"
for crates in "$cargo_home"/registry/src/* "$here/vendor"; do
    [ ! -d "$crates" ] || set -- "$@" "--remap-path-prefix=$crates=/usr/src/crates"
done
separator=
for option; do
    printf '%s%s' "$separator" "$option"
    separator=$(printf '\037')
done
