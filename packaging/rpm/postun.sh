# After the programs were removed, or an older version of them.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
fi
if [ -S /run/udev/control ] && command -v udevadm > /dev/null 2>&1; then
    udevadm control --reload || :
fi
if [ "$1" -eq 0 ]; then
    # Reservations of Kubernetes' pods mean something to this program alone.
    rm -rf /var/lib/tranche/ledger /var/lib/tranche/kubernetes.yaml /var/lib/tranche/out-of-service.json \
        /var/lib/tranche/last-policy.json /var/lib/tranche/engine-files.json /var/lib/tranche/bench
    # Directories that only this package has, if they are empty: the package does not own them.
    doc=/usr/share/doc/tranche
    for directory in /var/lib/tranche /usr/libexec/tranche /usr/share/tranche/hooks.d /usr/share/tranche/monitoring \
        /usr/share/tranche \
        /usr/share/licenses/tranche "$doc/docs/"* "$doc/docs" "$doc/hooks" "$doc"; do
        rmdir "$directory" 2> /dev/null || :
    done
    rm -f /etc/tmpfiles.d/tranche-mps.conf
    # An MPS daemon that containers still use has its sockets there.
    if [ -z "$(find /run/tranche/mps /run/tranche/mps-daemon -type s 2> /dev/null | head -n 1)" ]; then
        rm -rf /run/tranche
    fi
fi
exit 0
