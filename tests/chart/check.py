"""Renders the chart of packaging/helm with real helm, and checks the objects and what is refused.

    PYTHONPATH=TOOLS/python python3 tests/chart/check.py TOOLS

TOOLS is the directory that tests/chart/tools.sh has made.
"""

import copy
import importlib.util
import itertools
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

TOP = Path(__file__).resolve().parents[2]
CHART = TOP / "packaging/helm/tranche"
DOCUMENT = TOP / "docs/kubernetes.md"
TOOLS = Path(sys.argv[1]).resolve()
HELMS = [TOOLS / "helm-3", TOOLS / "helm-4"]
KUBERNETES = ["1.34", "1.35", "1.36"]
# What is added to the smallest set of values in the tests of single values.
LEAST = ["--values", str(CHART / "ci/registry-values.yaml")]

# Rendering needs no cluster, and helm 3 takes an older version of Kubernetes than DRA needs.
VERSION = ["--kube-version", KUBERNETES[0]]

failures = 0


def load_cel():
    """The evaluator of CEL alone: the package around it imports the libraries of its command line."""
    (library,) = (TOOLS / "python/cel").glob("cel.*.so")
    spec = importlib.util.spec_from_file_location("cel", library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CEL = load_cel()


def expect(holds, what, seen=""):
    """Prints whether a check succeeded, and counts those that did not. `seen` is what was found instead."""
    global failures
    failures += not holds
    print(f"ok: {what}" if holds else f"failed: {what}: {seen}")


def expect_success(done, what):
    expect(done.returncode == 0, what, done.stdout + done.stderr)


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True)


def template(helm, chart, *options, namespace="tranche"):
    return run(helm, "template", "tranche", chart, "--namespace", namespace, *VERSION, *options)


def rendered(helm, chart, *options):
    done = template(helm, chart, *options)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip())
    return [one for one in yaml.safe_load_all(done.stdout) if one]


# What holds for the objects of every set of values, by the name of the property.


def pod_of(objects):
    (daemonset,) = [one for one in objects if one["kind"] == "DaemonSet"]
    return daemonset["spec"]["template"]["spec"]


def container_of(objects):
    (container,) = pod_of(objects)["containers"]
    return container


