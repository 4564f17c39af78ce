#!/bin/sh
# The scripts and the packages as checkers see them. Called by run.sh.
set -eu
: "${here:?}" "${packages:?}" "${not_run:?}"
top=$(cd "$here/../.." && pwd)
cd "$top"
status=0

if command -v shellcheck > /dev/null; then
    shellcheck -x -P tests/packages/in-root packaging/*.sh packaging/image/*.sh packaging/deb/p[or]* packaging/kubelet/deb/p[or]* \
        tests/chart/*.sh tests/packages/*.sh tests/packages/in-root/*.sh ||
        status=1
    shellcheck -s sh packaging/rpm/*.sh packaging/kubelet/rpm/*.sh || status=1
    shellcheck packaging/arch/* packaging/alpine/* || status=1
else
    echo "shellcheck: not installed" >> "$not_run"
fi

# Recipes that no test builds: their syntax, and that removing the package stops every unit that a package enables.
if command -v nix-instantiate > /dev/null; then
    nix-instantiate --parse packaging/nix/default.nix > /dev/null || status=1
else
    echo "packaging/nix: nix-instantiate is not installed" >> "$not_run"
fi
for unit in $(packaging/units.sh); do
    grep -q "^units=.*$unit" packaging/arch/tranche.install || { echo "packaging/arch/tranche.install: lacks $unit" >&2; status=1; }
done

if command -v lintian > /dev/null; then
    lintian --allow-root --fail-on error,warning --tag-display-limit 0 "$packages"/*.deb || status=1
else
    echo "lintian: not installed" >> "$not_run"
fi

if command -v rpmlint > /dev/null; then
    rpmlint --rpmlintrc packaging/rpm/rpmlintrc "$packages"/*.rpm || status=1
else
    echo "rpmlint: not installed" >> "$not_run"
fi

# What checkers do not see: an address, and that the changelog of Debian names a file that is there.
for deb in "$packages"/*.deb; do
    dpkg-deb -f "$deb" Homepage | grep -q '^https://' || { echo "${deb##*/}: has no Homepage" >&2; status=1; }
    name=$(dpkg-deb -f "$deb" Package)
    named=$(dpkg-deb --fsys-tarfile "$deb" | tar -xO "./usr/share/doc/$name/changelog.Debian.gz" | zcat |
        sed -n 's|.*See \(/.*\)\.$|\1|p')
    # The packages that depend on tranche name its file.
    dpkg-deb --fsys-tarfile "$packages"/tranche_*.deb | tar -t | grep -x -F ".$named" > /dev/null ||
        { echo "${deb##*/}: changelog.Debian names \"$named\", which no package has" >&2; status=1; }
done
if command -v rpm > /dev/null; then
    for rpm in "$packages"/*.rpm; do
        rpm -qp --qf '%{URL}\n' "$rpm" 2> /dev/null | grep -q '^https://' || { echo "${rpm##*/}: has no URL" >&2; status=1; }
    done
fi
for recipe in packaging/arch/PKGBUILD packaging/alpine/APKBUILD; do
    grep -q '^url=' "$recipe" || { echo "$recipe: has no url" >&2; status=1; }
done

for page in packaging/man/* packaging/kubelet/man/*; do
    if command -v groff > /dev/null; then
        groff -man -Tutf8 -ww -z "$page" 2>&1 | grep . && status=1
    fi
done
exit $status
