# The machine after a reboot: shares were held and a GPU was in exclusive mode when it went down.
. ./check.sh

has_layout() { [ "$(mig_of_first)" = "$mig_layout" ]; }
has_given_up() { [ "$(state tranche-mig.service)" = failed ] && tranche doctor --json | grep -q 'cannot create 3g.20gb'; }
mig_lines() { tranche doctor --json | grep -c '"finding": "mig-not-restored"' || true; }

check "tranche-mig.service is before engines and the kubelet" "3" \
    sh -c "systemctl show --property Before --value tranche-mig.service | tr ' ' '\n' | grep -c -e '^podman-restart.service' -e '^docker.service' -e '^kubelet.service'"
check "the GPU has its layout again" "" await has_layout
check "tranche doctor shows the layout that could not be made" "" await has_given_up
check "the instances that there are, are in the specification" "" await grep -q '"\{0,1\}0:4"\{0,1\}$' /run/cdi/tranche.yaml
check "a container starts with one of them" "yes" \
    podman run --rm --network=none --device nvidia.com/gpu=0:4 --rootfs $image /bin/sh -c "echo yes"
cp /opt/test/healthy.json /dev/tranche-test/nvml.json
cp /opt/test/healthy.json /opt/test/loaded.json
check "the layout is made when the driver answers" "" sh -c "systemctl restart tranche-mig.service"
check "tranche doctor has nothing to say of it" "0" mig_lines

check "the socket listens after the boot" "active" state tranche-broker.socket
check "the specification is there again" "" await grep -q 7.big /run/cdi/tranche.yaml
is_refused() {
    tranche claim create --name drained --shares 1 --device 5 2>&1 | grep -q 'gpu 5: out of service since .* (a fan)'
}
check "the drained device is still out of service" "" is_refused
check "it is put back into service" "" sh -c "tranche undrain 5 | grep -q '^gpu 5: in service'"
check "the directory of MPS is there again" "755" stat -c %a /run/tranche/mps/7
check "the service with a share is started" "" await tenant_runs
check "the share of a pod is reserved again" "" await is_reserved
check "it is given up" '{"version":1,"ok":{}}' ask_for_pod give-up
check "nothing else is held" "nvidia.com/gpu=7.big 0" held
check "its MPS service runs" "active" state tranche-mps@7.service
systemctl stop tenant.service
is_over() { [ "$(systemctl is-active tranche-mps@7.service)" = inactive ] && [ ! -e /run/tranche/control/7.json ]; }
check "the MPS service ends with it" "" await is_over
check "no device is left in a changed mode" "0" \
    sh -c "sed 's/.*\"GPU-59feabff[^\"]*\"://; s/[^0-9].*//' /dev/tranche-test/modes"
check "tranche mps status has no device" "no device is changed for shares" sh -c "tranche mps status 2>&1"
check "no unit has failed" "" systemctl list-units --failed --no-legend --plain
