"""Masks: masked_fill, masked_select, masked_scatter, and where the non-zero elements are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flambeau_kernels.cpu.indexing import scatter as kernel
from flambeau_kernels.formula import Formula
from flambeau_kernels.vocabulary import where

from ... import dtypes
from ..._arrays import MetaArray, ndarray
from ..._errors import ShapeCannotBeKnown
from ..._symbolic import fresh, sym_max
from ...dtypes import FLOAT32, FLOAT64
from ...tensor import Tensor
from .._batching import aligned, logical, run
from .._spec import (
    EXACTLY,
    FUNCTION,
    INPLACE,
    METHOD,
    NEVER,
    OPS,
    OUT,
    ROWS,
    Operand,
    broadcast_shapes,
    composite,
    primitive,
    refuse_other_dtype_out,
    sum_tensor_to,
    sum_to,
)  # fmt: skip
from .._spec.names import keep, picks
from .select import as_element, check_same_dtype, converted_back, fill_number, padded, plain_number, stored_number

BOOL = np.dtype(np.bool_)


def _bool_mask(name: str, mask: Tensor) -> None:
    if mask.dtype is not dtypes.bool:
        got = "unsigned char" if mask.dtype is dtypes.uint8 and name != "masked_scatter" else dtypes.scalar_type(mask.dtype)
        raise RuntimeError(f"{name}_ only supports boolean masks, but got mask with dtype {got}; compare it with 0 first")


def _check_masked(input, mask, value):
    _bool_mask("masked_fill", mask)
    fill_number("masked_fill", input, value)
    broadcast_shapes(masked_fill, (input, mask), ("input", "mask"))


def _filled(a: Any, mask: Any, value: Any) -> Any:
    shape = a.shape if a.shape == mask.shape else np.broadcast_shapes(a.shape, mask.shape)
    value = as_element(value, a.dtype)
    if a.shape == shape == mask.shape:
        return kernel.fill_masked(a, mask, value)
    made = np.array(a if a.shape == shape else np.broadcast_to(a, shape))
    np.copyto(made, value, where=mask)
    return made


def _filled_shape(input, mask, value):
    if not isinstance(value, Tensor):
        as_element(value, input.dtype.numpy)          # which raises for a number that the dtype cannot hold
    return broadcast_shapes(masked_fill, (input, mask)), input.dtype


@primitive(
    surface=0, tensors=("input", "mask"), check=_check_masked, overlap={"mask": EXACTLY}, memory=ROWS,
    operator="masked_fill(input, mask, value)",
    samples="x(2, 3), b(2, 3), 1.5",
    public_name="masked_fill",
    may_write_expanded=True,
    cuda="moves.masked_fill",
    deferrable=True,
)
def masked_fill_number(input, mask, value):
    """`input` with the number `value` wherever `mask` holds."""


masked_fill_number.shown_as("MaskedFillBackward0", hides="input_shape")


masked_fill_number.in_pieces("...,...->...")


masked_fill_number.of_elements = Formula(lambda input, mask, value: where(mask, value, input), "masked_fill")
masked_fill_number.kernel(_filled)
masked_fill_number.shape(_filled_shape)


def _copied_where(a: Any, value: Any, mask: Any) -> bool:
    """Store `value` where `mask` holds; False, and nothing stored, if the two make a result larger than `a`."""
    try:
        np.copyto(a, value, where=mask)
    except ValueError:  # what numpy raises for shapes alone
        return False
    return True


@masked_fill_number.plan(stores=True)
def _masked_number_planned(a, mask, value):
    if mask.dtype is not BOOL:
        return False
    value = stored_number(value, a.dtype)
    if value is None:
        return False
    if a.shape != mask.shape:
        return _copied_where(a, value, mask)
    if a.size >= kernel.COMPILED_FROM:
        kernel.fill_masked_into(a, mask, a.dtype.type(value))
    else:
        np.putmask(a, mask, value)
    return True


@masked_fill_number.plan
def _masked_number_copied(a, mask, value):
    kind, dtype = value.__class__, a.dtype
    fits = (kind is float or kind is int) and (dtype is FLOAT32 or dtype is FLOAT64) and mask.dtype is BOOL and a.shape == mask.shape
    if fits and a.size < kernel.COMPILED_FROM:          # most calls, in the fewest steps
        made = a.copy()
        np.putmask(made, mask, value)
        return made
    if a.size >= kernel.COMPILED_FROM and a.shape == mask.shape:
        return kernel.fill_masked(a, mask, a.dtype.type(value)) if mask.dtype is BOOL and plain_number(value, a.dtype) else None
    made = a.copy()
    return made if _masked_number_planned(made, mask, value) else None


@masked_fill_number.vjp(mask=None)
def _masked_number_vjp(grad, input_shape, mask):
    return (lambda: sum_tensor_to(grad.masked_fill(mask, 0), input_shape), None)


@masked_fill_number.vjp_on_arrays
def _masked_number_vjp_on_arrays(grad, input_shape, mask):
    if grad.shape == mask.shape:
        made = kernel.fill_masked(grad, mask, grad.dtype.type(0))
    else:
        made = np.array(grad)
        np.copyto(made, made.dtype.type(0), where=mask)
    return (sum_to(made, input_shape), None)


@masked_fill_number.batch
def _masked_fill_number_batch(level: Any, op: Any, args: Any) -> Any:
    x, mask, value = args
    if mask.ndim > x.ndim and not level.has(x):
        return NotImplemented
    a, b = aligned(level, (x, mask))
    if not level.has(x):
        a = x.expand(level.size, *x.shape)
    return level.wrap(run(op, a, b, value))


@primitive(
    surface=0, tensors=("input", "mask", "value"), check=_check_masked, overlap={"mask": EXACTLY}, memory=ROWS,
    operator="masked_fill(input, mask, value)",
    samples="x(2, 3), b(2, 3), x()",
    public_name="masked_fill",
    may_write_expanded=True,
    cuda="moves.masked_fill",
    deferrable=True,
)
def masked_fill_tensor(input, mask, value):
    """`input` with the 0-d Tensor `value` wherever `mask` holds."""


masked_fill_tensor.in_pieces("...,...,->...")


masked_fill_tensor.shown_as("MaskedFillBackward1", hides="input_shape value_dtype")
masked_fill_tensor.kernel(_filled)
masked_fill_tensor.shape(_filled_shape)


@masked_fill_tensor.plan(stores=True)
def _masked_tensor_planned(a, mask, value):
    if mask.dtype is not BOOL or value.dtype is not a.dtype or value.ndim:
        return False
    return _copied_where(a, value, mask)


@masked_fill_tensor.vjp(mask=None)
def _masked_tensor_vjp(grad, input_shape, mask, value_dtype):
    return (
        lambda: sum_tensor_to(grad.masked_fill(mask, 0), input_shape),
        None,
        lambda: converted_back(grad.masked_fill(~mask, 0).sum(), value_dtype),
    )


@masked_fill_tensor.batch
def _masked_fill_tensor_batch(level: Any, op: Any, args: Any) -> Any:
    x, mask, value = args
    if logical(level, mask) > x.ndim:
        return NotImplemented
    value = value.to(x.dtype) if not level.has(value) else level.wrap(level.front(value).to(x.dtype))
    a, m, v = aligned(level, (level.wrap(level.full(x)), mask, value))
    return level.wrap(OPS["where"].function(m, v, a))


@composite(surface=FUNCTION | METHOD | INPLACE, samples="x(2, 3), b(2, 3), 1.5; x(2, 3), b(3), x()", names=keep)
def masked_fill(input, mask, value):
    """`input` with `value`, a number or 0-d Tensor, wherever `mask` (bool, broadcast) holds.

    Raises: RuntimeError for a mask of another dtype.
    """
    fill = masked_fill_tensor if isinstance(value, Tensor) else masked_fill_number
    return fill.function(input, mask, value)


@masked_fill.forwards
def _filled_by_kind(input, mask, value):
    if value.__class__ is float:                      # which most are
        return masked_fill_number.answer(input, mask, value)
    return (masked_fill_tensor if isinstance(value, Tensor) else masked_fill_number).answer(input, mask, value)


def _masked_fill_in_place(target: Any, mask: Any, value: Any) -> Tensor:
    return (masked_fill_tensor if isinstance(value, Tensor) else masked_fill_number).run_inplace(target, mask, value)


masked_fill.run_inplace = _masked_fill_in_place  # pyright: ignore[reportAttributeAccessIssue]  # on purpose


def _check_masked_select(input, mask):
    if mask.dtype is not dtypes.bool:
        raise RuntimeError(f"masked_select: expected BoolTensor for mask, but got {mask.dtype.name}; compare it with 0 first")
    broadcast_shapes(masked_select, (input, mask))


@primitive(
    surface=FUNCTION | METHOD | OUT, tensors=("input", "mask"), check=_check_masked_select, overlap=NEVER,
    samples="x(2, 3), b(2, 3); x(2, 3), b(3)",
    dynamic_shape=True,
    cuda="moves.masked_select",
    elements="moved",
    names=picks,
)
def masked_select(input, mask):
    """The elements of `input` where `mask` (bool, broadcast) holds, as a vector in row-major order.

    The length depends on the values, so `vmap` refuses it.
    """


masked_select.shown_as(hides="input_shape", self=Operand("input"))


refuse_other_dtype_out(masked_select)


@masked_select.shape
def _masked_select_shape(input, mask):
    if fresh.size is None:
        raise ShapeCannotBeKnown("masked_select: the shape of the result depends on values, which a meta tensor has none of")
    return (fresh.size(math.prod(broadcast_shapes(masked_select, (input, mask)))),), input.dtype


@masked_select.kernel
def _masked_select(a, mask):
    shape = np.broadcast_shapes(a.shape, mask.shape)
    return kernel.masked(np.broadcast_to(a, shape), np.broadcast_to(mask, shape))


@masked_select.plan
def _masked_select_planned(a, mask):
    if mask.dtype is not BOOL or mask.shape != a.shape and np.broadcast_shapes(mask.shape, a.shape) != a.shape:
        return None
    return kernel.masked(a, mask if mask.shape == a.shape else stretched(mask, a.shape))


def stretched(mask: Any, shape: Any) -> Any:
    """A copy of `mask` that is stretched to `shape`. Raises: ValueError if it does not fit."""
    made = np.empty(shape, BOOL)
    made[...] = mask
    return made


@masked_select.vjp_on_arrays
def _masked_select_vjp_on_arrays(grad, input_shape, mask):
    shape = input_shape if mask.shape == input_shape else np.broadcast_shapes(input_shape, mask.shape)
    full_grad = np.zeros(shape, grad.dtype)
    full_grad[mask if mask.shape == shape else stretched(mask, shape)] = grad
    return (sum_to(full_grad, input_shape), None)


@masked_select.vjp(mask=None)
def _masked_select_vjp(grad, input_shape, mask):
    shape = np.broadcast_shapes(input_shape, tuple(mask.shape))
    return (lambda: sum_tensor_to(grad.new_zeros(shape).masked_scatter(mask, grad), input_shape), None)


def _check_masked_scatter(input, mask, source):
    _bool_mask("masked_scatter", mask)
    check_same_dtype("masked_scatter", input, source, "source")
    shape = broadcast_shapes(masked_scatter, (input, mask))
    if type(mask._array) is ndarray and type(input._array) is ndarray:
        needed = int(np.broadcast_to(mask._array, shape).sum())
        if source.numel() < needed:
            raise RuntimeError(
                f"masked_scatter: Number of elements of source < number of ones in mask: {source.numel()} < {needed}"
            )


@primitive(
    surface=FUNCTION | METHOD | INPLACE, tensors=("input", "mask", "source"), check=_check_masked_scatter,
    samples="x(2, 3), b(2, 3), x(6)",
    cuda="moves.masked_scatter",
)
def masked_scatter(input, mask, source):
    """`input` with the elements of `source`, in row-major order, put where `mask` (bool, broadcast) holds.

    Raises: RuntimeError where `source` has fewer elements than the mask has places.
    """


masked_scatter.shown_as(hides="input_shape")


@masked_scatter.kernel
def _masked_scatter(a, mask, source):
    shape = np.broadcast_shapes(a.shape, mask.shape)
    return kernel.put_masked(np.broadcast_to(a, shape), np.broadcast_to(mask, shape), source.reshape(-1))


@masked_scatter.plan(stores=True)
def _masked_scatter_planned(a, mask, source):
    if mask.dtype is not BOOL or mask.shape != a.shape or source.dtype is not a.dtype or not source.size:
        return False
    if a.size >= kernel.COMPILED_FROM:
        return kernel.put_masked_into(a, mask, source)
    if source.size < a.size and np.count_nonzero(mask) > source.size:
        return False
    np.place(a, mask, source)
    return True


@masked_scatter.shape
def _masked_scatter_shape(input, mask, source):
    return broadcast_shapes(masked_scatter, (input, mask)), input.dtype


@masked_scatter.vjp(mask=None)
def _masked_scatter_vjp(grad, input_shape, mask, source_shape):
    def of_source() -> Tensor:
        picked = grad.masked_select(mask)
        count = 1
        for n in source_shape:
            count *= n
        return padded(picked, (count,)).reshape(source_shape)

    return (lambda: sum_tensor_to(grad.masked_fill(mask, 0), input_shape), None, of_source)


# -- where the non-zero elements are ---------------------------------------------------------------------------------------


def fresh_size(name: str, input: Tensor) -> Any:
    """A size that values decide, for a tensor without them. Raises: ShapeCannotBeKnown where sizes are numbers."""
    if fresh.size is not None:
        return fresh.size(input.numel())
    return _no_meta(name, input)


def _no_meta(name: str, input: Tensor) -> None:
    if type(input._array) is MetaArray:
        raise ShapeCannotBeKnown(f"{name}: the shape of the result depends on values, which a meta tensor has none of")


@primitive(
    surface=0, operator="nonzero(input)", samples="b(2, 3)", public_name="nonzero", dynamic_shape=True, cuda="moves.nonzero_rows"
)
def nonzero_rows(input):
    """The places of the non-zero elements, one a row."""


nonzero_rows.not_differentiable = "its result is places"


@nonzero_rows.kernel
def _nonzero(a):
    return kernel.nonzero(a).T                                        # (count, ndim), its columns dense as PyTorch's


@nonzero_rows.shape
def _nonzero_shape(input):
    count = fresh_size("nonzero", input)
    return (count, input.ndim), dtypes.int64, (8, sym_max(count, 1) * 8)


@nonzero_rows.plan
def _nonzero_planned(a):
    if not a.ndim > 0 or a.dtype.isbuiltin != 1:
        return None
    return (np.array(a.nonzero()) if a.size < kernel.COMPILED_FROM else kernel.nonzero(a)).T


@composite(
    surface=FUNCTION | METHOD | OUT, overlap=NEVER, samples="b(2, 3); i(2, 5), as_tuple=True", exact_out=True, dynamic_shape=True,
    other_dtype="nonzero: Expected out tensor to have scalar type Long but got scalar type{}",
)
def nonzero(input, *, as_tuple=False):
    """The places of the non-zero elements in row-major order: ``(count, ndim)``, int64.

    Args:
        as_tuple: return a vector per dimension instead, which index `input`.

    >>> fb.nonzero(fb.tensor([[0, 7], [8, 0]]))
    tensor([[0, 1],
            [1, 0]])
    """
    if not as_tuple:
        return nonzero_rows(input)
    return tuple(nonzero_rows.function(input.reshape(1) if input.ndim == 0 else input).unbind(1))


@nonzero.plan(discrete=True)
def _nonzero_of_each_dim(a, as_tuple):
    if as_tuple is False:
        return _nonzero_planned(a)
    if as_tuple is not True or a.ndim == 0 or a.dtype.isbuiltin != 1:
        return None
    return tuple([x.copy() for x in a.nonzero()]) if a.size < kernel.COMPILED_FROM else tuple(kernel.nonzero(a))


@composite(surface=FUNCTION | METHOD | OUT, samples="b(2, 3)", dynamic_shape=True)
def argwhere(input):
    """The places of the non-zero elements in row-major order, ``(count, ndim)``."""
    return nonzero_rows.function(input)


@composite(surface=FUNCTION | METHOD | OUT, samples="b(2, 3), size=4", exact_out=True)
def nonzero_static(input, *, size, fill_value=-1):
    """`nonzero` cut or filled with `fill_value` to exactly `size` rows."""
    if size < 0:
        raise RuntimeError(f"nonzero_static: 'size' must be an non-negative integer, got {size}")
    if input._lacks_values:
        return input.new_empty((input.ndim, size), dtype=dtypes.int64).t()
    found = nonzero_rows.function(input)
    made = found.new_full((size, input.ndim), fill_value)
    kept = found[:size]
    made[: kept.shape[0]] = kept
    return made
