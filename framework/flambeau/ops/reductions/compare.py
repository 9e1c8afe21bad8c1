"""Comparisons of whole tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels import COMPILED_FROM
from flambeau_kernels.cpu.reductions.along import ALL, Along
from flambeau_kernels.cpu.reductions.softmax import widen
from flambeau_kernels.quiet import ignore_fp_flags, restore_fp_flags

from ... import dtypes
from ..._arrays import MetaArray
from ..._errors import ValuesCannotBeRead
from ...tensor import Tensor
from .._batching import leading
from .._spec import FUNCTION, METHOD, OUT, composite, primitive
from ..creation.from_values import tensor


def _need_tensors(name: str, **operands: Any) -> None:
    for i, (label, x) in enumerate(operands.items(), 1):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}(): argument '{label}' (position {i}) must be Tensor, not {type(x).__name__}")


@composite(surface=FUNCTION | METHOD, samples="x(2, 3), x(2, 3); x(2, 3), x(3), rtol=0.5", elements="mapped")
def isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether ``|input - other| <= atol + rtol * |other|``, elementwise; equal infinities are close, nan only if `equal_nan`.

    Raises: RuntimeError for different dtypes or negative tolerances.
    """
    _need_tensors("isclose", input=input, other=other)
    if input.dtype is not other.dtype:
        raise RuntimeError(f"isclose: {input.dtype} did not match {other.dtype}; convert one of them")
    for label, value in (("rtol", rtol), ("atol", atol)):
        if not value >= 0:
            raise RuntimeError(f"isclose: {label} must be greater than or equal to zero, but got {value}")
    close = input == other
    if equal_nan and input.dtype.category >= dtypes.FLOATING:
        close = close | ((input != input) & (other != other))
    if rtol == 0 and atol == 0:
        return close
    if input.dtype.category < dtypes.FLOATING:
        # Differences of integers are taken in floating point, where they cannot wrap.
        input, other = input.to(dtypes.float64), other.to(dtypes.float64)
    error = (input - other).abs()
    return close | (error.isfinite() & (error <= atol + (rtol * other).abs()))


@composite(surface=FUNCTION | METHOD, samples="x(2, 3), x(2, 3)")
def is_same_size(input, other):
    """Whether both have the same shape."""
    _need_tensors("is_same_size", input=input, other=other)
    return input.shape == other.shape


_EXACT = frozenset(np.dtype(name) for name in ("bool", "int8", "uint8", "int16", "int32", "int64"))
_COMPARED = _EXACT | {np.dtype(np.float32), np.dtype(np.float64)}


@isclose.plan(tensors=("input", "other"), discrete=True)
def _planned_isclose(a: Any, b: Any, rtol: Any, atol: Any, equal_nan: Any) -> Any:
    """The array that is `isclose` of few numbers of one dtype and shape, by numpy; None for all others."""
    if rtol.__class__ is not float or atol.__class__ is not float:
        return None
    d = a.dtype
    if d is not b.dtype or a.shape != b.shape or a.size >= COMPILED_FROM or not a.ndim or d not in _COMPARED or equal_nan:
        return None
    if not (rtol > 0 <= atol or rtol == 0 < atol) or not a.flags.c_contiguous or not b.flags.c_contiguous:
        return None
    if d in _EXACT:
        a, b = a.astype(np.float64), b.astype(np.float64)
    token = ignore_fp_flags()
    try:
        error = np.subtract(a, b)
        np.abs(error, error)
        bound = np.multiply(b, rtol)
        np.abs(bound, bound)
        close = error <= np.add(bound, atol, bound)
        close &= np.isfinite(error)
        close |= a == b
    finally:
        restore_fp_flags(token)
    return close


@composite(surface=FUNCTION | METHOD, samples="x(2, 3), x(2, 3); x(2, 3), x(3), rtol=0.5")
def allclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether all elements are close, as `isclose` says: a Python bool."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all().item())


