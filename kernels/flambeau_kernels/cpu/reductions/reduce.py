"""Reductions of one value per element: sums, products, extremes, counts.

`reduce` runs a `Reduction` (term, combine, finish): by a kernel made for it (`reduce_loops`), and where the compiled tier
does not go (complex numbers, unusual strides, few elements, another backend) by numpy's ufuncs.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels import engines
from flambeau_kernels.formula import Formula
from flambeau_kernels.quiet import ignore_fp_flags, restore_fp_flags
from flambeau_kernels.reference import WORDS_READ
from flambeau_kernels.vocabulary import abs

from .. import tier

__all__ = [
    "NUMPY_UP_TO", "PARTS", "Plans", "Reduction", "count_of", "magnitude", "products_of_lines", "reduce", "reduce_by_numpy", "square",
    "summed_in", "total",
]  # fmt: skip

# Up to so many elements numpy answers as soon, and native launchers give numpy's bits.
NUMPY_UP_TO = 4096
MOST_PLANS = 512
PARTS = 16                                            # factors of a product that take turns

ndarray = np.ndarray

_UFUNC = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


class Plans:
    """What runs a compiled kernel on arrays of one layout, kept by layout and options.

    Args:
        module: of this folder; its ``plan(a, *options)`` returns the callable, or None where numpy does the work.
    """

    __slots__ = ("made", "module")

    def __init__(self, module: str) -> None:
        self.module = module
        self.made = engines.kept_in({})

    def find(self, a: np.ndarray, *options: Any) -> Any:
        """The callable for `a`, or None. Which of them is told by layout and settings, never by values."""
        if a.size <= NUMPY_UP_TO or not engines.chosen().compiles or a.__class__ is not ndarray:
            return None
        key = (a.shape, a.strides, a.dtype, options)
        found = self.made.get(key)
        if found is None:
            if len(self.made) >= MOST_PLANS:
                self.made.clear()
            found = self.made[key] = self._make(a, options)
        return found or None

    def _make(self, a: np.ndarray, options: tuple[Any, ...]) -> Any:
        return tier.compiles() and import_module(f".{self.module}", __package__).plan(a, *options) or False


class Reduction:
    """``finish(combine of term(element), count)``.

    Args:
        combine: 'add', 'mul', 'max', 'min', 'and' or 'or'.
        term: formula of an element, or None; a `Formula`, or a function defined by `def`, so that kernels can contain it.
        finish: ``finish(total, count)``, likewise: of arrays, and of numbers in a kernel.
        costly: whether the term takes some tens of instructions, so that a kernel better has it once.
    Raises: TypeError for a lambda, whose source a kernel cannot find.
    """

    __slots__ = ("_finish", "_term", "combine", "costly", "finish", "name", "plans", "term", "ufunc")

    def __init__(self, name: str, combine: str, term: Any = None, finish: Any = None,
                 costly: bool = False) -> None:  # fmt: skip
        for fn in (term, finish):
            if getattr(fn, "__name__", "") == "<lambda>":
                raise TypeError(f"{name}: a kernel cannot contain a lambda; define its term and finish by def")
        self.name, self.combine, self.term, self.finish = name, combine, term, finish
        self.ufunc, self.costly = _UFUNC[combine], costly
        self._term = term if term is None or isinstance(term, Formula) else Formula(term, f"{name}_term")
        self._finish = finish if finish is None or isinstance(finish, Formula) else Formula(finish, f"{name}_finish")
        self.plans = Plans("reduce_loops")

    def mapped(self, a: np.ndarray) -> np.ndarray:
        """The terms of `a` by numpy."""
        return a if self._term is None else self._term.bind(WORDS_READ)(a)

    def finished(self, total: Any, count: int) -> Any:
        """The results of totals by numpy."""
        return total if self._finish is None else self._finish.bind(WORDS_READ)(total, count)


def reduce(how: Reduction, a: np.ndarray, axes: tuple[int, ...], keepdim: bool, accumulate: np.dtype, result: np.dtype) -> np.ndarray:
    """`how` over `axes` of `a`, whose elements are read as `accumulate` (halves: as float32), in dtype `result`."""
    run = how.plans.find(a, how, axes, keepdim, accumulate, result)
    return reduce_by_numpy(how, a, axes, keepdim, accumulate, result) if run is None else np.asarray(run(a), order="C")


def reduce_by_numpy(
    how: Reduction, a: np.ndarray, axes: tuple[int, ...], keepdim: bool, accumulate: np.dtype, result: np.dtype
) -> np.ndarray:
    """`reduce` by ufuncs."""
    wide = kernels._WIDE.get(accumulate, accumulate)
    token = ignore_fp_flags()
    try:
        x: Any = a if a.dtype is wide else kernels.cast(a, wide)
        if how.term is not None:
            x = how.mapped(x)
        if how.combine == "mul" and x.dtype.kind in "fc" and x.flags.c_contiguous and _are_last(axes, x.ndim):
            x = products_of_lines(x, len(axes), keepdim)
        elif axes or not a.ndim:
            x = how.ufunc.reduce(x, axes, summed_in(x) if how.combine == "add" else None, None, keepdim)
        if how.finish is not None:
            x = how.finished(x, count_of(a.shape, axes))
        if x.__class__ is not ndarray or x.dtype is not result:
            x = kernels.cast(np.asarray(x), result)
    finally:
        restore_fp_flags(token)
    # numpy's result lies as its operand does; ours is row-major whatever that is.
    return x if x.base is None and x is not a and x.flags.c_contiguous else x.copy()


def _are_last(axes: tuple[int, ...], ndim: int) -> bool:
    """Whether `axes` are the last of the dimensions, so that what is reduced to one lies together."""
    return bool(axes) and sorted(axes) == list(range(ndim - len(axes), ndim))


def products_of_lines(x: np.ndarray, last: int, keepdim: bool) -> np.ndarray:
    """The products over the last dimensions of contiguous numbers: `PARTS` factors take turns, the others come after them.

    One product waits for the one before, so those of a line that take turns are found in as much less time.
    """
    kept = x.shape[: x.ndim - last]
    n = math.prod(x.shape[x.ndim - last :])
    lines = x.reshape(math.prod(kept), n)
    tail = n // PARTS * PARTS
    made = np.multiply.reduce(lines[:, tail:], 1)
    if tail:
        parts = np.multiply.reduce(lines[:, :tail].reshape(len(lines), -1, PARTS), 1)
        half = PARTS // 2
        while half:
            parts = parts[:, :half] * parts[:, half : 2 * half]
            half //= 2
        made = parts[:, 0] * made if tail < n else parts[:, 0]
    return made.reshape((*kept, *(1,) * last) if keepdim else kept)


def summed_in(x: np.ndarray) -> type[np.float64] | None:
    """What numpy adds up elements like those of `x` in: many float32 in float64, as it adds along columns one after the other."""
    return np.float64 if x.dtype.char == "f" and x.size > NUMPY_UP_TO else None


def magnitude(x):
    """The term of reductions over ``|x|``."""
    return abs(x)


def square(x):
    """The term of sums of squares."""
    return x * x


def count_of(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """The number of elements reduced to one."""
    n = 1
    for d in axes:
        n *= shape[d]
    return n


_SUM = Reduction("total", "add")


def total(a: np.ndarray, axes: tuple[int, ...], keepdim: bool = False) -> np.ndarray:
    """The sum of `a` over `axes` in its dtype; halves are added in float32."""
    return reduce(_SUM, a, axes, keepdim, a.dtype, a.dtype)
