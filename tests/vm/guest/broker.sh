# The broker as a service that its socket starts, for claims of an ordinary user.
. ./check.sh

# A cluster has a policy for this machine, which has none of its own.
tenths='version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, devices: [5], replicas: 10}]}}'
has_tenths() { grep -q '[ "]5\.any' /run/cdi/tranche.yaml; }
has_none() { [ -e /run/cdi/tranche.yaml ] && ! has_tenths; }
check "the broker takes the policy of a cluster" '{"version":1,"ok":{"changed":true,"warnings":[]}}' \
    ask policy "\"text\":\"$(printf %s "$tenths" | sed 's/"/\\"/g')\""
check "the specification follows the policy of the cluster" "" await has_tenths
check "the broker removes the policy of the cluster" '{"version":1,"ok":{"changed":true,"warnings":[]}}' ask policy '"text":null'
check "the specification follows the end of that policy" "" await has_none
systemctl stop tranche-broker.service

mkdir -p /etc/tranche
# Two whole GPUs: one for shares under MPS, one for shares by turns, which an engine of a user may have as well.
cat > /etc/tranche/config.yaml << 'EOF'
version: v1
sharing:
  mps:
    grace: 5
    resources:
    - name: nvidia.com/gpu
      devices: [7]
      shares:
      - {name: big, compute: 60%, memory: 8Gi}
      - {name: small, compute: 20%, memory: 2Gi}
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, devices: [5], replicas: 4}
EOF
check "the specification follows the policy" "" await grep -q 7.big /run/cdi/tranche.yaml

check "the socket listens and no broker runs" "active
inactive" state tranche-broker.socket tranche-broker.service
check "a user claims a share, for which the socket starts the broker" "nvidia.com/claim=1000.first" \
    as_user tranche claim create --name first --shares 1 --device 5
check "the broker runs" "active" state tranche-broker.service
check "the claim is the user's" "nvidia.com/claim=1000.first 1000" held
check "the user releases the claim" "" as_user sh -c "tranche claim release first > /dev/null"
