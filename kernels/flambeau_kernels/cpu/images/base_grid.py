"""The places of the elements of an image, as points between -1 and 1."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["base_grid"]


def base_grid(extents: tuple[int, ...], align: bool, dtype: Any) -> Any:
    """Homogeneous coordinates of every position, x first: ``(positions, n + 1)``."""
    wide = np.float32 if dtype.itemsize <= 2 else dtype
    axes = []
    for m in extents:
        line = np.linspace(-1, 1, m, dtype=wide) if m > 1 else np.zeros(1, wide)
        axes.append(line if align else (line * ((m - 1) / m)).astype(wide))
    mesh = np.meshgrid(*axes, indexing="ij")
    return np.stack([*(c.reshape(-1) for c in reversed(mesh)), np.ones(mesh[0].size, wide)], -1).astype(dtype)
