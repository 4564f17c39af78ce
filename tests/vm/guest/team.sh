# docs/how-to/team.md as it is typed, on a machine with one GPU that is given whole and one in turns, and the ends of what is held
# for too long.
. ./check.sh

# as USER COMMAND…: as a user without a session.
as() {
    user=$1
    shift
    runuser -u "$user" -- "$@"
}
# says TEXT COMMAND…: how many lines of what the command prints have the text.
says() {
    text=$1
    shift
    "$@" 2>&1 | grep -c "$text" || true
}
policy=/etc/tranche/config.yaml
# into_force FILE: as the page says it; a unit notices the file.
into_force() {
    cp "$1" $policy
    tranche cdi refresh > /dev/null 2>&1
}
# default_rules RULES: the policy of the page with other rules for everybody of whom nothing else is said.
default_rules() {
    sed "s/^    default: .*/    default: {$1}/" /tmp/team.yaml > /tmp/rules.yaml
    into_force /tmp/rules.yaml
}
nothing_held() { [ -z "$(held)" ]; }
something_held() { [ -n "$(held)" ]; }

cp $policy /tmp/before.yaml
sed -n '/^# cat \/etc\/tranche\/config.yaml/,/^# tranche policy check/{p; /^# tranche policy check/q}' /opt/test/team.md |
    sed '1d; $d; s/\[0, 1, 2, 3, 4, 5\]/[7]/; s/\[6, 7\]/[5]/; s/all: 13/all: 4/' > /tmp/team.yaml
check "policy check warns of a user and groups that the machine lacks" 3 \
    says '^sharing.users: .* was not found on this machine$' tranche policy check --config /tmp/team.yaml
groupadd phd
groupadd guests
useradd -m -G phd ann
useradd -m -G guests gus
check "policy check has nothing to say of them any more" 0 says 'not found' tranche policy check --config /tmp/team.yaml
check "policy diff says that something changes" 4 sh -c 'tranche policy diff /tmp/team.yaml > /dev/null 2>&1; echo $?'
check "the policy is put into force" "" into_force /tmp/team.yaml

check "a user claims any whole device" "nvidia.com/claim=1000.train" as_user tranche claim create --name train --device any
check "a container of the user has it" "/dev/nvidia7" as_user podman run --rm --network=none --device nvidia.com/claim=1000.train \
    --rootfs $user_image /bin/sh -c 'echo /dev/nvidia[0-9]*'
as ann tranche run --share any --wait 30m -- sh -c 'echo ran' > /tmp/ann 2>&1 &
check "another user waits for one, and sees it" "" await sh -c 'runuser -u ann -- tranche status | grep -q any'
check "root sees who waits" "" await sh -c "tranche status | grep -q '$(id -u ann)'"
check "a guest gets no whole device" 1 says 'may hold 0 whole devices' as gus tranche claim create --name g --device any
check "a guest runs a program in a turn" ran as gus tranche run --share 5.any -- echo ran
check "the claim is released" "" sh -c 'runuser -u tester -- tranche claim release train > /dev/null'
wait
check "who waited is served" ran cat /tmp/ann

check "the history has who held it" "" await sh -c "tranche history --json | grep -q '\"who\": *\"tester'"
check "a user sees the own hours alone" "" sh -c ". ./check.sh; as_user tranche report --csv | grep -q tester && ! as_user tranche report --csv | grep -q ann"

check "a device is taken out of service" 1 says "out of service since .* (fan)" tranche drain 7 --reason fan
check "nothing new of it is given" 1 says "out of service since .* (fan)" as ann tranche claim create --name a --device 7
check "it is put back" 0 sh -c 'tranche undrain 7 > /dev/null 2>&1; echo $?'

# What holds its share for too long is ended.
cp -a $user_image /home/tester/forgotten
cp -a $user_image /home/tester/elsewhere
default_rules "maxShares: 2, maxHold: 20s, atLimit: end, grace: 5s"
as_user script --quiet --flush --command 'chmod 620 "$(tty)"; sleep 10000' /tmp/terminal > /dev/null 2>&1 &
terminal=$!
check "a container that podman starts again holds a turn" "" sh -c ". ./check.sh; as_user podman run --detach --restart=always \
    --name forgotten --network=none --device nvidia.com/gpu=5.any --rootfs /home/tester/forgotten /bin/sleep 10000 > /dev/null"
check "the container is ended" "" await nothing_held
is_stopped() { as_user podman inspect --format '{{.State.Status}}' forgotten | grep -qx exited; }
check "it is stopped" "" await is_stopped
check "the terminal of the user shows why" 1 says 'held for longer than 20s, which is maxHold in .*; it is ended' cat /tmp/terminal
kill $terminal
sleep 10
check "it is not started again" "" is_stopped
check "podman has stopped it" 1 says 'asked to end, by podman stop$' journalctl --boot --no-pager -u tranche-broker
as_user podman rm --force --time 0 forgotten > /dev/null

# In a storage that podman does not look into unless it is told, so that it is ended without podman.
check "a container in another storage holds a turn" "" sh -c ". ./check.sh; as_user podman --root /home/tester/storage run --detach \
    --name elsewhere --network=none --device nvidia.com/gpu=5.any --rootfs /home/tester/elsewhere /bin/sleep 10000 > /dev/null"
check "this container is ended as well" "" await nothing_held
check "it is killed with its cgroup" 1 says 'killed, because it has not ended within the grace$' journalctl --boot --no-pager -u tranche-broker
check "nothing could not be ended" 0 says 'cannot be ended' journalctl --boot --no-pager -u tranche-broker
as_user podman --root /home/tester/storage rm --force --time 0 elsewhere > /dev/null

# What does nothing is shown; the driver reports the work of each process.
default_rules "maxShares: 2, idle: 1s"
nvml=/dev/tranche-test/nvml.json
sed 's/"minor":5,/"minor":5,"utilization":{"gpu":0,"memory":0},/' $nvml > /tmp/nvml.json
cp /tmp/nvml.json $nvml
as_user tranche run --share 5.any -- sleep 10000 > /dev/null 2>&1 &
check "a program holds a turn" "" await something_held
has_idle() { tranche status --no-gpu --json | grep -q '"idle-too-long"'; }
has_none() { ! has_idle; }
check "it is shown when it does nothing" "" await has_idle
pid=$(tranche status --no-gpu --json | sed -n '/"process": {/,/}/s/.*"pid": \([0-9]*\).*/\1/p' | head -n 1)
sed "s/\"minor\":5,/\"minor\":5,\"utilization\":{\"gpu\":9,\"memory\":0},\"processes\":[{\"pid\":$pid,\"kind\":\"compute\",\"sm\":9}],/" \
    /opt/test/loaded.json > /tmp/nvml.json
cp /tmp/nvml.json $nvml
check "it is not idle when it works" "" await has_none
kill "$pid"
wait
cp /opt/test/loaded.json $nvml

into_force /tmp/before.yaml
check "nothing is held, and the other policy counts again" "" await sh -c ". ./check.sh; [ -z \"\$(held)\" ] && grep -q 7.big /run/cdi/tranche.yaml"
userdel -r ann 2> /dev/null
userdel -r gus 2> /dev/null
groupdel phd 2> /dev/null
groupdel guests 2> /dev/null
rm -rf /home/tester/forgotten /home/tester/elsewhere /home/tester/storage