def keys_of(value):
    """All keys of mappings at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys_of(inner)


def host_paths(objects):
    volumes = {volume["name"]: volume for volume in pod_of(objects)["volumes"]}
    mounts = {mount["name"]: mount for mount in container_of(objects)["volumeMounts"]}
    assert volumes.keys() == mounts.keys() and len(mounts) == len(container_of(objects)["volumeMounts"])
    for name, volume in volumes.items():
        if name == "config":
            assert volume.keys() == {"name", "configMap"} and volume["configMap"].keys() == {"name"}
            assert mounts[name] == {"name": "config", "mountPath": "/config", "readOnly": True}
            continue
        path = volume["hostPath"]
        is_own = path["path"] == f"{kubelet_dir(objects)}/plugins/{argument(objects, 'driver-name')}"
        assert volume.keys() == {"name", "hostPath"}
        assert path["type"] == ("DirectoryOrCreate" if is_own else "Directory")
        assert mounts[name]["mountPath"] == path["path"] and "mountPropagation" not in mounts[name]
        yield path["path"], mounts[name].get("readOnly", False)


def argument(objects, name):
    """The value of an option; None if the program does not get it."""
    found = [one for one in container_of(objects)["args"] if one.startswith(f"--{name}=")]
    return found[0].partition("=")[2] if found else None


def has_config_map(objects):
    """The options and the volume must agree."""
    volumes = [volume["name"] for volume in pod_of(objects)["volumes"]]
    assert ("config" in volumes) == (argument(objects, "config-dir") == "/config")
    return "config" in volumes


def commands(objects):
    return [one for one in container_of(objects)["args"] if not one.startswith("-")]


def is_plugin(objects):
    return "device-plugin" in commands(objects)


def is_driver(objects):
    """The options must agree with the command."""
    is_driver = "dra" in commands(objects)
    assert is_driver == (argument(objects, "driver-name") is not None)
    return is_driver


def environment(objects):
    """The variables that the options name, and nothing else."""
    sources = {"NODE_NAME": "spec.nodeName"} if uses_api(objects) else {}
    if not is_plugin(objects):
        sources["POD_UID"] = "metadata.uid"
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in sources.items()]


def uses_api(objects):
    return argument(objects, "node") is not None


def rights(objects):
    """What the account may do, a line for each verb, in the form of calls.txt."""
    account = {"kind": "ServiceAccount", "name": "tranche-kubelet", "namespace": "tranche"}
    found = set()
    for binding in objects:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        assert binding["subjects"] == [account]
        namespace = binding["metadata"].get("namespace", "")
        kind, name = binding["roleRef"]["kind"], binding["roleRef"]["name"]
        (role,) = [
            one
            for one in objects
            if one["kind"] == kind
            and one["metadata"]["name"] == name
            and one["metadata"].get("namespace", "") == namespace
        ]
        for rule in role["rules"]:
            (group,), (resource,) = rule["apiGroups"], rule["resources"]
            assert rule.keys() == {"apiGroups", "resources", "verbs"}
            for verb in rule["verbs"]:
                right = f"{verb} {resource}{'.' + group if group else ''} {namespace}".strip()
                # Two roles with one right would hide that one of them has too much.
                assert right not in found
                found.add(right)
    return found


def calls(objects):
    """The calls that the program makes with the options of these objects."""
    events = any(one["kind"] == "Role" for one in objects)
    return calls_of(events=events, config=has_config_map(objects), dra=is_driver(objects))


def calls_of(**parts):
    """The calls of these parts of the program."""
    lines = (TOP / "tests/chart/calls.txt").read_text().splitlines()
    return {line for line in lines if not line.startswith("#") and parts[part_of(line)]}


def part_of(call):
    verb, resource, *_ = call.split()
    if resource.endswith(".events.k8s.io"):
        return "events"
    return "config" if resource == "nodes" and verb in ("list", "watch") else "dra"


def of_kind(objects, kind):
    return [one for one in objects if one["kind"] == kind]


# The admission policy, as the API server evaluates it.

NODE_KEY = "authentication.kubernetes.io/node-name"


def account_of(objects):
    """The name of the account of the pods, as the API server has it."""
    (daemonset,) = of_kind(objects, "DaemonSet")
    return f"system:serviceaccount:{daemonset['metadata']['namespace']}:{pod_of(objects)['serviceAccountName']}"


def slice_of(node):
    """A ResourceSlice of a node, or of all nodes."""
    return {"spec": {"driver": "a"} | ({"nodeName": node} if node else {"allNodes": True})}


def applies(policy, account):
    request = {"userInfo": {"username": account}}
    return all(CEL.evaluate(one["expression"], {"request": request}) for one in policy["matchConditions"])


def admits(policy, operation, user, old, new):
    """Whether a user with this `extra` may make `new` of `old`."""
    request = {"operation": operation, "userInfo": {"username": "a", **user}}
    known = {"request": request, "object": new, "oldObject": old, "variables": {}}
    for variable in policy["variables"]:
        known["variables"][variable["name"]] = CEL.evaluate(variable["expression"], known)
    return all(CEL.evaluate(one["expression"], known) for one in policy["validations"])


def policy_of(objects):
    """The specification of the admission policy, in force; None if there is no policy."""
    policies = of_kind(objects, "ValidatingAdmissionPolicy")
    if not policies:
        return None
    (policy,), (binding,) = policies, of_kind(objects, "ValidatingAdmissionPolicyBinding")
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    return policy["spec"]


def is_policy_of_account(objects):
    """NVIDIA's policy names an account that no pod has, and so is never in force."""
    policy = policy_of(objects)
    account = account_of(objects)
    others = [account + "-a", account[:-1], "system:node:gpu1", "system:serviceaccount:a:" + account.split(":")[-1]]
    return policy is None or applies(policy, account) and not any(applies(policy, one) for one in others)


def is_policy_complete(objects):
    """Each request of a driver that changes slices is judged, and refused if that fails."""
    policy = policy_of(objects)
    if policy is None:
        return True
    (rule,) = policy["matchConstraints"].pop("resourceRules")
    return (
        policy["failurePolicy"] == "Fail"
        and policy["matchConstraints"] == {"matchPolicy": "Equivalent"}
        and rule.keys() == {"apiGroups", "apiVersions", "operations", "resources"}
        and rule["apiGroups"] == ["resource.k8s.io"]
        and rule["apiVersions"] == ["v1"]
        and rule["resources"] == ["resourceslices"]
        and sorted(rule["operations"]) == ["CREATE", "DELETE", "UPDATE"]
        and all(one["message"] for one in policy["validations"])
    )


def is_policy_of_node(objects):
    policy = policy_of(objects)
    if policy is None:
        return True
    users = [
        ({"extra": {NODE_KEY: ["gpu1"]}}, "gpu1"),
        # Tokens that do not name a node.
        ({"extra": {NODE_KEY: [""]}}, None),
        ({"extra": {"a": ["gpu1"]}}, None),
        ({}, None),
    ]
    states = [None, slice_of("gpu1"), slice_of("gpu2"), slice_of(None)]
    for (user, node), (old, new) in itertools.product(users, itertools.product(states, states)):
        if old is None and new is None:
            continue
        operation = "CREATE" if old is None else "DELETE" if new is None else "UPDATE"
        touched = [one["spec"].get("nodeName") for one in (old, new) if one is not None]
        wanted = node is not None and all(one == node for one in touched)
        if admits(policy, operation, user, old, new) != wanted:
            return False
    return True


# The classes, as the scheduler evaluates them.

