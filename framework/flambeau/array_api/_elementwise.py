"""Elementwise functions of the array API standard."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import flambeau as fb
from flambeau import Tensor

from ._types import together


def _unary(name: str, function: Callable[[Tensor], Tensor], doc: str) -> Callable[[Tensor], Tensor]:
    def made(x: Tensor, /) -> Tensor:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: takes a tensor, got a {type(x).__name__}")
        return function(x)

    return _named(made, name, doc)


def _binary(name: str, function: Callable[[Tensor, Tensor], Tensor], doc: str) -> Callable[[Any, Any], Tensor]:
    def made(x1: Any, x2: Any, /) -> Tensor:
        return function(*together(name, x1, x2))

    return _named(made, name, doc + " One of the two may be a Python number.")


def _named(made: Any, name: str, doc: str) -> Any:
    made.__name__ = made.__qualname__ = name
    made.__doc__ = doc
    return made


def _of_each_part(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """`function` of the real and of the imaginary part."""
    return lambda x: fb.complex(function(x.real), function(x.imag)) if x.dtype.is_complex else function(x)


def _remainder(x1: Tensor, x2: Tensor) -> Tensor:
    found = fb.remainder(x1, x2)
    # PyTorch's zeros have the sign of x1, the standard's that of x2.
    return fb.where(found == 0, fb.copysign(found, x2), found) if found.dtype.is_floating_point else found


def _sign(x: Tensor) -> Tensor:
    # PyTorch has 0 for nan; the standard keeps it.
    return fb.sgn(x) if not (x.dtype.is_floating_point or x.dtype.is_complex) else fb.where(x == x, fb.sgn(x), x * fb.nan)


def _expm1(x: Tensor) -> Tensor:
    if not x.dtype.is_complex:
        return fb.expm1(x)
    # PyTorch's has nan where a part is infinite; the standard has the limits, which `exp` has in both.
    limit = fb.exp(x)
    return fb.where(fb.isfinite(x), fb.expm1(x), fb.complex(limit.real - 1, limit.imag))


def _of_both_parts(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """`function` of the real parts and of the imaginary parts.

    PyTorch's sums multiply the second operand with 1 first, and 1 times a number with one infinite part has nan for the other.
    """

    def of_parts(x1: Tensor, x2: Tensor) -> Tensor:
        if not x1.dtype.is_complex:
            return function(x1, x2)
        first, second = (fb.view_as_real(x.resolve_conj()) for x in fb.broadcast_tensors(x1, x2))
        return fb.view_as_complex(function(first, second))

    return of_parts


abs = _unary("abs", fb.abs, "Magnitude.")
acos = _unary("acos", fb.acos, "Inverse cosine, in radians.")
acosh = _unary("acosh", fb.acosh, "Inverse hyperbolic cosine.")
asin = _unary("asin", fb.asin, "Inverse sine, in radians.")
asinh = _unary("asinh", fb.asinh, "Inverse hyperbolic sine.")
atan = _unary("atan", fb.atan, "Inverse tangent, in radians.")
atanh = _unary("atanh", fb.atanh, "Inverse hyperbolic tangent.")
bitwise_invert = _unary("bitwise_invert", fb.bitwise_not, "All bits inverted.")
ceil = _unary("ceil", fb.ceil, "The next integer from above.")
conj = _unary("conj", fb.conj, "Complex conjugate.")
cos = _unary("cos", fb.cos, "Cosine of radians.")
cosh = _unary("cosh", fb.cosh, "Hyperbolic cosine.")
exp = _unary("exp", fb.exp, "Exponential function.")
expm1 = _unary("expm1", _expm1, "``exp(x) - 1``, exact near 0.")
floor = _unary("floor", fb.floor, "The next integer from below.")
imag = _unary("imag", fb.imag, "Imaginary part of complex numbers.")
isfinite = _unary("isfinite", fb.isfinite, "Whether elements are neither infinite nor nan.")
isinf = _unary("isinf", fb.isinf, "Whether elements are infinite.")
isnan = _unary("isnan", fb.isnan, "Whether elements are nan.")
log = _unary("log", fb.log, "Natural logarithm.")
log1p = _unary("log1p", fb.log1p, "``log(1 + x)``, exact near 0.")
log2 = _unary("log2", fb.log2, "Logarithm to base 2.")
log10 = _unary("log10", fb.log10, "Logarithm to base 10.")
logical_not = _unary("logical_not", fb.logical_not, "Whether elements are zero.")
negative = _unary("negative", fb.neg, "``-x``.")
positive = _unary("positive", fb.positive, "``+x``.")
real = _unary("real", fb.real, "Real part.")
reciprocal = _unary("reciprocal", fb.reciprocal, "``1 / x``.")
round = _unary("round", _of_each_part(fb.round), "The nearest integer, the even one of two.")
sign = _unary("sign", _sign, "Sign: -1, 0 or 1; ``x / abs(x)`` of complex numbers; nan of nan.")
signbit = _unary("signbit", fb.signbit, "Whether the bit of the sign is set.")
sin = _unary("sin", fb.sin, "Sine of radians.")
sinh = _unary("sinh", fb.sinh, "Hyperbolic sine.")
sqrt = _unary("sqrt", fb.sqrt, "Square root.")
square = _unary("square", fb.square, "``x * x``.")
tan = _unary("tan", fb.tan, "Tangent of radians.")
tanh = _unary("tanh", fb.tanh, "Hyperbolic tangent.")
trunc = _unary("trunc", fb.trunc, "The next integer towards zero.")

add = _binary("add", _of_both_parts(fb.add), "``x1 + x2``.")
atan2 = _binary("atan2", fb.atan2, "Angle of the point ``(x2, x1)``, in radians.")
bitwise_and = _binary("bitwise_and", fb.bitwise_and, "``x1 & x2``.")
bitwise_left_shift = _binary("bitwise_left_shift", fb.bitwise_left_shift, "``x1 << x2``.")
bitwise_or = _binary("bitwise_or", fb.bitwise_or, "``x1 | x2``.")
bitwise_right_shift = _binary("bitwise_right_shift", fb.bitwise_right_shift, "``x1 >> x2``.")
bitwise_xor = _binary("bitwise_xor", fb.bitwise_xor, "``x1 ^ x2``.")
copysign = _binary("copysign", fb.copysign, "The magnitude of `x1` with the sign of `x2`.")
divide = _binary("divide", fb.true_divide, "``x1 / x2``.")
equal = _binary("equal", fb.eq, "``x1 == x2``.")
floor_divide = _binary("floor_divide", fb.floor_divide, "``x1 // x2``.")
greater = _binary("greater", fb.gt, "``x1 > x2``.")
greater_equal = _binary("greater_equal", fb.ge, "``x1 >= x2``.")
hypot = _binary("hypot", fb.hypot, "``sqrt(x1**2 + x2**2)`` without overflow on the way.")
less = _binary("less", fb.lt, "``x1 < x2``.")
less_equal = _binary("less_equal", fb.le, "``x1 <= x2``.")
logaddexp = _binary("logaddexp", fb.logaddexp, "``log(exp(x1) + exp(x2))`` without overflow on the way.")
logical_and = _binary("logical_and", fb.logical_and, "Whether both are non-zero.")
logical_or = _binary("logical_or", fb.logical_or, "Whether one is non-zero.")
logical_xor = _binary("logical_xor", fb.logical_xor, "Whether exactly one is non-zero.")
maximum = _binary("maximum", fb.maximum, "The larger one, nan where one is nan.")
minimum = _binary("minimum", fb.minimum, "The smaller one, nan where one is nan.")
multiply = _binary("multiply", fb.mul, "``x1 * x2``.")
nextafter = _binary("nextafter", fb.nextafter, "The next number of the dtype after `x1` towards `x2`.")
not_equal = _binary("not_equal", fb.ne, "``x1 != x2``.")
pow = _binary("pow", fb.pow, "``x1 ** x2``.")
remainder = _binary("remainder", _remainder, "``x1 % x2``, with the sign of `x2`.")
subtract = _binary("subtract", _of_both_parts(fb.sub), "``x1 - x2``.")


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """`x` with what is below `min` set to it and what is above `max` set to that; the dtype is that of `x`.

    A Python integer that the dtype does not hold bounds as the last number that it holds.
    """
    if min is None and max is None:
        return x.clone()
    low, high = (b if b is None else fb.asarray(_nearest(b, x.dtype), dtype=x.dtype, device=x.device) for b in (min, max))
    return fb.clamp(x, low, high)


def _nearest(bound: Any, dtype: fb.dtype) -> Any:
    if not isinstance(bound, int) or dtype.is_floating_point or dtype.is_complex or dtype is fb.bool:
        return bound
    limits = fb.iinfo(dtype)
    return builtins.min(builtins.max(bound, limits.min), limits.max)


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """`x1` where `condition` is True and `x2` elsewhere; one of the two may be a Python number."""
    return fb.where(condition, *together("where", x1, x2))

