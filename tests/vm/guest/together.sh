# tranche together with NVIDIA's toolkit, whose units refresh its specification: the commands of docs/explanation/refresh.md.
. ./check.sh

kept() { cat /run/cdi/nvidia.yaml; }
enabled() { systemctl is-enabled "$@" 2> /dev/null || true; }
# Files that define the plain name of GPU 5.
definers() { grep -l '^- name: "\{0,1\}5"\{0,1\}$' /run/cdi/*.yaml; }

units="nvidia-cdi-refresh.path nvidia-cdi-refresh.service"
cat > /usr/lib/systemd/system/nvidia-cdi-refresh.service << 'EOF'
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/cp /opt/test/nvidia.yaml /run/cdi/nvidia.yaml
[Install]
WantedBy=multi-user.target
EOF
cat > /usr/lib/systemd/system/nvidia-cdi-refresh.path << 'EOF'
[Path]
PathChanged=/srv/nvidia-trigger
[Install]
WantedBy=multi-user.target
EOF
cat > /opt/test/nvidia.yaml << 'EOF'
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "5"
  containerEdits: {env: [OF=nvidia]}
EOF
systemctl daemon-reload
systemctl --quiet enable --now $units
before=$(kept)
check "NVIDIA's specification is there" "OF=nvidia" sh -c "grep -o 'OF=nvidia' /run/cdi/nvidia.yaml"
check "its units run" "active
active" state $units

# shellcheck disable=SC2086 # two units
take_over() {
    systemctl --quiet mask --now $units && mv /run/cdi/nvidia.yaml /run/nvidia.yaml.before-tranche &&
        tranche cdi refresh > /tmp/take-over 2>&1
}
check "tranche takes the names over" "" take_over
check "the units are masked" "masked
masked" enabled $units
check "the units are stopped" "inactive
inactive" state $units
check "tranche alone defines the name" "/run/cdi/tranche.yaml" definers
touch /srv/nvidia-trigger
sleep 2
check "an event does not bring the other specification back" "/run/cdi/tranche.yaml" definers

# shellcheck disable=SC2086 # two units
hand_back() {
    systemctl --quiet unmask $units && systemctl start $units && tranche cdi refresh > /tmp/hand-back 2>&1
}
check "tranche gives the names back" "" hand_back
check "the units are enabled again" "enabled
enabled" enabled $units
check "the units run again" "" await systemctl is-active --quiet $units
check "its specification is as it was" "$before" kept
check "it alone defines the name" "/run/cdi/nvidia.yaml" definers

systemctl --quiet disable --now $units 2> /dev/null
rm -f /usr/lib/systemd/system/nvidia-cdi-refresh.* /run/cdi/nvidia.yaml /run/nvidia.yaml.before-tranche
systemctl daemon-reload
check "without it, tranche defines the name again" "" await grep -q '^- name: "\{0,1\}5"\{0,1\}$' /run/cdi/tranche.yaml
