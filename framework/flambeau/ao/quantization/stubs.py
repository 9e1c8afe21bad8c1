"""Where the quantized part of a model begins and ends."""

from __future__ import annotations

from typing import Any

from ...nn import Module

__all__ = ["DeQuantStub", "QuantStub", "QuantWrapper"]


class _Stub(Module):
    """The identity until `convert` puts another module in its place.

    Args:
        qconfig: of this place; that of the model by default.
    """

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Any) -> Any:
        """`x` itself."""
        return x


class QuantStub(_Stub):
    """Where a model's quantized part begins: the identity until `convert` makes it quantize."""


class DeQuantStub(_Stub):
    """Where a model's quantized part ends: the identity until `convert` makes it dequantize."""


class QuantWrapper(Module):
    """A module between a `QuantStub` and a `DeQuantStub`.

    Args:
        module: kept as `module`, whose training flag and `qconfig` it takes.
    """

    quant: QuantStub
    dequant: DeQuantStub
    module: Module

    def __init__(self, module: Module) -> None:
        super().__init__()
        qconfig = getattr(module, "qconfig", None)
        self.add_module("quant", QuantStub(qconfig))
        self.add_module("dequant", DeQuantStub(qconfig))
        self.add_module("module", module)
        self.train(module.training)

    def forward(self, X: Any) -> Any:
        """What the module makes of `X`."""
        return self.dequant(self.module(self.quant(X)))
