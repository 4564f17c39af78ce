#!/bin/sh
# Installs the engines of this suite and what the tests need, in the root of the suite.
set -eu
cd "$(dirname "$0")"
# A release in which a package has another name, or none, does without it: the tests name what they miss.
available=
for package in apptainer buildah docker-cli incus; do
    if apt-cache show "$package" > /dev/null 2>&1; then
        available="$available $package"
    fi
done
# shellcheck disable=SC2086 # one word for each package
apt-get install --yes --no-install-recommends passwd procps iproute2 $available
# As people install it: with what it recommends for users.
apt-get install --yes podman
./packages.sh
