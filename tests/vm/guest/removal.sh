# The package goes: what refers to its programs goes with it, and nothing is left after a purge.
. ./check.sh

left() { find /etc /run /usr /var/lib/systemd /var/lib/tranche -name '*tranche*' ! -path '*tranche-test*' 2> /dev/null | sort; }
check "the package is removed" "" sh -c "dpkg -r tranche > /tmp/removal 2>&1"
check "the nodes are open" "666 666" sh -c "stat -c %a /dev/nvidia5 /dev/nvidia7 | paste -sd ' '"
rmmod nvidia
modprobe nvidia
check "the driver makes nodes at the next boot" 1 grep -c '^ModifyDeviceFiles: 1$' /proc/driver/nvidia/params
check "no specification names a hook that is gone" "" sh -c "grep -l tranche-oci /run/cdi/* /etc/cdi/* 2> /dev/null || true"
check "no unit of it runs" "" systemctl list-units --plain --no-legend 'tranche-broker*' 'tranche-mps*' 'tranche-cdi*' 'tranche-device*'
check "no unit has failed" "" systemctl list-units --failed --no-legend --plain
check "a container without a device starts" "yes" \
    podman run --rm --network=none --rootfs $image /bin/sh -c "echo yes"
check "the package is purged" "" sh -c "dpkg -P tranche > /tmp/removal 2>&1"
check "nothing of it is left" "" left