GPU, MIG, SHARE, MIG_SHARE = ("gpu", "dedicated"), ("mig", "dedicated"), ("gpu", "mps"), ("mig", "time-slicing")

# What each class has of the driver's devices: type and strategy.
CLASSES = {
    "gpu.tranche.dev": {GPU},
    "mig.gpu.tranche.dev": {MIG},
    "share.gpu.tranche.dev": {SHARE, MIG_SHARE},
    "gpu.nvidia.com": {GPU, SHARE},
    "mig.nvidia.com": {MIG, MIG_SHARE},
}


def device_of(driver, kind=None, strategy=None):
    """A device. The scheduler has an empty map for a domain without attributes."""
    nvidia = {"type": kind} if kind else {}
    tranche = {"strategy": strategy} if strategy else {}
    return {"driver": driver, "attributes": {"gpu.nvidia.com": nvidia, "gpu.tranche.dev": tranche}}


def selects(one, device):
    """Whether a class has a device. CEL raises an error where the scheduler would stop with one."""
    selectors = [selector["cel"]["expression"] for selector in one["spec"]["selectors"]]
    return all(CEL.evaluate(expression, {"device": device}) for expression in selectors)


def are_classes_right(objects):
    driver = argument(objects, "driver-name")
    for one in of_kind(objects, "DeviceClass"):
        wanted = CLASSES[one["metadata"]["name"]]
        found = {device for device in [GPU, MIG, SHARE, MIG_SHARE] if selects(one, device_of(driver, *device))}
        if found != wanted:
            return False
        # What another driver has is not tranche's, and a device with fewer attributes is no error.
        others = [device_of("a.example.com", *device) for device in wanted]
        bare = [device_of(driver)]
        if any(selects(one, device) for device in others + bare):
            return False
        # Nothing is asked of the devices of other drivers, which may have these attributes with other types.
        (selector,) = one["spec"]["selectors"]
        if not selector["cel"]["expression"].startswith(f"device.driver == '{driver}' && "):
            return False
    return True


def extended_resources(objects):
    """The names of extended resources, by class."""
    found = [(one["metadata"]["name"], one["spec"].get("extendedResourceName")) for one in of_kind(objects, "DeviceClass")]
    return {name: resource for name, resource in found if resource is not None}


def kubelet_dir(objects):
    (argument,) = [one for one in container_of(objects)["args"] if one.startswith("--kubelet-dir=")]
    return argument.partition("=")[2]


# The kinds that do not follow from what the program is started with.
OF_VALUES = {"ConfigMap", "DeviceClass", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}

