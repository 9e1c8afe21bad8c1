"""Advanced indexing: the ops that pick and put elements where index tensors say."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from flambeau_kernels import hot_calls
from flambeau_kernels.cpu.indexing import scatter
from flambeau_kernels.cpu.reductions.softmax import widen

from ... import _arrays, _state, dtypes
from ..._arrays import MetaArray, ndarray
from ...tensor import Tensor, bump
from .._batching import numbers, run
from .._spec import (
    EXACTLY,
    FUNCTION,
    INPLACE,
    LIKE,
    METHOD,
    NEVER,
    Op,
    check_writable,
    placed,
    primitive,
    refuse_shared,
    sum_tensor_to,
)
from ..shapes.expand import broadcast_shapes
from ._keys import BOOL, INT64, NUMPY_UP_TO, array_key, explain_indices, tensors_at


@primitive(
    surface=0, index_tensors="indices", samples="x(4, 3), (i(4, 5), i(3, 5)); x(4, 3), (None, i(3, 2))", cuda="moves.index",
    costly=True,
)
def index(input, indices):
    """The elements of `input` at `indices`, one index tensor (or None for all) per dimension."""


@index.put_off_within("indices")
def _are_places(input, indices):
    shape = input.shape
    given = [(k, n) for k, n in zip(indices, shape, strict=False) if k is not None]
    if len(indices) > len(shape) or not all(k.dtype in (dtypes.int32, dtypes.int64) and k.numel() > 0 for k, _ in given):
        return None
    return [(-n, n) for _, n in given]


@index.in_pieces
def _index_pieces(asked):
    """Divided along what is not indexed, or along places."""
    keys = [*asked["indices"], *[None] * (asked["input"].ndim - len(asked["indices"]))]
    given = [k for k in keys if k is not None]
    wide, first, at = max([k.ndim for k in given], default=0), _place_of_indexed(keys), asked.names.index
    places = [i for i, name in enumerate(asked.names) if name == "indices"]
    ways = []
    for d, key in enumerate(keys):
        if key is None:
            before = sum(k is None for k in keys[:d])
            ways.append(asked.way({at("input"): d}, before + (wide if before >= first else 0)))
    for d in range(wide):
        cut = {i: d - (wide - k.ndim) for i, k in zip(places, given, strict=True) if k.ndim >= wide - d and k.shape[d - wide] != 1}
        if cut and all(k.dtype.name != "bool" for k in given):
            ways.append(asked.way(cut, first + d))
    return ways


def _place_of_indexed(keys: Any) -> int:
    """Where the dimensions of places come in the result: at the first of them, or in front if others lie between."""
    at = [d for d, k in enumerate(keys) if k is not None]
    return at[0] if at and at[-1] - at[0] + 1 == len(at) else 0


@index.kernel
def _index(a, indices):
    try:
        return pick(a, array_key(indices))
    except IndexError:
        raise explain_indices(a.shape, indices) from None


@index.shape
def index_shape(input, indices):
    try:
        joint = broadcast_shapes(*(tuple(k.shape) for k in indices if k is not None))
    except RuntimeError:
        raise explain_indices(tuple(input.shape), indices) from None
    places, a = [None if k is None else k._looks._array for k in indices], input._looks._array
    shape, operands = _spread(a, places, joint)
    if _arrays.is_c_contiguous(a):
        return shape, input.dtype
    return shape, input.dtype, LIKE(shape, a.itemsize, operands)


def _spread(a: Any, places: Any, joint: tuple[int, ...]) -> tuple[tuple[int, ...], list[MetaArray]]:
    """The shape of what index arrays (or None) with the shape `joint` together pick of `a`; `a` and them with its dimensions.

    The dimensions of the indices are where they are if those are next to each other, else in front.
    """
    rest = [d for d in range(a.ndim) if d >= len(places) or places[d] is None]
    at = _place_of_indexed(places)
    before, behind = rest[:at], rest[at:]

    def shaped(inner: Any, strides: Any) -> MetaArray:
        steps = (*[strides[d] for d in before], *inner, *[strides[d] for d in behind])
        return MetaArray(shape, a.dtype, steps)

    shape = (*[a.shape[d] for d in before], *joint, *[a.shape[d] for d in behind])
    operands = [shaped([0] * len(joint), a.strides)]
    for k in places:
        if k is not None:
            steps = [0] * (len(joint) - k.ndim) + [s if n != 1 else 0 for s, n in zip(k.strides, k.shape, strict=True)]
            operands.append(shaped(steps, [0] * a.ndim))
    return shape, operands


def pick(a: Any, key: Any) -> Any:
    """``a[key]`` for a tuple of index arrays, masks, slices of all and at most one Ellipsis, in PyTorch's order of memory."""
    made = scatter.pick(a, key)
    if a.flags.c_contiguous or made.ndim < 2 or not made.size:
        return made
    places: list[Any] = []
    for k in key:
        if k is Ellipsis:
            places += [None] * (a.ndim - len(key) + 1)
        elif k.__class__ is not ndarray:
            places.append(None)
        else:
            places += k.nonzero() if k.dtype is BOOL else [k]
    places += [None] * (a.ndim - len(places))
    joint = np.broadcast_shapes(*[k.shape for k in places if k is not None])
    _, operands = _spread(a, places, joint)
    return placed(made, LIKE, operands)


