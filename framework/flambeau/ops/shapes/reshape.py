"""Another shape over the same elements: views, copies where strides allow none, and bytes as another dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flambeau_kernels import hot_calls
from flambeau_kernels.cpu.shapes.move import reshaped

from ... import _arrays, _state, dtypes
from ..._arrays import MetaArray, as_meta, ndarray, restrided
from ..._state import interpreted
from ..._symbolic import SymInt, as_size
from ...tensor import Tensor, wrap_dim
from .._batching import run, same_dims
from .._parameters import has_bools
from .._spec import FUNCTION, METHOD, composite, view
from .._spec.names import flattens, unflattens


def reshaped_back(new: Any, source: Any, *_: Any) -> Any:
    """What the source of a view of all its elements, in their order, is once the view is `new`."""
    if new.dtype is not source.dtype:
        return new.view(source.dtype)
    return new.view(source.shape) if new.is_contiguous() else new.reshape(source.shape)


def viewed(a: Any, shape: tuple[int, ...]) -> Any:
    """`a` reshaped without copying, or None when its strides do not allow that."""
    if type(a) is ndarray:
        if a.size == 0:
            try:
                return a.reshape(shape)
            except ValueError:                        # numpy has no room for the sizes, though there is no element
                raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)}: no array can be that large") from None
        try:
            return a.reshape(shape, copy=False)
        except ValueError:
            return None
    strides = view_strides(a, shape)
    return None if strides is None else restrided(a, shape, strides)


def view_strides(a: Any, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Byte strides that make `a` look like `shape`, or None: each run of merged dimensions must be evenly spaced."""
    if a.size == 0 and shape == a.shape:
        return a.strides
    if a.size == 0 or _arrays.is_c_contiguous(a):
        return _arrays.contiguous_strides(shape, a.itemsize)
    strides = [0] * len(shape)
    at = len(shape) - 1
    run_size, run_step = 1, a.strides[-1] if a.ndim else a.itemsize
    filled = 1
    for d in range(a.ndim - 1, -1, -1):
        run_size *= a.shape[d]
        if d == 0 or (a.shape[d - 1] != 1 and a.strides[d - 1] != run_size * run_step):
            filled = 1
            while at >= 0 and (filled < run_size or shape[at] == 1):
                strides[at] = filled * run_step
                filled *= shape[at]
                at -= 1
            if filled != run_size:
                return None
            if d > 0:
                run_size, run_step = 1, a.strides[d - 1]
    return tuple(strides) if at == -1 else None


def infer_shape(name: str, shape: Any, numel: int) -> tuple[int, ...]:
    """`shape` with its -1 worked out. Raises: RuntimeError naming both sizes when it does not fit."""
    if not isinstance(shape, (tuple, list)):
        raise TypeError(f"{name}(): argument 'shape' must be tuple of ints, not {type(shape).__name__}")
    sizes = tuple(n if n.__class__ is int else as_size(n) for n in shape)
    total, unknown = 1, -1
    for i, n in enumerate(sizes):
        if n == -1:
            if unknown >= 0:
                raise RuntimeError(f"{name}: only one dimension can be inferred, but -1 is given twice in {list(sizes)}")
            unknown = i
        elif n < 0:
            raise RuntimeError(f"{name}: invalid shape dimension {n} at index {i} of shape {list(sizes)}")
        else:
            total *= n
    if unknown >= 0:
        if total == 0 and numel == 0:
            raise RuntimeError(
                f"cannot reshape tensor of 0 elements into shape {list(sizes)} because the unspecified dimension size -1 "
                "can be any value and is ambiguous"
            )
        if total == 0 or numel % total:
            raise RuntimeError(f"{name}: shape '{list(sizes)}' is invalid for input of size {numel}")
        return (*sizes[:unknown], numel // total, *sizes[unknown + 1 :])
    if total != numel:
        raise RuntimeError(f"{name}: shape '{list(sizes)}' is invalid for input of size {numel}")
    return sizes


@view(surface=0, variadic="size", operator="view(self, size)", samples="of view_as", public_name="view", builtin="seen_view")
def view_shape(self, size):
    """`self` with another shape, over the same memory. Raises: RuntimeError if the strides do not allow it."""


view_shape.sized_by = "size"
view_shape.undone(reshaped_back)


view_shape.shown_as("ViewBackward0", hides="size")


@view_shape.kernel
def _view(a, size):
    made = _viewed_by_numpy(a, size)
    if made is not None:
        return made
    shape = infer_shape("view", size, a.size)
    made = viewed(a, shape)
    if made is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous "
            f"subspaces). Use .reshape(...) instead.\n  wanted size {list(shape)}, input of size {list(a.shape)} and stride "
            f"{[s // a.itemsize for s in a.strides]}"
        )
    return made


