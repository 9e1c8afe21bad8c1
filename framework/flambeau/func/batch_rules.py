"""How ops run on a whole batch at once: the rule of a declaration (see `ops/_batching.py`), or that of the op's kind."""

from __future__ import annotations

import functools
from typing import Any

from ..ops import _dispatch
from ..ops._batching import aligned, logical, run
from ..tensor import Tensor
from .batching import BatchedTensor


@functools.cache
def rule_for(op: Any) -> Any:
    """The rule of `op`; None where examples go one by one, or, of a composition without a rule of its own, its ops are batched."""
    return op.batch_rule or _KINDS.get(op.kind)


def draws(op: Any, args: tuple[Any, ...]) -> bool:
    """Whether this call draws random numbers: dropout outside training does not."""
    if not isinstance(op.random, tuple):
        return op.random
    named = dict(zip(op.params, args, strict=True))
    return all(named[name] for name in op.random)


def elementwise(level: Any, op: Any, args: Any) -> Any:
    values = _of_one_rank(level, args)
    return level.wrap(_dispatch.interpret(op, aligned(level, args) if values is None else values))


def _of_one_rank(level: Any, args: Any) -> tuple[Any, ...] | None:
    """Operands that broadcast as their examples do as they are: batches of one rank along the first dimension, and numbers."""
    values: list[Any] = []
    ndim = 0
    for a in args:
        if isinstance(a, Tensor):
            if a.__class__ is not BatchedTensor or a._level is not level or a._bdim:
                return None
            a = a._value
            if ndim != a._array.ndim:
                if ndim:
                    return None
                ndim = a._array.ndim
        values.append(a)
    return tuple(values) if ndim > 1 else None


def elementwise_inplace(level: Any, op: Any, args: Any) -> None:
    target, *rest = args
    own = logical(level, target)
    for x in rest:
        if isinstance(x, Tensor) and logical(level, x) > own:
            raise RuntimeError(
                f"{op.name}_: output with shape {list(target.shape)} doesn't match the broadcast shape of {list(x.shape)} with it"
            )
    others = aligned(level, args)[1:]
    run(op, level.front(target), *others, inplace=True)


def reduction(level: Any, op: Any, args: Any) -> Any:
    x, dim, *rest = args
    value = level.front(x)
    if value.ndim == 1:
        op.axes_of(dim, 0)
        return level.wrap(run(op, value.unsqueeze(-1), 1, False, *rest[1:]))
    axes = [d + 1 for d in op.axes_of(dim, value.ndim - 1)]
    return level.wrap(run(op, value, axes, *rest))


_KINDS = {"elementwise": elementwise, "reduction": reduction}
