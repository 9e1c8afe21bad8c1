"""The regularized incomplete gamma functions P (lower) and Q (upper); float32 is computed in float64 with fewer terms.

========================  ==============================================================================================
a >= 12, x about a        the normal distribution's, corrected by a series in 1/a that is uniform in x (Temme 1979, DLMF 8.12)
x > a, and x >= 1.1       Q by Legendre's continued fraction (DLMF 8.9.2), from its front
Q, a < 12 and x < 1.1     ``1 - x**a / Gamma(a + 1)``, which may be small, less a series (DLMF 8.7.3)
elsewhere                 P by its series of positive terms (DLMF 8.7.1)
========================  ==============================================================================================

All but the third have the factor ``x**a exp(-x) / Gamma(a + 1)``, whose exponent is an unevaluated sum of two numbers: for large `a`
of the logarithm of x/a, so that neither loses what cancels. The loops go on while any of the numbers side by side wants more; what a
number has is left as it is when it wants no more, so it does not depend on the others.
"""

from __future__ import annotations

import functools

from flambeau_kernels.scalar.coefficients import COEFFICIENTS
from flambeau_kernels.scalar.common import INF, NAN, clamp, horner, keep_nan, polynomial, two_product, two_sum
from flambeau_kernels.scalar.error import ERFC_K
from flambeau_kernels.scalar.exponential import exp, expm1
from flambeau_kernels.scalar.gamma import STIRLING, _series
from flambeau_kernels.scalar.logarithm import LN2_64, exp_of_pair, log1p, log_pair, split
from flambeau_kernels.scalar.routines import Lanes, Routine
from flambeau_kernels.scalar.symbols import F64, Block, Symbol, copysign, fma, nearbyint, select, sqrt

__all__ = ["igamma", "igammac"]

LARGE = 12                                            # `a` from which Stirling's series and the uniform one are as good as float64
NEAR = (-0.6, 0.5)                                    # eta for which the latter's polynomials are fitted
SMALL = 1.1                                           # x below which the continued fraction takes longer than series
SQRT_TAU = 2.5066282746310002
TERMS = {"float32": 6, "float64": 13}                 # of the uniform series
ENOUGH = {"float32": 2.0**-32, "float64": 2.0**-55}   # of a sum, which terms from there on would not change
VANISHED = -760.0                                     # its exponential is 0 in float64
# When numerators and denominators of the fraction are scaled down, and by what: neither they nor products of two overflow.
HUGE = 2.0**400

Written = tuple[list[str], set[str]]                  # lines of IR, and declarations that they need


def igamma(a: Symbol, x: Symbol) -> Symbol:
    return _routine("lower", x.kind.name)(a.to(F64), x.to(F64)).to(x.kind)


def igammac(a: Symbol, x: Symbol) -> Symbol:
    return _routine("upper", x.kind.name)(a.to(F64), x.to(F64)).to(x.kind)


@functools.cache
def _routine(which: str, accuracy: str) -> Routine:
    def body(lanes: Lanes) -> tuple[str, set[str]]:
        code = _Code(lanes)
        a, x = (Symbol(code.block, name, F64) for name in ("%a0", "%a1"))
        return code.text(_of_numbers(code, a, x, which == "upper", accuracy))

    return Routine(f"igamma_{which}_{accuracy}", 2, body, 3000, widest=True)


