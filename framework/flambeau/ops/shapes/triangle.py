"""Triangles and diagonals of matrices."""

from __future__ import annotations

import functools
import itertools
import operator
from typing import Any

import numpy as np

from flambeau_kernels.cpu.reductions.along import SEVERAL, Along
from flambeau_kernels.cpu.reductions.reduce import Reduction, reduce
from flambeau_kernels.cpu.shapes import triangle as kernels

from ... import dtypes
from ...tensor import Tensor, wrap_dim
from ...tensor import wrap as tensor_over
from .._batching import run
from .._spec import FUNCTION, INPLACE, METHOD, OUT, check_room, composite, need_int, primitive
from ..creation.ranges import arange

EVERY = FUNCTION | METHOD | INPLACE | OUT


def _check_matrices(name: str) -> Any:
    def check(input, diagonal):
        if input.ndim < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions, got shape {tuple(input.shape)}")
        return input, need_int(name, "diagonal", diagonal)

    return check


@primitive(
    surface=EVERY, check=_check_matrices("tril"), samples="x(3, 4); x(2, 3, 3), 1", exact_out=True, cuda="moves.tril", deferrable=True,
)
def tril(input, diagonal=0):
    """The matrices of `input` with 0 above the diagonal number `diagonal` (positive ones lie above the main one).

    >>> fb.tril(fb.ones(2, 3), diagonal=1)
    tensor([[1., 1., 0.],
            [1., 1., 1.]])
    """


tril.in_pieces("...__->...__")


tril.kernel(kernels.tril)
tril.plan(lambda a, diagonal: kernels.triangle_of(a, diagonal, False))
tril.shape(lambda input, diagonal: (input.shape, input.dtype))
tril.vjp(lambda grad, diagonal: (grad.tril(diagonal),))
tril.vjp_on_arrays(lambda grad, diagonal: (kernels.tril(grad, diagonal),))


@primitive(
    surface=EVERY, check=_check_matrices("triu"), samples="x(3, 4); x(2, 3, 3), -1", exact_out=True, cuda="moves.triu", deferrable=True,
)
def triu(input, diagonal=0):
    """The matrices of `input` with 0 below the diagonal number `diagonal` (positive ones lie above the main one).

    >>> fb.triu(fb.ones(2, 3))
    tensor([[1., 1., 1.],
            [0., 1., 1.]])
    """


triu.in_pieces("...__->...__")


triu.kernel(kernels.triu)
triu.plan(lambda a, diagonal: kernels.triangle_of(a, diagonal, True))
triu.shape(lambda input, diagonal: (input.shape, input.dtype))
triu.vjp(lambda grad, diagonal: (grad.triu(diagonal),))
triu.vjp_on_arrays(lambda grad, diagonal: (kernels.triu(grad, diagonal),))


@tril.batch
@triu.batch
def _tril_batch(level: Any, op: Any, args: Any) -> Any:
    return level.wrap(run(op, level.front(args[0]), *args[1:])) if args[0].ndim >= 2 else NotImplemented


def _check_trace(input):
    if input.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input.ndim}")
    if input.dtype is dtypes.bool:
        raise NotImplementedError(f'"trace" not implemented for {input.dtype}')


@primitive(surface=FUNCTION | METHOD, check=_check_trace, autocast=("float32", None), samples="x(3, 4)")
def trace(input):
    """The sum of the main diagonal of a matrix. Raises: RuntimeError unless `input` has 2 dimensions."""


def _trace_dtype(given: Any) -> Any:
    return dtypes.int64 if given.category < dtypes.FLOATING else given


@trace.kernel
def _trace(a):
    accumulate = _trace_dtype(dtypes.from_numpy_dtype(a.dtype)).numpy
    return reduce(_DIAGONAL_SUM, a.diagonal(), (0,), False, accumulate, accumulate)


_DIAGONAL_SUM = Reduction("trace", "add")
_TRACE = Along("trace", dims=SEVERAL)


@trace.plan
def _planned_trace(a):
    return _TRACE(a, 0) if a.ndim == 2 else None


@trace.kernel(device="cuda")
def _trace_on_device(a):
    return tensor_over(a).diagonal().sum()._array


trace.shape(lambda input: ((), _trace_dtype(input.dtype)))


@trace.vjp
def _trace_vjp(grad, input_shape):
    return (grad.new_zeros(input_shape).diagonal_scatter(grad.expand(min(input_shape)), 0),)


@trace.vjp_on_arrays
def _trace_vjp_on_arrays(grad, input_shape):
    made = np.zeros(input_shape, grad.dtype)
    made.reshape(-1)[: min(input_shape) * input_shape[1] : input_shape[1] + 1] = grad
    return (made,)


