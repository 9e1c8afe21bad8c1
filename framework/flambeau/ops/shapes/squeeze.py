"""Dimensions of size one put in and taken out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flambeau_kernels import hot_calls

from ..._arrays import ndarray, restrided
from ...tensor import Tensor, wrap_dim
from .._batching import run
from .._spec import FUNCTION, INPLACE, METHOD, check_recorded, composite, int_list, view, wrap_dims
from .._spec.names import squeezes
from .reshape import reshaped_back

_EVERY = tuple([tuple(range(n)) for n in range(65)])  # all dimensions of so many


@view(surface=METHOD | FUNCTION | INPLACE, samples="x(2, 3), 1; x(2, 3), -1", elements="moved", builtin="seen_unsqueeze")
def unsqueeze(input, dim):
    """A view of `input` with a dimension of size 1 inserted at `dim`, which may be -1 for the end."""


unsqueeze.shown_as(hides="input_shape")


@unsqueeze.kernel
def _unsqueeze(a, dim):
    made = hot_calls.unsqueeze(a, dim)
    if made is not None:
        return made
    at = wrap_dim(dim, a.ndim + 1)
    step = a.shape[at] * a.strides[at] if at < a.ndim else a.itemsize
    return restrided(a, (*a.shape[:at], 1, *a.shape[at:]), (*a.strides[:at], step, *a.strides[at:]))


@unsqueeze.vjp
def _unsqueeze_vjp(grad, dim):
    return (grad.squeeze(dim),)


@unsqueeze.vjp_on_arrays
def _unsqueeze_vjp_on_arrays(grad, dim):
    return (grad.squeeze(dim),)


@unsqueeze.undone
def _squeezed_again(new, source, dim):
    return new.squeeze(dim)


@unsqueeze.batch
def _unsqueeze_batch(level: Any, op: Any, args: Any) -> Any:
    x, dim = args
    return level.wrap(run(op, level.front(x), wrap_dim(dim, x.ndim + 1) + 1))


@view(surface=0, operator="squeeze(input, dims)", samples="of squeeze", public_name="squeeze")
def squeeze_dims(input, dims):
    """`input` without those of `dims` that have size 1."""


squeeze_dims.shown_as("SqueezeBackward1", dim="dims")
squeeze_dims.undone(reshaped_back)


# A piece may have size 1 where the whole has not.
squeeze_dims.for_pieces = lambda input, dims: (input, tuple([d for d in dims if input.shape[d] == 1]))


def _squeezed_saved(node: Any) -> dict[str, Any]:
    shape, dims = node.saved
    return {"input_shape": shape, "dim": dims[0] if len(dims) == 1 else dims}


squeeze_dims.node_class.saved_by_name = _squeezed_saved


@squeeze_dims.kernel
def _squeeze(a, dims):
    kept = [i for i, n in enumerate(a.shape) if not (i in dims and n == 1)]
    return restrided(a, tuple([a.shape[i] for i in kept]), tuple([a.strides[i] for i in kept]))


@squeeze_dims.vjp
def _squeeze_vjp(grad, input_shape):
    return (grad.reshape(input_shape),)


@squeeze_dims.vjp_on_arrays
def _squeeze_vjp_on_arrays(grad, input_shape):
    return (grad.reshape(input_shape),)


@squeeze_dims.batch
def _squeeze_dims_batch(level: Any, op: Any, args: Any) -> Any:
    x, dims = args
    return level.wrap(run(op, level.front(x), tuple(d + 1 for d in dims)))


@composite(
    surface=METHOD | FUNCTION | INPLACE, samples="x(2, 1, 3, 1); x(2, 1, 3), 1; x(1, 2, 1), (0, 2)", elements="moved",
    names=squeezes,
)
def squeeze(input, dim: int | Sequence[int] | None = None):
    """A view of `input` without its dimensions of size 1, or without those of `dim` (an int or tuple) that have size 1.

    >>> fb.ones(1, 3, 1).squeeze().shape, fb.ones(1, 3, 1).squeeze(0).shape
    (torch.Size([3]), torch.Size([3, 1]))
    """
    return squeeze_dims.function(input, _squeezed(input, dim))


squeeze.undone(reshaped_back)


@squeeze.forwards
def _view_without_ones(input, dim):
    try:
        a = input._array
        if a.__class__ is not ndarray:
            return None
        if dim is None:
            return squeeze_dims.of(input, a.squeeze(), (_EVERY[a.ndim],))
        if dim.__class__ is not int:
            if dim.__class__ is not tuple or not dim:
                return None
            dims = wrap_dims("squeeze", dim, a.ndim)
            return squeeze_dims.of(input, a.squeeze(tuple([d for d in dims if a.shape[d] == 1])), (dims,))
        made = a.squeeze(dim) if a.shape[dim] == 1 else a
    except (AttributeError, IndexError):  # no tensor; no such dimension
        return None
    return squeeze_dims.of(input, made, ((dim % a.ndim,),))


def _squeezed(input: Tensor, dim: Any) -> tuple[int, ...]:
    """The dimensions that `squeeze` looks at; an empty tuple of dims means none."""
    if dim is None or isinstance(dim, (int, np.integer)) or isinstance(dim, Tensor) and not dim.ndim:
        return wrap_dims("squeeze", dim, input.ndim)
    dims = int_list(dim)
    return wrap_dims("squeeze", dims, input.ndim) if dims else ()


def _squeeze_in_place(target: Tensor, dim: Any) -> Tensor:
    check_recorded(target)
    return squeeze_dims.run_inplace(target, _squeezed(target, dim))


squeeze.inplace_view = _squeeze_in_place
