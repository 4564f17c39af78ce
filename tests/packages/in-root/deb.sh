#!/bin/sh
# Installs, removes and purges the deb packages in the root $ROOT. Called by root.sh.
set -eu
here=$(dirname "$0")
. "$here/files.sh"
. "$here/installed.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tranche=$(cd "$ROOT" && ls run/packages/tranche_*.deb)
compat=$(cd "$ROOT" && ls run/packages/tranche-nvidia-compat_*.deb)
wanted=/etc/systemd/system/sockets.target.wants/tranche-broker.socket

files > "$work/before"
inside dpkg -i "/$tranche" > "$work/log" 2>&1 || fail "dpkg -i: $(cat "$work/log")"
check_installed vendor-completions
[ -L "$ROOT$wanted" ] || fail "the socket of the broker is not enabled"
[ -d "$ROOT/run/tranche/mps" ] || fail "systemd-tmpfiles did not make /run/tranche/mps"

# The links of NVIDIA's names.
files > "$work/without-names"
inside dpkg -i "/$compat" > "$work/log" 2>&1 || fail "dpkg -i: $(cat "$work/log")"
echo "{}" | inside nvidia-cdi-hook noop || fail "nvidia-cdi-hook noop"
printf 'version: v1\nmig-configs: {all-disabled: [{devices: all, mig-enabled: false}]}\n' | \
    inside nvidia-mig-parted assert --valid-config -f - > /dev/null || fail "nvidia-mig-parted assert"
inside dpkg -P tranche-nvidia-compat > /dev/null
files > "$work/names-removed"
same "$work/without-names" "$work/names-removed" "tranche-nvidia-compat"

# It takes the place of NVIDIA's toolkit, of which this package has the name and one file, and is not replaced by it.
nvidia=$ROOT/tmp/nvidia
mkdir -p "$nvidia/DEBIAN" "$nvidia/usr/bin"
printf '#!/bin/sh\n' > "$nvidia/usr/bin/nvidia-ctk"
printf 'Package: nvidia-container-toolkit-base\nVersion: 1.20.0-1\nArchitecture: all\nMaintainer: test <test@localhost>\n%s\n' \
    'Description: a package of this name' > "$nvidia/DEBIAN/control"
inside dpkg-deb --root-owner-group -b /tmp/nvidia /tmp/nvidia.deb > /dev/null
inside dpkg -i /tmp/nvidia.deb > /dev/null
inside dpkg -i "/$compat" > "$work/log" 2>&1 || fail "dpkg -i: $(cat "$work/log")"
! inside dpkg -s nvidia-container-toolkit-base > /dev/null 2>&1 || fail "NVIDIA's package is still installed"
[ "$(inside readlink /usr/bin/nvidia-ctk)" = tranche-oci ] || fail "nvidia-ctk is not tranche-oci"
! inside dpkg -i /tmp/nvidia.deb > "$work/log" 2>&1 || fail "NVIDIA's package was installed beside tranche-nvidia-compat"
grep -q 'conflicting packages' "$work/log" || fail "no conflict: $(cat "$work/log")"
inside dpkg -P tranche-nvidia-compat > /dev/null 2>&1

# Another driver is installed: work that only the one before can resume is named, if there is any.
driver=$ROOT/tmp/driver
libraries=usr/lib/x86_64-linux-gnu
mkdir -p "$driver/DEBIAN" "$driver/$libraries"
: > "$driver/$libraries/libcuda.so.1"
printf 'Package: a-driver\nVersion: 1\nArchitecture: all\nMaintainer: test <test@localhost>\nDescription: a driver\n' \
    > "$driver/DEBIAN/control"
