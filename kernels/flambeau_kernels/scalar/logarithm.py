"""Logarithms, the inverse hyperbolic functions made of them, and powers.

x = 2**k (1 + f) with 1 + f between sqrt(1/2) and sqrt(2); log(1 + f) = 2 atanh(s), s = f / (2 + f).
"""
from __future__ import annotations

from flambeau_kernels.scalar.common import INF, NAN, clamp, keep_nan, polynomial, two_product, two_sum
from flambeau_kernels.scalar.exponential import LN2_32, LN2_64, LOG2_E, exp, medium_exp
from flambeau_kernels.scalar.symbols import (
    F32,
    F64,
    Symbol,
    convert,
    copysign,
    fma,
    nearbyint,
    scale,
    select,
    shift_left,
    shift_right,
    sqrt,
)

# Bits of sqrt(1/2), width of the fraction, power of two that lifts subnormals, smallest normal number.
_PARTS = {32: (0x3F3504F3, 23, 23, 1.1754943508222875e-38), 64: (0x3FE6A09E667F3BCD, 52, 54,
                                                                 2.2250738585072014e-308)}
LOG2_E_LOW = 2.0355273740931033e-17                   # log2(e) - LOG2_E
LOG10_E = (0.4342944819032518, 1.098319650216765e-17)
LOG10_2 = (float.fromhex("0x1.34413509f7800p-2"), float.fromhex("0x1.fef311f12b358p-46"))
TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)


def split(x: Symbol, normal: bool = False) -> tuple[Symbol, Symbol]:
    """(k, f) with x = 2**k (1 + f), for finite x > 0; `normal` promises that it is not subnormal."""
    root, width, lift, least = _PARTS[x.kind.bits]
    if normal:
        exponent = shift_right(x.bits() - root, width)
        return convert(exponent, x.kind), (x.bits() - shift_left(exponent, width)).float_of_bits() - 1.0
    small = x < least
    bits = select(small, x * float(1 << lift), x).bits()
    exponent = shift_right(bits - root, width)
    mantissa = (bits - shift_left(exponent, width)).float_of_bits()
    return convert(exponent, x.kind) - select(small, x.const(float(lift)), 0.0), mantissa - 1.0


def finite_log(x: Symbol) -> Symbol:
    """log(x) for finite x > 0."""
    k, f = split(x)
    s = f / (f + 2.0)
    z = s * s
    tail = z * polynomial(f"log.{x.kind.name}", z)
    half_square = 0.5 * f * f
    # f - f**2/2 + s (f**2/2 + tail) is 2s + s tail with its largest term exact.
    high, low = LN2_32 if x.kind is F32 else LN2_64
    return fma(k, high, f - (half_square - fma(s, half_square + tail, k * low)))


def _limits(x: Symbol, y: Symbol) -> Symbol:
    """`y` = log(x) put right at 0, infinity, below 0 and at nan."""
    y = select(x == 0, -INF, y)
    y = select(x < 0, NAN, y)
    return select(x < INF, y, x)


def log(x: Symbol) -> Symbol:
    return _limits(x, finite_log(x))


def log_pair(f: Symbol) -> tuple[Symbol, Symbol]:
    """log(1 + f) as an unevaluated sum, good to about 2**-65; float64."""
    d, d_low = two_sum(2.0, f)
    s = f / d
    s_low = fma(s, -d_low, fma(-s, d, f)) / d
    z, z_low = two_product(s, s)
    z_low = fma(s + s, s_low, z_low)
    t, t_low = two_sum(TWO_THIRDS[0], z * polynomial("log_second.float64", z))
    t_low = t_low + TWO_THIRDS[1]
    w, w_low = two_product(z, t)
    w_low = fma(z, t_low, fma(z_low, t, w_low))
    u, u_low = two_product(s, w)
    u_low = fma(s, w_low, fma(s_low, w, u_low))
    high, low = two_sum(s + s, u)
    return high, low + (s_low + s_low + u_low)


