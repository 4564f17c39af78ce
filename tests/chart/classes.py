"""The classes, as the scheduler evaluates them."""

from evaluator import CEL
from objects import argument, of_kind

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
