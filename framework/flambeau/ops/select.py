"""Picking and putting elements along a dimension, by mask, or by position: gather, scatter, index_*, masked_*."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels.cpu import scatter as kernel

from .. import dtypes
from .._arrays import MetaArray, may_overlap, ndarray, restride
from ..dtypes import F4, F8
from ..tensor import Tensor, storage_buffer, wrap, wrap_dim
from .index import recorded
from ._spec import (
    FUNCTION, INPLACE, METHOD, OUT, broadcast_shapes, composite, describe, primitive, sum_tensor_to, sum_to,
)  # fmt: skip

EVERY = FUNCTION | METHOD | INPLACE | OUT
_I8, _I4 = np.dtype(np.int64), np.dtype(np.int32)
_lowest = np.minimum.reduce


# -- checks --------------------------------------------------------------------------------------------------------------


def _int_index(name: str, index: Any, param: str = "index") -> None:
    if index.dtype not in (dtypes.int64, dtypes.int32):
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for {param}, but got {index.dtype.name}; convert it with .long()")


def _long_index(name: str, index: Any) -> None:
    if index.dtype is not dtypes.int64:
        raise RuntimeError(f"{name}(): Expected a long tensor for index, but got {index.dtype.name}; convert it with .long()")


def _bounds(error: type, name: str, index: Tensor, dim: int, n: int, negative: bool = False) -> None:
    """Raise `error` naming an index outside ``[0, n)``, or ``[-n, n)`` if `negative`."""
    a = index._a
    if type(a) is not ndarray or not a.size:
        return
    low = -n if negative else 0
    if a.min() < low or a.max() >= n:
        bad = a[(a < low) | (a >= n)].reshape(-1)[0]
        raise error(f"{name}: index {bad} is out of bounds for dimension {dim} with size {n}")


def _same_dtype(name: str, input: Tensor, source: Tensor, called: str) -> None:
    if input.dtype is not source.dtype:
        raise RuntimeError(
            f"{name}(): Expected input.dtype to be equal to {called}.dtype, but got {input.dtype} and {source.dtype}; "
            f"convert {called} with .to(input.dtype)"
        )


def _extent(x: Tensor, dim: int) -> int:
    return x._a.shape[dim] if x._a.ndim else 1


def _fill_number(name: str, input: Tensor, value: Any) -> Any:
    """`value` as PyTorch lets it into a tensor of this dtype. Raises: RuntimeError for complex into real."""
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(f"{name} only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s).")
        if value.is_complex() and not input.is_complex():
            raise RuntimeError(f"{name}: a complex value cannot be stored in a tensor of dtype {input.dtype}")
        return value
    if isinstance(value, (complex, np.complexfloating)) and not input.is_complex():
        raise RuntimeError(f"{name}: value {value} cannot be converted to type {input.dtype} without overflow")
    return value


# -- gather and scatter along a dimension ----------------------------------------------------------------------------------


def refuse_shared_out(op: Any) -> None:
    """Let `op` refuse an ``out`` of another dtype than its input, or one that shares memory with its operands."""
    general = op.run_out

    def run_out(out: Any, *args: Any) -> Any:
        if isinstance(out, Tensor) and out.dtype is not args[0].dtype:
            raise RuntimeError(f"{op.name}(): Expected out tensor to have dtype {args[0].dtype}, but got {out.dtype} instead")
        for target in out if isinstance(out, (tuple, list)) else (out,):
            if any(isinstance(a, Tensor) and a._a.size and may_overlap(a._a, target._a) for a in args):
                raise RuntimeError(
                    f"{op.name}(): unsupported operation: some elements of an operand and of out refer to a single memory "
                    "location; give another out, or clone() the operand"
                )
        return general(out, *args)

    op.run_out = run_out


def _check_along(name: str, input: Tensor, dim: int, index: Tensor) -> int:
    d = wrap_dim(dim, input.ndim)
    if not index.numel():
        return d
    _int_index(name, index)
    if max(index.ndim, 1) != max(input.ndim, 1):
        raise RuntimeError(
            f"{name}: Index tensor must have the same number of dimensions as input tensor\n{describe(input=input, index=index)}"
        )
    for k in range(input.ndim):
        if k != d and index.ndim and index._a.shape[k] > input._a.shape[k]:
            raise RuntimeError(
                f"{name}: index has size {index.shape[k]} at dimension {k}, which is more than the {input.shape[k]} of input; only "
                f"dimension {d}, which is indexed, may be larger\n{describe(input=input, index=index)}"
            )
    _bounds(RuntimeError, name, index, d, _extent(input, d))
    return d


def _check_gather(input, dim, index, sparse_grad):
    return input, _check_along("gather", input, dim, index), index, sparse_grad


@primitive(surface=FUNCTION | METHOD | OUT, tensors=("input", "index"), check=_check_gather)
def gather(input, dim, index, *, sparse_grad=False):
    """The elements of `input` at the places `index` names along `dim`: ``out[i][j] = input[index[i][j]][j]`` for `dim` 0.

    Args:
        index: int64 or int32, of as many dimensions as `input`, nowhere larger than it except along `dim`.
    Returns: the shape of `index`.
    Raises: RuntimeError for an index out of range or of another dtype.
    """


refuse_shared_out(gather)


@gather.kernel
def _gather(a, dim, index, sparse_grad):
    if not index.size:
        return np.empty(index.shape, a.dtype)
    return kernel.gather(a, dim, index)


@gather.shape
def _gather_shape(input, dim, index, sparse_grad):
    return index.shape, input.dtype


@gather.fast
def _gather_fast(input, dim, index, sparse_grad):
    """Small matrices whose shapes agree apart from `dim`."""
    try:
        a, at = input._a, index._a
        if at.dtype is not _I8 or type(a) is not ndarray or a.ndim != 2 or at.ndim != 2 or at.size > 4096 or not -2 <= dim < 2:
            return None
        dim %= 2
        if at.shape[1 - dim] > a.shape[1 - dim] or not at.size or _lowest(at, None) < 0:
            return None
        made = a[kernel.along(at, dim)]
    except (AttributeError, TypeError, IndexError):  # not tensors, or said better by the checks
        return None
    return wrap(made) if input._n is None else recorded(gather, made, (input._n, None), (a.shape, dim, at), (None, None, index._v))


@gather.vjp
def _gather_vjp(grad, input_shape, dim, index):
    return (lambda: grad.new_zeros(input_shape).scatter_add(dim, index, grad), None)


def _check_scatter(name: str, input: Tensor, dim: int, index: Tensor, src: Tensor) -> int:
    d = _check_along(name, input, dim, index)
    if not index.numel():
        return d
    _same_dtype(name, input, src, "src")
    if max(src.ndim, 1) != max(index.ndim, 1):
        raise RuntimeError(
            f"{name}: Index tensor must have the same number of dimensions as src tensor\n{describe(index=index, src=src)}"
        )
    if src.ndim and index.ndim and any(n > m for n, m in zip(index._a.shape, src._a.shape, strict=True)):
        raise RuntimeError(f"{name}: Expected index to be no larger than src in any dimension\n{describe(index=index, src=src)}")
    return d


def _check_put(input, dim, index, src):
    return input, _check_scatter("scatter", input, dim, index, src), index, src


@primitive(surface=0, tensors=("input", "index", "src"), check=_check_put)
def scatter_src(input, dim, index, src):
    """`input` with the elements of `src` stored at the places `index` names along `dim`."""


scatter_src.node_class.title = "ScatterBackward0"


@scatter_src.kernel
def _scatter_src(a, dim, index, src):
    return kernel.put_along(a, dim, index, src) if index.size else a.copy()


@scatter_src.shape
def _scatter_src_shape(input, dim, index, src):
    return input.shape, input.dtype


@scatter_src.vjp
def _scatter_src_vjp(grad, dim, index, src_shape):
    return (lambda: grad.scatter(dim, index, 0), None, lambda: padded(_gathered(grad, dim, index), src_shape))


def _gathered(grad: Tensor, dim: int, index: Tensor) -> Tensor:
    return grad.gather(dim, index)


def padded(grad: Tensor, shape: Any) -> Tensor:
    """`grad` as the front corner of zeros of `shape`."""
    if tuple(grad.shape) == tuple(shape):
        return grad
    if grad.numel() == 0 or not shape:
        return grad.sum().reshape(shape) if not shape else grad.new_zeros(shape)
    made = grad
    for d, n in enumerate(shape):
        if made.shape[d] != n:
            made = slice_scatter(made.new_zeros([*made.shape[:d], n, *made.shape[d + 1 :]]), made, d, 0, made.shape[d])
    return made


def _check_fill_along(input, dim, index, value):
    return input, _check_along("scatter", input, dim, index), index, value


@primitive(surface=0, tensors=("input", "index"), check=_check_fill_along)
def scatter_value(input, dim, index, value):
    """`input` with `value` stored at the places `index` names along `dim`."""


scatter_value.node_class.title = "ScatterBackward1"


@scatter_value.kernel
def _scatter_value(a, dim, index, value):
    return kernel.put_along(a, dim, index, _as_element(value, a.dtype)) if index.size else a.copy()


@scatter_value.shape
def _scatter_value_shape(input, dim, index, value):
    return input.shape, input.dtype


@scatter_value.vjp
def _scatter_value_vjp(grad, dim, index):
    return (lambda: grad.scatter(dim, index, 0), None)


@composite(surface=EVERY)
def scatter(input, dim, index, src=None, *, value=None, reduce=None):
    """`input` with values stored at the places `index` names along `dim`: ``out[index[i][j]][j] = src[i][j]`` for `dim` 0.

    Args:
        src: a Tensor of the dtype of `input`, nowhere smaller than `index`; or a number, stored everywhere.
        reduce: None, or 'add' or 'multiply' to combine with what is there.
    Raises: RuntimeError for an index out of range, shapes or dtypes that do not fit, or another `reduce`.
    """
    given = src if value is None else value
    if given is None:
        raise TypeError("scatter() missing an argument: 'src' (a Tensor) or 'value' (a number)")
    if reduce is not None:
        if reduce not in ("add", "multiply"):
            raise RuntimeError(f"scatter(): reduce argument must be either add or multiply, got {reduce!r}")
        if not isinstance(given, Tensor):
            given = input.new_full(index.shape, given)
        how = "sum" if reduce == "add" else "prod"
        return scatter_combine.function(input, _check_scatter("scatter", input, dim, index, given), index, given, how, True)
    if isinstance(given, Tensor):
        return scatter_src.function(input, dim, index, given)
    return scatter_value.function(input, dim, index, _fill_number("scatter", input, given))


def _check_scatter_add(input, dim, index, src):
    return input, _check_scatter("scatter_add", input, dim, index, src), index, src


@primitive(surface=EVERY, tensors=("input", "index", "src"), check=_check_scatter_add)
def scatter_add(input, dim, index, src):
    """`input` with the elements of `src` added at the places `index` names along `dim`, one after the other."""


@scatter_add.kernel
def _scatter_add(a, dim, index, src):
    return kernel.reduce_along(a, dim, index, src, "sum", True) if index.size else a.copy()


@scatter_add.shape
def _scatter_add_shape(input, dim, index, src):
    return input.shape, input.dtype


@scatter_add.vjp
def _scatter_add_vjp(grad, dim, index, src_shape):
    return (grad, None, lambda: padded(_gathered(grad, dim, index), src_shape))


_REDUCES = ("sum", "prod", "mean", "amax", "amin")


@primitive(surface=0, tensors=("input", "index", "src"))
def scatter_combine(input, dim, index, src, reduce, include_self):
    """`input` with the elements of `src` combined into the places `index` names along `dim`."""


scatter_combine.node_class.title = "ScatterReduceBackward0"


@scatter_combine.kernel
def _scatter_combine(a, dim, index, src, reduce, include_self):
    return kernel.reduce_along(a, dim, index, src, reduce, include_self) if index.size else a.copy()


@scatter_combine.shape
def _scatter_combine_shape(input, dim, index, src, reduce, include_self):
    return input.shape, input.dtype


@scatter_combine.vjp
def _scatter_combine_vjp(grad, out, input, dim, index, src, reduce, include_self):
    if not index.numel():
        return (grad, None, lambda: src * 0)
    corner = src if src.shape == index.shape else src[tuple(slice(0, n) for n in index.shape)]
    places = _Along(dim, index, tuple(input.shape))
    grads = combine_grads(grad, out, input, corner, reduce, include_self, places)
    return (grads[0], None, lambda: padded(grads[1](), src.shape))


class _Along:
    """Where `scatter` along a dimension puts: how to read from there and add up there."""

    def __init__(self, dim: int, index: Tensor, shape: Any) -> None:
        self.dim, self.index, self.shape = dim, index, shape

    def read(self, x: Tensor) -> Tensor:
        return x.gather(self.dim, self.index)

    def total(self, x: Tensor) -> Tensor:
        return x.new_zeros(self.shape).scatter_add(self.dim, self.index, x)

    def product(self, start: Tensor, x: Tensor) -> Tensor:
        return scatter_combine.function(start, self.dim, self.index, x, "prod", True)


class _Rows(_Along):
    """Where `index_add` puts whole slices."""

    def read(self, x: Tensor) -> Tensor:
        return x.index_select(self.dim, self.index)

    def total(self, x: Tensor) -> Tensor:
        return x.new_zeros(self.shape).index_add(self.dim, self.index, x)

    def product(self, start: Tensor, x: Tensor) -> Tensor:
        return index_combine.function(start, self.dim, self.index, x, "prod", True)


def combine_grads(grad: Tensor, out: Tensor, input: Tensor, src: Tensor, reduce: str, include_self: bool, at: _Along) -> Any:
    """Thunks of the gradients of ``scatter_reduce`` with respect to `input` and `src` (of the shape of the index)."""
    hit = at.total(src.new_ones(src.shape)) if not include_self or reduce in ("mean", "prod") else None

    def kept(x: Tensor) -> Tensor:
        """`x` where the value of `input` takes part in the result."""
        return x if include_self else x.masked_fill(hit != 0, 0)

    if reduce == "sum":
        return lambda: kept(grad), lambda: at.read(grad)
    if reduce == "mean":
        share = grad / (hit + (hit != 0) if include_self else hit).clamp(min=1) if include_self else grad / hit.clamp(min=1)
        return lambda: kept(share), lambda: at.read(share)
    if reduce == "prod":
        return _product_grads(grad, out, input, src, include_self, hit, at, kept)
    own = (input == out).to(grad.dtype)
    theirs = (src == at.read(out)).to(grad.dtype)
    if not include_self:
        own = own.masked_fill(hit != 0, 0)
    count = own + at.total(theirs)
    share = grad / count.masked_fill(count == 0, 1)
    untouched = own if include_self else own.masked_fill(hit == 0, 1)
    return lambda: untouched * share, lambda: theirs * at.read(share)


def _product_grads(grad: Tensor, out: Tensor, input: Tensor, src: Tensor, include_self: bool, hit: Any, at: _Along, kept: Any) -> Any:
    """A factor's gradient is the product of the others: the result divided by it or, for the only zero, what else there is."""
    takes_part = include_self | (hit == 0)
    zero_input = (input == 0) & takes_part
    zero_src = src == 0
    zeros = at.total(zero_src.to(grad.dtype)) + zero_input
    start = input.masked_fill(~takes_part | zero_input, 1)
    others = at.product(start, src.masked_fill(zero_src, 1))

    def factor(x: Tensor, zero: Tensor, whole: Tensor, product: Tensor, number: Tensor) -> Tensor:
        divided = (whole / x.masked_fill(zero, 1)).masked_fill(zero, 0)
        return (divided + product.masked_fill(~zero | (number != 1), 0)).conj()

    return (
        lambda: kept(grad * factor(start.masked_fill(zero_input, 0), zero_input, out, others, zeros)),
        lambda: at.read(grad) * factor(src, zero_src, at.read(out), at.read(others), at.read(zeros)),
    )