@allclose.plan(tensors=("input", "other"), discrete=True)
def _planned_allclose(a, b, rtol, atol, equal_nan):
    close = _planned_isclose(a, b, rtol, atol, equal_nan)
    return None if close is None else 0 not in close.tobytes()


@composite(surface=FUNCTION | METHOD, samples="x(2, 3), x(2, 3)")
def equal(input, other):
    """Whether both have the same shape and equal elements: a Python bool."""
    _need_tensors("equal", input=input, other=other)
    if input.device != other.device:
        raise RuntimeError(f"equal: Cannot compare two tensors on different devices. Got: {input.device} and {other.device}")
    if type(input._array) is MetaArray:
        raise ValuesCannotBeRead("equal: meta tensors have no elements to compare")
    if input._array.shape != other._array.shape:
        return False
    return bool((input == other).all())


@equal.plan(
    tensors=("input", "other"), discrete=True, builtin="ANSWERS[hot_calls.same(a_input, a_other)]",
    names={"ANSWERS": {None: None, 0: False, 1: True}}
)  # fmt: skip
def _are_equal(a, b):
    d = a.dtype
    if b.dtype is not d or a.shape != b.shape or a.size >= COMPILED_FROM:
        return None
    return a.tobytes() == b.tobytes() if d in _EXACT else 0 not in np.equal(a, b).tobytes()


@primitive(surface=0, tensors=("elements", "test_elements"), samples="i(4, 2, 3), i(4, 3), False", public_name="isin", batch_rule=leading)
def is_member(elements, test_elements, invert):
    """Whether each of `elements` is among `test_elements`."""


is_member.in_pieces("...,*->...")


is_member.not_differentiable = "its result is bools"


# Each is compared with each where that takes less time than numpy does to choose a way.
COMPARED_EACH = 2048


@is_member.kernel
def _is_member(a, b, invert):
    x, y = widen(a), widen(b)
    if x.size * y.size <= COMPARED_EACH and y.size:
        found = np.equal(x.reshape(-1, 1), y.reshape(-1)).any(1).reshape(a.shape)
        return ~found if invert else found
    return np.isin(x, y, invert=bool(invert)).reshape(a.shape)


@is_member.shape
def _is_member_shape(elements, test_elements, invert):
    return elements.shape, dtypes.bool


def _as_tensor(value: Any, other: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()
    return tensor(value, dtype=dtypes.from_numpy_dtype(np.dtype(type(value))), device=other.device)


@composite(surface=FUNCTION | OUT, samples="i(4, 2, 3), i(4, 3); i(4, 2, 3), i(4, 3), invert=True; x(2, 3), 1.0", exact_out=True)
def isin(elements, test_elements, *, assume_unique=False, invert=False):
    """Whether each of `elements` is among `test_elements`, or with `invert` is not. One of them may be a number.

    `assume_unique` is accepted and changes nothing.
    """
    if not isinstance(elements, Tensor) and not isinstance(test_elements, Tensor):
        raise TypeError("isin() received an invalid combination of arguments: one of 'elements' and 'test_elements' must be a Tensor")
    for x in (elements, test_elements):
        if isinstance(x, Tensor) and (x.dtype is dtypes.bool or x.is_complex()):
            raise RuntimeError(f"isin: Unsupported input type encountered for isin(): {x.dtype}")
    return is_member.function(_as_tensor(elements, test_elements), _as_tensor(test_elements, elements), bool(invert))


_MEMBERS = {invert: Along("members", invert, dims=ALL, takes_array=True, most_beside=64) for invert in (False, True)}


@isin.plan(discrete=True)
def _planned_isin(a, test_elements, assume_unique, invert):
    if invert.__class__ is not bool:
        return None
    if isinstance(test_elements, Tensor):
        among = test_elements._array
    elif test_elements.__class__ is int and a.dtype.char == "l":
        among = np.array(test_elements)
    else:
        return None
    return _MEMBERS[invert](a if a.flags.c_contiguous else a.copy(), None, False, among)

