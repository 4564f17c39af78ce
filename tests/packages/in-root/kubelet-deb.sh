#!/bin/sh
# Installs, upgrades, removes and purges the deb of tranche-kubelet in the root $ROOT, in addition to that of tranche. Called by
# root.sh.
set -eu
here=$(dirname "$0")
. "$here/files.sh"
. "$here/asked.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tranche=$(cd "$ROOT" && ls run/packages/tranche_*.deb)
kubelet=$(cd "$ROOT" && ls run/packages/tranche-kubelet_*.deb)
installs() {
    inside dpkg -i "/$1" > "$work/log" 2>&1 || fail "dpkg -i: $(cat "$work/log")"
}
is_enabled() {
    [ -L "$ROOT$link" ]
}

! inside dpkg -i "/$kubelet" > "$work/log" 2>&1 || fail "the plugin was installed without the broker"
grep -q 'depends on tranche' "$work/log" || fail "no dependency: $(cat "$work/log")"
inside dpkg -P tranche-kubelet > /dev/null 2>&1
installs "$tranche"
record_systemd
mkdir -p "$ROOT/etc/tranche" && echo 'version: v1' > "$ROOT/etc/tranche/config.yaml"
files > "$work/before"

installs "$kubelet"
must_have_asked "an installation" try-restart
check_kubelet

inside systemctl --quiet enable tranche-kubelet.service > /dev/null 2>&1
is_enabled || fail "the unit cannot be enabled"
installs "$kubelet"
must_have_asked "an upgrade" try-restart
is_enabled || fail "an upgrade disabled the unit"

# What an administrator has disabled stays so.
inside systemctl --quiet disable tranche-kubelet.service > /dev/null 2>&1
installs "$kubelet"
must_have_asked "an upgrade where it is disabled" try-restart
! is_enabled || fail "an upgrade enabled a unit that was disabled"

# The broker does not go without its client.
inside systemctl --quiet enable tranche-kubelet.service > /dev/null 2>&1
! inside dpkg -r tranche > "$work/log" 2>&1 || fail "the broker was removed, and the plugin kept"
echo "TRANCHE_KUBELET_OPTIONS='--placement=spread'" > "$ROOT/etc/tranche/kubelet.env"
inside dpkg -r tranche-kubelet > "$work/log" 2>&1 || fail "dpkg -r: $(cat "$work/log")"
must_have_asked "a removal" stop
[ -e "$ROOT/etc/tranche/kubelet.env" ] || fail "a removal without a purge took the options"
inside dpkg -P tranche-kubelet > "$work/log" 2>&1 || fail "dpkg -P: $(cat "$work/log")"
files > "$work/after"
same "$work/before" "$work/after" "the deb of tranche-kubelet"
echo "kubelet-deb: installed, upgraded, removed and purged; nothing is left"
