"""Views of the storage by any size and strides: `as_strided`."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels import hot_calls

from ... import _arrays
from ..._arrays import MetaArray, ndarray, restrided
from ..._symbolic import as_size
from ...tensor import Tensor, storage_buffer
from .._batching import run
from .._spec import FUNCTION, INPLACE, METHOD, OPS, Geometry, int_list, view


@view(surface=METHOD | FUNCTION | INPLACE, samples="x(2, 3), (2, 2), (1, 2); x(6), (2, 2), (2, 1), 1")
def as_strided(input, size, stride, storage_offset=None):
    """A view of the storage of `input` with any `size`, `stride` and `storage_offset` (in elements).

    Raises: RuntimeError when it would reach outside the storage.
    """


as_strided.shown_as(hides="input", storage_offset=lambda saved: saved["storage_offset"])


@as_strided.undone
def _as_strided_undone(new, source, size, stride, storage_offset):
    return source.as_strided_scatter(new, size, stride, storage_offset)


@as_strided.kernel
def _as_strided(a, size, stride, offset):
    if type(a) is not MetaArray:
        raise RuntimeError("as_strided works on tensors")  # replaced by `run` below, which needs the storage
    skip = 0 if offset is None else offset * a.itemsize - a.offset
    return restrided(a, size, [s * a.itemsize for s in stride], skip)


def _run_as_strided(input: Any, size: Any, stride: Any, storage_offset: Any = None) -> Tensor:
    if not isinstance(input, Tensor):
        raise TypeError(f"as_strided(): argument 'input' must be Tensor, not {type(input).__name__}")
    a = input._array
    size, stride = tuple(map(as_size, int_list(size))), tuple(map(as_size, int_list(stride)))
    if len(size) != len(stride):
        raise RuntimeError(f"mismatch in length of strides and shape: size {list(size)}, stride {list(stride)}")
    if any(s < 0 for s in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}")
    if any(n < 0 for n in size):
        raise RuntimeError(f"as_strided: sizes must not be negative, got {list(size)}")
    offset = input.storage_offset() if storage_offset is None else as_size(storage_offset)
    step = a.itemsize
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    if type(a) is MetaArray:
        made = _as_strided(a, size, stride, offset)
    else:
        buffer = storage_buffer(input)
        last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) + 1
        if 0 not in size and last * step > len(buffer):
            raise RuntimeError(
                f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and itemsize {step} requiring "
                f"a storage size of {last * step} are out of bounds for storage of size {len(buffer)}"
            )
        made = _arrays.restride(a, size, tuple(s * step for s in stride), offset * step, buffer)
    return as_strided.finish((input, size, stride, offset), made)


as_strided.run = _run_as_strided  # type: ignore[method-assign]


def _record_restrided(made: Tensor, source: Tensor, rest: Any) -> None:
    # The gradient reads where the elements of `source` lie, not what they are, so they may be overwritten.
    as_strided.save_shape(made, source, Geometry(source._array.shape, source.stride(), source.storage_offset()), rest)


as_strided.record_view = _record_restrided  # type: ignore[method-assign]
as_strided.saves_plainly = False                      # what it saves of `source` is more than a shape
as_strided.shows_storage = True


@as_strided.forwards
def _restrided(input, size, stride, storage_offset):
    """A part of rows in host memory."""
    a = getattr(input, "_array", None)
    if a.__class__ is not ndarray or size.__class__ is not tuple or stride.__class__ is not tuple:
        return None
    step, own = a.itemsize, input.storage_offset()
    offset = own if storage_offset is None else storage_offset
    if offset.__class__ is not int or offset < 0 or len(size) != len(stride) or not a.size:
        return None
    last = offset
    for n, s in zip(size, stride, strict=True):
        if n.__class__ is not int or s.__class__ is not int or n <= 0 or s < 0:
            return None
        last += (n - 1) * s
    if (last + 1) * step > len(storage_buffer(input)):
        return None
    made = hot_calls.restrided(a, size, tuple([s * step for s in stride]), (offset - own) * step)
    return None if made is None else as_strided.of(input, made, (size, stride, offset))


@as_strided.vjp
def _as_strided_vjp(grad, input, size, stride, storage_offset):
    own, part = input, Geometry(size, stride, storage_offset)
    if isinstance(own, Tensor):                       # a wrapper's, whose place in memory is its class's affair
        raise NotImplementedError(f"as_strided: the gradient of a {type(own).__name__} is not built; use views by dimensions")
    if not grad.numel():                              # nothing was read, from wherever it would have been
        return (grad.new_zeros(own.shape),)
    first = min(own.offset, storage_offset)
    flat = grad.new_zeros((max(own.ends[1], part.ends[1]) - first,))
    if own.is_non_overlapping and part.is_non_overlapping:
        flat.as_strided(size, stride, storage_offset - first).copy_(grad)
        return (flat.as_strided(own.shape, own.steps, own.offset - first),)
    # Add the pieces where they lie in the storage, then read the storage the way the input does.
    flat = flat.index_add(0, _positions(part, first, grad.device), grad.reshape(-1))
    mine = _positions(own, first, grad.device)
    if not own.is_non_overlapping:                    # each element of an overlapping input carries its share
        flat = flat / OPS["bincount"].function(mine, minlength=flat.shape[0]).clamp(min=1).to(grad.dtype)
    return (flat.index_select(0, mine).reshape(own.shape),)


@as_strided.vjp_on_arrays
def _as_strided_vjp_on_arrays(grad, input, size, stride, storage_offset):
    own, part = input, Geometry(size, stride, storage_offset)
    if not grad.size:
        return (np.zeros(own.shape, grad.dtype),)
    if not (own.is_non_overlapping and part.is_non_overlapping):
        return None
    first, step = min(own.offset, storage_offset), grad.itemsize
    flat = np.zeros(max(own.ends[1], part.ends[1]) - first, grad.dtype)
    restrided(flat, size, [s * step for s in stride], (storage_offset - first) * step)[...] = grad
    return (restrided(flat, own.shape, [s * step for s in own.steps], (own.offset - first) * step),)


@as_strided.batch
def _as_strided_batch(level: Any, op: Any, args: Any) -> Any:
    x, size, stride, offset = args
    value = level.front(x)
    begin = value.storage_offset()
    offset = begin if offset is None else offset
    part, own = Geometry(size, stride, offset), Geometry(tuple(value.shape[1:]), value.stride()[1:], begin)
    if part.ends[0] < own.ends[0] or part.ends[1] > own.ends[1]:
        raise RuntimeError(
            f"result = tensor.as_strided({list(size)}, {list(stride)}, {offset}) can access memory outside of `tensor`. `result` can "
            f"access some memory in range {_shown(part)}, but `tensor` can only access some memory in range {_shown(own)}. "
            "This is not supported inside of vmap, where the memory around an example is that of others; clone() the example first"
        )
    return level.wrap(run(op, value, (level.size, *size), (value.stride(0), *stride), offset))


def _shown(place: Geometry) -> str:
    first, end = place.ends
    return f"[{first}, {end - 1}]"


def _positions(geometry: Geometry, first: int, device: Any) -> Tensor:
    """Storage positions of the elements of a strided tensor, in logical order, counted from `first`."""
    from ..creation.ranges import arange

    start = geometry.offset - first
    lines = [arange(n, device=device) * s for n, s in zip(geometry.shape, geometry.steps, strict=True)]
    at = lines[0] + start if lines else arange(start, start + 1, device=device)
    for line in lines[1:]:
        at = (at.unsqueeze(1) + line).reshape(-1)
    return at


@view(surface=0, operator="alias(input)", samples="x(2, 3)", elements="moved", public_name="rename")
def alias(input):
    """A view of `input` as it is."""


@alias.undone
def _as_it_is(new, source):
    return new


@alias.kernel
def _alias(a):
    return a.view() if type(a) is np.ndarray else restrided(a, a.shape, a.strides)


@alias.vjp
def _alias_vjp(grad):
    return (grad,)


@alias.vjp_on_arrays
def _alias_vjp_on_arrays(grad):
    return (grad,)
