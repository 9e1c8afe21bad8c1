"""Repetitions, products of sets, and grids."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flambeau_kernels.cpu.indexing import places as kernel

from ... import dtypes
from ..._arrays import ndarray
from ..._errors import ShapeDependsOnValues
from ..._warn import warn_once
from ...tensor import Tensor, wrap_dim
from .. import _dispatch
from .._spec import FUNCTION, METHOD, NEVER, OUT, check_room, composite, host_only, need_int, primitive
from ..creation.shared_memory import from_numpy
from .expand import expand
from .join import cat, stack
from .reshape import _contiguous_format as contiguous_format
from .reshape import reshape


def _check_vectors(name: str, tensors: Any) -> None:
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise TypeError(f"{name}(): expected Tensor as element {i} in argument 0, but got {type(t).__name__}")


def _beside(x: Tensor, places: np.ndarray) -> Tensor:
    """`places`, which the values of no tensor decide, as a tensor on the device of `x`: a constant of graphs."""
    made = from_numpy(places)
    return made if x.is_cpu else made.to(x.device)


def _grids(tensors: Any, indexing: str) -> tuple[Tensor, ...]:
    if not tensors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    _check_vectors("meshgrid", tensors)
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    first, count = tensors[0], len(tensors)
    kind, place = first.dtype, first.device
    for i, t in enumerate(tensors):
        if t.ndim > 1:
            raise RuntimeError(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but tensor {i} has shape {tuple(t.shape)}")
        if t is first:
            continue
        if t.dtype is not kind:
            raise RuntimeError(f"torch.meshgrid expects all tensors to have the same dtype, got {kind} and {t.dtype}")
        if (own := t.device) is not place and own != place:
            raise RuntimeError("torch.meshgrid expects all tensors to have the same device")
    swap = indexing == "xy" and count > 1
    order = (1, 0, *range(2, count)) if swap else tuple(range(count))
    sizes = tuple([tensors[k].numel() for k in order])
    made: list[Any] = [None] * count
    for d, k in enumerate(order):
        made[k] = tensors[k].reshape((1,) * d + (sizes[d],) + (1,) * (count - 1 - d)).expand(sizes)
    return tuple(made)


@composite(surface=FUNCTION, variadic="tensors", samples="x(2), x(3); x(2), x(3), indexing='xy'", elements="moved")
def meshgrid(tensors, *, indexing=None):
    """For each vector a view of it over the grid they span together, as a tuple.

    Args:
        indexing: 'ij' (the first vector runs along rows; the default) or 'xy' (along columns).

    >>> rows, columns = fb.meshgrid(fb.tensor([1, 2]), fb.tensor([3, 4]), indexing="ij")
    >>> rows
    tensor([[1, 1],
            [2, 2]])
    """
    if indexing is None and len(tensors) > 1:
        warn_once(_UNSAID)
    return _grids(tuple(tensors), "ij" if indexing is None else indexing)


_UNSAID = "torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument."


@meshgrid.forwards
def _two_grids(tensors, indexing):
    """The views of two vectors in host memory."""
    if len(tensors) != 2 or indexing not in ("ij", "xy", None):
        return None
    x, y = tensors
    a, b = x._array, y._array
    if a.__class__ is not ndarray or b.__class__ is not ndarray or a.dtype is not b.dtype or a.ndim != 1 or b.ndim != 1:
        return None
    m, n = a.size, b.size
    down, across, sizes = ((m, 1), (1, n), (m, n)) if indexing != "xy" else ((1, m), (n, 1), (n, m))
    x, y = reshape.answer(x, down), reshape.answer(y, across)
    if x is None or y is None:
        return None
    x, y = expand.answer(x, sizes, False), expand.answer(y, sizes, False)
    if x is None or y is None:
        return None
    if indexing is None:
        warn_once(_UNSAID)
    return x, y


@composite(surface=FUNCTION, variadic="tensors", samples="x(2), x(3)")
def cartesian_prod(tensors):
    """All combinations of one element from each vector, one a row, the last running fastest; of one vector, itself.

    >>> fb.cartesian_prod(fb.tensor([1, 2]), fb.tensor([3, 4]))
    tensor([[1, 3],
            [1, 4],
            [2, 3],
            [2, 4]])
    """
    _check_vectors("cartesian_prod", tensors)
    for t in tensors:
        if t.ndim != 1:
            raise RuntimeError(f"cartesian_prod: Expect a 1D vector, but got shape {list(t.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return stack(_grids(tuple(tensors), "ij"), -1).reshape(-1, len(tensors))


_MANY, _MANY_EACH = 1 << 24, 1 << 12


@composite(surface=FUNCTION, samples="x(4); x(3), 2, True")
def combinations(input, r=2, with_replacement=False):
    """All combinations of `r` elements of a vector in their order, one a row; as ``itertools.combinations``.

    Args:
        with_replacement: an element may come several times, as ``itertools.combinations_with_replacement``.
    """
    if input.ndim != 1:
        raise RuntimeError(f"combinations: Expect a 1D vector, but got shape {list(input.shape)}")
    if r < 0:
        raise RuntimeError(f"combinations: Expect a non-negative number, but got {r}")
    if r == 0:
        return input.new_empty((0,))
    count = math.comb(input.shape[0] + (r - 1 if with_replacement else 0), min(r, _MANY_EACH))
    check_room("combinations", (count, r), 8)
    if count > _MANY:                                 # where PyTorch has them in a table of all tuples, and refuses
        check_room("combinations", (input.shape[0],) * min(r, 64), 1)
    chosen = kernel.combined(input.shape[0], r, with_replacement)
    return input.index_select(0, _beside(input, chosen.reshape(-1))).reshape(chosen.shape)


# -- repeating ---------------------------------------------------------------------------------------------------------------


def _check_repeats(repeats: Tensor) -> None:
    if repeats.dtype not in (dtypes.int64, dtypes.int32):
        raise NotImplementedError(f'"repeat_interleave" not implemented for repeats of {repeats.dtype}; give torch.int64 or int32')
    if repeats.ndim > 1:
        raise RuntimeError(f"repeat_interleave only accept 1D vector as repeat, got shape {tuple(repeats.shape)}")


@primitive(
    surface=0, samples="fb.tensor([1, 0, 2])", operator="repeat_interleave(repeats)", public_name="repeat_interleave", dynamic_shape=True,
)
def repeated_places(repeats):
    """Each place in a vector, as often as the number there says. Raises: RuntimeError for a negative number."""


repeated_places.not_differentiable = "its result is places"


@repeated_places.kernel
def _repeated_places(a):
    if a.size and a.min() < 0:
        raise RuntimeError("repeat_interleave: repeats can not be negative")
    # Numpy adds the numbers up modulo 2**64; this is near enough, for what is close to 2**53 fits no memory.
    check_room("repeat_interleave", (int(a.sum(dtype=np.float64)),), 8)
    return kernel.repeated(a.size, a, a.dtype)


@repeated_places.shape
def _repeated_places_shape(repeats):
    from ..indexing.mask import fresh_size

    return (fresh_size("repeat_interleave", repeats),), repeats.dtype


def _needs_total(output_size: Any) -> int:
    """The size of the result where nobody can add the repeats up. Raises: RuntimeError without one."""
    if output_size is None:
        raise ShapeDependsOnValues(
            "repeat_interleave: the values of repeats decide the shape, and a meta tensor has none; give output_size"
        )
    return output_size


def _check_total(total: int, output_size: Any) -> None:
    if output_size is not None and output_size != total:
        raise RuntimeError(f"repeat_interleave: allocated size does not match required size: output_size={output_size}, needed {total}")


@composite(surface=FUNCTION | METHOD, samples="x(2, 3), 2; x(2, 3), fb.tensor([1, 0, 2]), 1")
def repeat_interleave(input=None, repeats=None, dim: int | None = None, *, output_size=None):
    """Each element (or slice along `dim`) repeated in place, `repeats` times or as often as its entry there says.

    With one argument, a vector of counts: each position repeated that often. Without `dim`, of the flattened `input`.

    Args:
        output_size: the length of the result along `dim`, which must be right.

    >>> fb.repeat_interleave(fb.tensor([5, 7]), fb.tensor([2, 1]))
    tensor([5, 5, 7])
    """
    if input is None or repeats is None:
        counts = repeats if input is None else input
        if not isinstance(counts, Tensor):
            raise TypeError(f"repeat_interleave(): argument 'repeats' must be Tensor, not {type(counts).__name__}")
        host_only("repeat_interleave", counts)
        _check_repeats(counts)
        if counts._lacks_values:
            return counts.new_empty((_needs_total(output_size),))
        found = repeated_places(counts if counts.ndim else counts.reshape(1))
        _check_total(found.shape[0], output_size)
        return found
    x = input.reshape(-1) if dim is None else input.reshape(1) if not input.ndim else input
    d = 0 if dim is None else wrap_dim(dim, input.ndim)
    n = x.shape[d]
    if isinstance(repeats, Tensor):
        host_only("repeat_interleave", repeats)
        _check_repeats(repeats)
        if repeats.numel() != 1 and repeats.numel() != n:
            raise RuntimeError(
                f"repeat_interleave: repeats must have the same size as input along dim, but got repeats.size(0) = {repeats.numel()} "
                f"and input.size({d}) = {n}"
            )
        if repeats._lacks_values:
            return x.index_select(d, repeats.new_empty((_needs_total(output_size),)))
        found = repeated_places(repeats.to(dtypes.int64).expand(n))
        check_room("repeat_interleave", (found.shape[0], *x.shape[:d], *x.shape[d + 1 :]), x.itemsize)
        if n:
            _check_total(found.shape[0], output_size)
        return x.index_select(d, found if x.is_cpu else found.to(x.device))
    repeats = need_int("repeat_interleave", "repeats", repeats)
    if repeats < 0:
        raise RuntimeError(f"repeat_interleave: Repeats must be non-negative, got {repeats}")
    if _dispatch.stands_for_others():                 # places would be a constant of the graph, right for these sizes alone
        _check_total(n * repeats, output_size)
        sizes = tuple(x.shape)
        each = x.unsqueeze(d + 1).expand(*sizes[: d + 1], repeats, *sizes[d + 1 :]).clone(memory_format=contiguous_format())
        return each.view(*sizes[:d], n * repeats, *sizes[d + 1 :])
    if x._lacks_values:
        _check_total(n * repeats, output_size)
        return x.index_select(d, x.detach().new_empty((n * repeats,), dtype=dtypes.int64))
    check_room("repeat_interleave", (n * repeats,), 8)
    check_room("repeat_interleave", (n * repeats, *x.shape[:d], *x.shape[d + 1 :]), x.itemsize)
    if n:
        _check_total(n * repeats, output_size)
    return x.index_select(d, _beside(x, kernel.repeated(n, repeats)))


@repeat_interleave.plan
def _as_often_each(a, repeats, dim, output_size):
    if repeats is None:
        return _repeated_places(a) if a.ndim == 1 and a.dtype.char in "li" and output_size is None else None
    if not a.ndim or repeats.__class__ is not int or repeats < 0:
        return None
    if output_size is not None or dim is not None and (dim.__class__ is not int or not -a.ndim <= dim < a.ndim):
        return None
    return a.repeat(repeats, dim) if max(a.size, *a.shape) * repeats < 1 << 31 else None  # which the fallback checks


# -- matrices made of a vector -------------------------------------------------------------------------------------------------


@composite(surface=FUNCTION, samples="x(3); x(3), 4, True")
def vander(x, N: int | None = None, increasing=False):  # PyTorch's name
    """The matrix with the powers of each element of a vector `x` in a row: `N` of them, falling unless `increasing`."""
    if x.ndim != 1:
        raise RuntimeError(f"vander: x must be a one-dimensional tensor, got shape {tuple(x.shape)}")
    n = x.shape[0] if N is None else need_int("vander", "N", N)
    if n < 0:
        raise RuntimeError(f"vander: N must be non-negative, got {N}")
    if x.dtype.category < dtypes.FLOATING:
        x = x.to(dtypes.int64)
    columns = x.new_ones((x.shape[0], min(n, 1)))
    if n > 1:
        columns = cat([columns, x.unsqueeze(1).expand(x.shape[0], n - 1).cumprod(1)], 1)
    return columns if increasing else columns.flip(1)


@composite(surface=FUNCTION | METHOD | OUT, overlap=NEVER, samples="x(2, 3), x(3, 2); x(2), x(2, 2)")
def kron(input, other: Tensor):
    """The Kronecker product: `other` scaled by each element of `input`, laid out in blocks.

    >>> fb.kron(fb.tensor([1, 10]), fb.tensor([1, 2]))
    tensor([ 1,  2, 10, 20])
    """
    ndim = max(input.ndim, other.ndim)
    a = [1] * (ndim - input.ndim) + list(input.shape)
    b = [1] * (ndim - other.ndim) + list(other.shape)
    blocks = input.reshape([n for m in a for n in (m, 1)]) * other.reshape([n for m in b for n in (1, m)])
    return blocks.reshape([n * m for n, m in zip(a, b, strict=True)])


@kron.plan(tensors=("input", "other"), dtypes="fdil", rows=True)
def _planned_products(a, b):
    """Small vectors or matrices of one real dtype."""
    if a.ndim != b.ndim or a.ndim not in (1, 2) or a.size * b.size > 4096:
        return None
    if a.ndim == 1:
        return np.multiply(a[:, None], b).reshape(-1)
    (m, n), (i, j) = a.shape, b.shape
    return np.multiply(a[:, None, :, None], b[:, None]).reshape(m * i, n * j)