def log2(x: Symbol) -> Symbol:
    k, f = split(x)
    high, low = log_pair(f)
    p, p_low = two_product(high, high.const(LOG2_E))
    p_low = fma(low, LOG2_E, fma(high, LOG2_E_LOW, p_low))
    y, y_low = two_sum(k, p)
    return _limits(x, y + (y_low + p_low))


def log10(x: Symbol) -> Symbol:
    k, f = split(x)
    high, low = log_pair(f)
    p, p_low = two_product(high, high.const(LOG10_E[0]))
    p_low = fma(low, LOG10_E[0], fma(high, LOG10_E[1], p_low))
    y, y_low = two_sum(k * LOG10_2[0], p)
    return _limits(x, y + (y_low + fma(k, LOG10_2[1], p_low)))


def log1p(x: Symbol) -> Symbol:
    u = x + 1.0
    # What rounding 1 + x lost, first order (Goldberg 1991, "What every computer scientist ...", theorem 4).
    lost = select(x < 1.0, x - (u - 1.0), 1.0 - (u - x))
    y = finite_log(u) + select((u > 0) & (u < INF), lost / u, 0.0)
    return select(abs(x) < 1e-20, x, _limits(u, y))


def asinh(x: Symbol) -> Symbol:
    a = abs(x)
    square = a * a
    far = a > 2.0**54                                 # there asinh(a) is log(2a), and 1 + a is a
    y = log1p(select(far, a, a + square / (sqrt(square + 1.0) + 1.0)))
    return copysign(y + select(far, x.const(0.6931471805599453), 0.0), x)


def acosh(x: Symbol) -> Symbol:
    t = x - 1.0
    far = x > 2.0**54
    y = log1p(select(far, x, t + sqrt(fma(t, t, t + t))))
    y = y + select(far, x.const(0.6931471805599453), 0.0)
    return keep_nan(x, select(x >= 1.0, y, NAN))


def atanh(x: Symbol) -> Symbol:
    a = abs(x)
    return copysign(0.5 * log1p((a + a) / (1.0 - a)), x)


def log1p_exp(x: Symbol) -> Symbol:
    far = x > 40.0                                    # there 1 is below the rounding of exp(x)
    return select(far, x, log1p(exp(select(far, 40.0, x))))


def log1p_exp32(x: Symbol) -> Symbol:
    """log(1 + exp(x)) with the rounding errors of its steps carried along: all in float32, and nearly rounded once."""
    a = clamp(-abs(x), -110.0, 0.0)
    k = nearbyint(a * LOG2_E)
    high = fma(k, -LN2_32[0], a)                      # exact
    r = fma(k, -LN2_32[1], high)
    e, lost = two_sum(1.0, r)
    lost = lost + fma(r * r, polynomial("exp_medium.float32", r), fma(k, -LN2_32[1], high - r))
    e, e_low = two_sum(e, lost)
    e, e_low = scale(e, k), scale(e_low, k)           # exp(a), at most 1
    # log(1 + e) is 2 atanh(y / 2) of y = 2e / (2 + e).
    d, d_low = two_sum(2.0, e)
    share = 1.0 / d
    twice = e + e
    y = twice * share
    y_low = fma(-y, d_low + e_low, fma(-y, d, twice) + (e_low + e_low)) * share
    s = 0.5 * y
    z = s * s
    y_low = fma(s * z, polynomial("log1p_of_fraction.float32", z), y_low)
    beside = select(x > 0, x, 0.0)
    total = beside + y
    back = total - beside
    lost = (beside - (total - back)) + (y - back)     # either may be the larger (Knuth 1969, section 4.2.2, theorem B)
    return keep_nan(x, select(x > 100.0, x, total + (lost + y_low)))


# Functions of float32: computed in float64, whose range and precision spare the care taken above.
def medium_log(x: Symbol) -> Symbol:
    """log(x) to about 2**-42, for x in float64 that is positive and neither subnormal nor infinite."""
    root, width = _PARTS[64][:2]
    bits = x.bits()
    exponent = shift_right(bits - root, width)
    f = (bits - shift_left(exponent, width)).float_of_bits() - 1.0
    s = f / (f + 2.0)
    z = s * s
    return fma(convert(exponent, F64), 0.6931471805599453, fma(z * polynomial("log_medium.float32", z), s,
                                                               s + s))


