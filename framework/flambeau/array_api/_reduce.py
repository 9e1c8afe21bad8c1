"""Statistics, tests and sums along axes of the array API standard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fb
from flambeau import Tensor

from ._types import SIGNED, UNSIGNED

__all__ = [
    "all", "any", "argmax", "argmin", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "max", "mean", "min", "prod",
    "std", "sum", "var",
]  # fmt: skip


def along(function: Callable[..., Tensor], x: Tensor, axis: Any, keepdims: bool, **others: Any) -> Tensor:
    """`function` over the dimensions `axis`: None for all, a tuple, which may be empty, or a number."""
    if axis == ():
        # PyTorch takes no dimension to mean all. Elements alone are what lies along one dimension more.
        return function(x[..., None], dim=-1, **others)
    if axis is None:
        axis = tuple(range(x.ndim))
    if x.ndim == 0:
        return function(x[None], dim=0, **others)
    return function(x, dim=axis, keepdim=keepdims, **others)


def sum_dtype(x: Tensor, dtype: Any) -> Any:
    """The dtype of sums and products: `dtype`, or that of `x`, as wide as an index where it is an integer."""
    if dtype is not None:
        return dtype
    return fb.int64 if x.dtype in SIGNED or x.dtype is fb.bool else fb.uint64 if x.dtype in UNSIGNED else x.dtype


def sum(x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Sum along `axis`; integers give int64 or uint64, unless `dtype` says otherwise."""
    return along(fb.sum, x, axis, keepdims, dtype=sum_dtype(x, dtype))


def prod(x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Product along `axis`; integers give int64 or uint64, unless `dtype` says otherwise."""
    return along(fb.prod, x, axis, keepdims, dtype=sum_dtype(x, dtype))


def mean(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Mean along `axis`."""
    return along(fb.mean, x, axis, keepdims)


def max(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The largest along `axis`, nan where one is nan."""
    return along(fb.amax, x, axis, keepdims)


def min(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The smallest along `axis`, nan where one is nan."""
    return along(fb.amin, x, axis, keepdims)


def var(x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Variance along `axis`: squares of deviations over their number less `correction`."""
    return along(fb.var, x, axis, keepdims, correction=correction)


def std(x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Standard deviation along `axis`, see `var`."""
    return along(fb.std, x, axis, keepdims, correction=correction)


def all(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether all elements along `axis` are non-zero."""
    return along(fb.all, x != 0, axis, keepdims)


def any(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether an element along `axis` is non-zero."""
    return along(fb.any, x != 0, axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """How many elements along `axis` are non-zero."""
    return along(fb.sum, x != 0, axis, keepdims)


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Position of the first largest along `axis`, or among all elements in C order."""
    return fb.argmax(x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Position of the first smallest along `axis`, or among all elements in C order."""
    return fb.argmin(x, axis, keepdims)


def _cumulative(name: str, function: Any, start: int, x: Tensor, axis: int | None, dtype: Any, include_initial: bool) -> Tensor:
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"{name}: axis is needed for a tensor of {x.ndim} dimensions")
        axis = 0
    made = function(x, axis, dtype=sum_dtype(x, dtype))
    if not include_initial:
        return made
    first = [*made.shape]
    first[axis] = 1
    return fb.cat([made.new_full(first, start), made], axis)


def cumulative_sum(x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Tensor:
    """Sums of the first elements along `axis`, behind a 0 with `include_initial`."""
    return _cumulative("cumulative_sum", fb.cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Tensor:
    """Products of the first elements along `axis`, behind a 1 with `include_initial`."""
    return _cumulative("cumulative_prod", fb.cumprod, 1, x, axis, dtype, include_initial)


def diff(x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """Differences of neighbours along `axis`, `n` times over, of `x` between `prepend` and `append`."""
    return fb.diff(x, n=n, dim=axis, prepend=prepend, append=append)
