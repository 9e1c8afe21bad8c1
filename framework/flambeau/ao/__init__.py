"""Quantization: `quantization` has the flows, `nn` the modules, `ns` compares a model with its quantized one."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .. import _missing

if TYPE_CHECKING:
    from . import nn, ns, quantization

__all__ = ["nn", "ns", "quantization"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module("." + name, __name__)
    raise _missing.attribute_error(__name__, name)
