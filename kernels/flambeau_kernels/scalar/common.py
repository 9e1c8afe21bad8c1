"""What the elementary functions share: polynomials, limits, exact sums and products, and rare arguments."""
from __future__ import annotations

from flambeau_kernels.scalar.coefficients import COEFFICIENTS
from flambeau_kernels.scalar.symbols import Symbol, fma, select

INF = float("inf")
NAN = float("nan")


def polynomial(name: str, x: Symbol) -> Symbol:
    """The polynomial `name` of `coefficients.py` at `x`, by Horner's rule."""
    return horner(COEFFICIENTS[name], x)


def two_chains(name: str, x: Symbol) -> Symbol:
    """The same from its even and its odd part: for a long one, whose steps would wait for one another."""
    coefficients = COEFFICIENTS[name]
    square = x * x
    return fma(horner(coefficients[1::2], square), x, horner(coefficients[::2], square))


def horner(coefficients: tuple[float, ...], x: Symbol) -> Symbol:
    """The polynomial of `coefficients`, lowest power first, at `x`."""
    *lower, second, first = coefficients
    value = fma(x, first, second)
    for coefficient in reversed(lower):
        value = fma(x, value, coefficient)            # value * x + coefficient, rounded once
    return value


def one_of(condition: Symbol, first: tuple[float, ...], second: tuple[float, ...], x: Symbol) -> Symbol:
    """The polynomial `first` at `x` where `condition` holds, else `second`; coefficients lowest power first.

    Choosing the coefficients takes no multiplier, of which processors have fewest: less than both polynomials.
    """
    count = max(len(first), len(second))
    pairs = list(zip((*first, *(0.0,) * (count - len(first))), (*second, *(0.0,) * (count - len(second))), strict=True))
    value = select(condition, *pairs.pop())
    while pairs:
        value = fma(x, value, select(condition, *pairs.pop()))
    return value


def clamp(x: Symbol, low: float, high: float) -> Symbol:
    """`x` within [low, high]; `low` for nan, so the result can be converted to an integer."""
    x = select(x > low, x, low)
    return select(x < high, x, high)


def least(x: Symbol, high: float) -> Symbol:
    """`x`, but no more than `high`, which is also the answer for nan."""
    return select(x < high, x, high)


def keep_nan(x: Symbol, y: Symbol) -> Symbol:
    """`y`, but nan where `x` is."""
    return select(x == x, y, x)


def two_sum(a: Symbol | float, b: Symbol) -> tuple[Symbol, Symbol]:
    """a + b and its rounding error, for |a| >= |b| or a = 0 (Dekker 1971, "A floating-point technique ...").
    """
    total = a + b
    return total, b - (total - a)


def two_product(a: Symbol, b: Symbol) -> tuple[Symbol, Symbol]:
    """a * b and its rounding error."""
    product = a * b
    return product, fma(a, b, -product)


def unless(rare: Symbol, usual: Symbol, library: str, *args: Symbol) -> Symbol:
    """`usual`, but the C library's function where `rare` holds.

A call per element would keep the loop from becoming vector code, so it is only written into a second,
careful loop, which runs for the blocks of elements in which something rare occurs. Other elements of such a
block get the usual value there too: a result never depends on its neighbours.
    """
    block = usual.block
    block.rare.append(rare)
    if not block.careful:
        return usual
    return select(rare, block.call(f"llvm.{library}", usual.kind, *args), usual)
