# containerd through ctr, with the configuration of its package. $runtime makes our runtime the runc of each container.
engine_up() {
    rootfs=$1
    daemon_up
}

# ctr reads no configuration of the CRI.
configure() { :; }

engine_down() {
    for name in $(ctr container list --quiet); do
        remove "$name" > /dev/null 2>&1
    done
    daemon_down
}

ctr_run() {
    # shellcheck disable=SC2086 # no word, or two
    ctr run $runtime "$@"
}

run_() {
    shift
    ctr_run --rm $options --rootfs "$rootfs" "$name" "$@"
}

# Each container that stays has a root of its own.
start_() {
    shift
    [ $# -gt 0 ] || set -- /bin/sleep 1000
    cp -a "$rootfs" "$bed/root.$name"
    ctr_run --detach --mount "type=bind,src=$bed/out,dst=/out,options=rbind:rw" $options --rootfs "$bed/root.$name" "$name" "$@"
}

inside() {
    container=$1
    shift
    # ctr may end before it has read what a short process wrote. Every command here writes something.
    for try in 1 2 3 4 5; do
        ctr task exec --exec-id "exec-$step-$try" "$container" "$@" > "$bed/inside"
        code=$?
        [ $code = 0 ] && [ ! -s "$bed/inside" ] || break
    done
    cat "$bed/inside"
    return $code
}

is_stopped() {
    ctr task list | grep -q "^$1 .*STOPPED"
}

stop() {
    ctr task kill --signal TERM "$1" && await is_stopped "$1"
}

restart() {
    ctr task kill --signal KILL "$1" && await is_stopped "$1" && ctr task delete "$1" > /dev/null && ctr task start --detach "$1"
}

remove() {
    ctr task kill --signal KILL "$1"
    await is_stopped "$1"
    ctr task delete "$1"
    ctr container delete "$1"
}
