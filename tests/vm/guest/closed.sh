# Closed device nodes after the boot, and how they are opened. They are closed when the package is removed.
. ./check.sh

policy=/etc/tranche/config.yaml
option=/etc/modprobe.d/tranche-device-nodes.conf
denied() { runuser -u "$1" -- head -c 1 "/dev/$2" 2>&1 > /dev/null | sed 's/.*: //'; }
modes() { for node in "$@"; do stat -c %a "/dev/$node"; done | paste -sd ' '; }

check "the driver leaves nodes alone" 1 grep -c '^ModifyDeviceFiles: 0$' /proc/driver/nvidia/params
are_made() { [ "$(modes nvidia5 nvidia6 nvidia7 nvidiactl)" = "660 666 660 666" ]; }
check "the nodes are made closed at boot" "" await are_made
check "a user without a claim cannot open one" "Permission denied" denied ann nvidia5

check "unprotect refuses a policy that closes the nodes" 1 \
    sh -c "tranche system unprotect 2>&1 | grep -c 'says sharing.access: enforce'"
sed -i '/^  access: enforce$/d' $policy
tranche cdi refresh > /dev/null 2>&1
is_open() { [ "$(modes nvidia5 nvidia7)" = "666 666" ]; }
check "a policy without access opens them" "" await is_open
check "unprotect removes the option" "" sh -c "tranche system unprotect > /dev/null 2>&1 && test ! -e $option"
sed -i 's/^sharing:/sharing:\n  access: enforce/' $policy
tranche cdi refresh > /dev/null 2>&1
check "protect closes them again" "" sh -c "tranche system protect > /dev/null 2>&1 && test -e $option"
check "and they are closed" "" await are_made
