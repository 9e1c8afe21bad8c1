"""Modules for quantization: `quantized` computes with integers, `qat` trains with fake quantization, `intrinsic` joins layers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ... import _missing

if TYPE_CHECKING:
    from . import intrinsic, qat, quantizable, quantized

__all__ = ["intrinsic", "qat", "quantizable", "quantized"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module("." + name, __name__)
    raise _missing.attribute_error(__name__, name)
