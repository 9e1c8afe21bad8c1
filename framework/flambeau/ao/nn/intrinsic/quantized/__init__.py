"""Joined layers that compute with integers."""

from __future__ import annotations

from ....._on_demand import names_on_demand
from ... import quantized as nnq

__all__ = ["BNReLU2d", "BNReLU3d", "ConvReLU1d", "ConvReLU2d", "ConvReLU3d", "LinearReLU"]


class LinearReLU(nnq.Linear):
    """`ao.nn.quantized.Linear` and a ReLU."""

    _relu = True

    def _get_name(self) -> str:
        return "QuantizedLinearReLU"


class ConvReLU1d(nnq.Conv1d):
    """`ao.nn.quantized.Conv1d` and a ReLU."""

    _relu = True


class ConvReLU2d(nnq.Conv2d):
    """`ao.nn.quantized.Conv2d` and a ReLU."""

    _relu = True


class ConvReLU3d(nnq.Conv3d):
    """`ao.nn.quantized.Conv3d` and a ReLU."""

    _relu = True


class BNReLU2d(nnq.BatchNorm2d):
    """`ao.nn.quantized.BatchNorm2d` and a ReLU."""

    operator, relu = "batch_norm2d_relu", True

    def _get_name(self) -> str:
        return "QuantizedBNReLU2d"


class BNReLU3d(nnq.BatchNorm3d):
    """`ao.nn.quantized.BatchNorm3d` and a ReLU."""

    operator, relu = "batch_norm3d_relu", True

    def _get_name(self) -> str:
        return "QuantizedBNReLU3d"


__getattr__, __dir__ = names_on_demand(__name__, modules=("dynamic",))
