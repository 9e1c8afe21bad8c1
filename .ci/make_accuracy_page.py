"""How accurate the elementary functions are: `python .ci/make_accuracy_page.py [word ...]`.

Each function runs through the compiled tier on samples of its domain (both signs, all magnitudes, and the
places where its formulas join) and is compared with mpmath at 50 digits. The unit is the spacing of floats at
the exact result (ulp); 0.5 is correctly rounded. The last column is time per element with one thread, with
the numpy tier's beside it.
"""
from __future__ import annotations

import argparse
import math
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau_kernels
from flambeau_kernels import engine, vocabulary
from flambeau_kernels.formula import Formula

SAMPLES = 4500                                        # above the size from which the compiled tier runs

# word: ranges of the first argument (and of the second); `log` ranges are sampled evenly in the exponent.
Range = tuple[str, float, float]
_WIDE: dict[str, list[Range]] = {
    "exp": [("lin", -87, 88.7), ("lin", -103, -87), ("lin", -1, 1), ("log", 1e-30, 1e-3)],
    "exp2": [("lin", -126, 127.9), ("lin", -149, -126), ("lin", -1, 1)],
    "expm1": [("lin", -20, 88.7), ("lin", -1, 1), ("log", 1e-30, 1e-2)],
    "sigmoid": [("lin", -80, 80), ("lin", -4, 4), ("log", 1e-30, 1)],
    "sinh": [("lin", -89, 89), ("lin", -1.5, 1.5), ("log", 1e-30, 1)],
    "cosh": [("lin", -89, 89), ("lin", -2, 2)],
    "tanh": [("lin", -10, 10), ("lin", -0.8, 0.8), ("log", 1e-30, 1)],
    "log": [("log", 1e-44, 3e38), ("lin", 0.5, 2), ("lin", 0.99, 1.01)],
    "log2": [("log", 1e-44, 3e38), ("lin", 0.5, 2), ("lin", 0.99, 1.01)],
    "log10": [("log", 1e-44, 3e38), ("lin", 0.5, 2), ("lin", 0.99, 1.01)],
    "log1p": [("log", 1e-30, 1e30), ("lin", -0.999, 2), ("lin", -0.01, 0.01)],
    "log1p_exp": [("lin", -87, 90), ("lin", -3, 3), ("log", 1e-30, 1), ("lin", -103, -87)],
    "sin": [("lin", -7, 7), ("lin", -1e4, 1e4), ("log", 1e-30, 1e30)],
    "cos": [("lin", -7, 7), ("lin", -1e4, 1e4), ("log", 1e-30, 1e30)],
    "tan": [("lin", -7, 7), ("lin", -1e4, 1e4), ("log", 1e-30, 1e30)],
    "asin": [("lin", -1, 1), ("lin", 0.49, 0.51), ("log", 1e-30, 1)],
    "acos": [("lin", -1, 1), ("lin", 0.49, 0.51), ("lin", 0.999, 1)],
    "atan": [("lin", -3, 3), ("log", 1e-30, 1e30)],
    "asinh": [("lin", -5, 5), ("log", 1e-30, 1e30)],
    "acosh": [("lin", 1, 5), ("log", 1.0001, 1e30)],
    "atanh": [("lin", -0.9999, 0.9999), ("log", 1e-30, 1e-2)],
    "erf": [("lin", -4.2, 4.2), ("lin", 0.85, 1.0), ("log", 1e-30, 1)],
    "erfc": [("lin", -4, 9), ("lin", -0.5, 0.5)],
    "ndtr": [("lin", -3, 9), ("lin", -0.5, 0.5)], "normal_density": [("lin", -3, 3), ("lin", -0.5, 0.5)],
    "erfinv": [("lin", -0.9999, 0.9999), ("lin", 0.99, 0.99999), ("log", 1e-30, 1)],
    "lgamma": [("lin", 0.001, 60), ("lin", 0.9, 2.1), ("log", 1e-30, 1e30), ("lin", -9.9, -0.1),
               ("lin", 0.99999, 1.00001), ("lin", 1.9999, 2.0001)],
    "digamma": [("lin", 0.001, 60), ("lin", 1.3, 1.6), ("lin", 1.46162, 1.46164), ("log", 1e-30, 1e30),
                ("lin", -9.9, -0.1)],
    "trigamma": [("lin", 0.001, 60), ("log", 1e-18, 1e18), ("lin", -9.9, -0.1)],
    "tetragamma": [("lin", 0.001, 60), ("log", 1e-12, 1e12), ("lin", -9.9, -0.1)],
    "polygamma": [("lin", 0.001, 60), ("log", 1e-7, 1e9), ("lin", -9.9, -0.1)],
    "special_erfcx": [("lin", -9, 30), ("lin", -1, 1), ("log", 1e-30, 1e30)],
    "special_log_ndtr": [("lin", -40, 10), ("lin", -2, 2), ("log", 1, 1e18)],
    "special_ndtri": [("lin", 0.001, 0.999), ("lin", 0.49, 0.51), ("log", 1e-44, 0.5)],
    "special_i0": [("lin", -20, 20), ("lin", -90, 90), ("log", 1e-30, 1)],
    "special_i0e": [("lin", -20, 20), ("log", 1e-30, 1e30)],
    "special_i1": [("lin", -20, 20), ("lin", -90, 90), ("log", 1e-30, 1)],
    "special_i1e": [("lin", -20, 20), ("log", 1e-30, 1e30)],
    "special_modified_bessel_k0": [("lin", 0.01, 20), ("log", 1e-30, 80)],
    "special_modified_bessel_k1": [("lin", 0.01, 20), ("log", 1e-30, 80)],
    "special_scaled_modified_bessel_k0": [("lin", 0.01, 20), ("log", 1e-30, 1e30)],
    "special_scaled_modified_bessel_k1": [("lin", 0.01, 20), ("log", 1e-30, 1e30)],
    "special_bessel_j0": [("lin", -30, 30), ("log", 1e-30, 1e6)],
    "special_bessel_j1": [("lin", -30, 30), ("log", 1e-30, 1e6)],
    "special_bessel_y0": [("lin", 0.01, 30), ("log", 1e-30, 1e6)],
    "special_bessel_y1": [("lin", 0.01, 30), ("log", 1e-30, 1e6)],
    "special_spherical_bessel_j0": [("lin", -30, 30), ("log", 1e-30, 1e6)],
    "special_airy_ai": [("lin", -12, 12), ("lin", -2, 3), ("lin", -3000, 0), ("lin", 0, 22)],
}
_PAIRS: dict[str, list[tuple[Range, Range]]] = {
    "pow": [(("log", 1e-3, 1e3), ("lin", -10, 10)), (("lin", 0.9, 1.1), ("lin", -500, 500)),
            (("log", 1e-40, 1e38), ("lin", -1, 1)), (("lin", -20, -1), ("lin", 2, 2))],
    "atan2": [(("lin", -3, 3), ("lin", -3, 3)), (("log", 1e-20, 1e20), ("log", 1e-20, 1e20)),
              (("log", 1e-20, 1e20), ("lin", -1e3, -1))],
    "hypot": [(("lin", -3, 3), ("lin", -3, 3)), (("log", 1e-30, 1e30), ("log", 1e-30, 1e30))],
    "special_zeta": [(("lin", 1.01, 6), ("lin", 0.01, 30)), (("lin", 1.001, 1.1), ("log", 1e-5, 1e9)),
                     (("lin", 1.1, 30), ("lin", 0.1, 4))],
    **{word: [(("lin", 0.05, 30), ("lin", 0.05, 30)), (("lin", 900, 1100), ("lin", 900, 1100)), (("log", 1e-10, 1), ("lin", 0.01, 3)),
              (("log", 12, 2e3), ("log", 12, 2e3))] for word in ("igamma", "igammac")},
}  # fmt: skip
# float64 reaches further.
_FURTHER: dict[str, list[Range]] = {
    "exp": [("lin", -708, 709.7), ("lin", -745, -708)], "exp2": [("lin", -1022, 1023.9)],
    "expm1": [("lin", -40, 709.7)], "sinh": [("lin", -710.4, 710.4)], "cosh": [("lin", -710.4, 710.4)],
    "log": [("log", 5e-324, 1.7e308)], "log2": [("log", 5e-324, 1.7e308)], "log10": [("log", 5e-324,
                                                                                      1.7e308)],
    "erf": [("lin", -6, 6)], "erfc": [("lin", 0, 26.5)], "ndtr": [("lin", -37, 5)], "normal_density": [("lin", -37, 37)],
    "sin": [("log", 1e-300, 1e300)],
    "cos": [("log", 1e-300, 1e300)], "tan": [("log", 1e-300, 1e300)], "tanh": [("lin", -22, 22)],
    "sigmoid": [("lin", -700, 40)], "special_ndtri": [("log", 1e-320, 0.01)], "special_erfcx": [("lin", -26.6, 0)],
    "special_i0": [("lin", -713, 713)], "special_i1": [("lin", -713, 713)],
    "special_modified_bessel_k0": [("lin", 1, 740)], "special_modified_bessel_k1": [("lin", 1, 740)],
    "special_airy_ai": [("lin", 20, 103)],
}  # fmt: skip


