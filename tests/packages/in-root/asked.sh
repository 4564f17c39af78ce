# shellcheck shell=sh
# A system whose systemd only writes down what it is asked: sourced after files.sh. Links of units are really made and removed,
# because systemctl does that itself.

# Makes it so.
record_systemd() {
    mkdir -p "$ROOT/run/systemd/system"
    mv "$ROOT/usr/bin/systemctl" "$ROOT/usr/bin/systemctl.real"
    cat > "$ROOT/usr/bin/systemctl" << 'END'
#!/bin/sh
for word; do
    case $word in
    is-active) exit 0 ;;
    start | stop | restart | try-restart | daemon-reload)
        program=missing
        [ ! -x /usr/bin/tranche-kubelet ] || program=there
        for unit; do :; done
        echo "$word $unit (program: $program)" >> /tmp/asked
        exit 0
        ;;
    esac
done
exec /usr/bin/systemctl.real --root=/ "$@"
END
    chmod 755 "$ROOT/usr/bin/systemctl"
}

# What systemd was asked about tranche-kubelet since the last call, in order.
asked() {
    grep tranche-kubelet.service "$ROOT/tmp/asked" 2> /dev/null || true
    rm -f "$ROOT/tmp/asked"
}

# $1: when; $2: what systemd must have been asked. try-restart restarts a unit that runs, and starts none.
must_have_asked() {
    said=$(asked)
    expected="$2 tranche-kubelet.service (program: there)"
    [ "$said" = "$expected" ] || fail "$1: systemd was asked \"$said\", expected \"$expected\""
}

link=/etc/systemd/system/multi-user.target.wants/tranche-kubelet.service

check_kubelet() {
    inside tranche-kubelet --version | grep -q -E '^tranche-kubelet [0-9]+\.[0-9]+\.[0-9]+' || fail "tranche-kubelet --version"
    inside man -w tranche-kubelet > /dev/null || fail "man tranche-kubelet"
    # Pages of a new groff are justified with spaces.
    inside man tranche-kubelet | tr -s ' ' | grep -q 'the device plugin of tranche' || fail "the page of tranche-kubelet cannot be shown"
    said=$(inside systemd-analyze verify --man=no tranche-kubelet.service 2>&1) || fail "systemd-analyze verify: $said"
    [ -z "$said" ] || fail "systemd-analyze verify: $said"
    # The pod of the chart may run on this node.
    [ ! -L "$ROOT$link" ] || fail "the installation enabled the unit"
    # Without a line of a preset, Debian enables every unit.
    inside systemctl --quiet preset tranche-kubelet.service > /dev/null 2>&1
    [ ! -L "$ROOT$link" ] || fail "the preset enables the unit"
}
