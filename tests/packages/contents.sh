#!/bin/sh
# The files of the packages are those in contents/, the programs of hooks are static, and both kinds of package have the same
# files. Called by run.sh. TRANCHE_BLESS=1 writes contents/ anew.
set -eu
: "${here:?}" "${packages:?}" "${not_run:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*" >&2; exit 1; }

# $1: name in contents/, $2: list
compare() {
    if [ -n "${TRANCHE_BLESS:-}" ]; then
        cp "$2" "$here/contents/$1"
    elif ! diff -u "$here/contents/$1" "$2"; then
        fail "contents of $1 differ; if they should, run: make test-packages TRANCHE_BLESS=1"
    fi
}

for name in tranche tranche-nvidia-compat tranche-kubelet; do
    deb=$(ls "$packages/${name}_"*.deb)
    # Mode, owner, path; links with their target. The pages of single commands are many, and follow from the command line.
    dpkg-deb -c "$deb" | awk '{ $3 = $4 = $5 = ""; print }' | tr -s ' ' | sed 's| \./| /|' |
        grep -v '/man1/tranche-' | LC_ALL=C sort -k 3 > "$work/$name.deb"
    compare "$name.deb" "$work/$name.deb"
done

mkdir "$work/root"
dpkg-deb -x "$(ls "$packages"/tranche_*.deb)" "$work/root"
dpkg-deb -x "$(ls "$packages"/tranche-kubelet_*.deb)" "$work/root"
bin=$work/root/usr/bin
programs='tranche tranche-oci tranche-runtime tranche-kubelet'
for program in $programs; do
    readelf -ldW "$bin/$program" > "$work/$program.elf" 2>&1 || fail "$program: $(cat "$work/$program.elf")"
    grep -q LOAD "$work/$program.elf" || fail "$program: is not a program"
done
for program in tranche-oci tranche-runtime tranche-kubelet; do
    ! grep -q INTERP "$work/$program.elf" || fail "$program: has an interpreter, so it is not static"
    ! grep -q NEEDED "$work/$program.elf" || fail "$program: needs a library, so it is not static"
done
# NVML is opened at run time.
for program in "$bin/tranche" "$work"/root/usr/libexec/tranche/tranche-broker "$work"/root/usr/libexec/tranche/tranche-driver \
    "$work/root/usr/libexec/tranche/tranche-web"; do
    readelf -dW "$program" | grep NEEDED |
        grep -v -E 'libc\.so|libm\.so|libgcc_s\.so|ld-linux|libdl\.so|libpthread\.so' &&
        fail "${program##*/}: needs a library that not every machine has"
done
[ "$(stat -c %s "$bin/tranche-oci")" -lt 2097152 ] || fail "tranche-oci: not below 2 MiB"
[ "$(stat -c %s "$bin/tranche-kubelet")" -lt 6000000 ] || fail "tranche-kubelet: not below 6 MB"
for program in $programs; do
    ! grep -a -q -F -e "$HOME/" -e "$(cd "$here/../.." && pwd)/" "$bin/$program" || fail "$program: has paths of this machine"
done
[ -e "$work/root/usr/share/man/man1/tranche-cdi-generate.1.gz" ] || fail "the page of tranche cdi generate is missing"

# The same files in rpm: without Debian's own documents, and with directories that belong to the package alone.
for name in tranche tranche-nvidia-compat tranche-kubelet; do
    rpm=$(ls "$packages/$name"-[0-9]*.rpm 2> /dev/null) || { echo "rpm of $name: was not made" >> "$not_run"; continue; }
    command -v rpm > /dev/null || { echo "rpm of $name: no rpm" >> "$not_run"; continue; }
    rpm -qpl "$rpm" 2> /dev/null | while read -r path; do
        [ -d "$work/root$path" ] || echo "$path"
    done | sed 's|/zsh/site-functions/|/zsh/vendor-completions/|' | LC_ALL=C sort > "$work/of-rpm"
    dpkg-deb -c "$(ls "$packages/${name}_"*.deb)" | awk '$1 !~ /^d/ { print substr($6, 2) }' |
        grep -v -E "/share/lintian/|/doc/$name/(copyright|changelog.Debian.gz)$" | LC_ALL=C sort > "$work/of-deb"
    diff -u "$work/of-deb" "$work/of-rpm" || fail "rpm (+) and deb (-) of $name have other files"
done
