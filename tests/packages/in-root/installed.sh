# shellcheck shell=sh
# What holds wherever tranche is installed, by whatever package: sourced after files.sh.

# $1: where zsh reads completions of packages, below /usr/share/zsh
check_installed() {
    zsh_functions=$1
    version=$(inside tranche --version)
    for program in tranche tranche-oci; do
        inside $program --version | grep -q -E '^tranche(-oci)? [0-9]+\.[0-9]+\.[0-9]+' || fail "$program --version"
    done
    case $version in
    *\(????????????\)) ;;
    *) fail "tranche --version does not show the commit: $version" ;;
    esac
    for name in tranche tranche-cdi-generate tranche-system-prepare-removal tranche-oci tranche-runtime; do
        inside man -w "$name" > /dev/null || fail "man $name"
    done
    inside man tranche | tr -s ' ' | grep -q 'an exact slice of one' || fail "the page of tranche cannot be shown"
    inside bash -c '. /usr/share/bash-completion/completions/tranche && complete -p tranche' > /dev/null ||
        fail "bash completion"
    # The command and the program have pages of the same name.
    inside man tranche-runtime | grep -q 'tranche-runtime(8)' || fail "man tranche-runtime does not name the page of the program"
    inside man 8 tranche-runtime | grep -q 'tranche-runtime(1)' || fail "man 8 tranche-runtime"
    for file in "zsh/$zsh_functions/_tranche" fish/vendor_completions.d/tranche.fish tranche/hooks.d/tranche.json; do
        [ -s "$ROOT/usr/share/$file" ] || fail "/usr/share/$file is missing"
    done
    # The example is a policy that this version reads.
    inside tranche policy check --config /usr/share/doc/tranche/docs/examples/config.yaml --inventory sim:hgx-h200 > /dev/null ||
        fail "the example of a policy is not valid"
    # Units that name a missing program or a missing unit.
    units=$(cd "$ROOT/usr/lib/systemd/system" && printf '%s ' tranche-* | sed 's/@\./@0./g')
    # shellcheck disable=SC2086 # names of units have no spaces
    said=$(inside systemd-analyze verify --man=no $units 2>&1) || fail "systemd-analyze verify: $said"
    [ -z "$said" ] || fail "systemd-analyze verify: $said"
    # Without a driver there is nothing to do, which is not a failure.
    code=0
    inside tranche list > /dev/null 2>&1 || code=$?
    [ $code = 3 ] || fail "tranche list without a driver: exit code $code"
}

# Specifications of tranche, of another program, and of a person who names tranche's hook.
make_specifications() {
    mkdir -p "$ROOT/etc/cdi"
    inside tranche cdi generate --inventory sim:hgx-h200 --output /etc/cdi/tranche.yaml
    inside tranche cdi generate --inventory sim:hgx-h200 --output /run/cdi/tranche.json
    hook='containerEdits: {hooks: [{hookName: poststop, path: /usr/bin/%s}]}'
    for program in tranche-oci other; do
        # shellcheck disable=SC2059 # the format is above
        printf "cdiVersion: 0.5.0\nkind: example.com/$program\ndevices:\n- name: a\n  $hook\n" "$program" \
            > "$ROOT/etc/cdi/by-$program.yaml"
    done
}

# $1: what the removal printed
check_removal() {
    for file in etc/cdi/tranche.yaml run/cdi/tranche.json; do
        [ ! -e "$ROOT/$file" ] || fail "/$file is left, and its hook is gone"
    done
    for program in tranche-oci other; do
        [ -e "$ROOT/etc/cdi/by-$program.yaml" ] || fail "the specification of another program was removed"
        rm "$ROOT/etc/cdi/by-$program.yaml"
    done
    grep -q '/etc/cdi/by-tranche-oci.yaml: names a hook of tranche' "$1" || fail "the removal did not name a broken file"
    rmdir "$ROOT/etc/cdi" "$ROOT/run/cdi"
}

# Files of engines as an administrator has them, with forms that no program writes.
engine_files='etc/docker/daemon.json etc/containerd/config.toml etc/crio/crio.conf etc/containers/containers.conf
    etc/rancher/config.toml'
make_engine_files() {
    for file in $engine_files; do
        mkdir -p "$ROOT/${file%/*}"
    done
    printf '{ "debug" :true,\n\t"default-runtime": "crun"}' > "$ROOT/etc/docker/daemon.json"
    printf '# ours\nversion = 2' > "$ROOT/etc/containerd/config.toml"
    printf '[crio.runtime]\r\ndefault_runtime = "crun"\r\n' > "$ROOT/etc/crio/crio.conf"
    printf "[engine]\nruntime = 'runc' # ours\n" > "$ROOT/etc/containers/containers.conf"
    printf 'version = 2\n\n\n' > "$ROOT/etc/rancher/config.toml"
    chmod 600 "$ROOT/etc/docker/daemon.json"
}

# $1: where the list goes. Names, modes and bytes of all that is in the directories of engines.
list_engine_files() {
    (
        cd "$ROOT" || exit
        for file in $engine_files; do
            find "${file%/*}" -printf '%p %m\n' -type f -exec sha256sum '{}' +
        done
    ) | LC_ALL=C sort > "$1"
}

# Every engine's, and one in an unusual place. All of them name the program that the package has.
configure_engines() {
    for engine in docker containerd crio podman; do
        inside tranche runtime configure --runtime "$engine" --set-as-default
    done
    inside tranche runtime configure --runtime containerd --config /etc/rancher/config.toml --drop-in-config=
    for directory in docker containerd crio containers rancher; do
        grep -r -q /usr/bin/tranche-runtime "$ROOT/etc/$directory" || fail "$directory is not configured"
    done
}

# $1: what the removal of a file that is no JSON printed. Its last line but what docker needs is a command for the shell.
repair_docker() {
    line=$(grep 'docker: /etc/docker/daemon.json: still has what tranche wrote' "$1") || fail "no line about daemon.json: $(cat "$1")"
    command=${line#*or restore it: }
    inside sh -euc "${command%; run systemctl restart docker to apply it}" || fail "the command of the removal: $command"
}
