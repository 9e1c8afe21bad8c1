"""The places of the elements of an image, as points between -1 and 1."""

from __future__ import annotations

import functools
from math import prod

import numpy as np

__all__ = ["base_grid"]

MOST_KEPT = 4096  # positions of a grid that is kept for the next call: of few, the making takes longer than all that is done with them


def base_grid(extents: tuple[int, ...], align: bool, dtype: np.dtype) -> np.ndarray:
    """Homogeneous coordinates of every position, x first: ``(positions, n + 1)``. Not to be written to."""
    return (_kept if prod(extents) <= MOST_KEPT else _coordinates)(extents, align, dtype)


def _coordinates(extents: tuple[int, ...], align: bool, dtype: np.dtype) -> np.ndarray:
    """Those of all cells of an image, a row for each, the last dimension first, then a one."""
    wide = np.float32 if dtype.itemsize <= 2 else dtype
    axes = []
    for m in extents:
        line = np.linspace(-1, 1, m, dtype=wide) if m > 1 else np.zeros(1, wide)
        axes.append(line if align else (line * ((m - 1) / m)).astype(wide))
    mesh = np.meshgrid(*axes, indexing="ij")
    return np.stack([*(c.reshape(-1) for c in reversed(mesh)), np.ones(mesh[0].size, wide)], -1).astype(dtype)


_kept = functools.lru_cache(64)(_coordinates)
