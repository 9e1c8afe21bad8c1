"""Custom `autograd.Function`s inside vmap."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import _state
from ..ops import _dispatch
from ..tensor import Tensor
from ..utils._pytree import tree_flatten, tree_map
from .batching import VmapLevel

_local = _state.local


class VmapInfo(NamedTuple):
    """What the `vmap` of a Function is told."""

    batch_size: int
    randomness: str


def apply_in_vmap(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``cls.apply`` where the innermost level with a say is a vmap; NotImplemented where none of its operands is batched.

    Raises: RuntimeError if `cls` defines no `vmap` and does not ask for one to be made.
    """
    leaves = tree_flatten(args)[0]
    for level in reversed(_local.calls.interpreters):
        if isinstance(level, VmapLevel) and any(map(level.has, leaves)):
            return _at(level, cls, args, kwargs)
        if getattr(level, "kind", None) == "jvp" and level.touches(leaves):  # pyright: ignore[reportAttributeAccessIssue]  # the arguments rule the other types out
            return NotImplemented
    return NotImplemented


def _at(level: VmapLevel, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from ..autograd.function import Function

    defined = cls.vmap is not Function.vmap
    if not defined and not cls.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it does not have vmap support. Please override and implement the vmap "
            "staticmethod or set generate_vmap_rule=True."
        )
    if defined and cls.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and an overridden vmap staticmethod. "
            "Please set generate_vmap_rule=False or delete the overridden vmap staticmethod"
        )
    with _dispatch.below(level):
        if not defined:  # one example after another
            return level.stacked([cls.apply(*tree_map(lambda x, i=i: level._example(x, i), args), **kwargs) for i in range(level.size)])
        dims = tree_map(lambda x: x._bdim if level.has(x) else None, args)
        values = tree_map(lambda x: x._value if level.has(x) else x, args)
        made = cls.vmap(VmapInfo(level.size, level.randomness), dims, *values, **kwargs)
    if not (isinstance(made, tuple) and len(made) == 2):
        raise RuntimeError(
            f"Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure compatible with the "
            f"output. Got {type(made)}"
        )
    return _wrapped(level, *made)


def _wrapped(level: VmapLevel, result: Any, out_dims: Any) -> Any:
    if isinstance(result, (tuple, list)):
        dims = out_dims if isinstance(out_dims, (tuple, list)) else (out_dims,) * len(result)
        return tuple(_wrapped(level, r, d) for r, d in zip(result, dims, strict=True))
    if not isinstance(result, Tensor) or out_dims is None:
        return result
    return level.wrap(result, out_dims % result.ndim)
