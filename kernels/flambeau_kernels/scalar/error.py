"""The error function, its complement and its inverse; the standard normal's distribution function."""
from __future__ import annotations

from flambeau_kernels.scalar.coefficients import COEFFICIENTS
from flambeau_kernels.scalar.common import INF, NAN, clamp, keep_nan, least, one_of, polynomial
from flambeau_kernels.scalar.exponential import ROUNDS_32, exp, medium_exp, times_two_to
from flambeau_kernels.scalar.logarithm import medium_log
from flambeau_kernels.scalar.symbols import F32, F64, Symbol, copysign, fma, select, sqrt

TWO_OVER_SQRT_PI = 1.1283791670955126
SQRT_HALF = 0.7071067811865476
INV_SQRT_TAU = 0.3989422804014327
HALF_LOG2_E = 0.7213475204444817
ERFC_K, NDTR_K = 3.75, 4.0                            # see .ci/make_coefficients.py
NDTR_ZERO = 12.9                                      # from here on the lower tail is less than float32's smallest normal number


def erf32(x: Symbol) -> Symbol:
    a = abs(x)
    far = a >= 0.92                                   # not so for nan, which comes through the other way
    b = least(a, 4.0)
    p = one_of(far, COEFFICIENTS["erf_exponent.float32"], COEFFICIENTS["erf.float32"], select(far, b, x * x))
    return select(far, copysign(1.0 - _exp2_of_product(b, p), x), fma(p, x, x))


def _exp2_of_product(a: Symbol, b: Symbol) -> Symbol:
    """2**(a b) in float32, the product not rounded, for |a b| < 100; some number for any other."""
    t = fma(a, b, ROUNDS_32)
    r = fma(a, b, -(t - ROUNDS_32))
    p = fma(r, polynomial("exp2_short.float32", r), 1.0)
    return times_two_to(t, p)


def erf64(x: Symbol) -> Symbol:
    a, z = abs(x), x * x
    near = fma(polynomial("erf.float64", z), x, x)
    return keep_nan(x, select(a < 0.92, near, copysign(1.0 - _erfc_of_positive(a), x)))


def _erfc_of_positive(a: Symbol) -> Symbol:
    a = clamp(a, 0.0, 30.0)
    square = a * a
    return _scaled_tail(a, square, fma(a, a, -square))


def _scaled_tail(a: Symbol, square: Symbol, lost: Symbol) -> Symbol:
    """erfc(a) for a >= 0, whose square is `square` + `lost`."""
    t = (a - ERFC_K) / (a + ERFC_K)
    e = exp(-square)
    return fma(e, -lost, e) * (polynomial("erfc.float64", t) / fma(a, 2.0, 1.0))


def erfc64(x: Symbol) -> Symbol:
    tail = _erfc_of_positive(abs(x))
    far = select(x < 0, 2.0 - tail, tail)
    # The scaled polynomial is least accurate near 0, where this one is short of nothing.
    near = 1.0 - fma(polynomial("erf.float64", x * x), x, x)
    return keep_nan(x, select(abs(x) < 0.6, near, far))


def erfc32(x: Symbol) -> Symbol:
    a = clamp(abs(x).to(F64), 0.0, 12.0)
    tail = medium_exp(-a * a) * (polynomial("erfc.float32", (a - ERFC_K) / (a + ERFC_K)) / fma(a, 2.0, 1.0))
    return keep_nan(x, select(x < 0, 2.0 - tail, tail).to(F32))


def _half_square32(a: Symbol) -> Symbol:
    """exp(-a**2 / 2) in float32 for 0 <= a < 13, to 4 units below 3; some number, or nan, for any other a."""
    square = a * a
    t = fma(square, -HALF_LOG2_E, ROUNDS_32)
    r = fma(square, -HALF_LOG2_E, -(t - ROUNDS_32))
    p = fma(r, polynomial("exp2_short.float32", r), 1.0)
    return times_two_to(t, p)


def ndtr32(x: Symbol) -> Symbol:
    """By one exponential and one division. nan comes through by itself."""
    a = abs(x)
    share = 1.0 / (a + NDTR_K)
    scaled = share * polynomial("ndtr.float32", fma(share, -2 * NDTR_K, 1.0))
    half = select(a >= NDTR_ZERO, 0.0, _half_square32(a) * scaled)
    return select(x < 0, half, 1.0 - half)


def normal_density32(x: Symbol) -> Symbol:
    """By the exponential that `ndtr32` has, which is there once where both are computed."""
    a = abs(x)
    return keep_nan(x, select(a >= NDTR_ZERO, 0.0, _half_square32(a) * INV_SQRT_TAU))


def ndtr64(x: Symbol) -> Symbol:
    # From half the square of x itself: that of x / sqrt(2), which is rounded, would be off by many units.
    a = clamp(abs(x), 0.0, 40.0)
    square = 0.5 * a * a
    half = 0.5 * _scaled_tail(a * SQRT_HALF, square, fma(0.5 * a, a, -square))
    return keep_nan(x, select(x < 0, half, 1.0 - half))


def normal_density64(x: Symbol) -> Symbol:
    a = clamp(abs(x), 0.0, 40.0)
    square = 0.5 * a * a
    e, lost = exp(-square), fma(0.5 * a, a, -square)
    return keep_nan(x, fma(e, -lost, e) * INV_SQRT_TAU)


def _erfinv_near(x: Symbol, accuracy: str) -> Symbol:
    """erfinv(x) to about 1e-9, for |x| < 1; float64."""
    w = -medium_log(select(abs(x) < 1.0, (1.0 - x) * (x + 1.0), 1.0))
    near = polynomial(f"erfinv.{accuracy}", w)
    far = polynomial(f"erfinv_tail.{accuracy}", sqrt(clamp(w, 4.9, 37.0)))
    return x * select(w < 5.0, near, far)


def _at_the_ends(x: Symbol, y: Symbol) -> Symbol:
    y = select(abs(x) == 1.0, copysign(x.const(INF), x), y)
    return select(abs(x) > 1.0, NAN, keep_nan(x, y))


def erfinv32(x: Symbol) -> Symbol:
    return _at_the_ends(x, _erfinv_near(x.to(F64), "float32").to(F32))


def erfinv64(x: Symbol) -> Symbol:
    a = abs(x)
    y = clamp(_erfinv_near(a, "float64"), 0.0, 30.0)  # it is less than 6: so clamped, that of erfc is the same instruction
    square = y * y
    # One step of Halley's method; the difference comes from erfc where erf would have lost it. Below 1/2 erf is near 0 too.
    erf = fma(polynomial("erf.float64", square), y, y)
    excess = select(a < 0.5, erf - a, (1.0 - a) - _scaled_tail(y, square, fma(y, y, -square)))
    # Newton's step s, and Halley's, s / (1 + y s), by one division.
    slope = TWO_OVER_SQRT_PI * exp(-square)
    y = y - excess / fma(y, excess, slope)
    return _at_the_ends(x, copysign(y, x))
