"""Special functions: Bessel and gamma functions, the normal distribution, orthogonal polynomials."""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels.formula import Formula
from flambeau_kernels.vocabulary import (
    acos,
    cos,
    exp,
    isinf,
    isnan,
    lgamma,
    log,
    orthogonal,
    sin,
    special_airy_ai,
    special_bessel_j0,
    special_bessel_j1,
    special_bessel_y0,
    special_bessel_y1,
    special_erfcx,
    special_i0,
    special_i0e,
    special_i1,
    special_i1e,
    special_log_ndtr,
    special_modified_bessel_k0,
    special_modified_bessel_k1,
    special_ndtri,
    special_polygamma,
    special_scaled_modified_bessel_k0,
    special_scaled_modified_bessel_k1,
    special_spherical_bessel_j0,
    special_zeta,
    trunc,
    where,
)  # fmt: skip

from ... import dtypes
from ...tensor import Tensor
from .._promote import common, floating, only, refuse
from .._spec import (
    FUNCTION,
    INPLACE,
    METHOD,
    OPS,
    OUT,
    check_room,
    composite,
    elementwise,
    looks_at,
    need_int,
    not_kept,
)

PLAIN = FUNCTION | OUT
SQRT_2_OVER_PI, SQRT_HALF, SQRT_2PI = sqrt(2 / pi), sqrt(0.5), sqrt(2 * pi)
INV_SQRT_TAU = 1 / SQRT_2PI
TWO_OVER_SQRT_PI = 2 / sqrt(pi)
INFINITY, NAN = float("inf"), float("nan")
real_floating = refuse("complex")(floating)


def _two_dtype(op: Any, args: Any) -> Any:
    if not any(isinstance(a, Tensor) for a in args):
        raise TypeError(f"{op.name}(): one of '{op.params[0]}' and '{op.params[1]}' must be Tensor, got two numbers")
    return real_floating(op, args)


# -- modified Bessel functions of the first kind, with derivatives ---------------------------------------------------------


def _sign_of(x):
    return where(x > 0, 1, where(x < 0, -1, 0))


@elementwise(surface=FUNCTION | METHOD | INPLACE | OUT, dtype=real_floating, aliases=("special.i0",),
             partials={"input": lambda input: special_i1(input)})
def i0(input):
    """The modified Bessel function of the first kind of order 0."""
    return special_i0(input)


@elementwise(surface=PLAIN, namespace="special", dtype=real_floating, title="SpecialI0EBackward0",
             partials={"input": lambda input, out: special_i1e(input) - _sign_of(input) * out})  # fmt: skip
def i0e(input):
    """``exp(-|input|) * i0(input)``."""
    return special_i0e(input)


# i1(x) / x and i1e(x) / x tend to 1/2 at 0.
@elementwise(surface=PLAIN, namespace="special", dtype=real_floating, title="SpecialI1Backward0",
             partials={"input": lambda input, out: where(input == 0, 0.5, special_i0(input) - out / where(input == 0, 1, input))})  # fmt: skip  # noqa: E501
def i1(input):
    """The modified Bessel function of the first kind of order 1."""
    return special_i1(input)


@elementwise(surface=PLAIN, namespace="special", dtype=real_floating, title="SpecialI1EBackward0",
             partials={"input": lambda input, out: where(
                 input == 0, 0.5, special_i0e(input) - out * (_sign_of(input) + 1 / where(input == 0, 1, input)))})  # fmt: skip
def i1e(input):
    """``exp(-|input|) * i1(input)``."""
    return special_i1e(input)


# -- error and normal distribution functions -----------------------------------------------------------------------------


@elementwise(surface=PLAIN, namespace="special", dtype=real_floating, title="SpecialErfcxBackward0",
             partials={"input": lambda input, out: 2 * input * out - TWO_OVER_SQRT_PI})  # fmt: skip
def erfcx(input):
    """``exp(input**2) * erfc(input)``, the scaled complementary error function."""
    return special_erfcx(input)


@elementwise(surface=PLAIN, namespace="special", dtype=real_floating,
             partials={"input": lambda input: INV_SQRT_TAU * exp(-0.5 * input * input)})  # fmt: skip
