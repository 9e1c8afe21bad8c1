"""The logarithm of the gamma function and its first derivatives; those of float32 are computed in float64.

In float64 lgamma and digamma are right to a few units where the argument is positive, zeros included. Below 0, where
a zero lies between any two poles, they are right to a few units of 1.
"""
from __future__ import annotations

from flambeau_kernels.scalar.common import INF, NAN, keep_nan, polynomial
from flambeau_kernels.scalar.logarithm import finite_log
from flambeau_kernels.scalar.symbols import F32, F64, Symbol, copysign, floor, fma, nearbyint, select

PI = 3.141592653589793
LOG_SQRT_2PI = 0.9189385332046727
# Stirling's series in 1/x**2, B(2n) / (2n (2n-1)) and -B(2n) / 2n: Abramowitz and Stegun 1964, 6.1.41 and
# 6.3.18.
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
DIGAMMA = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132, 691 / 32760, -1 / 12, 3617 / 8160, -43867 / 14364)
# The derivatives of the latter: B(2n), and -(2n+1) B(2n).
TRIGAMMA = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
TETRAGAMMA = tuple(-(2 * n + 1) * b for n, b in enumerate(TRIGAMMA, start=1))
DIGAMMA_ZERO = (1.4616321449683622, 9.549995429965697e-17)


def _series(coefficients: tuple[float, ...], z: Symbol) -> Symbol:
    *lower, second, first = coefficients
    value = fma(z, first, second)
    for coefficient in reversed(lower):
        value = fma(z, value, coefficient)
    return value


def _sin_and_cos_pi(x: Symbol) -> tuple[Symbol, Symbol]:
    """|sin(pi x)| and cos(pi x) up to the common sign of the nearest whole number."""
    r = x - nearbyint(x)
    inner = abs(r) < 0.25
    t = PI * select(inner, r, 0.5 - abs(r))
    z = t * t
    sine = fma(polynomial("sin.float64", z) * z, t, t)
    cosine = fma(z * z, polynomial("cos.float64", z), fma(z, -0.5, 1.0))
    return select(inner, sine, copysign(cosine, r)), select(inner, cosine, sine)


def lgamma32(x: Symbol) -> Symbol:
    a = select(x == 0, 1.0, abs(x).to(F64))
    small = a < 8.0
    b = select(small, a, 1.0)
    product = b
    for n in range(1, 8):
        product = product * (b + float(n))
    t = select(small, a + 8.0, select(a < 1e40, a, 1.0))
    inverse = 1.0 / t
    stirling = (t - 0.5) * finite_log(t) - t + LOG_SQRT_2PI + inverse * _series(STIRLING, inverse * inverse)
    product = select(small, product, 1.0)
    # Gamma(a) Gamma(-a) = -pi / (a sin(pi a)) below 0.
    below = x < 0
    sine = abs(_sin_and_cos_pi(a)[0])
    pole = below & (sine == 0)
    reflected = PI * product / select(pole, 1.0, a * sine)
    rest = finite_log(select(below, reflected, product))
    value = select(below, rest - stirling, stirling - rest).to(F32)
    value = select((x == 1.0) | (x == 2.0), 0.0, value)
    return keep_nan(x, select(pole | (x == 0) | (abs(x) == INF), INF, value))


def digamma32(x: Symbol) -> Symbol:
    d = x.to(F64)
    below = d < 0
    a = select(below, 1.0 - d, d)
    small = a < 8.0
    b = select(small, a, 1.0)
    above, product = b.const(1.0), b                  # their quotient is the sum of 1 / (b + n), n < 8
    for n in range(1, 8):
        above = fma(above, b + float(n), product)
        product = product * (b + float(n))
    t = select(small, a + 8.0, select(a < 1e40, a, 1.0))
    inverse = 1.0 / t
    z = inverse * inverse
    value = finite_log(t) - 0.5 * inverse + z * _series(DIGAMMA[:7], z) - select(small, above / product, 0.0)
    sine, cosine = _sin_and_cos_pi(d)
    # psi(1 - x) - psi(x) = pi / tan(pi x), which has a pole at every whole number.
    value = select(below, select(sine == 0, NAN, value - PI * cosine / sine), value).to(F32)
    value = select(x == 0, copysign(x.const(INF), -x), value)
    value = select(x == INF, INF, select(x == -INF, NAN, value))
    return keep_nan(x, value)


