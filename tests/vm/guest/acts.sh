# What the broker does for a user, it does as the user: the same as tests/broker/acts.rs, in the broker's unit and with
# cgroups of version 2 alone.
. ./check.sh

says() {
    text=$1
    shift
    "$@" 2>&1 | grep -c "$text" || true
}
policy=/etc/tranche/config.yaml
cp $policy /tmp/before.yaml
# limit TIME: for how long everybody may hold something. What a check needs is set up under a long one.
limit() {
    sed "s/^    default: .*/    default: {maxShares: 4, maxHold: $1, atLimit: end, grace: 2s}/" /tmp/team.yaml > $policy
    tranche cdi refresh > /dev/null 2>&1
}
nothing_held() { [ -z "$(held)" ]; }
number_held() { [ "$(held | wc -l)" = "$1" ]; }

# hold NAME COMMAND…: the command holds a turn as the user tester. Its unit is the user's to divide, so tranche run gives the
# program a cgroup of its own. The manager leaves alone what the program leaves behind.
hold() {
    name=$1
    shift
    limit 1h
    systemd-run --quiet --collect --unit="acts-$name" --uid=tester --gid=tester --property=Delegate=yes --property=KillMode=process \
        tranche run --share 5.any -- "$@"
}
# pid_of NAME: the process of the program, which is the child of tranche run.
pid_of() {
    main=$(systemctl show --property MainPID --value "acts-$1.service")
    tr -d ' ' < "/proc/$main/task/$main/children"
}
cgroup_of() { echo "/sys/fs/cgroup$(sed -n 's/^0:://p' "/proc/$1/cgroup")"; }

install -m 4755 /usr/bin/setpriv /usr/local/bin/rises
# A word that begins with a dollar sign would be a variable for systemd.
stubborn='1; $SIG{TERM} = "IGNORE"; sleep 1000 while 1'
risen='1; $SIG{TERM} = sub { exec qw(/usr/local/bin/rises --reuid=0 --regid=0 --clear-groups sleep 10000) }; sleep 1000 while 1'

# A worker 20 levels below the cgroup.
hold deep perl -e "$stubborn"
await number_held 1
deep=$(cgroup_of "$(pid_of deep)")
below=$deep
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do below=$below/x; done
mkdir -p "$below"
setpriv --reuid=tester --regid=tester --clear-groups perl -e "$stubborn" &
echo $! > "$below/cgroup.procs"
limit 5s
check "a worker far below the cgroup is ended, and nothing is held" "" await nothing_held
is_gone() { [ -z "$(cat "$below/cgroup.procs" 2> /dev/null)" ]; }
check "the worker is gone" "" await is_gone

# Processes of root in its cgroup, one of them in a namespace in which everybody has a number.
hold mixed perl -e "$stubborn"
await number_held 1
mixed=$(cgroup_of "$(pid_of mixed)")
perl -e 'for my $s (qw(TERM HUP INT)) { $SIG{$s} = sub { exit 1 } } sleep 1000 while 1' &
canary=$!
unshare --user sleep 10000 &
mapped=$!
is_apart() { [ "$(readlink /proc/$mapped/ns/user)" != "$(readlink /proc/self/ns/user)" ]; }
await is_apart
echo "0 0 65536" > /proc/$mapped/uid_map
echo $canary > "$mixed/cgroup.procs"
echo $mapped > "$mixed/cgroup.procs"
limit 5s
is_stuck() { tranche status --no-gpu | grep -q 'cannot be ended: process'; }
check "root sees that a process in it is not the user's" "" await is_stuck
sleep 11
check "root's processes live" "" kill -0 $canary $mapped
check "the cgroup is not frozen" 0 cat "$mixed/cgroup.freeze"
check "nothing is written down as frozen" "" test ! -e /run/tranche/frozen.json
kill -KILL $canary $mapped
check "it is not held any more when they have ended" "" await nothing_held

# A program that becomes root's at SIGTERM.
hold rises perl -e "$risen"
await number_held 1
rises=$(pid_of rises)
limit 5s
check "a program that has become root's is shown" "" await is_stuck
check "it lives" 1 says "^Uid:.0.0.0.0" cat "/proc/$rises/status"
kill -KILL "$rises"
check "and is not held any more when root ends it" "" await nothing_held

# A broker that is killed while it has frozen something: its unit is started again.
hold frozen perl -e "$stubborn"
await number_held 1
frozen=$(cgroup_of "$(pid_of frozen)")
systemctl stop tranche-broker.service
printf '{"version":1,"path":"%s","inode":%s}' "$frozen" "$(stat -c %i "$frozen")" > /run/tranche/frozen.json
echo 1 > "$frozen/cgroup.freeze"
limit 5s
systemctl start tranche-broker.service
is_thawed() { [ "$(cat "$frozen/cgroup.freeze")" = 0 ] || [ ! -e "$frozen" ]; }
check "the next broker lets run what one left frozen" "" await is_thawed
check "and its holder is ended" "" await nothing_held

cp /tmp/before.yaml $policy
tranche cdi refresh > /dev/null 2>&1
rm -f /usr/local/bin/rises
