# Before the programs are removed, but not before an upgrade: a specification whose hook is gone would keep every container
# from starting.
units="@UNITS@"

if [ "$1" -eq 0 ]; then
    # First what would write specifications again. Without the broker, the command below does its work.
    if [ -d /run/systemd/system ]; then
        for unit in $units tranche-broker.service; do
            systemctl stop "$unit" || :
        done
    fi
    if [ -x /usr/bin/tranche ]; then
        /usr/bin/tranche system prepare-removal || :
    fi
    if command -v systemctl > /dev/null 2>&1; then
        for unit in $units; do
            systemctl --no-reload disable "$unit" > /dev/null 2>&1 || :
        done
    fi
fi
exit 0
