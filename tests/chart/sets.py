"""What each set of values of the chart's `ci` changes."""

import re

import yaml
from classes import extended_resources
from helm import CHART, HELMS, check_schema, rendered, version
from objects import container_of, pod_of
from properties import OF_VALUES, broken
from report import expect

LABELS = {
    ("feature.node.kubernetes.io/pci-10de.present", "true"),
    ("feature.node.kubernetes.io/pci-0302_10de.present", "true"),
    ("feature.node.kubernetes.io/pci-0300_10de.present", "true"),
    ("feature.node.kubernetes.io/cpu-model.vendor_id", "NVIDIA"),
    ("nvidia.com/gpu.present", "true"),
}


def affinity_labels(pod):
    """The labels of which a node needs one."""
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    found = set()
    for term in required["nodeSelectorTerms"]:
        # Two expressions in one term would have to hold together.
        (one,) = term["matchExpressions"]
        (value,) = one["values"]
        assert one["operator"] == "In"
        found.add((one["key"], value))
    return found


def defaults(pod, container):
    return (
        affinity_labels(pod) == LABELS
        and "nodeSelector" not in pod
        and pod["priorityClassName"] == "system-node-critical"
        and pod["tolerations"]
        == [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
        ]
        and container["image"] == f"registry.example.com/tranche-kubelet:{version()}"
        and container["imagePullPolicy"] == "IfNotPresent"
        and container["args"]
        == [
            "device-plugin",
            "--kubelet-dir=/var/lib/kubelet",
            "--state-dir=/run/tranche",
            "--placement=policy",
            "--node=$(NODE_NAME)",
        ]
        and "seLinuxOptions" not in container["securityContext"]
        and container["resources"]["limits"] == {"memory": "64Mi"}
    )


SETS = {
    "registry": defaults,
    "digest": lambda pod, container: re.fullmatch(
        r"registry\.example\.com:5000/gpu/tranche-kubelet@sha256:[0-9a-f]{64}", container["image"]
    )
    and pod["imagePullSecrets"] == [{"name": "registry"}]
    and container["imagePullPolicy"] == "Always",
    "imported": lambda pod, container: container["image"] == f"localhost/tranche-kubelet:{version()}"
    and container["imagePullPolicy"] == "Never",
    "own-label": lambda pod, container: "affinity" not in pod
    and pod["nodeSelector"] == {"tranche.dev/kubernetes": "true"},
    "every-node": lambda pod, container: not {"affinity", "nodeSelector", "tolerations"} & pod.keys(),
    "kubelet-dir": lambda pod, container: "--kubelet-dir=/data/kubelet" in container["args"]
    and "/var/lib/kubelet" not in str(pod),
    "selinux": lambda pod, container: container["securityContext"]["seLinuxOptions"] == {"type": "spc_t"},
    "no-priority": lambda pod, container: "priorityClassName" not in pod
    and container["resources"]["limits"] == {"cpu": 1, "memory": "128Mi"},
    "config-map": lambda pod, container: container["args"][-2:] == ["--config-dir=/config", "--config-default=tenths"]
    and pod["volumes"][-1] == {"name": "config", "configMap": {"name": "nvidia-plugin-configs"}}
    and pod["automountServiceAccountToken"] is True,
    "config": lambda pod, container: container["args"][-1] == "--config-dir=/config"
    and pod["volumes"][-1] == {"name": "config", "configMap": {"name": "tranche-kubelet-config"}}
    and pod["automountServiceAccountToken"] is True,
    "no-events": lambda pod, container: pod["automountServiceAccountToken"] is False
    and container["args"][-1] == "--placement=policy"
    and "env" not in container,
    "spread": lambda pod, container: "--placement=spread" in container["args"]
    and container["image"].endswith(":0.1.0-2"),
    "dra": lambda pod, container: container["args"]
    == [
        "device-plugin",
        "dra",
        "--kubelet-dir=/var/lib/kubelet",
        "--state-dir=/run/tranche",
        "--placement=policy",
        "--driver-name=gpu.tranche.dev",
        "--node=$(NODE_NAME)",
    ],
    "dra-only": lambda pod, container: container["args"]
    == [
        "dra",
        "--kubelet-dir=/var/lib/kubelet",
        "--state-dir=/run/tranche",
        "--driver-name=gpu.tranche.dev",
        "--pod-uid=$(POD_UID)",
        "--node=$(NODE_NAME)",
    ]
    and pod["automountServiceAccountToken"] is True,
    "nvidia-classes": lambda pod, container: "--driver-name=gpu.nvidia.com" in container["args"]
    and "gpu.tranche.dev" not in str(pod),
    "extended-resources": lambda pod, container: container["args"][:2] == ["device-plugin", "dra"],
    "no-node-restriction": lambda pod, container: container["args"][:2] == ["device-plugin", "dra"],
}

POLICY = [(f"ValidatingAdmissionPolicy{binding}", "tranche-kubelet-slices") for binding in ["", "Binding"]]
OWN = [("DeviceClass", name) for name in ["gpu.tranche.dev", "mig.gpu.tranche.dev", "share.gpu.tranche.dev"]]
NVIDIA = [("DeviceClass", name) for name in ["gpu.nvidia.com", "mig.nvidia.com"]]

# The objects of these kinds that a set of values adds, and the names of extended resources by class.
ADDED = {
    "config": ([("ConfigMap", "tranche-kubelet-config")], {}),
    "dra": (POLICY + OWN, {}),
    "dra-only": (POLICY + OWN, {}),
    "nvidia-classes": (POLICY + NVIDIA, {}),
    "extended-resources": (
        POLICY + OWN + NVIDIA,
        {"gpu.nvidia.com": "nvidia.com/gpu", "mig.nvidia.com": "example.com/mig"},
    ),
    "no-node-restriction": ([], {}),
}


def check_sets(scratch):
    files = {file.name.removesuffix("-values.yaml"): file for file in CHART.glob("ci/*.yaml")}
    expect(files.keys() == SETS.keys(), "each set of values has its check", files.keys() ^ SETS.keys())
    for name, file in sorted(files.items()):
        results = [rendered(helm, CHART, "--values", file) for helm in HELMS]
        objects = results[-1]
        expect(results[0] == results[1], f"{name}: helm 3 and helm 4 render the same")
        expect(not broken(objects), f"{name}: what holds for every set of values", broken(objects))
        expect(SETS[name](pod_of(objects), container_of(objects)), f"{name}: what this set changes", objects)
        added = [(one["kind"], one["metadata"]["name"]) for one in objects if one["kind"] in OF_VALUES]
        seen = sorted(added), extended_resources(objects)
        wanted, resources = ADDED.get(name, ([], {}))
        expect(seen == (sorted(wanted), resources), f"{name}: the objects of the whole cluster, and the ConfigMap", seen)
        (scratch / name).write_text(yaml.safe_dump_all(objects))
        check_schema(name, scratch / name)
