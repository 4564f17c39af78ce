# What a running container has of its device after `systemctl daemon-reload`, when systemd writes the device rules of each
# unit anew: it finds a device by its link in /dev/char alone. With systemd's cgroup manager, each container is a unit.
. ./check.sh

# start RUNTIME MANAGER
start() {
    podman --runtime "/usr/bin/$1" --cgroup-manager "$2" run --detach --name reload --network=none --device nvidia.com/gpu=0:0 \
        --rootfs $image /bin/sleep 10000 > /dev/null
}
# How many bytes of two the container reads from its device.
bytes() {
    podman exec reload /bin/sh -c "head -c 2 /dev/nvidia0 2> /dev/null | wc -c"
}
# reload RUNTIME MANAGER: the bytes before daemon-reload and after it.
reload() {
    start "$1" "$2" && bytes && systemctl daemon-reload && bytes
    podman rm --force --time 0 reload > /dev/null
}

find /dev/char -lname '*nvidia*' -delete
# runc tells systemd which devices a container has, and systemd finds none of them. crun 1.8 does not tell it, so systemd
# has no rules to write.
check "without links, a container under systemd's cgroup manager loses its device: runc" "2
0" reload runc systemd
check "without links, a container under systemd's cgroup manager keeps its device: crun" "2
2" reload crun systemd
for runtime in crun runc; do
    check "without links, a container under cgroupfs keeps its device: $runtime" "2
2" reload $runtime cgroupfs
done
check "tranche doctor finds the missing links" "1" \
    sh -c "tranche doctor 2>&1 | grep -c 'tranche system create-dev-char-symlinks'"
check "tranche system create-dev-char-symlinks" "" sh -c "tranche system create-dev-char-symlinks 2> /dev/null"
check "after the fix, tranche doctor finds no missing links" "0" \
    sh -c "tranche doctor 2>&1 | grep -c 'create-dev-char-symlinks' || true"
check "the links lead to the nodes" "/dev/nvidia0" readlink -f /dev/char/195:0
for runtime in crun runc; do
    check "with links, a container under systemd's cgroup manager keeps its device: $runtime" "2
2" reload $runtime systemd
done
systemctl disable tranche-cdi-refresh.path 2> /dev/null
fix=$(tranche doctor 2>&1 | sed -n 's/^ *fix: \(systemctl enable --now tranche-cdi-refresh.*\)/\1/p')
check "tranche doctor finds that the units are not enabled" \
    "systemctl enable --now tranche-cdi-refresh.service tranche-cdi-refresh.path" echo "$fix"
check "after the fix, tranche doctor finds the units enabled" "0" \
    sh -c "$fix 2> /dev/null; tranche doctor 2>&1 | grep -c 'tranche-cdi-refresh.path are not' || true"
