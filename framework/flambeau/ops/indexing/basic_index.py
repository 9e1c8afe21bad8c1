"""Basic indexing: views that ints, slices, None and Ellipsis take."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import _state
from ..._arrays import MetaArray, address, ndarray, restrided
from ..._symbolic import LAST, SymInt, slice_bounds
from ...tensor import Tensor
from .._batching import run
from .._spec import view
from .._spec.view import put_part
from ..shapes.reshape import view_shape
from ..shapes.slices import select, slice_dim
from ..shapes.squeeze import unsqueeze
from ._keys import ALL, is_mask, tensors_at


@view(surface=0, samples="of getitem_op", public_name="index", builtin="seen_part")
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
    return with_steps(made, a, key) if None in key else made


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
                made = slice_dim.function(made, d, *_as_written(k))
            d += 1
        else:
            made = select.function(made, d, k)
    if made is not input:
        return made
    return slice_dim.function(input, 0, *_as_written(ALL)) if ALL in key and input.ndim else view_shape.function(input, input.shape)


def _as_written(k: slice) -> tuple[Any, Any, int]:
    """The bounds and the step of a slice as operators have them: a graph with them holds for other sizes."""
    return 0 if k.start is None else k.start, LAST if k.stop is None else k.stop, 1 if k.step is None else k.step


def with_steps(made: Any, a: Any, key: Any) -> Any:
    """`made`, ``a[key]``, with the strides `unsqueeze` gives to new dimensions, where numpy writes 0."""
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
        return with_steps(made, a, key) if None in key else made
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
    if None not in key or not all(k is None or k is Ellipsis or k == ALL for k in key):
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
def _basic_vjp_on_arrays(grad, input_shape, key):
    back = _takes_away(key)
    if back is not None:
        return (grad[back if Ellipsis in back else (*back, ...)],)  # never a number, which is no view
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
            bounds = {"start": 0 if k.start is None else k.start, "end": LAST if k.stop is None else k.stop, "step": k.step or 1}
            steps.append((tuple(sizes), {"dim": d, **bounds}))
            sizes[d] = len(range(*k.indices(sizes[d])))
        elif k.__class__ is int:
            steps.append((tuple(sizes), {"dim": d, "index": k}))
            del sizes[d]
            continue
        d += 1
    before, saved = steps[-1] if steps else (tuple(shape), {})
    return {"input_shape": before, **saved}


basic_index.shown_by(
    "Node if (last := key[-1] if key else 0).__class__ is int else "
    "SLICE if last.__class__ is slice and (last.start is not None or last.stop is not None) else titled[name_of(key)]",
    SLICE=basic_index.classes_by_title["SliceBackward0"], name_of=_index_name,
)  # fmt: skip
basic_index.node_class.saved_by_name = _index_saved
basic_index.node_class.more_than_rule = True


BASIC = (int, SymInt, slice, type(None), type(Ellipsis))


def view_at(self: Tensor, key: tuple[Any, ...]) -> Tensor:
    return basic_index.function(self, key) if _state.IN_FORCE and _state.interpreted() else basic_index.run(self, key)


def check_slices(key: Any) -> None:
    for k in key:
        if k.__class__ is slice and k.step is not None and k.step <= 0:
            raise ValueError("step must be greater than zero")


def checked_key(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """A basic key with at most one Ellipsis: a second one stands for no dimensions."""
    check_slices(key)
    if key.count(Ellipsis) <= 1:
        return key
    first = key.index(Ellipsis)
    return tuple(k for i, k in enumerate(key) if k is not Ellipsis or i == first)


def split_key(self: Tensor, key: tuple[Any, ...], count: int | None = None) -> tuple[Tensor, tuple[Any, ...]]:
    """The view that the basic part of a normal `key` takes, and one index tensor (or None) per dimension of it.

    Masks become the index tensors of their non-zero places, `count` of them on meta. Numbers select first, so that they do
    not count as indices.
    Raises: IndexError for too many indices, masks that do not fit and index dtypes that are none.
    """
    shape = tuple(self.shape)
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
    check_slices(basic)
    trivial = len(basic) == len(shape) and all(k.__class__ is slice and k == slice(None) for k in basic)
    return self if trivial else view_at(self, tuple(basic)), tuple(indices)
