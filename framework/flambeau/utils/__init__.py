"""Helpers around training: `data` and the rest. Each submodule is imported the first time it is used."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from flambeau import _missing


def __getattr__(name: str) -> Any:
    if not name.startswith("__") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    raise _missing.attribute_error(__name__, name)


def __dir__() -> list[str]:
    from pkgutil import iter_modules

    submodules = (found.name for found in iter_modules(__path__))
    return sorted({*globals(), *(name for name in submodules if not name.startswith("_"))})