def _viewed_by_numpy(a: Any, size: Any) -> Any:
    """`a` reshaped where numpy does it without copying, as it mostly does; None where that takes a closer look."""
    try:
        if size.__class__ is not tuple:
            if not isinstance(size, (tuple, list)):
                return None
            size = tuple(size)
        made = a.reshape(size)
        base = made.base
        # A reshape that had to copy looks at neither of these. Nothing to infer: numpy takes any negative size for -1.
        if a.__class__ is ndarray and (base is a or (base is not None and base is a.base)) and made.shape == size:
            return made
    except (ValueError, TypeError, AttributeError):
        pass
    return None


@view_shape.vjp
def _view_vjp(grad, self_shape):
    return (grad.reshape(self_shape),)


@view_shape.vjp_on_arrays
def _view_vjp_on_arrays(grad, self_shape):
    return (reshaped(grad, self_shape),)


def view_method(self: Tensor, *sizes: Any, size: Any = None, dtype: Any = None) -> Tensor:
    """`self` with another shape (`sizes`, or `size`; one of them may be -1) or, given a dtype, its bytes as that dtype."""
    if dtype is None and not (_state.IN_FORCE and view_shape not in _state.PASSED and interpreted()):
        shape: Any = sizes[0] if len(sizes) == 1 and sizes[0].__class__ is not int else sizes
        made = hot_calls.seen_view(self, shape, view_shape, _state.GRAD or _state.local.grad)
        if made is not None and size is None:
            return made if made._node is None else view_shape.with_history(made, self, (shape,))
        a = self._array
        if (
            shape.__class__ is dtypes.dtype and a.__class__ is ndarray and a.itemsize == shape.itemsize and len(sizes) == 1
            and not (_state.IN_FORCE and interpreted())
        ):  # fmt: skip
            return view_dtype.of(self, a.view(shape.numpy), sizes)
    elif dtype is None and size is None:
        shape = sizes[0] if len(sizes) == 1 and sizes[0].__class__ is not int else sizes
        if (follow := _state.FOLLOWED) is not None and (made := follow(view_shape, self, shape)) is not None:
            return made
    elif (
        dtype.__class__ is dtypes.dtype and not sizes and size is None and self._array.__class__ is ndarray
        and not (_state.IN_FORCE and interpreted())
    ):  # fmt: skip
        return view_dtype.of(self, _view_dtype(self._array, dtype), (dtype,))
    if size is not None:
        if sizes or dtype is not None:
            raise TypeError(f"view(): argument 'size' is given by name, and {(*sizes, dtype)[0]!r} beside it")
        sizes = (size,)
    if dtype is None and sizes and isinstance(sizes[0], (dtypes.dtype, type)):
        dtype = sizes[0]
    if dtype is not None:
        return view_dtype.function(self, dtypes.as_dtype(dtype))
    if len(sizes) == 1 and not isinstance(sizes[0], (int, Tensor, np.integer, SymInt)):
        sizes = sizes[0]  # pyright: ignore[reportAssignmentType]  # the arguments rule the other types out
    if has_bools(sizes):                                  # after an integer PyTorch takes them for such
        sizes = tuple([int(n) if isinstance(n, bool) else n for n in sizes])
    if _state.IN_FORCE and interpreted() or self._array.__class__ is not ndarray:
        return view_shape.function(self, size=sizes)
    return view_shape.of(self, _view(self._array, sizes), (sizes,))


