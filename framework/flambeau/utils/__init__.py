"""Helpers around training: `data` and the rest. Each submodule is imported the first time it is used."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from flambeau import _missing

_HOME = {
    "generate_methods_for_privateuse1_backend": "backend_registration", "rename_privateuse1_backend": "backend_registration",
    "get_cpp_backtrace": "_tensors", "set_module": "_tensors", "swap_tensors": "_tensors",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOME:
        found = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = found
        return found
    if not name.startswith("__") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    raise _missing.attribute_error(__name__, name)


def __dir__() -> list[str]:
    from pkgutil import iter_modules

    submodules = (found.name for found in iter_modules(__path__))
    return sorted({*globals(), *_HOME, *(name for name in submodules if not name.startswith("_"))})
