"""Indexing: ``x[...]``, ``x[...] = y`` and the operations that pick and put elements by index."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from flambeau_kernels import hot_calls
from flambeau_kernels.cpu.indexing import scatter
from flambeau_kernels.cpu.reductions.softmax import widen

from ... import _arrays, _state, dtypes
from ..._arrays import MetaArray, address, ndarray, restrided
from ..._kinds import KindArray
from ..._symbolic import SymInt, slice_bounds
from ...autograd import tape
from ...tensor import Tensor, bump, one_memory, wrap
from .. import _dispatch
from .._batching import numbers, run
from .._dispatch import SINGLE, may_override
from .._spec import (
    EXACTLY,
    FUNCTION,
    INPLACE,
    LIKE,
    METHOD,
    NEVER,
    Op,
    check_recorded,
    check_writable,
    composite,
    placed,
    primitive,
    refuse,
    refuse_shared,
    sum_tensor_to,
    view,
)
from .._spec.nodes import record_as
from .._spec.view import put_part
from ..shapes.expand import broadcast_shapes
from ..shapes.reshape import view_shape
from ..shapes.slices import select, slice_dim
from ..shapes.squeeze import unsqueeze
from ._keys import (
    BOOL,
    INT64,
    NUMPY_UP_TO,
    array_key,
    basic_key,
    explain_indices,
    is_mask,
    list_index,
    normalize,
    places_of,
    plain_key,
    tensors_at,
)

OVERRIDING, IN_FORCE = _state.OVERRIDING, _state.IN_FORCE
_state.share(globals(), "OVERRIDING", "IN_FORCE")  # keeps them as they are there
_new = object.__new__


@view(surface=0, samples="of getitem_op", public_name="index")
def basic_index(input, key):
    """``input[key]`` for a tuple of ints, slices, None and Ellipsis: a view."""


@basic_index.kernel
def _basic(a, key):
    if type(a) is MetaArray:
        return _meta_basic(a, key)
    try:
        made = a[key]
    except IndexError as error:
        raise IndexError(_explain(error, a.shape, key)) from None
    made = made if type(made) is type(a) else a[(*key, ...)]
    return _with_steps(made, a, key) if None in key else made


@basic_index.decomposition
def _basic_parts(input: Tensor, key: Any) -> Tensor:
    made, d = input, 0
    for k in key:
        if k is Ellipsis:
            d += input.ndim - sum(x is not None and x is not Ellipsis for x in key)
        elif k is None:
            made, d = unsqueeze.function(made, d), d + 1
        elif k.__class__ is slice:
            if k != slice(None) and d < made.ndim:
                made = slice_dim.function(made, d, *slice_bounds(k, made.shape[d]))
            d += 1
        else:
            made = select.function(made, d, k)
    return view_shape.function(input, input.shape) if made is input else made


def _with_steps(made: Any, a: Any, key: Any) -> Any:
    """`made`, ``a[key]``, with the strides `unsqueeze` gives to new dimensions, where numpy writes 0."""
    if made.size == a.size and a.__class__ is ndarray and a.flags.c_contiguous and a.size:
        return a.reshape(made.shape)                   # nothing was left out
    strides, at, d = list(made.strides), 0, 0
    for k in key:
        if k is None:
            strides[at] = a.shape[d] * a.strides[d] if d < a.ndim else a.itemsize
            at += 1
        elif k is Ellipsis:
            skipped = a.ndim - sum(x is not None and x is not Ellipsis for x in key)
            at, d = at + skipped, d + skipped
        else:
            at, d = at + (k.__class__ is slice), d + 1
    return restrided(made, made.shape, strides)


def _explain(error: IndexError, shape: Any, key: Any) -> str:
    text = str(error)
    if "too many indices" in text:
        return f"too many indices for tensor of dimension {len(shape)}"
    d = 0
    for k in key:
        if k is None or k is Ellipsis:
            continue
        if isinstance(k, (int, np.integer)) and d < len(shape) and not -shape[d] <= k < shape[d]:
            return f"index {k} is out of bounds for dimension {d} with size {shape[d]}"
        d += 1
    return f"{text} (tensor of shape {tuple(shape)})"


def _meta_basic(a: MetaArray, key: Any) -> MetaArray:
    """The same index on an array of that shape without memory of that size."""
    bounds = [x for k in key if k.__class__ is slice for x in (k.start, k.stop)]
    if any(n.__class__ is SymInt for n in (*a.shape, *a.strides, a.offset, *key, *bounds)):
        return _meta_steps(a, key)
    stand_in = np.lib.stride_tricks.as_strided(np.empty(1, f"V{a.itemsize}"), a.shape, a.strides)
    try:
        shown = stand_in[key if Ellipsis in key else (*key, ...)]
    except IndexError as error:
        raise IndexError(_explain(error, a.shape, key)) from None
    if shown.size and shown.ndim:
        made = restrided(a, shown.shape, shown.strides, address(shown) - address(stand_in))
        return _with_steps(made, a, key) if None in key else made
    return _meta_steps(a, key)                        # numpy forgets where an empty array begins


def _meta_steps(a: MetaArray, key: Any) -> MetaArray:
    """The index step by step. Raises: IndexError."""
    taken = sum(k is not None and k is not Ellipsis for k in key)
    if taken > a.ndim:
        raise IndexError(f"too many indices for tensor of dimension {a.ndim}")
    shape: list[Any] = []
    strides: list[Any] = []
    skip, d = 0, 0
    for k in key:
        if k is None:
            shape.append(1)
            strides.append(a.shape[d] * a.strides[d] if d < a.ndim else a.itemsize)
        elif k is Ellipsis:
            skipped = a.ndim - taken
            shape += a.shape[d : d + skipped]
            strides += a.strides[d : d + skipped]
            d += skipped
        elif k.__class__ is slice:
            start, stop, step = slice_bounds(k, a.shape[d])
            shape.append(len(range(start, stop, step)) if isinstance(start, int) and isinstance(stop, int) else -((start - stop) // step))
            strides.append(a.strides[d] * step)
            skip, d = skip + start * a.strides[d], d + 1
        else:
            if not -a.shape[d] <= k < a.shape[d]:
                raise IndexError(f"index {k} is out of bounds for dimension {d} with size {a.shape[d]}")
            skip, d = skip + (k + a.shape[d] if k < 0 else k) * a.strides[d], d + 1
    return restrided(a, (*shape, *a.shape[d:]), (*strides, *a.strides[d:]), skip)


def _takes_away(key: Any) -> Any:
    """The index that takes away the dimensions of size 1 which `key` puts in; None if that does anything else."""
    if None not in key or not all(k is None or k is Ellipsis or k == _EVERYTHING for k in key):
        return None
    return tuple([0 if k is None else k for k in key])


@basic_index.vjp
def _basic_vjp(grad, input_shape, key):
    back = _takes_away(key)
    if back is not None:
        return (basic_index.function(grad, back),)
    full_grad = grad.new_zeros(input_shape)
    basic_index.function(full_grad, key).copy_(grad)
    return (full_grad,)


@basic_index.vjp_on_arrays
def _basic_raw(grad, input_shape, key):
    back = _takes_away(key)
    if back is not None:
        return (grad[back],)
    full_grad = np.zeros(input_shape, grad.dtype)
    part = full_grad[key]
    if part.__class__ is ndarray:
        put_part(part, grad)
    else:                                             # one element is no view
        full_grad[key] = grad
    return (full_grad,)


basic_index.shown_as("SelectBackward0")


@basic_index.batch
def _basic_index_batch(level: Any, op: Any, args: Any) -> Any:
    x, key = args
    taken = sum(k is not None and k is not Ellipsis for k in key)
    if taken > x.ndim:
        raise IndexError(f"too many indices for tensor of dimension {x.ndim}")
    return level.wrap(run(op, level.front(x), (slice(None), *key)))


def _index_name(key: Any) -> str:
    """The last step of the index, by PyTorch's names."""
    if len(key) == 1 and key[0].__class__ is slice:
        return "SliceBackward0"
    for k in reversed(key):
        if k.__class__ is int:
            return "SelectBackward0"
        if k is None:
            return "UnsqueezeBackward0"
        if k.__class__ is slice and k != slice(None):
            return "SliceBackward0"
    return "AliasBackward0"