# Words that are another word with a constant.
_TEXTS = {"trigamma": "special_polygamma(1, x)", "tetragamma": "special_polygamma(2, x)",
          "polygamma": "special_polygamma(3, x)"}


def size(word: str, x: float) -> float:
    """The least size whose ulp errors are counted in: an oscillating function's amplitude, not its zeros."""
    if word.startswith("special_bessel"):
        return min(1.0, math.sqrt(2 / (math.pi * abs(x))))
    if word == "special_spherical_bessel_j0":
        return min(1.0, 1 / abs(x))
    if word == "special_airy_ai" and x < 0:
        return min(0.5, abs(x) ** -0.25 / math.sqrt(math.pi))
    return 1.0 if word in ("lgamma", "digamma", "tetragamma") and x < 0 else 0.0


def exact(word: str) -> Callable[..., object]:
    """The mpmath function of `word`."""
    import mpmath as mp

    named = {"exp2": lambda x: mp.mpf(2) ** x, "log2": lambda x: mp.log(x, 2),
             "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
             "log1p_exp": lambda x: mp.log1p(mp.exp(x)),
             "lgamma": lambda x: mp.re(mp.loggamma(x)), "ndtr": mp.ncdf, "normal_density": mp.npdf, "pow": mp.power, "erfinv": _erfinv,
             "trigamma": lambda x: mp.polygamma(1, x), "tetragamma": lambda x: mp.polygamma(2, x),
             "polygamma": lambda x: mp.polygamma(3, x), "special_zeta": mp.zeta,
             "igamma": lambda a, x: mp.gammainc(a, 0, x, regularized=True),
             "igammac": lambda a, x: mp.gammainc(a, x, mp.inf, regularized=True),
             "special_airy_ai": mp.airyai,
             "special_erfcx": _erfcx, "special_log_ndtr": lambda x: _log_ndtr(x), "special_ndtri": _ndtri,
             "special_i0": lambda x: mp.besseli(0, x), "special_i1": lambda x: mp.besseli(1, x),
             "special_i0e": lambda x: mp.exp(-abs(x)) * mp.besseli(0, x),
             "special_i1e": lambda x: mp.exp(-abs(x)) * mp.besseli(1, x),
             "special_modified_bessel_k0": lambda x: mp.besselk(0, x),
             "special_modified_bessel_k1": lambda x: mp.besselk(1, x),
             "special_scaled_modified_bessel_k0": lambda x: mp.exp(x) * mp.besselk(0, x),
             "special_scaled_modified_bessel_k1": lambda x: mp.exp(x) * mp.besselk(1, x),
             "special_bessel_j0": lambda x: mp.besselj(0, x), "special_bessel_j1": lambda x: mp.besselj(1, x),
             "special_bessel_y0": lambda x: mp.bessely(0, x), "special_bessel_y1": lambda x: mp.bessely(1, x),
             "special_spherical_bessel_j0": mp.sinc}
    return named.get(word) or getattr(mp, word)


