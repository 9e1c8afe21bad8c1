"""Where the polynomial coefficients come from: writes `flambeau_kernels/scalar/coefficients.py`.

    python .ci/make_coefficients.py

Each row of `FITS` is a function that is smooth on an interval; its polynomial interpolates it at Chebyshev
nodes, worked out with 60 digits by mpmath (Trefethen 2013, "Approximation Theory and Approximation Practice",
ch. 2: within a small factor of the best polynomial). Nothing here runs with the kernels.
"""
from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import mpmath as mp

mp.mp.dps = 60                                        # before the rows below, which have numbers in them

from coefficients_of_special import SPECIAL  # noqa: E402

COEFFICIENTS = pathlib.Path(__file__).resolve().parent.parent / "kernels/flambeau_kernels/scalar/coefficients.py"
HALF_LN2 = mp.log(2) / 2 * mp.mpf("1.001")
QUARTER_PI_SQUARED = (mp.pi / 4 * mp.mpf("1.001")) ** 2
LOG_Z = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2 * mp.mpf("1.001")
# erfc(x) exp(x**2) on [0, inf) as a polynomial of t = (x - K) / (x + K): Shepherd and Laframboise 1981,
# "Chebyshev Approximation of (1 + 2x) exp(x**2) erfc(x) in 0 <= x < inf", Math. Comp. 36.
ERFC_K = mp.mpf("3.75")
NDTR_K, NDTR_END = mp.mpf(4), mp.mpf("12.95")


def near_zero(function: Callable, limit: object) -> Callable:
    """`function`, but its limit where the quotient would be 0/0."""
    return lambda z: limit if abs(z) < mp.mpf(10) ** -25 else function(z)


def exp_tail(r):                                      # exp(r) = 1 + r + r**2 tail(r)
    return mp.expm1(r) / r**2 - 1 / r


def exp2_tail(r):                                     # 2**r = 1 + r tail(r)
    return mp.expm1(r * mp.log(2)) / r


def log_tail(z):                                      # log((1+s)/(1-s)) = 2s + s z tail(z), z = s**2
    s = mp.sqrt(z)
    return (mp.log((1 + s) / (1 - s)) / s - 2) / z


def log_tail2(z):                                     # log_tail(z) = 2/3 + z tail2(z)
    return (log_tail(z) - mp.mpf(2) / 3) / z


def odd(function: Callable) -> Callable:              # f(x) = x + x z tail(z), z = x**2
    def tail(z):
        x = mp.sqrt(z)
        return (function(x) / x - 1) / z

    return tail


def cos_tail(z):                                      # cos(x) = 1 - z/2 + z**2 tail(z)
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2


def erf_factor(z):                                    # erf(x) = x + x factor(z)
    x = mp.sqrt(z)
    return mp.erf(x) / x - 1


def erfc_scaled(t):                                   # (1 + 2x) exp(x**2) erfc(x)
    x = ERFC_K * (1 + t) / (1 - t)
    # Asymptotic series, where mpmath's product would need many digits.
    if x > 30:
        return (1 + 2 * x) / (x * mp.sqrt(mp.pi)) * mp.hyper([1, mp.mpf(1) / 2], [], -1 / x**2)
    return (1 + 2 * x) * mp.exp(x**2) * mp.erfc(x)


def erf_exponent(x):                                  # erf(x) = 1 - 2**(x exponent(x))
    return mp.log(mp.erfc(x), 2) / x


def ndtr_scaled(t):                                   # (x + K) exp(x**2 / 2) ndtr(-x), t = 1 - 2 K / (x + K)
    x = NDTR_K * (1 + t) / (1 - t)
    return (x + NDTR_K) * mp.exp(x**2 / 2) * mp.erfc(x / mp.sqrt(2)) / 2


def erfinv_of(w: Callable) -> Callable:
    """erfinv(x) / x as a function of v, where -log(1 - x**2) = w(v): Giles 2010, "Approximating the erfinv
    function".
    """
    def factor(v):
        x = mp.sqrt(-mp.expm1(-w(v)))
        if x == 0:
            return mp.sqrt(mp.pi) / 2
        return mp.findroot(lambda y: mp.erfc(y) - (1 - x),
                           _erfinv_start(x)) / x if x > mp.mpf("0.5") else mp.erfinv(x) / x

    return factor


def _erfinv_start(x):
    eta = mp.sqrt(-mp.log((1 - x) * mp.sqrt(mp.pi)))
    return mp.sqrt(abs(eta**2 - mp.log(eta) if eta > 1 else eta**2)) + mp.mpf("0.01")


