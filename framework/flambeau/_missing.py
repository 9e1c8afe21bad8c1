"""What a program asked for and Flambeau does not have: the error that says so, and the list of it.

`api_index.json` holds PyTorch's public names by namespace, the docs page of each namespace, and the modules
in which PyTorch's own pickles say classes live. It is written by `.ci/make_api_index.py`. `newer_index.json`, by
`.ci/make_newer_index.py`, holds the names that a later PyTorch has and that documentation lacks.
"""

from __future__ import annotations

import dis
import functools
import importlib
import os
import sys
from types import FrameType, ModuleType
from typing import Any, NamedTuple

__all__ = [
    "API_VERSION",
    "Asked",
    "attribute_error",
    "home_of",
    "is_namespace",
    "is_newer",
    "is_public",
    "module_error",
    "newer_than_documented",
    "not_built",
    "note_eager",
    "noted",
]

API_VERSION = "2.7"

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_NOT_ASKING = (_HERE, "<frozen importlib", "<frozen runpy", importlib.__file__)


class Asked(NamedTuple):
    """One place in the program that asked for something that is not there.

    `how` is "used" where the program could not go on without it, "looked for" where it only asked (`hasattr`, `getattr`,
    `find_spec`), and "runs eagerly" where the program runs without it and gives the same results.
    """

    feature: str
    page: str
    file: str
    line: int
    how: str = "used"


# A dict for its order: the first time a line asks is the one that counts.
_asked: dict[Asked, None] = {}
# What was said to each place that asked for an attribute.
_messages: dict[Any, str] = {}


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
    frame = _asking_frame(sys._getframe(1))
    if frame is None:
        return AttributeError(_why_missing(owner, name, obj, None), name=name, obj=obj)
    # Packages ask for the same names again for every model they make. The line of the instruction takes long to look up.
    code = frame.f_code
    place = owner, name, code.co_filename, code.co_firstlineno, code.co_name, frame.f_lasti
    message = _messages.get(place)
    if message is None:
        message = _messages[place] = _why_missing(owner, name, obj, frame)
    return AttributeError(message, name=name, obj=obj)


def _why_missing(owner: str, name: str, obj: Any, frame: FrameType | None) -> str:
    feature = f"{_torch_name(owner)}.{name}"
    if _is_dunder(name) and not is_public(feature):
        # Probes of Python's own protocols are questions about the language, not about PyTorch.
        return f"{owner} has no attribute {name!r}"
    if _is_submodule(obj if isinstance(obj, ModuleType) else sys.modules.get(owner), name):
        # Python asks a package for an attribute before it imports the submodule of that name, which is there.
        return f"module {owner!r} has not imported its submodule {name!r} yet"
    _note(feature, "looked for" if _is_look(frame) else "used", frame)
    return _explain(feature)


def module_error(module: str, looked: bool = False) -> ModuleNotFoundError:
    """The error for importing `module`, noted for `flambeau.swap.report()`; the caller raises it.

    Args:
        module: the module's name.
        looked: whether the program only asked if the module is there.
    """
    feature = _torch_name(module)
    _note(feature, "looked for" if looked else "used", _asking_frame(sys._getframe(1)))
    return ModuleNotFoundError(f"No module named {module!r}: {_explain(feature)}", name=module)


def not_built(feature: str, advice: str) -> NotImplementedError:
    """The error for using `feature`, which can be named but does not work yet; noted, and raised by the caller.

    Args:
        feature: a dotted name as users write it after `torch.` or `flambeau.`, such as `jit.trace`.
        advice: what to do instead, a sentence without a full stop.
    """
    full = "torch." + feature
    _note(full, "used", _asking_frame(sys._getframe(1)))
    return NotImplementedError(f"{feature} is not built yet: {advice} (PyTorch docs page {_page_of(full)})")


def note_eager(feature: str) -> None:
    """Note that the program asked for `feature` and goes on in eager mode; each feature is noted once."""
    full = "torch." + feature
    if not any(asked.feature == full and asked.how == "runs eagerly" for asked in _asked):
        _note(full, "runs eagerly", _asking_frame(sys._getframe(1)))


def _is_submodule(package: Any, name: str) -> bool:
    """Whether `package` is one of ours, below the first, and has a module `name`."""
    from importlib.machinery import PathFinder

    home = getattr(package, "__name__", "")
    path = getattr(package, "__path__", None) if home.startswith("flambeau.") else None
    return path is not None and PathFinder.find_spec(f"{home}.{name}", path) is not None


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def is_public(feature: str) -> bool:
    """Whether PyTorch documents `feature`, a dotted name that starts with `torch`."""
    names = _index()["names"]
    owner, _, last = feature.rpartition(".")
    return feature in names or feature in _index()["pages"] or last in names.get(owner, "").split()


def is_newer(feature: str) -> bool:
    """Whether a later PyTorch has `feature`, which the documentation of this version of the API does not name."""
    owner, _, last = feature.rpartition(".")
    return last in _newer()["names"].get(owner, "").split()


def newer_than_documented() -> str:
    """What is true of a feature that `is_newer`, as words that follow its name."""
    return f"in PyTorch {_newer()['version']}, not in {API_VERSION}'s documentation"


def is_namespace(module: str) -> bool:
    """Whether `module` is one that PyTorch's programs or pickles import by name."""
    index = _index()
    return module in index["names"] or module in index["pages"] or module in index["homes"]


def home_of(module: str) -> str | None:
    """The namespace that offers what PyTorch keeps in `module`: `torch.nn` for `torch.nn.modules.conv`."""
    return _index()["homes"].get(module)


@functools.cache
def has_homes_below(module: str) -> bool:
    """Whether PyTorch keeps something of a namespace in modules below `module`."""
    return any(home.startswith(module + ".") for home in _index()["homes"])


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


@functools.cache
def _newer() -> dict[str, Any]:
    import json

    with open(_HERE + "newer_index.json", encoding="utf-8") as file:
        return json.load(file)


def _explain(feature: str) -> str:
    page = f"PyTorch docs page {_page_of(feature)}"
    if is_public(feature):
        return f"{feature} is not built yet ({page})"
    if any(part.startswith("_") for part in feature.split(".")):
        return f"{feature} is private to PyTorch and does not exist here (nearest: {page})"
    if is_newer(feature):
        return f"{feature} is {newer_than_documented()}, and not built (nearest: {page})"
    return f"{feature} is not in PyTorch {API_VERSION}'s public API (nearest: {page})"


def _note(feature: str, how: str, frame: FrameType | None) -> None:
    file, line = ("<unknown>", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
    _asked.setdefault(Asked(feature, _page_of(feature), file, line, how))


def _asking_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame outside Flambeau and the import machinery."""
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_ASKING):
        frame = frame.f_back
    return frame


def _is_look(frame: FrameType | None) -> bool:
    """Whether the program asks by a call (`hasattr`, `getattr`), whose failure it has an answer for, and not by `a.b`."""
    if frame is None:
        return False
    return "CALL" in dis.opname[frame.f_code.co_code[frame.f_lasti]]
