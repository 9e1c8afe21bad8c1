"""Positions in the flattened tensor, and copies of a tensor in which a view holds other values."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels import hot_calls
from flambeau_kernels.cpu.indexing import scatter as kernel

from ... import _state, dtypes
from ..._arrays import restride
from ..._symbolic import slice_bounds
from ...tensor import Tensor, storage_buffer, wrap, wrap_dim
from .._batching import run, shifted
from .._spec import (
    EXACTLY,
    FUNCTION,
    INPLACE,
    KEPT,
    METHOD,
    NEVER,
    OUT,
    Operand,
    composite,
    primitive,
    refuse_other_dtype_out,
)
from .select import INT64, check_bounds, check_same_dtype, converted_back, long_index

COMPILED_FROM = kernel.COMPILED_FROM                           # places that are looked at by numpy


def _check_flat(name: str, input: Tensor, index: Tensor) -> None:
    long_index(name, index)
    if not input.numel() and index.numel():
        raise IndexError(f"{name}(): tried to take from an empty tensor")
    check_bounds(IndexError, name, index, 0, input.numel(), negative=True)


@primitive(
    surface=FUNCTION | METHOD | OUT, tensors=("input", "index"), overlap=NEVER,
    check=lambda input, index: _check_flat("take", input, index),
    samples="x(2, 3), i(6, 2, 2)",
    cuda="moves.take",
    elements="moved",
)
def take(input, index):
    """The elements at `index` (int64, may be negative) of `input` seen as a vector, in the shape of `index`.

    >>> fb.take(fb.tensor([[1, 2], [3, 4]]), fb.tensor([3, 0]))
    tensor([4, 1])
    """


take.shown_as(hides="input_shape", self=Operand("input"))


take.in_pieces("*,...->...")


refuse_other_dtype_out(take)


@take.kernel
def _take(a, index):
    if not index.size:
        return np.empty(index.shape, a.dtype)
    return kernel.take_rows(np.ascontiguousarray(a).reshape(-1), 0, index.reshape(-1)).reshape(index.shape)


@take.plan
def _take_planned(a, at):
    made = hot_calls.pick_slices(a if a.ndim == 1 else a.reshape(-1), 0, at)
    if made is not None:
        return made
    return a.take(at) if at.dtype is INT64 and 0 < at.size < COMPILED_FROM else None


@take.vjp_on_arrays
def _take_vjp_on_arrays(grad, input_shape, index):
    full_grad = np.zeros(input_shape, grad.dtype)
    return (kernel.reduce_at(full_grad, index.reshape(-1), grad.reshape(-1), "sum", True) if index.size else full_grad, None)


@take.shape
def _take_shape(input, index):
    return index.shape, input.dtype


@take.vjp(index=None)
def _take_vjp(grad, input_shape, index):
    return (lambda: grad.new_zeros(input_shape).put(index, grad, True), None)


def _check_flat_put(input, index, source, accumulate):
    if _state.DETERMINISTIC and not accumulate:
        from ..._settings import alert_not_deterministic

        alert_not_deterministic("put_")
    long_index("put", index)
    check_same_dtype("put", input, source, "source")
    if index.numel() != source.numel():
        raise IndexError(
            "put_(): Expected source and index to have the same number of elements, but got source.numel() = "
            f"{source.numel()}, index.numel() = {index.numel()}"
        )
    _check_flat("put", input, index)


@primitive(
    surface=FUNCTION | METHOD | INPLACE, tensors=("input", "index", "source"), check=_check_flat_put, overlap=(EXACTLY, NEVER),
    samples="x(2, 3), fb.tensor([1, 4]), x(2); x(2, 3), i(6, 4), x(4), True",
    cuda="moves.put",
)
def put(input, index, source, accumulate=False):
    """`input` with the elements of `source` stored at the flat positions `index`, or added there if `accumulate`."""


put.shown_as(hides="source_shape", source=Operand("source"))


@put.kernel
def _put(a, index, source, accumulate):
    if not index.size:
        return a.copy()
    at, values = index.reshape(-1), source.reshape(-1)
    if accumulate:
        return kernel.reduce_at(a, at, values, "sum", True)
    return kernel.put(a.reshape(-1), at, values).reshape(a.shape)


@put.plan(stores=True)
def _put_planned(a, at, source, accumulate):
    if _state.DETERMINISTIC:
        return False
    if at.dtype is not INT64 or source.dtype is not a.dtype or not at.size or at.size != source.size:
        return False
    flat = a.reshape(-1), 0, at.reshape(-1), source.reshape(-1)
    if (hot_calls.add_along if accumulate else hot_calls.put_along)(*flat) is not None:
        return True
    if at.size >= COMPILED_FROM:
        return kernel.combine_along(*flat, "sum" if accumulate else "put")
    if accumulate:
        return kernel.combine_by_numpy(a.reshape(-1), (at.reshape(-1),), source.reshape(-1), "sum") or kernel.combine_along(*flat, "sum")
    a.put(at, source)
    return True


@put.shape
def _put_shape(input, index, source, accumulate):
    return input.shape, input.dtype


@put.vjp(index=None)
def _put_vjp(grad, index, source_shape, accumulate):
    def kept() -> Tensor:
        return grad if accumulate else grad.put(index, grad.new_zeros(index.shape), False)

    return (kept, None, lambda: grad.take(index).reshape(source_shape))


@composite(surface=FUNCTION, samples="i(6, 4), (2, 3)")
def unravel_index(indices, shape):
    """The coordinates, a tensor per dimension, of flat positions in a row-major tensor of `shape`."""
    if not isinstance(indices, Tensor):
        raise TypeError(f"unravel_index(): argument 'indices' must be Tensor, not {type(indices).__name__}")
    if indices.dtype.category != dtypes.INTEGER:
        raise TypeError(f"unravel_index: expected 'indices' to be integer dtype, but got {indices.dtype}")
    sizes = (shape,) if isinstance(shape, int) else shape
    if isinstance(sizes, str) or not all(isinstance(n, (int, np.integer)) for n in sizes):
        raise TypeError(f"unravel_index: expected 'shape' sequence to only contain ints, but got {shape!r}")
    if any(n >= 1 << 63 for n in sizes):
        raise ValueError(f"unravel_index: Overflow when unpacking long long: sizes are below 2**63, got {tuple(sizes)}")
    if any(n < 0 for n in sizes):
        raise ValueError(f"unravel_index: 'shape' cannot have negative values, but got {tuple(sizes)}")
    indices = indices.to(dtypes.int64)
    made: list[Any] = []
    step = 1
    for n in reversed(sizes):
        made.append(indices.div(step, rounding_mode="floor") % n if n else indices * 0)
        step *= n or 1
    return tuple(reversed(made))


# -- views put back ----------------------------------------------------------------------------------------------------------


def _check_put_view(name: str, made: Tensor, src: Tensor) -> None:
    if made.shape != src.shape:
        raise RuntimeError(
            f"{name}: expected src to have a size equal to the slice of input, but got {list(src.shape)} for {list(made.shape)}"
        )


def _put_view(a: Any, src: Any, view: Any) -> Any:
    """A copy of `a` whose part ``view(copy)`` holds `src`."""
    made = wrap(np.array(a, order="C"))
    view(made)._array[...] = kernels.cast(src, a.dtype)
    return made._array


def _check_select_scatter(input, src, dim, index):
    _check_put_view("select_scatter", input.detach().select(dim, index), src)


@primitive(
    surface=FUNCTION | METHOD | OUT, tensors=("input", "src"), check=_check_select_scatter, memory=KEPT, ordering=("input",),
    samples="x(2, 3), x(2), 1, 0",
    cuda="moves.select_scatter",
)
def select_scatter(input, src, dim, index):
    """A copy of `input` whose slice ``select(dim, index)`` is `src`."""


select_scatter.shown_as(hides="src_shape src_dtype")


@select_scatter.in_pieces
def _select_scatter_pieces(asked):
    at, ndim = asked["dim"] % asked["input"].ndim, asked["input"].ndim
    return [asked.way({0: d, 1: d - (d > at)}, d) for d in range(ndim) if d != at]


@select_scatter.kernel
def _select_scatter(a, src, dim, index):
    return _put_view(a, src, lambda x: x.select(dim, index))


@select_scatter.plan(wraps="dim")
def _select_scatter_planned(a, src, dim, index):
    if src.dtype is not a.dtype or index.__class__ is not int or src.shape != a.shape[:dim] + a.shape[dim + 1 :]:
        return None
    made = a.copy()
    made[(*(slice(None),) * dim, index)] = src
    return made


@select_scatter.shape
def _select_scatter_shape(input, src, dim, index):
    return input.shape, input.dtype


@select_scatter.vjp
def _select_scatter_vjp(grad, src_shape, src_dtype, dim, index):
    return (
        lambda: select_scatter(grad, grad.new_zeros(src_shape), dim, index),
        lambda: converted_back(grad.select(dim, index), src_dtype),
    )


def _sliced(x: Tensor, dim: int, start: Any, end: Any, step: int) -> Tensor:
    from ..shapes.slices import slice_dim

    d = wrap_dim(dim, x.ndim)
    if not x.ndim:
        raise RuntimeError("slice_scatter: slice() cannot be applied to a 0-dim tensor.")
    if step <= 0:
        raise RuntimeError(f"slice_scatter: slice step must be positive, got {step}")
    begin, stop, _ = slice_bounds(slice(start, end), x.shape[d])
    return slice_dim.function(x, d, begin, begin if stop < begin else stop, step)


def _check_slice_scatter(input, src, dim, start, end, step):
    _check_put_view("slice_scatter", _sliced(input.detach(), dim, start, end, step), src)


@primitive(
    surface=FUNCTION | METHOD | OUT, tensors=("input", "src"), check=_check_slice_scatter, memory=KEPT, ordering=("input",),
    samples="x(4, 3), x(2, 3), 0, 1, 3; x(4, 5), x(4, 2), 1, 0, 4, 2",
    cuda="moves.slice_scatter",
)
def slice_scatter(input, src, dim=0, start: int | None = None, end: int | None = None, step=1):
    """A copy of `input` whose part ``[start:end:step]`` along `dim` is `src`.

    >>> fb.slice_scatter(fb.zeros(4), fb.ones(2), start=1, end=3)
    tensor([0., 1., 1., 0.])
    """


slice_scatter.shown_as(hides="src_shape src_dtype")


slice_scatter.in_pieces(along="dim")


@slice_scatter.kernel
def _slice_scatter(a, src, dim, start, end, step):
    return _put_view(a, src, lambda x: _sliced(x, dim, start, end, step))


@slice_scatter.plan(wraps="dim")
def _slice_scatter_planned(a, src, dim, start, end, step):
    if src.dtype is not a.dtype or step <= 0:
        return None
    made = a.copy()
    part = made[(*(slice(None),) * dim, slice(start, end, step))]
    if part.shape != src.shape:
        return None
    part[...] = src
    return made


@slice_scatter.shape
def _slice_scatter_shape(input, src, dim, start, end, step):
    return input.shape, input.dtype


@slice_scatter.vjp
def _slice_scatter_vjp(grad, src_shape, src_dtype, dim, start, end, step):
    return (
        lambda: slice_scatter(grad, grad.new_zeros(src_shape), dim, start, end, step),
        lambda: converted_back(_sliced(grad, dim, start, end, step), src_dtype),
    )


@select_scatter.batch
@slice_scatter.batch
def _select_scatter_batch(level: Any, op: Any, args: Any) -> Any:
    x, source, dim, *rest = args
    if source.ndim != x.ndim - (op.name == "select_scatter"):
        return NotImplemented
    return level.wrap(run(op, level.full(x), level.full(source), shifted(x, dim), *rest))


def _check_diagonal_scatter(input, src, offset, dim1, dim2):
    _check_put_view("diagonal_scatter", input.detach().diagonal(offset, dim1, dim2), src)


@primitive(
    surface=FUNCTION | METHOD | OUT, tensors=("input", "src"), check=_check_diagonal_scatter, memory=KEPT, ordering=("input",),
    samples="x(3, 4), x(3); x(3, 4), x(3), 1",
    cuda="moves.diagonal_scatter",
)
def diagonal_scatter(input, src, offset=0, dim1=0, dim2=1):
    """A copy of `input` whose ``diagonal(offset, dim1, dim2)`` is `src`."""


diagonal_scatter.shown_as(hides="src_shape src_dtype")


@diagonal_scatter.kernel
def _diagonal_scatter(a, src, offset, dim1, dim2):
    return _put_view(a, src, lambda x: x.diagonal(offset, dim1, dim2))


@diagonal_scatter.plan
def _diagonal_scatter_planned(a, src, offset, dim1, dim2):
    made = a.copy()
    part = _writable_diagonal(made) if a.ndim == 2 and not offset and dim1 == 0 and dim2 == 1 else src
    if src.dtype is not a.dtype or part.shape != src.shape or part is src:
        return None
    part[...] = src
    return made


def _writable_diagonal(a: Any) -> Any:
    """The diagonal of a matrix in C order."""
    n = min(a.shape)
    return a.reshape(-1)[: n * (a.shape[1] + 1) : a.shape[1] + 1]


@diagonal_scatter.shape
def _diagonal_scatter_shape(input, src, offset, dim1, dim2):
    return input.shape, input.dtype


@diagonal_scatter.vjp
def _diagonal_scatter_vjp(grad, src_shape, src_dtype, offset, dim1, dim2):
    return (
        lambda: diagonal_scatter(grad, grad.new_zeros(src_shape), offset, dim1, dim2),
        lambda: converted_back(grad.diagonal(offset, dim1, dim2), src_dtype),
    )


@diagonal_scatter.batch
def _diagonal_scatter_batch(level: Any, op: Any, args: Any) -> Any:
    x, source, offset, dim1, dim2 = args
    if source.ndim != x.ndim - 1:
        return NotImplemented
    return level.wrap(run(op, level.full(x), level.full(source), offset, shifted(x, dim1), shifted(x, dim2)))


@primitive(
    surface=FUNCTION | METHOD | OUT, tensors=("input", "src"), memory=KEPT, ordering=("input",), samples="x(6), x(2, 2), (2, 2), (2, 1)"
)
def as_strided_scatter(input, src, size, stride, storage_offset=None):
    """A copy of `input`, its storage and strides, whose ``as_strided(size, stride, storage_offset)`` is `src`."""


as_strided_scatter.shown_as(hides="src_shape src_dtype")


@as_strided_scatter.kernel
def _as_strided_scatter(a, src, size, stride, storage_offset):
    if tuple(src.shape) != tuple(size):
        raise RuntimeError(f"as_strided_scatter: expected src to have size {list(size)}, but it has {list(src.shape)}")
    source = wrap(a)
    buffer = storage_buffer(source).copy()
    made = wrap(restride(a, a.shape, a.strides, source.storage_offset() * a.itemsize, buffer) if a.size else a.copy())
    made.as_strided(size, stride, storage_offset)._array[...] = kernels.cast(src, a.dtype)
    return made._array


@as_strided_scatter.shape
def _as_strided_scatter_shape(input, src, size, stride, storage_offset):
    return input.shape, input.dtype


@as_strided_scatter.vjp
def _as_strided_scatter_vjp(grad, src_shape, src_dtype, size, stride, storage_offset):
    dense = grad.contiguous()
    return (
        lambda: as_strided_scatter(dense, grad.new_zeros(src_shape), size, stride, storage_offset),
        lambda: converted_back(dense.as_strided(size, stride, storage_offset), src_dtype),
    )
