"""Picking and putting elements along a dimension: gather and scatter; checks the modules of indexed ops share."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels import hot_calls
from flambeau_kernels.cpu.indexing import scatter as kernel
from flambeau_kernels.cpu.indexing.scatter import has_negative

from ... import _state, dtypes
from ..._arrays import ndarray
from ...tensor import Tensor, bump, wrap_dim
from .._batching import along
from .._spec import (
    EXACTLY,
    FUNCTION,
    INPLACE,
    METHOD,
    NEVER,
    OPS,
    OUT,
    Op,
    Operand,
    check_writable,
    composite,
    describe,
    host_only,
    primitive,
    refuse_other_dtype_out,
)

EVERY = FUNCTION | METHOD | INPLACE | OUT
INT64 = np.dtype(np.int64)


# -- checks --------------------------------------------------------------------------------------------------------------


def int_index(name: str, index: Any, param: str = "index") -> None:
    if index.dtype not in (dtypes.int64, dtypes.int32):
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for {param}, but got {index.dtype.name}; convert it with .long()")


def long_index(name: str, index: Any) -> None:
    if index.dtype is not dtypes.int64:
        got = dtypes.scalar_type(index.dtype)
        raise RuntimeError(f"{name}(): Expected a long tensor for index, but got {got}; convert it with .long()")


def check_bounds(error: type, name: str, index: Tensor, dim: int, n: int, negative: bool = False) -> None:
    """Raise `error` naming an index outside ``[0, n)``, or ``[-n, n)`` if `negative`."""
    a = index._array
    if type(a) is not ndarray or not a.size:
        return
    low = -n if negative else 0
    if not kernel.in_range(a, low, n):
        bad = a[(a < low) | (a >= n)].reshape(-1)[0]
        raise error(f"index {bad} is out of bounds for dimension {dim} with size {n}: index of {name}")


def check_same_dtype(name: str, input: Tensor, source: Tensor, called: str) -> None:
    if input.dtype is not source.dtype:
        raise RuntimeError(
            f"{name}(): Expected self.dtype to be equal to {called}.dtype, but got {input.dtype} and {source.dtype}; "
            f"convert {called} with .to(input.dtype)"
        )


def extent(x: Tensor, dim: int) -> int:
    return x._array.shape[dim] if x._array.ndim else 1


def fill_number(name: str, input: Tensor, value: Any) -> Any:
    """`value` as PyTorch lets it into a tensor of this dtype. Raises: RuntimeError for complex into real."""
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(f"{name}_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s).")
        if value.is_complex() and not input.is_complex():
            if name == "masked_fill" and not value._lacks_values and not value.item().imag:
                return value.real
            raise RuntimeError(f"{name}: a complex value cannot be stored in a tensor of dtype {input.dtype}")
        return value
    if isinstance(value, (complex, np.complexfloating)) and not input.is_complex():
        if name == "masked_fill" and not value.imag:
            return value.real
        raise RuntimeError(f"{name}: value {value} cannot be converted to type {input.dtype} without overflow")
    return value


def as_element(value: Any, dtype: np.dtype) -> Any:
    """A number or 0-d array as a scalar of `dtype`."""
    from ..creation._options import scalar_of_dtype

    return kernels.cast(value, dtype)[()] if isinstance(value, ndarray) else scalar_of_dtype(value, dtype)


def plain_number(value: Any, dtype: np.dtype) -> bool:
    """Whether numpy stores the number `value` in an array of `dtype` as `as_element` would, or raises."""
    kind = value.__class__
    return kind is float and dtype.char in "fd" or kind is int and (dtype.char in "fdlihb" or dtype.char == "B" and value >= 0)


def stored_number(value: Any, dtype: np.dtype) -> Any:
    """The number `value` as numpy stores it in an array of `dtype`, as `as_element` would; None for what that looks at closer."""
    if plain_number(value, dtype):
        return value
    # By way of float32, as in PyTorch; the range is that of both halves.
    is_half = dtype.char in "eE" and (value.__class__ is float or value.__class__ is int)
    return dtype.type(np.float32(value)) if is_half and -_LARGEST_HALF <= value <= _LARGEST_HALF else None


_LARGEST_HALF = 65504                                 # of float16


def converted_back(grad: Any, dtype: Any) -> Tensor:
    """The gradient of a source that was converted when it was stored."""
    if grad.is_complex() and not dtype.is_complex:
        grad = grad.real
    return grad.clone() if grad.dtype is dtype else grad.to(dtype)


def writes_straight(op: Any, store: Any, smallest: int = 4096) -> Any:
    """``run_inplace`` of `op` by ``store(array, *arguments) -> done`` where nothing is recorded and the arguments lie elsewhere.

    Smaller targets, and those `store` leaves alone, are copied, as other operations do.
    """
    general = partial(Op.run_inplace, op)

    def run_inplace(target: Any, *args: Any) -> Tensor:
        if not isinstance(target, Tensor) or type(target._array) is not ndarray or target._array.size < smallest:
            return general(target, *args)
        tensors = [x for x in args if isinstance(x, Tensor)]
        if _state.grad_enabled() and any(x._node is not None for x in (target, *tensors)):
            return general(target, *args)
        if any(type(x._array) is not ndarray or np.may_share_memory(x._array, target._array) for x in tensors):
            return general(target, *args)
        check_writable(op, target)
        given = op.check(*op.tensors_of((target, *args)))
        if not store(target._array, *(x._array if isinstance(x, Tensor) else x for x in given[1:])):
            return general(target, *args)
        bump(target)
        return target

    return run_inplace


# -- gather and scatter along a dimension ----------------------------------------------------------------------------------


def _check_along(name: str, input: Tensor, dim: int, index: Tensor) -> int:
    d = wrap_dim(dim, input.ndim)
    if not index.numel():
        return d
    int_index(name, index)
    if max(index.ndim, 1) != max(input.ndim, 1):
        raise RuntimeError(
            f"{name}: Index tensor must have the same number of dimensions as self tensor\n{describe(input=input, index=index)}"
        )
    for k in range(input.ndim):
        if k != d and index.ndim and index._array.shape[k] > input._array.shape[k]:
            at = f"Size does not match at dimension {k} expected" if name == "gather" else "Expected"
            raise RuntimeError(
                f"{name}: {at} index {list(index.shape)} to be no larger than self {list(input.shape)} apart from dimension {d}\n"
                f"{describe(input=input, index=index)}"
            )
    check_bounds(RuntimeError, name, index, d, extent(input, d))
    return d


def _check_gather(input, dim, index, sparse_grad):
    return input, _check_along("gather", input, dim, index), index, sparse_grad


@primitive(
    surface=FUNCTION | METHOD | OUT, tensors=("input", "index"), check=_check_gather, overlap=(NEVER, EXACTLY),
    samples="x(3, 4), 1, i(4, 3, 2); x(3, 4), 0, i(3, 2, 4)",
    batch_rule=along,
    cuda="moves.gather",
    elements="moved", costly=True,
)
def gather(input, dim, index, *, sparse_grad=False):
    """The elements of `input` at the places `index` names along `dim`.

    ``out[i][j] = input[index[i][j]][j]`` for `dim` 0, and likewise for other dimensions.

    Args:
        index: int64 or int32, of as many dimensions as `input`, nowhere larger than it except along `dim`.
        sparse_grad: whether the gradient of `input` is a sparse tensor, with the places that `index` names.
    Returns: the shape of `index`.
    Raises: RuntimeError for an index out of range or of another dtype.

    >>> fb.gather(fb.tensor([[1, 2], [3, 4]]), dim=1, index=fb.tensor([[0], [1]]))
    tensor([[1],
            [4]])
    """


gather.shown_as(hides="input_shape", self=Operand("input"))


gather.in_pieces(along="dim")


@gather.put_off_within("index")
def _are_in_line(input, dim, index, sparse_grad):
    ndim = input.ndim
    may_fail = sparse_grad or dim.__class__ is not int or not -ndim <= dim < ndim or not index.numel()
    return None if may_fail else [(0, input.shape[dim])]


refuse_other_dtype_out(gather)


@gather.kernel
def _gather(a, dim, index, sparse_grad):
    if not index.size:
        return np.empty(index.shape, a.dtype)
    return kernel.gather(a, dim, index)


@gather.shape
def _gather_shape(input, dim, index, sparse_grad):
    return index.shape, input.dtype


@gather.plan(wraps="dim")
def _gather_planned(a, dim, at, sparse_grad):
    made = hot_calls.pick_along(a, dim, at)
    if made is None and at.ndim > 1:
        rows = kernel.repeated_vector(at, dim, a.shape)
        made = None if rows is None else hot_calls.pick_slices(a, dim, rows)
    if made is not None:
        return made
    if at.size > 1024 and dim == a.ndim - 1:
        made = kernel.gather_rows(a, at)
        if made is not None:
            return made
    key = kernel.key_along(a.shape, dim, at, 4096)
    return None if key is None else np.ascontiguousarray(a[key])


def _add_along(a: Any, dim: int, at: Any, values: Any) -> bool:
    """Add `values` to the elements of `a` that `gather` reads at `at`, where native calls do it."""
    if hot_calls.add_along(a, dim, at, values) is not None:
        return True
    rows = kernel.repeated_vector(at, dim, a.shape)
    if rows is None:
        return False
    return hot_calls.add_slices(a, dim, rows, values) is not None or kernel.combine_slices(a, dim, rows, values, "sum")


@gather.vjp_on_arrays
def _gather_vjp_on_arrays(grad, input_shape, dim, index, sparse_grad):
    if sparse_grad:
        return None
    full_grad = np.zeros(input_shape, grad.dtype)
    if not index.size or _add_along(full_grad, dim, index, grad):
        return (full_grad, None)
    return (kernel.reduce_along(full_grad, dim, index, grad, "sum", True), None)


@gather.vjp(index=None)
def _gather_vjp(grad, input_shape, dim, index, sparse_grad):
    if sparse_grad:
        return (lambda: _sparse_gather_gradient(grad, input_shape, dim, index), None)
    return (lambda: grad.new_zeros(input_shape).scatter_add(dim, index, grad), None)


def _sparse_gather_gradient(grad: Tensor, shape: tuple[int, ...], dim: int, index: Tensor) -> Tensor:
    from .._sparse.arrays import coo

    host_only("gather with sparse gradients", grad, index)
    if not index.ndim:
        return coo(index.new_empty((0, 1)), grad.reshape(-1), shape)
    where = list((index == index).nonzero(as_tuple=True))  # the places of all elements
    where[dim] = index.reshape(-1)
    return coo(OPS["stack"].function(where), grad.reshape(-1), shape)


def _check_scatter(name: str, input: Tensor, dim: int, index: Tensor, src: Tensor) -> int:
    d = _check_along(name, input, dim, index)
    if not index.numel():
        return d
    check_same_dtype(name, input, src, "src")
    if max(src.ndim, 1) != max(index.ndim, 1):
        raise RuntimeError(
            f"{name}: Index tensor must have the same number of dimensions as src tensor\n{describe(index=index, src=src)}"
        )
    if any(n > m for n, m in zip(index._array.shape or (1,), src._array.shape or (1,), strict=True)):
        raise RuntimeError(
            f"{name}: Expected index {list(index.shape)} to be no larger than self {list(input.shape)} apart from dimension {d} "
            f"and to be no larger size than src {list(src.shape)}\n{describe(index=index, src=src)}"
        )
    return d


def _check_put(input, dim, index, src):
    return input, _check_scatter("scatter", input, dim, index, src), index, src


@primitive(
    surface=0, tensors=("input", "index", "src"), check=_check_put, overlap=(EXACTLY, NEVER), operator="scatter(input, dim, index, src)",
    samples="of scatter",
    public_name="scatter",
    batch_rule=along,
    cuda="moves.scatter_src",
)
def scatter_src(input, dim, index, src):
    """`input` with the elements of `src` stored at the places `index` names along `dim`."""


scatter_src.shown_as("ScatterBackward0", hides="src_shape")


scatter_src.in_pieces(along="dim")


@scatter_src.kernel
def _scatter_src(a, dim, index, src):
    return kernel.put_along(a, dim, index, src) if index.size else a.copy()


@scatter_src.plan(stores=True, wraps="dim")
def _scatter_src_planned(a, dim, at, src):
    if hot_calls.put_along(a, dim, at, src) is not None:
        return True
    key = kernel.key_along(a.shape, dim, at)
    if key is None:
        return kernel.combine_along(a, dim, at, src, "put")
    if src.dtype is not a.dtype:
        return False
    a[key] = kernel.corner(src, at.shape)
    return True


@scatter_src.shape
def _scatter_src_shape(input, dim, index, src):
    return input.shape, input.dtype


@scatter_src.vjp(index=None)
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
    from .put import slice_scatter

    made = grad if grad.ndim else grad.reshape([1] * len(shape))  # an index without dimensions counts as one of one element
    for d, n in enumerate(shape):
        if made.shape[d] != n:
            made = slice_scatter(made.new_zeros([*made.shape[:d], n, *made.shape[d + 1 :]]), made, d, 0, made.shape[d])
    return made


def _check_fill_along(input, dim, index, value):
    return input, _check_along("scatter", input, dim, index), index, value


@primitive(
    surface=0, tensors=("input", "index"), check=_check_fill_along, overlap=(EXACTLY, NEVER), operator="scatter(input, dim, index, value)",
    samples="of scatter",
    public_name="scatter",
    batch_rule=along,
    cuda="moves.scatter_value",
)
def scatter_value(input, dim, index, value):
    """`input` with `value` stored at the places `index` names along `dim`."""


scatter_value.in_pieces(along="dim")


scatter_value.shown_as("ScatterBackward1")


@scatter_value.kernel
def _scatter_value(a, dim, index, value):
    return kernel.put_along(a, dim, index, as_element(value, a.dtype)) if index.size else a.copy()


@scatter_value.plan(stores=True, wraps="dim")
def _scatter_value_planned(a, dim, at, value):
    value = stored_number(value, a.dtype)
    if value is None:
        return False
    values = np.empty(at.shape, a.dtype)
    values.fill(value)
    return _scatter_src_planned(a, dim, at, values)


@scatter_value.shape
def _scatter_value_shape(input, dim, index, value):
    return input.shape, input.dtype


@scatter_value.vjp(index=None)
def _scatter_value_vjp(grad, dim, index):
    return (lambda: grad.scatter(dim, index, 0), None)


@composite(
    surface=EVERY, overlap=(EXACTLY, NEVER),
    samples="x(3, 4), 1, perm(3, 2), x(3, 2); x(3, 4), 0, perm(2, 4) % 3, value=1.5; x(3, 4), 1, i(4, 3, 2), x(3, 2), reduce='add'",
    exact_out=True,
)
def scatter(input, dim: int, index, src=None, *, value=None, reduce=None):
    """`input` with values stored at the places `index` names along `dim`.

    ``out[index[i][j]][j] = src[i][j]`` for `dim` 0, and likewise for other dimensions. Of several values for
    one place, the last in row-major order stays.

    Args:
        src: a Tensor of the dtype of `input`, nowhere smaller than `index`; or a number, stored everywhere.
        value: the other name of a `src` that is a number.
        reduce: None, or 'add' or 'multiply' to combine with what is there.
    Raises: RuntimeError for an index out of range, shapes or dtypes that do not fit, or another `reduce`.

    >>> fb.scatter(fb.zeros(3), 0, fb.tensor([2, 0]), fb.tensor([5.0, 6.0]))
    tensor([6., 0., 5.])
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
        return scatter_combine.function(input, dim, index, given, how, True)
    if isinstance(given, Tensor):
        return scatter_src.function(input, dim, index, given)
    return scatter_value.function(input, dim, index, fill_number("scatter", input, given))


