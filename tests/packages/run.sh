#!/bin/sh
# Tests the packages: what is in them, that they are installed into clean roots and removed without a trace, and that the
# SELinux module can be installed.
#
#   tests/packages/run.sh PACKAGES ROOTS
#
# PACKAGES has the packages; in that of tranche-kubelet, another static program may be in its place. ROOTS keeps the clean roots between runs. What a missing program
# prevents is listed at the end; with TRANCHE_TEST_STRICT=1 that is a failure.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
packages=$(cd "$1" && pwd)
mkdir -p "$2"
roots=$(cd "$2" && pwd)
not_run=$(mktemp)
export here packages roots not_run
trap 'rm -f "$not_run"' EXIT

status=0
for test in contents lint install rpm selinux; do
    echo "== packages: $test"
    "$here/$test.sh" || { echo "packages: $test: failed" >&2; status=1; }
done
if [ -s "$not_run" ]; then
    sed 's/^/not run: packages: /' "$not_run"
    [ -z "${TRANCHE_TEST_STRICT:-}" ] || status=1
fi
exit $status
