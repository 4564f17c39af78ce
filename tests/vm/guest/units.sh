# The units as they are installed.
. ./check.sh

check "systemd-analyze verify has nothing to say about the units" "" \
    sh -c 'systemd-analyze verify /usr/lib/systemd/system/tranche-* 2>&1'
check "the history runs" active state tranche-web.service
for unit in tranche-broker tranche-mps@0 tranche-cdi-refresh tranche-cdi-recheck tranche-device-nodes tranche-mig tranche-web; do
    # The figure is for a person to compare. A unit that systemd calls unsafe has lost its sandbox.
    systemd-analyze security --no-pager $unit.service 2>&1 | sed -n "s/.*Overall exposure level/  exposure/p"
    check "systemd-analyze security calls $unit better than unsafe" "" \
        sh -c "systemd-analyze security --no-pager --threshold=90 $unit.service > /dev/null"
done
