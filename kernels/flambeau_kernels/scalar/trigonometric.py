"""sin, cos, tan and their inverses, and hypot; float32 is computed in float64."""
from __future__ import annotations

from collections.abc import Callable

from flambeau_kernels.scalar.common import INF, polynomial, unless
from flambeau_kernels.scalar.symbols import F32, F64, Symbol, copysign, floor, fma, nearbyint, select, sqrt

TWO_OVER_PI = 0.6366197723675814
# pi/2 in three doubles: together 160 bits.
HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
PI = (3.141592653589793, 1.2246467991473532e-16)
QUARTER_PI = (0.7853981633974483, 3.061616997868383e-17)
TAN_EIGHTH_PI = 0.41421356237309503
# Up to here three parts of pi/2 leave an accurate remainder; larger arguments are the C library's.
LARGEST = {32: 2.0**28, 64: 2.0**24}


def _quadrant(k: Symbol) -> tuple[Symbol, Symbol]:
    """Whether quadrant `k` swaps sine and cosine, and whether it changes the sign (k whole, any size)."""
    q = k - 4.0 * floor(k * 0.25)
    return (q == 1.0) | (q == 3.0), q >= 2.0


def _remainder(x: Symbol) -> tuple[Symbol, Symbol, Symbol]:
    """(k, r, r_low) with x = k pi/2 + r + r_low; float64."""
    k = nearbyint(x * TWO_OVER_PI)
    first = fma(k, -HALF_PI[0], x)
    w = k * HALF_PI[1]
    r = first - w
    low = ((first - r) - w) - fma(k, HALF_PI[1], -w)
    return k, r, fma(k, -HALF_PI[2], low)


def _sin_and_cos(r: Symbol, low: Symbol) -> tuple[Symbol, Symbol]:
    """Sine and cosine of r + low for |r| <= pi/4, float64."""
    z = r * r
    sine = r + fma(polynomial("sin.float64", z) * z, r, low)
    half = 0.5 * z
    top = 1.0 - half
    cosine = top + (((1.0 - top) - half) + (z * z * polynomial("cos.float64", z) - r * low))
    return sine, cosine


def _sin_and_cos_for_single(r: Symbol) -> tuple[Symbol, Symbol]:
    """The same in float64, to the accuracy float32 results need."""
    z = r * r
    sine = fma(polynomial("sin.float32", z) * z, r, r)
    return sine, fma(z * z, polynomial("cos.float32", z), fma(z, -0.5, 1.0))


def _is_huge(x: Symbol) -> Symbol:
    """Whether `x` is finite and beyond what the usual reduction of the argument is exact for."""
    return (abs(x) > LARGEST[x.kind.bits]) & (abs(x) < INF)


def _circular(name: str, combine: Callable[..., Symbol]) -> Callable[[Symbol], Symbol]:
    """sin, cos or tan from what `combine` makes of sine, cosine, swap and sign of the reduced argument."""
    def function(x: Symbol) -> Symbol:
        k, r, low = _remainder(x.to(F64))
        sine, cosine = _sin_and_cos_for_single(r) if x.kind is F32 else _sin_and_cos(r, low)
        y = combine(sine, cosine, *_quadrant(k)).to(x.kind)
        # For sin and tan keeps the sign of zero and the smallest numbers as they are.
        y = select(abs(x) < 1e-20, x if name != "cos" else x.const(1.0), y)
        return unless(_is_huge(x), y, name, x)

    return function


sin = _circular("sin", lambda s, c, swap, minus: _signed(select(swap, c, s), minus))
cos = _circular("cos", lambda s, c, swap, minus: _signed(select(swap, s, c), minus ^ swap))
tan = _circular("tan", lambda s, c, swap, minus: select(swap, -c, s) / select(swap, s, c))


def _signed(x: Symbol, minus: Symbol) -> Symbol:
    return select(minus, -x, x)


def _arc(x: Symbol, accuracy: str) -> tuple[Symbol, Symbol, Symbol]:
    """(far, t, p): asin(|x|) is t + p near 0 and pi/2 - 2 (t + p) where `far`."""
    a = abs(x)
    far = a > 0.5
    z = select(far, 0.5 * (1.0 - a), a * a)
    root = sqrt(z)
    t = select(far, root, a)
    # Twice the root's rounding error would show in the result.
    lost = select(far & (root > 0), fma(-root, root, z) / (root + root), 0.0)
    return far, t, fma(polynomial(f"asin.{accuracy}", z) * z, t, lost)