def _index_saved(node: Any) -> dict[str, Any]:
    """What PyTorch's node of the last step of the index has saved."""
    shape, key = node.saved
    sizes, steps = list(shape), []                     # of the operand of each step, and what that does
    d = 0
    for k in key:
        if k is Ellipsis:
            d += len(shape) - sum(x is not None and x is not Ellipsis for x in key)
            continue
        if k is None:
            steps.append((tuple(sizes), {"dim": d}))
            sizes.insert(d, 1)
        elif k.__class__ is slice and k != slice(None):
            bounds = {"start": 0 if k.start is None else k.start, "end": _LAST if k.stop is None else k.stop, "step": k.step or 1}
            steps.append((tuple(sizes), {"dim": d, **bounds}))
            sizes[d] = len(range(*k.indices(sizes[d])))
        elif k.__class__ is int:
            steps.append((tuple(sizes), {"dim": d, "index": k}))
            del sizes[d]
            continue
        d += 1
    before, saved = steps[-1] if steps else (tuple(shape), {})
    return {"input_shape": before, **saved}


_LAST = (1 << 63) - 1
_EVERYTHING = slice(None)
basic_index.shown_by(
    "Node if (last := key[-1] if key else 0).__class__ is int else "
    "SLICE if last.__class__ is slice and (last.start is not None or last.stop is not None) else titled[name_of(key)]",
    SLICE=basic_index.classes_by_title["SliceBackward0"], name_of=_index_name,
)  # fmt: skip
basic_index.node_class.saved_by_name = _index_saved
basic_index.node_class.more_than_rule = True
_BASIC = (int, SymInt, slice, type(None), type(Ellipsis))