def _erfinv(x):
    import mpmath as mp

    if abs(x) < mp.mpf("0.9"):
        return mp.erfinv(x)
    # mpmath starts its search too far away in the tails.
    eta = mp.sqrt(-mp.log((1 - abs(x)) * mp.sqrt(mp.pi)))
    start = mp.sqrt(abs(eta**2 - mp.log(eta))) if eta > 1 else eta
    return mp.sign(x) * mp.findroot(lambda y: mp.erfc(y) - (1 - abs(x)), start, solver="newton",
                                    df=lambda y: -2 / mp.sqrt(mp.pi) * mp.exp(-y * y))


def _erfcx(x):
    import mpmath as mp

    if x > 1000:                                      # by its asymptotic series, two terms of which are plenty
        return (1 - 1 / (2 * x * x) + 3 / (4 * x**4)) / (x * mp.sqrt(mp.pi)) if x > 1e9 else mp.hyper(
            [1, 0.5], [], -1 / x**2) / (x * mp.sqrt(mp.pi))
    return mp.exp(x * x) * mp.erfc(x)


def _log_ndtr(x):
    import mpmath as mp

    if x < 0:
        return mp.log(_erfcx(-x / mp.sqrt(2)) / 2) - x * x / 2
    return mp.log1p(-mp.erfc(x / mp.sqrt(2)) / 2)


