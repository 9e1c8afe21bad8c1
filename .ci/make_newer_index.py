"""Write framework/flambeau/newer_index.json: names of the installed PyTorch that the documentation we follow lacks.

    python .ci/make_newer_index.py framework/flambeau/api_index.json framework/flambeau/newer_index.json

PyTorch is asked for the names in its documented modules and in Tensor, and for nothing else.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any


def names_in(owner: Any) -> list[str]:
    """The public names of a module or class, without modules and without what a module imports from elsewhere."""
    listed = getattr(owner, "__all__", None) if isinstance(owner, ModuleType) else None
    found = []
    for name in listed or dir(owner):
        value = getattr(owner, name, None)
        home = getattr(value, "__module__", None) or "torch"
        if not name.startswith("_") and not isinstance(value, ModuleType) and str(home).partition(".")[0] == "torch":
            found.append(name)
    return sorted(found)


def main() -> None:
    warnings.simplefilter("ignore")
    known = json.loads(Path(sys.argv[1]).read_text())
    import torch

    names = {}
    for namespace, documented in known["names"].items():
        try:
            owner: Any = torch.Tensor if namespace == "torch.Tensor" else importlib.import_module(namespace)
        except ImportError:
            continue
        newer = [name for name in names_in(owner) if name not in documented.split()]
        if newer:
            names[namespace] = " ".join(newer)
    version = ".".join(torch.__version__.split(".")[:2])
    Path(sys.argv[2]).write_text(json.dumps({"version": version, "names": names}, indent=0) + "\n")


if __name__ == "__main__":
    main()