PROPERTIES = {
    "the objects are those that these values need": lambda objects: sorted(
        (one["kind"], one["metadata"]["name"], one["metadata"].get("namespace"))
        for one in objects
        # check_sets looks at these kinds.
        if one["kind"] not in OF_VALUES
    )
    == [
        *[
            (f"ClusterRole{binding}", f"tranche-kubelet-{part}", None)
            for binding in ["", "Binding"]
            for part, is_used in [("dra", is_driver(objects)), ("nodes", has_config_map(objects))]
            if is_used
        ],
        ("DaemonSet", "tranche-kubelet", "tranche"),
        *[
            (f"Role{binding}", "tranche-kubelet-events", "default")
            for binding in ["", "Binding"]
            if rights(objects) & {"create events.events.k8s.io default"}
        ],
        ("ServiceAccount", "tranche-kubelet", "tranche"),
    ],
    "the rights are those for the calls that the tests saw": lambda objects: rights(objects) == calls(objects),
    "the pod has a token only if it has rights": lambda objects: pod_of(objects)["automountServiceAccountToken"]
    is uses_api(objects)
    is bool(rights(objects))
    and all(one["automountServiceAccountToken"] is False for one in objects if one["kind"] == "ServiceAccount"),
    "the pod has the account": lambda objects: pod_of(objects)["serviceAccountName"] == "tranche-kubelet",
    "no capability is left": lambda objects: container_of(objects)["securityContext"]["capabilities"]
    == {"drop": ["ALL"]},
    "the root is read-only": lambda objects: container_of(objects)["securityContext"]["readOnlyRootFilesystem"] is True,
    "no privileges are gained": lambda objects: container_of(objects)["securityContext"]["allowPrivilegeEscalation"]
    is False,
    "nothing is privileged": lambda objects: container_of(objects)["securityContext"]["privileged"] is False
    and list(keys_of(objects)).count("privileged") == 1,
    "the user is root": lambda objects: container_of(objects)["securityContext"]["runAsUser"] == 0,
    "seccomp has the engine's profile": lambda objects: pod_of(objects)["securityContext"]["seccompProfile"]
    == {"type": "RuntimeDefault"},
    "the pod shares no namespace with the host": lambda objects: not set(keys_of(objects))
    & {"hostPID", "hostNetwork", "hostIPC", "shareProcessNamespace"},
    "there is one container and no init container": lambda objects: len(pod_of(objects)["containers"]) == 1
    and not {"initContainers", "ephemeralContainers"} & set(keys_of(objects)),
    "the environment has what the options name, and nothing else": lambda objects: "envFrom" not in set(keys_of(objects))
    and container_of(objects).get("env", []) == environment(objects)
    and argument(objects, "node") in (None, "$(NODE_NAME)")
    and pod_of(objects)["enableServiceLinks"] is False,
    "there is a command, and each is there once": lambda objects: commands(objects)
    == ["device-plugin"] * is_plugin(objects) + ["dra"] * is_driver(objects)
    != [],
    "the host's directories are those of the commands": lambda objects: list(host_paths(objects))
    == [
        *[
            (kubelet_dir(objects) + "/device-plugins", False),
            (kubelet_dir(objects) + "/pod-resources", True),
        ]
        * is_plugin(objects),
        *[
            (kubelet_dir(objects) + "/plugins_registry", False),
            (f"{kubelet_dir(objects)}/plugins/{argument(objects, 'driver-name')}", False),
        ]
        * is_driver(objects),
        ("/run/tranche", True),
    ],
    # A driver alone may run twice, if the names of its sockets differ.
    "an update stops a device plugin first, node by node": lambda objects: [
        one["spec"]["updateStrategy"] for one in objects if one["kind"] == "DaemonSet"
    ]
    == [
        {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}
            if is_plugin(objects)
            else {"maxSurge": 1, "maxUnavailable": 0},
        }
    ]
    and argument(objects, "pod-uid") == (None if is_plugin(objects) else "$(POD_UID)"),
    "the policy is for the account of the pods, and no other": is_policy_of_account,
    "the policy is for each change of slices, and refuses": is_policy_complete,
    "the policy lets a node change its own slices, and no others": is_policy_of_node,
    "each class has its devices of the driver, and no others": are_classes_right,
    "the pod ends quickly": lambda objects: pod_of(objects)["terminationGracePeriodSeconds"] <= 5,
    # A selector with a version could not be upgraded.
    "the selector selects the pod, and has no version": lambda objects: all(
        one["spec"]["selector"]["matchLabels"].items() <= one["spec"]["template"]["metadata"]["labels"].items()
        and one["spec"]["selector"]["matchLabels"].keys() == {"app.kubernetes.io/name", "app.kubernetes.io/instance"}
        for one in objects
        if one["kind"] == "DaemonSet"
    ),
    "memory has a request and a limit": lambda objects: all(
        "memory" in container_of(objects)["resources"][kind] for kind in ["requests", "limits"]
    ),
}


def broken(objects):
    """The properties that do not hold."""

    def holds(check):
        try:
            return check(copy.deepcopy(objects))
        # CEL has errors of each of these classes.
        except (AssertionError, IndexError, KeyError, RuntimeError, TypeError, ValueError):
            return False

    return [name for name, check in PROPERTIES.items() if not holds(check)]


# What each set of values changes.

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
            "--placement=packed",
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
    and container["args"][-1] == "--placement=packed"
    and "env" not in container,
    "spread": lambda pod, container: "--placement=spread" in container["args"]
    and container["image"].endswith(":0.1.0-2"),
    "dra": lambda pod, container: container["args"]
    == [
        "device-plugin",
        "dra",
        "--kubelet-dir=/var/lib/kubelet",
        "--state-dir=/run/tranche",
        "--placement=packed",
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

DRA = ["--set", "dra.enabled=true"]

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
    (["--kube-version", "1.30.9"], r"kubeVersion: >=1\.31\.0-0 .*incompatible with Kubernetes v1\.30\.9"),
    (["--set", "devicePlugin=false"], r"devicePlugin and dra\.enabled: expected at least one"),
    (["--set", "devicePlugin=no"], r"devicePlugin.*boolean"),
    ([*DRA, "--kube-version", "1.33.9"], r"dra\.enabled: needs Kubernetes 1\.34 or later, .*; this one is v1\.33\.9"),
    (["--set", "dra.enable=true"], r"enable.? (is )?not allowed"),
    ([*DRA, "--set", "dra.driverName=../x"], r"dra.driverName.*pattern"),
    ([*DRA, "--set", "dra.driverName=a..b"], r"dra.driverName.*pattern"),
    ([*DRA, "--set", f"dra.driverName={'a' * 64}"], r"dra.driverName.*(length|63)"),
    ([*DRA, "--set", "dra.deviceClasses.amd=true"], r"amd.? (is )?not allowed"),
    ([*DRA, "--set", "dra.extendedResources.gpu=gpu"], r"dra.extendedResources.gpu.*pattern"),
    (
        [*DRA, "--set", "dra.extendedResources.mig=a.b/c,dra.deviceClasses.own=false"],
        r"dra\.extendedResources: no class can have these names; set dra\.deviceClasses\.own or",
    ),
    (
        [*DRA, "--set", "dra.extendedResources.gpu=a.b/c,dra.extendedResources.mig=a.b/c"],
        r"dra\.extendedResources\.gpu and dra\.extendedResources\.mig: expected different names",
    ),
]

