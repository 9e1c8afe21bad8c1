"""Elementary functions of complex numbers, from real ones: both parts in float64, also for complex64.

Branch cuts, signed zeros and infinities are those of C99, annex G. The inverse functions follow Kahan 1987, "Branch
cuts for complex elementary functions", whose sums have terms of one sign. Errors are a few units of the result's
magnitude; the smaller part alone can be less accurate.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau_kernels.scalar.common import INF, NAN, clamp, keep_nan, polynomial
from flambeau_kernels.scalar.complexes import ComplexSymbol, as_complex, both
from flambeau_kernels.scalar.exponential import exp as real_exp
from flambeau_kernels.scalar.exponential import expm1, reduced
from flambeau_kernels.scalar.logarithm import asinh, finite_log
from flambeau_kernels.scalar.symbols import F64, Symbol, copysign, fma, scale, select, sqrt
from flambeau_kernels.scalar.trigonometric import atan2, cos, hypot64, sin

Parts = tuple[Symbol, Symbol]
LN2, LOG2_E, LOG10_E = 0.6931471805599453, 1.4426950408889634, 0.4342944819032518
HALF_PI = 1.5707963267948966


def _infinite(x: Symbol) -> Symbol:
    return abs(x) == INF


def _finite(x: Symbol) -> Symbol:
    return abs(x) < INF


def exp(x: Symbol, y: Symbol) -> Parts:
    k, p = reduced(clamp(x, -1400.0, 1400.0))
    e = keep_nan(x, p + 1.0)
    re, im = scale(e * cos(y), k), scale(e * sin(y), k)
    # At an infinite x and a y without a direction.
    lost = ~_finite(y)
    re = select(lost & _infinite(x), select(x < 0, x.const(0.0), INF), re)
    im = select(lost & (x == -INF), copysign(x.const(0.0), y), im)
    return select((y == 0) & (x == x), scale(e, k), re), select(y == 0, y, im)


def _log_of_size(x: Symbol, y: Symbol) -> Symbol:
    """log(hypot(x, y)) for finite x and y, not both 0."""
    a, b = abs(x), abs(y)
    large = select(a > b, a, b)
    up, down = large < 1e-140, large > 1e150
    factor = select(up, x.const(2.0**600), select(down, x.const(2.0**-600), 1.0))
    a, b = a * factor, b * factor
    size, rest = _square_minus_one(a, b)
    beside = (size > 0.5) & (size < 2.0) & ~up & ~down
    u = select(beside, rest + 1.0, size)
    correction = select(beside, (rest - (u - 1.0)) / u, 0.0)
    value = 0.5 * (finite_log(select(u > 0, u, 1.0)) + correction)
    return value + select(up, x.const(-600 * LN2), select(down, x.const(600 * LN2), 0.0))


def _square_minus_one(a: Symbol, b: Symbol) -> Parts:
    """a**2 + b**2, and the same less 1 without the loss of digits near 1."""
    one, two = a * a, b * b
    lost = fma(a, a, -one) + fma(b, b, -two)
    large, small = select(one > two, one, two), select(one > two, two, one)
    first = large - 1.0
    first_lost = large - (first + 1.0)
    total = first + small
    part = total - first
    total_lost = (first - (total - part)) + (small - part)
    return one + two, total + (total_lost + first_lost + lost)


def log(x: Symbol, y: Symbol) -> Parts:
    zero = (x == 0) & (y == 0)
    fit = _finite(x) & _finite(y) & ~zero
    size = _log_of_size(select(fit, x, 1.0), select(fit, y, 0.0))
    re = select(zero, -INF, select(_infinite(x) | _infinite(y), INF, select(fit, size, x + y)))
    return re, atan2(y, x)


def log1p(x: Symbol, y: Symbol) -> Parts:
    re, im = log(x + 1.0, y)
    # hypot(1 + x, y)**2 - 1, where 1 + x loses digits of a small x.
    near = (abs(x) < 0.5) & (abs(y) < 0.5)
    rest = select(near, fma(x, x + 2.0, y * y), 0.0)
    u = rest + 1.0
    return select(near, 0.5 * (finite_log(u) + (rest - (u - 1.0)) / u), re), im


def _scaled(function: Callable[[Symbol, Symbol], Parts], factor: float) -> Callable[[Symbol, Symbol], Parts]:
    def scaled(x: Symbol, y: Symbol) -> Parts:
        re, im = function(x, y)
        return re * factor, im * factor

    return scaled


def complex_sqrt(x: Symbol, y: Symbol) -> Parts:
    a, b = abs(x), abs(y)
    large = select(a > b, a, b)
    up, down = large < 1e-280, large > 1e300
    factor = select(up, x.const(2.0**200), select(down, x.const(0.0625), 1.0))
    back = select(up, x.const(2.0**-100), select(down, x.const(4.0), 1.0))
    a, b = a * factor, b * factor
    t = sqrt(0.5 * (a + hypot64(a, b)))
    other = select(t == 0, 0.0, b / (t + t)) * back
    t = t * back
    left = x.bits() < 0
    re, im = select(left, other, t), copysign(select(left, t, other), y)
    re = select((x == 0) & (y == 0), 0.0, re)
    re = select(_infinite(y), INF, select(x == INF, INF, select((x == -INF) & (y == y), 0.0, re)))
    im = select((x == INF) & (y == y), copysign(x.const(0.0), y), select(x == -INF, copysign(x.const(INF), y), im))
    nan = (x != x) | (y != y)
    return re, select(_infinite(y), y, select(nan & (x != -INF), NAN, im))


def _hyperbolic(a: Symbol) -> tuple[Symbol, Symbol, Symbol, Symbol]:
    """sinh(a) and cosh(a) for a >= 0, and (k, e) with exp(a) = 2**k e for what overflows."""
    k, p = reduced(clamp(a, 0.0, 1400.0))
    e = p + 1.0
    h = scale(e, k - 1.0)
    quarter = 0.25 / h
    z = select(a < 1.0, a * a, 0.0)
    near = fma(polynomial("sinh.float64", z) * z, a, a)
    return select(a < 1.0, near, h - quarter), h + quarter, k, e


def _sinh_and_cosh(x: Symbol, y: Symbol) -> tuple[Symbol, Symbol, Symbol, Symbol]:
    """sinh(x) cos(y), cosh(x) sin(y), cosh(x) cos(y) and sinh(x) sin(y)."""
    a = abs(x)
    s, c = sin(y), cos(y)
    sh, ch, k, e = _hyperbolic(a)
    far = a > 40.0
    # Beyond 40 both are half of exp(a), which may overflow where the product does not.
    by_cos, by_sin = scale(e * c, k - 1.0), scale(e * s, k - 1.0)
    sc, cs = select(far, by_cos, sh * c), select(far, by_sin, ch * s)
    cc, ss = select(far, by_cos, ch * c), select(far, by_sin, sh * s)
    left = x.bits() < 0
    sc, ss = select(left, -sc, sc), select(left, -ss, ss)
    # Where y is 0 or infinite: products of 0 and infinity that have a value.
    level, lost = y == 0, ~_finite(y)
    sc = select(level, select(x == 0, x, copysign(select(far, scale(e, k - 1.0), sh), x)), sc)
    cc = select(level, select(far, scale(e, k - 1.0), ch), cc)
    cs = select(level, y, cs)
    ss = select(level, select(x == x, _product_of_signs(x, y), y), ss)
    sc = select(lost, select(x == 0, x, select(_infinite(x), x.const(INF), NAN)), sc)
    cc = select(lost & _infinite(x), INF, cc)
    ss = select(lost & (x == 0), 0.0, ss)
    nan = x != x
    return select(nan, x, sc), select(nan & ~level, x, cs), select(nan, x, cc), select(nan & ~level, x, ss)


def _product_of_signs(x: Symbol, y: Symbol) -> Symbol:
    """Zero with the sign of x times y."""
    return copysign(x.const(0.0), copysign(x.const(1.0), x) * copysign(x.const(1.0), y))


def complex_sinh(x: Symbol, y: Symbol) -> Parts:
    re, im, _, _ = _sinh_and_cosh(x, y)
    return re, im


def complex_cosh(x: Symbol, y: Symbol) -> Parts:
    _, _, re, im = _sinh_and_cosh(x, y)
    return re, im


def complex_tanh(x: Symbol, y: Symbol) -> Parts:
    a = abs(x)
    s, c = sin(y), cos(y)
    sh, ch, _, _ = _hyperbolic(select(a < 350.0, a, 350.0))
    below = fma(sh, sh, c * c)
    re = copysign(select(a > 40.0, 1.0, sh * ch / below), x)
    im = s * c / below
    im = select(a > 375.0, copysign(x.const(0.0), im), im)
    edge = _infinite(x)
    lost = ~_finite(y)
    im = select(lost, select(edge, x.const(0.0), NAN), select(y == 0, y, im))
    re = select(lost & ~edge & (x != 0), NAN, select(x == 0, x, re))
    nan = x != x
    return select(nan, x, re), select(nan & (y != 0), x, im)


def _roots(x: Symbol, y: Symbol) -> tuple[Parts, Parts]:
    """sqrt(1 - z) and sqrt(1 + z)."""
    return complex_sqrt(1.0 - x, -y), complex_sqrt(x + 1.0, y)


def _finite_or_half(x: Symbol, y: Symbol) -> tuple[Symbol, Symbol, Symbol]:
    """Whether both parts are finite, and these, 0.5 in their place where they are not: what is not selected has to be computed too."""
    fit = _finite(x) & _finite(y)
    return fit, select(fit, x, 0.5), select(fit, y, 0.5)


def complex_asin(x: Symbol, y: Symbol) -> Parts:
    fit, u, v = _finite_or_half(x, y)
    (p, q), (r, t) = _roots(u, v)
    re, im = atan2(u, p * r - q * t), asinh(p * t - q * r)
    infinite = _infinite(x) | _infinite(y)
    re = select(fit, re, select(infinite, atan2(x, abs(y)), NAN))
    im = select(fit, copysign(im, y), select(infinite, copysign(x.const(INF), y), NAN))
    return select((x == 0) & ~_infinite(y), x, re), im


def complex_acos(x: Symbol, y: Symbol) -> Parts:
    fit, u, v = _finite_or_half(x, y)
    (p, q), (r, t) = _roots(u, v)
    re, im = 2.0 * atan2(p, r), asinh(r * q - t * p)
    infinite = _infinite(x) | _infinite(y)
    re = select(fit, re, select(infinite, atan2(abs(y), x), NAN))
    im = select(fit, copysign(im, -y), select(infinite, copysign(x.const(INF), -y), NAN))
    return select((x == 0) & (y != y), HALF_PI, re), im


def complex_acosh(x: Symbol, y: Symbol) -> Parts:
    u, v = complex_acos(x, y)
    return abs(v), copysign(u, y)


def complex_atanh(x: Symbol, y: Symbol) -> Parts:
    a, b = abs(x), abs(y)
    infinite = _infinite(x) | _infinite(y)
    large = (a > 1e100) | (b > 1e100)
    u, v = select(large, 0.5, a), select(large, 0.5, b)
    less = 1.0 - u
    below = fma(less, less, v * v)
    point = (less == 0) & (v < 1e-100)                # at the pole, where squares of v vanish
    w = select(point, 0.0, 4.0 * u / select(point, 1.0, below))
    shifted = w + 1.0
    argument = select(point, 2.0 / clamp(v, 1e-307, 1.0), shifted)
    re = finite_log(argument) + select(point | (shifted == INF), 0.0, (w - (shifted - 1.0)) / shifted)
    re = select(point, select(v == 0, INF, 0.5 * re), 0.25 * re)
    im = 0.5 * atan2(v + v, fma(less, u + 1.0, -(v * v)))
    size = hypot64(select(infinite, 1.0, a * 0.25), select(infinite, 1.0, b * 0.25))
    re = select(large, select(infinite, 0.0, a * 0.25 / size / size * 0.25), re)
    im = select(large, HALF_PI, im)
    nan = (x != x) | (y != y)
    re = select(nan & ~infinite & (x != 0), NAN, select(nan & (x == 0), 0.0, re))
    im = select(nan & ~_infinite(y), NAN, im)
    return copysign(re, x), copysign(im, y)


def _turned(function: Callable[[Symbol, Symbol], Parts]) -> Callable[[Symbol, Symbol], Parts]:
    """-i f(i z) for an odd f: sin from sinh, asinh from asin, ..."""
    def turned(x: Symbol, y: Symbol) -> Parts:
        u, v = function(-y, x)
        return v, -u

    return turned


def complex_sin(x: Symbol, y: Symbol) -> Parts:
    u, v = complex_sinh(-y, x)
    return v, select(_infinite(y) & ~_finite(x), INF, -u)


def complex_cos(x: Symbol, y: Symbol) -> Parts:
    return complex_cosh(-y, x)


_OF_ONE = {
    "exp": exp, "log": log, "log1p": log1p, "log2": _scaled(log, LOG2_E),
    "log10": _scaled(log, LOG10_E), "sqrt": complex_sqrt,
    "sinh": complex_sinh, "cosh": complex_cosh, "tanh": complex_tanh, "sin": complex_sin, "cos": complex_cos,
    "tan": _turned(complex_tanh), "asin": complex_asin, "acos": complex_acos, "acosh": complex_acosh,
    "asinh": _turned(complex_asin), "atanh": complex_atanh, "atan": _turned(complex_atanh),
}  # fmt: skip


def _of_parts(function: Callable[[Symbol, Symbol], Parts]) -> Callable[[ComplexSymbol], ComplexSymbol]:
    def word(z: ComplexSymbol) -> ComplexSymbol:
        re, im = function(z.re.to(F64), z.im.to(F64))
        return ComplexSymbol(re.to(z.kind), im.to(z.kind))

    return word


def complex_expm1(z: ComplexSymbol) -> ComplexSymbol:
    x, y = z.re.to(F64), z.im.to(F64)
    s, c = sin(y), cos(y)
    less = select(c > 0, -(s * s) / (c + 1.0), c - 1.0)   # cos(y) - 1
    size = real_exp(x).to(z.kind)                     # an infinite one times 0 is nan, as PyTorch has it
    return ComplexSymbol(fma(expm1(x), c, less).to(z.kind), (size.to(F64) * s).to(z.kind))


def sign(z: ComplexSymbol) -> ComplexSymbol:
    size = abs(z)
    zero = size == 0
    safe = select(zero, 1.0, size)
    return ComplexSymbol(select(zero, 0.0, z.re / safe), select(zero, 0.0, z.im / safe))


def _product(a: Symbol, b: Symbol, c: Symbol, d: Symbol) -> Parts:
    """(a + b i) (c + d i), which is infinite where either is: the recommended product of C99, annex G.5.1."""
    re, im = a * c - b * d, a * d + b * c
    infinite = _infinite(a) | _infinite(b) | _infinite(c) | _infinite(d)
    lost = (re != re) & (im != im) & infinite
    (a, b), (c, d) = _direction(a, b), _direction(c, d)
    return select(lost, INF * (a * c - b * d), re), select(lost, INF * (a * d + b * c), im)


def _direction(a: Symbol, b: Symbol) -> Parts:
    """1 and 0 for the infinite and finite parts of an infinite number; 0 for nan in any other one."""
    infinite = _infinite(a) | _infinite(b)
    parts = []
    for part in (a, b):
        finite = select(infinite | (part != part), 0.0, part)
        parts.append(select(_infinite(part), copysign(part.const(1.0), part), copysign(finite, part)))
    return parts[0], parts[1]


def power(base: Any, exponent: Any) -> ComplexSymbol:
    """exp(exponent log(base)); what 0 gives depends on the exponent's real part."""
    if isinstance(exponent, (int, float)) and exponent in (0.5, 1, 2):
        return {0.5: WORDS["sqrt"], 1: lambda z: z, 2: lambda z: z * z}[exponent](base)
    z, w = both(base, exponent)
    kind = z.kind
    z, w = as_complex(z, F64), as_complex(w, F64)
    fit = (z.re != 0) | (z.im != 0)
    u, v = log(select(fit, z.re, 1.0), select(fit, z.im, 0.0))
    re, im = exp(*_product(w.re, w.im, u, v))
    at_zero = select(w.re > 0, 0.0, select(w.re < 0, INF, z.re.const(NAN)))
    re = select(fit, re, at_zero)
    im = select(fit, im, select(w.re > 0, z.re.const(0.0), NAN))
    return ComplexSymbol(re.to(kind), im.to(kind))


WORDS: dict[str, Callable[..., Any]] = {
    **{word: _of_parts(function) for word, function in _OF_ONE.items()},
    "exp2": lambda z: WORDS["exp"](ComplexSymbol(z.re * LN2, z.im * LN2)), "expm1": complex_expm1, "sign": sign,
    "rsqrt": lambda z: 1.0 / WORDS["sqrt"](z),
    "sigmoid": lambda z: 1.0 / (WORDS["exp"](-z) + 1.0), "pow": power,
}  # fmt: skip