def lgamma64(x: Symbol) -> Symbol:
    """Within 8 of 0 from lgamma(2 + d), `d` being what is missing to a whole number; Stirling's series beyond."""
    a = abs(x)
    direct = a < 8.0
    y = select(direct, x, 2.0)
    n = nearbyint(y)
    d = y - n
    product = x.const(1.0)
    for k in range(-8, 8):
        product = product * select(n > float(k) if k >= 2 else n <= float(k), d + float(k), 1.0)
    t = select(direct | (a > 1e306), 8.0, a)
    inverse = 1.0 / t
    stirling = fma(t - 0.5, finite_log(t) - 1.0, inverse * _series(STIRLING, inverse * inverse) + (LOG_SQRT_2PI - 0.5))
    # Gamma(a) Gamma(-a) = -pi / (a sin(pi a)) below -8.
    below = ~direct & (x < 0)
    sine = abs(_sin_and_cos_pi(select(below, a, 0.5))[0])
    factor = abs(select(direct, product, select(below, a * sine * (1 / PI), 1.0)))
    pole = factor == 0
    log_factor = finite_log(select(pole, 1.0, factor))
    value = fma(d, polynomial("lgamma_two.float64", d), select(n > 2.0, log_factor, -log_factor))
    value = select(direct, value, select(below, -stirling - log_factor, stirling))
    return keep_nan(x, select(pole | (a > 1e306), INF, value))


def digamma64(x: Symbol) -> Symbol:
    below = x < 0
    y = select(below, 1.0 - x, x)
    small = y < 8.0
    b = select(small, y, 1.0)
    n = floor(b)
    rest = b - n
    # digamma(1 + rest), and a sum of 1 / (rest + k) as a quotient; for n = 0 that of digamma(1 + b) - 1 / b.
    r = rest + 1.0
    base = ((r - DIGAMMA_ZERO[0]) - DIGAMMA_ZERO[1]) * polynomial("digamma_one.float64", rest - 0.5)
    first = n == 0
    above, product = select(first, b.const(-1.0), 0.0), select(first & (b > 0), b, 1.0)
    for k in range(1, 7):
        more = n > float(k)
        factor = select(more, rest + float(k), 1.0)
        above = fma(above, factor, select(more, product, 0.0))
        product = product * factor
    t = select(small, 8.0, y)
    inverse = 1.0 / t
    z = inverse * inverse
    large = finite_log(select(t < INF, t, 8.0)) - fma(-z, _series(DIGAMMA, z), 0.5 * inverse)
    value = select(small, base + above / product, large)
    sine, cosine = _sin_and_cos_pi(select(below & (x > -INF), x, 0.5))
    # digamma(1 - x) - digamma(x) = pi / tan(pi x), which has a pole at every whole number.
    value = select(below, select(sine == 0, NAN, value - PI * cosine / sine), value)
    value = select(x == 0, copysign(x.const(INF), -x), value)
    value = select(x == INF, INF, select(x == -INF, NAN, value))
    return keep_nan(x, value)


def _of_order_1(y: Symbol) -> Symbol:
    """trigamma(y) for y >= 0."""
    total = y.const(0.0)
    for k in range(8):
        total = total + 1.0 / ((y + float(k)) * (y + float(k)))
    inverse = 1.0 / (y + 8.0)
    z = inverse * inverse
    return total + fma(inverse * z, _series(TRIGAMMA, z), fma(0.5 * inverse, inverse, inverse))


def trigamma(x: Symbol) -> Symbol:
    below = x < 0
    value = _of_order_1(select(below, 1.0 - x, x))
    # trigamma(1 - x) + trigamma(x) = (pi / sin(pi x))**2
    around = PI / _sin_and_cos_pi(select(below, x, 0.5))[0]
    value = select(below, select(x > -INF, around * around - value, INF), value)
    return keep_nan(x, select(x == INF, 0.0, value))


def _of_order_2(y: Symbol) -> Symbol:
    """The derivative of trigamma for y >= 0."""
    total = y.const(0.0)
    for k in range(8):
        shifted = y + float(k)
        total = total + 2.0 / (shifted * shifted * shifted)
    inverse = 1.0 / (y + 8.0)
    z = inverse * inverse
    return -total - z * (1.0 + inverse - z * _series(TETRAGAMMA, z))


def tetragamma(x: Symbol) -> Symbol:
    below = x < 0
    value = _of_order_2(select(below, 1.0 - x, x))
    sine, cosine = _sin_and_cos_pi(select(below & (x > -INF), x, 0.5))
    around = PI / sine
    value = select(below, value - 2.0 * around * around * (PI * cosine / sine), value)
    return keep_nan(x, select(x == INF, -0.0, select(x == -INF, -INF, value)))
