#!/bin/sh
# Makes a release of the version in Cargo.toml: checks what must hold, builds everything twice, compares, and tags. It
# publishes nothing: the last lines say what to publish (docs/maintaining/tasks.md has the checklist).
#
#   packaging/release.sh --check     checks what takes no build: names, versions and the changelog
#   packaging/release.sh             checks and builds
#   packaging/release.sh --tag       and tags the commit
#
# MAINTAINER is who publishes the packages and answers their users: MAINTAINER='A B <a.b@example.org>'.
set -eu
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
fail() { echo "release $version: $*" >&2; exit 1; }

case ${1:-} in
'' | --check | --tag) ;;
*) fail "$1: expected --check, --tag or nothing" ;;
esac
case ${MAINTAINER:-} in
*.invalid'>') fail "MAINTAINER: $MAINTAINER is not an address that can be reached" ;;
*[!\ ]' <'*@*'>') export MAINTAINER ;;
*) fail "MAINTAINER: expected a name and an address, such as MAINTAINER='A B <a.b@example.org>'" ;;
esac
[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed"
grep -q "^## $version - [0-9]" CHANGELOG.md || fail "CHANGELOG.md has no section: ## $version - DATE"
! git rev-parse -q --verify "refs/tags/v$version" > /dev/null || fail "the tag v$version exists"
for file in packaging/arch/PKGBUILD packaging/alpine/APKBUILD; do
    grep -q "^pkgver=$version$" "$file" || fail "$file has another pkgver"
done
grep -q "^appVersion: \"$version\"$" packaging/helm/tranche/Chart.yaml || fail "packaging/helm/tranche/Chart.yaml has another appVersion"
if ! grep -q "^depends = \"tranche (>= $version)\"$" Cargo.toml || ! grep -q "^requires = { tranche = \">= $version\" }$" Cargo.toml; then
    fail "Cargo.toml: tranche-kubelet depends on another version"
fi
grep -q "^version = \"$version\"$" verify/Cargo.toml || fail "verify/Cargo.toml has another version"
[ "${1:-}" != --check ] || exit 0

.ci/run
make deny
make package-kubelet
TRANCHE_TEST_STRICT=1 make test-packages KUBELET_PROGRAM=target/kubelet/tranche-kubelet
for suite in bookworm trixie sid; do
    make test-engines SUITE="$suite"
done
make test-real-driver
# Random lives of shares under the real MPS daemons; twenty of each branch are in `make test`.
TRANCHE_TEST_CYCLES=500 "${CARGO:-cargo}" test --all-features --test control -- real::cycles
make test-dist
packaging/reproduce.sh package-kubelet dist

if [ "${1:-}" = --tag ]; then
    git tag -a -m "tranche $version" "v$version"
    echo "tagged; publish with: git push origin v$version"
fi
echo "to publish:"
ls "target/dist/tranche-$version.tar.gz" target/package/*.deb target/package/*.rpm target/package/SHA256SUMS target/package-kubelet/*
