"""What a program asked for and Flambeau does not have: the error that says so, and the list of it.

`api_index.json` holds PyTorch's public names by namespace, the docs page of each namespace, and the modules
in which PyTorch's own pickles say classes live. It is written by `.ci/make_api_index.py`.
"""

from __future__ import annotations

import functools
import os
import sys
from types import FrameType
from typing import Any, NamedTuple

__all__ = [
    "API_VERSION",
    "Asked",
    "attribute_error",
    "home_of",
    "is_namespace",
    "is_public",
    "module_error",
    "noted",
]

API_VERSION = "2.7"

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_MACHINERY = ("<frozen importlib", "<frozen runpy")


class Asked(NamedTuple):
    """One place in the program that asked for something that is not there."""

    feature: str
    page: str
    file: str
    line: int


# A dict for its order: the first time a line asks is the one that counts.
_asked: dict[Asked, None] = {}


def noted() -> list[Asked]:
    """Everything asked for and not found in this process, in the order it was first asked."""
    return list(_asked)


def _torch_name(name: str) -> str:
    """`flambeau.nn` as PyTorch's documentation spells it: `torch.nn`."""
    head, dot, rest = name.partition(".")
    return "torch" + dot + rest if head == "flambeau" else name


def attribute_error(owner: str, name: str, obj: Any = None) -> AttributeError:
    """The error for `owner.name`, noted for `flambeau.swap.report()`; the caller raises it.

    Args:
        owner: module or class as the user reaches it, such as `flambeau.nn` or `torch.Tensor`.
        name: the attribute asked for.
        obj: what was asked, from which Python makes its "Did you mean" suggestion.
    """
    feature = f"{_torch_name(owner)}.{name}"
    if _is_dunder(name) and not is_public(feature):
        # Probes of Python's own protocols are questions about the language, not about PyTorch.
        return AttributeError(f"{owner} has no attribute {name!r}", name=name, obj=obj)
    _note(feature)
    return AttributeError(_explain(feature), name=name, obj=obj)


def module_error(module: str) -> ModuleNotFoundError:
    """The error for importing `module`, noted for `flambeau.swap.report()`; the caller raises it."""
    feature = _torch_name(module)
    _note(feature)
    return ModuleNotFoundError(f"No module named {module!r}: {_explain(feature)}", name=module)


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def is_public(feature: str) -> bool:
    """Whether PyTorch documents `feature`, a dotted name that starts with `torch`."""
    names = _index()["names"]
    owner, _, last = feature.rpartition(".")
    return feature in names or feature in _index()["pages"] or last in names.get(owner, "").split()


def is_namespace(module: str) -> bool:
    """Whether `module` is one that PyTorch's programs or pickles import by name."""
    index = _index()
    return module in index["names"] or module in index["pages"] or module in index["homes"]


def home_of(module: str) -> str | None:
    """The namespace that offers what PyTorch keeps in `module`: `torch.nn` for `torch.nn.modules.conv`."""
    return _index()["homes"].get(module)


def _page_of(feature: str) -> str:
    """The docs page nearest to `feature`."""
    pages = _index()["pages"]
    while feature and feature not in pages:
        feature = feature.rpartition(".")[0]
    return pages.get(feature, "torch")


@functools.cache
def _index() -> dict[str, dict[str, str]]:
    import json

    with open(_HERE + "api_index.json", encoding="utf-8") as file:
        return json.load(file)


def _explain(feature: str) -> str:
    page = f"PyTorch docs page {_page_of(feature)}"
    if is_public(feature):
        return f"{feature} is not built yet ({page})"
    if any(part.startswith("_") for part in feature.split(".")):
        return f"{feature} is private to PyTorch and does not exist here (nearest: {page})"
    return f"{feature} is not in PyTorch {API_VERSION}'s public API (nearest: {page})"


def _note(feature: str) -> None:
    file, line = _asking_line(sys._getframe(2))
    _asked.setdefault(Asked(feature, _page_of(feature), file, line))


def _asking_line(frame: FrameType | None) -> tuple[str, int]:
    """The innermost line outside Flambeau and the import machinery."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_HERE) and not file.startswith(_MACHINERY):
            return file, frame.f_lineno
        frame = frame.f_back
    return "<unknown>", 0
