"""Views with the dimensions in another order."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index as as_index
from typing import Any

from ..._arrays import MetaArray, ndarray, restrided
from ..._warn import warn_once
from ...tensor import Tensor, wrap_dim
from .._batching import run, shifted
from .._spec import FUNCTION, INPLACE, METHOD, composite, int_list, view
from .._spec.names import reverses, swaps


@view(surface=METHOD | FUNCTION, variadic="dims", samples="x(2, 3, 4), (2, 0, 1)", elements="moved", builtin="seen_permuted")
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
def _permute_vjp_on_arrays(grad, dims):
    return (grad.transpose(_inverse(dims, grad.ndim)),)


@permute.undone
def _permuted_back(new, source, dims):
    return new.permute(_inverse(dims, source.ndim))


def _inverse(dims: Any, ndim: int) -> list[int]:
    back = [0] * ndim
    for at, d in enumerate(dims):
        back[d % ndim] = at
    return back


@view(surface=METHOD | FUNCTION | INPLACE, aliases=("swapdims",), samples="x(2, 3, 4), 0, 2", elements="moved",
      builtin="seen_transposed", names=swaps)  # fmt: skip
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
def _transpose_vjp_on_arrays(grad, dim0, dim1):
    return (grad.swapaxes(dim0, dim1) if grad.ndim else grad,)


@transpose.undone
def _transposed_back(new, source, dim0, dim1):
    return new.transpose(dim0, dim1)


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
swapaxes.undone(_transposed_back)


@swapaxes.forwards
def _transposed_axes(input, axis0, axis1):
    made = transpose.usual(input, axis0, axis1)
    if made is not None:
        return made
    a = getattr(input, "_array", None)
    return transpose.of(input, _transpose(a, axis0, axis1), (axis0, axis1)) if a.__class__ is ndarray else None


def _check_matrix(input: Any) -> None:
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")


@composite(surface=METHOD | FUNCTION | INPLACE, samples="x(2, 3); x(3)", elements="moved", names=reverses)
def t(input):
    """A view of the transpose of a matrix; a vector or scalar as it is. Raises: RuntimeError for more dimensions."""
    _check_matrix(input)
    return input.transpose(0, 1) if input.ndim == 2 else input.view(input.shape)


def _transpose_in_place(target: Tensor) -> Tensor:
    _check_matrix(target)
    if target.ndim == 2:
        return transpose.run_inplace(target, 0, 1)
    from .reshape import view_shape

    return view_shape.run_inplace(target, target._array.shape)


@t.forwards
def _transposed(input):
    a = getattr(input, "_array", None)
    if a.__class__ is not ndarray or a.ndim != 2:
        return None
    made = transpose.usual(input, 0, 1)
    return transpose.of(input, a.T, (0, 1)) if made is None else made


t.inplace_view = _transpose_in_place


@t.undone
def _turned_back(new, source):
    return new.t()


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
    if a.__class__ is not ndarray:
        return None
    ndim = a.ndim
    if source.__class__ is not int or destination.__class__ is not int:
        order = _order_of_moved(source, destination, ndim)
        return order and permute.of(input, a.transpose(order), (order,))
    if not (-ndim <= source < ndim and -ndim <= destination < ndim):
        return None
    order = [*range(ndim)]
    order.insert(destination % ndim, order.pop(source))
    return permute.of(input, a.transpose(order), (order,))


def _order_of_moved(source: Any, destination: Any, ndim: int) -> list[int] | None:
    """The order of dimensions after several have been moved; None for other arguments than tuples or lists that go together."""
    if source.__class__ not in (tuple, list) or destination.__class__ not in (tuple, list) or len(source) != len(destination):
        return None
    place_of: dict[int, int] = {}
    for s, d in zip(source, destination, strict=True):
        if s.__class__ is not int or d.__class__ is not int or not (-ndim <= s < ndim and -ndim <= d < ndim):
            return None
        place_of[d % ndim] = s % ndim
    moved = {*place_of.values()}
    if len(place_of) != len(source) or len(moved) != len(source):
        return None
    rest = iter([d for d in range(ndim) if d not in moved])
    return [place_of[d] if d in place_of else next(rest) for d in range(ndim)]


@movedim.undone
def _moved_back(new, source_, source, destination):
    return new.movedim(destination, source)


@composite(surface=METHOD | FUNCTION, samples="x(2, 3, 4), 0, 2", elements="moved")
def moveaxis(input, source: int | Sequence[int], destination: int | Sequence[int]):
    """Another name of `movedim`."""
    return movedim(input, source, destination)


moveaxis.forwards(_moved)
moveaxis.undone(_moved_back)
