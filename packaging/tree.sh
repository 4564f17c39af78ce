#!/bin/sh
# Adds to a directory of packages what only packages have: maintainer scripts and Debian's changelog.
# Arguments: the directory, the version, the time in seconds since 1970, the maintainer; `kubelet` for the package
# tranche-kubelet.
set -eu
package=$1 version=$2 epoch=$3 maintainer=$4 part=${5:-.}
packaging=$(dirname "$0")
here=$packaging/$part
case $part in
kubelet) names=tranche-kubelet ;;
*) names='tranche tranche-nvidia-compat' ;;
esac

units=$("$packaging/units.sh" "$part" | tr '\n' ' ')
for script in "$here"/deb/post* "$here"/deb/pre* "$here"/rpm/*.sh; do
    kind=$(basename "$(dirname "$script")")
    mkdir -p "$package/scripts/$kind"
    sed "s|@UNITS@|${units% }|" "$script" > "$package/scripts/$kind/${script##*/}"
    chmod 755 "$package/scripts/$kind/${script##*/}"
done

# The package of links has no scripts.
mkdir -p "$package/scripts/none"

for name in $names; do
    share=$package/deb/$name/share
    mkdir -p "$share/doc/$name" "$share/lintian/overrides"
    # Where the changes are: CHANGELOG.md, in the form of the project.
    {
        printf '%s (%s-1) unstable; urgency=medium\n\n' "$name" "$version"
        printf '  * See /usr/share/doc/tranche/CHANGELOG.md.\n\n'
        printf ' -- %s  %s\n' "$maintainer" "$(LC_ALL=C date -u -R -d "@$epoch")"
    } | gzip -9n > "$share/doc/$name/changelog.Debian.gz"
    # Debian's zsh reads the completions of packages there, and those in site-functions are an administrator's.
    completions=$package/root/usr/share/zsh/site-functions/_$name
    if [ -e "$completions" ]; then
        install -D -m 644 "$completions" "$share/zsh/vendor-completions/_$name"
    fi
    if [ -e "$here/deb/$name.lintian-overrides" ]; then
        cp "$here/deb/$name.lintian-overrides" "$share/lintian/overrides/$name"
    fi
done
