"""How layers, losses, stores by index and factorizations run on a whole batch at once.

Rules as those of `batch_rules`. Most rest on one of two facts: an op that treats its leading dimensions alike takes the
examples as one more of them (`leading`, `folded`), and examples may stand beside each other as channels (`_as_channels`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ops._spec import OPS, wrap_dims
from ..tensor import Tensor, wrap
from .batch_rules import _position, aligned, logical, rule, run, shifted


def _call(name: str, *args: Any) -> Any:
    return OPS[name].function(*args)


def _numbers(level: Any, wide: int) -> Tensor:
    """The numbers of the examples, before `wide` single dimensions."""
    return wrap(np.arange(level.size).reshape(-1, *(1,) * wide))


# -- ops on trailing dimensions ------------------------------------------------------------------------------------------


@rule(
    "frexp", "raise_to", "pad_constant", "pad_mode", "matrix_exp", "det_of", "slogdet_of", "inverse_of", "cholesky_of", "qr_of",
    "geqrf_of", "lu_of", "ldl_of", "eigh_of", "eigvalsh_of", "eig_of", "eigvals_of", "svd_of", "svdvals_of", "pseudo_inverse",
    "is_member", "linalg.inv", "linalg.cholesky", "overlap_add",
)  # fmt: skip
def leading(level: Any, op: Any, args: Any) -> Any:
    """Ops of one operand whose leading dimensions are independent of each other."""
    x, *rest = args
    if not level.has(x) or any(map(level.has, rest)):
        return NotImplemented
    return level.wrap(run(op, level.front(x), *rest))


@rule("solution_of", "triangular_solution", "least_squares", "linalg.solve")
def _two_leading(level: Any, op: Any, args: Any) -> Any:
    a, b, *rest = args
    if a.ndim != b.ndim and not (op.name == "solve" and a.ndim == 2 and b.ndim == 1):
        return NotImplemented
    return level.wrap(run(op, level.full(a), level.full(b), *rest))


def _unfolded(level: Any, made: Any) -> Any:
    if isinstance(made, (tuple, list)):
        return tuple(_unfolded(level, x) for x in made)
    return level.wrap(made.reshape(level.size, -1, *made.shape[1:]))


@rule(
    "window_mean", "spread_mean", "window_max", "window_max_with_indices", "adaptive_mean", "adaptive_spread", "resample",
    "gather_columns", "fold_columns",
)  # fmt: skip
def folded(level: Any, op: Any, args: Any) -> Any:
    """Ops on images, whose first dimension, images or channels, takes the examples in."""
    x, *rest = args
    if x.ndim < 2 or not level.size or not x.shape[0]:
        return NotImplemented
    value = level.front(x)
    return _unfolded(level, run(op, value.reshape(-1, *value.shape[2:]), *rest))


@rule("length_along")
def _length_along(level: Any, op: Any, args: Any) -> Any:
    x, p, dim, *rest = args
    return level.wrap(run(op, level.front(x), p, shifted(x, dim), *rest)) if x.ndim else NotImplemented


@rule("norm_over")
def _norm_over(level: Any, op: Any, args: Any) -> Any:
    x, order, dims, keepdim = args
    if x.ndim == 0:
        return NotImplemented
    axes = tuple(d + 1 for d in wrap_dims("norm", dims, x.ndim))
    return level.wrap(run(op, level.front(x), order, axes, keepdim))


@rule("median_whole", "nanmedian_whole")
def _median(level: Any, op: Any, args: Any) -> Any:
    (x,) = args
    if not x.numel():
        return NotImplemented
    return level.wrap(_call(op.name.removesuffix("_whole"), level.front(x).reshape(level.size, -1), 1)[0])


# -- normalization -------------------------------------------------------------------------------------------------------


def _scaled(level: Any, made: Tensor, ndim: int, weight: Any, bias: Any) -> Any:
    """`made`, examples first, times `weight`, plus `bias`, which may be one for each example."""
    for name, x in (("mul", weight), ("add", bias)):
        if x is not None:
            made = _call(name, made, aligned(level, (level.wrap(made), x))[1])
    return level.wrap(made)


@rule("normalize_trailing")
def _normalize_trailing(level: Any, op: Any, args: Any) -> Any:
    x, shape, weight, bias, *rest = args
    if not level.has(weight) and not level.has(bias):
        return level.wrap(run(op, level.front(x), shape, weight, bias, *rest))
    return _scaled(level, run(op, level.full(x), shape, None, None, *rest), x.ndim, weight, bias)


@rule("scale_trailing")
def _scale_trailing(level: Any, op: Any, args: Any) -> Any:
    x, shape, weight, *rest = args
    if not level.has(weight):
        return level.wrap(run(op, level.front(x), shape, weight, *rest))
    return _scaled(level, run(op, level.full(x), shape, None, *rest), x.ndim, weight, None)


@rule("normalize_groups")
def _normalize_groups(level: Any, op: Any, args: Any) -> Any:
    x, groups, weight, bias, *rest = args
    if level.has(weight) or level.has(bias) or not level.size or not x.shape[0]:
        return NotImplemented
    value = level.front(x)
    return _unfolded(level, run(op, value.reshape(-1, *value.shape[2:]), groups, weight, bias, *rest))


def _as_channels(level: Any, op: Any, x: Tensor, vectors: Any, rest: Any) -> Any:
    """An op on ``(N, C, *)`` that treats channels apart, whose `vectors` have an element for each channel."""
    if x.ndim < 2 or not level.size or not x.shape[1]:
        return NotImplemented
    value = level.full(x).transpose(0, 1)
    value = value.reshape(value.shape[0], -1, *value.shape[3:])
    made = run(op, value, *(None if v is None else level.full(v).reshape(-1) for v in vectors), *rest)
    return level.wrap(made.reshape(made.shape[0], level.size, -1, *made.shape[2:]), 1)


@rule("normalize_by_running")
def _normalize_by_running(level: Any, op: Any, args: Any) -> Any:
    return _as_channels(level, op, args[0], args[1:5], args[5:])


@rule("normalize_channels")
def _normalize_channels(level: Any, op: Any, args: Any) -> Any:
    return _as_channels(level, op, args[0], args[1:3], args[3:])


# -- losses and attention ------------------------------------------------------------------------------------------------


@rule("nll")
def _nll(level: Any, op: Any, args: Any) -> Any:
    scores, target, weight, ignore_index, reduction = args
    if not level.size or not scores.numel():
        return NotImplemented
    x, t = level.full(scores), level.full(target)
    if scores.ndim > 1:
        x, t = x.reshape(-1, *x.shape[2:]), t.reshape(-1, *t.shape[2:])
    losses = run(op, x, t, None, ignore_index, "none").reshape(level.size, -1)
    t = level.full(target).reshape(level.size, -1)
    counted = t != ignore_index
    shares = counted.to(losses.dtype)
    if weight is not None:
        shares = shares * level.full(weight).gather(1, t.where(counted, 0))
        losses = losses * shares
    if reduction == "none":
        return level.wrap(losses.reshape(level.size, *target.shape))
    total = losses.sum(1)
    return level.wrap(total if reduction == "sum" else total / shares.sum(1))


@rule("attend")
def _attend(level: Any, op: Any, args: Any) -> Any:
    *operands, mask, scale, causal = args
    if any(x.ndim != 4 for x in operands) or not level.size or not all(x.shape[0] for x in operands):
        return NotImplemented
    q, k, v = (level.full(x).reshape(-1, *x.shape[1:]) for x in operands)
    if mask is not None and (level.has(mask) or mask.ndim == 4 and mask.shape[0] != 1):
        value = level.full(mask)
        value = value.reshape(level.size, *(1,) * (4 - mask.ndim), *mask.shape)
        value = value.expand(level.size, operands[0].shape[0], *value.shape[2:])
        mask = value.reshape(-1, *value.shape[2:])
    made = run(op, q, k, v, mask, scale, causal)
    return level.wrap(made.reshape(level.size, -1, *made.shape[1:]))


@rule("nn.functional.one_hot")
def _one_hot(level: Any, op: Any, args: Any) -> Any:
    return leading(level, op, args) if args[1] > 0 else NotImplemented


# -- stores by index -----------------------------------------------------------------------------------------------------


def stored_operands(level: Any, args: Any) -> tuple[Any, ...]:
    """Operands of `index_put` that store every example's values with its number as a further index."""
    x, indices, values, accumulate = args
    given = [k for k in indices if k is not None]
    wide, place = max(k.ndim for k in given), _position(indices)
    lined = [None if k is None else level.full(k).reshape(level.size, *(1,) * (wide - k.ndim), *k.shape) for k in indices]
    ndim = wide + x.ndim - len(given)
    stored = level.full(values).reshape(level.size, *(1,) * (ndim - values.ndim), *values.shape)
    if place:  # dimensions of the index come out first here, and at `place` of an example
        stored = stored.movedim(list(range(1 + place, 1 + place + wide)), list(range(1, 1 + wide)))
    return level.full(x), (_numbers(level, wide), *lined), stored, accumulate