def asin(x: Symbol, accuracy: str = "float64") -> Symbol:
    far, t, p = _arc(x, accuracy)
    near = t + p
    return copysign(select(far, HALF_PI[0] - (2.0 * near - HALF_PI[1]), near), x)


def acos(x: Symbol, accuracy: str = "float64") -> Symbol:
    far, t, p = _arc(x, accuracy)
    near = t + p
    outer = select(x < 0, PI[0] - (2.0 * near - PI[1]), 2.0 * near)
    inner = HALF_PI[0] - (copysign(near, x) - HALF_PI[1])
    return select(far, outer, inner)


def _atan_of_ratio(small: Symbol, large: Symbol, accuracy: str) -> tuple[Symbol, Symbol]:
    """atan(small / large) for 0 <= small <= large, large > 0, as a sum."""
    upper = small > TAN_EIGHTH_PI * large
    t = select(upper, small - large, small) / select(upper, small + large, large)
    z = t * t
    value = fma(polynomial(f"atan.{accuracy}", z) * z, t, t)
    zero = t.const(0.0)
    return select(upper, t.const(QUARTER_PI[0]), zero), value + select(upper, t.const(QUARTER_PI[1]), zero)


def atan(x: Symbol, accuracy: str = "float64") -> Symbol:
    a = abs(x)
    beyond = a > 1.0
    base, rest = _atan_of_ratio(select(beyond, 1.0, a), select(beyond, a, 1.0), accuracy)
    y = select(beyond, HALF_PI[0] - base - (rest - HALF_PI[1]), base + rest)
    return copysign(y, x)


def atan2(y: Symbol, x: Symbol, accuracy: str = "float64") -> Symbol:
    ay, ax = abs(y), abs(x)
    swap = ay > ax
    small, large = select(swap, ax, ay), select(swap, ay, ax)
    # Halves and quarters of the largest numbers add up without overflow; infinities stand in as 1.
    shrink = select(large > 1e300, x.const(0.25), 1.0)
    both_infinite = small == INF
    small = select(both_infinite, 1.0, small * shrink)
    large = select(both_infinite, 1.0, select(large == 0, 1.0, large * shrink))
    base, rest = _atan_of_ratio(small, large, accuracy)
    base = select(swap, HALF_PI[0] - base, base)
    rest = select(swap, HALF_PI[1] - rest, rest)
    left = x.bits() < 0
    angle = select(left, PI[0] - base - (rest - PI[1]), base + rest)
    return select((x == x) & (y == y), copysign(angle, y), x + y)


def hypot64(x: Symbol, y: Symbol) -> Symbol:
    ax, ay = abs(x), abs(y)
    large, small = select(ax > ay, ax, ay), select(ax > ay, ay, ax)
    # A power of two that keeps the squares in range; exact, so it costs no accuracy.
    scale = select(large > 1e150, x.const(2.0**-600), select(large < 1e-140, x.const(2.0**600), 1.0))
    back = select(large > 1e150, x.const(2.0**600), select(large < 1e-140, x.const(2.0**-600), 1.0))
    large, small = large * scale, small * scale
    square = large * large
    lost = fma(large, large, -square)
    total = fma(small, small, square)
    lost = lost + fma(small, small, square - total)
    root = sqrt(total)
    root = root + select(root > 0, (fma(-root, root, total) + lost) / (root + root), 0.0)
    value = select((x == x) & (y == y), root * back, x + y)
    return select((ax == INF) | (ay == INF), INF, value)


def hypot32(x: Symbol, y: Symbol) -> Symbol:
    a, b = x.to(F64), y.to(F64)
    value = sqrt(fma(a, a, b * b)).to(F32)
    return select((abs(x) == INF) | (abs(y) == INF), INF, value)


def with_single_accuracy(function: Callable[..., Symbol]) -> Callable[..., Symbol]:
    """`function` in float64 with the short polynomials, rounded to float32."""
    return lambda *args: function(*(x.to(F64) for x in args), accuracy="float32").to(F32)


def by_way_of_double(function: Callable[..., Symbol]) -> Callable[..., Symbol]:
    """`function` in float64, rounded to float32."""
    return lambda *args: function(*(x.to(F64) for x in args)).to(F32)