def _ndtri(x):
    import mpmath as mp
    from scipy.special import ndtri

    return mp.findroot(lambda y: _log_ndtr(y) - mp.log(x), float(ndtri(float(x))), solver="newton",
                       df=lambda y: mp.sqrt(2 / mp.pi) / _erfcx(-y / mp.sqrt(2)))


def formula(word: str) -> Formula:
    """The formula that is nothing but `word`."""
    arguments = "x, y" if word in _PAIRS else "x"
    scope = dict(vars(vocabulary))
    # One text per word, all of them here.
    exec(f"def function({arguments}):\n    return {_TEXTS.get(word) or f'{word}({arguments})'}", scope)
    return Formula(scope["function"], word)


def samples(word: str, dtype: str) -> list[tuple[np.ndarray, ...]]:
    """Arguments of `word`, one tuple of arrays per range."""
    rng = np.random.default_rng(0)
    if word in _PAIRS:
        return [tuple(_draw(rng, r, dtype) for r in ranges) for ranges in _PAIRS[word]]
    ranges = _WIDE[word] + (_FURTHER.get(word, []) if dtype == "float64" else [])
    return [(_draw(rng, r, dtype),) for r in ranges]


def _draw(rng: np.random.Generator, what: Range, dtype: str) -> np.ndarray:
    spread, low, high = what
    if spread == "log":
        values = np.exp(rng.uniform(np.log(low), np.log(high), SAMPLES))
    else:
        values = rng.uniform(low, high, SAMPLES)
    return values.astype(dtype)


def evaluate(word: str, arguments: tuple[np.ndarray, ...]) -> np.ndarray | None:
    """`word` by the compiled tier; None where it has no code for the dtype."""
    out = np.empty_like(arguments[0])
    return out if engine.launch(formula(word), arguments, (out,), out.dtype) else None


def worst_ulp(word: str, arguments: tuple[np.ndarray, ...], count: int) -> tuple[float, tuple[float,
                                                                                              ...]] | None:
    """Largest error among the first `count` samples, in ulp, and where it is."""
    import mpmath as mp

    results = evaluate(word, arguments)
    if results is None:
        return None
    function, worst, where = exact(word), -1.0, ()
    with mp.workdps(50):
        for *point, result in zip(*(a[:count] for a in arguments), results[:count], strict=True):
            error = _ulp(function(*(mp.mpf(float(x)) for x in point)), result, size(word, float(point[0])))
            if not error <= worst:
                worst, where = error, tuple(float(x) for x in point)
    return worst, where


def _ulp(truth: Any, result: np.floating, size: float) -> float:
    rounded = type(result)(float(truth))              # by way of double: close enough for a spacing
    if np.isinf(rounded) or np.isinf(result):
        return 0.0 if rounded == result else float("inf")
    return float(abs(truth - float(result)) / float(np.spacing(np.maximum(np.abs(rounded), type(result)(size)))))


def nanoseconds(word: str, dtype: str) -> tuple[float, float]:
    """Time per element of the compiled and of the numpy tier, one thread."""
    arguments = tuple(np.resize(a, 1 << 16) for a in samples(word, dtype)[0])
    out, this = np.empty_like(arguments[0]), formula(word)
    before = engine.get_num_threads()
    engine.set_num_threads(1)
    try:
        compiled = timeit.repeat(lambda: engine.launch(this, arguments, (out,), out.dtype), number=1,
                                 repeat=30)
        plain = timeit.repeat(
            lambda: flambeau_kernels.reference_launch(this, arguments, (out,), out.dtype), number=1, repeat=5)
    finally:
        engine.set_num_threads(before)
    return min(compiled) / out.size * 1e9, min(plain) / out.size * 1e9


