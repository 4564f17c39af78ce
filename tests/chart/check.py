"""Renders the chart of packaging/helm with real helm, and checks the objects and what is refused.

    PYTHONPATH=TOOLS/python python3 tests/chart/check.py TOOLS

TOOLS is the directory that tests/chart/tools.sh has made.
"""

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

failures = 0


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
    return run(helm, "template", "tranche", chart, "--namespace", namespace, *options)


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
        assert volume.keys() == {"name", "hostPath"} and path["type"] == "Directory"
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
                found.add(f"{verb} {resource}{'.' + group if group else ''} {namespace}".strip())
    return found


def calls(objects):
    """The calls that the program makes with the options of these objects."""
    lines = (TOP / "tests/chart/calls.txt").read_text().splitlines()
    all_calls = {line for line in lines if not line.startswith("#")}
    of_nodes = {line for line in all_calls if line.endswith(" nodes")}
    of_events = all_calls - of_nodes
    events = of_events if any(one["kind"] == "Role" for one in objects) else set()
    return events | (of_nodes if has_config_map(objects) else set())


def kubelet_dir(objects):
    (argument,) = [one for one in container_of(objects)["args"] if one.startswith("--kubelet-dir=")]
    return argument.partition("=")[2]


PROPERTIES = {
    "the objects are those that these values need": lambda objects: sorted(
        (one["kind"], one["metadata"]["name"], one["metadata"].get("namespace"))
        for one in objects
        if one["kind"] != "ConfigMap"
    )
    == [
        *[
            (f"ClusterRole{binding}", "tranche-kubelet-nodes", None)
            for binding in ["", "Binding"]
            if has_config_map(objects)
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
    "the environment has the name of the node and nothing else": lambda objects: "envFrom" not in set(keys_of(objects))
    and container_of(objects).get("env", [])
    == [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}] * uses_api(objects)
    and argument(objects, "node") in (None, "$(NODE_NAME)")
    and pod_of(objects)["enableServiceLinks"] is False,
    "the host's directories are these three": lambda objects: list(host_paths(objects))
    == [
        (kubelet_dir(objects) + "/device-plugins", False),
        (kubelet_dir(objects) + "/pod-resources", True),
        ("/run/tranche", True),
    ],
    "an update stops the old pod first, node by node": lambda objects: [
        one["spec"]["updateStrategy"] for one in objects if one["kind"] == "DaemonSet"
    ]
    == [{"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}],
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
            return check(objects)
        except (AssertionError, KeyError, TypeError, ValueError):
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
}

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
]

# Changes of the chart, each of which one property must notice: a pattern of the templates, and what takes its place.
DAEMONSET, ACCOUNT = "templates/daemonset.yaml", "templates/serviceaccount.yaml"
RBAC = "templates/rbac.yaml"
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
            done = run(helm, "lint", "--strict", CHART, "--namespace", "tranche", "--values", values)
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
        (scratch / name).write_text(yaml.safe_dump_all(objects))
        check_schema(name, scratch / name)


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


def check_notes(scratch):
    # helm 3 shows the notes only if it reaches a cluster.
    done = run(HELMS[-1], "install", "tranche", CHART, "--namespace", "tranche", "--dry-run=client", *LEAST)
    notes = done.stdout.partition("NOTES:")[2]
    wanted = ["the package tranche, not older than", "tranche-broker.socket", "enable_cdi", "/run/tranche is not a directory"]
    missing = [one for one in wanted if one not in notes]
    expect(not missing and "<no value>" not in notes, "the notes say what a node needs", missing + [notes, done.stderr])


def check_mutants(scratch):
    """Shows that the properties can fail."""
    noticed = set()
    for number, (file, pattern, replacement, prefix) in enumerate(MUTANTS):
        chart = scratch / f"mutant-{number}"
        shutil.copytree(CHART, chart)
        text = (chart / file).read_text()
        changed, count = re.subn(pattern, replacement, text, count=1)
        (chart / file).write_text(changed)
        # With everything that the chart can make.
        values = [*LEAST, "--values", str(CHART / "ci/config-map-values.yaml")]
        found = broken(rendered(HELMS[-1], chart, *values)) if count == 1 else None
        name = f"mutant: {pattern} -> {replacement.strip().splitlines()[-1] if replacement.strip() else 'nothing'}"
        is_noticed = found is not None and any(one.startswith(prefix) for one in found)
        noticed.update(found or [])
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
        check_schema_refuses(scratch)
        check_refused()
        check_as_dependency(scratch)
        check_notes(scratch)
        check_mutants(scratch)
        check_document(scratch)
    print(f"test-chart: {failures} failed" if failures else "test-chart: all checks succeeded")
    sys.exit(failures > 0)


main()
