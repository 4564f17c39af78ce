# The end of the broker that nobody needs, its next start, and what the machine shall do at its next boot.
. ./check.sh

is_idle() { [ "$(systemctl is-active tranche-broker.service)" = inactive ]; }
check "the broker ends when nobody has asked it for a minute" "" await is_idle
check "it has ended without an error" "success" systemctl show --property Result --value tranche-broker.service
check "the socket still listens" "active" state tranche-broker.socket
check "the next claim starts it again" "nvidia.com/claim=1000.second" \
    as_user tranche claim create --name second --shares 1 --device 5
check "it runs again" "active" state tranche-broker.service

# After the boot, the module is loaded again, and a service starts a container.
echo nvidia > /etc/modules-load.d/tranche-test.conf
cp -a $image /srv/image.tenant
cat > /etc/systemd/system/tenant.service << 'EOF'
[Unit]
After=tranche-broker.socket
StartLimitIntervalSec=0

[Service]
ExecStart=/usr/bin/podman run --rm --replace --name tenant --network=none --device nvidia.com/gpu=7.big \
    --rootfs /srv/image.tenant /bin/sleep 10000
ExecStop=/usr/bin/podman rm --force --time 0 tenant
SuccessExitStatus=137
# The driver's nodes may come later.
Restart=on-failure
RestartSec=1

[Install]
WantedBy=multi-user.target
EOF
systemctl daemon-reload
systemctl --quiet enable --now tenant.service
check "a service with a share starts" "" await tenant_runs
# And one that nobody stops before the boot.
cp -a $image /srv/image.left
check "a container holds a share when the machine is rebooted" "" \
    sh -c "podman run --detach --name left --network=none --device nvidia.com/gpu=7.small --rootfs /srv/image.left /bin/sleep 10000 > /dev/null"
# And a pod, which has its share again after the boot.
check "a share is reserved for a pod" '{"version":1,"ok":{}}' ask_for_pod reserve
check "root sees for which" "" is_reserved

# Layouts, whose instances the boot ends. On one of the GPUs, they cannot be made again.
check "layouts of MIG are applied" "" sh -c "tranche mig apply --yes --layout $mig_layout --layout 1:3g.20gb@0 > /tmp/mig 2>&1"
check "one GPU has its layout" "$mig_layout" mig_of_first
cp /opt/test/loaded.json /opt/test/healthy.json
cp /opt/test/next-boot.json /opt/test/loaded.json
# And a device that stays out of service.
check "a device is drained" "" sh -c "tranche drain 5 --reason 'a fan' | grep -q '^gpu 5: out of service since .* (a fan)$'"