# Changes of the chart, each of which one property must notice: a pattern of the templates, and what takes its place.
DAEMONSET, ACCOUNT = "templates/daemonset.yaml", "templates/serviceaccount.yaml"
RBAC, POLICIES, CLASS = "templates/rbac.yaml", "templates/nodepolicy.yaml", "templates/deviceclasses.yaml"
# A driver alone, in the place of everything that the chart can make.
ALONE = ["--values", str(CHART / "ci/dra-only-values.yaml")]
# With this, the second rule alone accepts an object without a node from an account without a node.
NO_NODE = (
    r"has\((\w+)\.spec\.nodeName\) && .* == variables\.node\)",
    r"(has(\1.spec.nodeName) ? \1.spec.nodeName : '') == variables.node)",
)
ROLE = (
    "\\g<0>\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\n"
    "metadata: {{name: a, namespace: tranche}}\nrules: []\n"
)
MUTANTS = [
    (ACCOUNT, r"\Z", ROLE.format(kind="ClusterRole"), "the objects are"),
    (ACCOUNT, r"\Z", ROLE.format(kind="Role"), "the objects are"),
    (ACCOUNT, r"automountServiceAccountToken: false", "", "the pod has a token"),
    (DAEMONSET, r"automountServiceAccountToken: .*", "automountServiceAccountToken: false", "the pod has a token"),
    (RBAC, r"verbs: \[create\]", "verbs: [create, patch]", "the rights are"),
    (RBAC, r"verbs: \[list, watch\]", "verbs: [list]", "the rights are"),
    (RBAC, r"apiGroups: \[events.k8s.io\]", 'apiGroups: ["*"]', "the rights are"),
    (RBAC, r"verbs: \[list, watch\]", "verbs: [get, list, watch]", "the rights are"),
    (RBAC, r"resources: \[nodes\]", "resources: [nodes, pods]", "the rights are"),
    (RBAC, r"subjects:\n- ", "\\g<0>{kind: ServiceAccount, name: default, namespace: default}\n- ", "the rights are"),
    (DAEMONSET, r"serviceAccountName: .*", "", "the pod has the account"),
    (DAEMONSET, r"drop: \[ALL\]", "drop: [ALL], add: [SYS_ADMIN]", "no capability"),
    (DAEMONSET, r"capabilities: .*", "", "no capability"),
    (DAEMONSET, r"readOnlyRootFilesystem: true", "", "the root is read-only"),
    (DAEMONSET, r"allowPrivilegeEscalation: false", "", "no privileges are gained"),
    (DAEMONSET, r"privileged: false", "privileged: true", "nothing is privileged"),
    (DAEMONSET, r"runAsUser: 0", "runAsUser: 1000", "the user is root"),
    (DAEMONSET, r"type: RuntimeDefault", "type: Unconfined", "seccomp"),
    (DAEMONSET, r"enableServiceLinks: false", "\\g<0>\n      hostPID: true", "the pod shares no namespace"),
    (DAEMONSET, r"enableServiceLinks: false", "\\g<0>\n      hostNetwork: true", "the pod shares no namespace"),
    (
        DAEMONSET,
        r"enableServiceLinks: false",
        "\\g<0>\n      initContainers: [{name: a, image: a}]",
        "there is one container",
    ),
    (DAEMONSET, r"terminationMessagePolicy: .*", "envFrom: [{configMapRef: {name: a}}]", "the environment has"),
    (DAEMONSET, r"path: /run/tranche, type: Directory", "path: /run, type: Directory", "the host's directories"),
    (
        DAEMONSET,
        r"path: /run/tranche, type: Directory",
        "path: /run/tranche, type: DirectoryOrCreate",
        "the host's directories",
    ),
    (DAEMONSET, r"mountPath: /run/tranche, readOnly: true", "mountPath: /run/tranche", "the host's directories"),
    (
        DAEMONSET,
        r"\n      volumes:",
        "\\g<0>\n      - {name: root, hostPath: {path: /, type: Directory}}",
        "the host's directories",
    ),
    (DAEMONSET, r"maxSurge: 0", "maxSurge: 1", "an update"),
    (DAEMONSET, r"maxUnavailable: 1", "maxUnavailable: 100%", "an update"),
    (DAEMONSET, r"type: RollingUpdate", "type: OnDelete", "an update"),
    (DAEMONSET, r"terminationGracePeriodSeconds: 5", "", "the pod ends quickly"),
    (DAEMONSET, r"\"tranche.selector\" . \| nindent 6", '"tranche.labels" . | nindent 6', "the selector selects"),
    (DAEMONSET, r"\"tranche.labels\" . \| nindent 8", '"tranche.name" . | nindent 8 }}: a #{{ ""', "the selector selects"),
    ("values.yaml", r"limits: \{memory: 64Mi\}", "limits: {}", "memory has"),
    # The driver: its rights, one missing and one too many of each rule.
    (RBAC, r"(resources: \[resourceclaims\]\n  verbs: )\[get\]", "\\1[get, list]", "the rights are"),
    (RBAC, r"(resources: \[resourceclaims\]\n  verbs: )\[get\]", "\\1[]", "the rights are"),
    (RBAC, r"resources: \[resourceclaims\]", "resources: [resourceclaims/status]", "the rights are"),
    (RBAC, r"resources: \[resourceclaims\]", "resources: [resourceclaims, secrets]", "the rights are"),
    (RBAC, r"(verbs: \[list, watch), create", "\\1", "the rights are"),
    (RBAC, r"(verbs: \[list, watch, create), update", "\\1", "the rights are"),
    (RBAC, r"(verbs: \[list, watch, create, update), delete", "\\1", "the rights are"),
    (RBAC, r"verbs: \[list, watch, create", "verbs: [list, create", "the rights are"),
    (RBAC, r"verbs: \[list, watch, create", "verbs: [watch, create", "the rights are"),
    (RBAC, r"(verbs: \[list, watch, create, update, delete)", "\\1, patch", "the rights are"),
    (RBAC, r"(verbs: \[list, watch, create, update, delete)", "\\1, deletecollection", "the rights are"),
    (RBAC, r"(resources: \[nodes\]\n  verbs: )\[get\]", "\\1[get, update]", "the rights are"),
    (RBAC, r"(resources: \[nodes\]\n  verbs: )\[get\]", "\\1[]", "the rights are"),
    (RBAC, r"if .Values.dra.enabled", "if false", "the rights are"),
    (RBAC, r"name: (.*)-dra\n", "name: \\1-driver\n", "the rights are"),
    # Its pod.
    (DAEMONSET, r"- dra\n", "- dra\n        - dra\n", "there is a command"),
    (DAEMONSET, r"(path: .*/plugins_registry, type: Directory)", "\\1OrCreate", "the host's directories"),
    (DAEMONSET, r"path: (.*/plugins)/.*, type: DirectoryOrCreate", "path: \\1, type: Directory", "the host's directories"),
    (DAEMONSET, r"type: DirectoryOrCreate", "type: Directory", "the host's directories"),
    (DAEMONSET, r"mountPath: (.*/plugins)/.*\}\n", "mountPath: \\1}\n", "the host's directories"),
    (DAEMONSET, r"- --driver-name=.*\n", "- --x\n", "the host's directories"),
    (DAEMONSET, r"maxSurge: 1", "maxSurge: 0", "an update", ALONE),
    (DAEMONSET, r"maxUnavailable: 0", "maxUnavailable: 1", "an update", ALONE),
    (DAEMONSET, r"- --pod-uid=.*", "", "an update", ALONE),
    (DAEMONSET, r"not .Values.devicePlugin \}\}\n        #", "true }}\n        #", "an update"),
    (DAEMONSET, r"fieldPath: metadata.uid", "fieldPath: metadata.name", "the environment has", ALONE),
    (DAEMONSET, r"automountServiceAccountToken: .*", "automountServiceAccountToken: false", "the pod has a token", ALONE),
    ("templates/_helpers.tpl", r"\.Values\.dra\.enabled ", "", "the pod has a token", ALONE),
    # The policy. NVIDIA's names the account without the end of its name.
    (POLICIES, r"(username == '.*:).*'", "\\1{{ .Release.Name }}'", "the policy is for the account"),
    (POLICIES, r"(username == 'system:serviceaccount:){{.*}}:", "\\1default:", "the policy is for the account"),
    (DAEMONSET, r"serviceAccountName: .*", "serviceAccountName: default", "the policy is for the account"),
    (POLICIES, r"request.userInfo.username == .*", "true == true", "the policy is for the account"),
    (POLICIES, r"username == ('.*')", "username.startsWith(\\1)", "the policy is for the account"),
    (POLICIES, r"policyName: .*", "policyName: a", "the policy is for"),
    (POLICIES, r"\[Deny\]", "[Audit]", "the policy is for"),
    (POLICIES, r"failurePolicy: Fail", "failurePolicy: Ignore", "the policy is for each change"),
    (POLICIES, r"matchPolicy: Equivalent", "matchPolicy: Exact", "the policy is for each change"),
    (POLICIES, r", DELETE\]", "]", "the policy is for each change"),
    (POLICIES, r"resources: \[resourceslices\]", "resources: [resourceclaims]", "the policy is for each change"),
    (POLICIES, r"(resources: \[resourceslices\])", "\\1\n      resourceNames: [a]", "the policy is for each change"),
    (POLICIES, r"variables.node != ''", "1 == 1", "the policy lets a node", [], NO_NODE),
    (POLICIES, r" && object.spec.nodeName == variables.node", "", "the policy lets a node"),
    (POLICIES, r" && oldObject.spec.nodeName == variables.node", "", "the policy lets a node"),
    (POLICIES, r"request.operation == 'DELETE' \|\| ", "", "the policy lets a node"),
    (POLICIES, r"request.operation == 'CREATE' \|\| ", "", "the policy lets a node"),
    (POLICIES, r"request.operation == 'CREATE' \|\| ", "request.operation != 'UPDATE' || ", "the policy lets a node"),
    (POLICIES, r"has\(object.spec.nodeName\) && ", "", "the policy lets a node"),
    (POLICIES, r"has\(request.userInfo.extra\) && ", "", "the policy lets a node"),
    # The classes.
    (CLASS, r"device.driver == '.*'", "true", "each class has its devices"),
    (CLASS, r"device.driver == '.*'", "device.driver == 'gpu.nvidia.com'", "each class has its devices"),
    (CLASS, r"%s == 'mig'", "%s == 'gpu'", "each class has its devices"),
    (CLASS, r"%s == 'dedicated'", "%s != ''", "each class has its devices"),
    (CLASS, r"%s != 'dedicated'", "%s == 'mps'", "each class has its devices"),
    (CLASS, r"has\(device.attributes\['gpu.nvidia.com'\].type\) && ", "", "each class has its devices"),
    (CLASS, r"has\(device.attributes\['gpu.tranche.dev'\].strategy\) && ", "", "each class has its devices"),
    (CLASS, r"\(list \$gpu \$dedicated\)", "(list $gpu)", "each class has its devices"),
    (CLASS, r"\(list \$shared\)", "(list $shared $gpu)", "each class has its devices"),
]


