#!/bin/sh
# Installs and removes the rpm packages in the root $ROOT, with rpm of this machine. Called by root.sh. The root is Debian's,
# so nothing can be said about what the packages require.
set -eu
here=$(dirname "$0")
. "$here/files.sh"
. "$here/installed.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
package=$(ls "$ROOT"/run/packages/tranche-[0-9]*.rpm)
compat=$(ls "$ROOT"/run/packages/tranche-nvidia-compat-[0-9]*.rpm)
wanted=/etc/systemd/system/sockets.target.wants/tranche-broker.socket
rpm() {
    command rpm --root "$ROOT" --nodeps --nosignature "$@"
}

# Directories that the packages filesystem and selinux-policy have on Fedora.
for directory in bash-completion/completions zsh/site-functions fish/vendor_completions.d licenses man/man1 man/man8 \
    selinux/packages; do
    mkdir -p "$ROOT/usr/share/$directory"
done
mkdir -p "$ROOT/usr/libexec"

command rpm --root "$ROOT" --initdb
files > "$work/before"
rpm -i "$package" > "$work/log" 2>&1 || fail "rpm -i: $(cat "$work/log")"
check_installed site-functions
[ -L "$ROOT$wanted" ] || fail "the socket of the broker is not enabled"
rpm -V tranche > "$work/log" || fail "rpm -V: $(cat "$work/log")"

rpm -i "$compat" > "$work/log" 2>&1 || fail "rpm -i: $(cat "$work/log")"
echo "{}" | inside nvidia-cdi-hook noop || fail "nvidia-cdi-hook noop"
rpm -e tranche-nvidia-compat

make_specifications > /dev/null 2>&1
make_engine_files
list_engine_files "$work/engines"
configure_engines > "$work/log" 2>&1 || fail "runtime configure: $(cat "$work/log")"
list_engine_files "$work/configured"
# An upgrade removes nothing.
rpm -U --force "$package" > "$work/log" 2>&1 || fail "rpm -U: $(cat "$work/log")"
[ -e "$ROOT/etc/cdi/tranche.yaml" ] || fail "an upgrade removed a specification"
list_engine_files "$work/upgraded"
same "$work/configured" "$work/upgraded" "an upgrade"
printf '{' > "$ROOT/etc/docker/daemon.json"
mkdir -p "$ROOT/var/lib/tranche-web" && echo kept > "$ROOT/var/lib/tranche-web/history.sqlite"
rpm -e tranche > "$work/log" 2>&1 || fail "rpm -e: $(cat "$work/log")"
check_removal "$work/log"
[ -e "$ROOT/var/lib/tranche-web/history.sqlite" ] || fail "a removal took the history, and rpm has no purge"
rm -r "${ROOT:?}/var/lib/tranche-web"
repair_docker "$work/log"
list_engine_files "$work/restored"
same "$work/engines" "$work/restored" "the removal: engines' files"
for directory in docker containerd crio containers rancher; do
    rm -r "${ROOT:?}/etc/$directory"
done
files > "$work/after"
same "$work/before" "$work/after" "the rpm"
echo "rpm: installed, upgraded and removed; nothing is left"
