"""Views of a part along a dimension: `narrow`, `select` and slices with a step."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import dtypes
from ..._arrays import MetaArray, ndarray, restrided
from ..._symbolic import SymInt, as_size, slice_bounds
from ...tensor import Tensor, wrap, wrap_dim
from .._batching import run, shifted
from .._spec import FUNCTION, METHOD, view
from .._spec.names import keep, takes_out
from .._spec.view import put_part

_BEFORE = tuple([(slice(None),) * d for d in range(65)])  # what comes before the index of a dimension


def _with_number(input, dim, start, length):
    """The arguments of `narrow` with a number for a Tensor, which may be another when the gradient comes."""
    if not isinstance(start, Tensor):
        return None
    if start.ndim or start.dtype.category != dtypes.INTEGER:
        raise RuntimeError(f"narrow: start must be an 0-dim integral Tensor. Got shape {tuple(start.shape)}, {start.dtype}")
    return input, dim, start.item(), length


@view(surface=METHOD | FUNCTION, check=_with_number, samples="x(2, 5), 1, 1, 3", elements="moved", names=keep)
def narrow(input, dim, start: int, length: int):
    """A view of the part of `input` from `start` on along `dim`, `length` long.

    Raises: RuntimeError for a part that reaches outside.
    """


def _narrow_saved(node: Any) -> dict[str, Any]:
    shape, dim, start, length = node.saved
    return {"input_shape": shape, "dim": dim, "start": start, "end": start + length, "step": 1}


narrow.shown_as("SliceBackward0")  # it is one to PyTorch
narrow.node_class.saved_by_name = _narrow_saved


@narrow.undone
def _narrow_undone(new, source, dim, start, length):
    first = start % (source.shape[dim] or 1) if start < 0 else start
    return source.slice_scatter(new, dim, first, first + length)


@narrow.decomposition
def _narrow_as_slice(input, dim, start, length):
    d = wrap_dim(dim, input.ndim)
    first = start + input.shape[d] if start < 0 else start
    return slice_dim.function(input, d, first, first + length, 1)


@narrow.kernel
def _narrow(a, dim, start, length):
    if a.__class__ is ndarray and dim.__class__ is start.__class__ is length.__class__ is int:
        d = dim if dim >= 0 else dim + a.ndim
        if 0 <= d < a.ndim and 0 <= start <= start + length <= a.shape[d]:
            return a[(*_BEFORE[d], slice(start, start + length))] if d else a[start : start + length]
    d = wrap_dim(dim, a.ndim) if a.ndim else _no_dims("narrow")
    n = a.shape[d]
    start = start if start.__class__ is SymInt else int(start)
    if length < 0:
        raise RuntimeError(f"narrow(): length must be non-negative. Got {length}")
    if not -n <= start <= n:
        raise IndexError(f"start out of range (expected to be in range of [{-n}, {n}], but got {start})")
    start += n if start < 0 else 0
    if start + length > n:
        raise RuntimeError(f"narrow: start ({start}) + length ({length}) exceeds dimension size ({n}).")
    return sliced(a, d, start, start + length, 1)


narrow.shows_part()
narrow.may_be_tensor = "start"


def _no_dims(name: str) -> int:
    raise RuntimeError(f"{name}() cannot be applied to a 0-dim tensor.")


@narrow.vjp
def _narrow_vjp(grad, input_shape, dim, start, length):
    full_grad = grad.new_zeros(input_shape)
    full_grad.narrow(dim, start, length).copy_(grad)
    return (full_grad,)


def sliced(a: Any, d: int, start: int, stop: int, step: int) -> Any:
    """``a[start:stop:step]`` along dimension `d`."""
    if type(a) is MetaArray:
        length = max(0, -(-(stop - start) // step))
        shape, strides = list(a.shape), list(a.strides)
        shape[d], strides[d] = length, strides[d] * step
        return restrided(a, shape, strides, min(start, a.shape[d]) * a.strides[d])
    return a[(*_BEFORE[d], slice(start, stop, step))] if d else a[start:stop:step]


@view(surface=METHOD | FUNCTION, samples="x(2, 3), 1, 2; x(2, 3), 0, -1", elements="moved", builtin="seen_select", names=takes_out)
def select(input, dim, index):
    """A view of the slice at `index` along `dim`, without that dimension. Raises: IndexError out of range."""


@select.undone
def _select_undone(new, source, dim, index):
    return source.select_scatter(new, dim, index)


@select.kernel
def _select(a, dim, index):
    if a.__class__ is ndarray and dim.__class__ is index.__class__ is int:
        d = dim if dim >= 0 else dim + a.ndim
        try:
            if 0 <= d < a.ndim:
                return a[(*_BEFORE[d], index, ...)] if d else a[index, ...]
        except IndexError:  # the checks below raise an error that names the op
            pass
    if a.ndim == 0:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    d = wrap_dim(dim, a.ndim)
    i, n = as_size(index), a.shape[d]
    if not -n <= i < n:
        raise IndexError(f"select(): index {i} out of range for tensor of size {list(a.shape)} at dimension {d}")
    i += n if i < 0 else 0
    if type(a) is MetaArray:
        return restrided(a, a.shape[:d] + a.shape[d + 1 :], a.strides[:d] + a.strides[d + 1 :], i * a.strides[d])
    return a[(*_BEFORE[d], i, ...)]


@select.vjp
def _select_vjp(grad, input_shape, dim, index):
    full_grad = grad.new_zeros(input_shape)
    full_grad.select(dim, index).copy_(grad)
    return (full_grad,)


@select.vjp_on_arrays
def _select_vjp_on_arrays(grad, input_shape, dim, index):
    full_grad = np.zeros(input_shape, grad.dtype)
    put_part(full_grad[(slice(None),) * (dim % len(input_shape)) + (index, ...)], grad)
    return (full_grad,)


select.node_class.more_than_rule = True


@view(surface=0, operator="slice(input, dim, start, stop, step)", samples="of getitem_op", public_name="narrow")
def slice_dim(input, dim, start, stop, step):
    """``input[start:stop:step]`` along `dim`; a `stop` of 2**63 - 1 is the end, whatever the size."""


slice_dim.shown_as("SliceBackward0", end="stop")


@slice_dim.undone
def _slice_undone(new, source, dim, start, stop, step):
    return source.slice_scatter(new, dim, start, stop, step)


@slice_dim.kernel
def _slice(a, dim, start, stop, step):
    if type(a) is MetaArray:
        start, stop, step = slice_bounds(slice(start, stop, step), a.shape[dim])
    return sliced(a, dim, start, stop, step)


@slice_dim.vjp
def _slice_vjp(grad, input_shape, dim, start, stop, step):
    full_grad = grad.new_zeros(input_shape)
    slice_dim.function(full_grad, dim, start, stop, step).copy_(grad)
    return (full_grad,)


@slice_dim.vjp_on_arrays
def _slice_vjp_on_arrays(grad, input_shape, dim, start, stop, step):
    full_grad = np.zeros(input_shape, grad.dtype)
    put_part(full_grad[(slice(None),) * dim + (slice(start, stop, step),)], grad)
    return (full_grad,)


slice_dim.node_class.more_than_rule = True


@narrow.batch
@select.batch
@slice_dim.batch
def _narrow_batch(level: Any, op: Any, args: Any) -> Any:
    x, dim, *rest = args
    if x.ndim == 0:
        return run(op, wrap(np.zeros(())), dim, *rest)  # raises as for any 0-d tensor
    return level.wrap(run(op, level.front(x), shifted(x, dim), *rest))
