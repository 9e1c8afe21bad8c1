"""Logarithms combined with other things so that neither overflow nor ``0 * inf`` gets in: xlogy, logaddexp, logit, entr."""

from __future__ import annotations

from typing import Any

from flambeau_kernels.vocabulary import exp, exp2, isinf, isnan, log, log1p, maximum, real, sigmoid, where

from ...tensor import Tensor
from .._promote import common, floating, only, refuse
from .._spec import EXACTLY, FUNCTION, INPLACE, NO_FOREACH, OUT, composite, elementwise, looks_at
from .binary import check_tensors

INV_LN2 = 1.4426950408889634
real_floating = refuse("complex")(floating)


@looks_at("dtypes")
def _check_some_tensor(op: Any, input: Any, other: Any) -> None:
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        raise TypeError(f"{op.name}(): one of 'input' and 'other' must be Tensor, got {type(input).__name__} and {type(other).__name__}")


def _x_times(x, y, logarithm):
    # 0 wins over an infinite logarithm, nan over 0.
    return where(isnan(y), y, where(x == 0, 0, x * logarithm))


@elementwise(
    surface=NO_FOREACH,
    dtype=real_floating,
    scalar_first=True,
    check=_check_some_tensor,
    aliases=("special.xlogy",),
    vjp={
        "input": lambda grad, input, other: where((input == 0) & (other <= 0), 0, grad * log(other)),
        "other": lambda grad, input, other: grad * input / other,
    },
    samples=(0.2, 3.0),
)
def xlogy(input, other):
    """``input * log(other)``, and 0 where `input` is 0 unless `other` is nan."""
    return _x_times(input, other, log(other))


xlogy.shown_of("XlogyBackward1", "other")
xlogy.shown_of("XlogyBackward2", "input")


@elementwise(
    surface=FUNCTION | OUT,
    namespace="special",
    dtype=real_floating,
    scalar_first=True,
    check=_check_some_tensor,
    vjp={
        "input": lambda grad, input, other: where((input == 0) & (other <= -1), 0, grad * log1p(other)),
        "other": lambda grad, input, other: grad * input / (other + 1),
    },
    title="SpecialXlog1PyBackward0",
    samples=(0.2, 3.0),
)
def xlog1py(input, other):
    """``input * log1p(other)``, and 0 where `input` is 0 unless `other` is nan."""
    return _x_times(input, other, log1p(other))


@elementwise(
    surface=FUNCTION | OUT,
    namespace="special",
    dtype=real_floating,
    vjp={"input": lambda grad, input: grad * (-log(input) - 1)},
    title="SpecialEntrBackward0",
    samples=(0.2, 3.0),
)
def entr(input):
    """``-input * log(input)``: the entropy of a probability; 0 at 0 and -inf below."""
    return where(isnan(input), input, where(input > 0, -input * log(input), where(input == 0, 0, -float_inf)))


float_inf = float("inf")


@elementwise(
    surface=0,
    dtype=real_floating,
    vjp={"input": lambda grad, input: grad / where((input < 0) | (input > 1), float_nan, input * (1 - input))},
    title="LogitBackward0",
    samples=(0.1, 0.9),
    public_name="logit",
)
def logit_of(input):
    """``log(input / (1 - input))``."""
    return log(input / (1 - input))


logit_of.shown_as("LogitBackward0", eps=lambda saved: None)


float_nan = float("nan")


@elementwise(
    surface=0,
    dtype=real_floating,
    vjp={
        "input": lambda grad, input, low, high: where(
            (input < low) | (input > high), 0, grad / (input * (1 - input))
        )
    },
    samples=(0.1, 0.9),
)
def logit_within(input, low, high):
    """`logit_of` `input`, raised to `low` and then cut to `high`."""
    p = where(input < low, low, where(input > high, high, input))
    return log(p / (1 - p))


logit_within.shown_as("LogitBackward0", hides="high", eps="low")


@composite(surface=NO_FOREACH, aliases=("special.logit",), overlap=EXACTLY, samples="u(2, 3); u(2, 3), 0.1")
def logit(input, eps: float | None = None):
    """``log(input / (1 - input))``, the inverse of sigmoid; with `eps`, of `input` limited to ``[eps, 1 - eps]``."""
    if eps is None:
        return logit_of.function(input)
    return logit_within.function(input, eps, 1 - eps)


@elementwise(surface=0, dtype=only("floating")(common), partials={"input": lambda input: sigmoid(input)}, samples="x(2, 3)")
def log1p_exp(input):
    """``log(1 + exp(input))``: softplus without a threshold."""
    return log1p_exp(input)


@elementwise(
    surface=0,
    dtype=only("floating")(common),
    partials={"input": lambda input, other: 1 / (1 + exp(other - input)), "other": lambda input, other: 1 / (1 + exp(input - other))},
    title="LogaddexpBackward0",
    operator="logaddexp(input, other)",
    public_name="logaddexp",
)
def logaddexp_real(input, other):
    """``log(exp(input) + exp(other))``."""
    same = isinf(input) & (input == other)
    return where(same, input, maximum(input, other) + log1p_exp(-abs(input - other)))


logaddexp_real.shown_as("LogaddexpBackward0")


@elementwise(
    surface=0,
    dtype=only("complex")(common),
    partials={"input": lambda input, out: exp(input - out), "other": lambda other, out: exp(other - out)},
    title="LogaddexpBackward0",
    samples="c(2, 3), c(3)",
    public_name="logaddexp",
)
def logaddexp_complex(input, other):
    """``log(exp(input) + exp(other))``."""
    first = real(input) >= real(other)
    high, low = where(first, input, other), where(first, other, input)
    return high + log(1 + exp(low - high))


@composite(surface=NO_FOREACH & ~INPLACE, overlap=EXACTLY, samples="x(2, 3), x(3)")
def logaddexp(input, other):
    """``log(exp(input) + exp(other))`` without overflow."""
    for name, x in (("input", input), ("other", other)):
        if not isinstance(x, Tensor):
            raise TypeError(f"logaddexp(): argument '{name}' must be Tensor, not {type(x).__name__}")
    return (logaddexp_complex if _is_complex(input, other) else logaddexp_real).function(input, other)


def _is_complex(*args: Any) -> bool:
    return any(x.is_complex() for x in args if hasattr(x, "is_complex"))


@elementwise(
    surface=NO_FOREACH & ~INPLACE,
    dtype=only("floating")(common), check=check_tensors,
    partials={"input": lambda input, other: 1 / (1 + exp2(other - input)), "other": lambda input, other: 1 / (1 + exp2(input - other))},
)
def logaddexp2(input, other):
    """``log2(2 ** input + 2 ** other)`` without overflow."""
    same = isinf(input) & (input == other)
    return where(same, input, maximum(input, other) + INV_LN2 * log1p(exp2(-abs(input - other))))
