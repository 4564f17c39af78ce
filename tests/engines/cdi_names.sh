# Containers that name CDI devices: with the engine as its package configures it, and after `tranche runtime configure`.
doctor() {
    # 4: something is wrong with the host of files.
    tranche doctor --json --all $place --spec-dir /run/cdi || [ $? = 4 ]
}

step doctor doctor
step installed run installed %nvidia.com/gpu=0 -- /bin/sh -c "$look"
configure
daemon_down
daemon_up
step doctor-configured doctor
step one run one %nvidia.com/gpu=0 -- /bin/sh -c "$look"
if ! grep -q '^/dev/nvidia0$' "$bed/steps/one.text"; then
    step share start share %nvidia.com/gpu=6.0
    step free tranche status
    exit 0
fi
step two run two %nvidia.com/gpu=0 %nvidia.com/gpu=2 -- /bin/sh -c "$look"
step all run all %nvidia.com/gpu=all -- /bin/sh -c "$look"
step unknown run unknown %nvidia.com/gpu=99 -- /bin/true

step share start share %nvidia.com/gpu=6.0
refuse taken run taken %nvidia.com/gpu=6.0 -- /bin/true
step any start any %nvidia.com/gpu=6.any
step held tranche status
refuse third run third %nvidia.com/gpu=6.any -- /bin/true
step restart restart share
step after-restart tranche status
remove share > /dev/null 2>&1
step again run again %nvidia.com/gpu=6.any -- /bin/sh -c "$look"
remove any > /dev/null 2>&1

step mps start mps %nvidia.com/gpu=7.big
step mps-init inside mps /bin/cat /proc/1/environ
step mps-inside inside mps /bin/sh -c "$look"
refuse mps-taken run mps-taken %nvidia.com/gpu=7.big -- /bin/true
remove mps > /dev/null 2>&1
step free tranche status