@composite(surface=EVERY)
def scatter_reduce(input, dim, index, src, reduce, *, include_self=True):
    """`input` with the elements of `src` combined into the places `index` names along `dim`.

    Args:
        reduce: 'sum', 'prod', 'mean', 'amax' or 'amin'.
        include_self: whether the element of `input` takes part where something is put.
    """
    if reduce not in _REDUCES:
        raise RuntimeError(f"scatter_reduce(): reduce argument must be either sum, prod, mean, amax or amin, got {reduce!r}")
    d = _check_scatter("scatter_reduce", input, dim, index, src)
    if reduce == "sum" and include_self:
        return scatter_add(input, d, index, src)
    return scatter_combine.function(input, d, index, src, reduce, include_self)


@composite(surface=FUNCTION | METHOD | OUT)
def take_along_dim(input, indices, dim=None):
    """`gather` along `dim` where `input` and `indices` broadcast elsewhere; of the flattened input without `dim`."""
    if indices.dtype is not dtypes.int64:
        raise RuntimeError(f"take_along_dim(): dtype of indices should be Long but got {indices.dtype.name}")
    if dim is None:
        return gather(input.reshape(-1), 0, indices.reshape(-1))
    if input.ndim != indices.ndim:
        raise RuntimeError(
            f"take_along_dim(): input and indices should have the same number of dimensions, but got {input.ndim} dimensions "
            f"for input, and {indices.ndim} dimensions for indices"
        )
    d = wrap_dim(dim, input.ndim)
    if not input.ndim:
        return gather(input, 0, indices)
    n = input.shape[d]
    one = [1 if k == d else m for k, m in enumerate(input.shape)]
    two = [1 if k == d else m for k, m in enumerate(indices.shape)]
    from .shape import broadcast_shapes as common

    shape = list(common(one, two))
    x = input.expand([*shape[:d], n, *shape[d + 1 :]])
    at = indices.expand([*shape[:d], indices.shape[d], *shape[d + 1 :]])
    return gather(x, d, where_negative(at, n))


