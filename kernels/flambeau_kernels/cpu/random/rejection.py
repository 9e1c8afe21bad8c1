"""Gamma, Dirichlet, Poisson and binomial numbers from an `MT19937Stream`, the ones PyTorch's CPU draws.

How many uniform numbers one of these takes depends on the numbers themselves, so they are made one after
another by a loop over plain numbers: `loop(out, start, count, unit, end, spare, *parameters)` fills `out` from
`start` up to `count` while the `end` uniform numbers in `unit` last, and returns where it stopped, how many it
used and the spare normal it leaves (nan for none). `sample` feeds it. The loops are Python and kernel code at
once (see `engine/language/`: a `return` stands at the end, variables keep their kind), so both tiers run the
same steps; `rejection_loops` compiles them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..tier import compiles
from .stream import MT19937Stream, check_dtype

__all__ = ["binomial", "dirichlet", "poisson", "standard_gamma"]

THIRD32 = float(np.float32(1) / np.float32(3))       # a float32 even where the rest is float64
SMALLEST_BATCH = 64


def sample(stream: MT19937Stream, loop: Callable, parameters: tuple[np.ndarray, ...], count: int, per_number: float) -> np.ndarray:
    """`count` float64 numbers made by `loop`, which takes some `per_number` uniform numbers for each."""
    run = _as_kernel(loop, parameters) if compiles() else _as_python(loop, parameters)
    out, start, least = np.empty(count), 0, SMALLEST_BATCH
    while start < count:
        with stream.rewound():
            unit = stream.uniform64(max(least, int((count - start) * per_number)))
        reached, used, spare = run(out, start, unit, waiting(stream))
        stream.skip(2 * used)
        stream.spare_normal = None if math.isnan(spare) else float(spare)
        # A number that wants more than the whole batch gets a longer one.
        least = SMALLEST_BATCH if reached > start else 2 * unit.size
        start = reached
    return out


def _as_python(loop: Callable, parameters: tuple[np.ndarray, ...]) -> Callable:
    # Lists index several times faster than arrays.
    lists = [p.tolist() for p in parameters]
    return lambda out, start, unit, spare: loop(out, start, len(out), unit.tolist(), len(unit), spare, *lists)


def _as_kernel(loop: Any, parameters: tuple[np.ndarray, ...]) -> Callable:
    from .rejection_loops import COMPILED

    def run(out: np.ndarray, start: int, unit: np.ndarray, spare: float) -> tuple[int, int, float]:
        result = np.empty(3)
        COMPILED[loop].run(1, out, unit, result, start, len(out), len(unit), spare, *parameters, release=len(out) > 256)
        return int(result[0]), int(result[1]), float(result[2])

    return run


def waiting(stream: MT19937Stream) -> float:
    """The stream's spare normal, nan when there is none."""
    return math.nan if stream.spare_normal is None else stream.spare_normal


def rounded(values: np.ndarray, like: np.ndarray) -> np.ndarray:
    """`values` in the shape and dtype of `like`, half types by way of float32."""
    if like.dtype != np.float64:
        values = values.astype(np.float32)
    return values.astype(like.dtype, copy=False).reshape(like.shape)


def doubles(values: np.ndarray) -> np.ndarray:
    return np.ravel(values).astype(np.float64)


def poisson(stream: MT19937Stream, rate: np.ndarray) -> np.ndarray:
    """Numbers of events where `rate` are expected, in the shape and dtype of `rate`.

    Raises: RuntimeError for a negative or nan rate; NotImplementedError unless `rate` is floating.
    """
    check_dtype("poisson", rate.dtype, "f")
    if not (rate >= 0).all():
        raise RuntimeError(f"poisson: invalid Poisson rate, expected rate to be non-negative, got {rate[~(rate >= 0)].flat[0]}")
    rates = doubles(rate)
    per_number = 2.6 + float(np.minimum(rates, 10.0).mean()) if rates.size else 0.0
    return rounded(sample(stream, poisson_loop, (rates,), rates.size, per_number), rate)


def poisson_loop(out: Any, start: Any, count: Any, unit: Any, end: Any, spare: Any, rates: Any) -> Any:
    i, used, going = start, 0, True
    while going and i < count:
        rate, value, at = rates[i], 0.0, used
        if rate == math.inf:
            value = math.inf
        elif rate >= 10.0:
            value, at = poisson_by_rejection(rate, unit, at, end)
        elif rate != 0.0:
            value, at = poisson_by_products(rate, unit, at, end)
        going = at <= end
        if going:
            out[i] = value
            used = at
            i += 1
    return i, used, spare


def poisson_by_products(rate: Any, unit: Any, at: Any, end: Any) -> Any:
    """Uniform numbers multiplied until they fall below exp(-rate) (Knuth, TAOCP volume 2, section 3.4.1)."""
    floor, product, events, searching = math.exp(-rate), 1.0, 0.0, True
    while searching and at < end:
        product *= unit[at]
        at += 1
        searching = product > floor
        if searching:
            events += 1.0
    if searching:
        at = end + 1
    return events, at


