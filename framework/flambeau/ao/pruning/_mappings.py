"""Which module takes the place of a pruned one when a model is quantized."""

from __future__ import annotations

from typing import NoReturn

from ... import _missing

__all__ = ["get_dynamic_sparse_quantized_mapping", "get_static_sparse_quantized_mapping"]

_ADVICE = "quantize by ao.quantization, whose modules compute with zeros as with other weights"


def get_static_sparse_quantized_mapping() -> NoReturn:
    """Not built: raises NotImplementedError."""
    raise _missing.not_built("ao.pruning.get_static_sparse_quantized_mapping", _ADVICE)


def get_dynamic_sparse_quantized_mapping() -> NoReturn:
    """Not built: raises NotImplementedError."""
    raise _missing.not_built("ao.pruning.get_dynamic_sparse_quantized_mapping", _ADVICE)