def where_negative(index: Tensor, n: int) -> Tensor:
    """`index` with negative places counted from the end of `n`."""
    a = index._a
    if type(a) is not ndarray or not a.size or a.min() >= 0:
        return index
    return wrap(np.where(a < 0, a + n, a))


# -- whole slices along a dimension ----------------------------------------------------------------------------------------


def _check_index_select(input, dim, index):
    d = wrap_dim(dim, input.ndim)
    if index.ndim > 1:
        raise IndexError(f"index_select(): Index is supposed to be a vector, but it has shape {tuple(index.shape)}")
    if index.dtype not in (dtypes.int64, dtypes.int32):
        raise RuntimeError(f"index_select(): Expected dtype int32 or int64 for index, but got {index.dtype.name}")
    if not input.ndim and index.numel() != 1:
        raise RuntimeError(f"index_select(): Index to scalar can have only 1 value, got {index.numel()} value(s)")
    _bounds(IndexError, "index_select", index, d, _extent(input, d))
    return input, d, index


@primitive(surface=FUNCTION | METHOD | OUT, tensors=("input", "index"), check=_check_index_select)
def index_select(input, dim, index):
    """The slices of `input` at `index`, a vector of int64 or int32, along `dim`. Raises: IndexError out of range."""


@index_select.kernel
def _index_select(a, dim, index):
    return kernel.take_rows(a, dim, index.reshape(-1)) if a.ndim else a.copy()


