# Containers that ask for GPUs, in the words that every engine of requests.rs understands:
#
#   run NAME REQUEST… -- COMMAND…       in a container that is gone afterwards
#   start NAME REQUEST… [-- COMMAND…]   in a container that stays
#   inside NAME COMMAND…                in a container that runs
#   stop, restart, remove NAME
#
# A REQUEST is NAME=VALUE for a variable, @NAME=VALUE for an annotation and %NAME for a CDI device. An engine defines run_,
# start_ and the rest.
ask() {
    options=
    while [ $# -gt 0 ]; do
        case $1 in
            --)
                shift
                break
                ;;
            @*) options="$options --annotation ${1#@}" ;;
            %*) options="$options --device ${1#%}" ;;
            *) options="$options --env $1" ;;
        esac
        shift
    done
    "$verb" "$name" "$@"
}

run() {
    verb=run_ name=$1
    shift
    ask "$@"
}

start() {
    verb=start_ name=$1
    shift
    ask "$@"
}

# An image of the files in $files with the changes of a Dockerfile: image NAME CHANGE…
image() {
    name=$1 changes=
    shift
    for change in "$@"; do
        changes="$changes --change $(echo "$change" | sed 's/ /\\ /')"
    done
    eval "tar -C \"\$files\" -c . | import_ $changes - localhost/$name > /dev/null"
}

# What a process sees of a GPU: nodes, variables, the pipe directory of MPS, the driver.
look='ls -d /dev/nvidia[0-9]* 2>/dev/null; env; ls /tmp/nvidia-mps 2>/dev/null; find /usr/lib -name "libcuda.so.*"'

refresh() {
    tranche cdi refresh $place --hook-path "$oci" --output-dir /run/cdi
}
step refresh refresh

# The pipe directory of an MPS daemon that answers.
control=/run/tranche/mps/7/control
touch "$control"
mount --bind "$bed/daemon" "$control"
mkdir "$bed/out"
