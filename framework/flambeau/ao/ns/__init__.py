"""Compare a model with its quantized one: weights, and results of their modules."""

from __future__ import annotations

from ..._on_demand import names_on_demand

__all__: list[str] = []


__getattr__, __dir__ = names_on_demand(__name__, modules=("_numeric_suite", "_numeric_suite_fx", "fx"))