@index_select.shape
def _index_select_shape(input, dim, index):
    return (*input.shape[:dim], index.numel(), *input.shape[dim + 1 :]) if input.ndim else (), input.dtype


@index_select.fast
def _index_select_fast(input, dim, index):
    """A vector of places in a tensor with dimensions."""
    try:
        a, at = input._a, index._a
        if at.dtype is not _I8 or type(a) is not ndarray or at.ndim != 1 or not a.ndim or not at.size or _lowest(at) < 0:
            return None
        made = a.take(at, dim)
    except (AttributeError, TypeError, IndexError):  # not tensors, or said better by the checks
        return None
    if input._n is None:
        return wrap(made)
    return recorded(index_select, made, (input._n, None), (a.shape, dim % a.ndim, at), (None, None, index._v))


@index_select.vjp
def _index_select_vjp(grad, input_shape, dim, index):
    return (lambda: grad.new_zeros(input_shape).index_add(dim, index, grad), None)


@index_select.raw
def _index_select_raw(grad, input_shape, dim, index):
    if not input_shape:
        return (grad, None)
    whole = np.zeros(input_shape, grad.dtype)
    return (_rows_reduced(whole, dim, index, grad, "sum", True), None)


def _rows_reduced(a: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool) -> Any:
    if not index.size or not a.size:
        return a.copy()
    at = np.broadcast_to(index.reshape((-1,) + (1,) * (max(a.ndim, 1) - 1 - dim)), source.shape or (1,))
    return kernel.reduce_along(a, dim, at, source, reduce, include_self)


def _check_rows(name: str, input: Tensor, dim: int, index: Tensor, source: Tensor, error: type = RuntimeError) -> int:
    """The checks `index_add`, `index_reduce` and their like share."""
    d = wrap_dim(dim, input.ndim)
    if index.ndim > 1:
        raise IndexError(f"{name}(): Index is supposed to be a vector, but it has shape {tuple(index.shape)}")
    _int_index(name, index)
    _same_dtype(name, input, source, "source")
    if max(source.ndim, 1) != max(input.ndim, 1):
        raise RuntimeError(f"{name}(): input and source need the same number of dimensions\n{describe(input=input, source=source)}")
    if index.numel() != _extent(source, d):
        raise error(
            f"{name}(): Number of indices ({index.numel()}) should be equal to source.size(dim) ({_extent(source, d)}), dim={d}"
        )
    if source.ndim and input.ndim:
        for k, (n, m) in enumerate(zip(input._a.shape, source._a.shape, strict=True)):
            if k != d and n != m:
                raise RuntimeError(
                    f"{name}(): source tensor shape must match input tensor shape, excluding dimension {d}\n"
                    f"{describe(input=input, source=source)}"
                )
    _bounds(error, name, index, d, _extent(input, d))
    return d


def _check_index_add(input, dim, index, source, alpha):
    return input, _check_rows("index_add", input, dim, index, source), index, source, alpha


@primitive(surface=EVERY, tensors=("input", "index", "source"), check=_check_index_add)
def index_add(input, dim, index, source, *, alpha=1):
    """`input` with the slices of ``alpha * source`` added at `index` along `dim`, one after the other."""


@index_add.kernel
def _index_add(a, dim, index, source, alpha):
    if alpha != 1:
        with np.errstate(all="ignore"):
            source = (source * np.asarray(alpha).astype(source.dtype)).astype(source.dtype)
    return _rows_reduced(a, dim, index, source, "sum", True)


