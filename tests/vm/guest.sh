#!/bin/sh
# Runs inside the machine: a container per check, one `ok` or `failed` line on the console each, then power off.
set -u
exec > /dev/console 2>&1
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
libdir=/usr/lib/x86_64-linux-gnu

check() {
    name=$1
    expected=$2
    shift 2
    # Warnings of an engine about its machine are not what is checked; they are shown if the check fails.
    if actual=$("$@" 2> /tmp/stderr) && [ "$actual" = "$expected" ]; then
        echo "result: ok: $name"
    else
        echo "result: failed: $name: $actual"
        sed 's/^/  /' /tmp/stderr
    fi
}

check "cgroup v2 is mounted alone" cgroup2fs stat -f -c %T /sys/fs/cgroup

# The driver's node and library; reading from the node shows that the container's device rules let it.
mknod -m 666 /dev/nvidia0 c 1 5
mkdir -p /srv/driver /srv/image
echo "a library" > /srv/driver/libcuda.so.580.95.05
image=/srv/image
mkdir -p $image/bin $image/proc $image/sys $image/dev $image/etc $image/tmp $image/run
cp /usr/bin/busybox $image/bin/
for applet in sh ls cat readlink stat env head wc find sort; do ln -s busybox $image/bin/$applet; done
useradd -m tester
cp -a $image /home/tester/image
chown -R tester: /home/tester/image
loginctl enable-linger tester
# The user's own systemd, which divides the user's cgroup for podman; an emulated machine takes its time to start it.
tries=60
while [ $tries -gt 0 ] && ! [ -S "/run/user/$(id -u tester)/bus" ]; do sleep 1; tries=$((tries - 1)); done
mkdir -p /etc/cdi
cp /opt/test/spec.json /etc/cdi/nvidia.json

show="cat $libdir/libcuda.so; readlink $libdir/libcuda.so; head -c 2 /dev/nvidia0 | wc -c; echo \$NVIDIA_VISIBLE_DEVICES"
expected="a library
libcuda.so.1
2
void"
for runtime in crun runc; do
    check "podman with $runtime" "$expected" \
        podman --runtime /usr/bin/$runtime run --rm --network=none --device nvidia.com/gpu=0 --rootfs $image /bin/sh -c "$show"
    check "podman with $runtime starts again on the same root" "$expected" \
        podman --runtime /usr/bin/$runtime run --rm --network=none --device nvidia.com/gpu=0 --rootfs $image /bin/sh -c "$show"
    check "podman of a user with $runtime" "$expected" \
        runuser -u tester -- env -C /home/tester HOME=/home/tester "XDG_RUNTIME_DIR=/run/user/$(id -u tester)" \
        "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/$(id -u tester)/bus" \
        podman --runtime /usr/bin/$runtime run --rm --network=none --device nvidia.com/gpu=0 --rootfs /home/tester/image /bin/sh -c "$show"
done

# From here on the specification that tranche makes of a machine with a driver. Its nodes are this machine's: a rootless
# engine takes none from another path.
rm -r /etc/cdi/nvidia.json /dev/nvidia0 $image/usr /home/tester/image/usr
host=/opt/test/host
cp -a $host/dev/. /dev/
where="--driver-root $host --dev-root / --proc-root $host/proc --sys-root $host/sys"
check "tranche list finds eight GPUs and their MIG devices" "8" \
    sh -c "tranche list $where | grep -c '^[0-9]* .*NVIDIA A100'"
# /run/cdi is where a machine keeps what is made anew at each start.
check "tranche cdi generate" "" tranche cdi generate $where --output /run/cdi/nvidia.yaml
check "tranche cdi validate" "" sh -c "tranche cdi validate /run/cdi/nvidia.yaml > /dev/null"
inside="find /dev -type c -path '/dev/nvidia*' | sort; stat -c %t:%T /dev/nvidia0 /dev/nvidia-caps/nvidia-cap67; readlink $libdir/libcuda.so.1; stat -L -c %s $libdir/libcuda.so"
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
$(stat -c %s $host$libdir/libcuda.so.535.161.08)"
for runtime in crun runc; do
    check "a generated specification: podman with $runtime" "$expected" \
        podman --runtime /usr/bin/$runtime run --rm --network=none --device nvidia.com/gpu=0:0 --rootfs $image /bin/sh -c "$inside"
    check "a generated specification: podman of a user with $runtime" "$expected" \
        runuser -u tester -- env -C /home/tester HOME=/home/tester "XDG_RUNTIME_DIR=/run/user/$(id -u tester)" \
        "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/$(id -u tester)/bus" \
        podman --runtime /usr/bin/$runtime run --rm --network=none --device nvidia.com/gpu=0:0 --rootfs /home/tester/image /bin/sh -c "$inside"
done
check "a generated specification: two devices" "2" \
    podman run --rm --network=none --device nvidia.com/gpu=0:0 --device nvidia.com/gpu=7 --rootfs $image \
    /bin/sh -c "find /dev -name 'nvidia[0-9]' | wc -l"

check "a container without a device has no node" "no" \
    podman run --rm --network=none --rootfs $image /bin/sh -c "[ -e /dev/nvidia0 ] && echo yes || echo no"
check "tranche runs" "$(sed 's/^/tranche /' /opt/test/version)" tranche --version

echo "result: end"
systemctl poweroff
