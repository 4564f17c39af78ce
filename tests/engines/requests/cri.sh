# containerd through its CRI, as a kubelet uses it, with the configuration of its package, and with what `tranche runtime
# configure` adds. With configure=no, nothing is added.
cri() {
    CRI_SOCKET=/run/containerd/containerd.sock CRI_STATE=$bed/cri CRI_IMAGE=localhost/bb:1 CRI_HANDLER=$handler /usr/bin/python3 "$cri" "$@"
}

# image_of DIRECTORY NAME: an archive as `docker save` makes it, imported for the CRI under this name.
image_of() {
    work=$(mktemp -d "$bed/image.XXXXXX")
    tar -C "$1" -cf "$work/layer.tar" .
    layer=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
    architecture=$(dpkg --print-architecture)
    echo "{\"architecture\":\"$architecture\",\"os\":\"linux\",\"config\":{\"Env\":[\"PATH=/bin\"],\"Entrypoint\":[\"/bin/sleep\",\"1000000\"]},\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"sha256:$layer\"]}}" > "$work/config.json"
    echo "[{\"Config\":\"config.json\",\"RepoTags\":[\"$2\"],\"Layers\":[\"layer.tar\"]}]" > "$work/manifest.json"
    tar -C "$work" -cf "$work/image.tar" layer.tar config.json manifest.json
    command ctr --namespace k8s.io images import "$work/image.tar"
}

engine_up() {
    mkdir "$bed/cri"
    # A sandbox gets a score below that of this process, which needs CAP_SYS_RESOURCE.
    if ! sh -c 'echo -998 > /proc/self/oom_score_adj' 2> /dev/null; then
        sed -i "s/^ *\[plugins.*\(grpc.v1.cri\|cri.v1.runtime\)[\"']]\$/&\nrestrict_oom_score_adj = true/" /etc/containerd/config.toml
    fi
    [ "$configure" = no ] || configure
    daemon_up
    # What the sandbox of a pod runs.
    pause=$(containerd config dump | sed -n "s/^ *sandbox\(_image\)\? = ['\"]\(.*\)['\"]\$/\2/p" | head -n 1)
    image_of "$1" "$pause"
    image_of "$1" localhost/bb:1
}

configure() {
    step configure tranche runtime configure --runtime containerd --runtime-path "$bed/runtime/tranche-runtime"
}

engine_down() {
    for pod in "$bed"/cri/*.json; do
        [ ! -e "$pod" ] || { pod=${pod##*/}; cri remove "${pod%.json}" > /dev/null 2>&1; }
    done
    daemon_down
}

run_() {
    shift
    # shellcheck disable=SC2086 # options are meant to be split
    cri run "$name" $options -- "$@"
}

start_() {
    shift
    [ $# -gt 0 ] || set -- /bin/sleep 1000
    # shellcheck disable=SC2086 # options are meant to be split
    cri start "$name" --mount "$bed/out:/out" $options -- "$@"
}

inside() {
    cri inside "$@"
}

stop() {
    cri stop "$1"
}

restart() {
    cri restart "$1"
}

remove() {
    cri remove "$1"
}
