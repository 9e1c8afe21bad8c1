"""Comparisons of whole tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.cpu.softmax import widen

from .. import dtypes
from .._arrays import MetaArray
from ..tensor import Tensor, wrap
from ._spec import FUNCTION, METHOD, OUT, composite, primitive


def _need_tensors(name: str, **operands: Any) -> None:
    for i, (label, x) in enumerate(operands.items(), 1):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}(): argument '{label}' (position {i}) must be Tensor, not {type(x).__name__}")


@composite(surface=FUNCTION | METHOD)
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


@composite(surface=FUNCTION | METHOD)
def allclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether all elements are close, as `isclose` says: a Python bool."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all().item())


@composite(surface=FUNCTION | METHOD)
def equal(input, other):
    """Whether both have the same shape and equal elements: a Python bool."""
    _need_tensors("equal", input=input, other=other)
    if input.device != other.device:
        raise RuntimeError(f"equal: Cannot compare two tensors on different devices. Got: {input.device} and {other.device}")
    if type(input._a) is MetaArray:
        raise NotImplementedError("equal: meta tensors have no elements to compare")
    if input._a.shape != other._a.shape:
        return False
    if input._a.dtype == other._a.dtype and type(input._a) is np.ndarray:
        return bool(np.asarray(input._a == other._a).all())
    return bool((input == other).all().item())


@primitive(surface=0, tensors=("elements", "test_elements"))
def is_member(elements, test_elements, invert):
    """Whether each of `elements` is among `test_elements`."""


is_member.not_differentiable = "its result is bools"


@is_member.kernel
def _is_member(a, b, invert):
    x, y = widen(a), widen(b)
    return np.isin(x, y, invert=bool(invert)).reshape(a.shape)


@is_member.shape
def _is_member_shape(elements, test_elements, invert):
    return elements.shape, dtypes.bool


def _as_tensor(value: Any, other: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()
    made = wrap(np.asarray(value))
    return made.to(other.device) if isinstance(other, Tensor) else made


@composite(surface=FUNCTION | OUT)
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
