"""Views and rearrangements: operations that move elements without changing them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index as as_index
from typing import Any

import numpy as np

from flambeau_kernels import hot_calls

from ... import _arrays, _state, dtypes
from ..._arrays import MetaArray, ndarray
from ..._state import interpreted
from ..._symbolic import SymInt, as_size
from ..._warn import warn_once
from ...devices import Size
from ...tensor import Tensor, storage_buffer, wrap, wrap_dim
from .._batching import run, same_dims, shifted
from .._makers import refusing
from .._parameters import has_bools
from .._spec import FUNCTION, INPLACE, METHOD, Geometry, check_recorded, composite, int_list, view, wrap_dims

_BEFORE = tuple([(slice(None),) * d for d in range(65)])  # what comes before the index of a dimension

_EVERY = tuple([tuple(range(n)) for n in range(65)])  # all dimensions of so many

IN_FORCE = _state.IN_FORCE
_state.share(globals(), "IN_FORCE")  # keeps them as they are there

# -- views of arrays -----------------------------------------------------------------------------------------------------


def restrided(a: Any, shape: Any, strides: Any, skip: int = 0) -> Any:
    """A view of `a` with byte `strides`, starting `skip` bytes after its first element."""
    if a.__class__ is ndarray:
        made = hot_calls.restrided(a, shape, strides, skip)
        return _restrided_by_numpy(a, tuple(shape), tuple(strides), skip) if made is None else made
    if isinstance(a, MetaArray):
        made = MetaArray(tuple(shape), _arrays.plain_dtype(a.dtype), tuple(strides), a.offset + skip)
        made.base = a.base or a
        return made
    if not isinstance(a, ndarray):
        from ..._cuda import arrays

        return arrays.restride(a, shape, strides, skip)
    return _restrided_by_numpy(a, tuple(shape), tuple(strides), skip)


def _restrided_by_numpy(a: ndarray, shape: tuple[int, ...], strides: tuple[int, ...], skip: int) -> ndarray:
    if a.flags.c_contiguous and a.size:
        return ndarray(shape, a.dtype, a, skip, strides)
    if skip and a.size:
        flat = np.lib.stride_tricks.as_strided(a, (skip // a.itemsize + 1,), (a.itemsize,))
        a = flat[-1:]
    return np.lib.stride_tricks.as_strided(a, shape, strides)


def as_meta(a: MetaArray, shape: Any, dtype: Any, strides: Any, skip: int = 0) -> MetaArray:
    """The memory of `a` from `skip` bytes on, as elements of another numpy dtype."""
    made = MetaArray(shape, dtype, strides, a.offset + skip)
    made.base = a.base or a
    return made


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


# -- views ---------------------------------------------------------------------------------------------------------------


@view(surface=0, variadic="size", operator="view(self, size)", samples="of view_as", public_name="view")
def view_shape(self, size):
    """`self` with another shape, over the same memory. Raises: RuntimeError if the strides do not allow it."""


view_shape.sized_by = "size"


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
def _view_raw(grad, self_shape):
    return (grad.reshape(self_shape),)


def view_method(self: Tensor, *sizes: Any, size: Any = None, dtype: Any = None) -> Tensor:
    """`self` with another shape (`sizes`, or `size`; one of them may be -1) or, given a dtype, its bytes as that dtype."""
    if dtype is None and not (IN_FORCE and interpreted()):
        a = self._array
        made = hot_calls.view(a, sizes)                   # `view(2, 8)` first
        if made is not None and size is None:
            return view_shape.of(self, made, (sizes,))
        if len(sizes) == 1 and sizes[0].__class__ is not int:
            if sizes[0].__class__ is dtypes.dtype and a.__class__ is ndarray and a.itemsize == sizes[0].itemsize:
                return view_dtype.of(self, a.view(sizes[0].numpy), sizes)
            made = hot_calls.view(a, sizes[0])
            if made is not None:
                return view_shape.of(self, made, sizes)
    elif (
        dtype.__class__ is dtypes.dtype and not sizes and size is None and self._array.__class__ is ndarray
        and not (IN_FORCE and interpreted())
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
    if IN_FORCE and interpreted() or self._array.__class__ is not ndarray:
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


@view(variadic="shape", surface=0, operator="expand(self, shape)", samples="of expand", public_name="expand")
def expand_shape(self, shape):
    """`self` with dimensions of size 1 repeated without copying."""


expand_shape.shown_as("ExpandBackward0", hides="shape")


expand_shape.sized_by = "shape"


@expand_shape.kernel
def _expand(a, size):
    made = hot_calls.expand(a, size)
    if made is not None:
        return made
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
def _expand_raw(grad, self_shape):
    from .._spec import sum_to

    return (sum_to(grad, self_shape),)


@expand_shape.batch
def _expand_shape_batch(level: Any, op: Any, args: Any) -> Any:
    x, shape = args
    value, extra = level.front(x), len(shape) - x.ndim
    if extra > 0:
        value = value.reshape(level.size, *(1,) * extra, *x.shape)
    return level.wrap(run(op, value, (level.size, *shape)))


@composite(surface=METHOD, variadic="size", samples="x(1, 3), (2, 3); x(3), (2, -1)", elements="moved")
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
    try:
        made = hot_calls.expand(self._array, tuple(size) if size.__class__ is list else size)
    except (AttributeError, TypeError):  # no tensor, no sizes
        return None
    return None if made is None else expand_shape.of(self, made, (size,))


def _expanded_to_tuple(input, size):
    return _expanded(input, size) if size.__class__ in (tuple, Size) else None


@composite(surface=METHOD, samples="x(1, 3), x(2, 3)", elements="moved")
def expand_as(self, other):
    """`self` expanded to the shape of `other`."""
    return self.expand(other.shape)


@expand_as.forwards
def _expanded_as(self, other):
    return _expanded(self, other._array.shape) if isinstance(other, Tensor) else None


@view(surface=METHOD | FUNCTION, variadic="dims", samples="x(2, 3, 4), (2, 0, 1)", elements="moved")
def permute(input, dims):
    """A view of `input` with its dimensions in the order `dims`, each named once.

    >>> fb.ones(2, 3, 5).permute(2, 0, 1).shape
    torch.Size([5, 2, 3])
    """


permute.shown_as(hides="input_shape")


@permute.kernel
def _permute(a, dims):
    if a.__class__ is ndarray:
        try:
            if dims in _orders and (not dims or dims[0].__class__ is int):  # numpy would take 2**32 for 0, and True for 1
                return a.transpose(dims)
        except (ValueError, TypeError):  # the checks below raise an error that names the op
            pass
    order = [wrap_dim(d if i == 0 else as_index(d), a.ndim) for i, d in enumerate(dims if isinstance(dims, (tuple, list)) else (dims,))]
    if len(order) != a.ndim:
        raise RuntimeError(
            "permute: number of dimensions in the tensor input does not match the length of the desired ordering of dimensions "
            f"i.e. input.dim() = {a.ndim} is not equal to len(dims) = {len(order)}"
        )
    if len(set(order)) != len(order):
        raise RuntimeError(f"permute(): duplicate dims are not allowed. Got {list(dims)}")
    if type(a) is MetaArray:
        return restrided(a, [a.shape[d] for d in order], [a.strides[d] for d in order])
    if dims.__class__ is tuple and len(_orders) < _MOST_ORDERS:
        _orders.add(dims)
    return a.transpose(order)


@permute.batch
def _permute_batch(level: Any, op: Any, args: Any) -> Any:
    x, dims = args
    if len(dims) != x.ndim:
        raise RuntimeError(f"permute: the tensor has {x.ndim} dimensions, but the ordering {list(dims)} has {len(dims)}")
    return level.wrap(run(op, level.front(x), (0, *shifted(x, list(dims)))))


_orders: set[Any] = set()                             # tuples of dimensions that were in order for a tensor
_MOST_ORDERS = 1024


@permute.vjp
def _permute_vjp(grad, dims):
    return (grad.permute(_inverse(dims, grad.dim())),)


@permute.vjp_on_arrays
def _permute_raw(grad, dims):
    return (grad.transpose(_inverse(dims, grad.ndim)),)


def _inverse(dims: Any, ndim: int) -> list[int]:
    back = [0] * ndim
    for at, d in enumerate(dims):
        back[d % ndim] = at
    return back


@view(surface=METHOD | FUNCTION | INPLACE, aliases=("swapdims",), samples="x(2, 3, 4), 0, 2", elements="moved")
def transpose(input, dim0, dim1):
    """A view of `input` with the dimensions `dim0` and `dim1` exchanged."""


transpose.shown_as(hides="input_shape")


@transpose.kernel
def _transpose(a, dim0, dim1):
    if a.__class__ is ndarray:
        try:
            if dim0.__class__ is dim1.__class__ is int:
                return a.swapaxes(dim0, dim1)
        except (ValueError, TypeError):  # dims out of range, for which the checks below raise; or 0-d, which counts as 1-d
            pass
    ndim = a.ndim
    i, j = wrap_dim(dim0, ndim), wrap_dim(dim1, ndim)
    if i == j:
        return restrided(a, a.shape, a.strides) if type(a) is MetaArray else a[...]
    shape, strides = list(a.shape), list(a.strides)
    shape[i], shape[j] = shape[j], shape[i]
    strides[i], strides[j] = strides[j], strides[i]
    return restrided(a, shape, strides) if type(a) is MetaArray else a.swapaxes(i, j)


@transpose.vjp
def _transpose_vjp(grad, dim0, dim1):
    return (grad.transpose(dim0, dim1),)


@transpose.vjp_on_arrays
def _transpose_raw(grad, dim0, dim1):
    return (grad.swapaxes(dim0, dim1) if grad.ndim else grad,)


@transpose.batch
def _transpose_batch(level: Any, op: Any, args: Any) -> Any:
    x, dim0, dim1 = args
    i, j = wrap_dim(dim0, x.ndim), wrap_dim(dim1, x.ndim)
    value = level.front(x)
    return level.wrap(run(op, value, i + 1, j + 1) if x.ndim else value.view(value.shape))


@composite(surface=METHOD | FUNCTION | INPLACE, samples="x(2, 3, 4), 0, 2", elements="moved")
def swapaxes(input, axis0: int, axis1: int):
    """`transpose`, which calls `axis0` and `axis1` dim0 and dim1."""
    return transpose.function(input, axis0, axis1)


swapaxes.inplace_view = transpose.run_inplace


@swapaxes.forwards
def _transposed_axes(input, axis0, axis1):
    a = getattr(input, "_array", None)
    return transpose.of(input, _transpose(a, axis0, axis1), (axis0, axis1)) if a.__class__ is ndarray else None


def _check_matrix(input: Any) -> None:
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")


@composite(surface=METHOD | FUNCTION | INPLACE, samples="x(2, 3); x(3)", elements="moved")
def t(input):
    """A view of the transpose of a matrix; a vector or scalar as it is. Raises: RuntimeError for more dimensions."""
    _check_matrix(input)
    return input.transpose(0, 1) if input.ndim == 2 else input.view(input.shape)


def _transpose_in_place(target: Tensor) -> Tensor:
    _check_matrix(target)
    if target.ndim == 2:
        return transpose.run_inplace(target, 0, 1)
    return view_shape.run_inplace(target, target._array.shape)


@t.forwards
def _transposed(input):
    a = getattr(input, "_array", None)
    return transpose.of(input, a.T, (0, 1)) if a.__class__ is ndarray and a.ndim == 2 else None


t.inplace_view = _transpose_in_place


@composite(surface=METHOD | FUNCTION, samples="x(2, 3); c(2, 2, 3)", elements="moved")
def adjoint(input: Tensor):
    """The conjugate transpose of the last two dimensions, also ``.mH``; of real tensors a view."""
    if input.ndim < 2:
        if input.ndim:
            raise RuntimeError(
                f"tensor.adjoint() is only supported on matrices or batches of matrices. Got {input.ndim}-D tensor."
            )
        warn_once("adjoint() is deprecated on 0-D tensors. Consider using x.conj().")
        return input.conj()
    swapped = input.transpose(-2, -1)
    return swapped.conj() if input.is_complex() else swapped


@composite(surface=METHOD | FUNCTION, samples="x(2, 3, 4), 0, 2; x(2, 3, 4), (0, 1), (1, 2)", elements="moved")
def movedim(input, source: int | Sequence[int], destination: int | Sequence[int]):
    """A view of `input` with the dimensions `source` moved to the places `destination`; the others keep their order.

    >>> fb.ones(2, 3, 5).movedim(0, -1).shape
    torch.Size([3, 5, 2])
    """
    sources, places = tuple(int_list(source)), tuple(int_list(destination))
    if len(sources) != len(places):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(sources)} dims) should contain the same number of dims as "
            f"destination ({list(places)} dims)"
        )
    ndim = input.ndim
    given = {"source": sources, "destination": places}
    sources, places = [wrap_dim(d, ndim) for d in sources], [wrap_dim(d, ndim) for d in places]
    for name, dims in (("source", sources), ("destination", places)):
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({list(given[name])})")
    if not ndim:
        return input.view(())
    order: list[Any] = [None] * ndim
    for s, d in zip(sources, places, strict=True):
        order[d] = s
    rest = iter(d for d in range(ndim) if d not in sources)
    return input.permute([next(rest) if d is None else d for d in order])


@movedim.forwards
def _moved(input, source, destination):
    a = getattr(input, "_array", None)
    if a.__class__ is not ndarray or source.__class__ is not int or destination.__class__ is not int:
        return None
    ndim = a.ndim
    if not (-ndim <= source < ndim and -ndim <= destination < ndim):
        return None
    order = [*range(ndim)]
    order.insert(destination % ndim, order.pop(source))
    return permute.of(input, a.transpose(order), (order,))


@composite(surface=METHOD | FUNCTION, samples="x(2, 3, 4), 0, 2", elements="moved")
def moveaxis(input, source: int | Sequence[int], destination: int | Sequence[int]):
    """Another name of `movedim`."""
    return movedim(input, source, destination)


moveaxis.forwards(_moved)


@view(surface=METHOD | FUNCTION | INPLACE, samples="x(2, 3), 1; x(2, 3), -1", elements="moved")
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
def _unsqueeze_raw(grad, dim):
    return (grad.squeeze(dim),)


@unsqueeze.batch
def _unsqueeze_batch(level: Any, op: Any, args: Any) -> Any:
    x, dim = args
    return level.wrap(run(op, level.front(x), wrap_dim(dim, x.ndim + 1) + 1))


@view(surface=0, operator="squeeze(input, dims)", samples="of squeeze", public_name="squeeze")
def squeeze_dims(input, dims):
    """`input` without those of `dims` that have size 1."""


squeeze_dims.shown_as("SqueezeBackward1", dim="dims")


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
def _squeeze_raw(grad, input_shape):
    return (grad.reshape(input_shape),)


@squeeze_dims.batch
def _squeeze_dims_batch(level: Any, op: Any, args: Any) -> Any:
    x, dims = args
    return level.wrap(run(op, level.front(x), tuple(d + 1 for d in dims)))


@composite(surface=METHOD | FUNCTION | INPLACE, samples="x(2, 1, 3, 1); x(2, 1, 3), 1; x(1, 2, 1), (0, 2)", elements="moved")
def squeeze(input, dim: int | Sequence[int] | None = None):
    """A view of `input` without its dimensions of size 1, or without those of `dim` (an int or tuple) that have size 1.

    >>> fb.ones(1, 3, 1).squeeze().shape, fb.ones(1, 3, 1).squeeze(0).shape
    (torch.Size([3]), torch.Size([3, 1]))
    """
    return squeeze_dims.function(input, _squeezed(input, dim))


@squeeze.forwards
def _view_without_ones(input, dim):
    try:
        a = input._array
        if a.__class__ is not ndarray:
            return None
        if dim is None:
            return squeeze_dims.of(input, a.squeeze(), (_EVERY[a.ndim],))
        if dim.__class__ is not int:
            return None
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


def _with_number(input, dim, start, length):
    """The arguments of `narrow` with a number for a Tensor, which may be another when the gradient comes."""
    if not isinstance(start, Tensor):
        return None
    if start.ndim or start.dtype.category != dtypes.INTEGER:
        raise RuntimeError(f"narrow: start must be an 0-dim integral Tensor. Got shape {tuple(start.shape)}, {start.dtype}")
    return input, dim, start.item(), length


@view(surface=METHOD | FUNCTION, check=_with_number, samples="x(2, 5), 1, 1, 3", elements="moved")
def narrow(input, dim, start: int, length: int):
    """A view of the part of `input` from `start` on along `dim`, `length` long.

    Raises: RuntimeError for a part that reaches outside.
    """


def _narrow_saved(node: Any) -> dict[str, Any]:
    shape, dim, start, length = node.saved
    return {"input_shape": shape, "dim": dim, "start": start, "end": start + length, "step": 1}


narrow.shown_as("SliceBackward0")  # it is one to PyTorch
narrow.node_class.saved_by_name = _narrow_saved


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


@view(surface=METHOD | FUNCTION, samples="x(2, 3), 1, 2; x(2, 3), 0, -1", elements="moved")
def select(input, dim, index):
    """A view of the slice at `index` along `dim`, without that dimension. Raises: IndexError out of range."""


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
def _select_raw(grad, input_shape, dim, index):
    full_grad = np.zeros(input_shape, grad.dtype)
    full_grad[(slice(None),) * (dim % len(input_shape)) + (index,)] = grad
    return (full_grad,)


select.node_class.more_than_rule = True


@view(surface=0, operator="slice(input, dim, start, stop, step)", samples="of getitem_op", public_name="narrow")
def slice_dim(input, dim, start, stop, step):
    """``input[start:stop:step]`` along `dim`, bounds already within the dimension."""


slice_dim.shown_as("SliceBackward0", end="stop")


@slice_dim.kernel
def _slice(a, dim, start, stop, step):
    return sliced(a, dim, start, stop, step)


@slice_dim.vjp
def _slice_vjp(grad, input_shape, dim, start, stop, step):
    full_grad = grad.new_zeros(input_shape)
    slice_dim.function(full_grad, dim, start, stop, step).copy_(grad)
    return (full_grad,)


@slice_dim.vjp_on_arrays
def _slice_raw(grad, input_shape, dim, start, stop, step):
    full_grad = np.zeros(input_shape, grad.dtype)
    full_grad[(slice(None),) * dim + (slice(start, stop, step),)] = grad
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


@view(surface=METHOD | FUNCTION | INPLACE, samples="x(2, 3), (2, 2), (1, 2); x(6), (2, 2), (2, 1), 1")
def as_strided(input, size, stride, storage_offset=None):
    """A view of the storage of `input` with any `size`, `stride` and `storage_offset` (in elements).

    Raises: RuntimeError when it would reach outside the storage.
    """


as_strided.shown_as(hides="input", storage_offset=lambda saved: saved["storage_offset"])


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
    flat = flat.index_add(0, wrap_index(positions(part, first)), grad.reshape(-1))
    mine = positions(own, first)
    times = np.bincount(mine, minlength=flat.shape[0])
    if times.max(initial=0) > 1:  # each element of an overlapping input carries its share
        flat = flat / wrap(np.maximum(times, 1)).to(grad.dtype)
    return (flat.index_select(0, wrap_index(mine)).reshape(own.shape),)


@as_strided.vjp_on_arrays
def _as_strided_raw(grad, input, size, stride, storage_offset):
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
    return level.wrap(run(op, value, (level.size, *size), (value.stride(0), *stride), offset))


def wrap_index(positions: Any) -> Tensor:
    return wrap(positions)


def positions(geometry: Geometry, first: int) -> Any:
    """Storage positions of the elements of a strided tensor, in logical order, counted from `first`."""
    at = np.full((1,), geometry.offset - first, np.int64)
    for n, s in zip(geometry.shape, geometry.steps, strict=True):
        at = (at[:, None] + np.arange(n, dtype=np.int64) * s).reshape(-1)
    return at


# -- reshaping -----------------------------------------------------------------------------------------------------------


@composite(surface=METHOD | FUNCTION, variadic="shape", samples="x(2, 3), (3, 2); x(2, 3), (-1,)", elements="moved")
def reshape(input, shape):
    """`input` with another shape: a view where the strides allow it, else a copy.

    Args:
        shape: of as many elements; one size may be -1 and follows from the others.

    >>> fb.arange(6).reshape(2, -1)
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    sizes = infer_shape("reshape", (shape,) if isinstance(shape, (int, SymInt)) else shape, input._array.size)
    if viewed(input._array, sizes) is not None:
        return view_shape.function(input, size=sizes)
    made = view_shape.function(input.clone(memory_format=_contiguous_format()), size=sizes)
    made._view_of = None  # of a copy that nobody else sees
    return made


