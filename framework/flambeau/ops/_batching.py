"""Batch rules that many ops share, and what rules are written with.

A batch rule says how an op runs on all examples of a `vmap` at once: ``rule(level, op, args)`` sees batched operands and returns batched
results, or NotImplemented where it does not apply, and then the op runs on one example after another. Inside, the examples are the first
dimension: ``level.front(x)`` is the tensor of all of them, ``level.full(x)`` too, repeated where `x` is no batch.

A declaration names one of the rules here (``batch_rule=along``) or has its own, ``@op.batch``. Elementwise ops and reductions need none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..tensor import Tensor, wrap, wrap_dim
from . import _dispatch
from ._promote import result_type
from ._spec import OPS


def run(op: Any, *args: Any, inplace: bool = False) -> Any:
    """`op` as the levels outside see it."""
    return _dispatch.interpret(op, args, args[0] if inplace else None, inplace)


def logical(level: Any, x: Tensor) -> int:
    """Number of dimensions one example of `x` has."""
    return x._value.ndim - 1 if level.has(x) else x.ndim  # type: ignore[attr-defined]  # a batched Tensor


def numbers(level: Any, ndim: int) -> Tensor:
    """The numbers of the examples, before `ndim` single dimensions."""
    if _dispatch.is_seen():                           # which is told where they come from
        from .creation.ranges import arange

        return arange(level.size).reshape(-1, *(1,) * ndim)
    return wrap(np.arange(level.size).reshape(-1, *(1,) * ndim))


def shifted(x: Any, dim: Any) -> Any:
    """A dimension, or several, of an example of `x` as dimensions of the batch."""
    if isinstance(dim, (list, tuple)):
        return tuple([wrap_dim(d, x.ndim) + 1 for d in dim])
    return wrap_dim(dim, x.ndim) + 1


def aligned(level: Any, args: Any) -> tuple[Any, ...]:
    """Operands that broadcast as their examples do: single dimensions inserted after the first."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    ndim = max(logical(level, a) for a in tensors)
    common = None
    if any(logical(level, a) == 0 for a in tensors) and len({a.dtype for a in tensors}) > 1:
        common = result_type([a for a in tensors if a.dtype.name != "bool"] or tensors)
    return tuple(_aligned(level, a, ndim, common) if isinstance(a, Tensor) else a for a in args)


def _aligned(level: Any, x: Any, ndim: int, common: Any) -> Tensor:
    own = logical(level, x)
    if common is not None and own == 0 and x.dtype is not common and x.dtype.name != "bool":
        # One element per example weighs little in promotion; the batch of them would weigh as a full tensor.
        x = x.to(common) if not level.has(x) else type(level).wrap(level, x._value.to(common), x._bdim)
    if not level.has(x):
        return x
    value = level.front(x)
    return value if own == ndim else value.reshape(value.shape[0], *(1,) * (ndim - own), *value.shape[1:])


def check_examples(op: Any, args: Any) -> None:
    """Let `op` refuse shapes and dtypes in its own words, as examples have them."""
    if op.check is not None:
        op.check(*args)


def unfolded(level: Any, made: Any) -> Any:
    """Results whose first dimension has the examples in it, as in `folded`, as batches."""
    if isinstance(made, (tuple, list)):
        return tuple(unfolded(level, x) for x in made)
    return level.wrap(made.reshape(level.size, -1, *made.shape[1:]))


def scaled(level: Any, made: Tensor, weight: Any, bias: Any) -> Any:
    """`made`, examples first, times `weight`, plus `bias`, which may be one for each example."""
    for name, x in (("mul", weight), ("add", bias)):
        if x is not None:
            made = OPS[name].function(made, aligned(level, (level.wrap(made), x))[1])
    return level.wrap(made)


# -- rules ---------------------------------------------------------------------------------------------------------------


def along(level: Any, op: Any, args: Any) -> Any:
    """Of ops that work along `dim` (or `dims`) of operands with equally many dimensions, all but it alike."""
    named = dict(zip(op.params, args, strict=True))
    at = "dims" if "dims" in named else "dimension" if "dimension" in named else "dim"
    if named[at] is None:
        return NotImplemented
    tensors = {n: named[n] for n in op.tensor_params if isinstance(named[n], Tensor)}
    first = next(iter(tensors.values()))
    if first.ndim == 0 or any(x.ndim != first.ndim for x in tensors.values()):
        return NotImplemented
    named[at] = shifted(first, named[at])
    named.update({n: level.full(x) for n, x in tensors.items()})
    return level.wrap(run(op, *named.values()))


def leading(level: Any, op: Any, args: Any) -> Any:
    """Of ops of one operand whose leading dimensions are independent of each other."""
    x, *rest = args
    if not level.has(x) or any(map(level.has, rest)):
        return NotImplemented
    return level.wrap(run(op, level.front(x), *rest))


def leading_of_two(level: Any, op: Any, args: Any) -> Any:
    """Of ops of two operands, such as a matrix and right sides, whose leading dimensions are independent of each other."""
    a, b, *rest = args
    if a.ndim != b.ndim and not (op.name == "solve" and a.ndim == 2 and b.ndim == 1):
        return NotImplemented
    return level.wrap(run(op, level.full(a), level.full(b), *rest))


def same_dims(level: Any, op: Any, args: Any) -> Any:
    """Of ops that leave all dimensions but the last where they are."""
    return level.wrap(run(op, level.front(args[0]), *args[1:]))


def folded(level: Any, op: Any, args: Any) -> Any:
    """Of ops on images, whose first dimension, images or channels, takes the examples in."""
    x, *rest = args
    if x.ndim < 2 or not level.size or not x.shape[0]:
        return NotImplemented
    value = level.front(x)
    return unfolded(level, run(op, value.reshape(-1, *value.shape[2:]), *rest))


def as_channels(level: Any, op: Any, x: Tensor, vectors: Any, rest: Any) -> Any:
    """An op on ``(N, C, *)`` that treats channels independently, whose `vectors` have an element for each channel."""
    if x.ndim < 2 or not level.size or not x.shape[1]:
        return NotImplemented
    value = level.full(x).transpose(0, 1)
    value = value.reshape(value.shape[0], -1, *value.shape[3:])
    made = run(op, value, *(None if v is None else level.full(v).reshape(-1) for v in vectors), *rest)
    return level.wrap(made.reshape(made.shape[0], level.size, -1, *made.shape[2:]), 1)
