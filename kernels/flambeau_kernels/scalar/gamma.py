"""lgamma and digamma of float32, computed in float64.

For float64 neither is here: near their zeros the absolute error of these formulas is too large, so the numpy
tier, which has scipy's, keeps them.
"""
from __future__ import annotations

from flambeau_kernels.scalar.common import INF, NAN, keep_nan, polynomial
from flambeau_kernels.scalar.logarithm import finite_log
from flambeau_kernels.scalar.symbols import F32, F64, Symbol, copysign, fma, nearbyint, select

PI = 3.141592653589793
LOG_SQRT_2PI = 0.9189385332046727
# Stirling's series in 1/x**2, B(2n) / (2n (2n-1)) and -B(2n) / 2n: Abramowitz and Stegun 1964, 6.1.41 and
# 6.3.18.
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
DIGAMMA = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132, 691 / 32760, -1 / 12)


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
    value = finite_log(t) - 0.5 * inverse + z * _series(DIGAMMA, z) - select(small, above / product, 0.0)
    sine, cosine = _sin_and_cos_pi(d)
    # psi(1 - x) - psi(x) = pi / tan(pi x), which has a pole at every whole number.
    value = select(below, select(sine == 0, NAN, value - PI * cosine / sine), value).to(F32)
    value = select(x == 0, copysign(x.const(INF), -x), value)
    value = select(x == INF, INF, select(x == -INF, NAN, value))
    return keep_nan(x, value)
