# shellcheck shell=sh
# What holds wherever tranche is installed, by whatever package: sourced after files.sh.

check_installed() {
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
    inside man tranche | grep -q 'an exact slice of one' || fail "the page of tranche cannot be shown"
    inside bash -c '. /usr/share/bash-completion/completions/tranche && complete -p tranche' > /dev/null ||
        fail "bash completion"
    for file in zsh/site-functions/_tranche fish/vendor_completions.d/tranche.fish tranche/hooks.d/tranche.json; do
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
