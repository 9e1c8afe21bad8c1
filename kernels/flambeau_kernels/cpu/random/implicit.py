"""How gamma and beta numbers move with their parameters at a fixed probability: the implicit derivatives of quantiles.

With F the distribution function and f the density, a sample z follows its parameter a by ``dz/da = -(dF/da) / f`` (Figurnov et
al. 2018, "Implicit Reparameterization Gradients"). F / f and its derivative have the series and continued fractions of the
incomplete gamma and beta functions (DLMF 8.7, 8.9, 8.17), differentiated term by term. All in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...loading import scipy_module

__all__ = ["beta_slope", "gamma_slope"]

_TINY = 1e-17  # terms this small against the sum change nothing


def gamma_slope(alpha: np.ndarray, z: np.ndarray) -> np.ndarray:
    """``dz/dalpha`` of gamma numbers `z` of shape parameter `alpha` and scale 1, in their shape; float64."""
    digamma = scipy_module("special").digamma
    a, x = (np.ravel(v).astype(np.float64) for v in np.broadcast_arrays(alpha, z))
    made = np.empty_like(a)
    below = x < a + 1
    with np.errstate(divide="ignore", invalid="ignore"):
        made[below] = _gamma_below(a[below], x[below], digamma)
        made[~below] = _gamma_above(a[~below], x[~below], digamma)
    return made.reshape(np.broadcast_shapes(np.shape(alpha), np.shape(z)))


def _gamma_below(a: np.ndarray, x: np.ndarray, digamma: Any) -> np.ndarray:
    """By the series ``F / f = x / a * sum of x**n / ((a + 1) ... (a + n))``, whose terms are positive."""
    term, total, slope, harmonic = (np.full_like(a, v) for v in (1.0, 1.0, 0.0, 0.0))
    n = 0
    while term.size and (term > _TINY * total).any():
        n += 1
        term = term * x / (a + n)
        harmonic = harmonic + 1 / (a + n)
        total = total + term
        slope = slope - term * harmonic
    # Near 0, x log(x) is 0.
    logarithm = np.where(x > 0, np.log(np.where(x > 0, x, 1)), 0)
    return -x / a * (total * (logarithm - digamma(a + 1)) + slope)


def _gamma_above(a: np.ndarray, x: np.ndarray, digamma: Any) -> np.ndarray:
    """By the continued fraction of ``(1 - F) / (x f)``, evaluated from its end with its derivative."""
    # Some 10 roots of a terms reach the last digit where x is near a; far above fewer do.
    terms = 40 + int(10 * np.sqrt(a.max())) if a.size else 0
    tail, slope = x + 2 * terms + 1 - a, np.full_like(a, -1.0)
    for n in range(terms, 0, -1):
        numerator = -n * (n - a)                            # its derivative by a is n
        slope = -1.0 + (n - numerator * slope / tail) / tail
        tail = x + 2 * n - 1 - a + numerator / tail
    fraction, fraction_slope = 1 / tail, -slope / tail**2
    return x * (fraction * (np.log(x) - digamma(a)) + fraction_slope)


def beta_slope(x: np.ndarray, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """``dx/dalpha`` of beta numbers `x`, in the shape that all three broadcast to; float64."""
    digamma = scipy_module("special").digamma
    shape = np.broadcast_shapes(x.shape, alpha.shape, beta.shape)
    x, a, b = (np.ravel(v).astype(np.float64) for v in np.broadcast_arrays(x, alpha, beta))
    made = np.empty_like(a)
    below = x < (a + 1) / (a + b + 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        made[below] = _beta_below(x[below], a[below], b[below], digamma)
        made[~below] = _beta_above(x[~below], a[~below], b[~below], digamma)
    return made.reshape(shape)


def _beta_below(x: np.ndarray, a: np.ndarray, b: np.ndarray, digamma: Any) -> np.ndarray:
    """By the series ``F / f = x (1 - x) / a * sum of (a + b)_n / (a + 1)_n x**n``."""
    total, slope = _rising_series(x, a + b, a + 1, lambda n: 1 / (a + b + n) - 1 / (a + 1 + n))
    logarithm = np.where(x > 0, np.log(np.where(x > 0, x, 1)), 0)
    return -x * (1 - x) / a * (total * (logarithm - 1 / a - digamma(a) + digamma(a + b)) + slope)


def _beta_above(x: np.ndarray, a: np.ndarray, b: np.ndarray, digamma: Any) -> np.ndarray:
    """By the same series of the other side, where a stands in the numerator alone."""
    total, slope = _rising_series(1 - x, a + b, b + 1, lambda n: 1 / (a + b + n))
    return x * (1 - x) / b * (total * (np.log(x) - digamma(a) + digamma(a + b)) + slope)


def _rising_series(y: np.ndarray, top: np.ndarray, bottom: np.ndarray, harmonic: Any) -> tuple[np.ndarray, np.ndarray]:
    """The sum of ``(top)_n / (bottom)_n y**n``, and of its terms times the sums of ``harmonic(0)`` to ``harmonic(n - 1)``."""
    term, total, slope, weights = (np.full_like(y, v) for v in (1.0, 1.0, 0.0, 0.0))
    n, growing = 0, True
    while y.size and growing:
        ratio = y * (top + n) / (bottom + n)
        weights = weights + harmonic(n)
        term = term * ratio
        total = total + term
        slope = slope + term * weights
        n += 1
        # Terms grow at first where top is far above bottom.
        growing = bool(((term > _TINY * total) | (ratio >= 1)).any())
    return total, slope
