"""The rights that the chart asks for, and the calls that the program makes."""

from helm import TOP


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
            assert rule.keys() - {"resourceNames"} == {"apiGroups", "resources", "verbs"}
            # The driver's part of the status is that of its own name.
            assert rule.get("resourceNames") == (["gpu.tranche.dev"] if resource == "resourceclaims/driver" else None)
            for verb in rule["verbs"]:
                right = f"{verb} {resource}{'.' + group if group else ''} {namespace}".strip()
                # Two roles with one right would hide that one of them has too much.
                assert right not in found
                found.add(right)
    return found


def calls_of(**parts):
    """The calls of these parts of the program."""
    lines = (TOP / "tests/chart/calls.txt").read_text().splitlines()
    return {line for line in lines if not line.startswith("#") and parts[part_of(line)]}


def part_of(call):
    verb, resource, *_ = call.split()
    if resource.endswith(".events.k8s.io"):
        return "events"
    if resource.startswith("nodefeatures."):
        return "labels"
    if resource.startswith("resourceclaims/"):
        return "status"
    return "config" if resource == "nodes" and verb in ("list", "watch") else "dra"
