# tranche beside NVIDIA's toolkit, of which this package has the units that refresh its specification.
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

check "take-over succeeds" "" sh -c "tranche cdi refresh --take-over > /tmp/take-over 2>&1"
check "the units are masked" "masked
masked" enabled $units
check "the units are stopped" "inactive
inactive" state $units
check "tranche alone defines the name" "/run/cdi/tranche.yaml" definers
touch /srv/nvidia-trigger
sleep 2
check "an event does not bring the other specification back" "/run/cdi/tranche.yaml" definers

check "hand-back succeeds" "" sh -c "tranche cdi refresh --hand-back > /tmp/hand-back 2>&1"
check "the units are enabled again" "enabled
enabled" enabled $units
check "the units run again" "" await systemctl is-active --quiet $units
check "its specification is as it was" "$before" kept
check "it alone defines the name" "/run/cdi/nvidia.yaml" definers

systemctl --quiet disable --now $units 2> /dev/null
rm -f /usr/lib/systemd/system/nvidia-cdi-refresh.* /run/cdi/nvidia.yaml
systemctl daemon-reload
check "without it, tranche defines the name again" "" await grep -q '^- name: "\{0,1\}5"\{0,1\}$' /run/cdi/tranche.yaml
