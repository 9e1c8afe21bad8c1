"""Joined layers whose inputs are quantized when they run."""

from __future__ import annotations

from .....nn.quantized import dynamic

__all__ = ["LinearReLU"]


class LinearReLU(dynamic.Linear):
    """`ao.nn.quantized.dynamic.Linear` and a ReLU; takes and gives dense tensors."""

    _relu = True

    def _get_name(self) -> str:
        return "DynamicQuantizedLinearReLU"
