"""Layers that are joined: a convolution or linear layer with the normalization and the ReLU after it, one after the other."""

from __future__ import annotations

from ...._on_demand import names_on_demand
from ....nn import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    Conv1d,
    Conv2d,
    Conv3d,
    Linear,
    Module,
    ReLU,
    Sequential,
)

__all__ = [
    "BNReLU2d", "BNReLU3d", "ConvBn1d", "ConvBn2d", "ConvBn3d", "ConvBnReLU1d", "ConvBnReLU2d", "ConvBnReLU3d", "ConvReLU1d",
    "ConvReLU2d", "ConvReLU3d", "LinearBn1d", "LinearReLU",
]  # fmt: skip


class _FusedModule(Sequential):
    """Layers that quantization takes as one."""

    parts: tuple[type[Module], ...] = ()

    def __init__(self, *layers: Module) -> None:
        for layer, kind in zip(layers, self.parts, strict=True):
            if not isinstance(layer, kind):
                given = "".join(type(made).__name__ for made in layers)
                wanted = ", ".join(part.__name__ for part in self.parts)
                raise AssertionError(f"Incorrect types for input modules {given}: {type(self).__name__} takes {wanted}")
        super().__init__(*layers)


class ConvReLU1d(_FusedModule):
    """A `Conv1d` and a `ReLU`."""

    parts = (Conv1d, ReLU)

    def __init__(self, conv: Conv1d, relu: ReLU) -> None:
        super().__init__(conv, relu)


class ConvReLU2d(_FusedModule):
    """A `Conv2d` and a `ReLU`."""

    parts = (Conv2d, ReLU)

    def __init__(self, conv: Conv2d, relu: ReLU) -> None:
        super().__init__(conv, relu)


class ConvReLU3d(_FusedModule):
    """A `Conv3d` and a `ReLU`."""

    parts = (Conv3d, ReLU)

    def __init__(self, conv: Conv3d, relu: ReLU) -> None:
        super().__init__(conv, relu)


class LinearReLU(_FusedModule):
    """A `Linear` and a `ReLU`."""

    parts = (Linear, ReLU)

    def __init__(self, linear: Linear, relu: ReLU) -> None:
        super().__init__(linear, relu)


class ConvBn1d(_FusedModule):
    """A `Conv1d` and a `BatchNorm1d`."""

    parts = (Conv1d, BatchNorm1d)

    def __init__(self, conv: Conv1d, bn: BatchNorm1d) -> None:
        super().__init__(conv, bn)


class ConvBn2d(_FusedModule):
    """A `Conv2d` and a `BatchNorm2d`."""

    parts = (Conv2d, BatchNorm2d)

    def __init__(self, conv: Conv2d, bn: BatchNorm2d) -> None:
        super().__init__(conv, bn)


class ConvBn3d(_FusedModule):
    """A `Conv3d` and a `BatchNorm3d`."""

    parts = (Conv3d, BatchNorm3d)

    def __init__(self, conv: Conv3d, bn: BatchNorm3d) -> None:
        super().__init__(conv, bn)


class ConvBnReLU1d(_FusedModule):
    """A convolution `conv`, a normalization `bn` and a `relu`: `Conv1d`, `BatchNorm1d`, `ReLU`."""

    parts = (Conv1d, BatchNorm1d, ReLU)

    def __init__(self, conv: Conv1d, bn: BatchNorm1d, relu: ReLU) -> None:
        super().__init__(conv, bn, relu)


class ConvBnReLU2d(_FusedModule):
    """A convolution `conv`, a normalization `bn` and a `relu`: `Conv2d`, `BatchNorm2d`, `ReLU`."""

    parts = (Conv2d, BatchNorm2d, ReLU)

    def __init__(self, conv: Conv2d, bn: BatchNorm2d, relu: ReLU) -> None:
        super().__init__(conv, bn, relu)


class ConvBnReLU3d(_FusedModule):
    """A convolution `conv`, a normalization `bn` and a `relu`: `Conv3d`, `BatchNorm3d`, `ReLU`."""

    parts = (Conv3d, BatchNorm3d, ReLU)

    def __init__(self, conv: Conv3d, bn: BatchNorm3d, relu: ReLU) -> None:
        super().__init__(conv, bn, relu)


class BNReLU2d(_FusedModule):
    """A `BatchNorm2d` and a `ReLU`."""

    parts = (BatchNorm2d, ReLU)

    def __init__(self, batch_norm: BatchNorm2d, relu: ReLU) -> None:
        super().__init__(batch_norm, relu)


class BNReLU3d(_FusedModule):
    """A `BatchNorm3d` and a `ReLU`."""

    parts = (BatchNorm3d, ReLU)

    def __init__(self, batch_norm: BatchNorm3d, relu: ReLU) -> None:
        super().__init__(batch_norm, relu)


class LinearBn1d(_FusedModule):
    """A `Linear` and a `BatchNorm1d`."""

    parts = (Linear, BatchNorm1d)

    def __init__(self, linear: Linear, bn: BatchNorm1d) -> None:
        super().__init__(linear, bn)


__getattr__, __dir__ = names_on_demand(__name__, modules=("qat", "quantized"))
