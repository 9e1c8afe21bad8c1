"""How accurate the functions of complex numbers are: what `make_accuracy_page.py` is for real ones.

The unit is the spacing of floats at the size of the exact result, so that it is the distance of two complex numbers
that is counted; the smaller part alone can be off by more of its own units.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import make_accuracy_page as accuracy

PARTS = {"complex64": "float32", "complex128": "float64"}
# Largest parts for which the function is sampled; beside that, sizes between 1e-20 and 1e20 where it is None.
_REACH: dict[str, float | None] = {
    "exp": 80, "expm1": 30, "exp2": 3, "log": None, "log1p": None, "log2": None, "log10": None, "sqrt": None, "rsqrt": None,
    "sinh": 80, "cosh": 80, "tanh": 20, "sin": 80, "cos": 80, "tan": 20, "asin": None, "acos": None, "atan": None,
    "asinh": None, "acosh": None, "atanh": None, "sigmoid": 20, "sign": None, "abs": None, "angle": None,
}  # fmt: skip
WORDS = tuple(_REACH)


def samples(word: str, dtype: str, count: int = accuracy.SAMPLES) -> list[np.ndarray]:
    """Arguments of `word`: around 0, of all sizes in all directions, near the unit circle and near the axes."""
    rng = np.random.default_rng(0)
    reach = _REACH[word]
    around = rng.uniform(-3, 3, count) + 1j * rng.uniform(-3, 3, count)
    direction = np.exp(2j * np.pi * rng.uniform(0, 1, count))
    circle = direction * (1 + rng.uniform(-1e-3, 1e-3, count))
    if reach is None:
        wide = direction * np.exp(rng.uniform(np.log(1e-15), np.log(1e15), count))
    else:
        wide = rng.uniform(-reach, reach, count) + 1j * rng.uniform(-reach, reach, count)
    flat = around.real + 1j * around.imag * 1e-6
    return [x.astype(dtype) for x in (around, circle, wide, flat, 1j * flat)]


def exact(word: str) -> Callable[[Any], Any]:
    """The mpmath function of `word`."""
    import mpmath as mp

    named = {"exp2": lambda z: mp.exp(z * mp.log(2)), "log2": lambda z: mp.log(z) / mp.log(2), "angle": mp.arg, "abs": abs,
             "log10": lambda z: mp.log(z) / mp.log(10), "rsqrt": lambda z: 1 / mp.sqrt(z), "sign": lambda z: z / abs(z),
             "sigmoid": lambda z: 1 / (1 + mp.exp(-z))}
    return named.get(word) or getattr(mp, word)


def worst_ulp(word: str, z: np.ndarray, count: int) -> tuple[float, complex]:
    """Largest error among the first `count` samples, in ulp of the result's size, and where it is."""
    import mpmath as mp

    real = word in ("abs", "angle")
    out = np.empty(z.shape, PARTS[z.dtype.name] if real else z.dtype)
    if not accuracy.engine.launch(accuracy.formula(word), (z,), (out,), z.dtype):
        raise ValueError(f"{word} of {z.dtype.name} has no compiled code")
    function, worst, where = exact(word), -1.0, 0j
    part = np.dtype(PARTS[z.dtype.name]).type
    with mp.workdps(90):
        for point, result in zip(z[:count].tolist(), out[:count].tolist(), strict=True):
            truth = function(mp.mpc(point))
            unit = float(np.spacing(part(float(abs(truth)))))
            error = float(abs(truth - mp.mpc(result))) / unit
            if not error <= worst:
                worst, where = error, point
    return worst, where


def rows(count: int) -> list[str]:
    """Rows of the published table."""
    text = []
    for word in WORDS:
        cells = [word]
        for dtype in PARTS:
            worst, where = max((worst_ulp(word, z, count) for z in samples(word, dtype)), key=lambda found: found[0])
            cells += [f"{worst:.2f}", f"{where.real:.6g} {where.imag:+.6g}i"]
        text.append(f"| {' | '.join(cells)} |")
    return text
