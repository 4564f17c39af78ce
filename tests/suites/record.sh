#!/bin/sh
# Prints the record of a run: when it was, the versions of what was used, and the result of each test.
#
#   tests/suites/record.sh SUITE CACHE
set -eu
suite=$1 cache=$2
echo "# Written by \`make test-engines SUITE=$suite\`."
echo "date $(date +%F)"
for package in apptainer bubblewrap buildah containerd crun docker-compose docker.io incus lxc podman rootlesskit runc systemd-container; do
    chroot "$cache/$suite" dpkg-query --show --showformat 'version ${Package} ${Version}\n' "$package" 2> /dev/null || true
done
sort --unique "$cache/$suite.results/seen.txt"
for text in "$cache/$suite.results"/*.text; do
    program=${text##*/}
    sed -n "s,^test \(.*\) \.\.\. ok\$,passed ${program%.text}/\1,p; s,^test \(.*\) \.\.\. FAILED\$,failed ${program%.text}/\1,p" "$text"
done | sort
sort "$cache/$suite.results/not-run.txt" | sed 's/^not run: /not-run /'