@composite(surface=FUNCTION | METHOD, samples="x(2, 3); x(2, 3), 1, 0, 2")
def diag_embed(input, offset=0, dim1=-2, dim2=-1):
    """Matrices over `dim1` and `dim2` that are 0 apart from a diagonal, the last dimension of `input`.

    Args:
        offset: how far above the main diagonal; negative below. The matrices grow by as much.
    """
    ndim, offset = input.ndim + 1, need_int("diag_embed", "offset", offset)
    i, j = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    if i == j:
        raise RuntimeError(f"diag_embed: diagonal dimensions cannot be identical {dim1}, {dim2}")
    n = input.shape[-1] + abs(offset)
    rest = iter(input.shape[:-1])
    shape = [n if d in (i, j) else next(rest) for d in range(ndim)]
    return input.new_zeros(shape).diagonal_scatter(input, offset, i, j)


diag_embed.result_shown_as("DiagEmbedBackward0")


@diag_embed.plan
def _embedded(a, offset, dim1, dim2):
    if offset.__class__ is not int or not a.ndim:
        return None
    ndim, n = a.ndim + 1, a.shape[-1] + abs(offset)
    i, j = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    if i == j:
        return None
    rest = iter(a.shape[:-1])
    made = np.zeros([n if d in (i, j) else next(rest) for d in range(ndim)], a.dtype)
    seen = made.diagonal(offset, i, j)
    seen.flags.writeable = True                       # numpy's diagonals are not, for a time, though they are views
    seen[...] = a
    return made


@composite(surface=FUNCTION | METHOD | OUT, samples="x(3); x(3, 4), 1", exact_out=True, elements="moved")
def diag(input, diagonal=0):
    """A vector as the diagonal of a matrix of zeros, or a copy of the diagonal of a matrix.

    Args:
        diagonal: how far above the main diagonal; negative below.

    >>> fb.diag(fb.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    """
    if input.ndim == 1:
        return diag_embed(input, diagonal)
    if input.ndim == 2:
        return input.diagonal(diagonal).clone()
    raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")


@composite(surface=INPLACE, namespace="Tensor", samples="x(3, 4), 1.5; x(6, 2), 2.0, True")
def fill_diagonal(input, fill_value, wrap: bool = False):
    """`input` with `fill_value` where all indices are equal; with `wrap`, a tall matrix starts anew after each square."""
    places = _places_on_diagonal(input, wrap)
    return input.put(places, input.new_full(places.shape, fill_value))


def _fill_diagonal_in_place(target: Tensor, fill_value: Any, wrap: bool) -> Tensor:
    places = _places_on_diagonal(target, wrap)
    return target.put_(places, target.new_full(places.shape, fill_value))  # type: ignore[attr-defined]


fill_diagonal.run_inplace = _fill_diagonal_in_place  # pyright: ignore[reportAttributeAccessIssue]  # nothing else is written


def _places_on_diagonal(input: Tensor, wrap: bool) -> Tensor:
    """The places that `fill_diagonal` fills, counted in rows. Raises: RuntimeError for a shape that has no diagonal."""
    if input.ndim < 2:
        raise RuntimeError(f"fill_diagonal_: dimensions must larger than 1, got {input.ndim}")
    shape = tuple(input.shape)
    if input.ndim > 2 and len(set(shape)) > 1:
        raise RuntimeError(f"fill_diagonal_: all dimensions of input must be of equal length, got {shape}")
    step = sum(itertools.accumulate((1, *shape[:0:-1]), operator.mul))
    stop = input.numel() if wrap and input.ndim == 2 else min(shape[0], shape[-1]) * step
    return arange(0, min(stop, input.numel()), step or 1, device=input.device)


@diag.plan
def _usual_diagonal(a, diagonal):
    """A vector as the main diagonal of a matrix, and a diagonal of a matrix."""
    if diagonal.__class__ is not int:
        return None
    if a.ndim == 2 and -a.shape[0] < diagonal < a.shape[1]:
        return a.diagonal(diagonal).copy()
    if a.ndim != 1 or diagonal:
        return None
    n = a.size
    made = np.zeros((n, n), a.dtype)
    made.ravel()[:: n + 1] = a
    return made


@composite(surface=FUNCTION | METHOD, samples="x(2, 2); x(3), -1")
def diagflat(input, offset=0):
    """The elements of `input` as the diagonal of a matrix of zeros."""
    return diag_embed(input.reshape(-1), offset)


