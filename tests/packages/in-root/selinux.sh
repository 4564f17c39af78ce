#!/bin/sh
# Installs the SELinux module of the deb package into Debian's policy in the root $ROOT, and looks at the policy that comes
# out. Called by root.sh. The kernel is not asked, so this needs no SELinux.
set -eu
here=$(dirname "$0")
. "$here/files.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp "$here/confined.cil" "$ROOT/tmp"
dpkg-deb --fsys-tarfile "$ROOT"/run/packages/tranche_*.deb |
    tar -xO ./usr/share/selinux/packages/tranche.cil > "$ROOT/tmp/tranche.cil" || fail "the package has no module"
printf 'SELINUX=permissive\nSELINUXTYPE=default\n' > "$ROOT/etc/selinux/config"

modules() {
    inside semodule -n -s default "$@" > "$work/log" 2>&1 || fail "semodule $*: $(cat "$work/log")"
}
rules() {
    inside sh -c 'sesearch "$@" /etc/selinux/default/policy/policy.*' sesearch "$@"
}

# In a policy without containers, the optional blocks have no effect.
modules -i /tmp/tranche.cil
rules -A -s tranche_mps_run_t -t tmpfs_t -c filesystem > "$work/rules"
grep -q associate "$work/rules" || fail "a tmpfs cannot have files of the type"
rules -A -t tranche_mps_run_t > "$work/rules"
! grep container "$work/rules" || fail "there are rules for containers without a policy for containers"

# Exactly these rules are for containers.
modules -i /tmp/confined.cil
rules -A -s container_t | LC_ALL=C sort > "$work/rules"
cat > "$work/expected" << 'END'
allow container_domain tranche_mps_run_t:dir { getattr ioctl open read search };
allow container_domain tranche_mps_run_t:fifo_file { append getattr ioctl lock open read write };
allow container_domain tranche_mps_run_t:file { getattr ioctl lock open read };
allow container_domain tranche_mps_run_t:sock_file { getattr write };
allow container_domain unconfined_service_t:fd use;
allow container_domain unconfined_service_t:unix_stream_socket { connectto getattr getopt read setopt shutdown write };
END
diff "$work/expected" "$work/rules" || fail "the rules (>) are not those that were expected (<)"

# $1: path
context() {
    inside matchpathcon -n "$1"
}
module_context=system_u:object_r:tranche_mps_run_t:s0
for path in mps mps/0 mps/0-1/control; do
    [ "$(context "/run/tranche/$path")" = "$module_context" ] || fail "$path: its context is $(context "/run/tranche/$path")"
done
for path in tranche tranche/broker.sock tranche/mps-log tranche/mps-log/0; do
    [ "$(context "/run/$path")" != "$module_context" ] || fail "$path: has the context of a pipe directory"
done
# One of the two has an effect, by the policy's equivalence of both directories.
for path in /run /var/run; do
    grep -q -F "$path/tranche/mps(-daemon)?(/.*)?" "$ROOT/etc/selinux/default/contexts/files/file_contexts" ||
        fail "no file context below $path"
done

# A unit whose program has this type runs in the domain of services that have no policy.
for program in tranche tranche-kubelet; do
    [ "$(context "/usr/bin/$program")" = system_u:object_r:bin_t:s0 ] || fail "$program: its context is $(context "/usr/bin/$program")"
done

modules -r tranche
[ "$(context /run/tranche/mps/0)" != "$module_context" ] || fail "the file contexts are left after a removal"
echo "selinux: the module is compiled by semodule, has the rules and file contexts that it should have, and can be removed"