def getitem(self: Tensor, key: Any) -> Tensor:
    """``self[key]``: a view for ints, slices, None and Ellipsis; a copy where tensors, lists or masks take part.

    Raises: IndexError out of range, for too many indices and for masks that do not fit.
    """
    if (IN_FORCE or OVERRIDING and self.__class__ is not Tensor and self.__class__ not in SINGLE) and may_override(self, key):
        return _dispatch.call(getitem_op, (self, key))
    kind = key.__class__
    if self._array.__class__ is ndarray:
        try:
            if kind is int:
                return basic_index.of(self, self._array[key, ...], ((key,),))
            if key is None:
                return self.unsqueeze(0)
            if kind is Tensor and not key._array.ndim and key._array.dtype is INT64 and key._array.__class__ is ndarray:
                key = key._array.item()
                return basic_index.of(self, self._array[key, ...], ((key,),))
            keys = key if kind is tuple else (list_index(key) if kind is list else key,)
            there = basic_key(keys)
            if there is not None:
                made = self._array[there]
                return basic_index.of(self, made if None not in keys else _with_steps(made, self._array, keys), (keys,))
            made = _picked(self, keys)
            if made is not None:
                return made
        except (IndexError, OverflowError):
            pass  # the checks below raise an error that names the op
    if (OVERRIDING or IN_FORCE) and may_override(key):             # what has answered so far takes plain Tensors alone
        return _dispatch.call(getitem_op, (self, key))
    return _getitem(self, key)


def recorded(op: Any, array: Any, parents: Any, saved: Any, versions: Any = ()) -> Tensor:
    """The result whose history is that of `op`, as `record_as` says."""
    made = wrap(array)
    if _state.GRAD or _state.local.grad:
        record_as(op, made, parents, saved, versions)
    return made


