"""What holds for the objects of every set of values, by the name of the property."""

import copy

from classes import are_classes_right
from objects import (
    argument,
    commands,
    container_of,
    environment,
    has_config_map,
    host_paths,
    is_driver,
    is_plugin,
    keys_of,
    kubelet_dir,
    pod_of,
    uses_api,
)
from policy import is_policy_complete, is_policy_of_account, is_policy_of_node
from rights import calls, rights

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
    # A driver alone may run twice, if the names of its sockets differ. The kubelet takes a second to find the new one.
    "an update stops a device plugin first, node by node": lambda objects: [
        (one["spec"]["updateStrategy"], one["spec"].get("minReadySeconds", 0))
        for one in objects
        if one["kind"] == "DaemonSet"
    ]
    == [
        (
            {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}
                if is_plugin(objects)
                else {"maxSurge": 1, "maxUnavailable": 0},
            },
            0 if is_plugin(objects) else 5,
        )
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