def poisson_by_rejection(rate: Any, unit: Any, at: Any, end: Any) -> Any:
    """Algorithm PTRS of Hoermann 1993, "The transformed rejection method for generating Poisson ..."."""
    root, log_rate = math.sqrt(rate), math.log(rate)
    b = 0.931 + 2.53 * root
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2.0)
    value, searching = 0.0, True
    while searching and at + 2 <= end:
        u, v = unit[at] - 0.5, unit[at + 1]
        at += 2
        us = 0.5 - abs(u)
        k = float(math.floor((2.0 * a / us + b) * u + rate + 0.43)) if us > 0.0 else -1.0
        if us >= 0.07 and v <= v_r:
            value, searching = k, False
        elif k >= 0.0 and not (us < 0.013 and v > us):
            left = math.log(v) + math.log(inverse_alpha) - math.log(a / (us * us) + b) if v > 0.0 else -math.inf
            if left <= -rate + k * log_rate - math.lgamma(k + 1.0):
                value, searching = k, False
    if searching:
        at = end + 1
    return value, at


def binomial(stream: MT19937Stream, count: np.ndarray, prob: np.ndarray) -> np.ndarray:
    """Successes in `count` trials of probability `prob` each; both and the result of one shape and floating dtype.

    Outside [0, 1] a probability counts as the nearer end; nan gives nan.
    Raises: NotImplementedError unless `count` is floating.
    """
    check_dtype("binomial", count.dtype, "f")
    counts, probs = doubles(count), doubles(prob)
    return rounded(sample(stream, binomial_loop, (counts, probs, STIRLING_TAILS), counts.size, 3.0), count)


def binomial_loop(out: Any, start: Any, count: Any, unit: Any, end: Any, spare: Any, counts: Any, probs: Any, tails: Any) -> Any:
    i, used, going = start, 0, True
    while going and i < count:
        n, p, value, at = counts[i], probs[i], 0.0, used
        if n <= 0.0 or p <= 0.0:
            value = 0.0
        elif p >= 1.0:
            value = n
        elif p != p:
            value = math.nan
        else:
            # Of the two outcomes the rarer one is counted.
            rare = p if p <= 0.5 else 1.0 - p
            if n * rare >= 10.0:
                value, at = binomial_by_rejection(n, rare, unit, at, end, tails)
            else:
                value, at = binomial_by_waiting(n, rare, unit, at, end)
            value = value if p <= 0.5 else n - value
        going = at <= end
        if going:
            out[i] = value
            used = at
            i += 1
    return i, used, spare


def binomial_by_waiting(n: Any, p: Any, unit: Any, at: Any, end: Any) -> Any:
    """Successes counted by the geometric waiting times between them (Devroye 1986, chapter X.4.3)."""
    log_failure, trials, successes, searching = math.log1p(-p), 0.0, 0.0, True
    while searching and at < end:
        u = unit[at]
        at += 1
        trials += float(math.ceil(math.log(u) / log_failure)) if u > 0.0 else math.inf
        searching = trials <= n
        if searching:
            successes += 1.0
    if searching:
        at = end + 1
    return successes, at