@rule("index_put")
def _index_put(level: Any, op: Any, args: Any) -> Any:
    x, indices, values, _ = args
    given = [k for k in indices if k is not None]
    if values.ndim > max(k.ndim for k in given) + x.ndim - len(given):
        return NotImplemented
    return level.wrap(run(op, *stored_operands(level, args)))


@rule("index_add", "index_copy")
def _store_rows(level: Any, op: Any, args: Any) -> Any:
    x, dim, index, source, *rest = args
    if level.has(index) or x.ndim == 0 or source.ndim != x.ndim:
        return NotImplemented
    return level.wrap(run(op, level.full(x), shifted(x, dim), index, level.full(source), *rest))


@rule("index_fill_number")
def _fill_rows(level: Any, op: Any, args: Any) -> Any:
    x, dim, index, value = args
    if level.has(index) or x.ndim == 0:
        return NotImplemented
    return level.wrap(run(op, level.front(x), shifted(x, dim), index, value))


@rule("select_scatter", "slice_scatter")
def _scatter_part(level: Any, op: Any, args: Any) -> Any:
    x, source, dim, *rest = args
    if source.ndim != x.ndim - (op.name == "select_scatter"):
        return NotImplemented
    return level.wrap(run(op, level.full(x), level.full(source), shifted(x, dim), *rest))