@scatter.forwards
def _scattered_by_kind(input, dim, index, src, value, reduce):
    if reduce is not None:
        return None
    given = src if value is None else value
    return (scatter_src if isinstance(given, Tensor) else scatter_value).answer(input, dim, index, given)


def _store_values(a: Any, dim: int, index: Any, values: Any) -> bool:
    if not index.size or index.ndim != a.ndim:
        return False
    kernel.put_along_into(a, dim, index, values if isinstance(values, ndarray) and values.ndim else as_element(values, a.dtype))
    return True


_scatter_copied = scatter.run_inplace
for _op in (scatter_src, scatter_value):
    _op.inplace_rule = writes_straight(_op, _store_values)


def _scatter_in_place(target: Any, dim: Any, index: Any, src: Any = None, value: Any = None, reduce: Any = None) -> Tensor:
    given = src if value is None else value
    if reduce is not None or given is None or not isinstance(target, Tensor):
        return _scatter_copied(target, dim, index, src, value, reduce)
    if isinstance(given, Tensor):
        return scatter_src.run_inplace(target, dim, index, given)
    return scatter_value.run_inplace(target, dim, index, fill_number("scatter", target, given))


scatter.run_inplace = _scatter_in_place  # pyright: ignore[reportAttributeAccessIssue]  # on purpose


