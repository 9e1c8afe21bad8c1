"""The loops of `rejection` as kernels: ``result`` takes where a loop stopped, what it used, and the spare normal."""

from __future__ import annotations

from typing import Any

from flambeau_kernels.engine.language import float64, kernel

from .rejection import binomial_loop, gamma_loop, poisson_loop

__all__ = ["COMPILED"]


@kernel
def poisson(chunk: Any, out: Any, unit: Any, result: Any, start: Any, count: Any, end: Any, spare: Any, rates: Any) -> Any:
    report(result, poisson_loop(out, start, count, unit, end, spare, rates))


@kernel
def binomial(chunk: Any, out: Any, unit: Any, result: Any, start: Any, count: Any, end: Any, spare: Any, counts: Any, probs: Any,
             tails: Any) -> Any:  # fmt: skip
    report(result, binomial_loop(out, start, count, unit, end, spare, counts, probs, tails))


@kernel
def gamma(chunk: Any, out: Any, unit: Any, result: Any, start: Any, count: Any, end: Any, spare: Any, exponents: Any, ds: Any) -> Any:
    report(result, gamma_loop(out, start, count, unit, end, spare, exponents, ds))


def report(result: Any, state: Any) -> Any:
    result[0] = float64(state[0])
    result[1] = float64(state[1])
    result[2] = state[2]


COMPILED = {poisson_loop: poisson, binomial_loop: binomial, gamma_loop: gamma}
