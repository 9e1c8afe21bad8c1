"""Points that fill a cube more evenly than random ones: the Sobol sequence, plain and scrambled."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau as fb
from flambeau import Tensor
from flambeau_kernels.loading import scipy_module

__all__ = ["SobolEngine"]


class SobolEngine:
    """The Sobol sequence in ``[0, 1)`` to the power of `dimension`, with 30 bits a coordinate.

    Args:
        dimension: 1 to 21201.
        scramble: multiply the bits of each coordinate by a random triangular matrix and flip some of them, which keeps the
            evenness.
        seed: of the scrambling; without one the default generator's numbers are used.
    Raises: ValueError for another dimension.

    Source: Joe and Kuo 2008, "Constructing Sobol sequences with better two-dimensional projections" (the direction numbers,
    by way of scipy); Matousek 1998, "On the L2-discrepancy for anchored boxes" (the scrambling).

    >>> fb.quasirandom.SobolEngine(dimension=2).draw(3)
    tensor([[0.0000, 0.0000],
            [0.5000, 0.5000],
            [0.7500, 0.2500]])
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]")
        self.seed, self.scramble, self.dimension = seed, scramble, dimension
        self.num_generated = 0
        self._points = scipy_module("stats.qmc").Sobol(dimension, scramble=False, bits=self.MAXBIT)
        if scramble:
            self._shift, self._rows = self._scrambling()

    def _scrambling(self) -> tuple[np.ndarray, np.ndarray]:
        """The bits to flip, ``(d,)``, and for each bit of a coordinate, the first the highest, those whose parity it takes, ``(d, 30)``."""
        generator = None if self.seed is None else fb.Generator().manual_seed(self.seed)
        bits = self.MAXBIT
        flipped = fb.randint(2, (self.dimension, bits), generator=generator).numpy()
        matrices = fb.randint(2, (self.dimension, bits, bits), generator=generator).numpy()
        matrices = np.tril(matrices, -1) + np.eye(bits, dtype=np.int64)
        ascending = np.left_shift(1, np.arange(bits))
        return flipped @ ascending, matrices @ ascending[::-1]

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next `n` points, ``(n, dimension)``.

        Args:
            out: resized and filled, and returned.
            dtype: by default the default dtype.
        Raises: ValueError for a negative `n`.
        """
        if n < 0:
            raise ValueError(f"SobolEngine.draw: n must not be negative, got {n}")
        points = self._integers(n) * 2.0**-self.MAXBIT
        made = fb.from_numpy(points).to(dtype or fb.get_default_dtype())
        self.num_generated += n
        return made if out is None else out.resize_(made.shape).copy_(made)

    def _integers(self, n: int) -> np.ndarray:
        """The next `n` points, times 2**30; int64."""
        if not n:
            return np.empty((0, self.dimension), np.int64)
        import warnings

        with warnings.catch_warnings():
            # scipy warns of numbers of points that are no power of 2, PyTorch does not.
            warnings.filterwarnings("ignore", "The balance properties of Sobol")
            points = np.rint(self._points.random(n) * 2.0**self.MAXBIT).astype(np.int64)
        if not self.scramble:
            return points
        made = np.zeros_like(points)
        for bit in range(self.MAXBIT):
            parity = np.bitwise_count(points & self._rows[:, bit]) & 1
            made |= parity.astype(np.int64) << (self.MAXBIT - 1 - bit)
        return made ^ self._shift

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next ``2**m`` points; only such numbers in all are balanced.

        Args:
            out, dtype: as for `draw`.
        Raises: ValueError if with those drawn before there would not be a power of 2.
        """
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: "
                f"n={self.num_generated}+2**{m}={total}. If you still want to do this, please use 'SobolEngine.draw()' instead."
            )
        return self.draw(n, out=out, dtype=dtype)

    def reset(self) -> SobolEngine:
        """Go back to the first point."""
        self._points.reset()
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Skip `n` points."""
        self._points.fast_forward(n)
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        parts = [f"dimension={self.dimension}"]
        if self.scramble:
            parts.append("scramble=True")
        if self.seed is not None:
            parts.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(parts)})"