def version():
    """The version of the workspace."""
    return re.search(r'^version = "(.*)"$', (TOP / "Cargo.toml").read_text(), re.M).group(1)


def check_versions():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    expect(chart["appVersion"] == version(), "the chart's program has the version of the workspace", chart["appVersion"])


def check_lint():
    for helm in HELMS:
        for values in sorted(CHART.glob("ci/*.yaml")):
            done = run(helm, "lint", "--strict", CHART, "--namespace", "tranche", *VERSION, "--values", values)
            expect_success(done, f"{helm.name} lint --strict with {values.name}")


def validate(kubernetes, file):
    return run(sys.executable, "-m", "kubernetes_validate", "--strict", "-k", kubernetes, file)


def check_schema(name, file):
    for kubernetes in KUBERNETES:
        expect_success(validate(kubernetes, file), f"{name}: valid for Kubernetes {kubernetes}")


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


def check_rights():
    """The rights for each combination of values, by the values: a part that is off has no right."""
    for plugin, dra, events, config in itertools.product([True, False], repeat=4):
        if not plugin and not dra:
            continue
        values = {"devicePlugin": plugin, "dra.enabled": dra, "events": events}
        text = ",".join(f"{key}={str(value).lower()}" for key, value in values.items())
        options = [*LEAST, "--set", text + (",config.name=a" if config else "")]
        objects = rendered(HELMS[-1], CHART, *options)
        wanted = calls_of(events=events, config=config, dra=dra)
        found = rights(objects)
        seen = f"missing {wanted - found}, superfluous {found - wanted}"
        expect(found == wanted, f"the rights with {options[-1]}", seen)
        expect(not broken(objects), f"what holds for every set of values, with {options[-1]}", broken(objects))


