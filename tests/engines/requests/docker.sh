# docker as its package configures it, in a network of its own, and with what `tranche runtime configure $configure` adds.
# With configure=no, nothing is added.
docker() {
    command "$docker_client" "$@"
}

engine_up() {
    mkdir "$bed/names"
    ln -s "$bed/runtime/tranche-runtime" "$bed/names/nvidia-container-runtime-hook"
    [ "$configure" = no ] || configure
    daemon_up
    tar -C "$1" -c . | docker import - bb:1 > /dev/null
}

configure() {
    [ "$configure" != no ] || configure=
    step configure tranche runtime configure --runtime docker --runtime-path "$bed/runtime/tranche-runtime" $configure
}

# Its sockets, its containers and its own containerd are where it puts them by itself.
# $resources are options for resources of a swarm.
daemon_up() {
    PATH="$bed/names:$PATH" dockerd ${resources:-} > "$bed/daemon.log" 2>&1 &
    daemon=$!
    await docker version
}

daemon_down() {
    kill "$daemon"
    wait "$daemon"
}

engine_down() {
    docker ps --all --quiet | xargs -r "$docker_client" rm --force > /dev/null 2>&1
    daemon_down
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