def binomial_by_rejection(n: Any, p: Any, unit: Any, at: Any, end: Any, tails: Any) -> Any:
    """Algorithm BTRS of Hoermann 1993, "The generation of binomial random variates", JSCS 46."""
    spread = math.sqrt(n * p * (1.0 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = n * p + 0.5
    v_r = 0.92 - 4.2 / b
    odds = p / (1.0 - p)
    alpha = (2.83 + 5.1 / b) * spread
    mode = float(math.floor((n + 1.0) * p))
    value, searching = 0.0, True
    while searching and at + 2 <= end:
        u, v = unit[at] - 0.5, unit[at + 1]
        at += 2
        us = 0.5 - abs(u)
        k = float(math.floor((2.0 * a / us + b) * u + c)) if us > 0.0 else -1.0
        if us >= 0.07 and v <= v_r:
            value, searching = k, False
        elif k >= 0.0 and k <= n:
            left = math.log(v * alpha / (a / (us * us) + b)) if v > 0.0 else -math.inf
            right = (
                (mode + 0.5) * math.log((mode + 1.0) / (odds * (n - mode + 1.0)))
                + (n + 1.0) * math.log((n - mode + 1.0) / (n - k + 1.0))
                + (k + 0.5) * math.log(odds * (n - k + 1.0) / (k + 1.0))
                + stirling_tail(mode, tails) + stirling_tail(n - mode, tails)
                - stirling_tail(k, tails) - stirling_tail(n - k, tails)
            )
            if left <= right:
                value, searching = k, False
    if searching:
        at = end + 1
    return value, at


# log(k!) less Stirling's approximation at k + 1, for k = 0 ... 9 (Hoermann 1993, table of f_c).
STIRLING_TAILS = np.array((
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211,
    0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.00925546218271273, 0.00833056343336287,
))


def stirling_tail(k: Any, tails: Any) -> Any:
    square = (k + 1.0) * (k + 1.0)
    return tails[int(k)] if k <= 9.0 else (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1.0)


def standard_gamma(stream: MT19937Stream, alpha: np.ndarray) -> np.ndarray:
    """Gamma numbers of shape parameter `alpha` and scale 1, in the shape and dtype of `alpha`: float32 or float64.

    The smallest result is the smallest normal number of the dtype, which is also what an `alpha` of 0 gives, or one that is nan or
    far below 0.
    Raises: NotImplementedError for other dtypes.
    """
    if alpha.dtype not in (np.float32, np.float64):
        raise NotImplementedError(f"standard_gamma: alpha must be float32 or float64, got {alpha.dtype.name}")
    gammas = gamma_doubles(stream, alpha, single=alpha.dtype == np.float32)
    return np.maximum(rounded(gammas, alpha), np.finfo(alpha.dtype).tiny)


def gamma_doubles(stream: MT19937Stream, alpha: np.ndarray, single: bool) -> np.ndarray:
    """Gamma numbers in float64, 1-D; `single` rounds alpha's own arithmetic to float32."""
    alphas = doubles(alpha)
    boosted = alphas < 1.0
    with np.errstate(divide="ignore"):
        inverse = 1.0 / alphas
    raised = alphas + boosted
    if single:
        inverse, raised = single_precision(inverse), single_precision(raised)
    d = raised - THIRD32
    if single:
        d = single_precision(d)
    exponents = np.where(boosted, inverse, 0.0)
    exponents[alphas == 0] = np.inf
    exponents[np.isneginf(alphas)] = -np.finfo(np.float64).tiny  # it draws the uniform number too
    found = sample(stream, gamma_loop, (exponents, np.where(d > 0, d, np.nan)), alphas.size, 4.0)
    found[np.isnan(found)] = 0
    return found


def single_precision(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return values.astype(np.float32).astype(np.float64)


def gamma_loop(out: Any, start: Any, count: Any, unit: Any, end: Any, spare: Any, exponents: Any, ds: Any) -> Any:
    """Marsaglia and Tsang 2000, "A simple method for generating gamma variables", ACM TOMS 26(3).

    Args:
        exponents: 1 / alpha where alpha < 1: the result is scaled by that power of a uniform number; else 0.
        ds: alpha - 1/3, for alpha + 1 where alpha < 1.
    """
    i, used, going = start, 0, True
    while going and i < count:
        value, at, spare_then = one_gamma(exponents[i], ds[i], unit, used, end, spare)
        going = at <= end
        if going:
            out[i] = value
            used = at
            spare = spare_then
            i += 1
    return i, used, spare


def one_gamma(exponent: Any, d: Any, unit: Any, at: Any, end: Any, spare: Any) -> Any:
    value, scale, searching = 0.0, 1.0, exponent != math.inf
    if searching and exponent != 0.0:
        if at < end:
            p = 1.0 - unit[at]
            scale = math.inf
            if exponent > 0.0 or exponent * math.log(p) < 709.0:  # whose exponential is a number still
                scale = math.pow(p, exponent)
        at += 1
    c = 1.0 / math.sqrt(9.0 * d)
    while searching and at + 3 <= end:
        x = spare
        if spare == spare:
            spare = math.nan
        else:
            radius = math.sqrt(-2.0 * math.log1p(-unit[at + 1]))
            angle = 2.0 * math.pi * unit[at]
            x = radius * math.cos(angle)
            spare = radius * math.sin(angle)
            at += 2
        y = 1.0 + c * x
        if not y <= 0.0:                              # nan, of an alpha that is none, is the end of it as well
            v, square = y * y * y, x * x
            u = 1.0 - unit[at]
            at += 1
            if u < 1.0 - 0.0331 * square * square or math.log(u) < 0.5 * square + d * (1.0 - v + math.log(v)):
                value, searching = scale * d * v, False
    if searching:
        at = end + 1
    return value, at, spare


def dirichlet(stream: MT19937Stream, alpha: np.ndarray) -> np.ndarray:
    """Points of the simplex: gamma numbers of shape `alpha` divided by their sum along the last dim.

    Results stay inside (0, 1) by the smallest step of the dtype. In float64 the sum is added in another order
    than PyTorch's, so results may differ from its in the last bit.
    Raises: NotImplementedError unless `alpha` is float32 or float64.
    """
    if alpha.dtype not in (np.float32, np.float64):
        raise NotImplementedError(f"dirichlet: alpha must be float32 or float64, got {alpha.dtype.name}")
    gammas = gamma_doubles(stream, alpha, single=False).reshape(alpha.shape)
    gammas = np.maximum(gammas, np.finfo(np.float64).tiny)
    with np.errstate(invalid="ignore"):               # of infinities
        shares = (gammas / gammas.sum(axis=-1, keepdims=True)).astype(alpha.dtype)
    limits = np.finfo(alpha.dtype)
    return np.fmin(np.fmax(shares, limits.tiny), 1 - limits.epsneg)
