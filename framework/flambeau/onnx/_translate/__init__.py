"""Translations of operators to ONNX: a function for each, under the operator's name, in files by subject."""

from __future__ import annotations

from . import elementwise, factorizations, indexing, layers, losses, making, places, primitives, products, recurrent, reductions, shapes
from ._table import TRANSLATORS, translates

__all__ = [
    "TRANSLATORS", "elementwise", "factorizations", "indexing", "layers", "losses", "making", "places", "primitives", "products",
    "recurrent", "reductions", "shapes", "translates",
]  # fmt: skip