def check_classes():
    """What two classes of one device have, and what another name of the release changes."""
    options = ["--set", "dra.extendedResources.gpu=nvidia.com/gpu,dra.extendedResources.mig=example.com/mig"]
    found = extended_resources(rendered(HELMS[-1], CHART, *LEAST, *DRA, *options))
    wanted = {"gpu.tranche.dev": "nvidia.com/gpu", "mig.gpu.tranche.dev": "example.com/mig"}
    expect(found == wanted, "without NVIDIA's classes, tranche's have the names of extended resources", found)
    done = run(HELMS[-1], "template", "b", CHART, "--namespace", "kube-system", *VERSION, *LEAST, *DRA)
    objects = [one for one in yaml.safe_load_all(done.stdout) if one]
    holds = account_of(objects) == "system:serviceaccount:kube-system:b-kubelet" and is_policy_of_account(objects)
    expect(holds, "another release in another namespace has a policy for its own account", objects)


def check_schema_refuses(scratch):
    objects = rendered(HELMS[0], CHART, *LEAST)
    pod_of(objects)["hostPIDs"] = True
    (scratch / "unknown").write_text(yaml.safe_dump_all(objects))
    for kubernetes in KUBERNETES:
        done = validate(kubernetes, scratch / "unknown")
        is_refused = done.returncode != 0 and "hostPIDs" in done.stdout + done.stderr
        expect(is_refused, f"an unknown field is not valid for Kubernetes {kubernetes}", done.stdout)


