"""Modules for quantization: `quantized` computes with integers, `qat` trains with fake quantization, `intrinsic` joins layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._on_demand import names_on_demand

if TYPE_CHECKING:
    from . import intrinsic, qat, quantizable, quantized

__all__ = ["intrinsic", "qat", "quantizable", "quantized"]


__getattr__, __dir__ = names_on_demand(__name__, modules=__all__)
