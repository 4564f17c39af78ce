# The driver's module comes and goes, MIG devices change, and the specification follows. Later topics use what is there then.
. ./check.sh

spec=/run/cdi/tranche.yaml
has() { grep -q "$1" $spec; }
lacks() { [ -e $spec ] && ! has "$1"; }
is_absent() { [ ! -e $spec ]; }
# The next change is noticed once the path unit waits again, a moment after the service has ended.
has_ended() {
    [ "$(systemctl is-active tranche-cdi-refresh.service)" = inactive ] &&
        [ "$(systemctl show --property SubState --value tranche-cdi-refresh.path)" = waiting ]
}

depmod
check "without its module, tranche says how to load it" "1" \
    sh -c "tranche cdi generate --output /run/cdi/nvidia.yaml 2>&1 | grep -c '^tranche: .*load it with modprobe nvidia'"
systemctl start tranche-cdi-refresh.service
check "a refresh before the module comes does not fail" "inactive" state tranche-cdi-refresh.service
check "there is no specification without the module" "" is_absent
modprobe nvidia
check "the specification appears when the driver's module comes" "" await test -e $spec
check "the driver's nodes are as its module numbers them" "c3:7" stat -c %t:%T /dev/nvidia7
check "the links lead to the nodes" "/dev/nvidia7" readlink -f /dev/char/195:7
check "tranche list finds eight GPUs and their MIG devices" "8" sh -c "tranche list | grep -c '^[0-9]* .*NVIDIA A100'"
check "tranche cdi validate" "" sh -c "tranche cdi validate $spec > /dev/null"

inside="find /dev -type c -path '/dev/nvidia*' | sort; stat -c %t:%T /dev/nvidia0 /dev/nvidia-caps/nvidia-cap67; readlink $libdir/libcuda.so.1; stat -L -c %s $libdir/libcuda.so; head -c 2 /dev/nvidia0 | wc -c"
expected="/dev/nvidia-caps/nvidia-cap66
/dev/nvidia-caps/nvidia-cap67
/dev/nvidia-modeset
/dev/nvidia-uvm
/dev/nvidia-uvm-tools
/dev/nvidia0
/dev/nvidiactl
c3:0
ed:43
libcuda.so.535.161.08
$(stat -c %s $libdir/libcuda.so.535.161.08)
2"
for runtime in crun runc; do
    check "a generated specification: podman with $runtime" "$expected" \
        podman --runtime /usr/bin/$runtime run --rm --network=none --device nvidia.com/gpu=0:0 --rootfs $image /bin/sh -c "$inside"
    check "a generated specification: podman of a user with $runtime" "$expected" \
        as_user podman --runtime /usr/bin/$runtime run --rm --network=none --device nvidia.com/gpu=0:0 --rootfs $user_image /bin/sh -c "$inside"
done
check "a generated specification: two devices" "2" \
    podman run --rm --network=none --device nvidia.com/gpu=0:0 --device nvidia.com/gpu=7 --rootfs $image \
    /bin/sh -c "find /dev -name 'nvidia[0-9]' | wc -l"

# A MIG device is removed: NVML does not have it any more, and its node goes.
cp /dev/tranche-test/nvml.json /tmp/nvml.json
sed 's/,{"id":9,"profile":"1g.5gb"[^}]*"start":6,"compute":\[{"id":0,"uuid":"MIG-84d5b543[^]]*\]}//' /tmp/nvml.json > /dev/tranche-test/nvml.json
check "the specification has the MIG device" "" has MIG-84d5b543
rm /dev/nvidia-caps/nvidia-cap219 /dev/nvidia-caps/nvidia-cap220
check "the specification lacks a MIG device that was removed" "" await lacks MIG-84d5b543
await has_ended
cp /tmp/nvml.json /dev/tranche-test/nvml.json
mknod -m 444 /dev/nvidia-caps/nvidia-cap219 c 237 219
mknod -m 444 /dev/nvidia-caps/nvidia-cap220 c 237 220
check "the specification has a MIG device that was made" "" await has MIG-84d5b543
await has_ended

# A package that is updated without the driver is removed, and installed again.
check "the specification has a library with a version of its own" "" has libnvidia-egl-wayland.so.1
mkdir /tmp/removed
mv $libdir/libnvidia-egl-wayland.so.1* /tmp/removed
check "the specification lacks a library whose package was removed" "" await lacks libnvidia-egl-wayland.so.1
await has_ended
# systemd 252 misses what changes within a second after the service has ended, although the path unit says that it waits:
# tranche-cdi-recheck.service finds it.
mv /tmp/removed/* $libdir
check "the specification has the library of a package that was installed" "" await has libnvidia-egl-wayland.so.1
await has_ended

rmmod nvidia
check "the specification disappears when the driver's module is removed" "" await is_absent
await has_ended
check "that refresh has not failed" "success" systemctl show --property Result --value tranche-cdi-refresh.service
modprobe nvidia
check "the specification appears again" "" await test -e $spec
