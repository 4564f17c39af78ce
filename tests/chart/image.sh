#!/bin/sh
# Checks packaging/image/build.sh with a small static program in the place of tranche-kubelet: what the image contains, that
# a second build gives equal bytes, and that an engine starts it as the chart's pod does.
#
#   tests/chart/image.sh
set -eu
cd "$(dirname "$0")/../.."
build=$PWD/packaging/image/build.sh
fail() { echo "failed: $*" >&2; exit 1; }
not_run() {
    echo "not run: $*"
    [ "${TRANCHE_TEST_STRICT:-0}" != 1 ]
}

for program in buildah cc readelf python3; do
    command -v "$program" > /dev/null || { not_run "test-image: no $program"; exit; }
done
work=$(mktemp -d)
podman() { command podman --storage-driver vfs --root "$work/storage" --runroot "$work/run" --tmpdir "$work/tmp" "$@"; }
# After a container that did not start, podman still writes there for a moment.
trap 'rm -rf "$work" 2> /dev/null || { sleep 2; rm -rf "$work"; }' EXIT
trap 'exit 1' HUP INT TERM

echo '#include <stdio.h>
int main(int n, char **words) { for (int at = 1; at < n; at++) puts(words[at]); }' > "$work/program.c"
cc -static -o "$work/program" "$work/program.c"
cc -o "$work/dynamic" "$work/program.c"
mkdir "$work/first" "$work/second"
"$build" "$work/program" 1.2.3 1700000000 "$work/first" > /dev/null
echo "ok: an image is made"

# The same bytes in another file, by a user with other habits.
install -m 700 "$work/program" "$work/copy"
(umask 077 && TZ=Asia/Kolkata "$build" "$work/copy" 1.2.3 1700000000 "$work/second" > /dev/null)
cmp "$work/first/tranche-kubelet.tar" "$work/second/tranche-kubelet.tar" || fail "a second build gives other bytes"
cmp "$work/first/digest" "$work/second/digest" || fail "a second build gives another digest"
[ "$(ls "$work/first")" = "$(printf 'digest\ntranche-kubelet.tar')" ] || fail "the build leaves other files: $(ls "$work/first")"
echo "ok: a second build gives equal bytes"

python3 - "$work/first" "$work/program" << 'END' || fail "the image differs from what is expected"
import hashlib, io, json, platform, sys, tarfile
from pathlib import Path

out, program = Path(sys.argv[1]), Path(sys.argv[2])
archive = tarfile.open(out / "tranche-kubelet.tar")
def blob(digest):
    content = archive.extractfile("blobs/" + digest.replace(":", "/")).read()
    assert "sha256:" + hashlib.sha256(content).hexdigest() == digest, digest
    return content
owners = {(one.mtime, one.uid, one.gid, one.uname, one.mode & 0o022) for one in archive}
assert owners == {(1700000000, 0, 0, "", 0)}, owners
(manifest,) = json.load(archive.extractfile("index.json"))["manifests"]
assert manifest["digest"] == (out / "digest").read_text().strip()
assert manifest["annotations"] == {"org.opencontainers.image.ref.name": "localhost/tranche-kubelet:1.2.3"}, manifest
manifest = json.loads(blob(manifest["digest"]))
config = json.loads(blob(manifest["config"]["digest"]))
(layer,) = manifest["layers"]
files = [one for one in tarfile.open(fileobj=io.BytesIO(blob(layer["digest"])))]
found = [(one.name, oct(one.mode & 0o7777), one.uid, one.gid, one.mtime, one.size) for one in files]
assert found == [("tranche-kubelet", "0o755", 0, 0, 1700000000, program.stat().st_size)], found
assert config["architecture"] == {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()], config
assert config["created"] == "2023-11-14T22:13:20Z", config
inner = config["config"]
assert inner.keys() == {"User", "Entrypoint", "WorkingDir", "Labels"}, inner
assert (inner["User"], inner["Entrypoint"]) == ("0", ["/tranche-kubelet"]), inner
assert inner["Labels"].keys() == {"org.opencontainers.image." + one for one in ["title", "description", "version", "licenses"]}, inner
assert all(inner["Labels"].values()) and inner["Labels"]["org.opencontainers.image.version"] == "1.2.3", inner
assert "history" not in config, config
END
echo "ok: the image has the program and nothing else"

refused() { # WORDS PROGRAM: the build of PROGRAM fails, with WORDS in its only line.
    if "$build" "$2" 1.2.3 0 "$work/second" > "$work/log" 2>&1; then fail "accepted: $2"; fi
    if ! grep -q "$1" "$work/log" || [ "$(wc -l < "$work/log")" != 1 ]; then fail "expected one line with \"$1\": $(cat "$work/log")"; fi
    echo "ok: refused: $1"
}
refused 'is not static' "$work/dynamic"
refused 'not found; set KUBELET_PROGRAM' "$work/nothing"
refused 'is not a program' "$work/program.c"

if [ "$(id -u)" != 0 ] || ! command -v podman > /dev/null; then
    not_run "test-image: an engine starts the image: no podman as root"
    exit
fi
podman load --quiet --input "$work/first/tranche-kubelet.tar" > "$work/log" 2>&1 || fail "podman does not load it: $(cat "$work/log")"
# Root of some virtual machines may not raise limits, which podman does otherwise.
said=$(podman run --rm --network none --cgroups disabled --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 \
    --read-only --cap-drop all --security-opt no-new-privileges \
    localhost/tranche-kubelet:1.2.3 device-plugin --placement=packed 2> "$work/log") || fail "podman: $(cat "$work/log")"
[ "$said" = "$(printf 'device-plugin\n--placement=packed')" ] || fail "the program said: $said"
echo "ok: podman starts it with a read-only root and without capabilities"
