"""Creation functions of the array API standard."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Tensor

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid", "ones", "ones_like",
    "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip


def _shape(shape: Any) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Numbers from `start` (0 where only one is given) by `step` up to, and without, `stop`; none where `stop` lies the other way."""
    if stop is None:
        start, stop = 0, start
    if (stop - start) * step < 0:
        are_integers = all(isinstance(value, int) for value in (start, stop, step))
        return fb.empty(0, dtype=dtype or (fb.int64 if are_integers else fb.get_default_dtype()), device=device)
    return fb.arange(start, stop, step, dtype=dtype, device=device)


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor of `obj`: a tensor, numbers in nested sequences, or what shares memory (buffers, DLPack).

    Args:
        copy: True for memory of its own, False to share or raise ValueError, None to share where possible.
    """
    return fb.asarray(obj, dtype=dtype, device=device, copy=copy)


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Memory as it comes."""
    return fb.empty(_shape(shape), dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Memory as it comes, in the shape of `x`."""
    return fb.empty_like(x, dtype=dtype, device=device)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones on the `k`-th diagonal, counted upwards from the main one, and zeros elsewhere."""
    n_cols = n_rows if n_cols is None else n_cols
    made = fb.zeros(n_rows, n_cols, dtype=dtype, device=device)
    if -n_rows < k < n_cols:
        made.diagonal(k).fill_(1)
    return made


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of `x`, which has ``__dlpack__``; see `flambeau.from_dlpack`."""
    return fb.from_dlpack(x, device=device, copy=copy)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """`fill_value` everywhere."""
    return fb.full(_shape(shape), fill_value, dtype=dtype, device=device)


def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """`fill_value` everywhere, in the shape of `x`."""
    return fb.full_like(x, fill_value, dtype=dtype, device=device)


def linspace(start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True) -> Tensor:
    """`num` numbers at equal distances from `start` to `stop`, which is the last one or, without `endpoint`, would be the next."""
    if endpoint:
        return fb.linspace(start, stop, num, dtype=dtype, device=device)
    return fb.linspace(start, stop, num + 1, dtype=dtype, device=device)[:-1].clone()


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Coordinates of the points of a grid; with "xy" the first two dimensions are swapped, so that x runs along columns."""
    return list(fb.meshgrid(*arrays, indexing=indexing)) if arrays else []


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """1 everywhere."""
    return fb.ones(_shape(shape), dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """1 everywhere, in the shape of `x`."""
    return fb.ones_like(x, dtype=dtype, device=device)


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Matrices with zeros above the `k`-th diagonal."""
    return fb.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Matrices with zeros below the `k`-th diagonal."""
    return fb.triu(x, k)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """0 everywhere."""
    return fb.zeros(_shape(shape), dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """0 everywhere, in the shape of `x`."""
    return fb.zeros_like(x, dtype=dtype, device=device)
