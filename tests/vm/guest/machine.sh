# The machine itself, and what the other topics use of it: an image, a user, the driver's libraries.
. ./check.sh

check "cgroup v2 is mounted alone" cgroup2fs stat -f -c %T /sys/fs/cgroup
# The second disk brought libraries, and rules of udev and tmpfiles.
ldconfig
systemctl daemon-reload
udevadm control --reload
systemd-tmpfiles --create /etc/tmpfiles.d/tranche-test.conf

check "the package is installed" "" sh -c "dpkg -i /opt/test/tranche.deb > /tmp/installation 2>&1"
check "its units are enabled" "enabled
enabled
enabled" systemctl is-enabled tranche-broker.socket tranche-cdi-refresh.path tranche-cdi-refresh.service
check "its socket listens and its path is watched" "active
active" state tranche-broker.socket tranche-cdi-refresh.path
check "nothing has failed without a driver" "" systemctl list-units --failed --no-legend --plain
check "tranche runs" "$(cat /opt/test/version)" tranche --version

mkdir -p $image/bin $image/proc $image/sys $image/dev $image/etc $image/tmp $image/run
cp /usr/bin/busybox $image/bin/
for applet in sh ls cat readlink stat env head wc find sort sleep true; do ln -s busybox $image/bin/$applet; done
useradd -m tester
cp -a $image $user_image
chown -R tester: $user_image
loginctl enable-linger tester
# The user's own systemd, which divides the user's cgroup for podman; an emulated machine takes its time to start it.
await test -S "/run/user/$(id -u tester)/bus"