def _check_scatter_add(input, dim, index, src):
    return input, _check_scatter("scatter_add", input, dim, index, src), index, src


@primitive(
    surface=EVERY, tensors=("input", "index", "src"), check=_check_scatter_add, overlap=(EXACTLY, NEVER),
    samples="x(3, 4), 1, i(4, 3, 5), x(3, 5); x(3, 4), 0, i(3, 2, 4), x(2, 4)",
    exact_out=True,
    batch_rule=along,
    cuda="moves.scatter_add",
)
def scatter_add(input, dim, index, src):
    """`input` with the elements of `src` added at the places `index` names along `dim`, one after the other.

    Args:
        index, src: as for `scatter`.

    >>> fb.scatter_add(fb.zeros(2), 0, fb.tensor([0, 0, 1]), fb.tensor([1.0, 2.0, 3.0]))
    tensor([3., 3.])
    """


scatter_add.shown_as(hides="src_shape")


scatter_add.in_pieces(along="dim")


@scatter_add.kernel
def _scatter_add(a, dim, index, src):
    return kernel.reduce_along(a, dim, index, src, "sum", True) if index.size else a.copy()


@scatter_add.shape
def _scatter_add_shape(input, dim, index, src):
    return input.shape, input.dtype


@scatter_add.vjp(input="", src="index", index=None)
def _scatter_add_vjp(grad, dim, index, src_shape):
    return (grad, None, lambda: padded(_gathered(grad, dim, index), src_shape))


