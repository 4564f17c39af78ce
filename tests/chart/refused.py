"""The options that the chart refuses."""

import re

from helm import CHART, DRA, HELMS, LEAST, template
from report import expect

# Options that are refused, and what the line says.
REFUSED = [
    (["--namespace", "default"], r"namespace default: refused .*; add --namespace tranche --create-namespace"),
    (["--set", "image.repository="], r"image\.repository: missing; run make image"),
    (["--set", "image.tag=a", "--set", f"image.digest=sha256:{'0' * 64}"], r"image\.tag and image\.digest: expected one"),
    (["--set", "imge.tag=a"], r"imge.? (is )?not allowed"),
    (["--set", "image.pullpolicy=Always"], r"pullpolicy.? (is )?not allowed"),
    (["--set", "image.repository=a/b:1"], r"image.repository.*pattern"),
    (["--set", "image.digest=sha256:12"], r"image.digest.*pattern"),
    (["--set", "image.pullPolicy=Sometimes"], r"image.pullPolicy.*(one of|enum)"),
    (["--set", "kubeletDir=var/lib/kubelet"], r"kubeletDir.*pattern"),
    (["--set", "kubeletDir=/var/lib/../kubelet"], r"kubeletDir.*pattern"),
    (["--set", "kubeletDir=7"], r"kubeletDir.*string"),
    (["--set", "kubeletDir=null"], r"kubeletDir"),
    (["--set", "placement=best"], r"placement.*(one of|enum)"),
    (["--set", "affinity.nodeAffinity=a"], r"affinity.*(one of|enum)"),
    (["--set", "nodeSelector.gpu=true"], r"nodeSelector.gpu.*string"),
    (["--set", "tolerations[0].opertor=Exists"], r"opertor.? (is )?not allowed"),
    (["--set", "resources.limits.nvidia=1"], r"nvidia.? (is )?not allowed"),
    (["--set", "seLinuxOptions.typ=spc_t"], r"typ.? (is )?not allowed"),
    (["--set", "config.name=a", "--set", "config.map.b=c"], r"config\.name and config\.map: expected one"),
    (["--set", "config.map.a.b=c"], r"config.map.a.*string"),
    (["--set", "config.name=A"], r"config.name.*pattern"),
    (["--set", "events=yes"], r"events.*boolean"),
    (["--set", "metrics.port=9400"], r"metrics\.port: expected with dra\.enabled: true"),
    ([*DRA, "--set", "metrics.port=70000"], r"metrics.port.*(70000|65535|maximum)"),
    (["--kube-version", "1.30.9"], r"kubeVersion: >=1\.31\.0-0 .*incompatible with Kubernetes v1\.30\.9"),
    (["--set", "devicePlugin=false"], r"devicePlugin and dra\.enabled: expected at least one"),
    (["--set", "devicePlugin=no"], r"devicePlugin.*boolean"),
    ([*DRA, "--kube-version", "1.33.9"], r"dra\.enabled: needs Kubernetes 1\.34 or later, .*; this one is v1\.33\.9"),
    (
        [*DRA, "--set", "dra.claimStatus=true", "--kube-version", "1.35.9"],
        r"dra\.claimStatus: needs Kubernetes 1\.36 or later, .*; this one is v1\.35\.9",
    ),
    (["--set", "dra.claimStatus=true"], r"dra\.claimStatus: expected with dra\.enabled: true"),
    (["--set", "dra.nodeLabels=true"], r"dra\.nodeLabels: expected with dra\.enabled: true"),
    (["--set", "dra.enable=true"], r"enable.? (is )?not allowed"),
    ([*DRA, "--set", "dra.driverName=../x"], r"dra.driverName.*pattern"),
    ([*DRA, "--set", "dra.driverName=a..b"], r"dra.driverName.*pattern"),
    ([*DRA, "--set", f"dra.driverName={'a' * 64}"], r"dra.driverName.*(length|63)"),
    ([*DRA, "--set", "dra.deviceClasses.amd=true"], r"amd.? (is )?not allowed"),
    ([*DRA, "--set", "dra.extendedResources.gpu=gpu"], r"dra.extendedResources.gpu.*pattern"),
    (
        [*DRA, "--set", "dra.extendedResources.mig=a.b/c,dra.deviceClasses.own=false"],
        r"dra\.extendedResources: the names belong to the classes of whole devices.* set dra\.deviceClasses\.own",
    ),
    (
        [*DRA, "--set", "dra.extendedResources.gpu=a.b/c,dra.extendedResources.mig=a.b/c"],
        r"dra\.extendedResources\.gpu and dra\.extendedResources\.mig: expected different names",
    ),
]


def check_refused():
    for helm in HELMS:
        for options, line in REFUSED:
            done = template(helm, CHART, *LEAST, *options)
            lines = [one for one in done.stderr.splitlines() if re.search(line, one)]
            is_refused = done.returncode != 0 and len(lines) == 1
            expect(is_refused, f"{helm.name} refuses {' '.join(options)[:60]}", done.stderr or "accepted")