def _picked(self: Tensor, key: tuple[Any, ...]) -> Tensor | None:
    """What a key of index vectors, masks, numbers and slices picks; None for another key."""
    recording = self._node is not None and (_state.GRAD or _state.local.grad)
    if len(key) == 1 and key[0].__class__ is Tensor:
        k = key[0]._array
        if k.__class__ is ndarray and k.ndim and (k.dtype is INT64 or k.dtype is BOOL and k.size and not recording):
            made = _pick(self._array, (k,))
            return recorded(index, made, (self._node,), (self._array.shape, key), (None, (key[0]._storage,))) if recording else wrap(made)
    if len(key) == 2 and not recording and key[0].__class__ is Tensor is key[1].__class__:
        made = hot_calls.pick_pairs(self._array, key[0]._array, key[1]._array)
        if made is not None:
            return wrap(made)
    split = plain_key(key)
    if split is None:
        return None
    basic, there, dots = split
    a = self._array
    if basic is not None:
        basic = (*basic, ...) if dots < 0 else basic
    if not recording:
        return wrap(_pick(a if basic is None else a[basic], there))
    if basic is not None:
        if None in basic:
            return None
        self = basic_index.of(self, a[basic], (basic,))
        a = self._array
    places = places_of(there, dots, a.ndim)
    indices = tuple([None if k is None else wrap(k) for k in places])
    # Overwriting a tensor of the key before backward is to be noticed.
    theirs = tuple([k._storage for k in key if k.__class__ is Tensor])
    return recorded(index, _pick(a, there), (self._node,), (a.shape, indices), (None, theirs))


