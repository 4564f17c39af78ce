#!/bin/sh
# Checks that what compiles tranche is installed. Says in one line what is missing, or too old.
#
#   packaging/rust.sh CARGO
set -eu
cargo=$1
needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

missing() {
    echo "missing: $1" >&2
    exit 1
}

if ! version=$("$cargo" --version 2> /dev/null); then
    missing "Rust $needed or later: $cargo cannot be run; install it from https://rustup.rs or from the distribution"
fi
# cargo 1.89.0 (c24e10642 2025-06-23)
version=${version#cargo }
version=${version%% *}
oldest=$(printf '%s\n' "$needed" "$version" | sort -V | head -n 1)
[ "$oldest" = "$needed" ] || missing "Rust $needed or later: this is $version; rustup update brings a newer one"