Z = mp.mpf
# name: function, interval, degree for float32, degree for float64 (None: not used there). The rows called
# `medium` are evaluated in float64 for functions of float32.
FITS = {
    "exp": (near_zero(exp_tail, Z(1) / 2), (-HALF_LN2, HALF_LN2), 4, 10),
    "exp_medium": (near_zero(exp_tail, Z(1) / 2), (-HALF_LN2, HALF_LN2), 6, None),
    "exp2": (near_zero(exp2_tail, mp.log(2)), (-Z("0.5005"), Z("0.5005")), 6, 12),
    "exp2_short": (near_zero(exp2_tail, mp.log(2)), (-Z("0.5005"), Z("0.5005")), 5, None),
    "log": (near_zero(log_tail, Z(2) / 3), (Z(0), LOG_Z), 3, 7),
    "log_medium": (near_zero(log_tail, Z(2) / 3), (Z(0), LOG_Z), 5, None),
    "log1p_of_fraction": (near_zero(log_tail, Z(2) / 3), (Z(0), Z(1) / 9 * Z("1.001")), 4, None),
    "log_second": (near_zero(log_tail2, Z(2) / 5), (Z(0), LOG_Z), None, 7),
    "sin": (near_zero(odd(mp.sin), -Z(1) / 6), (Z(0), QUARTER_PI_SQUARED), 4, 6),
    "cos": (near_zero(cos_tail, Z(1) / 24), (Z(0), QUARTER_PI_SQUARED), 3, 6),
    "sinh": (near_zero(odd(mp.sinh), Z(1) / 6), (Z(0), Z(1)), 3, 7),
    "tanh": (near_zero(odd(mp.tanh), -Z(1) / 3), (Z(0), Z("0.36")), 4, 11),
    "tanh_further": (near_zero(odd(mp.tanh), -Z(1) / 3), (Z(0), Z("0.57")), 5, None),
    "asin": (near_zero(odd(mp.asin), Z(1) / 6), (Z(0), Z("0.2505")), 5, 13),
    "atan": (near_zero(odd(mp.atan), -Z(1) / 3), (Z(0), Z("0.1718")), 5, 11),
    "erf": (near_zero(erf_factor, 2 / mp.sqrt(mp.pi) - 1), (Z(0), Z("0.93") ** 2), 6, 13),
    # Fitted where its errors can be seen: beyond, erf is 1 but for a unit.
    "erf_exponent": (erf_exponent, (Z("0.9"), Z("3.1")), 6, None),
    "ndtr": (ndtr_scaled, (Z(-1), (NDTR_END - NDTR_K) / (NDTR_END + NDTR_K)), 9, None),
    "erfc": (erfc_scaled, (Z(-1), Z("0.99999999999")), 14, 26),
    "erfinv": (erfinv_of(lambda w: w), (Z("1e-30"), Z("5.01")), 9, 11),
    "erfinv_tail": (erfinv_of(lambda v: v**2), (mp.sqrt(Z("4.99")), Z("6.1")), 13, 13),
    **SPECIAL,
}


def fit(function: Callable, low: Any, high: Any, degree: int) -> list:
    """Coefficients, lowest power first, of the polynomial through `function` at degree + 1 Chebyshev nodes.
    """
    count = degree + 1
    nodes = [(low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * k + 1) / (2 * count))
             for k in range(count)]
    powers = mp.matrix(count, count)
    values = mp.matrix(count, 1)
    for row, x in enumerate(nodes):
        values[row] = function(x)
        for column in range(count):
            powers[row, column] = x**column
    return list(mp.lu_solve(powers, values))


def rows() -> dict[str, tuple[float, ...]]:
    """Every polynomial, rounded to double: the contents of `scalar/coefficients.py`."""
    table = {}
    for name, (function, (low, high), single, double) in FITS.items():
        for suffix, degree in (("float32", single), ("float64", double)):
            if degree is not None:
                table[f"{name}.{suffix}"] = tuple(float(c) for c in fit(function, low, high, degree))
    return table


def text() -> str:
    lines = [
        '"""Polynomial coefficients, lowest power first. Made by `python .ci/make_coefficients.py`."""',
        "from __future__ import annotations", "", "COEFFICIENTS: dict[str, tuple[float, ...]] = {",
    ]
    for name, values in rows().items():
        lines.append(f'    "{name}": (')
        written = [f"{value!r}," for value in values]
        lines += [f"        {' '.join(written[k:k + 4])}" for k in range(0, len(written), 4)]
        lines.append("    ),")
    return "\n".join([*lines, "}", ""])


if __name__ == "__main__":
    COEFFICIENTS.write_text(text(), encoding="utf-8")