@reshape.forwards
def _reshaped(input, shape):
    try:
        a = input._array
        shape = tuple(shape) if shape.__class__ is list else shape
        made = hot_calls.view(a, shape)
        if made is not None:
            return view_shape.of(input, made, (shape,))
        if a.__class__ is not ndarray or not isinstance(shape, (tuple, list)):
            return None
        shape = tuple(shape)
        if -1 in shape and not a.size or min(shape, default=0) < -1:
            return None
        made = a.reshape(shape)
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


@reshape_as.forwards
def _reshaped_as(self, other):
    return _reshaped(self, other._array.shape) if isinstance(other, Tensor) else None


@composite(surface=METHOD, samples="x(2, 3), x(3, 2)", elements="moved")
def view_as(self, other):
    """`self` viewed with the shape of `other`."""
    return self.view(other.shape)


@view_as.forwards
def _viewed_as(self, other):
    if not isinstance(other, Tensor):
        return None
    size = other._array.shape
    made = hot_calls.view(self._array, size)
    return None if made is None else view_shape.of(self, made, (size,))


@composite(surface=METHOD | FUNCTION, samples="x(2, 3, 4); x(2, 3, 4), 1", elements="moved")
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
    made = hot_calls.view(a, size)
    return _reshaped(input, size) if made is None else view_shape.of(input, made, (size,))