@index_add.shape
def _index_add_shape(input, dim, index, source, alpha):
    return input.shape, input.dtype


@index_add.vjp
def _index_add_vjp(grad, dim, index, source_shape, alpha):
    def of_source() -> Tensor:
        made = grad.index_select(dim, index) if index.numel() else grad.new_zeros(source_shape)
        return (made if alpha == 1 else made * alpha).reshape(source_shape)

    return (grad, None, of_source)


def _check_index_combine(input, dim, index, source, reduce, include_self):
    return input, _check_rows("index_reduce", input, dim, index, source), index, source, reduce, include_self


@primitive(surface=0, tensors=("input", "index", "source"), check=_check_index_combine)
def index_combine(input, dim, index, source, reduce, include_self):
    """`input` with the slices of `source` combined into those at `index` along `dim`."""


index_combine.node_class.title = "IndexReduceBackward0"


@index_combine.kernel
def _index_combine(a, dim, index, source, reduce, include_self):
    return _rows_reduced(a, dim, index, source, reduce, include_self)


@index_combine.shape
def _index_combine_shape(input, dim, index, source, reduce, include_self):
    return input.shape, input.dtype


@index_combine.vjp
def _index_combine_vjp(grad, out, input, dim, index, source, reduce, include_self):
    if not index.numel() or not input.numel():
        return (grad, None, lambda: source * 0)
    grads = combine_grads(grad, out, input, source, reduce, include_self, _Rows(dim, index, tuple(input.shape)))
    return (grads[0], None, lambda: grads[1]().reshape(source.shape))


@composite(surface=EVERY)
def index_reduce(input, dim, index, source, reduce, *, include_self=True):
    """`input` with the slices of `source` combined into those at `index` along `dim`.

    Args:
        reduce: 'prod', 'mean', 'amax' or 'amin'.
        include_self: whether the slice of `input` takes part.
    """
    if reduce not in _REDUCES[1:]:
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce!r}")
    return index_combine.function(input, dim, index, source, reduce, include_self)


def _check_index_copy(input, dim, index, source):
    d = wrap_dim(dim, input.ndim)
    if index.ndim > 1:
        raise IndexError(f"index_copy(): Index should have dimension 1 or 0 (got {index.ndim})")
    if source.ndim != input.ndim and source.ndim and input.ndim:
        raise IndexError(
            f"index_copy(): When source and destination are not scalars, their dimensionality must match\n"
            f"{describe(input=input, source=source)}"
        )
    _long_index("index_copy", index)
    _same_dtype("index_copy", input, source, "source")
    if source.ndim and input.ndim:
        without = [tuple(n for k, n in enumerate(x.shape) if k != d) for x in (input, source)]
        if without[0] != without[1]:
            raise RuntimeError(
                f"index_copy(): Source/destination tensor must have same slice shapes apart from dimension {d}\n"
                f"{describe(input=input, source=source)}"
            )
    if index.numel() != _extent(source, d) and (source.ndim or index.numel() != 1):
        raise IndexError(f"index_copy(): Number of indices ({index.numel()}) should be equal to source.size(dim) ({_extent(source, d)})")
    _bounds(IndexError, "index_copy", index, d, _extent(input, d))
    return input, d, index, source


@primitive(surface=EVERY, tensors=("input", "index", "source"), check=_check_index_copy)
def index_copy(input, dim, index, source):
    """`input` with the slices of `source` stored at `index` along `dim`; of repeated places the last stays."""


def _row_key(dim: int, index: Any) -> Any:
    return (slice(None),) * dim + (index.reshape(-1),)


@index_copy.kernel
def _index_copy(a, dim, index, source):
    if not index.size:
        return a.copy()
    if not a.ndim:
        return source.reshape(()).copy()
    return kernel.put(a, _row_key(dim, index), source)


@index_copy.shape
def _index_copy_shape(input, dim, index, source):
    return input.shape, input.dtype


@index_copy.vjp
def _index_copy_vjp(grad, dim, index, source_shape):
    def of_source() -> Tensor:
        return grad.index_select(dim, index).expand(source_shape) if grad.ndim else grad.reshape(source_shape)

    return (lambda: grad.index_fill(dim, index, 0), None, of_source)


def _check_index_fill(input, dim, index, value):
    d = wrap_dim(dim, input.ndim)
    if index.dtype is not dtypes.int64:
        raise IndexError(f"index_fill(): Expected dtype int64 for index, but got {index.dtype.name}")
    if index.ndim > 1:
        raise IndexError(f"index_fill(): Index has to be a vector/scalar, but it has shape {tuple(index.shape)}")
    _bounds(IndexError, "index_fill", index, d, _extent(input, d), negative=True)
    return input, d, index, _fill_number("index_fill", input, value)


@primitive(surface=0, tensors=("input", "index"), check=_check_index_fill)
def index_fill_number(input, dim, index, value):
    """`input` with every slice at `index` along `dim` filled with `value`."""


index_fill_number.node_class.title = "IndexFillBackward0"


@index_fill_number.kernel
def _index_fill(a, dim, index, value):
    if not index.size:
        return a.copy()
    value = _as_element(value, a.dtype)
    return kernel.put(a, _row_key(dim, index), value) if a.ndim else np.full((), value, a.dtype)


@index_fill_number.shape
def _index_fill_shape(input, dim, index, value):
    return input.shape, input.dtype


@index_fill_number.vjp
def _index_fill_vjp(grad, dim, index):
    return (lambda: grad.index_fill(dim, index, 0), None)


@primitive(surface=0, tensors=("input", "index", "value"), check=_check_index_fill)
def index_fill_tensor(input, dim, index, value):
    """`input` with every slice at `index` along `dim` filled with the 0-d Tensor `value`."""