@composite(surface=FUNCTION, variadic="tensors", samples="x(2, 3), x(1), x(2, 2)")
def block_diag(tensors):
    """The matrices (vectors count as rows) along the diagonal of one matrix of zeros.

    >>> fb.block_diag(fb.ones(1, 2), fb.full((1, 1), 7.0))
    tensor([[1., 1., 0.],
            [0., 0., 7.]])
    """
    blocks = []
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise TypeError(f"block_diag(): expected Tensor as element {i} in argument 'tensors', but got {type(t).__name__}")
        if t.ndim > 2:
            raise RuntimeError(
                f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has {t.ndim} dimensions"
            )
        blocks.append(t.reshape([1] * (2 - t.ndim) + list(t.shape)))
    from ..creation.create import zeros
    from .join import cat

    if not blocks:
        return zeros(1, 0)
    width = sum(b.shape[1] for b in blocks)
    rows, before = [], 0
    for b in blocks:
        left, right = b.new_zeros(b.shape[0], before), b.new_zeros(b.shape[0], width - before - b.shape[1])
        rows.append(cat([left, b, right], 1))
        before += b.shape[1]
    return cat(rows, 0)


block_diag.result_shown_as("BlockDiagBackward0")


@block_diag.plan(lists=True)
def _blocks_of_one_dtype(arrays):
    """Matrices and vectors of one dtype, each copied once."""
    if not arrays or len({a.dtype for a in arrays}) > 1 or any(a.ndim > 2 or a.__class__ is not np.ndarray for a in arrays):
        return None
    shapes = [(1,) * (2 - a.ndim) + a.shape for a in arrays]
    heights, widths = zip(*shapes, strict=True)
    made = np.zeros((sum(heights), sum(widths)), arrays[0].dtype)
    row = column = 0
    for a, (height, width) in zip(arrays, shapes, strict=True):
        made[row : row + height, column : column + width] = a
        row, column = row + height, column + width
    return made


# -- indices of triangles ----------------------------------------------------------------------------------------------------


def _triangle_indices(name: str, row: int, col: int, offset: int, lower: bool, options: dict[str, Any]) -> Tensor:
    from ..creation._options import _check_layout, _place, finish, made_at

    row, col, offset = need_int(name, "row", row), need_int(name, "col", col), need_int(name, "offset", offset)
    for label, n in (("row", row), ("col", col)):
        if n < 0:
            raise RuntimeError(f"{name}: {label} must be non-negative, got {n}")
    d, place = options["dtype"], _place(options["device"])
    if d not in (dtypes.int64, dtypes.int32):
        raise NotImplementedError(f'"{name}" not implemented for {d}; indices are torch.int64 or torch.int32')
    _check_layout(options["layout"])
    if place is not None and place.type == "meta":
        return made_at(place, (2, _count(lower, row, col, offset)), d.numpy, None)
    if row * col <= _MOST_KEPT:
        return finish(_kept_indices(lower, row, col, offset, d.numpy).copy(), False, place)
    count = _count(lower, row, col, offset)
    check_room(name, (2, count), 8)
    return finish(kernels.places(lower, row, col, offset, count, d.numpy), False, place)


_MOST_KEPT = 1024                                     # elements of a matrix whose indices are kept


@functools.lru_cache(1024)
def _kept_indices(lower: bool, row: int, col: int, offset: int, dtype: np.dtype) -> np.ndarray:
    return kernels.places(lower, row, col, offset, _count(lower, row, col, offset), dtype)


def _count(lower: bool, row: int, col: int, offset: int) -> int:
    below = _count_up_to(row, col, offset if lower else offset - 1)
    return below if lower else row * col - below


def _count_up_to(row: int, col: int, offset: int) -> int:
    """How many elements of a ``(row, col)`` matrix lie on or below the diagonal `offset`."""
    first, last = max(0, -offset), min(row, col - offset)  # rows that have some, and from which on they have all
    partly = max(0, last - first)
    return partly * (offset + first + 1) + partly * (partly - 1) // 2 + (row - max(last, 0)) * col


@composite(surface=FUNCTION, samples="3, 4; 3, 4, 1")
def tril_indices(row: int, col: int, offset=0, *, dtype=dtypes.int64, device=None, layout=None):
    """The places on and below the diagonal number `offset` of a ``(row, col)`` matrix, ``(2, count)`` in row-major order."""
    return _triangle_indices("tril_indices", row, col, offset, True, {"dtype": dtype, "device": device, "layout": layout})


@composite(surface=FUNCTION, samples="3, 4; 3, 4, -1")
def triu_indices(row: int, col: int, offset=0, *, dtype=dtypes.int64, device=None, layout=None):
    """The places on and above the diagonal number `offset` of a ``(row, col)`` matrix, ``(2, count)`` in row-major order."""
    return _triangle_indices("triu_indices", row, col, offset, False, {"dtype": dtype, "device": device, "layout": layout})


