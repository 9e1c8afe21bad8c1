"""Reductions of one value per element: sums, products, extremes, counts, norms.

`reduce` runs a `Reduction` (term, combine, finish): by a kernel made for it (`reduce_loops`), and where the compiled tier
does not go (complex numbers, unusual strides, few elements, another backend) by numpy's ufuncs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels.formula import Formula
from flambeau_kernels.reference import WORDS_READ

from ._folds import count_of

__all__ = ["NUMPY_UP_TO", "Reduction", "reduce", "reduce_by_numpy"]

# Up to so many elements numpy answers as soon, and native launchers give numpy's bits.
NUMPY_UP_TO = 4096
MOST_PLANS = 512

ndarray = np.ndarray

_UFUNC = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


class Reduction:
    """``finish(combine of term(element), count)``.

    Args:
        combine: 'add', 'mul', 'max', 'min', 'and' or 'or'.
        term: formula of an element, or None; a function defined by `def`, so that kernels can contain it.
        finish: ``finish(total, count)``, of arrays and of numbers in a kernel.
    """

    __slots__ = ("_term", "combine", "finish", "name", "plans", "term", "ufunc")

    def __init__(self, name: str, combine: str, term: Callable[..., Any] | None = None, finish: Any = None) -> None:
        for fn in (term, finish):
            if fn is not None and fn.__name__ == "<lambda>":
                raise TypeError(f"{name}: a kernel cannot contain a lambda; define its term and finish by def")
        self.name, self.combine, self.term, self.finish = name, combine, term, finish
        self.ufunc = _UFUNC[combine]
        self._term = None if term is None else Formula(term, f"{name}_map")
        self.plans: dict[Any, Any] = {}

    def mapped(self, a: np.ndarray) -> np.ndarray:
        """The terms of `a` by numpy."""
        return a if self._term is None else self._term.bind(WORDS_READ)(a)


def reduce(how: Reduction, a: np.ndarray, axes: tuple[int, ...], keepdim: bool, accumulate: np.dtype, result: np.dtype) -> np.ndarray:
    """`how` over `axes` of `a`, whose elements are read as `accumulate` (halves: as float32), in dtype `result`."""
    if a.size > NUMPY_UP_TO and kernels.backend() == "numba" and type(a) is ndarray:
        key = (a.shape, a.strides, a.dtype, axes, keepdim, accumulate, result)
        plan = how.plans.get(key)
        if plan is None:
            if len(how.plans) >= MOST_PLANS:
                how.plans.clear()
            plan = how.plans[key] = _compiled_plan(how, a, axes, keepdim, accumulate, result)
        if plan:
            return plan(a)
    return reduce_by_numpy(how, a, axes, keepdim, accumulate, result)


def _compiled_plan(*args: Any) -> Any:
    """A callable on arrays of one layout, or False where numpy reduces them."""
    from flambeau_kernels.engine import llvm

    if llvm.available() is not None:
        return False
    from . import reduce_loops

    return reduce_loops.plan(*args) or False


def reduce_by_numpy(
    how: Reduction, a: np.ndarray, axes: tuple[int, ...], keepdim: bool, accumulate: np.dtype, result: np.dtype
) -> np.ndarray:
    """`reduce` by ufuncs."""
    with np.errstate(all="ignore"):
        x = how.mapped(kernels.cast(a, kernels._WIDE.get(accumulate, accumulate)))
        x = how.ufunc.reduce(x, axis=axes, keepdims=keepdim) if axes or a.ndim == 0 else x
        if how.finish is not None:
            x = how.finish(x, count_of(a.shape, axes))
        x = kernels.cast(np.asarray(x), result)
    return x if x.base is None and x is not a else x.copy()
