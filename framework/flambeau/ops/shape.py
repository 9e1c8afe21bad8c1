"""Views and rearrangements: operations that move elements without changing them."""

from __future__ import annotations

import weakref
from operator import index as as_index
from typing import Any, NamedTuple

import numpy as np

from .. import _arrays, _state, dtypes
from .._arrays import MetaArray, ndarray
from ..devices import Size
from ..dtypes import F4, F8
from ..tensor import Tensor, storage_buffer, wrap, wrap_dim
from ._spec import (
    FUNCTION,
    INPLACE,
    METHOD,
    OUT,
    composite,
    describe,
    primitive,
    register_view,
    view,
    wrap_dims,
)

SLOW, GRAD = _state.SLOW, _state.GRAD
_state.share(globals())                               # keeps both as they are there
_new, _ref, local, next_seq = object.__new__, weakref.ref, _state.local, _state.next_seq

# -- views of arrays -----------------------------------------------------------------------------------------------------


def restrided(a: Any, shape: Any, strides: Any, skip: int = 0) -> Any:
    """A view of `a` with byte `strides`, starting `skip` bytes after its first element."""
    if type(a) is MetaArray:
        made = MetaArray(tuple(shape), _arrays.plain_dtype(a.dtype), tuple(strides), a.offset + skip)
        made.base = a.base or a
        return made
    if skip and a.size:
        flat = np.lib.stride_tricks.as_strided(a, (skip // a.itemsize + 1,), (a.itemsize,))
        a = flat[-1:]
    return np.lib.stride_tricks.as_strided(a, tuple(shape), tuple(strides))


def viewed(a: Any, shape: tuple[int, ...]) -> Any:
    """`a` reshaped without copying, or None when its strides do not allow that."""
    if type(a) is ndarray:
        if a.size == 0:
            return a.reshape(shape)
        try:
            return a.reshape(shape, copy=False)
        except ValueError:
            return None
    strides = view_strides(a, shape)
    return None if strides is None else restrided(a, shape, strides)


def view_strides(a: Any, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Byte strides that make `a` look like `shape`, or None: each run of merged dimensions must be evenly spaced."""
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
    sizes = tuple(n if n.__class__ is int else as_index(n) for n in shape)
    total, unknown = 1, -1
    for i, n in enumerate(sizes):
        if n == -1:
            if unknown >= 0:
                raise RuntimeError(f"{name}: only one dimension can be inferred, but -1 is given twice in {list(sizes)}")
            unknown = i
        elif n < 0:
            raise RuntimeError(f"{name}: invalid shape dimension {n} in {list(sizes)}")
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


# -- views ---------------------------------------------------------------------------------------------------------------


@view(surface=0, spread="size")
def view_shape(self, size):
    """`self` with another shape, over the same memory. Raises: RuntimeError if the strides do not allow it."""


ViewShapeNode = view_shape.node_class
ViewShapeNode.title = "ViewBackward0"


@view_shape.kernel
def _view(a, size):
    shape = infer_shape("view", size, a.size)
    made = viewed(a, shape)
    if made is None:
        raise RuntimeError(
            f"view: size {list(shape)} is not compatible with input of size {list(a.shape)} and stride "
            f"{[s // a.itemsize for s in a.strides]} (at least one dimension spans across two contiguous subspaces). "
            "Use .reshape(...) instead."
        )
    return made


@view_shape.vjp
def _view_vjp(grad, self_shape):
    return (grad.reshape(self_shape),)


@view_shape.raw
def _view_raw(grad, self_shape):
    return (grad.reshape(self_shape),)


def view_method(self: Tensor, *size: Any, dtype: Any = None) -> Tensor:
    """`self` with another shape (sizes, one of them possibly -1) or, given a dtype, its bytes as that dtype."""
    if dtype is None and not SLOW:
        a = self._a
        try:
            # `view(2, 8)` first; a sequence of sizes and everything unusual takes the longer way.
            made = a.reshape(size)
            base = made.base
            # A reshape that had to copy looks at neither of these. Nothing to infer: numpy takes any negative size for -1.
            if (base is a or (base is not None and base is a.base)) and made.shape == size and a.__class__ is ndarray:
                # This is `view_shape.of`, written out: the call would be a tenth of the time.
                t = _new(Tensor)
                t._a = made
                record = t._v = self._v
                before = self._b
                t._b = (self, view_shape, (size,), None) if before is None else (before[0], view_shape, (size,), before)
                parent = self._n
                if GRAD or local.grad:
                    if parent is None:
                        t._n = None
                    else:
                        node = t._n = _new(ViewShapeNode)
                        node.seq = next_seq()
                        node.parents = (parent,)
                        node.hooks = None
                        node.saved = (a.shape, size)
                        node.versions = ()
                        node.shape = 0
                    views = record[3]
                    if views is not None and len(views) < 32:
                        views.append(_ref(t))
                    else:
                        register_view(t)
                else:
                    t._n = None
                return t
        except (ValueError, TypeError, IndexError, AttributeError):  # said better below; or a dtype, a sequence, a meta tensor
            pass
        if a.__class__ is ndarray and len(size) == 1 and size[0].__class__ is not int:
            try:
                made = a.reshape(size[0])
                base = made.base
                if (base is a or (base is not None and base is a.base)) and made.shape == size[0]:
                    return view_shape.of(self, made, size)
            except (ValueError, TypeError, IndexError):
                pass
    if dtype is None and size and isinstance(size[0], (dtypes.dtype, type)):
        dtype = size[0]
    if dtype is not None:
        return view_dtype.function(self, dtypes.as_dtype(dtype))
    if len(size) == 1 and not isinstance(size[0], (int, Tensor)):
        size = size[0]  # pyright: ignore[reportAssignmentType]  # the arguments rule the other types out
    return view_shape.function(self, size=size) if _state.SLOW else view_shape.of(self, _view(self._a, size), (size,))


Tensor.view = view_method  # type: ignore[attr-defined]


@view(surface=0)
def view_dtype(self, dtype):
    """The bytes of `self` as another dtype."""


view_dtype.not_differentiable = "bytes have no derivative"


@view_dtype.kernel
def _view_dtype(a, dtype):
    old, new = a.itemsize, dtype.itemsize
    if a.ndim == 0 and old != new:
        raise RuntimeError(f"self.dim() cannot be 0 to view {dtypes.from_numpy_dtype(a.dtype)} as {dtype} (different element sizes)")
    if old != new and (a.shape[-1] * old % new or (a.strides[-1] != old and a.shape[-1] != 1)):
        raise RuntimeError(
            f"view: self.size(-1) must be divisible by {new / old:g} and stride(-1) must be 1 to view "
            f"{dtypes.from_numpy_dtype(a.dtype)} as {dtype}, but got shape {list(a.shape)}"
        )
    if type(a) is MetaArray:
        shape = (*a.shape[:-1], a.shape[-1] * old // new) if a.ndim else ()
        return MetaArray(shape, dtype.numpy)
    return a.view(dtype.numpy)


@view(spread="shape", surface=0)
def expand_shape(self, shape):
    """`self` with dimensions of size 1 repeated without copying."""


@expand_shape.kernel
def _expand(a, size):
    sizes = [as_index(n) for n in size]
    extra = len(sizes) - a.ndim
    if extra < 0:
        raise RuntimeError(
            f"expand({list(a.shape)}, size={sizes}): the number of sizes provided ({len(sizes)}) must be greater or equal to "
            f"the number of dimensions in the tensor ({a.ndim})"
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
            raise RuntimeError(
                f"expand: the expanded size of the tensor ({wanted}) must match the existing size ({n}) at non-singleton "
                f"dimension {i + extra}. Target sizes: {sizes}. Tensor sizes: {list(a.shape)}"
            )
    if any(n < 0 for n in sizes[:extra]):
        raise RuntimeError(f"expand: -1 isn't allowed in a leading, non-existing dimension; got {sizes}")
    return restrided(a, sizes, strides)


@expand_shape.vjp
def _expand_vjp(grad, self_shape):
    from ._spec import sum_tensor_to

    return (sum_tensor_to(grad, self_shape),)


@expand_shape.raw
def _expand_raw(grad, self_shape):
    from ._spec import sum_to

    return (sum_to(grad, self_shape),)


@composite(surface=METHOD, spread="size")
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


@composite(surface=METHOD)
def expand_as(self, other):
    """`self` expanded to the shape of `other`."""
    return self.expand(other.shape)


@view(surface=METHOD | FUNCTION, spread="dims")
def permute(input, dims):
    """A view of `input` with its dimensions in the order `dims`, each named once.

    >>> fb.ones(2, 3, 5).permute(2, 0, 1).shape
    torch.Size([5, 2, 3])
    """


@permute.kernel
def _permute(a, dims):
    order = [wrap_dim(as_index(d), a.ndim) for d in dims]
    if len(order) != a.ndim:
        raise RuntimeError(
            f"permute(sparse_coo): number of dimensions in the tensor input ({a.ndim}) does not match the length of the "
            f"desired ordering of dimensions, {len(order)}".replace("(sparse_coo)", "")
        )
    if len(set(order)) != len(order):
        raise RuntimeError(f"permute(): duplicate dims are not allowed, got {list(dims)}")
    if type(a) is MetaArray:
        return restrided(a, [a.shape[d] for d in order], [a.strides[d] for d in order])
    return a.transpose(order)


@permute.vjp
def _permute_vjp(grad, dims):
    return (grad.permute(_inverse(dims, grad.dim())),)


@permute.raw
def _permute_raw(grad, dims):
    return (grad.transpose(_inverse(dims, grad.ndim)),)


def _inverse(dims: Any, ndim: int) -> list[int]:
    back = [0] * ndim
    for at, d in enumerate(dims):
        back[d % ndim] = at
    return back


@view(surface=METHOD | FUNCTION | INPLACE, aliases=("swapaxes", "swapdims"))
def transpose(input, dim0, dim1):
    """A view of `input` with the dimensions `dim0` and `dim1` exchanged."""


@transpose.kernel
def _transpose(a, dim0, dim1):
    ndim = a.ndim
    i, j = wrap_dim(dim0, ndim), wrap_dim(dim1, ndim)
    if i == j:
        return restrided(a, a.shape, a.strides) if type(a) is MetaArray else a[...]
    if type(a) is ndarray:
        return a.swapaxes(i, j)
    shape, strides = list(a.shape), list(a.strides)
    shape[i], shape[j] = shape[j], shape[i]
    strides[i], strides[j] = strides[j], strides[i]
    return restrided(a, shape, strides) if type(a) is MetaArray else a.swapaxes(i, j)


@transpose.fast
def _transpose_fast(input, dim0, dim1):
    if input.__class__ is not Tensor or input._a.__class__ is not ndarray:
        return None
    try:
        return transpose.of(input, input._a.swapaxes(dim0, dim1), (dim0, dim1))
    except (ValueError, TypeError):  # dims out of range, said better by the general path
        return None


@transpose.vjp
def _transpose_vjp(grad, dim0, dim1):
    return (grad.transpose(dim0, dim1),)


@transpose.raw
def _transpose_raw(grad, dim0, dim1):
    return (grad.swapaxes(dim0, dim1) if grad.ndim else grad,)


def _check_matrix(input: Any) -> None:
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")


@composite(surface=METHOD | FUNCTION | INPLACE)
def t(input):
    """A view of the transpose of a matrix; a vector or scalar as it is. Raises: RuntimeError for more dimensions."""
    _check_matrix(input)
    return input.transpose(0, 1) if input.ndim == 2 else input.view(input.shape)


def _transpose_in_place(target: Tensor) -> Tensor:
    _check_matrix(target)
    if target.ndim == 2:
        return transpose.run_inplace(target, 0, 1)
    return view_shape.run_inplace(target, target._a.shape)


t.inplace_view = _transpose_in_place


@composite(surface=METHOD | FUNCTION)
def adjoint(input):
    """The conjugate transpose of the last two dimensions, also ``.mH``; of real tensors a view."""
    if input.ndim == 0:
        return input
    swapped = input.transpose(-2, -1)
    return swapped.conj() if input.is_complex() else swapped


@composite(surface=METHOD | FUNCTION)
def movedim(input, source, destination):
    """A view of `input` with the dimensions `source` moved to the places `destination`; the others keep their order.

    >>> fb.ones(2, 3, 5).movedim(0, -1).shape
    torch.Size([3, 5, 2])
    """
    sources = (source,) if isinstance(source, int) else tuple(source)
    places = (destination,) if isinstance(destination, int) else tuple(destination)
    if len(sources) != len(places):
        raise RuntimeError(f"movedim: Invalid source or destination dims: {sources} and {places} differ in length")
    ndim = input.ndim
    sources, places = [wrap_dim(d, ndim) for d in sources], [wrap_dim(d, ndim) for d in places]
    if len(set(sources)) != len(sources) or len(set(places)) != len(places):
        raise RuntimeError(f"movedim: repeated dim in `source` ({sources}) or `destination` ({places})")
    if not ndim:
        return input.view(())
    order: list[Any] = [None] * ndim
    for s, d in zip(sources, places, strict=True):
        order[d] = s
    rest = iter(d for d in range(ndim) if d not in sources)
    return input.permute([next(rest) if d is None else d for d in order])


@composite(surface=METHOD | FUNCTION)
def moveaxis(input, source, destination):
    """Another name of `movedim`."""
    return movedim(input, source, destination)


@view(surface=METHOD | FUNCTION | INPLACE)
def unsqueeze(input, dim):
    """A view of `input` with a dimension of size 1 inserted at `dim`, which may be -1 for the end."""


@unsqueeze.kernel
def _unsqueeze(a, dim):
    at = wrap_dim(dim, a.ndim + 1)
    step = a.shape[at] * a.strides[at] if at < a.ndim else a.itemsize
    return restrided(a, (*a.shape[:at], 1, *a.shape[at:]), (*a.strides[:at], step, *a.strides[at:]))


@unsqueeze.vjp
def _unsqueeze_vjp(grad, dim):
    return (grad.squeeze(dim),)


@view(surface=0)
def squeeze_dims(input, dims):
    """`input` without those of `dims` that have size 1."""


@squeeze_dims.kernel
def _squeeze(a, dims):
    kept = [i for i, n in enumerate(a.shape) if not (i in dims and n == 1)]
    return restrided(a, [a.shape[i] for i in kept], [a.strides[i] for i in kept])


@squeeze_dims.vjp
def _squeeze_vjp(grad, input_shape):
    return (grad.reshape(input_shape),)


@composite(surface=METHOD | FUNCTION | INPLACE)
def squeeze(input, dim=None):
    """A view of `input` without its dimensions of size 1, or without those of `dim` (an int or tuple) that have size 1.

    >>> fb.ones(1, 3, 1).squeeze().shape, fb.ones(1, 3, 1).squeeze(0).shape
    (torch.Size([3]), torch.Size([3, 1]))
    """
    return squeeze_dims.function(input, _squeezed(input, dim))


def _squeezed(input: Tensor, dim: Any) -> tuple[int, ...]:
    """The dimensions that `squeeze` looks at; an empty tuple of dims means none."""
    if dim is None or isinstance(dim, int):
        return wrap_dims("squeeze", dim, input.ndim)
    return wrap_dims("squeeze", tuple(dim), input.ndim) if len(dim) else ()


squeeze.inplace_view = lambda target, dim: squeeze_dims.run_inplace(target, _squeezed(target, dim))


@view(surface=METHOD | FUNCTION)
def narrow(input, dim, start, length):
    """A view of the part of `input` from `start` on along `dim`, `length` long.

    Raises: RuntimeError for a part that reaches outside.
    """


@narrow.kernel
def _narrow(a, dim, start, length):
    d = wrap_dim(dim, a.ndim) if a.ndim else _no_dims("narrow")
    n = a.shape[d]
    start = int(start.item() if isinstance(start, Tensor) else start)
    if length < 0:
        raise RuntimeError(f"narrow(): length must be non-negative, got {length}")
    if not -n <= start <= n:
        raise IndexError(f"start out of range (expected to be in range of [{-n}, {n}], but got {start})")
    start += n if start < 0 else 0
    if start + length > n:
        raise RuntimeError(f"narrow: start ({start}) + length ({length}) exceeds dimension size ({n}).")
    return sliced(a, d, start, start + length, 1)


def _no_dims(name: str) -> int:
    raise RuntimeError(f"{name}() cannot be applied to a 0-dim tensor.")


@narrow.vjp
def _narrow_vjp(grad, input_shape, dim, start, length):
    whole = grad.new_zeros(input_shape)
    whole.narrow(dim, start, length).copy_(grad)
    return (whole,)


def sliced(a: Any, d: int, start: int, stop: int, step: int) -> Any:
    """``a[start:stop:step]`` along dimension `d`."""
    if type(a) is MetaArray:
        length = max(0, -(-(stop - start) // step))
        shape, strides = list(a.shape), list(a.strides)
        shape[d], strides[d] = length, strides[d] * step
        return restrided(a, shape, strides, start * a.strides[d] if length else 0)
    return a[(slice(None),) * d + (slice(start, stop, step),)]


@view(surface=METHOD | FUNCTION)
def select(input, dim, index):
    """A view of the slice at `index` along `dim`, without that dimension. Raises: IndexError out of range."""


@select.kernel
def _select(a, dim, index):
    if a.ndim == 0:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    d = wrap_dim(dim, a.ndim)
    i, n = as_index(index), a.shape[d]
    if not -n <= i < n:
        raise IndexError(f"select(): index {i} out of range for tensor of size {list(a.shape)} at dimension {d}")
    i += n if i < 0 else 0
    if type(a) is MetaArray:
        return restrided(a, a.shape[:d] + a.shape[d + 1 :], a.strides[:d] + a.strides[d + 1 :], i * a.strides[d])
    return a[(slice(None),) * d + (i, ...)]


@select.vjp
def _select_vjp(grad, input_shape, dim, index):
    whole = grad.new_zeros(input_shape)
    whole.select(dim, index).copy_(grad)
    return (whole,)


@select.raw
def _select_raw(grad, input_shape, dim, index):
    whole = np.zeros(input_shape, grad.dtype)
    whole[(slice(None),) * (dim % len(input_shape)) + (index,)] = grad
    return (whole,)


select.node_class.adds_piece = True


@view(surface=0)
def slice_dim(input, dim, start, stop, step):
    """``input[start:stop:step]`` along `dim`, bounds already within the dimension."""


@slice_dim.kernel
def _slice(a, dim, start, stop, step):
    return sliced(a, dim, start, stop, step)


@slice_dim.vjp
def _slice_vjp(grad, input_shape, dim, start, stop, step):
    whole = grad.new_zeros(input_shape)
    slice_dim.function(whole, dim, start, stop, step).copy_(grad)
    return (whole,)


@slice_dim.raw
def _slice_raw(grad, input_shape, dim, start, stop, step):
    whole = np.zeros(input_shape, grad.dtype)
    whole[(slice(None),) * dim + (slice(start, stop, step),)] = grad
    return (whole,)


slice_dim.node_class.adds_piece = True


@view(surface=METHOD | FUNCTION | INPLACE)
def as_strided(input, size, stride, storage_offset=None):
    """A view of the storage of `input` with any `size`, `stride` and `storage_offset` (in elements).

    Raises: RuntimeError when it would reach outside the storage.
    """


@as_strided.kernel
def _as_strided(a, size, stride, offset):
    raise RuntimeError("as_strided works on tensors")  # replaced by `run` below, which needs the storage


def _run_as_strided(input: Any, size: Any, stride: Any, storage_offset: Any = None) -> Tensor:
    if not isinstance(input, Tensor):
        raise TypeError(f"as_strided(): argument 'input' must be Tensor, not {type(input).__name__}")
    a = input._a
    size, stride = tuple(map(as_index, size)), tuple(map(as_index, stride))
    if len(size) != len(stride):
        raise RuntimeError(f"mismatch in length of strides and shape: size {list(size)}, stride {list(stride)}")
    if any(s < 0 for s in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}")
    offset = input.storage_offset() if storage_offset is None else as_index(storage_offset)
    step = a.itemsize
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    if type(a) is MetaArray:
        made = MetaArray(size, _arrays.plain_dtype(a.dtype), tuple(s * step for s in stride), offset * step)
    else:
        buffer = storage_buffer(input)
        last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) + 1
        if 0 not in size and last * step > len(buffer):
            raise RuntimeError(
                f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and itemsize {step} requiring "
                f"a storage size of {last * step} are out of bounds for storage of size {len(buffer)}"
            )
        made = _arrays.restride(a, size, tuple(s * step for s in stride), offset * step, buffer)
    view = as_strided.finish((input, size, stride, offset), made)
    if view._n is not None:
        # The gradient reads where the elements of `input` lie, not what they are, so they may be overwritten.
        node = view._n
        node.saved = (Geometry(tuple(input.shape), input.stride(), input.storage_offset()), *node.saved[1:])
        node.versions = (None,) * len(node.saved)
    return view


class Geometry(NamedTuple):
    """Where the elements of a strided tensor lie in its storage."""

    shape: tuple[int, ...]
    steps: tuple[int, ...]
    offset: int


as_strided.run = _run_as_strided  # type: ignore[method-assign]


@as_strided.vjp
def _as_strided_vjp(grad, input, size, stride, storage_offset):
    # Add the pieces where they lie in the storage, then read the storage the way the input does.
    geometry = input
    span = storage_span(geometry, size, stride, storage_offset)
    first = min(storage_offset, geometry.offset)
    flat = grad.new_zeros(span)
    places = positions(size, stride, storage_offset - first)
    flat = flat.index_add(0, wrap_index(places), grad.reshape(-1))
    mine = positions(geometry.shape, geometry.steps, geometry.offset - first)
    times = np.bincount(mine, minlength=span)
    if times.max(initial=0) > 1:  # each element of an overlapping input carries its share
        flat = flat / wrap(np.maximum(times, 1)).to(grad.dtype)
    return (flat.index_select(0, wrap_index(mine)).reshape(geometry.shape),)


def wrap_index(positions: Any) -> Tensor:
    return wrap(positions)


def positions(size: Any, stride: Any, offset: int) -> Any:
    """Storage positions of the elements of a strided tensor, in logical order."""
    at = np.full((1,), offset, np.int64)
    for n, s in zip(size, stride, strict=True):
        at = (at[:, None] + np.arange(n, dtype=np.int64) * s).reshape(-1)
    return at


def storage_span(input: Geometry, size: Any, stride: Any, offset: int) -> int:
    def last(n: Any, s: Any, o: int) -> int:
        return o + sum((m - 1) * t for m, t in zip(n, s, strict=True)) + 1

    return max(last(size, stride, offset), last(*input)) - min(offset, input.offset)


# -- reshaping -----------------------------------------------------------------------------------------------------------


@composite(surface=METHOD | FUNCTION, spread="shape")
def reshape(input, shape):
    """`input` with another shape: a view where the strides allow it, else a copy.

    Args:
        shape: of as many elements; one size may be -1 and follows from the others.

    >>> fb.arange(6).reshape(2, -1)
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    a = input._a
    sizes = infer_shape("reshape", (shape,) if isinstance(shape, int) else shape, a.size)
    if viewed(a, sizes) is not None:
        return view_shape.function(input, size=sizes)
    made = view_shape.function(input.clone(memory_format=_contiguous_format()), size=sizes)
    made._b = None  # of a copy that nobody else sees
    return made


def _contiguous_format() -> Any:
    from ..devices import contiguous_format

    return contiguous_format


@composite(surface=METHOD)
def reshape_as(self, other):
    """`self` reshaped to the shape of `other`."""
    return self.reshape(other.shape)


@composite(surface=METHOD)
def view_as(self, other):
    """`self` viewed with the shape of `other`."""
    return self.view(other.shape)


@composite(surface=METHOD | FUNCTION)
def flatten(input, start_dim=0, end_dim=-1):
    """`input` with the dimensions from `start_dim` to `end_dim` merged into one; a view where it can be."""
    if input.ndim == 0:
        return input.reshape(1)
    start, end = wrap_dim(start_dim, input.ndim), wrap_dim(end_dim, input.ndim)
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if start == end:
        return input
    shape = input.shape
    return input.reshape((*shape[:start], shape[start : end + 1].numel(), *shape[end + 1 :]))


@composite(surface=METHOD | FUNCTION)
def ravel(input):
    """`input` as a contiguous one-dimensional tensor."""
    return input.contiguous().view(-1)


@composite(surface=METHOD | FUNCTION)
def unflatten(input, dim, sizes):
    """A view of `input` with dimension `dim` split into `sizes`, one of which may be -1.

    >>> fb.ones(2, 12).unflatten(1, (3, -1)).shape
    torch.Size([2, 3, 4])
    """
    d = wrap_dim(dim, input.ndim)
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


@composite(surface=METHOD | FUNCTION)
def broadcast_to(input, size):
    """`input` expanded to `size`."""
    return input.expand(size)


@composite(surface=FUNCTION, spread="tensors")
def broadcast_tensors(tensors):
    """All `tensors` expanded to the shape they broadcast to."""
    from ._spec import broadcast_shapes as shape_of

    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tensors[0]
    shape = shape_of(broadcast_tensors, tensors, [f"tensors[{i}]" for i in range(len(tensors))])
    return tuple(x.expand(shape) for x in tensors)


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that tensors of `shapes` broadcast to. Raises: RuntimeError when they do not."""
    result: list[int] = []
    for s in shapes:
        sizes = (s,) if isinstance(s, int) else tuple(s)
        if any(n < 0 for n in sizes):
            raise RuntimeError(f"Trying to create tensor with negative dimension: {sizes}")
        result[:0] = [1] * (len(sizes) - len(result))
        for at in range(1, len(sizes) + 1):
            if sizes[-at] != 1 and result[-at] not in (1, sizes[-at]):
                raise RuntimeError(f"Shape mismatch: objects cannot be broadcast to a single shape: {list(shapes)}")
            if sizes[-at] != 1:
                result[-at] = sizes[-at]
    return Size(result)


# -- joining and splitting -----------------------------------------------------------------------------------------------


def _check_cat(tensors: Any, dim: Any) -> Any:
    from ._promote import result_type

    if isinstance(tensors, Tensor):
        raise TypeError("cat(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor")
    tensors = list(tensors)
    if not tensors:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    for i, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            raise TypeError(f"cat(): expected Tensor as element {i} in argument 0, but got {type(x).__name__}")
    wanted = result_type([x if x.ndim else x.reshape(1) for x in tensors])
    shapes = [x for x in tensors if x._a.shape != (0,)]
    for i, x in enumerate(tensors):
        if x.ndim == 0:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    if shapes:
        first = shapes[0]._a.shape
        d = wrap_dim(dim, len(first))
        for i, x in enumerate(shapes):
            s = x._a.shape
            if len(s) != len(first) or s[:d] + s[d + 1 :] != first[:d] + first[d + 1 :]:
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {d}. Expected size {list(first)} but got size {list(s)} "
                    f"for tensor number {i} in the list.\n{describe(tensors=tensors)}"
                )
    else:
        d = wrap_dim(dim, 1)
    return [x if x.dtype is wanted else x.to(wanted) for x in tensors], d


@primitive(surface=FUNCTION | OUT, aliases=("concat", "concatenate"), check=_check_cat, autocast="widest")
def cat(tensors, dim=0):
    """The `tensors` one after another along `dim`; other dimensions must agree.

    One-dimensional empty tensors are skipped, as in PyTorch. Different dtypes are promoted.
    Raises: ValueError for an empty list; RuntimeError for shapes that differ.

    >>> fb.cat([fb.zeros(1, 2), fb.ones(2, 2)])
    tensor([[0., 0.],
            [1., 1.],
            [1., 1.]])
    """


@cat.fast
def _cat_fast(tensors, dim):
    """Plain tensors, none of them recorded, whose floating dtype is what numpy makes of them as well."""
    arrays = []
    try:
        for x in tensors:
            if x._n is not None or x.__class__ is not Tensor:
                return None
            arrays.append(x._a)
        if dim.__class__ is not int:
            return None
        made = _concatenate(arrays, dim)
        d = made.dtype
    # not tensors; no arrays; none at all; 1-d empties, shapes or dims that do not fit
    except (AttributeError, ValueError, TypeError):
        return None
    if not made.flags.c_contiguous:  # in the order of the arguments' memory, where it should be row-major
        return None
    # Of different dtypes numpy may make another than PyTorch: integers with float32 are float64 to numpy alone.
    if d is F4 or d is F8 and arrays[0].dtype is d or all(a.dtype is d for a in arrays):
        return wrap(made)
    return None


# Without asking each argument whether it overrides numpy's functions, which an ndarray does not.
_concatenate = getattr(np.concatenate, "_implementation", np.concatenate)


@cat.kernel
def _cat(arrays, dim):
    kept = [a for a in arrays if a.shape != (0,)]
    if len(kept) < 1:
        return np.empty((0,), arrays[0].dtype)
    return _joined(kept, dim)


def _joined(arrays: Any, dim: int) -> Any:
    """The arrays one after another: in row-major order, unless all are images or volumes with channels last."""
    made = np.concatenate(arrays, dim)
    if made.flags.c_contiguous or (made.ndim in (4, 5) and all(_channels_last(a) for a in arrays)):
        return made
    return np.ascontiguousarray(made)


def _channels_last(a: Any) -> bool:
    return _arrays.strides_follow(a.shape, a.strides, a.itemsize, (1, *range(a.ndim - 1, 1, -1), 0))


@cat.shape
def _cat_shape(tensors, dim):
    kept = [x for x in tensors if tuple(x.shape) != (0,)] or tensors[:1]
    shape = list(kept[0].shape)
    shape[dim] = sum(x.shape[dim] for x in kept)
    return shape, tensors[0].dtype


@cat.vjp
def _cat_vjp(grad, tensors_shape, dim):
    made, at = [], 0
    for shape in tensors_shape:
        if shape == (0,):
            made.append(grad.new_zeros(0))
        else:
            made.append(grad.narrow(dim, at, shape[dim]))
            at += shape[dim]
    return (made,)


def _check_same_shapes(name: str, tensors: Any) -> None:
    if len(tensors) == 0:
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    for i, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}(): expected Tensor as element {i} in argument 'tensors', but got {type(x).__name__}")
        if x.shape != tensors[0].shape:
            raise RuntimeError(
                f"{name} expects each tensor to be equal size, but got {list(tensors[0].shape)} at entry 0 and "
                f"{list(x.shape)} at entry {i}"
            )


@composite(surface=FUNCTION | OUT)
def stack(tensors, dim=0):
    """The `tensors`, all of one shape, along a new dimension `dim`. Raises: RuntimeError for shapes that differ.

    >>> fb.stack([fb.zeros(2), fb.ones(2)], dim=1)
    tensor([[0., 1.],
            [0., 1.]])
    """
    _check_same_shapes("stack", tensors)
    d = wrap_dim(dim, tensors[0].ndim + 1)
    return cat([x.unsqueeze(d) for x in tensors], d)


@stack.fast
def _stack_fast(tensors, dim):
    """Plain tensors of one shape and dtype, none of them recorded, joined without a view of each."""
    arrays = []
    try:
        first = tensors[0]._a
        shape, d = first.shape, first.dtype
        for x in tensors:
            a = x._a
            if x._n is not None or a.shape != shape or a.dtype is not d or x.__class__ is not Tensor:
                return None
            arrays.append(a)
    except (AttributeError, TypeError, IndexError, KeyError):  # not tensors, or none at all
        return None
    if first.__class__ is not ndarray or dim.__class__ is not int or d.isbuiltin != 1:
        return None
    n, ndim = len(arrays), len(shape)
    if not -1 - ndim <= dim <= ndim:
        return None
    if not ndim:
        return wrap(np.array(arrays, d))
    dim %= ndim + 1
    if dim == 0:
        return wrap(_rows_joined(arrays, n, shape, d))
    made = np.empty((*shape[:dim], n, *shape[dim:]), d)
    _concatenate([a.reshape(*shape[:dim], 1, *shape[dim:]) for a in arrays], dim, made)
    return wrap(made)


def _rows_joined(arrays: Any, n: int, shape: tuple[int, ...], d: np.dtype) -> Any:
    """The arrays one below another along a new first dimension."""
    made = np.empty((n, *shape), d)
    _concatenate(arrays, 0, made.reshape(n * shape[0], *shape[1:]))
    return made


@composite(surface=FUNCTION | OUT, aliases=("row_stack",))
def vstack(tensors):
    """The `tensors` one below another; vectors count as rows.

    >>> fb.vstack([fb.zeros(2), fb.ones(2, 2)])
    tensor([[0., 0.],
            [1., 1.],
            [1., 1.]])
    """
    return cat([x.reshape(1, -1) if x.ndim < 2 else x for x in tensors], 0)


@composite(surface=FUNCTION | OUT)
def hstack(tensors):
    """The `tensors` one beside another: along dimension 1, of vectors along 0.

    >>> fb.hstack([fb.zeros(2, 1), fb.ones(2, 2)])
    tensor([[0., 1., 1.],
            [0., 1., 1.]])
    """
    if not tensors:
        raise RuntimeError("hstack expects a non-empty TensorList")
    pieces = [x.reshape(1) if x.ndim == 0 else x for x in tensors]
    return cat(pieces, 0 if pieces[0].ndim == 1 else 1)


@composite(surface=FUNCTION | OUT)
def dstack(tensors):
    """The `tensors` one behind another, along the third dimension."""
    if not tensors:
        raise RuntimeError("dstack expects a non-empty TensorList")
    return cat([_at_least(x, 3) for x in tensors], 2)


@composite(surface=FUNCTION | OUT)
def column_stack(tensors):
    """The `tensors` as columns; matrices contribute all of theirs.

    >>> fb.column_stack([fb.zeros(2), fb.ones(2)])
    tensor([[0., 1.],
            [0., 1.]])
    """
    if not tensors:
        raise RuntimeError("column_stack expects a non-empty TensorList")
    return cat([x.reshape(-1, 1) if x.ndim < 2 else x for x in tensors], 1)


def _at_least(x: Tensor, ndim: int) -> Tensor:
    if x.ndim >= ndim:
        return x
    if ndim == 1 or x.ndim == 0:
        return x.reshape((1,) * ndim)
    if ndim == 2:
        return x.unsqueeze(0)
    return x.unsqueeze(0).unsqueeze(-1) if x.ndim == 1 else x.unsqueeze(-1)


def _each_at_least(tensors: Any, ndim: int) -> Any:
    if len(tensors) == 1:
        tensors = tensors[0]
    return _at_least(tensors, ndim) if isinstance(tensors, Tensor) else tuple(_at_least(x, ndim) for x in tensors)


def atleast_1d(*tensors: Any) -> Any:
    """Each tensor with at least one dimension."""
    return _each_at_least(tensors, 1)


def atleast_2d(*tensors: Any) -> Any:
    """Each tensor with at least two dimensions."""
    return _each_at_least(tensors, 2)


def atleast_3d(*tensors: Any) -> Any:
    """Each tensor with at least three dimensions."""
    return _each_at_least(tensors, 3)


@view(surface=0)
def split_sizes(input, sizes, dim):
    """`input` cut into pieces of `sizes` along `dim`."""


@split_sizes.kernel
def _split(a, sizes, dim):
    made, at = [], 0
    for n in sizes:
        made.append(sliced(a, dim, at, at + n, 1))
        at += n
    return tuple(made)


split_sizes.vjp(lambda grad: grad)  # each piece has its own history


@composite(surface=FUNCTION | METHOD)
def split(tensor, split_size_or_sections, dim=0):
    """Views of `tensor` cut along `dim`, as a tuple.

    Args:
        split_size_or_sections: the size of each piece (the last may be smaller), or a list of sizes that add
            up to the
            dimension.

    >>> fb.split(fb.arange(5), 2)
    (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    """
    if tensor.ndim == 0:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    d = wrap_dim(dim, tensor.ndim)
    n = tensor.shape[d]
    sizes = split_size_or_sections
    if isinstance(sizes, int):
        if sizes < 0 or (sizes == 0 and n):
            raise RuntimeError(f"split expects split_size be {'non-negative' if sizes else 'positive'}, but got split_size={sizes}")
        sizes = [min(sizes, n - at) for at in range(0, n, sizes)] if n else [0]
    elif sum(sizes) != n or any(s < 0 for s in sizes):
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {n} (input tensor's size at dimension {d}), "
            f"but got split_sizes={list(sizes)}"
        )
    return split_sizes.function(tensor, tuple(sizes), d)


@composite(surface=FUNCTION | METHOD)
def split_with_sizes(input, split_sizes, dim=0):
    """Views of `input` cut along `dim` into pieces of the sizes `split_sizes`, which add up to the dimension."""
    return split(input, split_sizes, dim)


@composite(surface=FUNCTION | METHOD)
def chunk(input, chunks, dim=0):
    """Views of `input` cut along `dim` into at most `chunks` pieces of equal size, the last possibly smaller.

    There may be fewer: 5 elements in 4 chunks give 2 + 2 + 1. `tensor_split` gives as many as asked for.
    """
    if input.ndim == 0:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    n = input.shape[dim]
    size = -(-n // chunks)
    return split(input, [0] * chunks, dim) if size == 0 else split(input, size, dim)


@composite(surface=FUNCTION | METHOD)
def tensor_split(input, indices_or_sections, dim=0):
    """Views of `input` cut along `dim`, as a tuple.

    Args:
        indices_or_sections: a number of sections of nearly equal size, or the indices at which to cut.

    >>> fb.tensor_split(fb.arange(5), (1, 3))
    (tensor([0]), tensor([1, 2]), tensor([3, 4]))
    """
    if input.ndim == 0:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    d = wrap_dim(dim, input.ndim)
    n = input.shape[d]
    at = indices_or_sections
    if isinstance(at, Tensor):
        at = at.tolist()
    if isinstance(at, int):
        if at <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {at}")
        small, extra = divmod(n, at)
        return split(input, [small + 1] * extra + [small] * (at - extra), d)
    bounds = [slice(None, i).indices(n)[1] for i in at]
    pieces, before = [], 0
    for b in [*bounds, n]:
        pieces.append(slice_dim.function(input, d, before, max(b, before), 1))
        before = b
    return tuple(pieces)


def _split_at(name: str, smallest: int) -> Any:
    def cut(input: Any, indices_or_sections: Any) -> Any:
        if input.ndim < smallest:
            raise RuntimeError(
                f"torch.{name} requires a tensor with at least {smallest} dimension{'s' if smallest > 1 else ''}, "
                f"but got a tensor with {input.ndim} dimensions!"
            )
        d = {"hsplit": 0 if input.ndim == 1 else 1, "vsplit": 0, "dsplit": 2}[name]
        if isinstance(indices_or_sections, int) and (
            indices_or_sections <= 0 or input.shape[d] % indices_or_sections
        ):
            raise RuntimeError(
                f"torch.{name} attempted to split along dimension {d}, but the size of the dimension {input.shape[d]} is not "
                f"divisible by the split_size {indices_or_sections}!"
            )
        return tensor_split(input, indices_or_sections, d)

    cut.__name__ = name
    cut.__doc__ = f"`tensor_split` along the dimension numpy's {name} uses."
    return composite(surface=FUNCTION | METHOD)(cut)


hsplit, vsplit, dsplit = _split_at("hsplit", 1), _split_at("vsplit", 2), _split_at("dsplit", 3)


@view(surface=FUNCTION | METHOD)
def unbind(input, dim=0):
    """The slices of `input` along `dim`, which they lack, as a tuple of views."""


@unbind.kernel
def _unbind(a, dim):
    if a.ndim == 0:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    d = wrap_dim(dim, a.ndim)
    if type(a) is not MetaArray:
        moved = a if d == 0 else np.moveaxis(a, d, 0)
        return tuple(moved[i, ...] for i in range(a.shape[d]))
    return tuple(_select(a, d, i) for i in range(a.shape[d]))


unbind.vjp(lambda grad: grad)  # each piece has its own history


# -- repeating and turning -----------------------------------------------------------------------------------------------


@composite(surface=METHOD, spread="repeats")
def repeat(self, repeats):
    """`self` tiled: copied `repeats` times along each dimension, new ones in front. For views see `expand`.

    >>> fb.tensor([1, 2]).repeat(2, 2)
    tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]])
    """
    counts = [as_index(r) for r in repeats]
    if len(counts) < self.ndim:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor: "
            f"got {len(counts)} for {self.ndim}"
        )
    if any(r < 0 for r in counts):
        raise RuntimeError(f"Trying to create tensor with negative dimension in repeat{tuple(counts)}")
    shape = (1,) * (len(counts) - self.ndim) + tuple(self.shape)
    x = self.reshape([n for s in shape for n in (1, s)]).expand([n for r, s in zip(counts, shape, strict=True) for n in (r, s)])
    return x.clone(memory_format=_contiguous_format()).view([r * s for r, s in zip(counts, shape, strict=True)])


@composite(surface=FUNCTION | METHOD, spread="dims")
def tile(input, dims):
    """`input` repeated `dims` times along each dimension; missing leading dimensions count 1.

    >>> fb.tile(fb.tensor([[1], [2]]), (2,))
    tensor([[1, 1],
            [2, 2]])
    """
    counts = tuple(dims)
    return input.repeat((1,) * (input.ndim - len(counts)) + counts)


@primitive(surface=FUNCTION | METHOD, spread="dims")
def flip(input, dims):
    """`input` reversed along `dims`, in new memory; numpy would give a view, which has no negative strides here."""


@flip.kernel
def _flip(a, dims):
    axes = wrap_dims("flip", list(dims), a.ndim) if len(dims) else ()
    return np.ascontiguousarray(np.flip(a, axes)) if axes else a.copy()


@flip.vjp
def _flip_vjp(grad, dims):
    return (grad.flip(dims),)


@composite(surface=FUNCTION | METHOD)
def fliplr(input):
    """`input` reversed along its second dimension."""
    if input.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return input.flip(1)


@composite(surface=FUNCTION | METHOD)
def flipud(input):
    """`input` reversed along its first dimension."""
    if input.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return input.flip(0)


@composite(surface=FUNCTION | METHOD)
def rot90(input, k=1, dims=(0, 1)):
    """`input` turned by 90 degrees `k` times, from the first of `dims` towards the second.

    >>> fb.rot90(fb.tensor([[1, 2], [3, 4]]))
    tensor([[2, 4],
            [1, 3]])
    """
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if input.ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {input.ndim}")
    a, b = wrap_dim(dims[0], input.ndim), wrap_dim(dims[1], input.ndim)
    if a == b:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    turns = k % 4
    if turns == 1:
        return input.flip(b).transpose(a, b)
    if turns == 2:
        return input.flip((a, b))
    return input.flip(a).transpose(a, b) if turns == 3 else input.clone(memory_format=_contiguous_format())


@primitive(surface=FUNCTION | METHOD)
def roll(input, shifts, dims=None):
    """`input` with its elements moved by `shifts` along `dims`, coming back in at the other end.

    Without `dims` it is rolled as if it were a vector.

    >>> fb.roll(fb.tensor([1, 2, 3]), 1)
    tensor([3, 1, 2])
    """


@roll.kernel
def _roll(a, shifts, dims):
    moves = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    axes = None if dims is None or dims == () else (dims,) if isinstance(dims, int) else tuple(dims)
    if axes is None:
        if len(moves) != 1:
            raise RuntimeError(f"shifts and dimensions must align. shifts: {len(moves)}, dims:0")
        return np.roll(a, moves[0])
    if len(moves) != len(axes):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(moves)}, dims:{len(axes)}")
    return np.roll(a, moves, tuple(wrap_dim(d, a.ndim) for d in axes))


@roll.vjp
def _roll_vjp(grad, shifts, dims):
    back = -shifts if isinstance(shifts, int) else tuple(-s for s in shifts)
    return (grad.roll(back, dims),)


@view(surface=FUNCTION | METHOD)
def diagonal(input, offset=0, dim1=0, dim2=1):
    """A view of the diagonal over `dim1` and `dim2`, as the last dimension.

    Args:
        offset: how far above the main diagonal; negative below.
    """


@diagonal.kernel
def _diagonal(a, offset, dim1, dim2):
    i, j = wrap_dim(dim1, a.ndim), wrap_dim(dim2, a.ndim)
    if i == j:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    rows, columns = a.shape[i], a.shape[j]
    length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    skip = (offset * a.strides[j] if offset >= 0 else -offset * a.strides[i]) if length else 0
    kept = [d for d in range(a.ndim) if d not in (i, j)]
    shape = (*(a.shape[d] for d in kept), length)
    strides = (*(a.strides[d] for d in kept), a.strides[i] + a.strides[j])
    if type(a) is ndarray:
        made = np.diagonal(a, offset, i, j)
        made.flags.writeable = a.flags.writeable
        return made
    return restrided(a, shape, strides, skip)


@diagonal.vjp
def _diagonal_vjp(grad, input_shape, offset, dim1, dim2):
    whole = grad.new_zeros(input_shape)
    whole.diagonal(offset, dim1, dim2).copy_(grad)
    return (whole,)


@view(surface=METHOD)
def unfold(self, dimension, size, step):
    """A view of all windows of `size` elements, `step` apart, along `dimension`; the windows become the last dimension.

    >>> fb.arange(4).unfold(0, 2, 1)
    tensor([[0, 1],
            [1, 2],
            [2, 3]])
    """


@unfold.kernel
def _unfold(a, dimension, size, step):
    d = wrap_dim(dimension, a.ndim)
    n = a.shape[d] if a.ndim else 1
    if not 0 <= size <= n:
        raise RuntimeError(f"maximum size for tensor at dimension {d} is {n} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if a.ndim == 0:
        return restrided(a, (size,), (a.itemsize,))
    shape, strides = list(a.shape), list(a.strides)
    last = strides[d]
    shape[d], strides[d] = (n - size) // step + 1, last * step
    return restrided(a, (*shape, size), (*strides, last))


@unfold.vjp
def _unfold_vjp(grad, self_shape, dimension, size, step):
    whole = grad.new_zeros(self_shape)
    if not self_shape:
        return (grad.sum(),)
    d = wrap_dim(dimension, len(self_shape))
    count = grad.shape[d]
    for k in range(size):  # windows overlap, so each offset within them is added by itself
        part = slice_dim.function(whole, d, k, k + (count - 1) * step + 1, step)
        part.add_(grad.select(-1, k))
    return (whole,)


# -- complex parts -------------------------------------------------------------------------------------------------------


@view(surface=FUNCTION)
def view_as_real(input):
    """A view of a complex tensor as a real one with a last dimension of size 2: real and imaginary parts.

    Raises: RuntimeError for real tensors.
    """


@view_as_real.kernel
def _view_as_real(a):
    d = dtypes.from_numpy_dtype(a.dtype)
    if not d.is_complex:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    real = d.to_real().numpy
    if type(a) is MetaArray:
        return MetaArray((*a.shape, 2), real, (*a.strides, real.itemsize))
    pairs = a[..., None].view(real) if a.ndim else a.reshape(1).view(real)
    return np.lib.stride_tricks.as_strided(pairs, (*a.shape, 2), (*a.strides, real.itemsize))


@view_as_real.vjp
def _view_as_real_vjp(grad):
    return (view_as_complex(grad.contiguous()),)


@view(surface=FUNCTION)
def view_as_complex(input):
    """A view of a real tensor whose last dimension has size 2 as a complex one; the inverse of `view_as_real`.

    Raises: RuntimeError for other sizes, dtypes, or strides that do not pair the parts.
    """


@view_as_complex.kernel
def _view_as_complex(a):
    d = dtypes.from_numpy_dtype(a.dtype)
    if d.name not in ("float16", "float32", "float64"):
        raise RuntimeError(f"view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: {d}")
    if a.ndim == 0 or a.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    if a.size == 0:
        return MetaArray(a.shape[:-1], d.to_complex().numpy) if type(a) is MetaArray else np.empty(a.shape[:-1], d.to_complex().numpy)
    if a.strides[-1] != a.itemsize:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    target = d.to_complex().numpy
    if type(a) is MetaArray:
        return MetaArray(a.shape[:-1], target, a.strides[:-1])
    return a.view(target)[..., 0]


@view_as_complex.vjp
def _view_as_complex_vjp(grad):
    return (view_as_real(grad),)


def _part(index: int) -> Any:
    def kernel(a: Any) -> Any:
        d = dtypes.from_numpy_dtype(a.dtype)
        if type(a) is MetaArray:
            return MetaArray(a.shape, d.to_real().numpy, a.strides)
        if d is dtypes.complex32:
            return _view_as_real(a)[..., index]
        return a.real if index == 0 else a.imag

    return kernel


@view(surface=0)
def real_part(input):
    """The real part of a complex tensor, a view."""


real_part.kernel(_part(0))


@real_part.vjp
def _real_vjp(grad):
    return (complex_of(grad, grad.new_zeros(grad.shape)),)


@view(surface=0)
def imag_part(input):
    """The imaginary part of a complex tensor, a view."""


imag_part.kernel(_part(1))


@imag_part.vjp
def _imag_vjp(grad):
    return (complex_of(grad.new_zeros(grad.shape), grad),)


def complex_of(real: Tensor, imag: Tensor) -> Tensor:
    """The complex tensor of two real ones."""
    return view_as_complex(stack([real, imag], -1))


@composite(surface=FUNCTION | OUT)
def complex(real, imag):  # PyTorch's name
    """The complex tensor with parts `real` and `imag`, of one floating dtype."""
    for name, x in (("real", real), ("imag", imag)):
        if not isinstance(x, Tensor):
            raise TypeError(f"complex(): argument '{name}' must be Tensor, not {type(x).__name__}")
        if x.dtype.name not in ("float16", "float32", "float64"):
            raise RuntimeError(f"Expected both inputs to be Half, Float or Double tensors but got {real.dtype} and {imag.dtype}")
    if real.dtype is not imag.dtype:
        raise RuntimeError(f"Expected object of scalar type {real.dtype} but got scalar type {imag.dtype} for second argument")
    real, imag = broadcast_tensors(real, imag)
    return complex_of(real, imag)


@composite(surface=FUNCTION)
def real(input):
    """The real part of complex tensors, a view; real tensors as they are."""
    return real_part.function(input) if input.is_complex() else input


@composite(surface=FUNCTION)
def imag(input):
    """The imaginary part of complex tensors, a view. Raises: RuntimeError for real ones."""
    if not input.is_complex():
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return imag_part.function(input)


@composite(surface=FUNCTION | METHOD)
def conj(input):
    """The complex conjugate; a real tensor as it is."""
    return conj_physical(input) if input.is_complex() else input


from ._spec import elementwise  # noqa: E402  # below the views it would shadow


@elementwise(surface=0, vjp={"input": lambda grad: conj(grad)}, title="ConjPhysicalBackward0")
def conjugate(input):
    """The complex conjugate."""
    return conj(input)


@composite(surface=FUNCTION | METHOD | INPLACE | OUT)
def conj_physical(input):
    """The complex conjugate; a real tensor as it is."""
    return conjugate.function(input) if input.is_complex() else input


def _matrix_transpose(self: Tensor) -> Tensor:
    """A view with the last two dimensions exchanged. Raises: RuntimeError for fewer than two."""
    if self.ndim < 2:
        raise RuntimeError(f"tensor.mT is only supported on matrices or batches of matrices. Got {self.ndim}-D tensor.")
    return self.transpose(-2, -1)


def _adjoint(self: Tensor) -> Tensor:
    """The conjugate transpose of the last two dimensions; of real tensors a view. See `adjoint`."""
    if self.ndim < 2 and self.ndim != 0:
        raise RuntimeError(f"tensor.mH is only supported on matrices or batches of matrices. Got {self.ndim}-D tensor.")
    return adjoint(self)


def _hermitian(self: Tensor) -> Tensor:
    """The conjugate transpose of a matrix; of a real one a view."""
    if self.ndim not in (0, 2):
        raise RuntimeError(f"tensor.H is only supported on matrices (2-D tensors). Got {self.ndim}-D tensor.")
    return adjoint(self)


def _set_part(index: int) -> Any:
    def store(self: Tensor, value: Any) -> None:
        (real if index == 0 else imag)(self).copy_(value)

    return store


Tensor.T = property(  # type: ignore[attr-defined]
    lambda self: self.permute(tuple(range(self.ndim - 1, -1, -1))),
    doc="A view with all dimensions in reverse order; meant for two.",
)
Tensor.mT = property(_matrix_transpose)  # type: ignore[attr-defined]
Tensor.mH = property(_adjoint)  # type: ignore[attr-defined]
Tensor.H = property(_hermitian)  # type: ignore[attr-defined]
Tensor.real = property(real, _set_part(0))  # type: ignore[attr-defined]
Tensor.imag = property(imag, _set_part(1))  # type: ignore[attr-defined]

FUNCTIONS = {fn.__name__: fn for fn in (atleast_1d, atleast_2d, atleast_3d, broadcast_shapes)}
