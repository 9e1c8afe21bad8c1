"""Small helpers that several layer families share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def _ntuple(n: int) -> Callable[[Any], tuple[Any, ...]]:
    """A function that makes a tuple: `n` times the same number, or the elements of an iterable."""

    def parse(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else (x,) * n

    parse.__name__ = f"_{n}tuple"
    return parse


_single = _ntuple(1)
_pair = _ntuple(2)
_triple = _ntuple(3)
_quadruple = _ntuple(4)


def _reverse_repeat_tuple(t: tuple[Any, ...], n: int) -> tuple[Any, ...]:
    """The elements last to first, each `n` times: one number per dimension in the order `pad` wants them."""
    return tuple(x for x in reversed(t) for _ in range(n))
