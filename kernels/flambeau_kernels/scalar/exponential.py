"""exp and its relatives: 2**k times a polynomial on half a binary octave."""
from __future__ import annotations

from flambeau_kernels.scalar.coefficients import COEFFICIENTS
from flambeau_kernels.scalar.common import INF, clamp, keep_nan, least, one_of, polynomial
from flambeau_kernels.scalar.symbols import (
    F32,
    INT,
    Symbol,
    copysign,
    fma,
    nearbyint,
    power_of_two,
    scale,
    select,
    shift_left,
    to_integer,
)

LOG2_E = 1.4426950408889634
# ln 2 in two parts; the first has so few bits that its multiples are exact (Cody and Waite 1980, "Software
# Manual for the Elementary Functions").
LN2_32 = (0.693359375, -0.00021219444005469057)
LN2_64 = (float.fromhex("0x1.62e42fefa0000p-1"), float.fromhex("0x1.cf79abc9e3b3ap-40"))
# Beyond these exp is 0 or infinite, and the scaling below makes it so.
RANGE = {32: (-110.0, 90.0), 64: (-760.0, 712.0)}


def reduced(x: Symbol) -> tuple[Symbol, Symbol]:
    """(k, p) with exp(x) = 2**k (1 + p), k whole, for x in RANGE."""
    k = nearbyint(x * LOG2_E)
    if x.kind is F32:
        r = fma(k, -LN2_32[0], x)
        r = fma(k, -LN2_32[1], r)
        return k, fma(r * r, polynomial("exp.float32", r), r)
    high, low = fma(k, -LN2_64[0], x), k * LN2_64[1]
    r = high - low
    lost = (high - r) - low
    return k, fma(r * r, polynomial("exp.float64", r), lost) + r


def exp(x: Symbol) -> Symbol:
    k, p = reduced(clamp(x, *RANGE[x.kind.bits]))
    return keep_nan(x, scale(p + 1.0, k))


# Added to a float32 below 2**22 it leaves that rounded to a whole number, which is then in the lowest bits of the sum.
ROUNDS_32 = 12582912.0


def times_two_to(t: Symbol, p: Symbol) -> Symbol:
    """2**k p in float32, where k + ROUNDS_32 is `t`; some number where that is not a normal one."""
    return (shift_left(t.bits(), 23) + p.bits()).float_of_bits()


def half_exp(x: Symbol) -> Symbol:
    """exp(x) / 2, also where exp(x) alone would overflow; `x` not nan."""
    k, p = reduced(clamp(x, *RANGE[x.kind.bits]))
    return scale(p + 1.0, k - 1.0)


def medium_exp(x: Symbol) -> Symbol:
    """exp(x) to about 2**-34, for x in float64 within 700 of 0: enough for results in float32."""
    k = nearbyint(x * LOG2_E)
    r = fma(k, -0.6931471805599453, x)
    return scale(fma(r * r, polynomial("exp_medium.float32", r), r) + 1.0, k)


def exp2(x: Symbol) -> Symbol:
    low, high = (-160.0, 130.0) if x.kind is F32 else (-1080.0, 1026.0)
    y = clamp(x, low, high)
    k = nearbyint(y)
    r = y - k
    return keep_nan(x, scale(fma(r, polynomial(f"exp2.{x.kind.name}", r), 1.0), k))


def expm1(x: Symbol) -> Symbol:
    low, high = (-30.0, 90.0) if x.kind is F32 else (-60.0, 712.0)
    k, p = reduced(clamp(x, low, high))
    # Half of the result first: 2**k overflows one octave before the result does.
    half = power_of_two(to_integer(clamp(k - 1.0, low * 2, 128.0 if x.kind is F32 else 1024.0),
                                   INT[x.kind.bits]))
    y = fma(p, half, half - 0.5)
    y = select(k > (128.0 if x.kind is F32 else 1024.0), INF, y + y)
    return keep_nan(x, select(abs(x) < 1e-20, x, y))


def sigmoid(x: Symbol) -> Symbol:
    e = exp(-abs(x))                                  # at most 1: neither branch overflows
    return select(x >= 0, 1.0, e) / (e + 1.0)


def sinh(x: Symbol) -> Symbol:
    a, z = abs(x), x * x
    near = fma(polynomial(f"sinh.{x.kind.name}", z) * z, x, x)
    h = half_exp(a)
    return keep_nan(x, select(a < 1.0, near, copysign(h - 0.25 / h, x)))


def cosh(x: Symbol) -> Symbol:
    h = half_exp(abs(x))
    return keep_nan(x, h + 0.25 / h)


def tanh32(x: Symbol) -> Symbol:
    a, z = abs(x), x * x
    far = a >= 0.75                                   # not so for nan, which comes through the other way
    # exp(2 a) = 2**k (1 + p r). Beyond 10 the result is 1.
    b = least(a, 10.0)
    t = fma(b, 2 * LOG2_E, ROUNDS_32)
    r = fma(b, 2 * LOG2_E, -(t - ROUNDS_32))
    p = one_of(far, COEFFICIENTS["exp2_short.float32"], COEFFICIENTS["tanh_further.float32"], select(far, r, z))
    e = times_two_to(t, fma(p, r, 1.0))
    # The sum that is the other one loses the sign of -0.0.
    return copysign(select(far, 1.0 - 2.0 / (e + 1.0), fma(p * z, x, x)), x)


def tanh64(x: Symbol) -> Symbol:
    a, z = abs(x), x * x
    near = fma(polynomial("tanh.float64", z) * z, x, x)
    far = 1.0 - 2.0 / (exp(a + a) + 1.0)
    return copysign(select(a < 0.6, near, far), x)    # the sum that is `near` loses the sign of -0.0
