"""Merging dimensions into one and splitting one into several."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from .module import Module

__all__ = ["Flatten", "Unflatten"]


class Flatten(Module):
    """Merge the dimensions from `start_dim` to `end_dim`, both included, into one.

    Shapes: ``(*, d_start, ..., d_end, *) -> (*, d_start * ... * d_end, *)``.

    >>> nn.Flatten()(fb.ones(5, 3, 4)).shape
    torch.Size([5, 12])
    """

    __constants__ = ["start_dim", "end_dim"]

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Split dimension `dim` into `unflattened_size`.

    Args:
        dim: an int, or the name of a named dimension.
        unflattened_size: sizes, one of which may be -1; for a named dimension pairs of name and size.
    Shapes: ``(*, d, *) -> (*, *unflattened_size, *)``.
    Raises: TypeError for sizes that are not ints.
    """

    NamedShape = tuple[tuple[str, int]]
    __constants__ = ["dim", "unflattened_size"]

    def __init__(self, dim: Any, unflattened_size: Any) -> None:
        super().__init__()
        (self._require_tuple_tuple if isinstance(dim, str) else self._require_tuple_int)(unflattened_size)
        self.dim = dim
        self.unflattened_size = unflattened_size

    def _require_tuple_tuple(self, sizes: Any) -> None:
        if not isinstance(sizes, tuple):
            raise TypeError(f"Unflatten: unflattened_size must be a tuple of pairs, got {sizes!r}")
        for pair in sizes:
            if not isinstance(pair, (tuple, list)):
                raise TypeError(f"Unflatten: unflattened_size must hold pairs of name and size, got {pair!r}")

    def _require_tuple_int(self, sizes: Any) -> None:
        if not isinstance(sizes, (tuple, list)):
            raise TypeError(f"Unflatten: unflattened_size must be a tuple of ints, got {sizes!r}")
        for size in sizes:
            if not isinstance(size, int):
                raise TypeError(f"Unflatten: unflattened_size must hold ints, got {size!r}")

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
