"""Dimensions repeated without copying: expanding and broadcasting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flambeau_kernels import hot_calls

from ... import dtypes
from ..._arrays import ndarray, restrided
from ..._symbolic import SymInt, as_size
from ...devices import Size
from ...tensor import Tensor
from .._batching import run
from .._makers import refusing
from .._spec import FUNCTION, METHOD, composite, view
from .._spec.names import expands
from .reshape import reshaped_back


@view(variadic="shape", surface=0, operator="expand(self, shape)", samples="of expand", public_name="expand", builtin="seen_expand")
def expand_shape(self, shape):
    """`self` with dimensions of size 1 repeated without copying."""


expand_shape.shown_as("ExpandBackward0", hides="shape")


expand_shape.sized_by = "shape"


@expand_shape.undone
def _shrunk(new, source, *_):
    return reshaped_back(new, source) if new.numel() == source.numel() else None


@expand_shape.kernel
def _expand(a, size):
    made = hot_calls.expand(a, size)
    if made is not None:
        return made
    if isinstance(size, SymInt):
        size = (size,)
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"expand(): argument 'size' must be tuple of ints, not {type(size).__name__}")
    sizes = [as_size(n) for n in size]
    extra = len(sizes) - a.ndim
    if extra < 0:
        raise RuntimeError(
            f"expand(torch.{dtypes.scalar_type(dtypes.from_numpy_dtype(a.dtype))}Tensor{{{list(a.shape)}}}, size={sizes}): "
            f"the number of sizes provided ({len(sizes)}) must be greater or equal to the number of dimensions in the tensor ({a.ndim})"
        )
    strides = [0] * extra
    for i, (n, s) in enumerate(zip(a.shape, a.strides, strict=True)):
        wanted = sizes[i + extra]
        if wanted in (-1, n):
            sizes[i + extra] = n
            strides.append(s)
        elif n == 1 and wanted >= 0:
            strides.append(0)
        else:
            # Of several that do not fit the last is named, as by PyTorch.
            unfit = [j for j, m in enumerate(a.shape) if sizes[j + extra] not in (-1, m) and (m != 1 or sizes[j + extra] < 0)]
            i, n, wanted = unfit[-1], a.shape[unfit[-1]], sizes[unfit[-1] + extra]
            raise RuntimeError(
                f"The expanded size of the tensor ({wanted}) must match the existing size ({n}) at non-singleton dimension "
                f"{i + extra}.  Target sizes: {[as_size(n) for n in size]}.  Tensor sizes: {list(a.shape)}"
            )
    for i, n in reversed(list(enumerate(sizes[:extra]))):
        if n < 0:
            raise RuntimeError(
                f"The expanded size of the tensor ({n}) isn't allowed in a leading, non-existing dimension {i}; "
                f"got sizes {[as_size(n) for n in size]}"
            )
    return restrided(a, tuple(sizes), tuple(strides))


@expand_shape.vjp
def _expand_vjp(grad, self_shape):
    from .._spec import sum_tensor_to

    return (sum_tensor_to(grad, self_shape),)


@expand_shape.vjp_on_arrays
def _expand_vjp_on_arrays(grad, self_shape):
    from .._spec import sum_to

    return (sum_to(grad, self_shape),)


@expand_shape.batch
def _expand_shape_batch(level: Any, op: Any, args: Any) -> Any:
    x, shape = args
    value, extra = level.front(x), len(shape) - x.ndim
    if extra > 0:
        value = value.reshape(level.size, *(1,) * extra, *x.shape)
    return level.wrap(run(op, value, (level.size, *shape)))


@composite(surface=METHOD, variadic="size", samples="x(1, 3), (2, 3); x(3), (2, -1)", elements="moved", names=expands)
def expand(self, size, *, implicit=False):
    """A view of `self` with dimensions of size 1 repeated without copying.

    Args:
        size: the new shape; -1 keeps a size, new dimensions go in front.
        implicit: without effect.
    Raises: RuntimeError where a size would change that is not 1.

    >>> fb.tensor([[1], [2]]).expand(2, 3)
    tensor([[1, 1, 1],
            [2, 2, 2]])
    """
    return expand_shape.function(self, shape=size)


@expand.forwards
def _expanded(self, size, implicit=False):
    return expand_shape.usual(self, tuple(size) if size.__class__ is list else size)


def _expanded_to_tuple(input, size):
    return _expanded(input, size) if size.__class__ in (tuple, Size) else None


expand.undone(_shrunk)


@composite(surface=METHOD, samples="x(1, 3), x(2, 3)", elements="moved")
def expand_as(self, other):
    """`self` expanded to the shape of `other`."""
    return self.expand(other.shape)


expand_as.undone(_shrunk)


@expand_as.forwards
def _expanded_as(self, other):
    return _expanded(self, other._array.shape) if isinstance(other, Tensor) else None


@composite(surface=FUNCTION, samples="x(1, 3), (2, 3)", elements="moved")
def broadcast_to(input, size: Sequence[int]):
    """`input` expanded to `size`."""
    if isinstance(size, (int, np.integer, Tensor)):
        raise TypeError(f"broadcast_to(): argument 'size' (position 2) must be tuple of ints, not {type(size).__name__}")
    return input.expand(size)


def _broadcast_to(input, size):
    """`input` expanded to `size`."""
    return input.expand(size)


_broadcast_to.__name__ = "broadcast_to"
_method = composite(surface=METHOD, variadic="size", namespace="Tensor", samples="x(1, 3), (2, 3)")(_broadcast_to)
broadcast_to.forwards(_expanded_to_tuple)
_method.forwards(_expanded)


@composite(surface=FUNCTION, variadic="tensors", samples="x(1, 3), x(2, 1)", elements="moved")
def broadcast_tensors(tensors):
    """All `tensors` expanded to the shape they broadcast to."""
    from .._spec import broadcast_shapes as shape_of

    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tensors[0]
    shape = shape_of(broadcast_tensors, tensors, [f"tensors[{i}]" for i in range(len(tensors))])
    return tuple(x.expand(shape) for x in tensors)


@broadcast_tensors.forwards
def _expanded_together(tensors):
    """Plain tensors in host memory."""
    if len(tensors) == 1 and tensors[0].__class__ in (list, tuple):
        tensors = tensors[0]
    arrays = [x._array for x in tensors if x.__class__ is Tensor and x._array.__class__ is ndarray]
    if not 0 < len(arrays) == len(tensors) <= _MOST_TOGETHER:
        return None
    shape, made = np.broadcast(*arrays).shape, []
    for x in tensors:
        view = expand_shape.usual(x, shape)
        if view is None:
            return None
        made.append(view)
    return tuple(made)


_MOST_TOGETHER = 32  # arrays that numpy broadcasts at once


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that tensors of `shapes` broadcast to. Raises: RuntimeError when they do not."""
    first: Any = shapes[0] if shapes else ()
    if first.__class__ is Size and _not_negative(first):
        for s in shapes:                              # most are alike
            if s.__class__ is not Size or len(s) != len(first) or s != first:  # lengths first: symbolic sizes are not asked for nothing
                break
        else:
            return first
    result: list[int] = []
    for i, s in enumerate(shapes):
        sizes: Any = (s,) if isinstance(s, (int, SymInt)) else tuple(s) if isinstance(s, (tuple, list)) else (None,)
        if any(not isinstance(n, (int, np.integer, SymInt)) for n in sizes):
            raise RuntimeError(f"Input shapes should be of type ints, a tuple of ints, or a list of ints, got {s!r}")
        if any(n < 0 for n in sizes):
            raise RuntimeError(f"Trying to create tensor with negative dimension: {sizes}")
        result[:0] = [1] * (len(sizes) - len(result))
        for at in range(1, len(sizes) + 1):
            if sizes[-at] != 1 and result[-at] not in (1, sizes[-at]):
                raise RuntimeError(
                    f"Attempting to broadcast a dimension of length {sizes[-at]} at {-at}! Mismatching argument at index {i} had "
                    f"{sizes}; but expected shape should be broadcastable to {result}\n  all shapes: {list(shapes)}"
                )
            if sizes[-at] != 1:
                result[-at] = sizes[-at]
    return Size(result)


def _not_negative(sizes: Any) -> bool:
    return all(n >= 0 for n in sizes)                 # each alone: the least of several asks which of them is less


FUNCTIONS = {"broadcast_shapes": refusing(broadcast_shapes)}