@index.vjp
def _index_vjp(grad, input_shape, indices):
    return (index_put.function(grad.new_zeros(input_shape), indices, grad, True),)


@index.vjp_on_arrays
def _index_vjp_on_arrays(grad, input_shape, indices):
    full_grad = np.zeros(input_shape, grad.dtype)
    add_at(full_grad, array_key(indices), grad)
    return (full_grad,)


def _index_rows(level: Any, k: Tensor, ndim: int) -> Tensor:
    if not level.has(k):
        return k
    value = level.front(k)
    return value.reshape(level.size, *(1,) * (ndim - k.ndim), *k.shape)


@index.batch
def _index_batch(level: Any, op: Any, args: Any) -> Any:
    x, indices = args
    given = [k for k in indices if k is not None]
    wide = max(k.ndim for k in given)
    place = _place_of_indexed(indices)
    if not any(map(level.has, given)):
        made = run(op, level.front(x), (None, *indices))
        # With slices between them the index dimensions come out first, before the batch.
        return level.wrap(made, 0 if _place_of_indexed((None, *indices)) else wide)
    lined = [k if k is None else _index_rows(level, k, wide) for k in indices]
    if not level.has(x):
        return level.wrap(run(op, x, tuple(lined)), place)
    made = run(op, level.front(x), (numbers(level, wide), *lined))
    if place:  # the example's index dimensions belong at `place`, not in front
        made = made.movedim(list(range(1, 1 + wide)), list(range(1 + place, 1 + place + wide)))
    return level.wrap(made)


def add_at(target: Any, key: Any, values: Any) -> None:
    """``target[key] += values``, counting repeated places, in row-major order of `values` (so the same bits every time)."""
    if target.size < NUMPY_UP_TO or not target.flags.c_contiguous:
        if target.dtype.isbuiltin == 1 and target.dtype.char != "e":
            np.add.at(target, key, values)
            return
        wide = widen(target)
        np.add.at(wide, key, widen(np.asarray(values)))
        target[...] = wide.astype(target.dtype)
        return
    if _slices_added(target, key, values):
        return
    # One-dimensional accumulation is several times faster: the same sums at the same places, numbered.
    if len(key) == target.ndim and all(type(k) is np.ndarray and k.dtype is INT64 for k in key):
        places = _numbered(target.shape, key)
    else:
        places = np.arange(target.size).reshape(target.shape)[key]
    scatter.add_at(target.reshape(-1), places.reshape(-1), np.broadcast_to(values, places.shape).reshape(-1))


