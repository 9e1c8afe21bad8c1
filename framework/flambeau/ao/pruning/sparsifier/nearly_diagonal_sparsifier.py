"""Matrices that are 0 but for a band about their diagonal."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from ....nn import Module
from .base_sparsifier import BaseSparsifier

__all__ = ["NearlyDiagonalSparsifier"]


class NearlyDiagonalSparsifier(BaseSparsifier):
    """Keeps `nearliness` diagonals, the main one in their middle.

    Args:
        nearliness: an odd number.
    """

    def __init__(self, nearliness: int = 1) -> None:
        super().__init__(defaults={"nearliness": nearliness})

    def update_mask(self, module: Module, tensor_name: str, nearliness: int, **kwargs: Any) -> None:
        """Set the mask. Raises: ValueError for an even number of diagonals, or more than the tensor has."""
        mask = getattr(module.parametrizations, tensor_name)[0].mask
        tensor = getattr(module, tensor_name)
        if nearliness <= 0:
            mask.data = fb.zeros_like(mask)
            return
        if nearliness % 2 == 0:
            raise ValueError("nearliness can only be an odd number")
        reach = nearliness // 2
        if reach >= min(tensor.shape[:2]):
            raise ValueError("nearliness cannot be larger than the dimensions of tensor.")
        rows, columns = (fb.arange(size, device=mask.device) for size in tensor.shape[:2])
        mask.copy_((rows.unsqueeze(1) - columns).abs() <= reach)
