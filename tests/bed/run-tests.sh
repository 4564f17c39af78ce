#!/bin/sh
# Runs every test with both feature sets, or with a name as argument that directory of tests alone, and ends with the table of
# attacks and with what was not run. TRANCHE_TEST_STRICT=1 makes a test that is
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
if [ $# -gt 0 ]; then
    "$cargo" test --all-features --test "$1" || status=1
else
    "$cargo" test --all-features --no-fail-fast || status=1
    # The library as it is built for tranche-oci.
    "$cargo" test --no-default-features --lib --bins || status=1
fi

echo
# One row for each distinct attack: name, variations, escaped, why the naive program is not caught (or -), idea.
sort -u "$TRANCHE_TEST_ATTACKS" | awk -F '\t' '
    { printf "%-58s %5d  %s\n", $1, $2, $5; variations += $2; escaped += $3 }
    $4 != "-" { passes[++passing] = $1 ": " $4 }
    END {
        print "\nAttacks that a naive program withstands too, and why:"
        for (n = 1; n <= passing; n++) print "  " passes[n]
        printf "\n%d distinct attacks, %d variations, %d escaped\n", NR, variations, escaped
    }'
if [ -s "$TRANCHE_TEST_NOT_RUN" ]; then
    sort -u "$TRANCHE_TEST_NOT_RUN"
else
    echo "not run: nothing"
fi
exit $status
