"""Small helpers that several layer families share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import FunctionType
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


class _NamesItsConstructor:
    """Has the constructor that a public class takes over from a private one go by the public name.

    Python's errors about arguments name a function by where it stands: a user of `Conv2d` does not know `_Conv.__init__()`.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        given: Any = cls.__init__
        if cls.__name__.startswith("_") or "__init__" in vars(cls) or not given.__qualname__.startswith("_"):
            return
        own = FunctionType(given.__code__, given.__globals__, "__init__", given.__defaults__, given.__closure__)
        own.__kwdefaults__, own.__annotations__, own.__doc__ = given.__kwdefaults__, given.__annotations__, given.__doc__
        own.__module__, own.__qualname__ = cls.__module__, f"{cls.__qualname__}.__init__"
        cls.__init__ = own
