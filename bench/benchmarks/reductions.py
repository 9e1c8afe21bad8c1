"""Reductions and scans over all elements, the last and the first dimension, and the memory they need beside their result.

    cd bench && asv run --python=same --quick --bench reductions
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

SHAPES: dict[str, tuple[int, ...]] = {"2048x2048": (2048, 2048), "1000x100": (1000, 100), "100000x8": (100_000, 8)}
REDUCTIONS: dict[str, Callable[[Any, Any, int], Any]] = {
    "sum": lambda T, x, dim: x.sum(dim),
    "max": lambda T, x, dim: x.max(dim),
    "argmax": lambda T, x, dim: x.argmax(dim),
    "var": lambda T, x, dim: x.var(dim),
    "norm": lambda T, x, dim: T.linalg.vector_norm(x, dim=dim),
    "logsumexp": lambda T, x, dim: T.logsumexp(x, dim),
    "cumsum": lambda T, x, dim: x.cumsum(dim),
    "cummax": lambda T, x, dim: x.cummax(dim),
}


def operand(package: str, shape: tuple[int, ...]) -> tuple[Any, Any]:
    try:
        T = importlib.import_module(package)
    except ImportError as error:
        raise NotImplementedError(f"{package} is not installed here") from error  # asv skips the benchmark
    return T, T.from_numpy(np.random.default_rng(0).standard_normal(shape, dtype=np.float32))


class Along:
    """Seconds of one call along a dimension."""

    params: ClassVar[Any] = [["flambeau", "torch"], list(REDUCTIONS), list(SHAPES), [0, 1]]
    param_names: ClassVar[Any] = ["package", "reduction", "shape", "dim"]

    def setup(self, package: str, name: str, shape: str, dim: int) -> None:
        T, x = operand(package, SHAPES[shape])
        self.call = lambda: REDUCTIONS[name](T, x, dim)
        self.call()

    def time_call(self, package: str, name: str, shape: str, dim: int) -> None:
        self.call()


class Whole:
    """One value of all elements: seconds, and the most memory the process needed (the operand has 256 MB)."""

    params: ClassVar[Any] = [["flambeau", "torch"], ["sum", "amax", "var", "argmax"]]
    param_names: ClassVar[Any] = ["package", "reduction"]

    def setup(self, package: str, name: str) -> None:
        _, x = operand(package, (8192, 8192))
        self.call = getattr(x, name)
        self.call()

    def time_call(self, package: str, name: str) -> None:
        self.call()

    def peakmem_call(self, package: str, name: str) -> None:
        self.call()