index_fill_tensor.node_class.title = "IndexFillBackward1"
index_fill_tensor.kernel(_index_fill)
index_fill_tensor.shape(_index_fill_shape)


@index_fill_tensor.vjp
def _index_fill_tensor_vjp(grad, dim, index, value_dtype):
    kept = grad.index_fill(dim, index, 0)
    return (kept, None, lambda: _view_back((grad - kept).sum(), value_dtype))


@composite(surface=FUNCTION | METHOD | INPLACE)
def index_fill(input, dim, index, value):
    """`input` with every slice at `index` (int64) along `dim` filled with `value`, a number or 0-d Tensor."""
    fill = index_fill_tensor if isinstance(value, Tensor) else index_fill_number
    return fill.function(input, dim, index, value)


# -- positions in the flattened tensor -------------------------------------------------------------------------------------


def _check_flat(name: str, input: Tensor, index: Tensor) -> None:
    _long_index(name, index)
    if not input.numel() and index.numel():
        raise IndexError(f"{name}(): tried to take from an empty tensor")
    _bounds(IndexError, name, index, 0, input.numel(), negative=True)


@primitive(surface=FUNCTION | METHOD | OUT, tensors=("input", "index"), check=lambda input, index: _check_flat("take", input, index))
def take(input, index):
    """The elements at `index` (int64, may be negative) of `input` seen as a vector, in the shape of `index`."""


refuse_shared_out(take)


@take.kernel
def _take(a, index):
    return np.asarray(a.reshape(-1).take(index), a.dtype) if index.size else np.empty(index.shape, a.dtype)


@take.shape
def _take_shape(input, index):
    return index.shape, input.dtype


@take.vjp
def _take_vjp(grad, input_shape, index):
    return (lambda: grad.new_zeros(input_shape).put(index, grad, True), None)


def _check_flat_put(input, index, source, accumulate):
    _long_index("put", index)
    _same_dtype("put", input, source, "source")
    if index.numel() != source.numel():
        raise IndexError(
            f"put(): Expected source and index to have the same number of elements, but got {source.numel()} and {index.numel()}"
        )
    _check_flat("put", input, index)


@primitive(surface=FUNCTION | METHOD | INPLACE, tensors=("input", "index", "source"), check=_check_flat_put)
def put(input, index, source, accumulate=False):
    """`input` with the elements of `source` stored at the flat positions `index`, or added there if `accumulate`."""


@put.kernel
def _put(a, index, source, accumulate):
    if not index.size:
        return a.copy()
    at, values = index.reshape(-1), source.reshape(-1)
    if accumulate:
        return kernel.reduce_at(a, at, values, "sum", True)
    return kernel.put(a.reshape(-1), at, values).reshape(a.shape)


@put.shape
def _put_shape(input, index, source, accumulate):
    return input.shape, input.dtype


@put.vjp
def _put_vjp(grad, index, source_shape, accumulate):
    def kept() -> Tensor:
        return grad if accumulate else grad.put(index, grad.new_zeros(index.shape), False)

    return (kept, None, lambda: grad.take(index).reshape(source_shape))


# -- masks -----------------------------------------------------------------------------------------------------------------


def _bool_mask(name: str, mask: Tensor) -> None:
    if mask.dtype is not dtypes.bool:
        raise RuntimeError(f"{name} only supports boolean masks, but got mask with dtype {mask.dtype.name}; compare it with 0 first")


def _check_masked(input, mask, value):
    _bool_mask("masked_fill", mask)
    _fill_number("masked_fill", input, value)
    broadcast_shapes(masked_fill, (input, mask), ("input", "mask"))


def _as_element(value: Any, dtype: np.dtype) -> Any:
    """A number or 0-d array as a scalar of `dtype`."""
    from .create import _as

    return value.astype(dtype)[()] if isinstance(value, ndarray) else _as(value, dtype)


def _filled(a: Any, mask: Any, value: Any) -> Any:
    shape = a.shape if a.shape == mask.shape else np.broadcast_shapes(a.shape, mask.shape)
    made = np.array(a if a.shape == shape else np.broadcast_to(a, shape))
    np.copyto(made, _as_element(value, a.dtype), where=mask)
    return made


def _filled_shape(input, mask, value):
    return broadcast_shapes(masked_fill, (input, mask)), input.dtype


@primitive(surface=0, tensors=("input", "mask"), check=_check_masked)
def masked_fill_number(input, mask, value):
    """`input` with the number `value` wherever `mask` holds."""


masked_fill_number.node_class.title = "MaskedFillBackward0"
masked_fill_number.kernel(_filled)
masked_fill_number.shape(_filled_shape)


@masked_fill_number.vjp
def _masked_number_vjp(grad, input_shape, mask):
    return (lambda: sum_tensor_to(grad.masked_fill(mask, 0), input_shape), None)


@masked_fill_number.raw
def _masked_number_raw(grad, input_shape, mask):
    made = np.array(grad)
    np.copyto(made, made.dtype.type(0), where=mask)
    return (sum_to(made, input_shape), None)


@primitive(surface=0, tensors=("input", "mask", "value"), check=_check_masked)
def masked_fill_tensor(input, mask, value):
    """`input` with the 0-d Tensor `value` wherever `mask` holds."""


masked_fill_tensor.node_class.title = "MaskedFillBackward1"
masked_fill_tensor.kernel(_filled)
masked_fill_tensor.shape(_filled_shape)


@masked_fill_tensor.vjp
def _masked_tensor_vjp(grad, input_shape, mask, value_dtype):
    return (
        lambda: sum_tensor_to(grad.masked_fill(mask, 0), input_shape),
        None,
        lambda: _view_back(grad.masked_fill(~mask, 0).sum(), value_dtype),
    )


