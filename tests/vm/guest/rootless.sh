# Shares in containers of a user's own engine, which get them from the broker.
. ./check.sh

# The podman of the user with the runtime of this round.
user_podman() {
    as_user podman --runtime "/usr/bin/$runtime" "$@"
}
# start NAME DEVICE: a container of the user that sleeps.
start() {
    rm -rf "/home/tester/$1"
    cp -a $user_image "/home/tester/$1"
    user_podman run --detach --name "$1" --network=none --device "nvidia.com/gpu=$2" --rootfs "/home/tester/$1" /bin/sleep 10000
}
started() {
    start "$@" > /dev/null
}
refused() {
    ! start "$@" > /dev/null
}
remove() {
    user_podman rm --force --time 0 "$@" > /dev/null
}

for runtime in crun runc; do
    check "a container of a user holds a share: $runtime" "" started one 5.any
    check "the share is the user's: $runtime" "nvidia.com/gpu=5.0 1000" held
    check "the container reads from its GPU: $runtime" "2" user_podman exec one /bin/sh -c "head -c 2 /dev/nvidia5 | wc -c"
    check "a second container gets another share: $runtime" "" started two 5.any
    check "a share under MPS is refused: $runtime" "" refused three 7.small
    user_podman rm --force three > /dev/null 2>&1
    check "the containers are removed: $runtime" "" remove one two
    check "no share is held any more: $runtime" "" held
done
