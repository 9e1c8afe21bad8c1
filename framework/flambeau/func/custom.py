"""Custom `autograd.Function`s and operators inside vmap."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import _state
from .._warn import warn
from ..ops import _dispatch
from ..tensor import Tensor
from ..utils._pytree import tree_flatten, tree_leaves, tree_map
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
            return _mapped_over(level, cls, args, kwargs)
        if getattr(level, "kind", None) == "jvp" and level.touches(leaves):  # pyright: ignore[reportAttributeAccessIssue]  # the arguments rule the other types out
            return NotImplemented
    return NotImplemented


def _mapped_over(level: VmapLevel, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
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


def operator_in_vmap(level: VmapLevel, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operator of `flambeau.library` with batched operands: by its rule, what it is composed of, or one example after another."""
    rule = operator.vmap_rule
    if rule is None:
        return NotImplemented if operator.is_composition else _each_example(level, operator, args, kwargs)
    args, kwargs = operator.schema.without_defaults(args, kwargs)
    dims = tree_map(lambda x: x._bdim if level.has(x) else None, args)
    values = tree_map(lambda x: x._value if level.has(x) else x, (args, kwargs))
    made = rule(VmapInfo(level.size, level.randomness), dims, *values[0], **values[1])
    if not (isinstance(made, tuple) and len(made) == 2):
        raise RuntimeError(
            f"{operator.name}: Expected the vmap rule to have two returns, an output and out_dims with pytree structure compatible with "
            f"the output. Got a {type(made)} instead"
        )
    return _wrapped(level, *made)


def _each_example(level: VmapLevel, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not operator.warned_of_vmap:
        operator.warned_of_vmap = True
        warn(
            f"There is a performance drop because we have not yet implemented the batching rule for {operator.name}: examples are run one "
            "after another. Register a rule with torch.library.register_vmap"
        )
    written = [v for a, v in zip(operator.schema.arguments, (*args, *kwargs.values()), strict=True) if a.is_write]
    if written and not all(map(level.has, tree_leaves(written))):
        raise RuntimeError(
            f"vmap: {operator.name} would store a batch in one example: an argument that it writes is not batched while others are; make "
            "the argument from a batched tensor, as with zeros_like(x)"
        )
    rows = []
    for i in range(level.size):
        one = tree_map(lambda x, i=i: level._example(x, i), (args, kwargs))
        rows.append(operator.interpret(*one))
    if not rows:
        raise RuntimeError(f"vmap: {operator.name} has no batching rule, and a batch of size 0 gives no example to run it on")
    return level.stacked(rows)


def _wrapped(level: VmapLevel, result: Any, out_dims: Any) -> Any:
    if isinstance(result, (tuple, list)):
        dims = out_dims if isinstance(out_dims, (tuple, list)) else (out_dims,) * len(result)
        return tuple(_wrapped(level, r, d) for r, d in zip(result, dims, strict=True))
    if not isinstance(result, Tensor) or out_dims is None:
        return result
    return level.wrap(result, out_dims % result.ndim)
