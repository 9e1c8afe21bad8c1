"""The modules that a model marks its quantized part with; quantizing is not built and says so."""

from __future__ import annotations

from typing import Any, NoReturn

from ... import _missing
from ...nn import Module

__all__ = ["DeQuantStub", "QuantStub"]


class QuantStub(Module):
    """Where a model's quantized part begins: the identity, as in PyTorch until the model is converted.

    Args:
        qconfig: kept as an attribute for the conversion.
    """

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Any) -> Any:
        """`x` itself."""
        return x


class DeQuantStub(Module):
    """Where a model's quantized part ends: the identity, as in PyTorch until the model is converted.

    Args:
        qconfig: kept as an attribute for the conversion.
    """

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Any) -> Any:
        """`x` itself."""
        return x


def __getattr__(name: str) -> NoReturn:
    raise _missing.attribute_error(__name__, name)