def ndtr(input):
    """The probability that a standard normal variable is at most `input`."""
    return ndtr(input)


@elementwise(surface=0, dtype=real_floating, partials={"input": lambda out, input: -input * out})
def normal_density(input):
    """The density of a standard normal variable at `input`."""
    return normal_density(input)


@elementwise(surface=PLAIN, namespace="special", dtype=real_floating, title="SpecialLogNdtrBackward0",
             partials={"input": lambda input: SQRT_2_OVER_PI / special_erfcx(-input * SQRT_HALF)})  # fmt: skip
def log_ndtr(input):
    """The logarithm of `ndtr`, accurate far below zero."""
    return special_log_ndtr(input)


log_ndtr.shown_as("SpecialLogNdtrBackward0", result=not_kept)


@elementwise(surface=PLAIN, namespace="special", dtype=real_floating, title="SpecialNdtriBackward0", samples=(0.05, 0.95),
             partials={"input": lambda out: SQRT_2PI * exp(0.5 * out * out)})  # fmt: skip
def ndtri(input):
    """The inverse of `ndtr` on (0, 1)."""
    return special_ndtri(input)


@elementwise(
    surface=FUNCTION | METHOD | INPLACE | OUT,
    dtype=floating,
    aliases=("special.sinc",),
    partials={
        "input": lambda input: where(
            input == 0, 0, (pi * input * cos(pi * input) - sin(pi * input)) / (pi * where(input == 0, 1, input * input))
        )
    },
)
def sinc(input):
    """``sin(pi * input) / (pi * input)``, and 1 at 0."""
    return where(input == 0, 1, sin(pi * input) / where(input == 0, 1, pi * input))


# -- gamma functions -----------------------------------------------------------------------------------------------------