scatter_add.inplace_rule = writes_straight(scatter_add, kernel.sum_along_into)


@scatter_add.plan(stores=True, wraps="dim")
def _scatter_add_planned(a, dim, at, src):
    if _add_along(a, dim, at, src):
        return True
    key = kernel.key_along(a.shape, dim, at)
    if key is not None and kernel.combine_by_numpy(a, key, kernel.corner(src, at.shape), "sum"):
        return True
    return kernel.combine_along(a, dim, at, src, "sum")


REDUCES = ("sum", "prod", "mean", "amax", "amin")


def _check_scatter_combine(input, dim, index, src, reduce, include_self):
    return input, _check_scatter("scatter_reduce", input, dim, index, src), index, src, reduce, include_self


@primitive(
    surface=0, tensors=("input", "index", "src"), check=_check_scatter_combine, samples="of scatter_reduce", public_name="scatter_reduce",
    batch_rule=along, cuda="moves.scatter_combine",
)
def scatter_combine(input, dim, index, src, reduce, include_self):
    """`input` with the elements of `src` combined into the places `index` names along `dim`."""


scatter_combine.shown_as("ScatterReduceBackward0")


scatter_combine.in_pieces(along="dim")


@scatter_combine.kernel
def _scatter_combine(a, dim, index, src, reduce, include_self):
    return kernel.reduce_along(a, dim, index, src, reduce, include_self) if index.size else a.copy()


