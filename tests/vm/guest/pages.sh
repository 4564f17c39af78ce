# Pages of docs as a person types them: every command of a block in a shell of its own, after `#` as root, after `$` as the user
# tester. What is changed: the GPUs (7 and 5 are those without MIG here), IMAGE (an image that is made of the root directory
# of containers), and names of claims that a page invents.
. ./check.sh

policy=/etc/tranche/config.yaml
cp $policy /tmp/before.yaml

# page NAME SCRIPT: the page, with what SCRIPT of sed changes.
page() { sed "s/ IMAGE/ localhost\/image/g; $2" "/opt/test/pages/$1" > /tmp/page.md; }
# block FIRST: the commands of the block of the page that begins with the command FIRST, with `# ` or `$ `.
block() {
    awk -v first="$1" '
        /^```console$/ { number = 1; next }
        /^```$/ { number = 0; next }
        !number || !/^[#$] / { next }
        number == 1 { wanted = $0 == first }
        { number++ }
        wanted' /tmp/page.md
}
# typed FIRST: types the block, and prints each command that fails with what it said. Every command gets `y` for a question.
typed() {
    block "$1" > /tmp/typed
    [ -s /tmp/typed ] || echo "the page has no block that begins with: $1"
    while read -r prompt command; do
        case $prompt in
        '$') as_user sh -c "$command" ;;
        *) (cd /tmp && sh -c "$command") ;;
        esac < /tmp/yes > /tmp/typed.out 2>&1 || {
            echo "$command: exit code $?"
            cat /tmp/typed.out
        }
    done < /tmp/typed
}
# shown FILE: the policy that the page shows in a block with `cat`.
shown() { sed -n '/^# cat \/etc\/tranche\/config.yaml/,/^# tranche policy check/{p; /^# tranche policy check/q}' /tmp/page.md | sed '1d; $d' > "$1"; }
yes | head -n 100 > /tmp/yes

# The image of both, and no network: this machine has none.
mkdir -p /etc/containers
printf '[containers]\nnetns = "none"\n' > /etc/containers/containers.conf
tar -C $image -cf /tmp/image.tar .
chmod 644 /tmp/image.tar
podman import --quiet /tmp/image.tar localhost/image > /dev/null
as_user podman import --quiet /tmp/image.tar localhost/image > /dev/null
# The programs that the pages start in containers and beside them.
mkdir -p /usr/local/bin
for program in python jupyter; do
    printf '#!/bin/sh\necho ran\n' > /usr/local/bin/$program
    chmod 755 /usr/local/bin/$program
done

page install.md ""
check "install.md: the units" "" typed "# systemctl daemon-reload"
check "install.md: what a removal would do" "" sh -c "tranche system prepare-removal --dry-run > /dev/null"
page engines.md ""
check "engines.md: nodes and their links" "" typed "# tranche system create-device-nodes"

page first-five-minutes.md "s/=0\b/=7/g; s/devices: \[0\]/devices: [7]/"
check "first-five-minutes.md: what there is" "" typed "# tranche cdi refresh"
check "first-five-minutes.md: a container" "" typed "# podman run --rm --device nvidia.com/gpu=7 localhost/image sh -c 'ls /dev/nvidia*'"
shown $policy
check "first-five-minutes.md: the policy" "" sh -c "tranche policy check > /dev/null && tranche plan > /dev/null && tranche cdi refresh > /dev/null"
check "first-five-minutes.md: two containers" "" typed "# podman run --detach --name train --device nvidia.com/gpu=7.any localhost/image sleep 1000"
check "first-five-minutes.md: a share that is held is refused" "share 1" \
    sh -c "podman run --rm --device nvidia.com/gpu=7.1 localhost/image true 2> /dev/null; tranche status | grep -o 'share 1' | head -n 1"
check "first-five-minutes.md: the end of a container" "" typed "# podman rm --force --time 0 train"
check "first-five-minutes.md: one share of four is held" "1 of 4" sh -c "tranche status --no-gpu | grep -o '1 of 4'"
podman rm --force --time 0 train2 > /dev/null

