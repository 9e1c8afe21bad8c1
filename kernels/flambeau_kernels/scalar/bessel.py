"""Bessel functions: polynomials in x**2 up to 8 (2 for K), beyond them polynomials in 1/x times what they tend to.

Float32 is computed in float64 with shorter polynomials. Those that oscillate are right to a few units of their
amplitude, sqrt(2 / (pi x)), also where they pass through 0. As PyTorch has it, J and Y, which tend to 0, are nan at infinity.
"""
from __future__ import annotations

from collections.abc import Callable

from flambeau_kernels.scalar.common import INF, NAN, clamp, keep_nan, polynomial
from flambeau_kernels.scalar.exponential import exp, medium_exp, reduced
from flambeau_kernels.scalar.logarithm import finite_log, medium_log
from flambeau_kernels.scalar.symbols import F32, F64, Symbol, fma, scale, select, sqrt
from flambeau_kernels.scalar.trigonometric import cos, sin

LN2 = 0.6931471805599453
TWO_OVER_PI = 0.6366197723675814
INV_SQRT_PI = 0.5641895835477563
# Squares of the zeros below 8 of J0 and J1, each as a sum of two doubles.
J0_SQUARES = ((5.783185962946784, 4.123247343506204e-16), (30.471262343662087, -2.366534485750659e-16))
J1_SQUARES = ((14.681970642123893, -9.858177825793294e-17), (49.2184563216946, 5.086354069436341e-16))


def _shrunk_exp(x: Symbol, factor: Symbol, accuracy: str) -> Symbol:
    """factor * exp(x) for |x| up to 760, also where exp(x) alone would overflow or lose digits below the normal range."""
    if accuracy == "float32":
        return factor * medium_exp(x)
    k, p = reduced(x)
    return scale(fma(p, factor, factor), k)


def _modified(order: int, scaled: bool) -> Callable[[Symbol, str], Symbol]:
    """I0 or I1, or either times exp(-|x|)."""
    def function(x: Symbol, accuracy: str) -> Symbol:
        a = abs(x)
        small = a < 8.0
        b = select(small, a, 8.0)
        near = polynomial(f"i{order}.{accuracy}", b * b * (1 / 64))
        if order:
            near = near * b
        c = select(small, 8.0, a)
        far = polynomial(f"i{order}_far.{accuracy}", 8.0 / c) / sqrt(c)
        if scaled:
            value = select(small, _shrunk_exp(-b, near, accuracy), far)
        else:
            value = select(small, near, _shrunk_exp(clamp(a, 0.0, 730.0 if accuracy == "float64" else 200.0), far, accuracy))
            # PyTorch and scipy have nan at infinity, where their series is inf * 0.
            value = select(a > (730.0 if accuracy == "float64" else 200.0), select(a == INF, x.const(NAN), INF), value)
        return keep_nan(x, select(x < 0, -value, value) if order else value)

    return function


def _second_modified(order: int, scaled: bool) -> Callable[[Symbol, str], Symbol]:
    """K0 or K1, or either times exp(x)."""
    def function(x: Symbol, accuracy: str) -> Symbol:
        small = x < 2.0
        b = select(small & (x > 0), x, 2.0)
        square = b * b
        log_half = _log_of_half(b, accuracy)
        first = polynomial(f"i{order}.{accuracy}", square * (1 / 64))
        rest = polynomial(f"k{order}.{accuracy}", square * 0.25)
        near = fma(-log_half, first, rest) if order == 0 else 1.0 / b + b * fma(log_half, first, rest)
        c = select(small, 2.0, x)
        far = polynomial(f"k{order}_far.{accuracy}", 2.0 / c) / sqrt(c)
        if scaled:
            value = select(small, near * (exp if accuracy == "float64" else medium_exp)(b), far)
        else:
            value = select(small, near, _shrunk_exp(-clamp(c, 0.0, 760.0 if accuracy == "float64" else 200.0), far, accuracy))
        value = select(x == 0, INF, select(x < 0, NAN, value))
        return keep_nan(x, value)

    return function


def _log_of_half(x: Symbol, accuracy: str) -> Symbol:
    """log(x / 2) for x > 0."""
    if accuracy == "float32":
        return medium_log(0.5 * x)                    # a float32 is never subnormal in float64
    tiny = x < 1e-300
    return finite_log(select(tiny, x, 0.5 * x)) - select(tiny, x.const(LN2), 0.0)


