#!/bin/sh
# Makes the image of tranche-kubelet: the static program and nothing else, as an OCI archive. Equal programs give equal
# bytes. Needs buildah; nothing is executed in the image, so no engine has to run.
#
#   packaging/image/build.sh PROGRAM VERSION EPOCH DIRECTORY
#
# EPOCH, in seconds since 1970, is the time of everything in the image. In DIRECTORY are then tranche-kubelet.tar, and
# digest with the digest of the image's manifest.
set -eu
program=$1 version=$2 epoch=$3 out=$4
name=localhost/tranche-kubelet:$version
fail() { echo "image: $*" >&2; exit 1; }

[ -f "$program" ] || fail "$program: not found; set KUBELET_PROGRAM to the static program tranche-kubelet"
# The image has no loader. A program that needs one has a segment that names it.
segments=$(LC_ALL=C readelf -lW "$program" 2> /dev/null) || fail "$program: is not a program that readelf reads"
case $segments in
*INTERP*) fail "$program: is not static" ;;
esac
# The architecture that the image names is that of the program, which may be built for another machine.
case $(LC_ALL=C readelf -hW "$program" | sed -n 's/^ *Machine: *//p') in
*X86-64*) arch=amd64 ;;
AArch64) arch=arm64 ;;
*) fail "$program: is neither for x86_64 nor for aarch64" ;;
esac
command -v buildah > /dev/null || fail "buildah: not found; install the package buildah"

umask 022
mkdir -p "$out"
rm -f "$out/tranche-kubelet.tar" "$out/digest"
work=$(mktemp -d "$out/work.XXXXXX")
# buildah leaves directories that their owner may not write to.
trap 'chmod -R u+rwX "$work"; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# In a storage of its own: the images of this machine are not touched, and no file system driver of the kernel is needed.
b() { buildah --storage-driver vfs --root "$work/root" --runroot "$work/runroot" "$@"; }
container=$(b from scratch)
b copy --quiet --chmod 755 --chown 0:0 "$container" "$program" /tranche-kubelet > /dev/null
b config --arch "$arch" --os linux --user 0 --workingdir / --entrypoint '["/tranche-kubelet"]' \
    --label org.opencontainers.image.title=tranche-kubelet \
    --label org.opencontainers.image.description="Offers the GPUs of a node, and shares of them, to its kubelet" \
    --label org.opencontainers.image.version="$version" \
    --label org.opencontainers.image.licenses="$(sed -n 's/^license = "\(.*\)"/\1/p' "$(dirname "$0")/../../Cargo.toml" | head -n 1)" \
    "$container"
# Neither the version of buildah nor the commands are in the image, because both differ between machines.
b commit --quiet --identity-label=false --omit-history --timestamp "$epoch" "$container" "oci:$work/layout:$name" > /dev/null

# buildah's own archive has the times of its files in it.
tar -C "$work/layout" --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    -cf "$work/archive" index.json oci-layout blobs
sed -n 's/.*"digest":"\(sha256:[0-9a-f]*\)".*/\1/p' "$work/layout/index.json" > "$work/digest"
[ -s "$work/digest" ] || fail "the layout has no digest"
mv "$work/archive" "$out/tranche-kubelet.tar"
mv "$work/digest" "$out/digest"
echo "$out/tranche-kubelet.tar: $name, $arch, $(cat "$out/digest")"