@scatter_combine.plan(wraps="dim")
def _scatter_combine_planned(a, dim, at, src, reduce, include_self):
    if reduce in ("sum", "mean"):
        made = kernel.summed_along(a, dim, at, src, reduce == "mean", include_self)
        if made is not None:
            return made
    key = kernel.key_along(a.shape, dim, at)
    if src.dtype is not a.dtype:
        return None
    made = None if key is None else kernel.combined_by_numpy(a, key, kernel.corner(src, at.shape), reduce, include_self)
    return kernel.combined_along(a, dim, at, src, reduce, include_self) if made is None else made


@scatter_combine.shape
def _scatter_combine_shape(input, dim, index, src, reduce, include_self):
    return input.shape, input.dtype


@scatter_combine.vjp(index=None)
def _scatter_combine_vjp(grad, out, input, dim, index, src, reduce, include_self):
    if not index.numel():
        return (grad, None, lambda: src.new_zeros(src.shape))
    places = Along(dim, index, tuple(input.shape))
    if src.ndim != index.ndim:                        # one of them has no dimensions
        grads = combine_grads(grad, out, input, src.reshape(index.shape), reduce, include_self, places)
        return (grads[0], None, lambda: grads[1]().reshape(src.shape))
    corner = src if src.shape == index.shape else src[tuple(slice(0, n) for n in index.shape)]
    grads = combine_grads(grad, out, input, corner, reduce, include_self, places)
    return (grads[0], None, lambda: padded(grads[1](), src.shape))


