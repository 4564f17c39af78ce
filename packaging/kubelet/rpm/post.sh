# Leaves the unit as it is: the preset disables it, and an administrator enables it on nodes without the chart. After an
# upgrade, it is restarted if it runs.
if [ "$1" -eq 1 ] && command -v systemctl > /dev/null 2>&1; then
    systemctl --no-reload preset tranche-kubelet.service > /dev/null 2>&1 || :
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    # Pods keep what they have: the kubelet forgets a plugin that is away after minutes, not at once.
    systemctl try-restart tranche-kubelet.service || :
fi
exit 0