def _without(x: Symbol, squares: tuple[tuple[float, float], ...]) -> Symbol:
    """The product of x**2 - s for the `squares` of zeros s, good to a unit also at the zeros."""
    square = x * x
    lost = fma(x, x, -square)
    product = x.const(1.0)
    for high, low in squares:
        product = product * ((square - high) + (lost - low))
    return product


def _hankel(order: int, a: Symbol, accuracy: str) -> tuple[Symbol, Symbol]:
    """J and Y of order 0 or 1 for a >= 8, by Hankel's expansions (Abramowitz and Stegun 1964, 9.2.5 to 9.2.10)."""
    inverse = 1.0 / a
    w = (8.0 * inverse) * (8.0 * inverse)
    p, q = polynomial(f"p{order}.{accuracy}", w), polynomial(f"q{order}.{accuracy}", w) * inverse
    s, c = sin(a), cos(a)
    # sqrt(2) times cosine and sine of a - pi/4, or of a - 3 pi/4.
    cosine, sine = (c + s, s - c) if order == 0 else (s - c, -(s + c))
    size = INV_SQRT_PI / sqrt(a)
    return size * (p * cosine - q * sine), size * (p * sine + q * cosine)


def _j_near(order: int, b: Symbol, accuracy: str) -> Symbol:
    value = polynomial(f"j{order}.{accuracy}", fma(b * b, 1 / 64, -0.5)) * _without(b, J1_SQUARES if order else J0_SQUARES)
    return value * b if order else value


def _first_kind(order: int) -> Callable[[Symbol, str], Symbol]:
    def function(x: Symbol, accuracy: str) -> Symbol:
        a = abs(x)
        small = a < 8.0
        near = _j_near(order, select(small, a, 0.0), accuracy)
        value = select(small, near, _hankel(order, select(small, 8.0, a), accuracy)[0])
        if order:
            value = select(x < 0, -value, select(x == 0, x, value))
        return keep_nan(x, select(a == INF, NAN, value))

    return function


def _second_kind(order: int) -> Callable[[Symbol, str], Symbol]:
    def function(x: Symbol, accuracy: str) -> Symbol:
        small = x < 8.0
        b = select(small & (x > 0), x, 1.0)
        rest = polynomial(f"y{order}.{accuracy}", fma(b * b, 1 / 64, -0.5))
        log_b = (finite_log if accuracy == "float64" else medium_log)(b)
        near = TWO_OVER_PI * (log_b * _j_near(order, b, accuracy) - (1.0 / b if order else 0.0))
        near = fma(rest, b, near) if order else rest + near
        value = select(small, near, _hankel(order, select(small, 8.0, x), accuracy)[1])
        value = select(x == 0, -INF, select((x < 0) | (x == INF), NAN, value))
        return keep_nan(x, value)

    return function


def spherical_j0(x: Symbol, accuracy: str = "float64") -> Symbol:
    a = abs(x)
    small = a < 0.75
    b = select(small, a, 0.0)
    near = fma(polynomial("sin.float64", b * b), b * b, 1.0)
    c = select(small, 1.0, a)
    return keep_nan(x, select(a == INF, 0.0, select(small, near, sin(c) / c)))


_FUNCTIONS = {
    "special_i0": _modified(0, False), "special_i0e": _modified(0, True),
    "special_i1": _modified(1, False), "special_i1e": _modified(1, True),
    "special_modified_bessel_k0": _second_modified(0, False), "special_modified_bessel_k1": _second_modified(1, False),
    "special_scaled_modified_bessel_k0": _second_modified(0, True),
    "special_scaled_modified_bessel_k1": _second_modified(1, True),
    "special_bessel_j0": _first_kind(0), "special_bessel_j1": _first_kind(1),
    "special_bessel_y0": _second_kind(0), "special_bessel_y1": _second_kind(1),
    "special_spherical_bessel_j0": spherical_j0,
}  # fmt: skip


def _single(function: Callable[[Symbol, str], Symbol]) -> Callable[[Symbol], Symbol]:
    return lambda x: function(x.to(F64), "float32").to(F32)


def _double(function: Callable[[Symbol, str], Symbol]) -> Callable[[Symbol], Symbol]:
    return lambda x: function(x, "float64")


SINGLE = {word: _single(function) for word, function in _FUNCTIONS.items()}
DOUBLE = {word: _double(function) for word, function in _FUNCTIONS.items()}