def _getitem(self: Tensor, key: Any) -> Tensor:
    kind = key.__class__
    if kind is int and self._array.ndim == 0:
        raise IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` in Python to convert a 0-dim tensor to a number")
    key = normalize(key)
    if all(isinstance(k, _BASIC) for k in key):
        return _view_at(self, _checked(key))
    part, indices = split_key(self, key)
    return index.function(part, indices)


def _view_at(self: Tensor, key: tuple[Any, ...]) -> Tensor:
    return basic_index.function(self, key) if _state.IN_FORCE and _state.interpreted() else basic_index.run(self, key)


def _check_slices(key: Any) -> None:
    for k in key:
        if k.__class__ is slice and k.step is not None and k.step <= 0:
            raise ValueError("step must be greater than zero")


def _checked(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """A basic key with at most one Ellipsis: a second one stands for no dimensions."""
    _check_slices(key)
    if key.count(Ellipsis) <= 1:
        return key
    first = key.index(Ellipsis)
    return tuple(k for i, k in enumerate(key) if k is not Ellipsis or i == first)


@composite(
    surface=0,
    samples="x(4, 3), (1, slice(None)); x(4, 3), (slice(0, 4, 2), None, ...); x(4, 3), fb.tensor([0, 3, 0])",
    public_name="index",
)
def getitem_op(input, key):
    """``input[key]``."""
    return _getitem(input, key)


# -- keys ----------------------------------------------------------------------------------------------------------------


def split_key(self: Tensor, key: tuple[Any, ...], count: int | None = None) -> tuple[Tensor, tuple[Any, ...]]:
    """The view that the basic part of a normal `key` takes, and one index tensor (or None) per dimension of it.

    Masks become the index tensors of their non-zero places, `count` of them on meta. Numbers select first, so that they do
    not count as indices.
    Raises: IndexError for too many indices, masks that do not fit and index dtypes that are none.
    """
    shape = self._array.shape
    taken = sum(k._array.ndim if is_mask(k) else k is not None and k is not Ellipsis for k in key)
    if taken > len(shape):
        raise IndexError(f"too many indices for tensor of dimension {len(shape)}")
    rest = len(shape) - taken
    basic: list[Any] = []
    indices: list[Any] = []
    d = 0
    for k in (*key, Ellipsis):
        if k is Ellipsis:  # the first one takes what is left, those after it nothing
            basic += [slice(None)] * rest
            indices += [None] * rest
            d += rest
            rest = 0
        elif isinstance(k, Tensor):
            places = tensors_at(k, shape, d, count)
            basic += [None] if is_mask(k) and not k._array.ndim else [slice(None)] * len(places)
            indices += places
            d += k._array.ndim if is_mask(k) else 1
        else:
            basic.append(k)
            if k.__class__ is not int and k.__class__ is not SymInt:
                indices.append(None)
            d += k is not None
    _check_slices(basic)
    trivial = len(basic) == len(shape) and all(k.__class__ is slice and k == slice(None) for k in basic)
    return self if trivial else _view_at(self, tuple(basic)), tuple(indices)


# -- picking -------------------------------------------------------------------------------------------------------------


@primitive(
    surface=0, index_tensors="indices", samples="x(4, 3), (i(4, 5), i(3, 5)); x(4, 3), (None, i(3, 2))", cuda="moves.index",
    costly=True,
)
def index(input, indices):
    """The elements of `input` at `indices`, one index tensor (or None for all) per dimension."""


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
        return _pick(a, array_key(indices))
    except IndexError:
        raise explain_indices(a.shape, indices) from None


@index.shape
def _index_shape(input, indices):
    try:
        joint = broadcast_shapes(*(tuple(k.shape) for k in indices if k is not None))
    except RuntimeError:
        raise explain_indices(tuple(input.shape), indices) from None
    places = [None if k is None else k._array for k in indices]
    shape, operands = _spread(input._array, places, joint)
    if _arrays.is_c_contiguous(input._array):
        return shape, input.dtype
    return shape, input.dtype, LIKE(shape, input._array.itemsize, operands)


def _spread(a: Any, places: Any, joint: tuple[int, ...]) -> tuple[tuple[int, ...], list[MetaArray]]:
    """The shape of what index arrays (or None) with the shape `joint` together pick of `a`; `a` and them with its dimensions.

    The dimensions of the indices are where they are if those are next to each other, else in front.
    """
    given = [d for d, k in enumerate(places) if k is not None]
    rest = [d for d in range(a.ndim) if d not in given]
    at = given[0] if given and given[-1] - given[0] + 1 == len(given) else 0
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


def _pick(a: Any, key: Any) -> Any:
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
def _index_raw(grad, input_shape, indices):
    full_grad = np.zeros(input_shape, grad.dtype)
    add_at(full_grad, array_key(indices), grad)
    return (full_grad,)


def _index_place(indices: Any) -> int:
    """Where the dimensions of the index tensors come out: at the first, or in front when slices stand between them."""
    at = [d for d, k in enumerate(indices) if k is not None]
    return at[0] if at[-1] - at[0] + 1 == len(at) else 0


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
    place = _index_place(indices)
    if not any(map(level.has, given)):
        made = run(op, level.front(x), (None, *indices))
        # With slices between them the index dimensions come out first, before the batch.
        return level.wrap(made, wide if place == 0 and indices[0] is None else 0)
    lined = [k if k is None else _index_rows(level, k, wide) for k in indices]
    if not level.has(x):
        return level.wrap(run(op, x, tuple(lined)), place)
    number = wrap(np.arange(level.size).reshape(-1, *(1,) * wide))
    made = run(op, level.front(x), (number, *lined))
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
    # One-dimensional accumulation is several times faster: the same sums at the same places, numbered.
    if len(key) == target.ndim and all(type(k) is np.ndarray and k.dtype is INT64 for k in key):
        places = _numbered(target.shape, key)
    else:
        places = np.arange(target.size).reshape(target.shape)[key]
    scatter.add_at(target.reshape(-1), places.reshape(-1), np.broadcast_to(values, places.shape).reshape(-1))


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


# -- putting -------------------------------------------------------------------------------------------------------------


def _check_put(input, indices, values, accumulate):
    expanded: list[Any] = []
    for k in indices:
        if k is None:
            expanded.append(None)
        else:
            expanded += tensors_at(k, input._array.shape, len(expanded), _count_stored(values))
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
    wide, place = max(k.ndim for k in given), _index_place(indices)
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
    for k in key:
        if k.dtype is not INT64 or k.size >= NUMPY_UP_TO:
            return accumulate and len(key) == 1 and a.ndim == 1 and scatter.combine_along(a, 0, key[0], values, "sum")
    if accumulate:
        if len(key) == 1:
            if hot_calls.add_slices(a, 0, key[0], values) is not None:
                return True
            if _fits_rows(a, key[0], values) and scatter.sum_rows_into(a, 0, key[0], values):
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


# -- assignment ----------------------------------------------------------------------------------------------------------


def setitem(self: Tensor, key: Any, value: Any) -> None:
    """``self[key] = value``, broadcasting `value`, a number or Tensor.

    Raises: IndexError as `getitem`, RuntimeError for shapes and values that do not fit, TypeError for other values.
    """
    if (IN_FORCE or OVERRIDING and self.__class__ is not Tensor and self.__class__ not in SINGLE) and may_override(self, key, value):
        _dispatch.call_setitem(self, key, value)
        return
    if self._node is None and self._array.__class__ is ndarray:
        try:
            if _stored(self, key, value):
                return
        except (IndexError, ValueError, TypeError, OverflowError):
            pass  # the checks below raise an error that names the op
    if (OVERRIDING or IN_FORCE) and may_override(key, value):
        _dispatch.call_setitem(self, key, value)
        return
    _setitem(self, key, value)


def _stored(self: Tensor, key: Any, value: Any) -> bool:
    """Whether this was a plain assignment without history, which is done then."""
    if _state.MARKED and self._storage[0].__class__ is not int:
        return False
    if key.__class__ is list:
        key = list_index(key)
        if key.__class__ is not Tensor:
            return False
    a = self._array
    d = a.dtype
    kind = value.__class__
    related = False
    if kind is Tensor:
        if value._node is not None or value._array.__class__ is not ndarray:
            return False
        own = value._array.dtype
        if own is not d and (own.char, d.char) not in _STORED_AS:
            return False
        related = one_memory(value, self)
        value = value._array
    elif kind is float and d.char in "eE":
        value = _number_tensor(self, value)._array
    elif d.char not in (_FLOATS if kind is float else _NUMBERS if kind is int else ""):
        return False
    kind = key.__class__
    if kind is int:
        there: Any = (key, ...)
    elif key is Ellipsis:
        there = (...,)
    elif kind is Tensor and _is_array_key(key._array):
        there = (key._array,)
    else:
        keys = key if kind is tuple else (key,)
        there = basic_key(keys)
        if there is None:
            split = plain_key(keys)
            if split is None:
                return False
            basic, there, dots = split
            if basic is not None:
                a = a[(*basic, ...) if dots < 0 else basic]
    if not a.flags.writeable or 0 in a.strides:
        return False
    if (related or d is INT64 or d is BOOL) and _overlap(a, there, value):  # which is told elsewhere
        return False
    if (value.__class__ is not ndarray or not value.ndim) and _is_full_mask(there, a):
        if a.size >= NUMPY_UP_TO:
            scatter.fill_masked_into(a, there[0], value if value.__class__ is ndarray else d.type(value))
        else:
            np.putmask(a, there[0], value)
    else:
        a[there] = value
    record = self._storage
    record[0] += 1
    record[1] = _state.next_seq()
    return True


def _is_array_key(k: Any) -> bool:
    """Whether numpy reads the array of a key as PyTorch reads the tensor: positions, or a mask of some elements."""
    return k.__class__ is ndarray and k.ndim > 0 and (k.dtype is INT64 or k.dtype is BOOL and k.size > 0)


def _overlap(a: Any, there: Any, value: Any) -> bool:
    """Whether what is written, ``a[there]``, may share memory with the value or with an array of the key."""
    keys = [k for k in there if k.__class__ is ndarray]
    if value.__class__ is ndarray and np.may_share_memory(a if keys else a[there], value):
        return True
    return any(np.may_share_memory(a, k) for k in keys)


_FLOATS, _NUMBERS = "fd", "fdlihbB"
# Pairs of dtypes, of a value and of what it is stored in, that numpy converts between as `copy_` does.
_STORED_AS = frozenset({("f", "d"), ("d", "f"), ("l", "d"), ("l", "f"), ("i", "l"), ("?", "f"), ("?", "d"), ("?", "l")})


def _is_full_mask(key: Any, a: Any) -> bool:
    """Whether the numpy key is one mask of the shape of `a`."""
    return len(key) == 1 and key[0].__class__ is ndarray and key[0].dtype is BOOL and key[0].shape == a.shape


def _setitem(self: Tensor, key: Any, value: Any) -> None:
    if self._array.__class__ is not ndarray and isinstance(self._array, KindArray):
        raise TypeError(f"Cannot assign to a sparse tensor: elements of the layout {self.layout} are not set by indexing")
    if not isinstance(value, Tensor):
        value = _number_tensor(self, value)
    key = normalize(key)
    if all(isinstance(k, _BASIC) for k in key):
        part = _view_at(self, _checked(key))
        fitted = _fit(value, part._array.shape)
        # Repeated to the shape of the part, it may be a part of `self` too.
        part.copy_(fitted if fitted._array.shape == part._array.shape else fitted.expand(part.shape))
        return
    if self._array.ndim:
        check_recorded(self)
    part, indices = split_key(self, key, _count_stored(value))
    single = value._array.size == 1 and len(key) == 1 and is_mask(key[0]) and key[0].ndim > 0
    for k in key:
        if isinstance(k, Tensor) and k.ndim:          # masks too, which are turned into places here
            refuse(index_put, "indices", k, part, part._array.shape, EXACTLY if single else NEVER)
    if single:
        value = _single_value(self, value)
    index_put.run_inplace(part, indices, _fit(value, _index_shape(part, indices)[0]), False)


def _count_stored(values: Tensor) -> int:
    """How many elements a mask on meta is taken to pick, where `values` are stored: as many as there are, or one for all."""
    return values.shape[0] if values.ndim else 1


def _single_value(self: Tensor, value: Tensor) -> Tensor:
    """A tensor of one element that is stored wherever a mask holds: of the dtype of `self`, and in memory of its own."""
    if value.is_complex() and not self.is_complex() and not value._lacks_values and value.item().imag:
        raise RuntimeError(f"value cannot be converted to type {self.dtype} without overflow: {value.item()} is not real")
    return value.reshape(()).to(self.dtype, copy=one_memory(value, self))


def _number_tensor(self: Tensor, value: Any) -> Tensor:
    """A Python or numpy number as a 0-d tensor of the dtype of `self`."""
    from ..creation._options import _as

    if not isinstance(value, (bool, int, float, complex, np.number, np.bool_)):
        raise TypeError(f"can't assign a {type(value).__name__} to a tensor of dtype {self.dtype}; make it a tensor first")
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"Overflow when unpacking long long: {value} is no 64-bit integer; give it as a float")
    if isinstance(value, (complex, np.complexfloating)) and not self.is_complex():
        raise RuntimeError(f"value {value} cannot be converted to type {self.dtype} without overflow")
    if isinstance(value, int) and self.dtype.category == dtypes.INTEGER:
        info = np.iinfo(self.dtype.numpy)
        if not (info.min if info.min else -info.max) <= value <= info.max:
            raise RuntimeError(f"value {value} cannot be converted to type {self.dtype} without overflow")
    made = np.full((), _as(value, _arrays.plain_dtype(self._array.dtype), 1), _arrays.plain_dtype(self._array.dtype))
    return wrap(MetaArray((), made.dtype) if self._lacks_values else made)


def _fit(value: Tensor, shape: Any) -> Tensor:
    """Leading dimensions of size 1 that the target lacks are dropped, as assignment allows."""
    while value._array.ndim > len(shape) and value._array.shape[0] == 1:
        value = value.squeeze(0)
    return value


getitem.__name__, setitem.__name__ = "__getitem__", "__setitem__"
Tensor.__getitem__ = getitem  # type: ignore[attr-defined]
Tensor.__setitem__ = setitem  # type: ignore[attr-defined]
assert tape.VIEWS == 3  # `_storage` has the fields the generated entry points write