page first-shares.md 's/\b0\.big/7.big/g; s/\b0\.small/7.small/g; s/--of 0/--of 7/; s/devices: \[0\]/devices: [7]/; s/devices: \[1\]/devices: [5]/
    s/ \.\/\(train\|serve\)$/ sleep 1000/; /--rm/s/ \(sleep 1000\|\.\/prepare\)$/ true/; s/-- \.\/job\.sh/-- python/'
shown $policy
check "first-shares.md: the policy" "" sh -c "tranche policy check > /dev/null && tranche plan > /dev/null && tranche cdi refresh > /dev/null"
check "first-shares.md: the broker" "" typed "# systemctl enable --now tranche-broker.socket"
block "# podman run --detach --name train --device nvidia.com/gpu=7.big localhost/image sleep 1000" > /tmp/both
check "first-shares.md: two shares, and a third container that is refused" "0 0 126 0 " sh -c \
    "sed 's/^# //' /tmp/both | while read -r command; do sh -c \"\$command\" > /dev/null 2>&1 < /dev/null; printf '%s ' \$?; done"
check "first-shares.md: both shares are held" "nvidia.com/gpu=7.big 0
nvidia.com/gpu=7.small 0" held
podman rm --force --time 0 serve > /dev/null
check "first-shares.md: a share for several containers" "" typed "# tranche claim create --name nightly --share small --of 7 --wait 10m"
check "first-shares.md: programs" "" typed "# tranche run --share any -- python            # a free dedicated device: GPU 1 here"
podman rm --force --time 0 train > /dev/null

page team.md 's/\[0, 1, 2, 3, 4, 5\]/[7]/; s/\[6, 7\]/[5]/; s/all: 13/all: 4/; s/\b6\.any/5.any/; s/ IMAGE$/ IMAGE true/; s/cancel 7/cancel 1/
    s/localhost\/image$/localhost\/image true/; s/^  queue:/  calendar: {}\n&/'
shown $policy
check "team.md: the policy" "" sh -c "tranche policy check > /dev/null 2>&1; [ \$? -lt 5 ]"
check "team.md: into force" "" typed "# tranche cdi refresh"
check "team.md: a turn and a claim" "" typed '$ podman run --rm --device nvidia.com/gpu=5.any localhost/image true'
check "team.md: programs without a container" "" typed '$ tranche run --share any --wait 2h -- python train.py'
useradd -m ann
as_user tranche claim create --name train --device any > /dev/null 2>&1
runuser -u ann -- tranche claim create --name turn --shares 1 --device 5 > /dev/null 2>&1
check "team.md: what the administrator types" "" typed "# tranche status                           # who holds what, who waits, who is over a limit"
check "team.md: nothing is held" "" held
cp $policy /tmp/new.yaml
check "team.md: a policy that is changed in a copy" "" typed "# tranche policy check --config new.yaml"
check "team.md: an hour that is reserved" "" typed '$ tranche reserve any --from 14:00 --for 2h --reason demo'
as_user tranche claim release demo > /dev/null 2>&1
userdel -r ann 2> /dev/null

page mig.md ""
before=$(mig_of_first)
check "mig.md: what there is" "" typed "# tranche mig status"
# `plan` ends with 4 if something would change, and `apply` asks a terminal.
check "mig.md: a plan" 4 sh -c "tranche mig plan --layout 0:3g.20gb,2x1g.5gb > /dev/null; echo \$?"
check "mig.md: a change, which asks a person" "nothing to do" sh -c "
    echo y | script --quiet --return --command 'tranche mig apply --layout 0:3g.20gb,2x1g.5gb' /dev/null >&2
    tranche mig plan --layout 0:3g.20gb,2x1g.5gb"
check "mig.md: it is undone" "" sh -c "tranche mig undo --yes > /dev/null"
check "mig.md: the layout is that of before" "$before" mig_of_first

cp /tmp/before.yaml $policy
tranche cdi refresh > /dev/null 2>&1
rm -rf /etc/containers/containers.conf /usr/local/bin/python /usr/local/bin/jupyter
podman rmi --force localhost/image > /dev/null 2>&1
as_user podman rmi --force localhost/image > /dev/null 2>&1
check "nothing is held, and the other policy counts again" "" await sh -c ". ./check.sh; [ -z \"\$(held)\" ] && grep -q 7.big /run/cdi/tranche.yaml"
