#!/bin/sh
# Runs every test with both feature sets, and ends with what was not run. TRANCHE_TEST_STRICT=1 makes a test that is
# left out, and is not in tests/allowed-skips.txt, a failure.
set -u
cargo=${CARGO:-cargo}
mkdir -p target
TRANCHE_TEST_NOT_RUN=$PWD/target/not-run.txt
TRANCHE_TEST_ATTACKS=$PWD/target/attacks.txt
export TRANCHE_TEST_NOT_RUN TRANCHE_TEST_ATTACKS
: > "$TRANCHE_TEST_NOT_RUN"
: > "$TRANCHE_TEST_ATTACKS"

status=0
"$cargo" test --all-features --no-fail-fast || status=1
# What tranche-oci is made of, as it is built for it.
"$cargo" test --no-default-features --lib --bins || status=1

echo
awk '{ tried += $2; escaped += $5 } END { print tried + 0, "attacks tried,", escaped + 0, "escaped" }' "$TRANCHE_TEST_ATTACKS"
if [ -s "$TRANCHE_TEST_NOT_RUN" ]; then
    sort -u "$TRANCHE_TEST_NOT_RUN"
else
    echo "not run: nothing"
fi
exit $status
