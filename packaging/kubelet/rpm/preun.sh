# Before the program is removed, but not before an upgrade, the plugin ends and takes its sockets away. Running containers keep
# their devices.
if [ "$1" -eq 0 ]; then
    if [ -d /run/systemd/system ]; then
        systemctl stop tranche-kubelet.service || :
    fi
    if command -v systemctl > /dev/null 2>&1; then
        systemctl --no-reload disable tranche-kubelet.service > /dev/null 2>&1 || :
    fi
fi
exit 0