class _Code:
    """Straight-line code of a block with loops in between, for so many lanes."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes, self.block = lanes, Block(F64, lanes.scales, careful=lanes.count == 1)
        self._parts: list[str] = []
        self._needs: set[str] = set()
        self._done, self._last = 0, "entry"            # how many lines of the block, and the label that is open

    def loop(self, name: str, written: Written, result: str) -> Symbol:
        """The value `result` of a loop of that `name`, see `_loop`."""
        self._take_lines()
        lines, needs = written
        self._parts += [f"  br label %{name}", *(line.replace("%before", f"%{self._last}") for line in lines)]
        self._last = f"{name}.done"
        self._needs |= needs
        return Symbol(self.block, result, F64)

    def _take_lines(self) -> None:
        self._parts += self.lanes.lines(self.block.lines[self._done :])
        self._done = len(self.block.lines)

    def text(self, result: Symbol) -> tuple[str, set[str]]:
        self._take_lines()
        lines = ["entry:", *self._parts, f"  ret {self.lanes.t} {result.name}"]
        return "\n".join(lines) + "\n", self._needs | set(self.lanes.lines(sorted(self.block.needs)))


def _of_numbers(code: _Code, a: Symbol, x: Symbol, upper: bool, accuracy: str) -> Symbol:
    usual = (a > 0) & (a < INF) & (x > 0) & (x < INF)
    b, z = select(usual, a, 1.0), select(usual, x, 1.0)
    large = b >= float(LARGE)

    # The exponent of (z/b)**b exp(b - z) where b is large, else that of z**b exp(-z).
    base = select(large, b, 1.0)
    ratio = select(z > base * 1e-280, z / base, 1e-280)
    lost = fma(-ratio, base, z) / base / ratio        # what the logarithm of the quotient is short of
    k, f = split(ratio)
    high, low = log_pair(f)
    log, log_low = two_sum(k * LN2_64[0], high)
    log, log_low = two_sum(log, log_low + fma(k, LN2_64[1], low) + select(large, select(abs(lost) < 1.0, lost, 0.0), 0.0))
    power, power_low = two_product(b, log)
    power_low = fma(b, log_low, power_low)
    less, less_low = _sum(z, select(large, -b, 0.0))
    exponent, exponent_low = _sum(power, -less)
    vanished = ~(exponent > VANISHED)
    exponent = select(vanished, VANISHED, select(large & (exponent > 0), 0.0, exponent))
    exponent_low = select(vanished, 0.0, exponent_low + (power_low - less_low))

    # eta and, for the normal distribution, y = |eta| sqrt(b/2).
    square = -exponent - exponent_low
    y = select(large, sqrt(select(square > 0, square, 0.0)), 0.0)
    root = sqrt(b)
    eta = copysign(y * 1.4142135623730951 / root, less)
    uniform = large & ~vanished & (eta > NEAR[0]) & (eta < NEAR[1])

    # 1 / Gamma(b + 1) of small b: an exponential and a product of up to `LARGE` factors.
    n = select(large, 1.0, nearbyint(b))
    d = select(large, 0.0, b) - select(large, 0.0, n)
    first = n == 0
    product = b.const(1.0)
    for j in range(2, LARGE + 1):
        product = product * select(n >= float(j), d + float(j), 1.0)
    log_gamma = d * polynomial("lgamma_two.float64", d)
    inverse = 1.0 / select(large, b, float(LARGE))
    stirling = select(uniform, 0.0, inverse * _series(STIRLING, inverse * inverse))
    factor = exp_of_pair(*_with_low(exponent, exponent_low, -select(large, stirling, log_gamma)))
    by_root = 1.0 / (SQRT_TAU * root)
    factor = factor * select(large, by_root, select(first, d + 1.0, 1.0 / product))

    by_fraction = ~uniform & (z >= SMALL) & (z > b)
    by_small = (z < SMALL) & ~large if upper else None
    by_series = ~uniform & ~by_fraction if by_small is None else ~uniform & ~by_fraction & ~by_small

    series_a, series_x = select(by_series, b, 1.0), select(by_series & ~vanished, z, 0.0)
    series = code.loop("series", _series_loop(code.lanes, series_a.name, series_x.name, ENOUGH[accuracy]), "%series.total.next")
    wanted = by_fraction & ~vanished
    fraction_a, fraction_x = select(wanted, b, 1.0), select(wanted, z, 2.0)
    off = fraction_x - fraction_a
    written = _fraction_loop(code.lanes, fraction_a.name, off.name, (off + 1.0).name, ENOUGH[accuracy])
    fraction = code.loop("fraction", written, "%fraction.value")

    scaled = polynomial(f"erfc.{accuracy}", (y - ERFC_K) / (y + ERFC_K)) / fma(y, 2.0, 1.0)  # erfc(y) exp(y**2)
    near = select(uniform, eta, 0.0)
    correction = horner(COEFFICIENTS[f"igamma_{TERMS[accuracy] - 1}.{accuracy}"], near)
    for j in reversed(range(TERMS[accuracy] - 1)):
        correction = fma(correction, inverse, horner(COEFFICIENTS[f"igamma_{j}.{accuracy}"], near))
    # `factor` has been divided by the root already.
    tail = factor * fma(0.5 * scaled, SQRT_TAU * root, select(eta < 0, -correction, correction))
    is_upper = by_fraction | (uniform & (eta >= 0))
    part = select(uniform, tail, select(by_fraction, factor * b * fraction, factor * series))
    part = select(part < 1.0, part, 1.0)
    value = select(is_upper, part, 1.0 - part) if upper else select(is_upper, 1.0 - part, part)
    if by_small is not None:
        value = select(by_small, _upper_of_small(code, b, z, by_small, d, first, product, power, power_low, log_gamma, accuracy), value)

    at_zero, at_end = (1.0, 0.0) if upper else (0.0, 1.0)
    # Nothing is above infinity, and nothing below 0; of parameters 0 and infinity the distribution is one point.
    limit = select((x == 0) | (a == INF), at_zero, at_end)
    unknown = (a < 0) | (x < 0) | ((a == 0) & (x == 0)) | ((a == INF) & (x == INF))
    value = select(usual, value, select(unknown, a.const(NAN), limit))
    return keep_nan(a, keep_nan(x, value))


def _sum(a: Symbol, b: Symbol) -> tuple[Symbol, Symbol]:
    """a + b and its rounding error, whichever is larger (Knuth 1969, section 4.2.2, theorem B)."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def _with_low(high: Symbol, low: Symbol, more: Symbol) -> tuple[Symbol, Symbol]:
    total, rest = _sum(high, more)
    return total, low + rest