class Along:
    """Where `scatter` along a dimension puts: how to read from there and add up there."""

    def __init__(self, dim: int, index: Tensor, shape: Any) -> None:
        self.dim, self.index, self.shape = dim, index, shape

    def read(self, x: Tensor) -> Tensor:
        return x.gather(self.dim, self.index)

    def total(self, x: Tensor) -> Tensor:
        return x.new_zeros(self.shape).scatter_add(self.dim, self.index, x)

    def product(self, start: Tensor, x: Tensor) -> Tensor:
        return scatter_combine.function(start, self.dim, self.index, x, "prod", True)


def combine_grads(grad: Tensor, out: Tensor, input: Tensor, src: Tensor, reduce: str, include_self: bool, at: Along) -> Any:
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


def _product_grads(grad: Tensor, out: Tensor, input: Tensor, src: Tensor, include_self: bool, hit: Any, at: Along, kept: Any) -> Any:
    """A factor's gradient is the product of the others: the result divided by it or, for the only zero, what else there is."""
    takes_part = include_self | (hit == 0)
    zero_input = (input == 0) & takes_part
    zero_src = src == 0
    zeros = at.total(zero_src.to(grad.dtype)) + zero_input
    sum_of_zeros = at.total(src.masked_fill(~zero_src, 0)) + input.masked_fill(~zero_input, 0)
    start = input.masked_fill(~takes_part | zero_input, 1)
    others = at.product(start, src.masked_fill(zero_src, 1))

    def factor(x: Tensor, zero: Tensor, read: Any) -> Tensor:
        number = read(zeros)
        divided = (read(out) / x.masked_fill(zero, 1)).masked_fill(zero, 0)
        # Of two zeros each is the sum of both less the other: worth nothing, but its derivative is not.
        other_zero = (read(sum_of_zeros) - x).masked_fill(number != 2, 0)
        beside_zeros = read(others) * ((number == 1) + other_zero)
        return (divided + beside_zeros.masked_fill(~zero, 0)).conj()

    return (
        lambda: kept(grad * factor(input.masked_fill(~takes_part, 1), zero_input, lambda x: x)),
        lambda: at.read(grad) * factor(src, zero_src, at.read),
    )


