"""The chart, and how helm and the schemas of Kubernetes are asked about it."""

import re
import subprocess
import sys
from pathlib import Path

import yaml
from report import expect_success

TOP = Path(__file__).resolve().parents[2]
CHART = TOP / "packaging/helm/tranche"
TOOLS = Path(sys.argv[1]).resolve()
HELMS = [TOOLS / "helm-3", TOOLS / "helm-4"]
KUBERNETES = ["1.34", "1.35", "1.36"]
# What is added to the smallest set of values in the tests of single values.
LEAST = ["--values", str(CHART / "ci/registry-values.yaml")]
# A driver alone, in the place of everything that the chart can make.
ALONE = ["--values", str(CHART / "ci/dra-only-values.yaml")]

DRA = ["--set", "dra.enabled=true"]

# Rendering needs no cluster, and helm 3 takes an older version of Kubernetes than some values need.
VERSION = ["--kube-version", KUBERNETES[-1]]


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True)


def template(helm, chart, *options, namespace="tranche"):
    return run(helm, "template", "tranche", chart, "--namespace", namespace, *VERSION, *options)


def rendered(helm, chart, *options):
    done = template(helm, chart, *options)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip())
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def validate(kubernetes, file):
    return run(sys.executable, "-m", "kubernetes_validate", "--strict", "-k", kubernetes, file)


def check_schema(name, file):
    for kubernetes in KUBERNETES:
        expect_success(validate(kubernetes, file), f"{name}: valid for Kubernetes {kubernetes}")


def version():
    """The version of the workspace."""
    return re.search(r'^version = "(.*)"$', (TOP / "Cargo.toml").read_text(), re.M).group(1)


def of_kind(objects, kind):
    return [one for one in objects if one["kind"] == kind]


def pod_of(objects):
    (daemonset,) = of_kind(objects, "DaemonSet")
    return daemonset["spec"]["template"]["spec"]
