#!/bin/sh
# Builds the packages of the last commit a second time, in a clone in a directory whose path has another length, and compares
# them with those in target/package. Ends with 1 if a file differs, and names it.
#
#   packaging/reproduce.sh [OTHER]...     OTHER: make the files of these targets too: package-kubelet, dist
set -eu
cd "$(dirname "$0")/.."
first=$PWD
fail() { echo "reproduce: $*" >&2; exit 1; }

[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed, which the second build would not have"
[ -s target/package/SHA256SUMS ] || fail "target/package/SHA256SUMS: not found; run make package first"
commit=$(git rev-parse --short=12 HEAD)
built=$(target/package/root/usr/bin/tranche --version)
case $built in
*"($commit)"*) ;;
*) fail "target/package has $built, but the last commit is $commit; run make package first" ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
second=$work/a-directory-with-another-length/tranche
git clone -q . "$second"
mkdir "$second/target"
# The tools are not what is compared, and take minutes.
ln -s "$first/target/tools" "$second/target/tools"
(cd "$second" && umask 077 && env TZ=Asia/Kolkata make package "$@") > "$work/log" 2>&1 ||
    { tail -n 40 "$work/log" >&2; fail "the second build failed"; }

# Each list names every file, so a file that one build lacks is a difference too.
status=0
diff target/package/SHA256SUMS "$second/target/package/SHA256SUMS" > "$work/diff" || status=1
if [ $status != 0 ]; then
    sed -n 's/^[<>] [0-9a-f]*  //p' "$work/diff" | sort -u | while read -r file; do
        echo "reproduce: $file: differs, or one build lacks it" >&2
        if [ -e "target/package/$file" ] && [ -e "$second/target/package/$file" ] && command -v diffoscope > /dev/null; then
            diffoscope "target/package/$file" "$second/target/package/$file" >&2 || true
        fi
    done
    # What went into the packages.
    diff -rq target/package/root "$second/target/package/root" >&2 || true
    fail "the second build gave other packages"
fi
for tarball in "$second"/target/dist/*.tar.gz; do
    [ ! -e "$tarball" ] || cmp "target/dist/${tarball##*/}" "$tarball" || fail "${tarball##*/}: the second build gave another one"
done
if [ -e "$second/target/package-kubelet" ]; then
    diff target/package-kubelet/SHA256SUMS "$second/target/package-kubelet/SHA256SUMS" >&2 ||
        fail "the second build gave other packages of tranche-kubelet"
    cat target/package-kubelet/SHA256SUMS
fi
cat target/package/SHA256SUMS
echo "reproduce: equal in $first and in $second"
