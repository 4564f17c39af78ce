# MPS: the broker starts the service of the daemon for the first container, and the service outlives the broker. The
# driver's programs are fakes that write down what they are asked.
. ./check.sh

mps=tranche-mps@7.service
modes=/dev/tranche-test/modes
# start NAME SHARE
start() {
    rm -rf "/srv/image.$1"
    cp -a $image "/srv/image.$1"
    podman run --detach --name "$1" --network=none --device "nvidia.com/gpu=7.$2" --rootfs "/srv/image.$1" /bin/sleep 10000 > /dev/null
}
main_pid() {
    systemctl show --property MainPID --value "$1"
}
# The GPU's compute mode as NVML has it: 0 is DEFAULT, 3 EXCLUSIVE_PROCESS.
mode() {
    sed 's/.*"GPU-59feabff[^"]*"://; s/[^0-9].*//' $modes
}
is_over() {
    [ "$(systemctl is-active $mps)" = inactive ] && [ ! -e /run/tranche/control/7.json ]
}

check "no MPS service runs before the first container" "inactive" state $mps
check "the first container with a share under MPS starts" "" start one small
check "its MPS service runs" "active" state $mps
check "the GPU is in exclusive mode" "3" mode
check "a second container starts" "" start two big
check "the daemon's environment is the device, its directories and where programs are" \
    "CUDA_MPS_LOG_DIRECTORY CUDA_MPS_PIPE_DIRECTORY CUDA_VISIBLE_DEVICES PATH" \
    sh -c "tr '\0' '\n' < /proc/$(main_pid $mps)/environ | sed 's/=.*//' | sort | xargs"
check "containers have a name of the daemon's socket, and nothing else" "control" ls -A /run/tranche/mps/7
check "the limits are those of the larger share" "command set_default_active_thread_percentage 60" \
    sh -c "grep -o '\"command\":\"set_default_active[^\"]*' /dev/tranche-test/record | tail -n 1 | sed 's/\"//g; s/:/ /'"

daemon=$(main_pid $mps)
broker=$(main_pid tranche-broker.service)
check "the broker is restarted" "" systemctl restart tranche-broker.service
check "it is another process" "yes" sh -c "[ $broker != $(main_pid tranche-broker.service) ] && echo yes"
check "the MPS service has survived that" "$daemon" main_pid $mps
check "the new broker knows who holds shares" "nvidia.com/gpu=7.big 0
nvidia.com/gpu=7.small 0" held
check "the new broker knows the daemon" "running $daemon" \
    sh -c "tranche mps status --json | sed -n 's/.*\"pid\": *\([0-9]*\).*/\1/p; s/.*\"state\": *\"\([a-z]*\)\".*/\1/p' | sort -r | xargs"
broker=$(main_pid tranche-broker.service)
kill -9 "$broker"
restarted() { [ "$(systemctl is-active tranche-broker.service)" = active ] && [ "$(main_pid tranche-broker.service)" != "$broker" ]; }
check "a broker that is killed is started again" "" await restarted
check "the MPS service has survived that, too" "$daemon" main_pid $mps
broker=$(main_pid tranche-broker.service)
check "the package is upgraded while shares are held" "" sh -c "dpkg -i /opt/test/tranche.deb > /tmp/upgrade 2>&1"
check "the broker is the new one" "" await restarted
check "the MPS service has survived the upgrade" "$daemon" main_pid $mps
check "the upgraded broker knows who holds shares" "nvidia.com/gpu=7.big 0
nvidia.com/gpu=7.small 0" held

podman rm --force --time 0 one > /dev/null
check "one container is left, and the service" "active" state $mps
podman rm --force --time 0 two > /dev/null
check "after the last container the service is stopped" "" await is_over
check "the GPU is in its default mode again" "0" mode
check "nothing of the daemon is left" "" ls -A /run/tranche/mps/7