def _slices_added(target: Any, key: Any, values: Any) -> bool:
    """Add the slices `values` to those of `target` that one index array names, if a kernel does that."""
    dim = 0 if len(key) == 1 else scatter.dim_of_slices(key, target.ndim)
    if dim is None or key[-1].__class__ is not ndarray or key[-1].dtype is not INT64:
        return False
    shape = (*target.shape[:dim], key[-1].size, *target.shape[dim + 1 :])
    if values.size != math.prod(shape):               # broadcast
        return False
    return scatter.combine_slices(target, dim, key[-1].reshape(-1), values.reshape(shape), "sum", True)


def _numbered(shape: Any, key: Any) -> Any:
    """The flat positions of the elements that one index array per dimension names. Raises: IndexError for some that do not fit."""
    places: Any = 0
    step = 1
    for n, k in zip(reversed(shape), reversed(key), strict=True):
        if k.size and not scatter.in_range(k, -n, n):
            raise IndexError
        try:
            places = places + np.where(k < 0, k + n, k) * step
        except ValueError:  # shapes that do not broadcast
            raise IndexError from None
        step *= n
    return places


def _check_put(input, indices, values, accumulate):
    expanded: list[Any] = []
    for k in indices:
        if k is None:
            expanded.append(None)
        else:
            expanded += tensors_at(k, input._array.shape, len(expanded), count_stored(values))
    if len(expanded) > input.ndim:
        raise IndexError(f"too many indices for tensor of dimension {input.ndim} (got {len(expanded)})")
    if values.dtype is not input.dtype:
        raise RuntimeError(
            f"index_put: Index put requires the source and destination dtypes match, got {input.dtype} for the destination and "
            f"{values.dtype} for the source."
        )
    return input, tuple(expanded), values, bool(accumulate)


@primitive(
    surface=FUNCTION | METHOD | INPLACE,
    tensors=("input", "values"),
    check=_check_put,
    index_tensors="indices",
    overlap=(EXACTLY, NEVER),
    memory=LIKE,
    ordering=("input",),
    samples="x(4, 3), (fb.tensor([0, 2]),), x(2, 3); x(4, 3), (i(4, 5), i(3, 5)), x(5), True",
    may_write_expanded=True,
    cuda="moves.index_put",
)
def index_put(input, indices, values, accumulate=False):
    """`input` with `values` (broadcast) stored at `indices`, or added there if `accumulate`.

    Args:
        indices: a tuple with one index tensor or mask per dimension, from the first on; None takes all of a dimension.
    """


index_put.shown_as(hides="values_shape")


@index_put.in_pieces
def _index_put_pieces(asked):
    """Divided along what is not indexed."""
    keys = [*asked["indices"], *[None] * (asked["input"].ndim - len(asked["indices"]))]
    wide, first = max([k.ndim for k in keys if k is not None], default=0), _place_of_indexed(keys)
    shape, values = asked["input"].shape, asked["values"]
    ndim = sum(k is None for k in keys) + wide
    ways = []
    for d, key in enumerate(keys):
        if key is not None:
            continue
        before = sum(k is None for k in keys[:d])
        own = before + (wide if before >= first else 0) - (ndim - values.ndim)
        cut = {0: d}
        if own >= 0 and values.shape[own] == shape[d] != 1:
            cut[asked.names.index("values")] = own
        ways.append(asked.way(cut, d))
    return ways


def _store(target: Any, indices: Any, values: Any, accumulate: bool) -> None:
    key = array_key(indices)
    try:
        if accumulate:
            add_at(target, key, values)
        else:
            target[key] = values
    except (IndexError, ValueError):
        raise explain_indices(target.shape, indices, values) from None


@index_put.kernel
def _index_put(a, indices, values, accumulate):
    made = np.array(a)
    _store(made, indices, values, accumulate)
    return made


@index_put.shape
def _index_put_shape(input, indices, values, accumulate):
    return input.shape, input.dtype


@index_put.vjp
def _index_put_vjp(grad, indices, values_shape, accumulate):
    def kept() -> Tensor:
        return grad if accumulate else index_put.function(grad, indices, grad.new_zeros(()), False)

    return (kept, lambda: sum_tensor_to(index.function(grad, indices), values_shape))