@rule("diagonal_scatter")
def _scatter_diagonal(level: Any, op: Any, args: Any) -> Any:
    x, source, offset, dim1, dim2 = args
    if source.ndim != x.ndim - 1:
        return NotImplemented
    return level.wrap(run(op, level.full(x), level.full(source), offset, shifted(x, dim1), shifted(x, dim2)))


@rule("masked_fill_tensor")
def _masked_fill(level: Any, op: Any, args: Any) -> Any:
    x, mask, value = args
    if logical(level, mask) > x.ndim:
        return NotImplemented
    value = value.to(x.dtype) if not level.has(value) else level.wrap(level.front(value).to(x.dtype))
    a, m, v = aligned(level, (level.wrap(level.full(x)), mask, value))
    return level.wrap(_call("where", m, v, a))


@rule("places_in_sorted")
def _search(level: Any, op: Any, args: Any) -> Any:
    sequence, values, out_int32, right, sorter = args
    if sorter is not None or sequence.ndim != 1:
        return NotImplemented
    if not level.has(sequence):
        return level.wrap(run(op, sequence, level.front(values), out_int32, right, None))
    found = run(op, level.front(sequence), level.full(values).reshape(level.size, -1), out_int32, right, None)
    return level.wrap(found.reshape(level.size, *values.shape))
