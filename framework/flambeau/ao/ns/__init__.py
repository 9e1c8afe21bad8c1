"""Compare a model with its quantized one: weights, and results of their modules."""

from __future__ import annotations

import importlib
from typing import Any

from ... import _missing

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    if name in ("_numeric_suite", "_numeric_suite_fx", "fx"):
        return importlib.import_module("." + name, __name__)
    raise _missing.attribute_error(__name__, name)