inside dpkg-deb --root-owner-group -b /tmp/driver /tmp/driver.deb > /dev/null
inside dpkg -i /tmp/driver.deb > "$work/log" 2>&1 || fail "dpkg -i: $(cat "$work/log")"
grep -q 'Processing triggers for tranche' "$work/log" || fail "no trigger: $(cat "$work/log")"
! grep -q 'suspended work' "$work/log" || fail "it names suspended work, although there is none: $(cat "$work/log")"
turns=$ROOT/run/tranche/turns
mkdir -p "$turns"
printf '{"version":1,"resident":null,"change":null,"trouble":null,"holders":{"0:train":%s}}\n' \
    '{"wants_since":null,"since":1,"bytes":5368709120,"driver_version":"580.159.04"}' \
    > "$turns/GPU-11111111-2222-3333-4444-555555555555.json"
inside dpkg -i /tmp/driver.deb > "$work/log" 2>&1 || fail "dpkg -i: $(cat "$work/log")"
grep -q '1 suspended, with 5120 MiB in the memory of the machine' "$work/log" || fail "it does not name the suspended work: $(cat "$work/log")"
rm -r "$turns"
inside dpkg -P a-driver > /dev/null 2>&1

# What an administrator has disabled stays so after an upgrade.
inside systemctl --quiet disable tranche-broker.socket > /dev/null 2>&1
inside dpkg -i "/$tranche" > "$work/log" 2>&1 || fail "dpkg -i: $(cat "$work/log")"
[ ! -e "$ROOT$wanted" ] || fail "an upgrade enabled a unit that was disabled"

# What tranche wrote into files of engines outlives an upgrade.
make_engine_files
list_engine_files "$work/engines"
configure_engines > "$work/log" 2>&1 || fail "runtime configure: $(cat "$work/log")"
list_engine_files "$work/configured"
inside dpkg -i "/$tranche" > "$work/log" 2>&1 || fail "dpkg -i: $(cat "$work/log")"
list_engine_files "$work/upgraded"
same "$work/configured" "$work/upgraded" "an upgrade"

make_specifications > /dev/null 2>&1
mkdir -p "$ROOT/etc/tranche" && echo 'version: v1' > "$ROOT/etc/tranche/config.yaml"
mkdir -p "$ROOT/var/lib/tranche" && echo '{"version":1,"devices":[]}' > "$ROOT/var/lib/tranche/out-of-service.json"
mkdir -p "$ROOT/var/lib/tranche-web" && echo kept > "$ROOT/var/lib/tranche-web/history.sqlite"
inside dpkg -r tranche > "$work/log" 2>&1 || fail "dpkg -r: $(cat "$work/log")"
check_removal "$work/log"
[ -e "$ROOT/var/lib/tranche-web/history.sqlite" ] || fail "a removal without a purge took the history"
[ -e "$ROOT/etc/tranche/config.yaml" ] || fail "a removal without a purge took the policy"
[ -e "$ROOT/var/lib/tranche/out-of-service.json" ] || fail "a removal without a purge put devices back into service"
list_engine_files "$work/restored"
same "$work/engines" "$work/restored" "the removal: engines' files"

# A file that cannot be edited keeps neither the removal nor a later purge, and is repaired without tranche.
inside dpkg -i "/$tranche" > "$work/log" 2>&1 || fail "dpkg -i: $(cat "$work/log")"
configure_engines > "$work/log" 2>&1 || fail "runtime configure: $(cat "$work/log")"
printf '{' > "$ROOT/etc/docker/daemon.json"
inside dpkg -r tranche > "$work/removal" 2>&1 || fail "dpkg -r: $(cat "$work/removal")"
inside dpkg -P tranche > "$work/log" 2>&1 || fail "dpkg -P: $(cat "$work/log")"
[ ! -e "$ROOT/var/lib/tranche-web" ] || fail "a purge left the history"
repair_docker "$work/removal"
list_engine_files "$work/restored"
same "$work/engines" "$work/restored" "the purge: engines' files"
for directory in docker containerd crio containers rancher; do
    rm -r "${ROOT:?}/etc/$directory"
done
files > "$work/after"
same "$work/before" "$work/after" "the deb"
echo "deb: installed, upgraded, removed and purged; nothing is left"
