"""The scaled error function, and the logarithm and the inverse of the normal distribution function.

Float32 is computed in float64 with shorter two_chainss.
"""
from __future__ import annotations

from collections.abc import Callable

from flambeau_kernels.scalar.common import INF, NAN, clamp, keep_nan, polynomial, two_chains
from flambeau_kernels.scalar.error import ERFC_K, SQRT_HALF
from flambeau_kernels.scalar.exponential import exp, medium_exp
from flambeau_kernels.scalar.logarithm import finite_log, medium_log
from flambeau_kernels.scalar.symbols import F32, F64, Symbol, fma, select, sqrt

SQRT_HALF_PI = 1.2533141373155003
NDTRI_MIDDLE = 0.2                                    # see .ci/coefficients_of_special.py
_LOG: dict[str, Callable[[Symbol], Symbol]] = {"float64": finite_log, "float32": medium_log}
_EXP: dict[str, Callable[[Symbol], Symbol]] = {"float64": exp, "float32": medium_exp}


def _scaled(a: Symbol, accuracy: str) -> Symbol:
    """erfcx(a) for a >= 0."""
    b = clamp(a, 0.0, 1e18)
    return polynomial(f"erfc.{accuracy}", (b - ERFC_K) / (b + ERFC_K)) / fma(a, 2.0, 1.0)


def erfcx(x: Symbol, accuracy: str) -> Symbol:
    a = abs(x)
    tail = _scaled(a, accuracy)
    # erfcx(-a) = 2 exp(a**2) - erfcx(a)
    b = clamp(a, 0.0, 26.62)
    square = b * b
    twice = 2.0 * _EXP[accuracy](square) if accuracy == "float64" else 2.0 * medium_exp(clamp(square, 0.0, 200.0))
    mirrored = twice + fma(twice, fma(b, b, -square), -tail)
    mirrored = select(a > 26.7, INF, mirrored)
    return keep_nan(x, select(x < 0, mirrored, tail))


def log_ndtr(x: Symbol, accuracy: str) -> Symbol:
    # Below 0 from the scaled tail, whose logarithm does not underflow; above 0 from what is missing to 1.
    a = clamp(abs(x), 0.0, 1e160)
    half_square = 0.5 * a * a
    lost = select(a < 1e100, fma(0.5 * a, a, -half_square), 0.0)
    tail = 0.5 * _scaled(a * SQRT_HALF, accuracy)
    small = tail * _EXP[accuracy](-clamp(half_square, 0.0, 800.0 if accuracy == "float64" else 200.0))
    small = small - small * lost
    below = x < 0
    rest = 1.0 - small
    logarithm = _LOG[accuracy](select(below, clamp(tail, 1e-300, 1.0), rest))
    missing = ((1.0 - rest) - small) / rest           # what rounding 1 - small lost
    value = select(below, logarithm - half_square - lost, select(rest == 1.0, -small, logarithm + missing))
    return keep_nan(x, select(x == -INF, -INF, value))


def ndtri(x: Symbol, accuracy: str) -> Symbol:
    lower = x < 0.5
    q = select(lower, x, 1.0 - x)                     # exact above 1/2
    middle = q > NDTRI_MIDDLE
    r = select(middle & (q <= 0.5), 0.5 - q, 0.0)
    central = r * two_chains(f"ndtri.{accuracy}", r * r)
    a = select(middle, central, _quantile_of_tail(select(middle | ~(q > 0), 0.1, q), accuracy))
    value = select(lower, -a, a)
    value = select(x == 0, -INF, select(x == 1.0, INF, value))
    return select((x >= 0) & (x <= 1.0), value, NAN)


def _quantile_of_tail(q: Symbol, accuracy: str) -> Symbol:
    """-ndtri(q) for 0 < q <= NDTRI_MIDDLE."""
    log_q = _LOG[accuracy](q)
    v = sqrt(-2.0 * log_q)
    tail = "ndtri_tail.float64" if accuracy == "float64" else "ndtri_tail_single.float32"
    a = v * two_chains(tail, 1.0 / v)
    if accuracy == "float32":
        return a
    # A step of Halley's method on log(ndtr(-a)) - log(q); `mills` is ndtr(-a) over its derivative.
    scaled = _scaled(a * SQRT_HALF, accuracy)
    square = 0.5 * a * a
    excess = (finite_log(0.5 * scaled) - square - log_q) - fma(0.5 * a, a, -square)
    mills = SQRT_HALF_PI * scaled
    # The second derivative of the logarithm over twice the first one is (1 / mills - a) / 2.
    return fma(excess * mills, fma(-0.5 * excess, 1.0 - a * mills, 1.0), a)


_FUNCTIONS = {"special_erfcx": erfcx, "special_log_ndtr": log_ndtr, "special_ndtri": ndtri}
DOUBLE = {word: (lambda x, f=function: f(x, "float64")) for word, function in _FUNCTIONS.items()}
SINGLE = {word: (lambda x, f=function: f(x.to(F64), "float32").to(F32)) for word, function in _FUNCTIONS.items()}
