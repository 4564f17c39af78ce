#!/bin/sh
# Runs the tests of engines with the engines of a Debian suite, and writes down what was seen.
#
#   tests/suites/run.sh SUITE CACHE
#
# SUITE is bookworm, trixie or sid. CACHE/SUITE is the root of that suite, which is kept between runs, and
# CACHE/SUITE.txt becomes the record: the date, the versions, and the result of each test. With TRANCHE_BLESS=1 the record
# is copied to tests/suites/seen, from which docs/reference/support.md is written. `make tests` has compiled the tests. Needs root.
set -eu
suite=$1 cache=$2
# For the record alone, and not for the files that tests compare.
bless=${TRANCHE_BLESS:-0}
unset TRANCHE_BLESS
here=$(cd "$(dirname "$0")" && pwd)
cargo=${CARGO:-cargo}

fail() {
    echo "test-engines: $*" >&2
    exit 1
}

case $suite in
    bookworm | trixie | sid) ;;
    *) fail "SUITE=$suite: expected bookworm, trixie or sid" ;;
esac
missing=
for program in debootstrap flock unshare; do
    PATH="$PATH:/usr/sbin:/sbin" command -v "$program" > /dev/null 2>&1 || missing="$missing $program"
done
[ "$(id -u)" = 0 ] || missing="$missing root"
[ -z "$missing" ] || fail "missing:$missing"

mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
# Held until this process and all that it started have ended.
exec 9> "$cache/$suite.lock"
flock --nonblock 9 || fail "another run uses $cache/$suite; try again when it has ended"

began=$(date +%s)
"$here/root.sh" "$suite" "$cache"
made=$(date +%s)

results=$cache/$suite.results
rm -rf "$results"
mkdir "$results"
TRANCHE_SUITE_ROOT=$cache/$suite
TRANCHE_TEST_NOT_RUN=$results/not-run.txt
TRANCHE_TEST_SEEN=$results/seen.txt
# The root has what the tests need, so one that is left out for want of something is a failure.
TRANCHE_TEST_STRICT=1
export TRANCHE_SUITE_ROOT TRANCHE_TEST_NOT_RUN TRANCHE_TEST_SEEN TRANCHE_TEST_STRICT
: > "$TRANCHE_TEST_SEEN"
: > "$TRANCHE_TEST_NOT_RUN"

# program PROGRAM [FILTER]…: runs the tests of a program in the root, or those whose names have one of these words.
failed=
program() {
    program=$1
    shift
    echo "== $suite: $program"
    "$cargo" test --quiet --all-features --test "$program" \
        --config "target.'cfg(all())'.runner = ['$here/enter.sh']" -- --format=pretty --test-threads=4 "$@" \
        > "$results/$program.text" || failed="$failed $program"
    # The names of what failed, and why.
    grep '^test .* FAILED$' "$results/$program.text" || true
    sed -n '/^failures:$/,$p' "$results/$program.text"
}
while read -r line; do
    case $line in
        '' | '#'*) ;;
        # shellcheck disable=SC2086 # a word for each filter
        *) program $line < /dev/null ;;
    esac
done < "$here/programs.txt"
tested=$(date +%s)

"$here/record.sh" "$suite" "$cache" > "$cache/$suite.txt"
echo "== $suite: $(grep -c '^passed ' "$cache/$suite.txt") passed, $(grep -c '^failed ' "$cache/$suite.txt" || true) failed," \
    "$(grep -c '^not-run ' "$cache/$suite.txt" || true) not run; root $((made - began)) s, tests $((tested - made)) s"
sed -n 's/^version /   /p; s/^not-run /   not run: /p' "$cache/$suite.txt"
[ -z "$failed" ] || fail "failed:$failed"
if [ "$bless" = 1 ]; then
    cp "$cache/$suite.txt" "$here/seen/$suite.txt"
fi
