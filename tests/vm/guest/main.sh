#!/bin/sh
# Runs inside the machine: each topic in a shell of its own, in this order, with one `ok` or `failed` line on the console for
# each check. At the second boot, other topics follow.
set -u
exec > /dev/console 2>&1
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
cd /opt/test/guest || exit

# What the units said, for the person who looks at a failure.
explain() {
    [ ! -e /run/tranche-test.failed ] || journalctl --boot --no-pager --lines 60 -u 'tranche-broker*' -u 'tranche-mps*' -u tenant |
        sed 's/^/  /'
}

if [ -e /var/lib/tranche-test ]; then
    for topic in reboot together closed removal; do
        sh "./$topic.sh"
    done
    explain
    echo "result: end"
    systemctl poweroff
    exit
fi
mkdir /var/lib/tranche-test
for topic in machine engines driver units broker mps rootless pages team acts reload access turns idle; do
    sh "./$topic.sh"
done
explain
echo "result: reboot"
systemctl reboot