def _upper_of_small(
    code: _Code, a: Symbol, x: Symbol, wanted: Symbol, d: Symbol, first: Symbol, product: Symbol, power: Symbol, power_low: Symbol,
    log_gamma: Symbol, accuracy: str,
) -> Symbol:  # fmt: skip
    """Q = -expm1(w) - exp(w) sum_(n > 0) a (-x)**n / ((a + n) n!) with w = a log(x) - lgamma(a + 1), for small a and x."""
    of_product = log1p(select(first, d, product - 1.0))
    w, w_low = _sum(power, -select(first, log_gamma - of_product, log_gamma + of_product))
    w = clamp(w + (w_low + power_low), -800.0, 1.0)
    loop_a, loop_x = select(wanted, a, 1.0), select(wanted, x, 0.0)
    rest = code.loop("small", _small_loop(code.lanes, loop_a.name, loop_x.name, ENOUGH[accuracy]), "%small.total.next")
    return -expm1(w) - exp(w) * rest


def _loop(lanes: Lanes, name: str, state: dict[str, str], step: list[str], more: str, after: tuple[str, ...] = ()) -> Written:
    """A loop over %`name`.n = 1, 2, ... while `more` holds for any lane; lanes for which it did not keep their state.

    Args:
        state: names of numbers, and their first values; `step` computes the next one of each, its name and ``.new``.
        after: what is computed when all is done; the numbers' last values are their names and ``.next``.
    """
    t, c = lanes.t, lanes.c
    anywhere, reduction = lanes.any(f"%{name}.anywhere", f"%{name}.on")
    every = "true" if lanes.count == 1 else "splat (i1 true)"
    lines = [
        f"{name}:", f"  %{name}.n = phi {t} [{lanes.real(1.0)}, %before], [%{name}.n.next, %{name}]",
        f"  %{name}.was = phi {c} [{every}, %before], [%{name}.on, %{name}]",
        *(f"  {key} = phi {t} [{value}, %before], [{key}.next, %{name}]" for key, value in state.items()), *(f"  {line}" for line in step),
        *(f"  {key}.next = select {c} %{name}.was, {t} {key}.new, {t} {key}" for key in state),
        f"  %{name}.n.next = fadd {t} %{name}.n, {lanes.real(1.0)}", f"  %{name}.more = {more}",
        f"  %{name}.on = and {c} %{name}.was, %{name}.more", anywhere,
        f"  br i1 %{name}.anywhere, label %{name}, label %{name}.done", f"{name}.done:", *(f"  {line}" for line in after),
    ]  # fmt: skip
    return lines, {reduction}


def _series_loop(lanes: Lanes, a: str, x: str, enough: float) -> Written:
    """The sum over n >= 0 of x**n / ((a + 1) ... (a + n))."""
    t = lanes.t
    step = [
        f"%series.down = fadd {t} {a}, %series.n", f"%series.share = fdiv {t} {x}, %series.down",
        f"%series.term.new = fmul {t} %series.term, %series.share", f"%series.total.new = fadd {t} %series.total, %series.term.new",
        f"%series.least = fmul {t} %series.total.new, {lanes.real(enough)}",
    ]  # fmt: skip
    state = {"%series.term": lanes.real(1.0), "%series.total": lanes.real(1.0)}
    return _loop(lanes, "series", state, step, f"fcmp ogt {t} %series.term.new, %series.least")


