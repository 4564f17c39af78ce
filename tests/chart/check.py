"""Renders the chart of packaging/helm with real helm, and checks the objects and what is refused.

    PYTHONPATH=TOOLS/python PYTHONDONTWRITEBYTECODE=1 python3 tests/chart/check.py TOOLS

TOOLS is the directory that tests/chart/tools.sh has made.
"""

import itertools
import shutil
import tempfile
from pathlib import Path

import yaml
from document import check_document
from golden import check_golden
from helm import ALONE, CHART, DRA, HELMS, KUBERNETES, LEAST, VERSION, of_kind, pod_of, rendered, run, validate, version
from policy import account_of, check_label_policy, check_policy, is_policy_of_account
from refused import check_refused
from report import expect, expect_success, finish
from rights import calls_of, rights


# The classes of the chart, in a file of the tests of tranche-kubelet.
CLASSES = Path(__file__).parents[2] / "src/kubelet/tests/kubelet/manifests/classes.yaml"


def check_versions():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    expect(chart["appVersion"] == version(), "the chart's program has the version of the workspace", chart["appVersion"])


def check_lint():
    for helm in HELMS:
        for values in sorted(CHART.glob("ci/*.yaml")):
            done = run(helm, "lint", "--strict", CHART, "--namespace", "tranche", *VERSION, "--values", values)
            expect_success(done, f"{helm.name} lint --strict with {values.name}")


def check_rights():
    """The rights for each combination of values, by the values: a part that is off has no right."""
    for plugin, dra, events, config, option in itertools.product([True, False], repeat=5):
        if not plugin and not dra or option and not dra:
            continue
        values = {"devicePlugin": plugin, "dra.enabled": dra, "events": events}
        values |= {"dra.claimStatus": option, "dra.nodeLabels": option}
        text = ",".join(f"{key}={str(value).lower()}" for key, value in values.items())
        options = [*LEAST, "--set", text + (",config.name=a" if config else "")]
        objects = rendered(HELMS[-1], CHART, *options)
        wanted = calls_of(events=events, config=config, dra=dra, status=option, labels=option)
        found = rights(objects)
        seen = f"missing {wanted - found}, superfluous {found - wanted}"
        expect(found == wanted, f"the rights with {options[-1]}", seen)


def check_classes():
    """The classes, and what another name of the release changes."""
    # The tests of manifests allocate with these (src/kubelet/tests/kubelet/manifests).
    options = ["--set", "dra.deviceClasses.nvidia=true,dra.extendedResources.gpu=nvidia.com/gpu"]
    found = {one["metadata"]["name"]: one["spec"] for one in of_kind(rendered(HELMS[-1], CHART, *LEAST, *DRA, *options), "DeviceClass")}
    wanted = {one["metadata"]["name"]: one["spec"] for one in yaml.safe_load_all(CLASSES.read_text())}
    expect(found == wanted, "the classes are those with which manifests are tried", found)
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


def check_as_dependency(scratch):
    parent = scratch / "parent"
    (parent / "charts").mkdir(parents=True)
    (parent / "Chart.yaml").write_text("{apiVersion: v2, name: parent, version: 1.0.0}")
    (parent / "values.yaml").write_text("global: {team: a}\ntranche: {image: {repository: a/b}}\n")
    shutil.copytree(CHART, parent / "charts/tranche")
    for helm in HELMS:
        found = pod_of(rendered(helm, parent))["containers"][0]["image"]
        expect(found == f"a/b:{version()}", f"{helm.name}: another chart depends on this one", found)


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


def main():
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        check_versions()
        check_lint()
        check_golden()
        check_rights()
        check_policy()
        check_label_policy()
        check_classes()
        check_schema_refuses(scratch)
        check_refused()
        check_as_dependency(scratch)
        check_notes(scratch)
        check_document(scratch)
    finish()


main()
