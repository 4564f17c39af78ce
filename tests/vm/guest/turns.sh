# Turns: a second driver, which can suspend processes, and containers and programs that have GPU 7 one after another, under
# systemd's division of cgroups and in the sandbox of the broker's unit. Before Linux 6.6 no call is seen: who is away comes
# back by `tranche resume`.
. ./check.sh

policy=/etc/tranche/config.yaml
files=/opt/test/turns
record=/run/tranche/turns/$(cat $files/gpu).json
meeting=/dev/tranche-test/meeting
module=/usr/lib/modules/$(uname -r)/extra/nvidia.ko
bytes=20971520

is_absent() { [ ! -e /run/cdi/tranche.yaml ]; }
# swap FROM TO MODULE LOADED: another driver takes the place of this one.
swap() {
    rmmod nvidia
    await is_absent
    (cd "$files/$1" && find . ! -type d) | while read -r file; do rm -f "$libdir/$file"; done
    cp -a "$files/$2/." $libdir
    cp "$3" "$module"
    cp "$4" /opt/test/loaded.json
    ldconfig
    depmod
    modprobe nvidia
}
# start NAME RUNTIME: a container whose program does the words of a file, and says what became of them in another one.
start() {
    cp -a /srv/turns "/srv/turns.$1"
    : > "/srv/turns.$1/words"
    podman --runtime "/usr/bin/$2" run --detach --name "$1" --network=none --device nvidia.com/gpu=7.any \
        --volume $meeting:$meeting --volume $libdir/cuda.json:$libdir/cuda.json:ro --volume $files/program:/program:ro \
        --rootfs "/srv/turns.$1" /bin/sh -c "busybox tail -f /words | /program $libdir/libcuda.so.1 0 > /said" > /dev/null &&
        await has_answered "$1" 0
}
tell() { echo "$2" >> "/srv/turns.$1/words"; }
answers() { wc -l < "/srv/turns.$1/said"; }
has_answered() { [ "$(answers "$1")" -gt "$2" ]; }
# does NAME WORDS ANSWER
does() {
    before=$(answers "$1")
    tell "$1" "$2"
    await has_answered "$1" "$before"
    answer=$(tail -n 1 "/srv/turns.$1/said")
    [ "$answer" = "$3" ] || echo "$1 answers: $answer"
}
# What an update of the driver would lose.
is_suspended() { tranche doctor --check "suspended work" 2> /dev/null | grep -q "gpu 7: $1 suspended, with $2 MiB in the memory of the machine"; }
# resumed NAME: it has the device again, and its memory is as it was.
resumed() { tranche resume "$1" > /dev/null && does "$1" check good; }
restarted() { [ "$(systemctl show --property MainPID --value tranche-broker.service)" != "$broker" ] && [ "$(systemctl is-active tranche-broker.service)" = active ]; }

cp $policy /tmp/before-turns.yaml
cp "$module" /tmp/before-turns.ko
cp /opt/test/loaded.json /tmp/before-turns.json
check "another driver is installed" "" swap before now $files/nvidia.ko $files/loaded.json
mkdir -p "$meeting/$(cat $files/gpu)"
touch $meeting/lock
chmod 777 $meeting "$meeting/$(cat $files/gpu)" $meeting/lock
cat > $policy << 'EOF'
version: v1
sharing:
  access: enforce
  wait: 5m
  mps:
    resources:
    - {name: nvidia.com/gpu, devices: [5], replicas: 2}
  turns:
    assumeTested: true
    resources:
    - {name: nvidia.com/gpu, devices: [7], holders: 3, turn: 8s, idle: 2s, hostMemory: 100Mi}
EOF
check "the specification follows the policy" "" await grep -q '[ "]7\.any' /run/cdi/tranche.yaml
check "it is of the other driver" "" grep -q "libcuda.so.$(cat $files/version)" /run/cdi/tranche.yaml

# An image with what the program needs.
cp -a $image /srv/turns
ldd $files/program "$files/now/libcuda.so.$(cat $files/version)" | sed -n 's/.*[[:space:]]\(\/[^ ]*\) (.*/\1/p' | sort -u |
    while read -r file; do
        mkdir -p "/srv/turns${file%/*}"
        cp -L "$file" "/srv/turns$file"
    done

check "a container has the device: crun" "" start one crun
check "it computes" "" does one "take $bytes" taken
check "a container has a part of another GPU, under MPS" control podman run --rm --network=none --device nvidia.com/gpu=5.any \
    --rootfs $image /bin/sh -c 'ls -A "$CUDA_MPS_PIPE_DIRECTORY"'
check "a second one begins with its first turn: runc" "" start two runc
check "who was idle is in the memory of the machine" "" await is_suspended 1 20
check "the second one computes" "" does two "take $bytes" taken
check "it opens the device" "" does two "open /dev/nvidia7" opened
check "who is away cannot open it" "" does one "open /dev/nvidia7" "error 1"
check "the first one comes back, with its memory as it was" "" resumed one
check "the second one is away" "" does two "open /dev/nvidia7" "error 1"

check "systemd reads its units anew" "" systemctl daemon-reload
check "who is away stays away" "" does two "open /dev/nvidia7" "error 1"
check "who has the device keeps it" "" does one "open /dev/nvidia7" opened

broker=$(systemctl show --property MainPID --value tranche-broker.service)
check "the broker is killed" "" systemctl kill --signal=KILL tranche-broker.service
check "it is started again" "" await restarted
check "the second one comes back under the next broker" "" resumed two
check "the first one is away again" "" does one "open /dev/nvidia7" "error 1"

check "root suspends the one who has the device" "" sh -c "tranche suspend two > /dev/null"
check "doctor says that both are in the memory of the machine" "" await is_suspended 2 40
check "a user's program begins with its first turn" 1 \
    sh -c "systemd-run --uid=tester --property=Delegate=yes --wait --pipe --quiet \
        tranche run --share 7.any -- $files/program $libdir/libcuda.so.1 1048576 < /dev/null 2> /tmp/run | grep -c '^ready'"
check "the first one comes back after the program" "" resumed one

podman rm --force --time 0 one two > /dev/null
check "nothing is recorded after the end" "" await test ! -e "$record"
check "no change has failed" 0 sh -c "journalctl --boot --no-pager -u tranche-broker | grep -c 'turns: .*failed' || true"

cp /tmp/before-turns.yaml $policy
check "the driver of before is installed again" "" swap now before /tmp/before-turns.ko /tmp/before-turns.json
check "the shares of before are there again" "" await grep -q 7.big /run/cdi/tranche.yaml
rm -rf /srv/turns /srv/turns.* $meeting
