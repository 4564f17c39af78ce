# podman as `tranche runtime configure` leaves it: as root, and as a user ($as_user).
engine_up() { :; }
engine_down() {
    kill "$(cat "$bed/user/run/libpod/tmp/pause.pid")"
    engine --root "$HOME/store" --runroot "$HOME/runroot" rm --all --force --time 0
} > /dev/null 2>&1

# What `make install` puts there.
mkdir /run/share.upper /run/share.work
mount -t overlay -o lowerdir=/usr/share,upperdir=/run/share.upper,workdir=/run/share.work overlay /usr/share
mkdir -p /usr/share/tranche
cp -r "$bed/hooks.d" /usr/share/tranche/hooks.d

ls /usr/share/containers/oci/hooks.d > "$bed/hooks.before" 2>&1
step configure tranche runtime configure --runtime podman --config "$bed/containers.conf" --drop-in-config= \
    --runtime-path "$bed/runtime/tranche-runtime"
ls /usr/share/containers/oci/hooks.d > "$bed/hooks.after" 2>&1
step shared-hooks diff "$bed/hooks.before" "$bed/hooks.after"

mkdir "$bed/context" "$bed/user" "$bed/user/run"
tar -C "$1" -cf "$bed/context/root.tar" .
printf 'FROM scratch\nADD root.tar /\nRUN echo built > /built\nCMD ["/bin/cat", "/built"]\n' > "$bed/context/Containerfile"
chown -R 65534:65534 "$bed/user"

engine() {
    command podman --storage-driver vfs --cgroup-manager cgroupfs --events-backend none "$@"
}
as_root() {
    CONTAINERS_CONF=$bed/containers.conf engine --root "$HOME/store" --runroot "$HOME/runroot" "$@"
}
as_user() {
    setpriv --reuid 65534 --regid 65534 --clear-groups env -i PATH="$PATH" PODMAN_IGNORE_CGROUPSV1_WARNING=1 HOME="$bed/user" XDG_RUNTIME_DIR="$bed/user/run" \
        CONTAINERS_CONF="$bed/containers.conf" podman --storage-driver vfs --cgroup-manager cgroupfs --events-backend none "$@"
}
for user in root user; do
    step "build-$user" "as_$user" build --network=none $limits --tag localhost/built "$bed/context"
    none=
    [ $user = root ] || none=--cgroups=disabled
    step "plain-$user" "as_$user" run --rm --network=none $none $limits localhost/built
done
step gpu as_root run --rm --network=none $limits --env NVIDIA_VISIBLE_DEVICES=0 localhost/built sh -c "$look"
step both as_root --runtime tranche run --rm --network=none $limits --env NVIDIA_VISIBLE_DEVICES=7.big localhost/built sh -c "$look"
step after tranche status
