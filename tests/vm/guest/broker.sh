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

# The path unit starts the refresh at the same moment as the claim asks the broker, which promises nothing by a policy whose
# specifications are not written.
cp /etc/tranche/config.yaml /tmp/policy
claim_at_once() {
    echo '    - {name: nvidia.com/gpu, devices: ["6:0"], replicas: 2}' >> /etc/tranche/config.yaml
    as_user tranche claim create --name six --shares 1 --device 6:0 && grep -c '[ "]6:0\.any' /run/cdi/tranche.yaml
}
check "a claim right after a change of the policy is made when the specification has its share" "nvidia.com/claim=1000.six
1" claim_at_once
check "this claim is released" "" as_user sh -c "tranche claim release six > /dev/null"
cp /tmp/policy /etc/tranche/config.yaml
has_no_six() { ! grep -q '[ "]6:0\.any' /run/cdi/tranche.yaml; }
check "the specification follows the policy of before" "" await has_no_six