def _put_operands(level: Any, args: Any) -> tuple[Any, ...]:
    """Operands that store every example's values with its number as a further index."""
    x, indices, values, accumulate = args
    given = [k for k in indices if k is not None]
    wide, place = max(k.ndim for k in given), _place_of_indexed(indices)
    lined = [None if k is None else level.full(k).reshape(level.size, *(1,) * (wide - k.ndim), *k.shape) for k in indices]
    ndim = wide + x.ndim - len(given)
    stored = level.full(values).reshape(level.size, *(1,) * (ndim - values.ndim), *values.shape)
    if place:  # dimensions of the index come out first here, and at `place` of an example
        stored = stored.movedim(list(range(1 + place, 1 + place + wide)), list(range(1, 1 + wide)))
    return level.full(x), (numbers(level, wide), *lined), stored, accumulate


index_put.batch_operands = _put_operands


@index_put.batch
def _index_put_batch(level: Any, op: Any, args: Any) -> Any:
    x, indices, values, _ = args
    given = [k for k in indices if k is not None]
    if values.ndim > max(k.ndim for k in given) + x.ndim - len(given):
        return NotImplemented
    return level.wrap(run(op, *_put_operands(level, args)))


_recorded_put = partial(Op.run_inplace, index_put)


def _put_in_place(target: Any, indices: Any, values: Any, accumulate: Any = False) -> Tensor:
    """`index_put_`: straight into memory where nothing is recorded."""
    if not isinstance(target, Tensor) or not isinstance(values, Tensor) or needs_history(target, values) or target._lacks_values:
        return _recorded_put(target, indices, values, accumulate)
    check_writable(index_put, target)
    _, places, _, accumulate = _check_put(target, indices, values, accumulate)
    refuse_shared(index_put, target, target._array.shape, (None, indices, values))
    if target._array.__class__ is not ndarray:
        from ..._cuda.kernels.moves import put_in_place

        put_in_place(target._array, places, values._array, accumulate)
        bump(target)
        return target
    source = np.array(values._array) if np.may_share_memory(values._array, target._array) else values._array
    _store(target._array, places, source, accumulate)
    bump(target)
    return target


index_put.inplace_rule = _put_in_place


@index_put.plan(stores=True)
def _index_put_planned(a, indices, values, accumulate):
    if indices.__class__ is not tuple or values.dtype is not a.dtype:
        return False
    key = tuple([k._array for k in indices])
    if a.dtype is INT64 and any(np.may_share_memory(a, k) for k in key):
        return False                                   # which is refused elsewhere
    if accumulate and len(key) == 2 and scatter.add_at_pairs(a, *key, values):
        return True
    for k in key:
        if k.dtype is not INT64 or k.size >= NUMPY_UP_TO:
            return accumulate and len(key) == 1 and a.ndim == 1 and scatter.combine_along(a, 0, key[0], values, "sum")
    if accumulate:
        if len(key) == 1:
            if hot_calls.add_slices(a, 0, key[0], values) is not None:
                return True
            if _fits_rows(a, key[0], values) and (
                scatter.sum_rows_into(a, 0, key[0], values) or scatter.combine_slices(a, 0, key[0], values, "sum")
            ):
                return True
        return scatter.combine_by_numpy(a, key, values, "sum")
    a[key] = values
    return True


def _fits_rows(a: Any, at: Any, values: Any) -> bool:
    """Whether there is a row of `values` for each of the places `at`, a vector of rows of `a` that count from the front."""
    if at.ndim != 1 or not at.size or values.shape != (at.size, *a.shape[1:]) or np.may_share_memory(a, values):
        return False
    return scatter.in_range(at, 0, a.shape[0])


def needs_history(self: Tensor, value: Tensor) -> bool:
    return _state.grad_enabled() and (self._node is not None or value._node is not None)


def count_stored(values: Tensor) -> int:
    """How many elements a mask on meta is taken to pick, where `values` are stored: as many as there are, or one for all."""
    return values.shape[0] if values.ndim else 1
