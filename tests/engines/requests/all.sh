step nothing run nothing -- /bin/sh -c "$look"
step one run one NVIDIA_VISIBLE_DEVICES=0 -- /bin/sh -c "$look"
step two run two NVIDIA_VISIBLE_DEVICES=0,2 -- /bin/sh -c "$look"
step all run all NVIDIA_VISIBLE_DEVICES=all -- /bin/sh -c "$look"
step annotated run annotated @cdi.k8s.io/test=nvidia.com/gpu=3 -- /bin/sh -c "$look"
refuse unknown run unknown NVIDIA_VISIBLE_DEVICES=99 -- /bin/true

step share start share NVIDIA_VISIBLE_DEVICES=7.big CUDA_MPS_PIPE_DIRECTORY=/tmp/mine CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100
step share-init inside share /bin/cat /proc/1/environ
step share-exec inside share /bin/sh -c "$look"
refuse taken run taken NVIDIA_VISIBLE_DEVICES=7.big -- /bin/true
step held tranche status
step restart restart share
step restarted inside share /bin/sh -c "$look"
step remove remove share
step free tranche status

step size start size TRANCHE_MEMORY=4Gi TRANCHE_COMPUTE=10
step size-init inside size /bin/cat /proc/1/environ
step size-removed remove size
step size-annotated run size-annotated @tranche.dev/memory=3Gi -- /bin/sh -c "$look"

# A process that writes what it has when it is asked to end, and is not done before the next container wants its share.
step writer start writer NVIDIA_VISIBLE_DEVICES=7.mid -- /bin/sh -c '
    trap "echo asked > /out/asked; until [ -e /out/go ]; do sleep 0.1; done; ls /dev/nvidia7 > /out/saved; exit 0" TERM
    echo up > /out/up
    while :; do sleep 0.1; done'
await test -e "$bed/out/up"
stop writer > /dev/null 2>&1 &
stopping=$!
await test -e "$bed/out/asked"
step writing tranche status
refuse early run early NVIDIA_VISIBLE_DEVICES=7.mid -- /bin/true
touch "$bed/out/go"
wait "$stopping"
step saved cat "$bed/out/saved"
step written tranche status
remove writer > /dev/null 2>&1
