"""Which elementary functions exist for which kind of float.

Accuracy of each, in units in the last place against mpmath, is what
`python .ci/make_accuracy_page.py` prints.
"""
from __future__ import annotations

from collections.abc import Callable

from flambeau_kernels.scalar import (
    airy,
    bessel,
    error,
    exponential,
    gamma,
    incomplete_gamma,
    logarithm,
    normal,
    trigonometric,
    zeta,
)
from flambeau_kernels.scalar.symbols import F32, Kind, Symbol
from flambeau_kernels.scalar.trigonometric import by_way_of_double, with_single_accuracy

_EITHER = {
    "igamma": incomplete_gamma.igamma, "igammac": incomplete_gamma.igammac,
    "exp": exponential.exp, "exp2": exponential.exp2, "expm1": exponential.expm1,
    "sigmoid": exponential.sigmoid, "sinh": exponential.sinh, "cosh": exponential.cosh,
    "log": logarithm.log,
    "sin": trigonometric.sin, "cos": trigonometric.cos, "tan": trigonometric.tan,
}  # fmt: skip
_DOUBLE = {
    **_EITHER, "log1p": logarithm.log1p, "log1p_exp": logarithm.log1p_exp, "log2": logarithm.log2, "log10": logarithm.log10,
    "pow": logarithm.pow64, "tanh": exponential.tanh64, "asinh": logarithm.asinh, "acosh": logarithm.acosh, "atanh": logarithm.atanh,
    "asin": trigonometric.asin,
    "acos": trigonometric.acos, "atan": trigonometric.atan, "atan2": trigonometric.atan2,
    "hypot": trigonometric.hypot64, "erf": error.erf64, "erfc": error.erfc64, "ndtr": error.ndtr64,
    "normal_density": error.normal_density64,
    "erfinv": error.erfinv64,
    "lgamma": gamma.lgamma64, "digamma": gamma.digamma64, "trigamma": gamma.trigamma, "tetragamma": gamma.tetragamma,
    "special_zeta": zeta.zeta, "special_airy_ai": airy.airy_ai, "polygamma": zeta.polygamma,
    **bessel.DOUBLE, **normal.DOUBLE,
}  # fmt: skip
_SINGLE = {
    **_EITHER, "tanh": exponential.tanh32,
    "log1p": logarithm.log1p_32, "log1p_exp": logarithm.log1p_exp32, "log2": logarithm.log2_32, "log10": logarithm.log10_32,
    "asinh": logarithm.asinh32, "acosh": logarithm.acosh32, "atanh": logarithm.atanh32, "erfc": error.erfc32, "ndtr": error.ndtr32,
    "normal_density": error.normal_density32,
    **{name: with_single_accuracy(_DOUBLE[name]) for name in ("asin", "acos", "atan", "atan2")},
    **{name: by_way_of_double(_DOUBLE[name]) for name in ("trigamma", "tetragamma")}, **bessel.SINGLE, **normal.SINGLE,
    "pow": logarithm.pow32, "hypot": trigonometric.hypot32, "erf": error.erf32, "erfinv": error.erfinv32,
    "lgamma": gamma.lgamma32, "digamma": gamma.digamma32, "special_zeta": zeta.zeta32, "polygamma": zeta.polygamma,
    "special_airy_ai": airy.airy_ai32,
}  # fmt: skip


def table(kind: Kind) -> dict[str, Callable[..., Symbol]]:
    """The elementary functions of `kind`, by their word."""
    return _SINGLE if kind is F32 else _DOUBLE
