"""What the objects of the chart say about the pod, and so about how the program is started."""


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


def of_kind(objects, kind):
    return [one for one in objects if one["kind"] == kind]


def kubelet_dir(objects):
    (argument,) = [one for one in container_of(objects)["args"] if one.startswith("--kubelet-dir=")]
    return argument.partition("=")[2]
