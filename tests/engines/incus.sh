# incusd of the package, with a container that runs a shell.
export INCUS_DIR="$bed/incus"
mkdir "$INCUS_DIR" "$bed/image"
/usr/libexec/incus/incusd > "$bed/daemon.log" 2>&1 &
daemon=$!
await incus info
incus storage create default dir > /dev/null
incus profile device add default root disk path=/ pool=default > /dev/null

cp -a "$1" "$bed/image/rootfs"
mkdir "$bed/image/rootfs/sbin"
printf '#!/bin/sh\nwhile :; do sleep 1; done\n' > "$bed/image/rootfs/sbin/init"
chmod 755 "$bed/image/rootfs/sbin/init"
printf 'architecture: %s\ncreation_date: 1700000000\n' "$(uname -m)" > "$bed/image/metadata.yaml"
tar -C "$bed/image" -cf "$bed/image.tar" metadata.yaml rootfs
step import incus image import "$bed/image.tar" --alias bb

# box NAME DEVICE…: a step, in a container with the lines that are exported.
box() {
    name=$1
    shift
    incus init bb "$name" > /dev/null 2>&1
    [ $# = 0 ] || incus config set "$name" raw.lxc="$(tranche export --for lxc $place "$@" 2> /dev/null)"
    step "$name-start" incus start "$name"
    step "$name" incus exec "$name" -- sh -c 'ls -d /dev/nvidia[0-9]* 2>/dev/null; find /usr/lib -name "libcuda.so.*"; env'
    incus stop --force "$name" > /dev/null 2>&1
}
