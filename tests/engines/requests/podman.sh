# podman with the runtime that the session gives it, and the hooks of $hooks.
engine_up() {
    tar -C "$1" -c . | podman import - localhost/bb:1 > /dev/null
}

engine_down() {
    podman rm --all --force --time 0 > /dev/null 2>&1
}

start_() {
    shift
    [ $# -gt 0 ] || set -- /bin/sleep 1000
    podman $hooks run --detach --network=none --name "$name" --volume "$bed/out:/out" $limits $options localhost/bb:1 "$@"
}

run_() {
    shift
    podman $hooks run --rm --network=none --name "$name" $limits $options localhost/bb:1 "$@"
}

inside() {
    podman exec "$@"
}

stop() {
    podman stop --time 20 "$1"
}

restart() {
    podman $hooks restart --time 0 "$1"
}

remove() {
    podman rm --force --time 0 "$1"
}

import_() {
    podman import "$@"
}

# A container of an image, with options of the engine: box OPTION… IMAGE COMMAND…
box() {
    podman $hooks run --rm --network=none $limits "$@"
}