def check_refused():
    for helm in HELMS:
        for options, line in REFUSED:
            done = template(helm, CHART, *LEAST, *options)
            lines = [one for one in done.stderr.splitlines() if re.search(line, one)]
            is_refused = done.returncode != 0 and len(lines) == 1
            expect(is_refused, f"{helm.name} refuses {' '.join(options)[:60]}", done.stderr or "accepted")


def check_as_dependency(scratch):
    parent = scratch / "parent"
    (parent / "charts").mkdir(parents=True)
    (parent / "Chart.yaml").write_text("{apiVersion: v2, name: parent, version: 1.0.0}")
    (parent / "values.yaml").write_text("global: {team: a}\ntranche: {image: {repository: a/b}}\n")
    shutil.copytree(CHART, parent / "charts/tranche")
    for helm in HELMS:
        found = broken(rendered(helm, parent))
        expect(not found, f"{helm.name}: another chart depends on this one", found)


DRIVER_NOTES = ["DRA driver", "kubectl get resourceslices", "kubectl get deviceclasses"]


def check_notes(scratch):
    # helm 3 shows the notes only if it reaches a cluster.
    done = run(HELMS[-1], "install", "tranche", CHART, "--namespace", "tranche", "--dry-run=client", *LEAST)
    notes = done.stdout.partition("NOTES:")[2]
    wanted = ["the package tranche, not older than", "tranche-broker.socket", "enable_cdi", "/run/tranche is not a directory"]
    missing = [one for one in [*wanted, "status.allocatable"] if one not in notes]
    missing += [one for one in DRIVER_NOTES if one in notes]
    expect(not missing and "<no value>" not in notes, "the notes say what a node needs", missing + [notes, done.stderr])
    done = run(HELMS[-1], "install", "tranche", CHART, "--namespace", "tranche", "--dry-run=client", *ALONE)
    notes = done.stdout.partition("NOTES:")[2]
    missing = [one for one in [*wanted, *DRIVER_NOTES, "3. no other DRA"] if one not in notes]
    missing += [one for one in ["device plugin", "status.allocatable"] if one in notes]
    expect(not missing, "the notes of a driver alone are about it", missing + [notes, done.stderr])


def check_mutants(scratch):
    """Shows that the properties can fail."""
    noticed = set()
    for number, (file, pattern, replacement, prefix, *more) in enumerate(MUTANTS):
        only, *others = more or [[]]
        chart = scratch / f"mutant-{number}"
        shutil.copytree(CHART, chart)
        text = (chart / file).read_text()
        changed, count = re.subn(pattern, replacement, text, count=1)
        for also, instead in others:
            changed = re.sub(also, instead, changed)
        (chart / file).write_text(changed)
        # With everything that the chart can make.
        values = [*LEAST, *(f"--values={CHART}/ci/{name}-values.yaml" for name in ["config-map", "extended-resources"])]
        try:
            found = broken(rendered(HELMS[-1], chart, *(only or values))) if count == 1 else None
        except (ValueError, yaml.YAMLError) as error:
            found = [f"it does not render: {error}"]
        name = f"mutant: {pattern} -> {replacement.strip().splitlines()[-1] if replacement.strip() else 'nothing'}"
        is_noticed = found is not None and any(one.startswith(prefix) for one in found)
        noticed.update(one for one in found or [] if one in PROPERTIES)
        expect(is_noticed, name, f"not noticed: {found}")
    expect(noticed == PROPERTIES.keys(), "each property has a mutant", PROPERTIES.keys() - noticed)


def check_document(scratch):
    """The commands of helm in docs/kubernetes.md render, and its pods are valid."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", DOCUMENT.read_text(), re.M | re.S)
    commands = 0
    for language, text in blocks:
        lines = text.replace("\\\n", " ").splitlines() if language == "console" else []
        for line in lines:
            words = shlex.split(line.lstrip("#$ "), comments=True)
            if words[:2] not in (["helm", "install"], ["helm", "upgrade"]):
                continue
            commands += 1
            options = [word for word in words[2:] if word not in ("--create-namespace", "--install", "--reuse-values")]
            done = run(HELMS[-1], "template", *options, "--kube-version", KUBERNETES[0])
            expect_success(done, f"the document's command: {line.strip()[:90]}")
    expect(commands >= 2, "the document has commands of helm", commands)
    pods = 0
    for language, text in blocks:
        objects = list(yaml.safe_load_all(text)) if language == "yaml" else []
        if any("kind" in one for one in objects):
            pods += 1
            (scratch / f"document-{pods}").write_text(text)
            check_schema(f"the document's object {pods}", scratch / f"document-{pods}")
    expect(pods >= 4, "the document has pods", pods)


def main():
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        check_versions()
        check_lint()
        check_sets(scratch)
        check_rights()
        check_classes()
        check_schema_refuses(scratch)
        check_refused()
        check_as_dependency(scratch)
        check_notes(scratch)
        check_mutants(scratch)
        check_document(scratch)
    print(f"test-chart: {failures} failed" if failures else "test-chart: all checks succeeded")
    sys.exit(failures > 0)


main()
