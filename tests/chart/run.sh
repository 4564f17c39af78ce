#!/bin/sh
# Checks the chart of packaging/helm with real helm, 3 and 4 (check.py).
#
#   tests/chart/run.sh CACHE      CACHE keeps helm and the other tools between runs
set -eu
cache=$1
here=$(dirname "$0")

not_run() {
    echo "not run: test-chart: $*"
    [ "${TRANCHE_TEST_STRICT:-0}" != 1 ]
    exit
}

# helm is for this machine.
[ "$(uname -m)" = x86_64 ] || not_run "helm is there for x86_64 only"
python3 -m pip --version > /dev/null 2>&1 || not_run "python3 has no pip"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! "$here/tools.sh" "$cache" > "$log" 2>&1; then
    not_run "helm and its checkers were not installed: $(tail -n 1 "$log")"
fi
PYTHONPATH=$cache/python PYTHONDONTWRITEBYTECODE=1 python3 "$here/check.py" "$cache"
