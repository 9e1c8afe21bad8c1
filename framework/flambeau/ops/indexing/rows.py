"""Whole slices along a dimension: index_select, index_add, index_copy, index_fill, index_reduce."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels import hot_calls
from flambeau_kernels.cpu.indexing import scatter as kernel
from flambeau_kernels.cpu.reductions.softmax import narrow, widen

from ... import dtypes
from ...tensor import Tensor, wrap_dim
from .._batching import run, shifted
from .._spec import (
    EXACTLY,
    FUNCTION,
    INPLACE,
    LIKE,
    METHOD,
    NEVER,
    OUT,
    Operand,
    composite,
    describe,
    primitive,
)
from .._spec.names import keep
from .select import (
    EVERY,
    INT64,
    REDUCES,
    Along,
    as_element,
    check_bounds,
    check_same_dtype,
    combine_grads,
    converted_back,
    extent,
    fill_number,
    has_negative,
    int_index,
    long_index,
    plain_number,
    stored_number,
    writes_straight,
)  # fmt: skip


class _Rows(Along):
    """Where `index_add` puts whole slices."""

    def read(self, x: Tensor) -> Tensor:
        return x.index_select(self.dim, self.index)

    def total(self, x: Tensor) -> Tensor:
        return x.new_zeros(self.shape).index_add(self.dim, self.index, x)

    def product(self, start: Tensor, x: Tensor) -> Tensor:
        return index_combine.function(start, self.dim, self.index, x, "prod", True)


def _check_index_select(input, dim, index):
    d = wrap_dim(dim, input.ndim)
    if index.ndim > 1:
        raise IndexError(f"index_select(): Index is supposed to be a vector, but it has shape {tuple(index.shape)}")
    if index.dtype not in (dtypes.int64, dtypes.int32):
        raise RuntimeError(f"index_select(): Expected dtype int32 or int64 for index, but got {index.dtype.name}")
    if not input.ndim and index.numel() != 1:
        raise RuntimeError(f"index_select(): Index to scalar can have only 1 value, got {index.numel()} value(s)")
    check_bounds(IndexError, "index_select", index, d, extent(input, d))
    return input, d, index


@primitive(
    surface=FUNCTION | METHOD | OUT, tensors=("input", "index"), check=_check_index_select, overlap=NEVER,
    samples="x(4, 3), 0, i(4, 5); x(2, 3), 1, fb.tensor([2, 0])",
    exact_out=True,
    refuses_expanded_out=True,
    cuda="moves.index_select",
    elements="moved",
)
def index_select(input, dim, index):
    """The slices of `input` at `index`, a vector of int64 or int32, along `dim`. Raises: IndexError out of range.

    >>> fb.index_select(fb.tensor([5, 6, 7]), 0, fb.tensor([2, 0, 2]))
    tensor([7, 5, 7])
    """


@index_select.put_off_within("index")
def _are_slices(input, dim, index):
    ndim = input.ndim
    return [(0, input.shape[dim])] if dim.__class__ is int and -ndim <= dim < ndim and index.numel() > 0 else None


@index_select.in_pieces
def _index_select_pieces(asked):
    return _pieces_along_others(asked) + [asked.way({1: 0}, asked.dims("dim")[0])] * (asked["index"].ndim == 1 and asked["input"].ndim > 0)


def _pieces_along_others(asked: Any) -> list[Any]:
    """The ways of ops that take or store rows along a dimension, which is `dim`: divided along the others, with `index` whole."""
    ndim = asked["input"].ndim
    rows = {i for i, x in enumerate(asked.operands) if x.ndim == ndim and asked.names[i] != "index"} if ndim else set()
    return [asked.way(dict.fromkeys(rows, d), d) for d in range(ndim) if d not in asked.dims("dim")]


@index_select.kernel
def _index_select(a, dim, index):
    return kernel.take_rows(a, dim, index.reshape(-1)) if a.ndim else a.copy()


@index_select.shape
def _index_select_shape(input, dim, index):
    return (*input.shape[:dim], index.numel(), *input.shape[dim + 1 :]) if input.ndim else (), input.dtype


@index_select.plan(wraps="dim")
def _index_select_planned(a, dim, at):
    if at.dtype is not INT64 or at.ndim != 1:
        return None
    made = hot_calls.pick_slices(a, dim, at)
    if made is not None:
        return made
    if at.size > 64:
        return kernel.take_rows(a, dim, at, False)
    return None if has_negative(at) else a.take(at, dim)


@index_select.vjp(index=None)
def _index_select_vjp(grad, input_shape, dim, index):
    return (lambda: grad.new_zeros(input_shape).index_add(dim, index, grad), None)


@index_select.vjp_on_arrays
def _index_select_vjp_on_arrays(grad, input_shape, dim, index):
    if not input_shape:
        return (grad, None)
    full_grad = np.zeros(input_shape, grad.dtype)
    return (_rows_reduced(full_grad, dim, index, grad, "sum", True), None)


@index_select.batch
def _index_select_batch(level: Any, op: Any, args: Any) -> Any:
    x, dim, index = args
    if level.has(index) or x.ndim == 0:
        return NotImplemented
    return level.wrap(run(op, level.front(x), shifted(x, dim), index))


def _rows_reduced(a: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool) -> Any:
    if not index.size or not a.size:
        return a.copy()
    return kernel.reduce_rows(a, dim, index, source, reduce, include_self)


def _check_rows(name: str, input: Tensor, dim: int, index: Tensor, source: Tensor, error: type) -> int:
    """The checks `index_add`, `index_reduce` and their like share. Raises: `error` for an index out of range."""
    d = wrap_dim(dim, input.ndim)
    if index.ndim > 1:
        raise IndexError(f"{name}(): Index is supposed to be a vector, but it has shape {tuple(index.shape)}")
    int_index(name, index)
    check_same_dtype(name, input, source, "source")
    if max(source.ndim, 1) != max(input.ndim, 1):
        raise RuntimeError(f"{name}(): input and source need the same number of dimensions\n{describe(input=input, source=source)}")
    if index.numel() != extent(source, d):
        raise RuntimeError(
            f"{name}_(): Number of indices ({index.numel()}) should be equal to source.size(dim): ({extent(source, d)}), for dim: {d}"
        )
    if source.ndim and input.ndim:
        for k, (n, m) in enumerate(zip(input._array.shape, source._array.shape, strict=True)):
            if k != d and n != m:
                raise RuntimeError(
                    f"{name}(): source tensor shape must match input tensor shape, excluding dimension {d}\n"
                    f"{describe(input=input, source=source)}"
                )
    check_bounds(error, name, index, d, extent(input, d))
    return d


def _check_index_add(input, dim, index, source, alpha):
    error = IndexError if input.ndim == 1 else RuntimeError  # as in PyTorch, which has another kernel for vectors
    return input, _check_rows("index_add", input, dim, index, source, error), index, source, alpha


@primitive(
    surface=EVERY, tensors=("input", "index", "source"), check=_check_index_add, overlap=(EXACTLY, NEVER),
    samples="x(4, 3), 0, i(4, 5), x(5, 3); x(2, 3), 1, fb.tensor([2, 0]), x(2, 2), alpha=2",
    exact_out=True,
    cuda="moves.index_add",
)
def index_add(input, dim, index, source, *, alpha=1):
    """`input` with the slices of ``alpha * source`` added at `index` along `dim`, one after the other.

    >>> fb.index_add(fb.zeros(2), 0, fb.tensor([1, 1]), fb.tensor([5.0, 6.0]))
    tensor([ 0., 11.])
    """


index_add.in_pieces(_pieces_along_others)


@index_add.kernel
def _index_add(a, dim, index, source, alpha):
    return _rows_reduced(a, dim, index, source if alpha == 1 else _times(source, alpha), "sum", True)


def _times(source: Any, alpha: Any) -> Any:
    with np.errstate(all="ignore"):
        return narrow(widen(source) * widen(np.asarray(alpha).astype(source.dtype)), source.dtype)


def _add_in_place(a: Any, dim: int, index: Any, source: Any, alpha: Any) -> bool:
    return alpha == 1 and kernel.sum_rows_into(a, dim, index, source)


index_add.inplace_rule = writes_straight(index_add, _add_in_place)


@index_add.plan(stores=True, wraps="dim")
def _index_add_planned(a, dim, at, source, alpha):
    if alpha.__class__ is not int or alpha != 1:
        if not plain_number(alpha, source.dtype) and not (alpha.__class__ is float and source.dtype.char in "eE"):
            return False
        source = _times(source, alpha)
    if hot_calls.add_slices(a, dim, at, source) is not None or kernel.combine_slices(a, dim, at, source, "sum"):
        return True
    key = kernel.key_of_slices(a.shape, dim, at, source.shape)
    if key is None:
        return a.ndim == 1 and kernel.combine_along(a, 0, at, source, "sum")
    return not has_negative(at) and kernel.combine_by_numpy(a, key, source, "sum")


@index_add.shape
def _index_add_shape(input, dim, index, source, alpha):
    return input.shape, input.dtype


index_add.shown_as(
    hides="source_shape", alpha=lambda saved: saved["alpha"],  # a number, not a count
    source=Operand("source"), source_dim=lambda saved: len(saved["source_shape"]),
)  # fmt: skip


@index_add.vjp(input="", source="index", index=None)
def _index_add_vjp(grad, dim, index, source_shape, alpha):
    def of_source() -> Tensor:
        made = grad.index_select(dim, index) if index.numel() else grad.new_zeros(source_shape)
        return (made if alpha == 1 else made * alpha).reshape(source_shape)

    return (grad, None, of_source)


def _check_index_combine(input, dim, index, source, reduce, include_self):
    return input, _check_rows("index_reduce", input, dim, index, source, IndexError), index, source, reduce, include_self


@primitive(surface=0, tensors=("input", "index", "source"), check=_check_index_combine, samples="of index_reduce")
def index_combine(input, dim, index, source, reduce, include_self):
    """`input` with the slices of `source` combined into those at `index` along `dim`."""


index_combine.in_pieces(_pieces_along_others)


index_combine.shown_as("IndexReduceBackward0")


@index_combine.kernel
def _index_combine(a, dim, index, source, reduce, include_self):
    return _rows_reduced(a, dim, index, source, reduce, include_self)


@index_combine.plan(wraps="dim")
def _index_combine_planned(a, dim, at, source, reduce, include_self):
    made = kernel.combined_slices(a, dim, at, source, reduce, include_self)
    if made is not None:
        return made
    key = kernel.key_of_slices(a.shape, dim, at, source.shape)
    if key is None or has_negative(at) or source.dtype is not a.dtype:
        return None
    return kernel.combined_by_numpy(a, key, source, reduce, include_self)


@index_combine.shape
def _index_combine_shape(input, dim, index, source, reduce, include_self):
    return input.shape, input.dtype


@index_combine.vjp(index=None)
def _index_combine_vjp(grad, out, input, dim, index, source, reduce, include_self):
    if not index.numel() or not input.numel():
        return (grad, None, lambda: source.new_zeros(source.shape))
    grads = combine_grads(grad, out, input, source, reduce, include_self, _Rows(dim, index, tuple(input.shape)))
    return (grads[0], None, lambda: grads[1]().reshape(source.shape))


@composite(
    surface=EVERY, overlap=(EXACTLY, NEVER),
    samples=(
        "x(4, 3), 0, i(4, 5), p(5, 3), 'prod'; x(4, 3), 0, fb.tensor([0, 2]), d(2, 3), 'amax'; "
        "x(4, 3), 0, i(4, 5), x(5, 3), 'mean', include_self=False"
    ),
    exact_out=True,
)
def index_reduce(input, dim: int, index, source, reduce: str, *, include_self=True):
    """`input` with the slices of `source` combined into those at `index` along `dim`.

    Args:
        reduce: 'prod', 'mean', 'amax' or 'amin'.
        include_self: whether the slice of `input` takes part.
    """
    if reduce not in REDUCES[1:]:
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce!r}")
    return index_combine.function(input, dim, index, source, reduce, include_self)


@index_reduce.forwards
def _reduced_by_slices(input, dim, index, source, reduce, include_self):
    return index_combine.answer(input, dim, index, source, reduce, include_self) if reduce in REDUCES[1:] else None


def _check_index_copy(input, dim, index, source):
    d = wrap_dim(dim, input.ndim)
    if index.ndim > 1:
        raise IndexError(f"index_copy(): Index should have dimension 1 or 0 (got {index.ndim})")
    if source.ndim != input.ndim and source.ndim and input.ndim:
        raise IndexError(
            f"index_copy(): When source and destination are not scalars, their dimensionality must match\n"
            f"{describe(input=input, source=source)}"
        )
    long_index("index_copy", index)
    check_same_dtype("index_copy", input, source, "source")
    if source.ndim and input.ndim:
        without = [tuple(n for k, n in enumerate(x.shape) if k != d) for x in (input, source)]
        if without[0] != without[1]:
            raise RuntimeError(
                f"index_copy(): Source/destination tensor must have same slice shapes apart from dimension {d}\n"
                f"{describe(input=input, source=source)}"
            )
    if index.numel() != extent(source, d) and (source.ndim or index.numel() != 1):
        raise IndexError(f"index_copy_(): Number of indices ({index.numel()}) should be equal to source.size(dim) ({extent(source, d)})")
    check_bounds(IndexError, "index_copy", index, d, extent(input, d))
    return input, d, index, source


@primitive(
    surface=EVERY, tensors=("input", "index", "source"), check=_check_index_copy, overlap=(EXACTLY, NEVER), autocast=("widest", None),
    samples="x(4, 3), 0, fb.tensor([2, 0]), x(2, 3); x(2, 3), 1, fb.tensor([2, 0]), x(2, 2)",
    exact_out=True,
    cuda="moves.index_copy",
)
def index_copy(input, dim, index, source):
    """`input` with the slices of `source` stored at `index` along `dim`; of repeated places the last stays."""


index_copy.shown_as(hides="source_shape", source=Operand("source"), source_dim=lambda saved: len(saved["source_shape"]))


index_copy.in_pieces(_pieces_along_others)


def _row_key(dim: int, index: Any) -> Any:
    return (slice(None),) * dim + (index.reshape(-1),)


@index_copy.kernel
def _index_copy(a, dim, index, source):
    if not index.size:
        return a.copy()
    if not a.ndim:
        return source.reshape(()).copy()
    return kernel.put(a, _row_key(dim, index), source)


@index_copy.plan(stores=True, wraps="dim")
def _index_copy_planned(a, dim, at, source):
    if hot_calls.put_slices(a, dim, at, source) is not None:
        return True
    if kernel.combine_slices(a, dim, at, source, "put"):
        return True
    key = kernel.key_of_slices(a.shape, dim, at, source.shape)
    if key is None:
        return False
    if has_negative(at) or source.dtype is not a.dtype:
        return False
    a[key] = source
    return True


@index_copy.shape
def _index_copy_shape(input, dim, index, source):
    return input.shape, input.dtype


@index_copy.vjp(index=None)
def _index_copy_vjp(grad, dim, index, source_shape):
    def of_source() -> Tensor:
        return grad.index_select(dim, index).expand(source_shape) if grad.ndim else grad.reshape(source_shape)

    return (lambda: grad.index_fill(dim, index, 0), None, of_source)


@index_add.batch
@index_copy.batch
def _index_add_batch(level: Any, op: Any, args: Any) -> Any:
    x, dim, index, source, *rest = args
    if level.has(index) or x.ndim == 0 or source.ndim != x.ndim:
        return NotImplemented
    return level.wrap(run(op, level.full(x), shifted(x, dim), index, level.full(source), *rest))


def _check_index_fill(input, dim, index, value):
    d = wrap_dim(dim, input.ndim)
    if index.dtype is not dtypes.int64:
        raise IndexError(f"index_fill_(): Expected dtype int64 for index. Got {index.dtype.name}")
    if index.ndim > 1:
        raise RuntimeError(f"index_fill_(): Index has to be a vector/scalar, but it has shape {tuple(index.shape)}")
    if isinstance(value, (complex, np.complexfloating)) and not input.is_complex():
        raise RuntimeError(f"index_fill_(): Converting complex Scalar to non-complex type is not supported: {value} to {input.dtype}")
    check_bounds(IndexError, "index_fill", index, d, extent(input, d), negative=True)
    return input, d, index, fill_number("index_fill", input, value)


@primitive(
    surface=0, tensors=("input", "index"), check=_check_index_fill, overlap={"index": NEVER}, memory=LIKE, ordering=("input",),
    operator="index_fill(input, dim, index, value)",
    samples="of index_fill",
    public_name="index_fill",
    may_write_expanded=True,
    cuda="moves.index_fill",
)
def index_fill_number(input, dim, index, value):
    """`input` with every slice at `index` along `dim` filled with `value`."""


index_fill_number.shown_as("IndexFillBackward0")


index_fill_number.in_pieces(_pieces_along_others)


@index_fill_number.kernel
def _index_fill(a, dim, index, value):
    if not index.size:
        return a.copy()
    value = as_element(value, a.dtype)
    return kernel.put(a, _row_key(dim, index), value) if a.ndim else np.full((), value, a.dtype)


@index_fill_number.plan(stores=True, wraps="dim")
def _index_fill_planned(a, dim, at, value):
    value = stored_number(value, a.dtype)
    if value is None:
        return False
    many = a.size and a.size // a.shape[dim] * at.size >= kernel.COMPILED_FROM
    if many and kernel.combine_slices(a, dim, at, np.full(1, value, a.dtype), "put", True):
        return True
    key = kernel.key_of_slices(a.shape, dim, at)
    if key is None:
        return False
    a[key] = value
    return True


@index_fill_number.shape
def _index_fill_shape(input, dim, index, value):
    return input.shape, input.dtype


@index_fill_number.vjp(index=None)
def _index_fill_vjp(grad, dim, index):
    return (lambda: grad.index_fill(dim, index, 0), None)


@index_fill_number.batch
def _index_fill_number_batch(level: Any, op: Any, args: Any) -> Any:
    x, dim, index, value = args
    if level.has(index) or x.ndim == 0:
        return NotImplemented
    return level.wrap(run(op, level.front(x), shifted(x, dim), index, value))


@primitive(
    surface=0, tensors=("input", "index", "value"), check=_check_index_fill, overlap={"index": NEVER}, memory=LIKE, ordering=("input",),
    operator="index_fill(input, dim, index, value)",
    samples="of index_fill",
    public_name="index_fill",
    cuda="moves.index_fill",
)
def index_fill_tensor(input, dim, index, value):
    """`input` with every slice at `index` along `dim` filled with the 0-d Tensor `value`."""


index_fill_tensor.in_pieces(_pieces_along_others)


index_fill_tensor.shown_as("IndexFillBackward1")
index_fill_tensor.kernel(_index_fill)
index_fill_tensor.shape(_index_fill_shape)


@index_fill_tensor.vjp(index=None)
def _index_fill_tensor_vjp(grad, dim, index, value_dtype):
    kept = grad.index_fill(dim, index, 0)
    return (kept, None, lambda: converted_back((grad - kept).sum(), value_dtype))


@composite(
    surface=FUNCTION | METHOD | INPLACE, overlap={"index": NEVER},
    samples="x(4, 3), 0, fb.tensor([2, 0]), 1.5; x(2, 3), 1, fb.tensor([2]), x()",
    may_write_expanded=True,
    names=keep,
)
def index_fill(input, dim: int, index, value):
    """`input` with every slice at `index` (int64) along `dim` filled with `value`, a number or 0-d Tensor."""
    fill = index_fill_tensor if isinstance(value, Tensor) else index_fill_number
    return fill.function(input, dim, index, value)


@index_fill.forwards
def _filled_with_number(input, dim, index, value):
    return None if isinstance(value, Tensor) else index_fill_number.answer(input, dim, index, value)


_index_fill_copied = index_fill.run_inplace


def _index_fill_in_place(target: Any, dim: Any, index: Any, value: Any) -> Tensor:
    run = _index_fill_copied if isinstance(value, Tensor) else index_fill_number.run_inplace
    return run(target, dim, index, value)


index_fill.run_inplace = _index_fill_in_place  # pyright: ignore[reportAttributeAccessIssue]  # on purpose
