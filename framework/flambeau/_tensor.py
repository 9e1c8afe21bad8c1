"""Where PyTorch keeps the class Tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _missing
from .tensor import Tensor

__all__ = ["Tensor"]


def _rebuild_from_type_v2(func: Callable[..., Any], new_type: type, args: tuple[Any, ...], state: Any) -> Any:
    """A tensor of the class `new_type` from what `func` makes of `args`, with the attributes in `state`: what pickles call."""
    made = func(*args)
    if type(made) is not new_type:
        made = made.as_subclass(new_type)
    setstate = getattr(new_type, "__setstate__", None)
    if setstate is not None and setstate is not Tensor.__setstate__:
        made.__setstate__(state)
        return made
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    for name, value in {**(attributes or {}), **(slots or {})}.items():
        setattr(made, name, value)
    return made


def __getattr__(name: str) -> Any:
    raise _missing.attribute_error(__name__, name)
