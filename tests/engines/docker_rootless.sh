# docker of a user whom `useradd` made, started by the distribution's dockerd-rootless.sh, without any option for it.
step refresh tranche cdi refresh $place --hook-path "$oci"
"$bed/tranche" broker $place --spec-dir /run/cdi > "$bed/broker.log" 2>&1 &
broker=$!
await test -S /run/tranche/broker.sock

# In a home of its own, because nobody may enter root's directories.
useradd --create-home --home-dir "$bed/home" tranche-test
uid=$(id -u tranche-test)
install --directory /run/user
install --directory --owner=tranche-test --mode=700 "/run/user/$uid"
# --gpus asks for this name on dockerd's PATH.
mkdir "$bed/names"
ln -s "$bed/runtime/tranche-runtime" "$bed/names/nvidia-container-runtime-hook"
user="setpriv --reuid=tranche-test --regid=tranche-test --init-groups env -i PATH=$bed/names:$PATH HOME=$bed/home \
    XDG_RUNTIME_DIR=/run/user/$uid DOCKER_HOST=unix:///run/user/$uid/docker.sock"
up() {
    # shellcheck disable=SC2086 # options are meant to be split
    $user /usr/share/docker.io/contrib/dockerd-rootless.sh > "$bed/daemon.log" 2>&1 &
    daemon=$!
    await $user $docker_client version
}
down() {
    kill "$daemon"
    wait "$daemon"
}
# docker NAME ARGUMENT…: a step.
docker() {
    name=$1
    shift
    # shellcheck disable=SC2086 # options are meant to be split
    step "$name" $user $docker_client "$@"
}
box="run --rm --network=none"
look='ls -d /dev/nvidia[0-9]* 2>/dev/null; env; find /usr/lib -name "libcuda.so.*"'

up
step uses $user $docker_client info --format '{{.Driver}}, {{.CgroupDriver}}'
tar -C "$1" -c . | $user $docker_client import - bb:1 > /dev/null
docker plain run --rm bb:1 /bin/sh -c "$look"
docker installed $box --device nvidia.com/gpu=1 bb:1 /bin/sh -c "$look"
doctor() {
    # 4: something is wrong with the host of files.
    $user "$bed/tranche" doctor --json --all || [ $? = 4 ]
}
step doctor doctor

step configure $user "$bed/tranche" runtime configure --runtime docker --config "$bed/home/.config/docker/daemon.json" \
    --runtime-path "$bed/runtime/tranche-runtime"
down
up
docker configured $box --device nvidia.com/gpu=1 bb:1 /bin/sh -c "$look"
docker runtime $box --runtime tranche --env NVIDIA_VISIBLE_DEVICES=1 bb:1 /bin/sh -c "$look"
docker gpus $box --runtime tranche --gpus 1 bb:1 /bin/sh -c "$look"
docker runtime-share $box --runtime tranche --env NVIDIA_VISIBLE_DEVICES=6.any bb:1 /bin/true
docker runtime-mps $box --runtime tranche --env NVIDIA_VISIBLE_DEVICES=7.big bb:1 /bin/true
docker runtime-unknown $box --runtime tranche --env NVIDIA_VISIBLE_DEVICES=99 bb:1 /bin/true
step messages $user "$bed/tranche" status --messages --no-gpu

if [ "$reads_cdi" = yes ]; then
    # Before docker 28, dockerd sees /etc/cdi and /run/cdi as links, and does not follow them.
    $user mkdir "$bed/home/.config/cdi"
    $user ln -s /run/cdi/tranche.yaml "$bed/home/.config/cdi/"
    sed -i "s,^{,&\"cdi-spec-dirs\": [\"$bed/home/.config/cdi\"]\,," "$bed/home/.config/docker/daemon.json"
    down
    up
    docker linked $box --device nvidia.com/gpu=1 bb:1 /bin/sh -c "$look"
    docker unknown $box --device nvidia.com/gpu=99 bb:1 /bin/true
    docker share run --detach --network=none --name share --device nvidia.com/gpu=6.0 bb:1 /bin/sleep 1000
    docker taken $box --device nvidia.com/gpu=6.0 bb:1 /bin/true
    docker any $box --device nvidia.com/gpu=6.any bb:1 /bin/sh -c "$look"
    step held tranche status --no-gpu
    docker restart restart --time 0 share
    step after-restart tranche status --no-gpu
    docker mps $box --device nvidia.com/gpu=7.big bb:1 /bin/true
    docker remove rm --force share
fi
down
step free tranche status --no-gpu
kill "$broker"
wait "$broker"
