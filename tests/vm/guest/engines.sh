# Hooks under podman with crun and runc, of root and of a user, without a driver: a specification that was written by hand.
. ./check.sh

# A node of the machine; reading from it shows that the container's device rules let it.
mknod -m 666 /dev/nvidia0 c 1 5
mkdir -p /srv/driver /etc/cdi
echo "a library" > /srv/driver/libcuda.so.580.95.05
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
        as_user podman --runtime /usr/bin/$runtime run --rm --network=none --device nvidia.com/gpu=0 --rootfs $user_image /bin/sh -c "$show"
done

check "a container without a device has no node" "no" \
    podman run --rm --network=none --rootfs $image /bin/sh -c "[ -e /dev/nvidia0 ] && echo yes || echo no"

rm -r /etc/cdi/nvidia.json /dev/nvidia0 $image/usr $user_image/usr
