#!/bin/sh
# Runs every test but those of tranche-kubelet (`make test-kubelet`), or with a name as argument that directory of tests alone, and ends with the
# table of attacks and with what was not run. TRANCHE_TEST_STRICT=1 makes a test that is left out, and is not in
# tests/allowed-skips.txt, a failure. If a test changes what the host keeps in /run/tranche, that is a failure, too.
# TRANCHE_TEST_TIMES=1 ends with the ten slowest tests, in seconds.
set -u
cargo=${CARGO:-cargo}
mkdir -p target
TRANCHE_TEST_NOT_RUN=$PWD/target/not-run.txt
TRANCHE_TEST_ATTACKS=$PWD/target/attacks.txt
export TRANCHE_TEST_NOT_RUN TRANCHE_TEST_ATTACKS
: > "$TRANCHE_TEST_NOT_RUN"
: > "$TRANCHE_TEST_ATTACKS"

# What the host keeps for real containers, with the time of each change. A test must not leave anything there.
state() {
    find /run/tranche /etc/tmpfiles.d/tranche-mps.conf /etc/cdi /var/run/cdi "/run/user/$(id -u)/tranche" -printf '%p %s %T@\n' 2> /dev/null | sort
}
before=$(state)

# An ordinary user runs the tests that mount in a user namespace, where he may.
own=$PWD/tests/bed/own-namespace.sh
if [ "$(id -u)" = 0 ] || ! "$own" --check 2> /dev/null; then
    own=
fi

# A test that hangs ends with the name of its program, and not with the time limit of whatever runs the tests. Only an
# unstable option of the test programs prints times; the variable lets those of a stable compiler take it.
times=${TRANCHE_TEST_TIMES:+target/times.txt}
[ -z "$times" ] || : > "$times"
tests() {
    runner='"timeout", "--foreground", "--verbose", "--kill-after=30", "1500"'
    if [ -z "$times" ]; then
        "$@" --config "target.\"cfg(all())\".runner = [$runner]"
        return
    fi
    failed=$(mktemp)
    { "$@" --config "target.\"cfg(all())\".runner = [\"env\", \"RUSTC_BOOTSTRAP=1\", $runner]" \
        -- -Z unstable-options --report-time 2>&1 || echo failed > "$failed"; } | tee -a "$times"
    passed=0
    [ ! -s "$failed" ] || passed=1
    rm -f "$failed"
    return "$passed"
}

# `--test NAME` for the programs that mount, for those that wait for engines and daemons more than they compute, and for
# the others. A program is a file in tests, or a directory with a main.rs. `bench` waits for all but a twentieth of its
# time, and runs beside the others.
mounting= waiting= others=
for file in tests/*.rs tests/*/main.rs; do
    name=${file#tests/}
    name=${name%/main.rs}
    name=${name%.rs}
    case $name in
        attacks | hooks) mounting="$mounting --test $name" ;;
        bench) ;;
        control | engines) waiting="$waiting --test $name" ;;
        *) others="$others --test $name" ;;
    esac
done

status=0
# shellcheck disable=SC2086 # one word for each option
if [ $# -gt 0 ]; then
    case $1 in attacks | hooks) ;; *) own= ;; esac
    tests "${own:-env}" "$cargo" test --workspace --exclude tranche-kubelet --all-features --test "$1" || status=1
    # What a tenant tries against NVIDIA's MPS daemons.
    [ "$1" != attacks ] || tests "$cargo" test --workspace --exclude tranche-kubelet --all-features --test control real::attacks || status=1
else
    beside=$(mktemp)
    { RUST_TEST_THREADS=4 tests "$cargo" test --workspace --exclude tranche-kubelet --all-features --no-fail-fast --test bench; } \
        > "$beside" 2>&1 &
    bench=$!
    tests "${own:-env}" "$cargo" test --workspace --exclude tranche-kubelet --all-features --no-fail-fast --lib $mounting || status=1
    tests "$cargo" test --workspace --exclude tranche-kubelet --all-features --no-fail-fast $others || status=1
    wait "$bench" || status=1
    cat "$beside"
    rm -f "$beside"
    RUST_TEST_THREADS=4 tests "$cargo" test --workspace --exclude tranche-kubelet --all-features --no-fail-fast $waiting || status=1
fi

if [ "$(state)" != "$before" ]; then
    echo "failed: these files of the host changed while the tests ran:" >&2
    { echo "$before"; state; } | sort | uniq -u >&2
    status=1
fi

echo
# One row for each distinct attack: name, variations, escaped, why the naive program is not caught (or -), idea, who attacks.
sort -u "$TRANCHE_TEST_ATTACKS" | awk -F '\t' '
    { printf "%-58s %5d  %s\n", $1, $2, $5; variations += $2; escaped += $3
      attacks_of[$6]++; variations_of[$6] += $2; escaped_of[$6] += $3 }
    $4 != "-" { passes[++passing] = $1 ": " $4 }
    END {
        print "\nAttacks that a naive program withstands too, and why:"
        for (n = 1; n <= passing; n++) print "  " passes[n]
        print "\nWho attacks:"
        for (actor in attacks_of)
            printf "  %-32s %3d attacks, %5d variations, %d escaped\n", actor, attacks_of[actor], variations_of[actor], escaped_of[actor]
        printf "\n%d distinct attacks, %d variations, %d escaped\n", NR, variations, escaped
    }'
if [ -s "$TRANCHE_TEST_NOT_RUN" ]; then
    sort -u "$TRANCHE_TEST_NOT_RUN"
else
    echo "not run: nothing"
fi
if [ -n "$times" ]; then
    echo
    echo "The ten slowest tests, in seconds:"
    sed -n 's/^test \(.*\) \.\.\. .*<\([0-9.]*\)s>$/\2 \1/p' "$times" | sort -rn | head -10
fi
exit $status
