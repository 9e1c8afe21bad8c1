"""Quantization: `quantization` has the flows, `nn` the modules, `ns` compares a model with its quantized one; `pruning` by masks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._on_demand import names_on_demand

if TYPE_CHECKING:
    from . import nn, ns, pruning, quantization

__all__ = ["nn", "ns", "pruning", "quantization"]


__getattr__, __dir__ = names_on_demand(__name__, modules=__all__)
