"""The evaluator of CEL, the language of the admission policy and of the classes."""

import importlib.util

from helm import TOOLS


def load_cel():
    """The evaluator of CEL alone: the package around it imports the libraries of its command line."""
    (library,) = (TOOLS / "python/cel").glob("cel.*.so")
    spec = importlib.util.spec_from_file_location("cel", library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CEL = load_cel()
