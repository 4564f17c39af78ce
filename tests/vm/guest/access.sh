# Closed device nodes: users with and without a claim, a user's podman, and what opens the nodes again. They stay closed over
# the reboot.
. ./check.sh

policy=/etc/tranche/config.yaml
says() {
    text=$1
    shift
    "$@" 2>&1 | grep -c "$text" || true
}
# denied USER NODE: why the user cannot open it; nothing if the user can.
denied() { runuser -u "$1" -- head -c 1 "/dev/$2" 2>&1 > /dev/null | sed 's/.*: //'; }
modes() { for node in "$@"; do stat -c %a "/dev/$node"; done | paste -sd ' '; }
no="Permission denied"
is_holder() { [ -z "$(denied tester nvidia5)" ] && [ "$(denied ann nvidia5)" = "$no" ]; }
is_nobody() { [ "$(denied tester nvidia5)" = "$no" ] && [ "$(denied ann nvidia5)" = "$no" ]; }
useradd -m ann

check "protect refuses a policy that leaves the nodes open" 1 says 'write sharing.access: enforce' tranche system protect
sed -i 's/^sharing:/sharing:\n  access: enforce/' $policy
tranche cdi refresh > /dev/null 2>&1
check "protect is not in force before the module has its option" 1 says '^not in force' tranche system protect
check "a user still opens a node" "" denied ann nvidia5
check "doctor says so" 1 sh -c "tranche doctor --json | grep -c '\"finding\": \"access-not-in-force\"'"

# As at a boot: the module comes with its option, and there are no nodes.
rmmod nvidia
is_absent() { [ ! -e /run/cdi/tranche.yaml ]; }
await is_absent
rm -rf /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-modeset /dev/nvidia-caps
modprobe nvidia
check "the driver leaves nodes alone" 1 grep -c '^ModifyDeviceFiles: 0$' /proc/driver/nvidia/params
are_made() { [ "$(modes nvidia5 nvidia6 nvidia7 nvidiactl)" = "660 666 660 666" ]; }
check "the nodes are made, and those of shared GPUs are closed" "" await are_made
await grep -q 7.big /run/cdi/tranche.yaml
check "protect is in force" 1 says '^in force' tranche system protect
check "users without a claim cannot open a node" "" await is_nobody
check "root can" "" sh -c "head -c 1 /dev/nvidia5 > /dev/null"

check "a user claims a share" "nvidia.com/claim=1000.closed" as_user tranche claim create --name closed --shares 1 --device 5
check "the holder opens the node, and nobody else" "" is_holder
check "the holder opens no other GPU" "$no" denied tester nvidia7
for runtime in crun runc; do
    check "a container of the holder opens it: $runtime" 2 as_user podman --runtime /usr/bin/$runtime run --rm --network=none \
        --device nvidia.com/claim=1000.closed --rootfs $user_image /bin/sh -c "head -c 2 /dev/nvidia5 | wc -c"
    check "one of a subordinate uid opens it: $runtime" 2 as_user podman --runtime /usr/bin/$runtime run --rm --network=none \
        --user 7 --device nvidia.com/gpu=5.any --rootfs $user_image /bin/sh -c "head -c 2 /dev/nvidia5 | wc -c"
done

systemctl restart tranche-broker.service
check "a restart of the broker changes nothing" "" is_holder
# nvidia-modprobe where it does not know the option: it makes the node anew, for everybody.
by_hand() {
    rm /dev/nvidia5
    mknod -m 666 /dev/nvidia5 c 195 5
}
by_hand
check "a node that was made by hand is open" "" denied ann nvidia5
check "the broker closes it again" "" await is_holder
systemctl kill --signal=KILL tranche-broker.service
by_hand
check "so does the next broker after one that was killed" "" await is_holder
chmod 666 /dev/nvidia7
tranche cdi refresh > /dev/null 2>&1
check "so does a refresh" 660 modes nvidia7

runuser -u tester -- sleep 10000 < /dev/nvidia5 &
sleeper=$!
check "the claim is released" "" as_user sh -c "tranche claim release closed > /dev/null"
check "nobody opens the node any more" "" await is_nobody
# The one process that has a descriptor of before.
check "doctor names who has it open" 1 sh -c "tranche doctor --json | grep -c '\"finding\": \"access-\(without-claim\|of-service\)\"'"
kill $sleeper
wait
