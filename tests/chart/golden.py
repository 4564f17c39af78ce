"""The objects of each set of values in the chart's `ci`, compared with those in `golden`, which people review."""

import os

import yaml
from helm import CHART, HELMS, TOP, check_schema, rendered
from report import expect

GOLDEN = TOP / "tests/chart/golden"


def check_golden():
    """With TRANCHE_BLESS=1, the files are written instead."""
    names = set()
    for values in sorted(CHART.glob("ci/*-values.yaml")):
        name = values.name.removesuffix("-values.yaml")
        file = GOLDEN / f"{name}.yaml"
        names.add(file.name)
        results = [rendered(helm, CHART, "--values", values) for helm in HELMS]
        expect(results[0] == results[1], f"{name}: helm 3 and helm 4 render the same")
        text = yaml.safe_dump_all(sorted(results[-1], key=lambda one: (one["kind"], one["metadata"]["name"])), width=120)
        if os.environ.get("TRANCHE_BLESS") == "1":
            GOLDEN.mkdir(exist_ok=True)
            file.write_text(text)
        is_same = file.exists() and file.read_text() == text
        expect(is_same, f"{name}: the objects are those of tests/chart/golden/{file.name}", text)
        check_schema(name, file)
    expect(names == {file.name for file in GOLDEN.glob("*")}, "each golden file has its values", names)