def page(count: int) -> str:
    """The published table: largest errors of every word, by dtype."""
    rows = []
    for word in (*_WIDE, *_PAIRS):
        cells = [_NAMES.get(word) or word.removeprefix("special_")]
        for dtype in ("float32", "float64"):
            found = [w for w in (worst_ulp(word, a, count) for a in samples(word, dtype)) if w is not None]
            cells += [f"{max(found)[0]:.2f}", _shown(max(found)[1])] if found else ["by scipy", ""]
        rows.append(f"| {' | '.join(cells)} |")
    import accuracy_of_complex

    return _PAGE.format(count=count, rows="\n".join(rows), complex_rows="\n".join(accuracy_of_complex.rows(count)))


def _shown(where: tuple[float, ...]) -> str:
    return ", ".join(f"{x:.9g}" for x in where)


_NAMES = {"log1p_exp": "softplus", "trigamma": "polygamma(1, x)", "tetragamma": "polygamma(2, x)", "polygamma": "polygamma(3, x)"}
_PAGE = """# Accuracy of the elementary functions

Largest error of the compiled functions in units in the last place, against mpmath with 50 digits, over {count} samples of each of
several ranges (`_WIDE`, `_PAIRS` and `_FURTHER` in `.ci/make_accuracy_page.py`); 0.5 is the least possible. A function
without an entry runs on the numpy tier. This page is written by

    python .ci/make_accuracy_page.py --count {count} --page docs/accuracy.md

and `tests/kernels/scalar/test_scalar.py` holds every function to a bound near these figures. `ndtr` of float32 is right to 1e-5 of
itself below -5.5 and 0 from -12.9 on, and so is `normal_density`, of which the derivative of `gelu` is made, beyond 5.5 on either
side. Where a function passes through 0 between its poles or oscillates, the unit is that of 1 or of its amplitude: `lgamma`, `digamma` and
`polygamma(2, x)` below 0, the Bessel functions J and Y, the Airy function (`size` in the same file).
Half types are computed in float32 and rounded once. This holds for arrays of every size.

| function | float32 | at | float64 | at |
|---|---:|---|---:|---|
{rows}

## Complex numbers

The distance from the exact result, in units in the last place of its size: of a result with parts of very different sizes the
smaller part can be off by more of its own units. `complex64` is computed in float64. Zeros, infinities, nan and branch cuts are
those of C99, annex G. A power is as exact as its exponent times the logarithm of its base allows: about 10 units for parts up to 3.

| function | complex64 | at | complex128 | at |
|---|---:|---|---:|---|
{complex_rows}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Accuracy of the compiled elementary functions, in ulp.")
    parser.add_argument("words", nargs="*", help="words of the vocabulary; all by default")
    parser.add_argument("--count", type=int, default=1000, help="samples per range (default 1000)")
    parser.add_argument("--page", help="write the errors as a Markdown page to this file instead")
    options = parser.parse_args()
    if options.page:
        with open(options.page, "w", encoding="utf-8") as file:
            file.write(page(options.count))
        return
    print(f"{'word':34} {'dtype':8} {'worst ulp':>9}  {'at':42} {'ns/element':>10} {'numpy tier':>10}")
    for word in options.words or (*_WIDE, *_PAIRS):
        for dtype in ("float32", "float64"):
            measured = (worst_ulp(word, arguments, options.count) for arguments in samples(word, dtype))
            found = [worst for worst in measured if worst is not None]
            if not found:
                print(f"{word:34} {dtype:8} {'-':>9}  left to the numpy tier")
                continue
            worst, where = max(found)
            fast, slow = nanoseconds(word, dtype)
            place = ", ".join(f"{x:.17g}" for x in where)
            print(f"{word:34} {dtype:8} {worst:9.2f}  {place:42} {fast:10.2f} {slow:10.2f}")


if __name__ == "__main__":
    main()