@composite(surface=METHOD | FUNCTION, samples="x(2, 3)", elements="moved")
def ravel(input):
    """`input` as a contiguous one-dimensional tensor."""
    return input.contiguous().view(-1)


@ravel.forwards
def _raveled(input):
    made = hot_calls.view(getattr(input, "_array", None), (-1,))
    return None if made is None else view_shape.of(input, made, ((-1,),))


@composite(surface=METHOD | FUNCTION, samples="x(2, 6), 1, (2, 3)", elements="moved")
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


@unflatten.forwards
def _unflattened(input, dim, sizes):
    a = getattr(input, "_array", None)
    if a.__class__ is not ndarray or dim.__class__ is not int or not isinstance(sizes, (tuple, list)) or not sizes:
        return None
    d = dim if dim >= 0 else dim + a.ndim
    if not 0 <= d < a.ndim:
        return None
    size = (*a.shape[:d], *sizes, *a.shape[d + 1 :])
    made = hot_calls.view(a, size)
    return None if made is None else view_shape.of(input, made, (size,))


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


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that tensors of `shapes` broadcast to. Raises: RuntimeError when they do not."""
    first: Any = shapes[0] if shapes else ()
    if first.__class__ is Size and min(first, default=0) >= 0:
        for s in shapes:                              # most are alike
            if s != first or s.__class__ is not Size:
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


FUNCTIONS = {"broadcast_shapes": refusing(broadcast_shapes)}
