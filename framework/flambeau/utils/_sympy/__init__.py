"""Integer functions that sympy lacks, and ranges of numbers. Importing this imports sympy, which the framework else does without."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NoReturn

from ... import _missing

__all__ = ["sympy"]

try:
    sympy: Any = import_module("sympy")
except ImportError as error:
    raise ImportError("symbolic sizes need the package sympy: pip install 'flambeau[symbolic]'") from error


def __getattr__(name: str) -> NoReturn:
    raise _missing.attribute_error(__name__, name)
