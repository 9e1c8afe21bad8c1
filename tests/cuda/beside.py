"""What is computed on device cuda beside the same on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau as fb

__all__ = ["alike"]


def alike(fn: Callable[..., Any], *inputs: fb.Tensor, tolerance: float = 1e-6) -> None:
    """Assert that `fn` gives the same on both devices, and keeps its results on the device."""
    expected, made = fn(*inputs), fn(*(x.cuda() for x in inputs))
    pairs = zip(expected, made, strict=True) if isinstance(expected, (tuple, list)) else [(expected, made)]
    for e, m in pairs:
        assert m.device == fb.device("cuda", 0)
        assert (m.dtype, m.shape) == (e.dtype, e.shape)
        m, e = (y.detach().cpu().to(fb.complex128 if y.is_complex() else fb.float64).numpy() for y in (m, e))
        assert np.allclose(m, e, tolerance, tolerance, equal_nan=True)
