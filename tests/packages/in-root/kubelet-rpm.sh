#!/bin/sh
# Installs, upgrades and removes the rpm of tranche-kubelet in the root $ROOT, with rpm of this machine. Called by root.sh.
set -eu
here=$(dirname "$0")
. "$here/files.sh"
. "$here/asked.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
package=$(ls "$ROOT"/run/packages/tranche-kubelet-[0-9]*.rpm)
rpm() {
    command rpm --root "$ROOT" --nosignature "$@"
}

# Directories that the packages filesystem and systemd have on Fedora.
mkdir -p "$ROOT/usr/share/licenses" "$ROOT/usr/share/man/man8" "$ROOT/usr/lib/systemd/system-preset"
command rpm --root "$ROOT" --initdb
record_systemd
files > "$work/before"

! rpm -i "$package" > "$work/log" 2>&1 || fail "the plugin was installed without the broker"
grep -q 'tranche >= .* is needed by tranche-kubelet' "$work/log" || fail "no dependency: $(cat "$work/log")"
rpm -i --nodeps "$package" > "$work/log" 2>&1 || fail "rpm -i: $(cat "$work/log")"
must_have_asked "an installation" try-restart
check_kubelet
rpm -V --nodeps tranche-kubelet > "$work/log" || fail "rpm -V: $(cat "$work/log")"

inside systemctl --quiet enable tranche-kubelet.service > /dev/null 2>&1
rpm -U --nodeps --force "$package" > "$work/log" 2>&1 || fail "rpm -U: $(cat "$work/log")"
must_have_asked "an upgrade" try-restart
[ -L "$ROOT$link" ] || fail "an upgrade disabled the unit"
rpm -e tranche-kubelet > "$work/log" 2>&1 || fail "rpm -e: $(cat "$work/log")"
must_have_asked "a removal" stop
[ ! -L "$ROOT$link" ] || fail "a removal left the unit enabled"
files > "$work/after"
same "$work/before" "$work/after" "the rpm of tranche-kubelet"
echo "kubelet-rpm: installed, upgraded and removed; nothing is left"
