"""The commands and the objects of docs/how-to/kubernetes.md."""

import re
import shlex

import yaml
from helm import HELMS, KUBERNETES, TOP, check_schema, run
from report import expect, expect_success

DOCUMENT = TOP / "docs/how-to/kubernetes.md"


def check_document(scratch):
    """The commands of helm in docs/how-to/kubernetes.md render, and its pods are valid."""
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
    expect(pods >= 1, "the document has pods", pods)