@composite(surface=FUNCTION | METHOD | INPLACE)
def masked_fill(input, mask, value):
    """`input` with `value`, a number or 0-d Tensor, wherever `mask` (bool, broadcast) holds."""
    fill = masked_fill_tensor if isinstance(value, Tensor) else masked_fill_number
    return fill.function(input, mask, value)


@masked_fill.fast
def _masked_fill_fast(input, mask, value):
    """A number in a float tensor of the shape of the mask."""
    try:
        a, m = input._a, mask._a
        d = a.dtype
        if (d is not F4 and d is not F8) or m.shape != a.shape or m.dtype.char != "?":
            return None
        kind = value.__class__
        if kind is not float and kind is not int:
            return None
        made = a.copy()
        np.putmask(made, m, value)
    except (AttributeError, OverflowError):
        return None
    return wrap(made) if input._n is None else recorded(masked_fill_number, made, (input._n, None), (a.shape, m), (None, mask._v))


def _check_masked_select(input, mask):
    if mask.dtype is not dtypes.bool:
        raise RuntimeError(f"masked_select: expected BoolTensor for mask, but got {mask.dtype.name}; compare it with 0 first")
    broadcast_shapes(masked_select, (input, mask))


@primitive(surface=FUNCTION | METHOD | OUT, tensors=("input", "mask"), check=_check_masked_select)
def masked_select(input, mask):
    """The elements of `input` where `mask` (bool, broadcast) holds, as a vector in row-major order."""


refuse_shared_out(masked_select)


@masked_select.kernel
def _masked_select(a, mask):
    shape = np.broadcast_shapes(a.shape, mask.shape)
    return np.broadcast_to(a, shape)[np.broadcast_to(mask, shape)]


@masked_select.vjp
def _masked_select_vjp(grad, input_shape, mask):
    shape = np.broadcast_shapes(input_shape, tuple(mask.shape))
    return (lambda: sum_tensor_to(grad.new_zeros(shape).masked_scatter(mask, grad), input_shape), None)


def _check_masked_scatter(input, mask, source):
    _bool_mask("masked_scatter", mask)
    _same_dtype("masked_scatter", input, source, "source")
    shape = broadcast_shapes(masked_scatter, (input, mask))
    if type(mask._a) is ndarray and type(input._a) is ndarray:
        needed = int(np.broadcast_to(mask._a, shape).sum())
        if source.numel() < needed:
            raise RuntimeError(
                f"masked_scatter: Number of elements of source < number of ones in mask: {source.numel()} < {needed}"
            )


@primitive(surface=FUNCTION | METHOD | INPLACE, tensors=("input", "mask", "source"), check=_check_masked_scatter)
def masked_scatter(input, mask, source):
    """`input` with the elements of `source`, in row-major order, put where `mask` (bool, broadcast) holds."""


@masked_scatter.kernel
def _masked_scatter(a, mask, source):
    shape = np.broadcast_shapes(a.shape, mask.shape)
    made = np.array(np.broadcast_to(a, shape), order="C")
    where = np.broadcast_to(mask, shape)
    made[where] = source.reshape(-1)[: np.count_nonzero(where)]
    return made


@masked_scatter.shape
def _masked_scatter_shape(input, mask, source):
    return broadcast_shapes(masked_scatter, (input, mask)), input.dtype


@masked_scatter.vjp
def _masked_scatter_vjp(grad, input_shape, mask, source_shape):
    def of_source() -> Tensor:
        picked = grad.masked_select(mask)
        count = 1
        for n in source_shape:
            count *= n
        return padded(picked, (count,)).reshape(source_shape)

    return (lambda: sum_tensor_to(grad.masked_fill(mask, 0), input_shape), None, of_source)


# -- where the non-zero elements are ---------------------------------------------------------------------------------------


def _no_meta(name: str, input: Tensor) -> None:
    if type(input._a) is MetaArray:
        raise NotImplementedError(f"{name}: the shape of the result depends on values, which a meta tensor has none of")


@primitive(surface=0, check=lambda input: _no_meta("nonzero", input))
def nonzero_rows(input):
    """The places of the non-zero elements, one a row."""


@nonzero_rows.kernel
def _nonzero(a):
    places = np.nonzero(a if a.dtype.isbuiltin == 1 else a != 0) if a.ndim else ()
    made = np.empty((len(places), len(places[0]) if places else int(bool(a != 0))), np.int64)
    for d, along in enumerate(places):
        made[d] = along
    return made.T                                        # (count, ndim), its columns dense as PyTorch's


@composite(surface=FUNCTION | METHOD | OUT)
def nonzero(input, *, as_tuple=False):
    """The places of the non-zero elements in row-major order: ``(count, ndim)``, or with `as_tuple` a vector per dimension."""
    if not as_tuple:
        return nonzero_rows.function(input)
    return tuple(nonzero_rows.function(input.reshape(1) if input.ndim == 0 else input).unbind(1))


@composite(surface=FUNCTION | METHOD | OUT)
def argwhere(input):
    """The places of the non-zero elements in row-major order, ``(count, ndim)``."""
    return nonzero_rows.function(input)


@composite(surface=FUNCTION | METHOD | OUT)
def nonzero_static(input, *, size, fill_value=-1):
    """`nonzero` cut or filled with `fill_value` to exactly `size` rows."""
    if size < 0:
        raise RuntimeError(f"nonzero_static: 'size' must be an non-negative integer, got {size}")
    found = nonzero_rows.function(input)
    made = found.new_full((size, input.ndim), fill_value)
    made._a[: found.shape[0]] = found._a[:size]
    return made


# -- views put back ----------------------------------------------------------------------------------------------------------


def _check_put_view(name: str, made: Tensor, src: Tensor) -> None:
    if made.shape != src.shape:
        raise RuntimeError(
            f"{name}: expected src to have a size equal to the slice of input. src size = {list(src.shape)}, slice size = {list(made.shape)}"
        )


