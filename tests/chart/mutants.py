"""Changes of the chart, each of which one property must notice: a pattern of the templates, and what takes its place."""

import re
import shutil

import yaml
from helm import ALONE, CHART, HELMS, LEAST, rendered
from properties import PROPERTIES, broken
from report import expect

DAEMONSET, ACCOUNT = "templates/daemonset.yaml", "templates/serviceaccount.yaml"
RBAC, POLICIES, CLASS = "templates/rbac.yaml", "templates/nodepolicy.yaml", "templates/deviceclasses.yaml"
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
    (DAEMONSET, r"minReadySeconds: 5", "minReadySeconds: 0", "an update", ALONE),
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
