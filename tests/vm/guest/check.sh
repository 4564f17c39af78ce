# What every topic of the checks uses.

topic=$(basename "$0" .sh)

# check NAME EXPECTED COMMAND…: the command succeeds and prints what is expected.
check() {
    name=$1
    expected=$2
    shift 2
    # Warnings of an engine about its machine are not what is checked; they are shown if the check fails.
    if actual=$("$@" 2> /tmp/stderr) && [ "$actual" = "$expected" ]; then
        echo "result: ok: $topic: $name"
    else
        echo "result: failed: $topic: $name: $actual"
        sed 's/^/  /' /tmp/stderr
        touch /run/tranche-test.failed
    fi
}

# await COMMAND…: until it succeeds, at most for five minutes: an emulated machine takes its time.
await() {
    until=$(($(date +%s) + 300))
    until "$@" > /dev/null 2>&1; do
        [ "$(date +%s)" -lt $until ] || return 1
        sleep 1
    done
}

# What systemd says of units, one word each.
state() {
    systemctl is-active "$@" || true
}

# as_user COMMAND…: as the ordinary user tester, with what a session of systemd sets.
as_user() {
    uid=$(id -u tester)
    runuser -u tester -- env -C /home/tester HOME=/home/tester "XDG_RUNTIME_DIR=/run/user/$uid" \
        "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/$uid/bus" "$@"
}

# The shares and claims that are held, as root sees them, each with the number of its user.
held() {
    tranche status --no-gpu --json | tr -d ' \n' | grep -o '"cdi":"[^"]*"\|"uid":[0-9]*' | cut -d : -f 2- | tr -d '"' |
        paste -d ' ' - - | sort
}

# Whether the container of tenant.service runs. A start takes its share first, then the broker starts the MPS service, and
# the container runs last: what is checked at once must come before this.
tenant_runs() {
    held | grep -q nvidia.com/gpu=7.big && podman container inspect --format '{{.State.Running}}' tenant | grep -q true
}

libdir=/usr/lib/x86_64-linux-gnu
# The root directory of containers, and of those of the user.
image=/srv/image
user_image=/home/tester/image

# ask COMMAND FIELDS: what the broker answers. It is what the device plugin of Kubernetes sends; nothing of Kubernetes is in
# this machine.
ask() {
    perl -MIO::Socket::UNIX -e '
        my $broker = IO::Socket::UNIX->new(Peer => "/run/tranche/broker.sock") or die "cannot connect: $!";
        print $broker "$ARGV[0]\n";
        print <$broker>;
    ' "{\"version\":1,\"command\":\"$1\",$2}"
}

# ask_for_pod COMMAND: what it answers about a pod and the last share of GPU 5.
ask_for_pod() {
    id=$(tranche list --json | sed -n '/"name": "5",/,/"uuid"/s/.*"uuid": "\(.*\)",/\1/p').3
    ask "$1" "\"pod\":{\"namespace\":\"shop\",\"name\":\"web-0\"},\"devices\":[\"$id\"]"
}

# Whether a share is reserved for that pod.
is_reserved() { tranche status --no-gpu --json | grep -q '"name": "web-0"'; }

# The layout of MIG of GPU 0 that the reboot ends, and what that GPU has now.
mig_layout=0:1g.5gb@0,1g.5gb@1,1g.5gb@2,1g.5gb@3,1g.5gb@4
mig_of_first() { tranche mig status --json 2> /dev/null | sed -n 's/.*"layout": "\(.*\)",/0:\1/p' | head -n 1; }