@composite(
    surface=EVERY, overlap=(EXACTLY, NEVER),
    samples=(
        "x(3, 4), 1, i(4, 3, 5), p(3, 5), 'prod'; x(3, 4), 0, perm(2, 4) % 3, d(2, 4), 'amax'; "
        "x(3, 4), 1, i(4, 3, 5), x(3, 5), 'mean', include_self=False; x(3, 4), 1, i(4, 3, 5), x(3, 5), 'sum'"
    ),
    exact_out=True,
)
def scatter_reduce(input, dim: int, index, src, reduce: str, *, include_self=True):
    """`input` with the elements of `src` combined into the places `index` names along `dim`.

    Args:
        index, src: as for `scatter`.
        reduce: 'sum', 'prod', 'mean', 'amax' or 'amin', or 'max' and 'min' for the last two.
        include_self: whether the element of `input` takes part where something is put.

    >>> fb.scatter_reduce(fb.zeros(2), 0, fb.tensor([0, 0]), fb.tensor([5.0, 6.0]), "mean", include_self=False)
    tensor([5.5000, 0.0000])
    """
    reduce = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    if reduce not in REDUCES:
        raise RuntimeError(f"scatter_reduce(): reduce argument must be either sum, prod, mean, amax or amin, got {reduce!r}")
    if reduce == "sum" and include_self:
        return scatter_add(input, dim, index, src)
    return scatter_combine.function(input, dim, index, src, reduce, include_self)


@scatter_reduce.forwards
def _combined_by_kind(input, dim, index, src, reduce, include_self):
    if reduce == "sum" and include_self is True:
        return scatter_add.answer(input, dim, index, src)
    return scatter_combine.answer(input, dim, index, src, reduce, include_self) if reduce in REDUCES else None


@composite(
    surface=FUNCTION | METHOD | OUT, overlap=NEVER, samples="x(3, 4), i(4, 3, 2), 1; x(3, 4), i(12, 5)", exact_out=True, elements="moved",
)
def take_along_dim(input, indices, dim: int | None = None):
    """`gather` along `dim` where `input` and `indices` broadcast elsewhere; of the flattened input without `dim`.

    >>> x = fb.tensor([[3, 1], [2, 9]])
    >>> fb.take_along_dim(x, x.argsort(dim=1), dim=1)
    tensor([[1, 3],
            [2, 9]])
    """
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
    from ..shapes.expand import broadcast_shapes as common

    shape = list(common(one, two))
    x = input.expand([*shape[:d], n, *shape[d + 1 :]])
    at = indices.expand([*shape[:d], indices.shape[d], *shape[d + 1 :]])
    return gather(x, d, where_negative(at, n))


@take_along_dim.forwards
def _gathered_places(input, indices, dim):
    """Places that need no stretching."""
    if dim is None:
        return None
    own, shape = indices._array.shape, input._array.shape
    if not shape:
        return None
    d = dim % len(shape)
    return gather.answer(input, dim, indices, False) if own[:d] == shape[:d] and own[d + 1 :] == shape[d + 1 :] else None


@take_along_dim.plan(tensors=("input",), beside=("indices",))
def _taken_of_all(a, at, dim):
    if dim is not None:
        return _taken_stretched(a, at, dim)
    made = hot_calls.pick_slices(a.reshape(-1), 0, at.reshape(-1))
    if made is None and at.dtype is INT64 and not has_negative(at):
        made = a.reshape(-1)[at.reshape(-1)]
    return made


def _taken_stretched(a: Any, at: Any, dim: Any) -> Any:
    """The elements of few, at places that broadcast with them along other dimensions than `dim`; None for others."""
    n = a.ndim
    if dim.__class__ is not int or not -n <= dim < n or at.ndim != n or at.dtype is not INT64 or max(a.size, at.size) > _MOST_TAKEN:
        return None
    dim %= n
    count = n                                         # dimensions that places say something of; behind them all is taken
    while count > dim + 1 and at.shape[count - 1] == 1:
        count -= 1
    key = [np.arange(a.shape[d]).reshape(-1, *(1,) * (count - 1 - d)) for d in range(count)]
    key[dim] = at.reshape(at.shape[:count])
    return np.ascontiguousarray(a[tuple(key)])


_MOST_TAKEN = 4096                                     # elements of either; of more there are kernels


def where_negative(index: Tensor, n: int) -> Tensor:
    """`index` with negative places counted from the end of `n`."""
    return OPS["where"].function(index < 0, index + n, index)
