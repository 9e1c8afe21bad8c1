"""The numpy reading of the vocabulary: the reference every other reading is compared with.

Words numpy lacks come from scipy.special, imported when one is first evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from .loading import scipy_module


def _keep_dtype(value: Any, args: tuple[Any, ...]) -> Any:
    """scipy widens some float32 results; the vocabulary's words keep their argument's dtype."""
    wanted = np.result_type(*args)
    return value if value.dtype == wanted or wanted.kind not in "fc" else value.astype(wanted)


def _scipy(name: str) -> Callable[..., Any]:
    def word(*args: Any) -> Any:
        return _keep_dtype(getattr(scipy_module("special"), name)(*args), args)

    return word


def _lgamma(x: Any) -> Any:
    # scipy says -inf at -inf, where C's lgamma and the compiled one say inf.
    return np.where(x == -np.inf, -x, _scipy("gammaln")(x))


def _airy_ai(x: Any) -> Any:
    # scipy gives nan for magnitudes it cannot reduce, where the function has long been 0.
    made = np.where((np.abs(x) > 1e20) & (np.abs(x) < np.inf), 0, scipy_module("special").airy(x)[0])
    return _keep_dtype(made, (x,))


def _spherical_j0(x: Any) -> Any:
    return _keep_dtype(scipy_module("special").spherical_jn(0, x), (x,))


def _sigmoid(x: Any) -> Any:
    # exp of the negative magnitude cannot overflow, and both branches stay finite.
    if np.iscomplexobj(x):
        return 1 / (1 + np.exp(-x))
    z = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + z), z / (1 + z)).astype(z.dtype, copy=False)


def _sign(x: Any) -> Any:
    if x.dtype.kind == "b":
        return x
    if np.iscomplexobj(x):
        size = np.abs(x)
        safe = np.where(size == 0, 1, size)
        made = np.empty(np.shape(x), x.dtype)
        # Each part by itself: an infinite one leaves the other one.
        made.real, made.imag = np.where(size == 0, 0, x.real / safe), np.where(size == 0, 0, x.imag / safe)
        return made
    return np.sign(np.where(np.isnan(x), 0, x)).astype(x.dtype, copy=False) if x.dtype.kind == "f" else np.sign(x)


def _nearbyint(x: Any) -> Any:
    return x if x.dtype.kind in "biu" else np.rint(x)  # which takes integers by way of float64


def _pow(x: Any, y: Any) -> Any:
    kind = np.result_type(x, y).kind
    if kind == "c":
        return _complex_pow(x, y)
    if kind not in "iu":
        return np.power(x, y)
    # Integer powers below zero are 0, but for the two numbers whose inverse is an integer.
    negative = np.asarray(y) < 0
    if not negative.any():
        return np.power(x, y)
    powers = np.power(x, np.where(negative, 0, y))
    inverse = np.where(x == 1, 1, np.where(x == -1, np.where(np.asarray(y) % 2 == 0, 1, -1), 0))
    return np.where(negative, inverse, powers).astype(powers.dtype, copy=False)


def _complex_pow(x: Any, y: Any) -> Any:
    """exp(y log x) also where x is 0, which numpy leaves undefined; a single exponent of 0 gives 1."""
    made = np.asarray(np.power(x, y))
    exponent: Any = np.asarray(y)
    if exponent.ndim == 0 and exponent == 0:
        return made
    zero = np.asarray(x) == 0
    if zero.any():
        at_zero = np.where(exponent.real > 0, 0, np.where(exponent.real < 0, complex(np.inf, np.nan), complex(np.nan, np.nan)))
        made = np.where(zero, at_zero.astype(made.dtype), made)
    return made


def _remainder(x: Any, y: Any) -> Any:
    """The remainder with the sign of `y`; a zero keeps the sign of `x`."""
    if np.result_type(x, y).kind != "f":
        return np.remainder(x, y)
    rest = np.fmod(x, y)
    return np.where((rest != 0) & ((rest < 0) != (np.asarray(y) < 0)), rest + y, rest)


def _lcm(x: Any, y: Any) -> Any:
    """The least common multiple modulo a power of two; as PyTorch has it, its size from 32 bits on."""
    made = np.lcm(x, y)
    return made if made.dtype.itemsize < 4 else np.abs(made)


def _fma(x: Any, y: Any, z: Any) -> Any:
    return x * y + z


def _orthogonal(family: str, slope: int, shift: int, x: Any, n: Any) -> Any:
    """See `scalar/recurrence.py`."""
    x, degree = np.broadcast_arrays(x, np.where(np.abs(n) < 2.0**63, n, -1).astype(np.int64))
    out = np.where(degree < 0, 0, np.where(degree == 0, 1, slope * x + shift)).astype(x.dtype)
    left = degree > 1
    out[left] = _recur(_STEPS[family], x[left], degree[left], slope, shift)
    return out


def _recur(step: Callable[..., Any], x: Any, degree: Any, slope: int, shift: int) -> Any:
    out = np.empty_like(x)
    order = np.argsort(degree)
    x, last = x[order], degree[order]
    wide = x.astype(np.float64)
    q, p = np.ones_like(x), slope * x + shift
    k, done = 1, 0
    while done < x.size:
        # In float64 the leading product of float32 values is exact, so the step rounds as a fused one does.
        q, p = p, step(k, wide[done:], p.astype(np.float64), q).astype(x.dtype)
        k += 1
        # Once nan, always nan: the rest of the recurrence cannot change what is left.
        stop = x.size if np.isnan(p).all() else int(np.searchsorted(last, k, "right"))
        out[order[done:stop]] = p[: stop - done]
        q, p = q[stop - done :], p[stop - done :]
        done = stop
    return out


# The polynomial of degree k + 1, from those of degree k, `p`, and k - 1, `q`.
_STEPS: dict[str, Callable[..., Any]] = {
    "chebyshev": lambda k, x, p, q: (x + x) * p - q,
    "hermite": lambda k, x, p, q: (x + x) * p - 2 * k * q,
    "hermite_e": lambda k, x, p, q: x * p - k * q,
    "laguerre": lambda k, x, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1),
    "legendre": lambda k, x, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1),
}


def _frexp(part: int) -> Callable[..., Any]:
    return lambda x: np.frexp(x)[part]


def _angle(x: Any) -> Any:
    return np.angle(x) if np.iscomplexobj(x) else np.where(np.isnan(x), x, np.where(x < 0, np.pi, 0)).astype(x.dtype)


def _rounded_to(half: Any) -> Callable[..., Any]:
    return lambda x: x.astype(np.float32).astype(half).astype(x.dtype)


def _normal_density(x: Any) -> Any:
    return np.exp(-0.5 * x * x) * x.dtype.type(0.3989422804014327)  # 1 / sqrt(2 pi)


def _log1p_exp(x: Any) -> Any:
    # In float64, where rounding the exponential does not show in a float32.
    wide = x.astype(np.float64)
    return (np.maximum(wide, 0) + np.log1p(np.exp(-abs(wide)))).astype(x.dtype)


WORDS_READ: dict[str, Any] = {
    "abs": np.abs, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1,
    "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "log1p_exp": _log1p_exp,
    "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "erf": _scipy("erf"),
    "erfc": _scipy("erfc"), "erfinv": _scipy("erfinv"), "ndtr": _scipy("ndtr"), "normal_density": _normal_density,
    "sigmoid": _sigmoid, "pow": _pow, "lgamma": _lgamma,
    "digamma": _scipy("psi"), "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "nearbyint": _nearbyint,
    "copysign": np.copysign, "fmod": np.fmod, "remainder": _remainder, "floor_divide": np.floor_divide, "where": np.where,
    "minimum": np.minimum, "maximum": np.maximum, "fmin": np.fmin, "fmax": np.fmax, "isnan": np.isnan, "isinf": np.isinf,
    "isfinite": np.isfinite, "logical_not": np.logical_not, "logical_and": np.logical_and, "logical_or": np.logical_or,
    "logical_xor": np.logical_xor, "signbit": np.signbit, "hypot": np.hypot, "nextafter": np.nextafter, "sign": _sign,
    "fma": _fma, "real": np.real, "imag": np.imag, "conj": np.conjugate, "angle": _angle,
    "special_i0": _scipy("i0"), "special_i0e": _scipy("i0e"), "special_i1": _scipy("i1"), "special_i1e": _scipy("i1e"),
    "special_ndtri": _scipy("ndtri"), "special_zeta": _scipy("zeta"), "special_polygamma": _scipy("polygamma"),
    "special_entr": _scipy("entr"), "special_bessel_j0": _scipy("j0"), "special_bessel_j1": _scipy("j1"),
    "special_bessel_y0": _scipy("y0"), "special_bessel_y1": _scipy("y1"), "special_modified_bessel_k0": _scipy("k0"),
    "special_modified_bessel_k1": _scipy("k1"), "special_scaled_modified_bessel_k0": _scipy("k0e"),
    "special_scaled_modified_bessel_k1": _scipy("k1e"), "special_erfcx": _scipy("erfcx"),
    "special_log_ndtr": _scipy("log_ndtr"), "special_spherical_bessel_j0": _spherical_j0,
    "special_airy_ai": _airy_ai, "igamma": _scipy("gammainc"), "igammac": _scipy("gammaincc"),
    "gcd": np.gcd, "lcm": _lcm, "ldexp": lambda x, y: x * np.exp2(y), "frexp_mantissa": _frexp(0), "frexp_exponent": _frexp(1),
    "bit_not": np.invert, "orthogonal": _orthogonal,
    "round_to_float16": _rounded_to(np.float16), "round_to_bfloat16": _rounded_to(ml_dtypes.bfloat16),
}  # fmt: skip
