"""The Airy function Ai: polynomials between -5.24 and 2.08, beyond them polynomials in 1/zeta times what it tends to.

zeta = 2/3 |x|**(3/2) is an unevaluated sum, since its error is that of an exponent, or of a phase. Where it oscillates it is right
to a few units of its amplitude, |x|**(-1/4) / sqrt(pi). Float32 is computed in float64 with shorter polynomials.
"""
from __future__ import annotations

from flambeau_kernels.scalar.common import INF, NAN, keep_nan, polynomial, two_product, two_sum
from flambeau_kernels.scalar.exponential import medium_exp
from flambeau_kernels.scalar.logarithm import exp_of_pair
from flambeau_kernels.scalar.symbols import F32, F64, Symbol, fma, select, sqrt
from flambeau_kernels.scalar.trigonometric import cos, sin

INV_SQRT_PI = 0.5641895835477563
INV_PI_SQRT_2 = 0.22507907903927652
TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
FAR, TURNS = 2.080083823051904, -5.241482788417793    # zeta is 2 and 8 there
# Those zeros above TURNS, each as a sum of two doubles.
ZEROS = ((-2.338107410459767, -3.912260409818305e-17), (-4.08794944413097, -3.387261694242901e-16))
VANISHED = 110.0                                      # from somewhat before on Ai is 0 in float64


def _zeta(a: Symbol) -> tuple[Symbol, Symbol, Symbol]:
    """zeta of a > 0 in two parts, and sqrt(a)."""
    root = sqrt(a)
    root_low = fma(-root, root, a) / (root + root)
    cube, cube_low = two_product(a, root)
    cube_low = fma(a, root_low, cube_low)
    high, low = two_product(cube, cube.const(TWO_THIRDS[0]))
    low = fma(cube, TWO_THIRDS[1], fma(cube_low, TWO_THIRDS[0], low))
    high, low = two_sum(high, low)
    return high, low, root


def airy_ai(x: Symbol, accuracy: str = "float64") -> Symbol:
    turns, far, middle = x < TURNS, x > FAR, x >= 0
    a = select(turns, -x, select(far, select(x < VANISHED, x, VANISHED), 1.0))
    a = select(a < 1e20, a, 1e20)
    zeta, zeta_low, root = _zeta(a)
    inverse = 1.0 / zeta
    quarter = 1.0 / sqrt(root)
    # Both decreasing pieces share one exponential.
    b = select(middle & ~far, x, 1.0)
    exponent, exponent_low = select(far, -zeta, -1.25 * b), select(far, -zeta_low, 0.0)
    decay = medium_exp(exponent) if accuracy == "float32" else exp_of_pair(exponent, exponent_low)
    tail = INV_PI_SQRT_2 * quarter * polynomial(f"airy_far.{accuracy}", select(far, inverse + inverse, 1.0))
    right = decay * select(far, tail, polynomial(f"airy_middle.{accuracy}", b - 1.0))
    d = select(turns | middle, 0.0, x)
    left = polynomial(f"airy_near.{accuracy}", fma(d, 1 / 2.625, 1.0))
    for high, low in ZEROS:
        left = left * ((d - high) - low)
    w = select(turns, 8.0 * inverse, 1.0)
    w = w * w
    phase = select(turns, zeta, 8.0)
    s, c = sin(phase), cos(phase)
    turned = select(turns & (zeta < 1e15), zeta_low, 0.0)
    s, c = fma(c, turned, s), fma(-s, turned, c)
    # sqrt(2) times cosine and sine of zeta - pi/4.
    p, q = polynomial(f"airy_p.{accuracy}", w), polynomial(f"airy_q.{accuracy}", w) * inverse
    swing = INV_SQRT_PI * 0.7071067811865476 * quarter * (p * (c + s) + q * (s - c))
    value = select(turns, swing, select(middle, right, left))
    value = select((x >= VANISHED) | (x < -1e20), 0.0, value)       # PyTorch's is of any size up to 1e-5 there
    return keep_nan(x, select(abs(x) == INF, NAN, value))


def airy_ai32(x: Symbol) -> Symbol:
    return airy_ai(x.to(F64), "float32").to(F32)
