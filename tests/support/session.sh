# What every session can say; see session.rs.
mkdir -p "$bed/steps"

# The client of the daemon's own package: another version, earlier on the PATH, reads other forms of a request.
docker_client=/usr/bin/docker
[ -x "$docker_client" ] || docker_client=docker

# step NAME COMMAND…: runs it, and keeps what it said and its exit code.
step() {
    step=$1
    shift
    "$@" > "$bed/steps/$step.text" 2>&1
    code=$?
    echo "$code" > "$bed/steps/$step.code"
    echo "== $step: $code"
    cat "$bed/steps/$step.text"
}

# refuse NAME COMMAND…: a step that is to fail, with what `tranche status --messages` says after it and not before: messages of one
# second have no order.
refuse() {
    tranche status --messages > "$bed/before" 2>&1
    step "$@"
    {
        echo '-- status --'
        tranche status --messages 2>&1 | grep -vxFf "$bed/before"
    } >> "$bed/steps/$1.text" 2>&1
}

# start NAME IMAGE OPTION…: a container that sleeps.
start() {
    name=$1 image=$2
    shift 2
    # shellcheck disable=SC2086 # options are meant to be split
    podman run --detach --name "$name" --network=none $limits "$@" --rootfs "$image" /bin/sleep 1000
}

# The process of a container's init.
init_of() {
    podman inspect --format '{{.State.Pid}}' "$1"
}

# is_over PID: the process has ended, whether or not its parent has asked how. One that is about to end is not yet over.
is_over() {
    # Without a number this would read /proc/stat, which never ends.
    [ -n "$1" ] || return 2
    case $(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2> /dev/null) in
        "" | Z | X) return 0 ;;
        *) return 1 ;;
    esac
}

# await COMMAND…: until it succeeds, for longer than any machine needs. A session in which one gave up fails.
await() {
    tries=0
    until "$@" > /dev/null 2>&1; do
        tries=$((tries + 1))
        if [ "$tries" -ge 300 ]; then
            echo "$*" >> "$bed/gave-up"
            return 1
        fi
        sleep 0.1
    done
}
