"""Write framework/flambeau/api_index.json: PyTorch's public names, docs pages, and homes of pickled classes.

    python .ci/make_api_index.py api-2.7.json reference/pytorch-2.7 framework/flambeau/api_index.json

The first argument is a JSON list of [name, kind] pairs, the second a folder with one docs page per file. For
the homes an installed PyTorch is asked for the `__module__` of its public classes, and for nothing else.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

# Namespaces whose page does not carry their name.
RENAMED_PAGES = {
    "torch.Size": "torch.size",
    "torch.Tensor": "torch.tensor",
    "torch.__config__": "torch.-config",
    "torch.__future__": "torch.-future",
    "torch._logging": "torch.-logging",
    "torch.ao": "quantization",
    "torch.distributed.elastic": "torch-distributed-elastic",
    "torch.distributed.fsdp": "fullyshardeddataparallel",
    "torch.distributed.optim": "distributed-optimizers",
    "torch.distributed.pipelining": "pipeline-parallelism",
    "torch.distributed.rpc": "distributed-rpc-framework",
    "torch.distributed.algorithms.join": "generic-join-context-manager",
    "torch.distributed.algorithms.ddp_comm_hooks": "ddp-communication-hooks",
    "torch.jit": "torchscript",
    "torch.multiprocessing": "multiprocessing-best-practices",
    "torch.nn.parallel": "distributed-data-parallel",
    "torch.utils.cpp_extension": "torch.utils.cpp-extension",
    "torch.utils.mobile_optimizer": "torch.utils.mobile-optimizer",
    "torch.utils.model_zoo": "torch.utils.model-zoo",
    "torch.utils.module_tracker": "torch.utils.module-tracker",
}


def pages_of(folder: Path) -> dict[str, str]:
    """Namespace -> docs page."""
    found = {path.stem for path in folder.glob("*.md")}
    absent = sorted(set(RENAMED_PAGES.values()) - found)
    if absent:
        raise SystemExit(f"{folder} has no page {absent}")
    renamed = set(RENAMED_PAGES.values())
    straight = {page: page for page in found - renamed if page == "torch" or page.startswith("torch.")}
    return dict(sorted((straight | RENAMED_PAGES).items()))


def names_of(entries: list[tuple[str, str]]) -> dict[str, str]:
    """Namespace -> its public names, space-separated; of the classes, only Tensor's members are listed."""
    classes = {name for name, kind in entries if kind == "class"} - {"torch.Tensor"}
    names = defaultdict(list)
    for name, _ in entries:
        owner, _, last = name.rpartition(".")
        if owner not in classes:
            names[owner].append(last)
    return {owner: " ".join(sorted(names[owner])) for owner in sorted(names)}


def homes_of(entries: list[tuple[str, str]]) -> dict[str, str]:
    """Module that PyTorch's classes say they live in -> the public namespace that offers them."""
    namespaces = {name.rpartition(".")[0] for name, _ in entries}
    homes: dict[str, str] = {}
    for name, kind in entries:
        public = name.rpartition(".")[0]
        home = getattr(_resolve(name), "__module__", None) if kind == "class" else None
        if not isinstance(home, str) or not home.startswith(public + ".") or "._" in home:
            continue
        homes.setdefault(home, public)
        while (home := home.rpartition(".")[0]) != public:
            if home not in namespaces:
                homes.setdefault(home, public)
    return dict(sorted(homes.items()))


def _resolve(name: str) -> Any:
    parts = name.split(".")
    obj: Any = importlib.import_module(parts[0])
    for end, part in enumerate(parts[1:], start=2):
        try:
            obj = getattr(obj, part)
        except AttributeError:
            try:
                obj = importlib.import_module(".".join(parts[:end]))
            except ImportError:
                return None
    return obj


def main() -> None:
    warnings.simplefilter("ignore")
    api, folder, target = map(Path, sys.argv[1:])
    entries = [(str(name), str(kind)) for name, kind in json.loads(api.read_text())]
    index = {"pages": pages_of(folder), "names": names_of(entries), "homes": homes_of(entries)}
    target.write_text(json.dumps(index, indent=0) + "\n")


if __name__ == "__main__":
    main()