@looks_at("dtypes")
def _check_tensors(op: Any, input: Any, other: Any) -> None:
    for name, x in (("input", input), ("other", other)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{op.name}(): argument '{name}' must be Tensor, not {type(x).__name__}")


@elementwise(
    surface=FUNCTION | METHOD | INPLACE | OUT,
    dtype=only("floating")(common),
    aliases=("special.gammainc",),
    check=_check_tensors,
    partials={"other": lambda input, other: exp((input - 1) * log(other) - other - lgamma(input))},
    samples=(0.2, 4.0),
)
def igamma(input, other):
    """The regularized lower incomplete gamma function of `other`, with parameter `input`."""
    # At the ends of its range the result does not depend on the parameter, not even on nan.
    unknown = isnan(input)
    late = isinf(input) & (input > 0) & isnan(other)
    return where(unknown & (other == 0) | late, 0, where(unknown & (other == INFINITY), 1, igamma(input, other)))


@elementwise(
    surface=FUNCTION | METHOD | INPLACE | OUT,
    dtype=only("floating")(common),
    aliases=("special.gammaincc",),
    check=_check_tensors,
    partials={"other": lambda input, other: -exp((input - 1) * log(other) - other - lgamma(input))},
    samples=(0.2, 4.0),
)
def igammac(input, other):
    """The regularized upper incomplete gamma function of `other`, with parameter `input`: ``1 - igamma``."""
    unknown = isnan(input)
    late = isinf(input) & (input > 0) & isnan(other)
    return where(unknown & (other == 0) | late, 1, where(unknown & (other == INFINITY), 0, igammac(input, other)))


@elementwise(surface=PLAIN, namespace="special", dtype=_two_dtype, scalar_first=True, title="SpecialZetaBackward0", samples=(1.1, 4.0),
             partials={"other": lambda input, other: -input * special_zeta(input + 1, other)})  # fmt: skip
def zeta(input, other):
    """The Hurwitz zeta function: the sum over k >= 0 of ``(k + other) ** -input``."""
    return where((other == INFINITY) & (input > 1), NAN, special_zeta(input, other))


def _trigamma(x):
    # Reflection below 1/2, as the pole terms of pi * x in the working precision.
    reflected = x < 0.5
    around = pi / where(reflected, sin(pi * x), 1)
    return where(reflected, around * around - special_polygamma(1, 1 - x), special_polygamma(1, x))


@elementwise(surface=0, dtype=real_floating, title="PolygammaBackward0", partials={"input": lambda input: special_polygamma(2, input)})
def trigamma(input):
    """The second derivative of ``lgamma``."""
    return _trigamma(input)


trigamma.shown_as("PolygammaBackward0", n=lambda saved: 1)


@elementwise(surface=0, dtype=real_floating, title="PolygammaBackward0", partials={"input": lambda input: special_polygamma(3, input)})
def tetragamma(input):
    """The derivative of `trigamma`; as PyTorch has it, nan at infinity, where it tends to 0."""
    return where(input == INFINITY, NAN, special_polygamma(2, input))


@elementwise(surface=0, dtype=lambda op, args: real_floating(op, args[:1]), title="PolygammaBackward0",
             partials={"input": lambda input, n: special_polygamma(n + 1, input)}, public_name="polygamma")  # fmt: skip
def polygamma_of(input, *, n=2):
    """The derivative of order `n`, at least 2, of ``digamma``."""
    return where(input == INFINITY, NAN, special_polygamma(n, input))


def _polygamma(n: Any, input: Any) -> Tensor:
    if isinstance(n, Tensor) or not isinstance(n, (int, np.integer)):
        raise TypeError(f"polygamma(): argument 'n' must be int, not {type(n).__name__}")
    if not isinstance(input, Tensor):
        raise TypeError(f"polygamma(): argument 'input' must be Tensor, not {type(input).__name__}")
    if n < 0:
        raise RuntimeError(f"polygamma(n, x) does not support negative n, got n={n}; the order is 0 or more")
    if n == 0:
        return OPS["digamma"].function(input)
    if n <= 2:
        return (trigamma if n == 1 else tetragamma).function(input)
    return polygamma_of.function(input, n=int(n))


@composite(surface=PLAIN, aliases=("special.polygamma",), operator="polygamma(n, input)", samples="1, p(2, 3); 2, p(2, 3)")
def polygamma(n: int, input):
    """The derivative of order `n` of ``digamma`` at `input`. Raises: RuntimeError for negative `n`."""
    return _polygamma(n, input)


def _method(self, n: int):
    """The derivative of order `n` of ``digamma``."""
    return _polygamma(n, self)


_method.__name__ = "polygamma"
composite(surface=METHOD | INPLACE, namespace="Tensor", samples="p(2, 3), 1")(_method)


_MOST_TERMS = 64                                       # added up one by one
_TERMS_AT_ONCE = 1 << 16                               # whose temporary arrays stay in the cache, also those of numpy


@composite(surface=FUNCTION | METHOD | INPLACE | OUT, aliases=("special.multigammaln",), reads_parts=True, samples="p(2, 3, low=2.5), 2")
def mvlgamma(input, p: int):
    """The logarithm of the multivariate gamma function of dimension `p`, elementwise.

    Raises: RuntimeError unless `p` is at least 1, or for complex and bool input.
    """
    p = need_int("mvlgamma", "p", p)
    if p < 1:
        raise RuntimeError(f"mvlgamma: p has to be greater than or equal to 1, got {p}")
    if input.is_complex() or input.dtype is dtypes.bool:
        raise RuntimeError(f'"mvlgamma" not implemented for {input.dtype}; convert the input to a floating dtype')
    x = input if input.is_floating_point() else input.to(dtypes.get_default_dtype())
    check_room("mvlgamma", (*input.shape, p), x._array.itemsize)  # what PyTorch takes, and so what it refuses
    wide = x.float() if x.dtype in (dtypes.float16, dtypes.bfloat16) else x
    total = wide.lgamma()
    if not x.numel():
        return total.to(x.dtype)
    if p <= _MOST_TERMS:
        for j in range(1, p):
            total = total + (wide - 0.5 * j).lgamma()
    else:
        from ..creation.ranges import arange

        for j in range(1, p, _TERMS_AT_ONCE):
            halves = 0.5 * arange(j, min(j + _TERMS_AT_ONCE, p), dtype=wide.dtype, device=wide.device)
            total = total + (wide.unsqueeze(-1) - halves).lgamma().sum(-1)
    return (total + p * (p - 1) / 4 * float(np.log(pi))).to(x.dtype)


mvlgamma.result_shown_as("MvlgammaBackward0")


# -- further Bessel functions; PyTorch defines no derivatives for these --------------------------------------------------------


def _without_derivative(name: str, formula: Any, doc: str) -> None:
    formula.__name__ = formula.__qualname__ = name
    formula.__doc__ = f"{doc} Real input; it has no derivative."
    elementwise(surface=PLAIN, namespace="special", dtype=real_floating)(formula)


_without_derivative("airy_ai", lambda input: special_airy_ai(input), "The Airy function Ai.")
_without_derivative("bessel_j0", lambda input: special_bessel_j0(input), "The Bessel function of the first kind of order 0.")
_without_derivative("bessel_j1", lambda input: special_bessel_j1(input), "The Bessel function of the first kind of order 1.")
_without_derivative("bessel_y0", lambda input: special_bessel_y0(input), "The Bessel function of the second kind of order 0.")
_without_derivative("bessel_y1", lambda input: special_bessel_y1(input), "The Bessel function of the second kind of order 1.")
_without_derivative("modified_bessel_i0", lambda input: special_i0(input), "The modified Bessel function of the first kind of order 0.")
_without_derivative("modified_bessel_i1", lambda input: special_i1(input), "The modified Bessel function of the first kind of order 1.")
_without_derivative("modified_bessel_k0", lambda input: special_modified_bessel_k0(input),
                    "The modified Bessel function of the second kind of order 0.")  # fmt: skip
_without_derivative("modified_bessel_k1", lambda input: special_modified_bessel_k1(input),
                    "The modified Bessel function of the second kind of order 1.")  # fmt: skip
_without_derivative("scaled_modified_bessel_k0", lambda input: special_scaled_modified_bessel_k0(input),
                    "``exp(input) * modified_bessel_k0(input)``.")  # fmt: skip
_without_derivative("scaled_modified_bessel_k1", lambda input: special_scaled_modified_bessel_k1(input),
                    "``exp(input) * modified_bessel_k1(input)``.")  # fmt: skip
_without_derivative("spherical_bessel_j0", lambda input: special_spherical_bessel_j0(input),
                    "The spherical Bessel function of the first kind of order 0, ``sin(input) / input``.")  # fmt: skip


# -- orthogonal polynomials ----------------------------------------------------------------------------------------------


def _degree(n):
    """`n` cut to an integer; nan and what no int64 holds to -1, of which the polynomials are 0."""
    return where(abs(n) < 2.0**63, trunc(n), -1.0)


def _chebyshev(input, n, slope, shift, inside, ends):
    n = _degree(n)
    # PyTorch has closed forms within the interval and at its ends, which other degrees and arguments recur to.
    closed = (n > 6) & (abs(input) < 1)
    angle = acos(where(closed, input, 0.0))
    made = inside(where(closed, n, 0.0), angle)
    # Degrees are below 2**63, so nothing would recur that often to 1.
    at_end = (n > 6) & (abs(input) == 1)
    sign = where(n - 2 * trunc(n / 2) == 0, 1.0, -1.0)
    made = where(at_end, ends(where(at_end, n, 0.0), input > 0, sign), made)
    done = closed | at_end
    return where(done, made, orthogonal("chebyshev", slope, shift, input, where(done, 0.0, n)))


def _ends_t(n, right, sign):
    return where(right, 1.0, sign)


def _ends_u(n, right, sign):
    return where(right, n + 1, sign * (n + 1))


def _ends_v(n, right, sign):
    return where(right, 1.0, sign * (2 * n + 1))


def _ends_w(n, right, sign):
    return where(right, 2 * n + 1, sign)


def _inside_t(n, angle):
    return cos(n * angle)


def _inside_u(n, angle):
    return sin((n + 1) * angle) / sin(angle)


def _inside_v(n, angle):
    return cos((n + 0.5) * angle) / cos(angle / 2)


def _inside_w(n, angle):
    return sin((n + 0.5) * angle) / sin(angle / 2)


def _polynomial_dtype(op: Any, args: Any) -> Any:
    compute, result = _two_dtype(op, args)
    if result.itemsize < 4:                           # a recurrence in so few digits is no use; PyTorch has none either
        raise NotImplementedError(f'"{op.name}" not implemented for {result}; convert the operands with .float() first')
    return compute, result


def _polynomial(name: str, formula: Any, doc: str) -> Any:
    formula.__name__ = formula.__qualname__ = name
    formula.__doc__ = f"{doc} of degree `n`, which is truncated to an integer; 0 for negative degrees."
    return elementwise(surface=PLAIN, namespace="special", dtype=_polynomial_dtype, scalar_first=True)(formula)


def _chebyshev_polynomials(name: str, slope: int, shift: int, inside: Any, ends: Any, doc: str) -> None:
    """Declare the polynomials of `input` and those of ``2 * input - 1``."""
    plain = _polynomial(f"chebyshev_polynomial_{name}", lambda input, n: _chebyshev(input, n, slope, shift, inside, ends), doc)
    shifted = _polynomial(
        f"shifted_chebyshev_polynomial_{name}",
        lambda input, n: _chebyshev(input + input - 1, n, slope, shift, inside, ends), f"{doc} in ``2 * input - 1``,",
    )  # fmt: skip
    _spare_closed_form(plain, lambda input, n: orthogonal("chebyshev", slope, shift, input, _degree(n)))
    _spare_closed_form(shifted, lambda input, n: orthogonal("chebyshev", slope, shift, input + input - 1, _degree(n)))


def _spare_closed_form(op: Any, recurrence: Any) -> None:
    """Let `op` compute low degrees given as a number by the recurrence alone, which has the same bits in a third of the time."""
    low = Formula(recurrence, f"{op.name}_low")

    def is_low(n: Any) -> bool:
        return (n.__class__ is int or n.__class__ is float) and n < 7

    def launch(arrays: Any, out: Any, compute: Any) -> None:
        formula = low if is_low(arrays[1]) else op.formula
        kernels.launch(formula, arrays, (out,), compute)
        op.learn(formula, arrays, out, compute)

    op.launch = launch
    op.plan(lambda a, n: low.direct(a, n) if is_low(n) else None, tensors=("input",))


_chebyshev_polynomials("t", 1, 0, _inside_t, _ends_t, "The Chebyshev polynomial of the first kind")
_chebyshev_polynomials("u", 2, 0, _inside_u, _ends_u, "The Chebyshev polynomial of the second kind")
_chebyshev_polynomials("v", 2, -1, _inside_v, _ends_v, "The Chebyshev polynomial of the third kind")
_chebyshev_polynomials("w", 2, 1, _inside_w, _ends_w, "The Chebyshev polynomial of the fourth kind")
_polynomial("hermite_polynomial_h", lambda input, n: orthogonal("hermite", 2, 0, input, _degree(n)),
            "The physicists' Hermite polynomial")  # fmt: skip
_polynomial("hermite_polynomial_he", lambda input, n: orthogonal("hermite_e", 1, 0, input, _degree(n)),
            "The probabilists' Hermite polynomial")  # fmt: skip


def _laguerre(input, n):
    n = _degree(n)
    known = (input == 0) & (n >= 0)                   # whatever the degree, which may be huge
    return where(known, 1.0, orthogonal("laguerre", -1, 1, input, where(known, 0.0, n)))


def _legendre(input, n):
    n = _degree(n)
    known = (abs(input) == 1) & (n >= 0)
    sign = where(n - 2 * trunc(n / 2) == 0, 1.0, -1.0)
    return where(known, where(input > 0, 1.0, sign), orthogonal("legendre", 1, 0, input, where(known, 0.0, n)))


_polynomial("laguerre_polynomial_l", _laguerre, "The Laguerre polynomial")
_polynomial("legendre_polynomial_p", _legendre, "The Legendre polynomial")