Tensor.view = view_method  # type: ignore[attr-defined]


@view(surface=0, operator="view(self, dtype)", samples="i(9, 4), fb.float64", public_name="view", batch_rule=same_dims)
def view_dtype(self, dtype):
    """The bytes of `self` as another dtype."""


@view_dtype.in_pieces
def _view_dtype_pieces(asked):
    same = asked["dtype"].itemsize == asked["self"].dtype.itemsize
    return "...->..." if same else "..._->..._"


view_dtype.undone(reshaped_back)
view_dtype.not_differentiable = "bytes have no derivative"


@view_dtype.kernel
def _view_dtype(a, dtype):
    old, new = a.itemsize, dtype.numpy.itemsize
    if old == new and a.__class__ is ndarray:
        return a.view(dtype.numpy)
    if a.ndim == 0 and old != new:
        raise RuntimeError(f"self.dim() cannot be 0 to view {dtypes.from_numpy_dtype(a.dtype)} as {dtype} (different element sizes)")
    # Steps along a dimension without a next element mean nothing; numpy's are 0 where there is no element at all.
    is_misaligned = old != new and a.shape[-1] != 1 and 0 not in a.shape and a.strides[-1] != old
    if old != new and (a.shape[-1] * old % new or is_misaligned):
        raise RuntimeError(
            f"view: self.size(-1) must be divisible by {new / old:g} and stride(-1) must be 1 to view "
            f"{dtypes.from_numpy_dtype(a.dtype)} as {dtype}, but got shape {list(a.shape)}"
        )
    if type(a) is MetaArray:
        shape = (*a.shape[:-1], a.shape[-1] * old // new) if a.ndim else ()
        return as_meta(a, shape, dtype.numpy, a.strides if old == new else (*a.strides[:-1], new))
    return a.view(dtype.numpy)


@composite(surface=METHOD | FUNCTION, variadic="shape", samples="x(2, 3), (3, 2); x(2, 3), (-1,)", elements="moved")
def reshape(input, shape):
    """`input` with another shape: a view where the strides allow it, else a copy.

    Args:
        shape: of as many elements; one size may be -1 and follows from the others.

    >>> fb.arange(6).reshape(2, -1)
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    sizes = infer_shape("reshape", (shape,) if isinstance(shape, (int, SymInt)) else shape, input.numel())
    if input.is_contiguous() or viewed(input._looks._array, sizes) is not None:
        return view_shape.function(input, size=sizes)
    made = view_shape.function(input.clone(memory_format=_contiguous_format()), size=sizes)
    made._view_of = None  # of a copy that nobody else sees
    return made


reshape.undone(reshaped_back)


@reshape.forwards
def _reshaped(input, shape):
    try:
        shape = tuple(shape) if shape.__class__ is list else shape
        made = view_shape.usual(input, shape)
        if made is not None:
            return made
        a = input._array
        if a.__class__ is not ndarray or not isinstance(shape, (tuple, list)):
            return None
        shape = tuple(shape)
        if -1 in shape and not a.size or min(shape, default=0) < -1:
            return None
        made = reshaped(a, shape)
    except (AttributeError, TypeError, ValueError):  # no tensor, no sizes, or such as do not fit
        return None
    base = made.base
    if base is a or base is not None and base is a.base:
        return view_shape.of(input, made, (shape,))
    return hot_calls.over(made) if input._node is None else None


@view_shape.batch
@reshape.batch
def _view_shape_batch(level: Any, op: Any, args: Any) -> Any:
    x, size = args
    sizes = infer_shape(op.name, (size,) if isinstance(size, int) else size, x.numel())
    return level.wrap(run(op, level.front(x), (level.size, *sizes)))


def _contiguous_format() -> Any:
    from ...devices import contiguous_format

    return contiguous_format


@composite(surface=METHOD, samples="x(2, 3), x(3, 2)", elements="moved")
def reshape_as(self, other):
    """`self` reshaped to the shape of `other`."""
    return self.reshape(other.shape)


reshape_as.undone(reshaped_back)


@reshape_as.forwards
def _reshaped_as(self, other):
    return _reshaped(self, other._array.shape) if isinstance(other, Tensor) else None


@composite(surface=METHOD, samples="x(2, 3), x(3, 2)", elements="moved")
def view_as(self, other):
    """`self` viewed with the shape of `other`."""
    return self.view(other.shape)


view_as.undone(reshaped_back)


@view_as.forwards
def _viewed_as(self, other):
    return view_shape.usual(self, other._array.shape) if isinstance(other, Tensor) else None


@composite(surface=METHOD | FUNCTION, samples="x(2, 3, 4); x(2, 3, 4), 1", elements="moved", names=flattens)
def flatten(input, start_dim=0, end_dim=-1):
    """`input` with the dimensions from `start_dim` to `end_dim` merged into one; a view where it can be."""
    start, end = wrap_dim(start_dim, input.ndim), wrap_dim(end_dim, input.ndim)
    if input.ndim == 0:
        return input.reshape(1)
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if start == end:
        return input
    shape = input.shape
    return input.reshape((*shape[:start], shape[start : end + 1].numel(), *shape[end + 1 :]))


flatten.undone(reshaped_back)


@flatten.forwards
def _flattened(input, start_dim, end_dim):
    a = getattr(input, "_array", None)
    if a.__class__ is not ndarray or start_dim.__class__ is not int or end_dim.__class__ is not int:
        return None
    ndim = a.ndim
    start, end = start_dim if start_dim >= 0 else start_dim + ndim, end_dim if end_dim >= 0 else end_dim + ndim
    if not 0 <= start < end < ndim or not a.size:
        return None
    shape = a.shape
    size = (-1,) if end - start == ndim - 1 else (*shape[:start], -1, *shape[end + 1 :])
    made = view_shape.usual(input, size)
    return _reshaped(input, size) if made is None else made


@composite(surface=METHOD | FUNCTION, samples="x(2, 3)", elements="moved")
def ravel(input):
    """`input` as a contiguous one-dimensional tensor."""
    return input.contiguous().view(-1)


@ravel.forwards
def _raveled(input):
    return view_shape.usual(input, (-1,))


@composite(surface=METHOD | FUNCTION, samples="x(2, 6), 1, (2, 3)", elements="moved", names=unflattens)
def unflatten(input, dim: int, sizes: Sequence[int]):
    """A view of `input` with dimension `dim` split into `sizes`, one of which may be -1.

    >>> fb.ones(2, 12).unflatten(1, (3, -1)).shape
    torch.Size([2, 3, 4])
    """
    if input.ndim == 0:
        raise RuntimeError("unflatten(): a tensor without dimensions has none to split; unsqueeze(0) gives it one")
    d = wrap_dim(dim, input.ndim)
    if not isinstance(sizes, (tuple, list)):
        raise TypeError(f"unflatten(): argument 'sizes' must be tuple of ints, not {type(sizes).__name__}")
    if len(sizes) == 0:
        raise RuntimeError("unflatten: sizes must be non-empty")
    total = 1
    for n in sizes:
        total *= n
    if (-1 not in sizes and total != input.shape[d]) or (-1 in sizes and (total == 0 or input.shape[d] % -total)):
        raise RuntimeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {d} ({input.shape[d]}) in the input tensor"
        )
    return input.view(input.shape[:d] + infer_shape("unflatten", sizes, input.shape[d]) + input.shape[d + 1 :])


unflatten.undone(reshaped_back)


@unflatten.forwards
def _unflattened(input, dim, sizes):
    a = getattr(input, "_array", None)
    if a.__class__ is not ndarray or dim.__class__ is not int or not isinstance(sizes, (tuple, list)) or not sizes:
        return None
    d = dim if dim >= 0 else dim + a.ndim
    if not 0 <= d < a.ndim:
        return None
    return view_shape.usual(input, (*a.shape[:d], *sizes, *a.shape[d + 1 :]))
