"""The admission policy, as the API server evaluates it."""

import itertools

from evaluator import CEL
from helm import ALONE, CHART, DRA, HELMS, LEAST, of_kind, pod_of, rendered
from report import expect

NODE_KEY = "authentication.kubernetes.io/node-name"


def account_of(objects):
    """The name of the account of the pods, as the API server has it."""
    (daemonset,) = of_kind(objects, "DaemonSet")
    return f"system:serviceaccount:{daemonset['metadata']['namespace']}:{pod_of(objects)['serviceAccountName']}"


def slice_of(node, pool=None, driver="gpu.tranche.dev"):
    """A ResourceSlice of a node, or of all nodes; in the pool of that node if no other is named."""
    spec = {"driver": driver, "pool": {"name": pool or node or "gpu1"}}
    return {"spec": spec | ({"nodeName": node} if node else {"allNodes": True})}


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
    states = [
        None,
        slice_of("gpu1"),
        slice_of("gpu2"),
        slice_of(None),
        # A higher generation of a pool empties it, whoever publishes it.
        slice_of("gpu1", pool="gpu2"),
        slice_of("gpu1", driver="nic.example.com"),
    ]
    for (user, node), (old, new) in itertools.product(users, itertools.product(states, states)):
        if old is None and new is None:
            continue
        operation = "CREATE" if old is None else "DELETE" if new is None else "UPDATE"
        touched = [one for one in (old, new) if one is not None]
        wanted = node is not None and all(one == slice_of(node) for one in touched)
        if admits(policy, operation, user, old, new) != wanted:
            return False
    return True


def check_label_policy():
    """A node labels itself, as a GPU's node, and nothing else."""
    objects = rendered(HELMS[-1], CHART, *LEAST, *DRA, "--set", "dra.nodeLabels=true")
    policies = {one["metadata"]["name"]: one["spec"] for one in of_kind(objects, "ValidatingAdmissionPolicy")}
    bindings = {one["spec"]["policyName"] for one in of_kind(objects, "ValidatingAdmissionPolicyBinding")}
    expect(bindings == policies.keys(), "each policy is in force", bindings)
    policy = policies["tranche-kubelet-labels"]
    account = account_of(objects)
    expect(applies(policy, account) and not applies(policy, account + "-a"), "it is for the account of the pods", policy)

    def feature(node, labelled=None, label="nvidia.com/gpu.product", flags=None):
        features = {"flags": flags or {}, "attributes": {}, "instances": {}}
        labels = {"nfd.node.kubernetes.io/node-name": labelled or node}
        return {"metadata": {"name": f"tranche-{node}", "labels": labels}, "spec": {"features": features, "labels": {label: "a"}}}

    user = {"extra": {NODE_KEY: ["gpu1"]}}
    refused = [
        (user, feature("gpu2")),
        (user, feature("gpu1", labelled="gpu2")),
        (user, feature("gpu1", label="node-role.kubernetes.io/control-plane")),
        (user, feature("gpu1", label="nvidia.com/gpu.deploy.device-plugin")),
        (user, feature("gpu1", flags={"a.b": {"elements": {"c": {}}}})),
        ({}, feature("gpu1")),
    ]
    holds = admits(policy, "CREATE", user, None, feature("gpu1"))
    holds = holds and not any(admits(policy, "UPDATE", who, feature("gpu1"), new) for who, new in refused)
    expect(holds, "the policy lets a node have the labels of its GPUs, and no others", policy)


def check_policy():
    """It is for the account of the pods, and lets a node change the slices of its driver and pool, and no others."""
    for options in [ALONE, [*LEAST, *DRA]]:
        objects = rendered(HELMS[-1], CHART, *options)
        expect(policy_of(objects) is not None, f"a driver has a policy, with {options[-1]}", objects)
        expect(is_policy_of_account(objects), f"the policy is for the account of the pods, with {options[-1]}", objects)
        expect(is_policy_of_node(objects), f"the policy lets a node change its own slices, with {options[-1]}", objects)