def _put_view(a: Any, src: Any, view: Any) -> Any:
    """A copy of `a` whose part ``view(copy)`` holds `src`."""
    made = wrap(np.array(a, order="C"))
    view(made)._a[...] = kernels.cast(src, a.dtype)
    return made._a


def _view_back(grad: Any, dtype: Any) -> Tensor:
    """The gradient of a source that was converted when it was stored."""
    if grad.is_complex() and not dtype.is_complex:
        grad = grad.real
    return grad.clone() if grad.dtype is dtype else grad.to(dtype)


def _check_select_scatter(input, src, dim, index):
    _check_put_view("select_scatter", input.detach().select(dim, index), src)


@primitive(surface=FUNCTION | METHOD | OUT, tensors=("input", "src"), check=_check_select_scatter)
def select_scatter(input, src, dim, index):
    """A copy of `input` whose slice ``select(dim, index)`` is `src`."""


@select_scatter.kernel
def _select_scatter(a, src, dim, index):
    return _put_view(a, src, lambda x: x.select(dim, index))


@select_scatter.shape
def _select_scatter_shape(input, src, dim, index):
    return input.shape, input.dtype


@select_scatter.vjp
def _select_scatter_vjp(grad, src_shape, src_dtype, dim, index):
    return (
        lambda: select_scatter(grad, grad.new_zeros(src_shape), dim, index),
        lambda: _view_back(grad.select(dim, index), src_dtype),
    )


def slice_bounds(n: int, start: Any, end: Any) -> tuple[int, int]:
    """`start` and `end` of a slice within a dimension of size `n`."""
    begin, stop, _ = slice(start, end).indices(n)
    return begin, max(begin, stop)


def _sliced(x: Tensor, dim: int, start: Any, end: Any, step: int) -> Tensor:
    from .shape import slice_dim

    d = wrap_dim(dim, x.ndim)
    if not x.ndim:
        raise RuntimeError("slice_scatter: slice() cannot be applied to a 0-dim tensor.")
    if step <= 0:
        raise RuntimeError(f"slice_scatter: slice step must be positive, got {step}")
    return slice_dim.function(x, d, *slice_bounds(x.shape[d], start, end), step)


def _check_slice_scatter(input, src, dim, start, end, step):
    _check_put_view("slice_scatter", _sliced(input.detach(), dim, start, end, step), src)


@primitive(surface=FUNCTION | METHOD | OUT, tensors=("input", "src"), check=_check_slice_scatter)
def slice_scatter(input, src, dim=0, start=None, end=None, step=1):
    """A copy of `input` whose part ``[start:end:step]`` along `dim` is `src`."""


@slice_scatter.kernel
def _slice_scatter(a, src, dim, start, end, step):
    return _put_view(a, src, lambda x: _sliced(x, dim, start, end, step))


@slice_scatter.shape
def _slice_scatter_shape(input, src, dim, start, end, step):
    return input.shape, input.dtype


@slice_scatter.vjp
def _slice_scatter_vjp(grad, src_shape, src_dtype, dim, start, end, step):
    return (
        lambda: slice_scatter(grad, grad.new_zeros(src_shape), dim, start, end, step),
        lambda: _view_back(_sliced(grad, dim, start, end, step), src_dtype),
    )


def _check_diagonal_scatter(input, src, offset, dim1, dim2):
    _check_put_view("diagonal_scatter", input.detach().diagonal(offset, dim1, dim2), src)


@primitive(surface=FUNCTION | METHOD | OUT, tensors=("input", "src"), check=_check_diagonal_scatter)
def diagonal_scatter(input, src, offset=0, dim1=0, dim2=1):
    """A copy of `input` whose ``diagonal(offset, dim1, dim2)`` is `src`."""


@diagonal_scatter.kernel
def _diagonal_scatter(a, src, offset, dim1, dim2):
    return _put_view(a, src, lambda x: x.diagonal(offset, dim1, dim2))


@diagonal_scatter.shape
def _diagonal_scatter_shape(input, src, offset, dim1, dim2):
    return input.shape, input.dtype


@diagonal_scatter.vjp
def _diagonal_scatter_vjp(grad, src_shape, src_dtype, offset, dim1, dim2):
    return (
        lambda: diagonal_scatter(grad, grad.new_zeros(src_shape), offset, dim1, dim2),
        lambda: _view_back(grad.diagonal(offset, dim1, dim2), src_dtype),
    )


@primitive(surface=FUNCTION | METHOD | OUT, tensors=("input", "src"))
def as_strided_scatter(input, src, size, stride, storage_offset=None):
    """A copy of `input`, its storage and strides, whose ``as_strided(size, stride, storage_offset)`` is `src`."""


@as_strided_scatter.kernel
def _as_strided_scatter(a, src, size, stride, storage_offset):
    if tuple(src.shape) != tuple(size):
        raise RuntimeError(f"as_strided_scatter: expected src to have size {list(size)}, but it has {list(src.shape)}")
    source = wrap(a)
    buffer = storage_buffer(source).copy()
    made = wrap(restride(a, a.shape, a.strides, source.storage_offset() * a.itemsize, buffer) if a.size else a.copy())
    made.as_strided(size, stride, storage_offset)._a[...] = kernels.cast(src, a.dtype)
    return made._a


@as_strided_scatter.shape
def _as_strided_scatter_shape(input, src, size, stride, storage_offset):
    return input.shape, input.dtype


@as_strided_scatter.vjp
def _as_strided_scatter_vjp(grad, src_shape, src_dtype, size, stride, storage_offset):
    dense = grad.contiguous()
    return (
        lambda: as_strided_scatter(dense, grad.new_zeros(src_shape), size, stride, storage_offset),
        lambda: _view_back(dense.as_strided(size, stride, storage_offset), src_dtype),
    )


