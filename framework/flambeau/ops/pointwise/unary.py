"""Elementwise operations of one operand."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from flambeau_kernels.vocabulary import conj, imag, nearbyint, real, special_polygamma, where

from ... import dtypes
from .._promote import common, floating, only, refuse, result_type, to_bool, to_real
from .._spec import (
    EVERYWHERE,
    EXACTLY,
    FUNCTION,
    INPLACE,
    METHOD,
    NO_FOREACH,
    OUT,
    Operand,
    composite,
    elementwise,
    looks_at,
    saved_tensor,
)
from .._spec.names import keep

LN2, LN10 = 0.6931471805599453, 2.302585092994046
TWO_OVER_SQRT_PI, SQRT_PI_OVER_2 = 1.1283791670955126, 0.8862269254527580
real_floating = refuse("complex")(floating)


@looks_at("dtypes")
def _refuse_complex(op: Any, input: Any) -> None:
    if input.dtype.is_complex:
        raise NotImplementedError("Unlike NumPy, torch.sign doesn't allow complex tensors. Use torch.sgn instead")


@looks_at("dtypes")
def _refuse_bool(op: Any, input: Any) -> None:
    if input.dtype is dtypes.bool:
        raise RuntimeError(
            f"{op.name}: Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the "
            "`~` or `logical_not()` operator instead."
        )


@elementwise(ufunc=np.negative, aliases=("negative",), check=_refuse_bool, partials={"input": lambda: -1}, exact_out=True)
def neg(input):
    """``-input``. Raises: RuntimeError for bool."""
    return -input


@composite(surface=METHOD | FUNCTION, samples="x(2, 3)", names=keep)
def positive(input):
    """`input` itself. Raises: RuntimeError for bool."""
    if input.dtype is dtypes.bool:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


@elementwise(
    dtype=to_real,
    aliases=("absolute",),
    # grad is real for complex input: the direction of steepest ascent is input / |input|.
    vjp={"input": lambda grad, input: grad * sign(input)},
    exact_out=True,
    float8=True,
)
def abs(input):
    """The magnitude, elementwise; of complex values a real number."""
    return abs(input)


@elementwise(dtype=common, partials={"input": lambda: 0}, check=_refuse_complex, exact_out=True)
def sign(input):
    """-1, 0 or 1, by the sign of `input`; 0 for nan."""
    return sign(input)


@elementwise(
    dtype=common,
    surface=NO_FOREACH,
    vjp={
        "input": lambda grad, input, out: (
            where(abs(input) > 0, (grad - out * real(conj(out) * grad)) / where(input == 0, 1, abs(input)), 0)
        )
    },
    exact_out=True,
)
def sgn(input):
    """``input / |input|``, and 0 at 0: the sign of real values, the direction of complex ones."""
    return sign(input)


@elementwise(surface=METHOD | FUNCTION | OUT, dtype=refuse("complex")(to_bool), exact_out=True)
def signbit(input):
    """Whether the sign bit is set, also of -0 and nan."""
    return signbit(input)


@elementwise(dtype=floating, ufunc=np.sqrt, partials={"input": lambda out: 0.5 / out}, samples=(0.1, 4.0))
def sqrt(input):
    """The square root; nan for negative values. Integers give the default floating dtype."""
    return sqrt(input)


@elementwise(dtype=floating, partials={"input": lambda out: -0.5 * out * out * out}, samples=(0.1, 4.0))
def rsqrt(input):
    """``1 / sqrt(input)``: inf at 0, nan below. Integers give the default floating dtype."""
    return rsqrt(input)


@elementwise(dtype=floating, partials={"input": lambda out: -out * out})
def reciprocal(input):
    """``1 / input``, inf at 0. Integers give the default floating dtype."""
    return 1 / input


def _square_dtype(op: Any, args: Any) -> Any:
    d = result_type((*args, 2))  # as input ** 2, which makes int64 of bools
    return d, d


@elementwise(dtype=_square_dtype, surface=NO_FOREACH, partials={"input": lambda input: 2 * input}, title="PowBackward0")
def square(input):
    """``input * input``."""
    return input * input


square.shown_as("PowBackward0", exponent=lambda saved: 2)


@elementwise(surface=0, vjp={"input": lambda grad, input: 2 * grad}, title="MulBackward0", operator="mul(input, 2)")
def twice(input):
    """``2 * input``, whose derivative counts as a function of `input`, so that it can be differentiated once more, to zeros."""
    return 2 * input


def _square_gradient(i: int, node: Any, grad: Any) -> Any:
    factor = twice.function(saved_tensor(node, 1))
    return grad * (factor.conj() if factor.is_complex() else factor)


square.grad_tensor = _square_gradient


@elementwise(dtype=floating, ufunc=np.exp, partials={"input": lambda out: out})
def exp(input):
    """e to the power of `input`. Integers give the default floating dtype."""
    return exp(input)


@elementwise(dtype=floating, surface=NO_FOREACH, aliases=("special.exp2",), partials={"input": lambda out: out * LN2})
def exp2(input):
    """2 to the power of `input`. Integers give the default floating dtype."""
    return exp2(input)


@elementwise(dtype=floating, ufunc=np.expm1, aliases=("special.expm1",), partials={"input": lambda out: out + 1})
def expm1(input):
    """``exp(input) - 1``, accurate near 0."""
    return expm1(input)


@elementwise(dtype=floating, ufunc=np.log, partials={"input": lambda input: 1 / input}, samples=(0.1, 4.0))
def log(input):
    """The natural logarithm: -inf at 0, nan below. Integers give the default floating dtype."""
    return log(input)


@elementwise(dtype=floating, ufunc=np.log2, partials={"input": lambda input: 1 / (input * LN2)}, samples=(0.1, 4.0))
def log2(input):
    """The logarithm to base 2: -inf at 0, nan below. Integers give the default floating dtype."""
    return log2(input)


@elementwise(dtype=floating, ufunc=np.log10, partials={"input": lambda input: 1 / (input * LN10)}, samples=(0.1, 4.0))
def log10(input):
    """The logarithm to base 10: -inf at 0, nan below. Integers give the default floating dtype."""
    return log10(input)


@elementwise(dtype=floating, ufunc=np.log1p, aliases=("special.log1p",),
             partials={"input": lambda input: 1 / (input + 1)}, samples=(-0.5, 4.0))  # fmt: skip
def log1p(input):
    """``log(1 + input)``, accurate near 0: -inf at -1, nan below. Integers give the default floating dtype."""
    return log1p(input)


log1p.shown_as("Log1PBackward0")


@elementwise(dtype=floating, ufunc=np.sin, partials={"input": lambda input: cos(input)})
def sin(input):
    """The sine of `input` in radians."""
    return sin(input)


@elementwise(dtype=floating, ufunc=np.cos, partials={"input": lambda input: -sin(input)})
def cos(input):
    """The cosine of `input` in radians."""
    return cos(input)


@elementwise(dtype=floating, ufunc=np.tan, partials={"input": lambda out: 1 + out * out}, samples=(-1.2, 1.2))
def tan(input):
    """The tangent of `input` in radians."""
    return tan(input)


@elementwise(dtype=floating, ufunc=np.arcsin, aliases=("arcsin",),
             partials={"input": lambda input: rsqrt(1 - input * input)}, samples=(-0.9, 0.9))  # fmt: skip
def asin(input):
    """The angle in radians whose sine is `input`, in [-pi / 2, pi / 2]; nan outside [-1, 1]."""
    return asin(input)


@elementwise(dtype=floating, ufunc=np.arccos, aliases=("arccos",),
             partials={"input": lambda input: -rsqrt(1 - input * input)}, samples=(-0.9, 0.9))  # fmt: skip
def acos(input):
    """The angle in radians whose cosine is `input`, in [0, pi]; nan outside [-1, 1]."""
    return acos(input)


@elementwise(dtype=floating, ufunc=np.arctan, aliases=("arctan",), partials={"input": lambda input: 1 / (input * input + 1)})
def atan(input):
    """The angle in radians whose tangent is `input`, in [-pi / 2, pi / 2]; see `atan2` for all four quadrants."""
    return atan(input)


@elementwise(dtype=floating, ufunc=np.sinh, partials={"input": lambda input: cosh(input)})
def sinh(input):
    """The hyperbolic sine."""
    return sinh(input)


@elementwise(dtype=floating, ufunc=np.cosh, partials={"input": lambda input: sinh(input)})
def cosh(input):
    """The hyperbolic cosine."""
    return cosh(input)


@elementwise(dtype=floating, ufunc=np.tanh, partials={"input": lambda out: 1 - out * out}, finishes_products=True)
def tanh(input):
    """The hyperbolic tangent."""
    return tanh(input)


@elementwise(dtype=floating, ufunc=np.arcsinh, surface=NO_FOREACH, aliases=("arcsinh",),
             partials={"input": lambda input: rsqrt(input * input + 1)})  # fmt: skip
def asinh(input):
    """The inverse hyperbolic sine."""
    return asinh(input)


@elementwise(dtype=floating, ufunc=np.arccosh, surface=NO_FOREACH, aliases=("arccosh",),
             partials={"input": lambda input: rsqrt(input - 1) * rsqrt(input + 1)}, samples=(1.1, 4.0))  # fmt: skip
def acosh(input):
    """The inverse hyperbolic cosine; nan below 1."""
    return acosh(input)


@elementwise(dtype=floating, ufunc=np.arctanh, surface=NO_FOREACH, aliases=("arctanh",),
             partials={"input": lambda input: 1 / (1 - input * input)},
             samples=(-0.9, 0.9))  # fmt: skip
def atanh(input):
    """The inverse hyperbolic tangent; infinite at -1 and 1, nan outside."""
    return atanh(input)


@elementwise(
    dtype=floating, aliases=("special.expit", "nn.functional.sigmoid"), partials={"input": lambda out: out * (1 - out)},
    finishes_products=True,
)
def sigmoid(input):
    """``1 / (1 + exp(-input))``."""
    return sigmoid(input)


@elementwise(dtype=real_floating, aliases=("special.erf",), partials={"input": lambda input: TWO_OVER_SQRT_PI * exp(-input * input)})
def erf(input):
    """The error function, ``2 / sqrt(pi)`` times the integral of ``exp(-t**2)`` from 0."""
    return erf(input)


@elementwise(dtype=real_floating, aliases=("special.erfc",), partials={"input": lambda input: -TWO_OVER_SQRT_PI * exp(-input * input)})
def erfc(input):
    """``1 - erf(input)``, accurate for large values."""
    return erfc(input)


@elementwise(dtype=real_floating, surface=NO_FOREACH, aliases=("special.erfinv",),
             partials={"input": lambda out: SQRT_PI_OVER_2 * exp(out * out)}, samples=(-0.9, 0.9))  # fmt: skip
def erfinv(input):
    """The inverse of the error function on (-1, 1); infinite at the ends, nan outside."""
    return erfinv(input)


erfinv.shown_as(hides="result", self=Operand("input"))


@elementwise(dtype=real_floating, aliases=("special.gammaln",), partials={"input": lambda input: digamma(input)}, samples=(0.2, 4.0))
def lgamma(input):
    """The natural logarithm of the magnitude of the gamma function; inf at 0 and the negative integers."""
    return lgamma(input)


@elementwise(dtype=real_floating, surface=NO_FOREACH, aliases=("special.digamma", "special.psi"),
             partials={"input": lambda input: special_polygamma(1, input)}, samples=(0.2, 4.0))  # fmt: skip
def digamma(input):
    """The derivative of `lgamma`: -inf at 0, nan at the negative integers."""
    return digamma(input)


def _rounding(op: Any, args: Any) -> Any:
    d, _ = common(op, args)
    if d.is_complex:
        raise NotImplementedError(f'"{op.name}" not implemented for {d}; round the real and imaginary parts separately')
    if d is dtypes.bool:
        raise NotImplementedError(f'"{op.name}" not implemented for {d}, which has nothing to round')
    return d, d


@elementwise(dtype=_rounding, ufunc=np.floor, partials={"input": lambda: 0}, exact_out=True)
def floor(input):
    """The largest integer not above `input`."""
    return floor(input)


@elementwise(dtype=_rounding, ufunc=np.ceil, partials={"input": lambda: 0}, exact_out=True)
def ceil(input):
    """The smallest integer not below `input`."""
    return ceil(input)


@elementwise(dtype=_rounding, ufunc=np.trunc, aliases=("fix",), partials={"input": lambda: 0}, exact_out=True)
def trunc(input):
    """`input` without its fraction."""
    return trunc(input)


@elementwise(dtype=refuse("complex", "bool", "integer")(common), partials={"input": lambda: 1}, exact_out=True)
def frac(input):
    """The fraction of `input`, with its sign."""
    return input - trunc(input)


@elementwise(surface=0, dtype=_rounding, partials={"input": lambda: 0}, title="RoundBackward0", public_name="round")
def round_to_integer(input):
    """The nearest integer, halves to even."""
    return nearbyint(input)


@elementwise(surface=0, dtype=_rounding, partials={"input": lambda: 0}, title="RoundBackward1", public_name="round")
def round_to_decimals(input, scale):
    """The nearest multiple of ``1 / scale``."""
    return nearbyint(input * scale) / scale


@elementwise(surface=0, dtype=_rounding, partials={"input": lambda: 0}, title="RoundBackward1", public_name="round")
def round_to_tens(input, scale):
    """The nearest multiple of `scale`."""
    return nearbyint(input / scale) * scale


@composite(
    surface=EVERYWHERE, aliases=("special.round",), overlap=EXACTLY, samples="x(2, 3); x(2, 3), decimals=1", exact_out=True,
    names=keep,
)
def round(input, *, decimals=0):
    """`input` rounded to `decimals` places, halves to even; negative `decimals` round to tens, hundreds, ....

    >>> fb.round(fb.tensor([0.5, 1.5, 2.5]))
    tensor([0., 2., 2.])
    """
    if decimals == 0:
        return round_to_integer(input)
    if not input.is_floating_point():
        raise RuntimeError(f'"round" with decimals={decimals} not implemented for {input.dtype}; it needs a floating dtype')
    if decimals > 0:
        return round_to_decimals(input, float(10**decimals))
    return round_to_tens(input, float(10**-decimals))


round.forwards(to=lambda input, decimals: (round_to_integer, (input,)) if decimals == 0 else None)


@elementwise(surface=METHOD | FUNCTION, dtype=to_bool)
def isnan(input):
    """Whether each element is not a number."""
    return input != input


@elementwise(surface=METHOD | FUNCTION, dtype=to_bool)
def isinf(input):
    """Whether each element is infinite."""
    return isinf(input)


@elementwise(surface=METHOD | FUNCTION, dtype=to_bool)
def isfinite(input):
    """Whether each element is neither infinite nor nan."""
    return isfinite(input)


@elementwise(surface=METHOD | FUNCTION | OUT, dtype=refuse("complex")(to_bool), exact_out=True)
def isposinf(input):
    """Whether each element is positive infinity."""
    return isinf(input) & (input > 0)


@elementwise(surface=METHOD | FUNCTION | OUT, dtype=refuse("complex")(to_bool), exact_out=True)
def isneginf(input):
    """Whether each element is negative infinity."""
    return isinf(input) & (input < 0)


@elementwise(surface=METHOD | FUNCTION, dtype=to_bool)
def isreal(input):
    """Whether each element has no imaginary part."""
    return imag(input) == 0


@elementwise(surface=METHOD | FUNCTION | OUT | INPLACE, dtype=to_bool)
def logical_not(input):
    """Whether each element is zero."""
    return logical_not(input)


@elementwise(
    surface=METHOD | FUNCTION | OUT | INPLACE, dtype=only("bool", "integer")(common),
    samples="i(9, 2, 3); b(2, 3)",
    exact_out=True,
)
def bitwise_not(input):
    """Every bit flipped; logical not of bools. Integers and bools only."""
    return ~input


@elementwise(surface=METHOD, dtype=common, partials={"input": lambda: 1}, title="CloneBackward0", operator="clone(input)", float8=True)
def identity(input):
    """`input` elementwise, in new memory."""
    return input


@elementwise(surface=METHOD | FUNCTION | OUT, dtype=lambda op, args: _angle(op, args),
             vjp={"input": lambda grad, input: _angle_grad(grad, input)})  # fmt: skip
def angle(input):
    """The angle of complex values in radians; 0 or pi for real ones."""
    return angle(input)


def _angle(op: Any, args: Any) -> Any:
    d, _ = floating(op, args)
    return d, d.to_real()


def _angle_grad(grad, input):
    # d angle / d conj z = i z / |z|^2 for complex z; a real value has a constant angle.
    size = abs(input) * abs(input)
    # Where that is no number, as for inf, the angle does not change.
    return where((size > 0) & (size < inf), grad * 1j * input / where(size == 0, 1, size), 0)


@elementwise(
    dtype=refuse("complex")(floating),
    surface=FUNCTION | METHOD | OUT | INPLACE,
    partials={"input": lambda: 0.017453292519943295},
)
def deg2rad(input):
    """Degrees to radians."""
    return input * 0.017453292519943295


deg2rad.shown_as("Deg2RadBackward0")


@elementwise(
    dtype=refuse("complex")(floating),
    surface=FUNCTION | METHOD | OUT | INPLACE,
    partials={"input": lambda: 57.29577951308232},
)
def rad2deg(input):
    """Radians to degrees."""
    return input * 57.29577951308232


rad2deg.shown_as("Rad2DegBackward0")