def _fraction_loop(lanes: Lanes, a: str, off: str, first: str, enough: float) -> Written:
    """1 / (off + 1 + 1 (a - 1) / (off + 3 + 2 (a - 2) / (off + 5 + ...))) for off = x - a, as one fraction of ever more of it."""
    t, c = lanes.t, lanes.c
    fma, fabs = (f"@llvm.{name}.{lanes.intrinsic}" for name in ("fma", "fabs"))

    def continued(of: str) -> list[str]:
        """What a numerator or denominator comes to with one more level."""
        return [f"%fraction.{of}.far = fmul {t} %fraction.c, %fraction.{of}.before",
                f"%fraction.{of}.all = call {t} {fma}({t} %fraction.b, {t} %fraction.{of}, {t} %fraction.{of}.far)"]  # fmt: skip

    step = [
        f"%fraction.odd = call {t} {fma}({t} %fraction.n, {t} {lanes.real(2.0)}, {t} {lanes.real(1.0)})",
        f"%fraction.b = fadd {t} {off}, %fraction.odd", f"%fraction.left = fsub {t} {a}, %fraction.n",
        f"%fraction.c = fmul {t} %fraction.n, %fraction.left", *continued("p"), *continued("q"),
        f"%fraction.size = call {t} {fabs}({t} %fraction.q.all)", f"%fraction.huge = fcmp ogt {t} %fraction.size, {lanes.real(HUGE)}",
        f"%fraction.scale = select {c} %fraction.huge, {t} {lanes.real(1 / HUGE)}, {t} {lanes.real(1.0)}",
        *(f"%fraction.{to}.new = fmul {t} %fraction.{of}, %fraction.scale"
          for to, of in (("p", "p.all"), ("q", "q.all"), ("p.before", "p"), ("q.before", "q"))),
        f"%fraction.one = fmul {t} %fraction.p.new, %fraction.q.before.new",
        f"%fraction.other = fmul {t} %fraction.p.before.new, %fraction.q.new", f"%fraction.apart = fsub {t} %fraction.one, %fraction.other",
        f"%fraction.change = call {t} {fabs}({t} %fraction.apart)", f"%fraction.whole = call {t} {fabs}({t} %fraction.one)",
        f"%fraction.least = fmul {t} %fraction.whole, {lanes.real(enough)}",
    ]  # fmt: skip
    state = {"%fraction.p.before": lanes.real(0.0), "%fraction.q.before": lanes.real(1.0), "%fraction.p": lanes.real(1.0),
             "%fraction.q": first}  # fmt: skip
    after = (f"%fraction.value = fdiv {t} %fraction.p.next, %fraction.q.next",)
    lines, needs = _loop(lanes, "fraction", state, step, f"fcmp ogt {t} %fraction.change, %fraction.least", after)
    return lines, needs | {f"declare {t} {fma}({t}, {t}, {t})", f"declare {t} {fabs}({t})"}


def _small_loop(lanes: Lanes, a: str, x: str, enough: float) -> Written:
    """The sum over n >= 1 of a (-x)**n / ((a + n) n!)."""
    t = lanes.t
    fabs = f"@llvm.fabs.{lanes.intrinsic}"
    step = [
        f"%small.down = fadd {t} {a}, %small.n", f"%small.both = fmul {t} %small.down, %small.n",
        f"%small.ratio = fdiv {t} {x}, %small.both", f"%small.part = fmul {t} %small.power, %small.ratio",
        f"%small.turned = fneg {t} %small.part", f"%small.power.new = fmul {t} %small.turned, %small.down",
        f"%small.term = fmul {t} {a}, %small.turned", f"%small.total.new = fadd {t} %small.total, %small.term",
        f"%small.size = call {t} {fabs}({t} %small.term)", f"%small.whole = call {t} {fabs}({t} %small.total.new)",
        f"%small.least = fmul {t} %small.whole, {lanes.real(enough)}",
    ]  # fmt: skip
    state = {"%small.power": lanes.real(1.0), "%small.total": lanes.real(0.0)}
    lines, needs = _loop(lanes, "small", state, step, f"fcmp ogt {t} %small.size, %small.least")
    return lines, needs | {f"declare {t} {fabs}({t})"}
