#!/bin/sh
# Makes a release of the version in Cargo.toml: checks what must hold, builds everything twice, compares, and tags. It
# publishes nothing: the last lines say what to publish (docs/maintaining.md has the checklist).
#
#   packaging/release.sh             checks and builds
#   packaging/release.sh --tag       and tags the commit
set -eu
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
fail() { echo "release $version: $*" >&2; exit 1; }

[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed"
grep -q "^## $version - [0-9]" CHANGELOG.md || fail "CHANGELOG.md has no section: ## $version - DATE"
! git rev-parse -q --verify "refs/tags/v$version" > /dev/null || fail "the tag v$version exists"
for file in packaging/arch/PKGBUILD packaging/alpine/APKBUILD; do
    grep -q "^pkgver=$version$" "$file" || fail "$file has another pkgver"
done
grep -q "^version = \"$version\"$" verify/Cargo.toml || fail "verify/Cargo.toml has another version"

.ci/run
make deny
make test-packages
make dist

# A second build in another directory, from a clone without anything that was built.
second=$(mktemp -d)
trap 'rm -rf "$second"' EXIT
git clone -q . "$second/tranche"
mkdir -p "$second/tranche/target"
ln -s "$PWD/target/tools" "$second/tranche/target/tools"
make -C "$second/tranche" package dist
diff target/package/SHA256SUMS "$second/tranche/target/package/SHA256SUMS" || fail "the second build gave other packages"
cmp "target/dist/tranche-$version.tar.gz" "$second/tranche/target/dist/tranche-$version.tar.gz" ||
    fail "the second build gave another tarball"

if [ "${1:-}" = --tag ]; then
    git tag -a -m "tranche $version" "v$version"
    echo "tagged; publish with: git push origin v$version"
fi
echo "to publish:"
ls "target/dist/tranche-$version.tar.gz" target/package/*.deb target/package/*.rpm target/package/SHA256SUMS