def _near_one(x: Symbol, series: tuple[float, float], argument: Symbol, factor: float = 1.0) -> Symbol:
    """x + series[0] x**2 + series[1] x**3 for small x, where log(argument) has few digits; elsewhere the latter."""
    small = fma(x * x, fma(x, series[1], series[0]), x)
    return select(abs(x) < 1e-4, small, factor * medium_log(argument))


def log2_32(x: Symbol) -> Symbol:
    return _limits(x, (medium_log(x.to(F64)) * LOG2_E).to(F32))


def log10_32(x: Symbol) -> Symbol:
    return _limits(x, (medium_log(x.to(F64)) * LOG10_E[0]).to(F32))


def log1p_32(x: Symbol) -> Symbol:
    d = x.to(F64)
    y = _near_one(d, (-0.5, 1 / 3), d + 1.0).to(F32)
    return select(x == 0, x, _limits(x + 1.0, select(x == -1.0, -INF, y)))


def asinh32(x: Symbol) -> Symbol:
    a = abs(x).to(F64)
    y = _near_one(a, (0.0, -1 / 6), a + sqrt(fma(a, a, 1.0))).to(F32)
    return select(abs(x) < INF, copysign(y, x), x)


def acosh32(x: Symbol) -> Symbol:
    d = x.to(F64)
    root = sqrt((d - 1.0) * (d + 1.0))                # nan below 1
    y = select(x >= 1.0, medium_log(d + root).to(F32), NAN)
    return keep_nan(x, select(x == INF, INF, y))


def atanh32(x: Symbol) -> Symbol:
    a = abs(x).to(F64)
    y = _near_one(a, (0.0, 1 / 3), (a + 1.0) / (1.0 - a), 0.5).to(F32)
    y = select(abs(x) == 1.0, INF, select(abs(x) > 1.0, NAN, y))
    return keep_nan(x, copysign(y, x))


def pow64(x: Symbol, y: Symbol) -> Symbol:
    a = abs(x)
    k, f = split(a)
    high, low = log_pair(f)
    main, main_low = two_sum(k * LN2_64[0], high)
    main_low = main_low + fma(k, LN2_64[1], low)
    main, main_low = two_sum(main, main_low)
    t, t_low = two_product(y, main)
    t_low = select(abs(t) < 800.0, fma(y, main_low, t_low), 0.0)
    return _power_limits(x, y, exp_of_pair(clamp(t, -800.0, 800.0), t_low))


def exp_of_pair(t: Symbol, t_low: Symbol) -> Symbol:
    """exp(t + t_low), float64."""
    k = nearbyint(t * LOG2_E)
    rest, rest_low = two_sum(fma(k, -LN2_64[0], t), fma(k, -LN2_64[1], t_low))
    p = fma(rest * rest, polynomial("exp.float64", rest), rest_low) + rest
    return scale(p + 1.0, k)


def pow32(x: Symbol, y: Symbol) -> Symbol:
    t = clamp(y.to(F64) * medium_log(abs(x).to(F64)), -200.0, 200.0)
    return _power_limits(x, y, medium_exp(t).to(F32))


def _power_limits(x: Symbol, y: Symbol, value: Symbol) -> Symbol:
    """`value` = |x|**y put right for signs, zeros, infinities and nan, as C's pow has them."""
    a = abs(x)
    is_integral = nearbyint(y) == y
    odd = is_integral & (nearbyint(y * 0.5) != y * 0.5)
    grows = (y > 0) ^ (a < 1.0)                       # |x|**y for an infinite |x| or |y|, and for x = 0
    value = select((a == 0) | (a == INF) | (abs(y) == INF), select(grows, INF, x.const(0.0)), value)
    value = select((a == 1.0) & (abs(y) == INF), 1.0, value)
    value = select(odd & (x.bits() < 0), -value, value)
    value = select((x < 0) & ~is_integral & (a < INF), NAN, value)
    value = select((x == x) & (y == y), value, x + y)
    return select((y == 0) | (x == 1.0), 1.0, value)
