"""The Hurwitz zeta function by Euler and Maclaurin's sum, and the polygamma functions, which are its multiples.

The first terms are added one by one; what the rest differs from its integral is a series in Bernoulli's numbers (DLMF 25.11.28;
Johansson 2015, "Rigorous high-precision computation of the Hurwitz zeta function and its derivatives"). Float32 is computed in
float64 with fewer terms.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable

from flambeau_kernels.scalar.common import INF, NAN, clamp, keep_nan, two_product, two_sum
from flambeau_kernels.scalar.exponential import medium_exp
from flambeau_kernels.scalar.logarithm import LN2_64, exp_of_pair, log_pair, medium_log, split
from flambeau_kernels.scalar.routines import Routine, written_once
from flambeau_kernels.scalar.symbols import (
    F32,
    F64,
    Block,
    Symbol,
    ceil,
    floor,
    fma,
    literal,
    nearbyint,
    select,
)

TERMS = {"float64": (6, 15), "float32": (5, 6)}       # added one by one, and of the series in Bernoulli's numbers
_FAR = 1e8
_LARGEST = 170                                        # whose factorial a float64 holds


# Bernoulli's numbers B_2, B_4, ... (DLMF 24.2, table 24.2.1), over (2j)!.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330, 854513 / 138,
              -236364091 / 2730, 8553103 / 6, -23749461029 / 870, 8615841276005 / 14322)
_SERIES = [number / math.factorial(2 * j) for j, number in enumerate(_BERNOULLI, 1)]


def _power(x: Symbol, s: Symbol, accuracy: str, normal: bool = False) -> Symbol:
    """x**-s for x and s that are positive and finite; `normal` promises that x is not subnormal."""
    return _once(f"power_{accuracy}", lambda x, s: _power_of(x, s, accuracy, normal and not x.block.careful), x, s)


def _power_of(x: Symbol, s: Symbol, accuracy: str, normal: bool) -> Symbol:
    if accuracy == "float32":
        t = -s * medium_log(x)
        return select(t < -700.0, 0.0, medium_exp(clamp(t, -700.0, 700.0)))
    k, f = split(x, normal)
    high, low = log_pair(f)
    main, main_low = two_sum(k * LN2_64[0], high)
    main, main_low = two_sum(main, main_low + fma(k, LN2_64[1], low))
    t, t_low = two_product(-s, main)
    t_low = select(abs(t) < 800.0, fma(-s, main_low, t_low), 0.0)
    return exp_of_pair(clamp(t, -800.0, 800.0), t_low)


def _once(name: str, made: Callable[[Symbol, Symbol], Symbol], x: Symbol, y: Symbol) -> Symbol:
    """``made(x, y)`` of two float64; a call of a function `name` in code that is not for vectors, so that it is compiled once."""
    block = x.block
    if not block.careful:
        return made(x, y)
    inner = Block(F64, block.scales, careful=True)
    value = made(Symbol(inner, "%x", F64), Symbol(inner, "%y", F64))
    attributes = "nounwind willreturn memory(none)"
    body = "\n".join([*inner.lines, f"  ret double {value.name}"])
    block.needs |= {*inner.needs, f"define double @flambeau_{name}(double %x, double %y) noinline {attributes} {{\n{body}\n}}"}
    return block.emit(F64, f"call double @flambeau_{name}(double {x.name}, double {y.name}) {attributes}", inner.cost)


def _of_positive(s: Symbol, q: Symbol, accuracy: str) -> Symbol:
    """zeta(s, q) for finite s > 1 and q > 0."""
    return _once(f"zeta_{accuracy}", lambda s, q: _sum(s, q, accuracy), s, q)


def _sum(s: Symbol, q: Symbol, accuracy: str) -> Symbol:
    terms, corrections = TERMS[accuracy]
    far = q > _FAR                                    # there the integral and half a term are all
    a = select(far, q, q + float(terms))
    inverse = 1.0 / a
    # From 1e5 on nothing but the first term is left wherever it does not vanish.
    clamped = select(s < 1e5, s, 1e5)
    step = clamped * inverse
    series = 0.5 + step * _SERIES[0]
    for j in range(1, corrections):
        step = step * ((clamped + (2.0 * j - 1.0)) * inverse) * ((clamped + 2.0 * j) * inverse)
        series = fma(step, step.const(_SERIES[j]), series)
    # The integral's power is a times the last term's, which may vanish before it.
    last = _power(a, select(far, s - 1.0, s), accuracy, normal=True)
    total = last * select(far, 1.0 / (s - 1.0) + 0.5 * inverse, a / (s - 1.0) + series)
    if accuracy == "float32" or s.block.careful:
        for k in reversed(range(terms)):              # the smallest first
            total = total + select(far, 0.0, _power(q + float(k) if k else q, s, accuracy))
        return total
    # A power mostly waits for its own steps, so several are computed together, as many as there are registers for.
    count = terms if s.block.register_bits == 512 else terms // 2
    places = [q + float(k) if k else q for k in reversed(range(terms))]
    near = total
    for at in range(0, terms, count):
        near = _added_powers(count)(near, s, *places[at:at + count])
    return select(far, total, near)


@functools.cache
def _added_powers(count: int) -> Routine:
    """``(total, s, x, y, ...)`` gives ``total + x**-s + y**-s ...`` of `count` numbers, the last of which alone may be subnormal.

    It is vector code at once: LLVM takes long to make that of as much code for single numbers.
    """

    def added(total: Symbol, s: Symbol, *places: Symbol) -> Symbol:
        for x in places:
            total = total + _power(x, s, "float64", normal=x is not places[-1])
        return total

    return written_once(f"{count}_powers", 2 + count, added, F64)


def zeta(s: Symbol, q: Symbol, accuracy: str = "float64") -> Symbol:
    """The sum over k >= 0 of (q + k)**-s.

    As in scipy and PyTorch infinite at s = 1, at q = 0, -1, ..., and for infinite s and q < 1; nan for s < 1, for huge and infinite
    s with q > 1, and for powers of negative numbers.
    """
    usual = (s > 1.0) & (s < INF) & (q > 0) & (q < INF)
    value = _of_positive(select(usual, s, 2.0), select(usual, q, 1.0), accuracy)
    at_infinity = select(q > 1.0, s.const(NAN), select(q == 1.0, 1.0, INF))
    # Their series is infinity times 0 where terms have vanished before the product of 23 powers is finite.
    value = select((s > 2.5e13) & (value == 0), NAN, value)
    value = select(usual, value, select(q == INF, select(s == INF, s.const(NAN), 0.0), at_infinity))
    is_integral = nearbyint(s) == s
    below = (q < 0) & is_integral & (s > 1.0) & (s < INF) & (floor(q) != q)
    s.block.rare.append(below)
    if s.block.careful:
        value = select(below, _of_negative(select(below, s, 2.0), select(below, q, -0.5), accuracy), value)
    value = select((q < 0) & ~is_integral, s.const(NAN), value)
    value = keep_nan(s, keep_nan(q, value))
    value = select((q <= 0) & (floor(q) == q), INF, value)
    return select(s == 1.0, INF, select(s < 1.0, NAN, value))


def _of_negative(s: Symbol, q: Symbol, accuracy: str) -> Symbol:
    """zeta(s, q) for a whole s > 1 and q < 0: the terms below and above 0 are two such sums, the former without its end."""
    nearest = ceil(q) - q                             # of the negative numbers q, q + 1, ...
    below = _of_positive(s, nearest, accuracy) - _of_positive(s, 1.0 - q, accuracy)
    even = nearbyint(s * 0.5) == s * 0.5
    return _of_positive(s, 1.0 - nearest, accuracy) + select(even, below, -below)


def polygamma(n: Symbol, x: Symbol) -> Symbol:
    """The derivative of order `n` >= 1 of digamma: (-1)**(n + 1) n! zeta(n + 1, x) (DLMF 5.15.1, 25.11.12)."""
    accuracy = x.kind.name
    n, wide = n.to(F64), x.to(F64)
    value = _factorial(n) * zeta(n + 1.0, wide, accuracy)
    return select(nearbyint(n * 0.5) == n * 0.5, -value, value).to(x.kind)


def _factorial(n: Symbol) -> Symbol:
    """n! from a table: mostly `n` is one number, which is looked up before the loop."""
    table = ", ".join(f"double {literal(float(math.factorial(k)), F64)}" for k in range(_LARGEST + 1))
    n.block.needs.add(f"""@flambeau_factorials = private constant [{_LARGEST + 2} x double] [{table}, double 0x7FF0000000000000]
define double @flambeau_factorial(double %n) alwaysinline nounwind willreturn memory(none) {{
  %low = call double @llvm.maxnum.f64(double %n, double 0.0)
  %near = call double @llvm.minnum.f64(double %low, double {_LARGEST + 1}.0)
  %k = fptosi double %near to i64
  %at = getelementptr double, ptr @flambeau_factorials, i64 %k
  %made = load double, ptr %at
  ret double %made
}}""")
    n.block.needs |= {"declare double @llvm.maxnum.f64(double, double)", "declare double @llvm.minnum.f64(double, double)"}
    return n.block.emit(F64, f"call double @flambeau_factorial(double {n.name}) nounwind willreturn memory(none)")


def zeta32(s: Symbol, q: Symbol) -> Symbol:
    return zeta(s.to(F64), q.to(F64), "float32").to(F32)
