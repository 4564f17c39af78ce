# docker with a daemon of its own, whose default runtime is ours if $default says so.
docker=/usr/bin/docker
[ -x "$docker" ] || docker=docker
docker() {
    command "$docker" "$@"
}

engine_up() {
    mkdir "$bed/names"
    ln -s "$bed/runtime/tranche-runtime" "$bed/names/nvidia-container-runtime-hook"
    # Its sockets, its state and its own containerd are where it puts them by itself: in /var/run, a link to /run.
    PATH="$bed/names:$PATH" dockerd --data-root "$bed/docker" --iptables=false --ip6tables=false --bridge=none --storage-driver=vfs \
        --exec-opt native.cgroupdriver=cgroupfs --default-ulimit nofile=1024:1024 \
        --add-runtime "tranche=$bed/runtime/tranche-runtime" --default-runtime "$default" > "$bed/daemon.log" 2>&1 &
    daemon=$!
    await docker version
    tar -C "$1" -c . | docker import - bb:1 > /dev/null
}

engine_down() {
    docker ps --all --quiet | xargs -r "$docker" rm --force > /dev/null 2>&1
    kill "$daemon"
    wait "$daemon"
}

run_() {
    shift
    docker run --rm --network=none --name "$name" $runtime $options bb:1 "$@"
}

start_() {
    shift
    [ $# -gt 0 ] || set -- /bin/sleep 1000
    docker run --detach --network=none --name "$name" --volume "$bed/out:/out" $runtime $options bb:1 "$@"
}

inside() {
    docker exec "$@"
}

stop() {
    docker stop --time 20 "$1"
}

restart() {
    docker restart --time 0 "$1"
}

remove() {
    docker rm --force "$1"
}

import_() {
    docker import "$@"
}

# A container of an image, with options of the engine: box OPTION… IMAGE COMMAND…
box() {
    docker run --rm --network=none $runtime "$@"
}
