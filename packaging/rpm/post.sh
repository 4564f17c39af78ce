# Enables the units that the preset names at the first installation, and starts those that are enabled.
units="@UNITS@"

# The user of the history. Without it, nothing is recorded.
if command -v systemd-sysusers > /dev/null 2>&1; then
    systemd-sysusers tranche.conf || :
fi
if command -v systemd-tmpfiles > /dev/null 2>&1; then
    systemd-tmpfiles --create tranche.conf || :
fi
if [ "$1" -eq 1 ] && command -v systemctl > /dev/null 2>&1; then
    for unit in $units; do
        systemctl --no-reload preset "$unit" > /dev/null 2>&1 || :
    done
fi
if [ -S /run/udev/control ] && command -v udevadm > /dev/null 2>&1; then
    udevadm control --reload || :
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    # A broker of the version before ends in an orderly way, and MPS daemons outlive it.
    systemctl try-restart tranche-broker.service || :
    systemctl try-restart tranche-web.service || :
    for unit in $units; do
        if systemctl is-enabled --quiet "$unit"; then
            systemctl start "$unit" || :
        fi
    done
fi
exit 0
